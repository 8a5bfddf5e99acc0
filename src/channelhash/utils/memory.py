"""Memory and processor time of processes: from ``/proc`` on Linux, from ``ps`` and `resource` on macOS.

Windows tells neither through Python's own library: there every figure is None, which tables show as unknown.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def peak_bytes(children: bool = False) -> int | None:
    """Return the most resident memory that this process has had, or any of its ended children; None if unknown.

    >>> peak_bytes() is None or peak_bytes() > 1_000_000
    True
    """
    if resource is None:
        return None
    used = resource.getrusage(resource.RUSAGE_CHILDREN if children else resource.RUSAGE_SELF)
    # macOS counts bytes, all others 1024 of them.
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident_bytes(process: int | None = None) -> int | None:
    """Return the resident memory of a process (None: this one); None if unknown.

    >>> resident_bytes() is None or resident_bytes() > 1_000_000
    True
    """
    number = os.getpid() if process is None else process
    if (found := _status_bytes(number, "VmRSS")) is not None:
        return found
    try:
        done = subprocess.run(["ps", "-o", "rss=", "-p", str(number)], capture_output=True, check=False)
        return int(done.stdout) * 1024
    except (OSError, ValueError):
        return None


def family_bytes(process: int) -> int | None:
    """Return the memory of a process and its living children, what they share counted once; None if unknown.

    Only Linux tells it; elsewhere it is the resident memory of the process alone.

    >>> family_bytes(os.getpid()) is None or family_bytes(os.getpid()) > 1_000_000
    True
    """
    if not Path("/proc/self/smaps_rollup").exists():
        return resident_bytes(process)
    sizes = [_line_bytes(Path(f"/proc/{member}/smaps_rollup"), "Pss") for member in [process, *_children(process)]]
    return sum(size for size in sizes if size is not None) or None


def measure_extra_memory(run: Callable[[], object]) -> float | None:
    """Return the peak resident memory of this process during ``run``, beyond what it had before, in MB.

    It is None where the system does not tell. Linux can reset the peak; elsewhere only what goes beyond the process's
    former peak counts.
    """
    record = Path("/proc/self/clear_refs")
    if not record.exists():
        before = peak_bytes()
        run()
        after = peak_bytes()
        return None if before is None or after is None else (after - before) / 1e6
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)  # glibc keeps freed memory: a run that used it again would seem to need none
    record.write_text("5", encoding="ascii")
    before = _status_bytes(os.getpid(), "VmRSS") or 0
    run()
    return max(0.0, ((_status_bytes(os.getpid(), "VmHWM") or 0) - before) / 1e6)


def processor_seconds(process: int) -> float | None:
    """Return the processor time of a process and its living children; None where there is no ``/proc``."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    times = [_stat(member)[11:13] for member in [process, *_children(process)]]
    return sum(int(ticked) for pair in times for ticked in pair) / ticks


def _children(process: int) -> list[int]:
    """Return the living children of a process (Linux)."""
    members = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    return [member for member in members if _stat(member)[1:2] == [str(process)]]


def _stat(process: int) -> list[str]:
    """Return what ``/proc`` says of a process after its name: its state, its parent …; nothing if it has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _status_bytes(process: int, name: str) -> int | None:
    """Read a line of a process's status (Linux); None without one."""
    return _line_bytes(Path(f"/proc/{process}/status"), name)


def _line_bytes(file: Path, name: str) -> int | None:
    """Read a line ``name: 123 kB``; None without one."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
