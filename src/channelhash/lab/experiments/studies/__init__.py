"""The experiments of ``channelhash experiment``, one file each."""

#: Name of an experiment -> its file here, whose ``EXPERIMENT`` is read when the experiment runs (it needs PyTorch,
#: which ``--help`` does not).
EXPERIMENTS = {
    "losses": "losses",
    "gamma-w": "gamma_w",
    "architectures": "architectures",
    "factorial": "factorial",
    "weights": "weights",
    "robustness": "robustness",
}
