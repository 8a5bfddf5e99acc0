"""The experiments of ``channelhash experiment``, one file each."""

#: Name of an experiment -> its file here, whose ``EXPERIMENT`` is read when the experiment runs (it needs PyTorch,
#: which ``--help`` does not).
EXPERIMENTS = {
    "losses": "losses",
    "gamma-w": "gamma_w",
    "architectures": "architectures",
    "factorial": "factorial",
    "reranking": "reranking",
    "extensions": "extensions",
    "baselines": "baselines",
    "weights": "weights",
    "robustness": "robustness",
    "incremental": "incremental",
    "distillation": "distillation",
    "bytes": "bytes",
    "both": "both",
}
