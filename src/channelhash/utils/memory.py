"""Memory of this process: from ``/proc`` on Linux, from `resource` on macOS.

Windows does not tell it through Python's own library: there every figure is None, which tables show as unknown.
"""

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


def peak_bytes() -> int | None:
    """Return the most resident memory that this process has had; None if unknown.

    >>> peak_bytes() is None or peak_bytes() > 1_000_000
    True
    """
    if resource is None:
        return None
    used = resource.getrusage(resource.RUSAGE_SELF)
    # macOS counts bytes, all others 1024 of them.
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


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
