"""Compiled loops over all cores that also work in a forked process."""

import threading
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from numba.np.ufunc.parallel import threading_layer

from channelhash.utils.compiled import get_num_threads, njit
from channelhash.utils.forks import is_forked

# Held by the loop that runs, where only one may.
_turn = threading.Lock()


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
            if is_forked():
                on_one_core(*arguments)
            elif _may_run_beside_others():
                on_all_cores(*arguments)
            else:
                with _turn:
                    on_all_cores(*arguments)

        return loop

    return compile_both


def _may_run_beside_others() -> bool:
    """Return whether threads may run loops at once.

    Numba's own pool, which is all it has without OpenMP (macOS) or TBB, ends the process then. Which pool it is shows
    when a loop has run.
    """
    try:
        return str(threading_layer()) != "workqueue"  # type: ignore[no-untyped-call]
    except ValueError:
        return False


def loop_threads() -> int:
    """Return the number of threads that a `parallel_loop` runs on.

    >>> loop_threads() >= 1
    True
    """
    return 1 if is_forked() else int(get_num_threads())
