"""One HTML page about a run or a grid of runs, whole in itself: pictures within, nothing loaded, no script."""

from channelhash.lab.report.write import write_report

__all__ = ["write_report"]
