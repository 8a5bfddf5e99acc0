"""Rows of a measurement: medians of warm runs, with an alternative in turn."""

import ctypes
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from channelhash.utils.machine import peak_bytes


def measure_extra_memory(run: Callable[[], object]) -> float | None:
    """Return the peak resident memory of this process during ``run``, beyond what it had before, in
    MB.

    It is None where the system does not tell. Linux can reset the peak; elsewhere only what goes
    beyond the process's former peak counts.
    """
    record = Path("/proc/self/clear_refs")
    if not record.exists():
        before = peak_bytes()
        run()
        after = peak_bytes()
        return None if before is None or after is None else (after - before) / 1e6
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        # glibc keeps freed memory: a run that used it again would seem to need none
        libc.malloc_trim(0)
    record.write_text("5", encoding="ascii")
    before = _status_bytes("VmRSS")
    run()
    return max(0.0, (_status_bytes("VmHWM") - before) / 1e6)


def _status_bytes(name: str) -> int:
    """Read a line ``name: 123 kB`` of this process's status (Linux)."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


# Seconds that a measurement lasts at least.
_SHORTEST = 0.05


class Row(TypedDict):
    """One measurement.

    ``ratio`` is the baseline's seconds over ours: above 1, ours is faster. ``peak_mb`` is our peak
    memory beyond what was there before, such as inputs and libraries; None where the system does
    not tell (Windows).
    """

    what: str
    size: str
    seconds: float
    baseline: str
    baseline_seconds: float | None
    ratio: float | None
    peak_mb: float | None


def compare(
    what: str,
    size: str,
    ours: Callable[[], object],
    baseline: str = "",
    alternative: Callable[[], object] | None = None,
    repeats: int = 5,
    part: float = 1.0,
) -> Row:
    """Time ``ours`` and ``alternative`` in turn, ``repeats`` times after a warm-up each, and return
    the medians.

    A call that takes less than a twentieth of a second is repeated and its time divided, so that
    neither side meets the caches as the other left them.

    Args:
        what: names the measurement.
        size: of the work, in words.
        ours: what is measured.
        baseline: names the alternative.
        alternative: does the same work; None measures ours alone.
        repeats: number of measurements.
        part: share of the work that ``alternative`` does, in (0, 1]; its time is scaled to the
            whole.

    >>> row = compare("sum", "3 numbers", lambda: sum([1, 2, 3]))
    >>> row["what"], row["baseline_seconds"], row["ratio"]
    ('sum', None, None)
    """
    runs = [run for run in (ours, alternative) if run is not None]
    times: list[list[float]] = [[] for _ in runs]
    peak = measure_extra_memory(ours)
    for run in runs[1:]:
        run()
    calls = [max(1, round(_SHORTEST / max(_seconds(run, 1), 1e-9))) for run in runs]
    for _ in range(repeats):
        for run, count, measured in zip(runs, calls, times, strict=True):
            measured.append(_seconds(run, count))
    medians = [statistics.median(measured) for measured in times]
    row = single_row(what, size, medians[0], peak)
    row["baseline"] = baseline
    if alternative:
        row["baseline_seconds"] = medians[1] / part
        row["ratio"] = medians[1] / part / medians[0]
    return row


def single_row(what: str, size: str, seconds: float, peak_mb: float | None) -> Row:
    """Return the row of a measurement without an alternative.

    >>> single_row("encode", "10 images", seconds=2.0, peak_mb=5.0)["baseline"]
    ''
    """
    return {
        "what": what,
        "size": size,
        "seconds": seconds,
        "baseline": "",
        "baseline_seconds": None,
        "ratio": None,
        "peak_mb": peak_mb,
    }


def _seconds(run: Callable[[], object], calls: int) -> float:
    """Measure the seconds of a call, over several in a row."""
    began = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - began) / calls


def describe_machine() -> str:
    """Return the processor and its number of cores, in words."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            name = next(
                line.split(":")[1].strip() for line in file if line.startswith("model name")
            )
    except (OSError, StopIteration):
        pass
    return f"{name}, {os.cpu_count()} cores"
