"""Compiled loops over all cores that also work in a forked process."""

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from channelhash.utils.compiled import get_num_threads, njit
from channelhash.utils.forks import is_forked


def parallel_loop(signature: Any = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile a function whose loops over ``prange`` run on all cores; in a forked process, on one.

    Args:
        signature: Numba's, if the loop is compiled when it is defined; None compiles it at its first call.
    """

    def compile_both(function: Callable[..., None]) -> Callable[..., None]:
        assert isinstance(function, FunctionType)
        on_all_cores = njit(signature, cache=True, parallel=True)(function)
        alone = FunctionType(function.__code__, function.__globals__, function.__name__)
        alone.__qualname__ = f"{function.__qualname__}_alone"  # its own place in Numba's cache, which goes by this name
        on_one_core = njit(cache=True, nogil=True)(alone)  # compiled at its first call

        @wraps(function)
        def loop(*arguments: Any) -> None:
            (on_one_core if is_forked() else on_all_cores)(*arguments)

        return loop

    return compile_both


def loop_threads() -> int:
    """Return the number of threads that a `parallel_loop` runs on.

    >>> loop_threads() >= 1
    True
    """
    return 1 if is_forked() else int(get_num_threads())
