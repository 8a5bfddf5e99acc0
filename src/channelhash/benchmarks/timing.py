"""Rows of a benchmark: medians of warm runs, ours and the alternative in turn."""

import os
import platform
import resource
import statistics
import time
from collections.abc import Callable
from typing import TypedDict


class Row(TypedDict):
    """One measurement. ``ratio`` is baseline seconds over ours: above 1, ours is faster."""

    what: str
    size: str
    seconds: float
    baseline: str
    baseline_seconds: float | None
    ratio: float | None
    peak_mb: float


def compare(
    what: str,
    size: str,
    ours: Callable[[], object],
    baseline: str = "",
    other: Callable[[], object] | None = None,
    repeats: int = 5,
) -> Row:
    """Time ``ours`` and ``other`` in turn, ``repeats`` times after a warm-up each, and give the medians."""
    runs = [run for run in (ours, other) if run is not None]
    times: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    for _ in range(repeats):
        for run, measured in zip(runs, times, strict=True):
            began = time.perf_counter()
            run()
            measured.append(time.perf_counter() - began)
    medians = [statistics.median(measured) for measured in times]
    return {
        "what": what,
        "size": size,
        "seconds": medians[0],
        "baseline": baseline,
        "baseline_seconds": medians[1] if other else None,
        "ratio": medians[1] / medians[0] if other else None,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def machine() -> str:
    """The processor and its number of cores, in words."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            name = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {os.cpu_count()} cores"
