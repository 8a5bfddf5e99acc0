"""Evaluation from per-query histograms of Hamming distances."""

from channelhash.metrics.histogram import HammingHistogram, hamming_histogram
from channelhash.metrics.ranking import average_precision_in_order
from channelhash.metrics.report import TaskReport, evaluate, report
from channelhash.metrics.significance import bootstrap_interval, paired_test

__all__ = [
    "HammingHistogram",
    "TaskReport",
    "average_precision_in_order",
    "bootstrap_interval",
    "evaluate",
    "hamming_histogram",
    "paired_test",
    "report",
]
