"""The experiments of ``channelhash experiment``."""

#: Name of an experiment -> ``file:NAME`` of its record here, read when the experiment runs (it
#: needs PyTorch, which ``--help`` does not).
EXPERIMENTS = {
    "losses": "paper:LOSSES",
    "gamma-w": "paper:GAMMA_W",
    "architectures": "paper:ARCHITECTURES",
    "factorial": "factorial:EXPERIMENT",
    "benchmark": "benchmark:EXPERIMENT",
    "robustness": "robustness:EXPERIMENT",
}
