"""Compiled loops, kept between processes: import ``njit`` and ``prange`` from here, and not from Numba.

Compiling all loops takes some 15 s. Numba keeps machine code beside each source file, so that every environment would
compile anew; here it is kept in the user's cache, by what it was compiled from. ``$NUMBA_CACHE_DIR`` names another
place. Where no place can be written, as for a user without a home, each process compiles for itself.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba import get_num_threads, prange
from numba.core import caching

from channelhash.errors import InputError
from channelhash.utils.files import cache_folder, content_hash

__all__ = ["get_num_threads", "njit", "prange"]

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
