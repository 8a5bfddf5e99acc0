"""Evaluation from per-query histograms of Hamming distances."""

from channelhash.metrics.histogram import HammingHistogram, hamming_histogram
from channelhash.metrics.report import TaskReport, evaluate, report

__all__ = ["HammingHistogram", "TaskReport", "evaluate", "hamming_histogram", "report"]
