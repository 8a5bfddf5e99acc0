"""Evaluation from per-query histograms of Hamming distances, and the health of codes."""

from channelhash.metrics.code_health import CodeHealth, bit_health, channel_health, code_report
from channelhash.metrics.conventions import average_precision_in_order, average_precisions_in_order
from channelhash.metrics.histogram import HammingHistogram, hamming_histogram
from channelhash.metrics.recall import counterparts, recall_at_k
from channelhash.metrics.report import TaskReport, bootstrap_interval, evaluate, paired_test, report

__all__ = [
    "CodeHealth",
    "HammingHistogram",
    "TaskReport",
    "average_precision_in_order",
    "average_precisions_in_order",
    "bit_health",
    "bootstrap_interval",
    "channel_health",
    "code_report",
    "counterparts",
    "evaluate",
    "hamming_histogram",
    "paired_test",
    "recall_at_k",
    "report",
]
