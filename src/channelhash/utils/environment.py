"""What this machine gives a job: its device, cores and memory."""

import os
import sys
from contextlib import AbstractContextManager
from functools import cache
from typing import TYPE_CHECKING, Any

from channelhash.errors import InputError
from channelhash.utils.optional_imports import library

if TYPE_CHECKING:
    import torch

if sys.platform != "win32":
    import resource


def usable_cores() -> int:
    """Return the number of cores that this process may run on; a cluster's job often has few of the machine's.

    >>> usable_cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pick_device(name: str) -> "torch.device":
    """Return the device that a name stands for: ``auto`` is the GPU if there is one, else the CPU.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
        first = str(error).strip().splitlines()[0]
        line = f"device {name!r} is not there ({first}); use auto, cpu, or cuda where there is a GPU"
        raise InputError(line) from None
    return device


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep NumPy's products to one thread: these are small, and threads that wait for each other took ten times as long
    beside other work.

    >>> with one_blas_thread():
    ...     float(sum([1.0, 2.0]))
    3.0
    """
    limits: AbstractContextManager[Any] = _blas().limit(limits=1, user_api="blas")
    return limits


@cache
def _blas() -> Any:
    return library("threadpoolctl", "photos").ThreadpoolController()


def peak_bytes() -> int | None:
    """Return the most resident memory that this process has had; None if unknown.

    >>> peak_bytes() is None or peak_bytes() > 1_000_000
    True
    """
    if sys.platform == "win32":
        return None
    used = resource.getrusage(resource.RUSAGE_SELF)
    # macOS counts bytes, all others 1024 of them.
    return used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
