"""One HTML page about a run or a grid of runs that holds its images, loads nothing and runs no script."""

from channelhash.lab.report.grid_page import write_report

__all__ = ["write_report"]
