"""Rows of a benchmark: medians of warm runs, ours and the alternative in turn."""

import ctypes
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

# Seconds that a measurement lasts at least.
_SHORTEST = 0.05


class Row(TypedDict):
    """One measurement. ``ratio`` is baseline seconds over ours: above 1, ours is faster. ``peak_mb`` is the memory that
    ours takes at its highest beside what is there before it: inputs, libraries."""

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
    part: float = 1.0,
) -> Row:
    """Time ``ours`` and ``other`` in turn, ``repeats`` times after a warm-up each, and give the medians.

    What takes less than a twentieth of a second is called several times in a row and its time divided, so that neither
    meets the caches as the other left them.

    Args:
        part: share of the work that ``other`` does, in (0, 1]; its time is scaled to the whole.
    """
    runs = [run for run in (ours, other) if run is not None]
    times: list[list[float]] = [[] for _ in runs]
    peak = extra_megabytes(ours)
    for run in runs[1:]:
        run()
    calls = [max(1, round(_SHORTEST / max(_seconds(run, 1), 1e-9))) for run in runs]
    for _ in range(repeats):
        for run, count, measured in zip(runs, calls, times, strict=True):
            measured.append(_seconds(run, count))
    medians = [statistics.median(measured) for measured in times]
    if other:
        medians[1] /= part
    return {
        "what": what,
        "size": size,
        "seconds": medians[0],
        "baseline": baseline,
        "baseline_seconds": medians[1] if other else None,
        "ratio": medians[1] / medians[0] if other else None,
        "peak_mb": peak,
    }


def _seconds(run: Callable[[], object], calls: int) -> float:
    """Seconds a call, over so many in a row."""
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - began) / calls


def extra_megabytes(run: Callable[[], object]) -> float:
    """Resident memory of this process at its highest during ``run``, beside what it had before, in MB.

    Linux can start the record anew; elsewhere it counts what goes beyond the process's former record.
    """
    record = Path("/proc/self/clear_refs")
    if not record.exists():
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run()
        # macOS counts bytes, all others 1024 of them.
        unit = 1 if sys.platform == "darwin" else 1024
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit / 1e6
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)  # glibc keeps freed memory: a run that used it again would seem to need none
    record.write_text("5")
    before = _status_kilobytes("VmRSS")
    run()
    return max(0.0, (_status_kilobytes("VmHWM") - before) * 1024 / 1e6)


def _status_kilobytes(name: str) -> int:
    """A line of this process's status in units of 1024 bytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def machine() -> str:
    """The processor and its number of cores, in words."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            name = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return f"{name}, {os.cpu_count()} cores"
