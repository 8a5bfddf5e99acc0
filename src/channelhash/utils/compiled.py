"""Compiled loops, kept between processes: import ``njit`` and ``prange`` from here, and not from Numba.

Compiling all loops takes some 15 s. Machine code is kept in the user's cache, or in ``$NUMBA_CACHE_DIR``. Where no
place can be written, as for a user without a home, each process compiles for itself.
"""

import threading
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import numba
from numba import get_num_threads, prange
from numba.np.ufunc.parallel import threading_layer

from channelhash.errors import InputError
from channelhash.utils.files import cache_folder, content_hash
from channelhash.utils.processes import is_forked

__all__ = ["loop_threads", "njit", "parallel_loop", "prange"]

_numba_njit: Any = numba.njit
_config: Any = numba.config
_POPCOUNT = Path(__file__).parents[1] / "codes" / "popcount.py"


@cache
def _place(folder: Path) -> str:
    """Return where the machine code of a folder goes: Numba itself only sees changes of a loop's own file."""
    files = [*sorted(folder.glob("*.py")), _POPCOUNT]
    return str(cache_folder() / "compiled" / content_hash(*(file.read_bytes() for file in files))[:16])


def njit(*signature: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as ``numba.njit`` does, but keep no machine code where no place for it can be written."""

    def compiled(function: Callable[..., Any]) -> Any:
        before = _config.CACHE_DIR
        try:
            _config.CACHE_DIR = before or _place(Path(function.__code__.co_filename).parent)
            return _numba_njit(*signature, **options)(function)
        except (InputError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "no locator" not in str(error):
                raise
            return _numba_njit(*signature, **options | {"cache": False})(function)
        finally:
            _config.CACHE_DIR = before

    return compiled


# Held by the loop that runs, where only one may.
_turn = threading.Lock()


def parallel_loop(signature: Any = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Compile a function whose loops over ``prange`` run on all cores; in a forked process, on one."""

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
