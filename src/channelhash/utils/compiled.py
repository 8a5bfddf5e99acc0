"""Compiled loops, kept between processes: import ``njit`` from here, and not from Numba.

Compiling a loop takes a second or so. Machine code is kept in the user's cache, or in
``$NUMBA_CACHE_DIR``. Where no place can be written, as for a user without a home, each process
compiles for itself.
"""

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from channelhash.errors import InputError
from channelhash.utils.files import cache_folder
from channelhash.utils.hashes import content_hash

_numba_njit: Any = numba.njit
_config: Any = numba.config


@cache
def _place(folder: Path) -> str:
    """Return where the machine code of a folder's loops is kept.

    The place depends on all files of the folder: Numba notices changes of a loop's own file only.
    """
    files = [*sorted(folder.glob("*.py")), Path(__file__)]  # of which loops use `popcount`
    return str(
        cache_folder() / "compiled" / content_hash(*(file.read_bytes() for file in files))[:16]
    )


def njit(*signature: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as ``numba.njit`` does, but keep no machine code where no place for it can
    be written.

    Divisions go without Python's checks for zero, each of which is compiled.
    """
    options = {"error_model": "numpy", **options}

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


def inner(function: Callable[..., Any]) -> Any:
    """Compile a function that only compiled ones call: without an entry from Python, which takes as
    long again to compile.
    """
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile a function into each compiled one that calls it: passing arrays to a call takes some
    ten nanoseconds.
    """
    return njit(inline="always")(function)


@intrinsic
def popcount(typing_context, word):  # type: ignore[no-untyped-def]
    """Return the number of set bits of an unsigned word, of the same type, as one machine
    instruction.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        kind = ir.IntType(word.bitwidth)
        function = builder.module.declare_intrinsic(
            "llvm.ctpop", [kind], ir.FunctionType(kind, [kind])
        )
        return builder.call(function, arguments)

    return word(word), generate


@intrinsic
def uncounted(typing_context, values):  # type: ignore[no-untyped-def]
    """Return arrays, or tuples with arrays, whose references are not counted: counting takes most
    of the time of a short loop that passes arrays on. The caller of the function that asks for them
    must hold them, which arguments always are.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _uncount(context, builder, values, arguments[0])

    return values(values), generate


def _uncount(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    if isinstance(kind, types.BaseTuple):
        parts = [
            _uncount(context, builder, part, builder.extract_value(value, i))
            for i, part in enumerate(kind.types)  # type: ignore[attr-defined]
        ]
        return context.make_tuple(builder, kind, parts)
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = ir.Constant(array.meminfo.type, None)
        return array._getvalue()
    return value


#: Parts that a loop is cut into for each thread, so that all threads end at about the same time.
_PARTS = 8


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(loop_threads(), "channelhash-loop")


if hasattr(os, "register_at_fork"):  # a child has no threads of its parent's
    os.register_at_fork(after_in_child=_pool.cache_clear)


def run_tasks(loop: Callable[..., None], tasks: int, *arguments: Any, alone: bool = False) -> None:
    """Run ``loop(first, last, *arguments)``, compiled with ``nogil``, over ranges of tasks on all
    cores at once.

    Numba's own parallel loops take some three times as long to compile, and not all of its pools
    can be used by several threads, or after a fork. With ``alone``, this thread does all: waking
    the others takes longer than they save.
    """
    threads = 1 if alone else min(loop_threads(), tasks)
    if threads <= 1:
        loop(0, tasks, *arguments)
        return
    size = -(-tasks // (_PARTS * threads))
    starts = iter(range(0, tasks, size))

    def work() -> None:
        for first in starts:
            loop(first, min(first + size, tasks), *arguments)

    helpers = [_pool().submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        deque(starts, 0)  # after an error or Ctrl-C nothing more is begun
        for helper in helpers:
            if not helper.cancel():
                helper.result()


def limit_threads(most: int) -> None:
    """Let no loop of this process run on more threads."""
    _config.NUMBA_NUM_THREADS = min(most, loop_threads())


def loop_threads() -> int:
    """Return the number of threads that `run_tasks` works on.

    >>> loop_threads() >= 1
    True
    """
    return int(_config.NUMBA_NUM_THREADS)
