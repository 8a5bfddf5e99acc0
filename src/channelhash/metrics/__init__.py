"""Evaluation from per-query histograms of Hamming distances."""

from channelhash.metrics.conventions import average_precision_in_order, average_precisions_in_order
from channelhash.metrics.histogram import HammingHistogram, hamming_histogram
from channelhash.metrics.recall import counterparts, recall_at_k
from channelhash.metrics.report import TaskReport, evaluate, report
from channelhash.metrics.resampling import bootstrap_interval, paired_test

__all__ = [
    "HammingHistogram",
    "TaskReport",
    "average_precision_in_order",
    "average_precisions_in_order",
    "bootstrap_interval",
    "counterparts",
    "evaluate",
    "hamming_histogram",
    "paired_test",
    "recall_at_k",
    "report",
]


def __dir__() -> list[str]:
    return sorted(__all__)
