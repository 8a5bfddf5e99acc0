"""Compiled loops, kept between processes: import ``njit`` and ``prange`` from here, and not from Numba.

Compiling all loops takes some 15 s. Numba keeps machine code beside each source file, so that every environment would
compile anew; here it is kept in the user's cache, by what it was compiled from. ``$NUMBA_CACHE_DIR`` names another
place. Where no place can be written, as for a user without a home, each process compiles for itself.
"""

import os
import threading
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import llvmlite
import numba
from numba import get_num_threads, prange
from numba.core import caching
from numba.np.ufunc.parallel import threading_layer

from channelhash.errors import InputError
from channelhash.utils.files import cache_folder, content_hash
from channelhash.utils.processes import is_forked

__all__ = ["loop_threads", "njit", "parallel_loop", "prange"]

_PACKAGE = Path(__file__).parents[1]


@cache
def _version_of(folder: Path) -> str:
    """Return a hash of all that the loops in a folder are compiled from: its files, `popcount` and the compiler."""
    files = [*sorted(folder.glob("*.py")), _PACKAGE / "codes" / "popcount.py", Path(__file__)]
    versions = [numba.__version__.encode(), llvmlite.__version__.encode()]
    return content_hash(*versions, *(file.read_bytes() for file in files))[:16]


class SharedCache(caching.UserWideCacheLocator):
    """Where Numba keeps the machine code of this package's functions, in whichever environment it is installed."""

    def __init__(self, py_func: Any, py_file: str) -> None:
        self._py_file, self._lineno = py_file, py_func.__code__.co_firstlineno
        folder = Path(py_file).resolve().parent
        name = ".".join(folder.relative_to(_PACKAGE).parts)
        self._cache_path = str(cache_folder() / "compiled" / f"{name}-{_version_of(folder)}")

    def get_source_stamp(self) -> str:
        """Return the same for every file: the place itself goes by the content."""
        return ""

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> Any:
        """Return the place of a function; None of one that is not of this package."""
        if os.environ.get("NUMBA_CACHE_DIR") or not Path(py_file).resolve().is_relative_to(_PACKAGE):
            return None
        return super().from_function(py_func, py_file)  # type: ignore[no-untyped-call]


_numba_njit: Any = numba.njit
_locators = getattr(caching, "CacheImpl" if hasattr(caching, "CacheImpl") else "_CacheImpl")._locator_classes
if SharedCache not in _locators:
    _locators.insert(0, SharedCache)


def njit(*signature: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as ``numba.njit`` does, but keep no machine code where no place for it can be written."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return _numba_njit(*signature, **options)(function)
        except (InputError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "no locator" not in str(error):
                raise
            return _numba_njit(*signature, **options | {"cache": False})(function)

    return compiled


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
