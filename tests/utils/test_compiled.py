from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from numba.core import caching

from channelhash.utils import compiled


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled._config, "CACHE_DIR", "")
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache"))
    compiled._place.cache_clear()
    return tmp_path / "cache"


@pytest.fixture
def double():
    """A function of a file of this package."""
    functions = {"__name__": compiled.__name__}
    exec(compile("def double(x):\n    return 2 * x\n", compiled.__file__, "exec"), functions)
    return functions["double"]


def test_machine_code_is_kept_in_the_users_cache(cache, double):
    assert compiled.njit(cache=True)(double)(21) == 42
    assert {path.suffix for path in (cache / "compiled").rglob("*") if path.is_file()} == {
        ".nbi",
        ".nbc",
    }
    again = compiled.njit(cache=True)(double)
    assert again(21) == 42
    assert again.stats.cache_hits == {again.signatures[0]: 1}
    assert compiled._config.CACHE_DIR == ""


def test_the_place_goes_by_the_content(tmp_path):
    (tmp_path / "a.py").write_text("x = 1")
    before = compiled._place(tmp_path)
    compiled._place.cache_clear()
    (tmp_path / "a.py").write_text("x = 2")
    assert compiled._place(tmp_path) != before


@pytest.mark.parametrize("home", ["cannot be written", "missing"])
def test_loops_are_compiled_where_nothing_can_be_kept(monkeypatch, double, home):
    error = (
        PermissionError("no cache here") if home == "cannot be written" else RuntimeError("no home")
    )
    monkeypatch.delenv("CHANNELHASH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    target = (
        (caching._CacheLocator, "ensure_cache_path")
        if home == "cannot be written"
        else (Path, "home")
    )
    monkeypatch.setattr(*target, Mock(side_effect=error))
    function = compiled.njit("int64(int64)", cache=True)(double)
    assert function(21) == 42
    assert function.stats.cache_path is None


@pytest.mark.parametrize("tasks", [1, 3, 1000])
def test_tasks_are_each_run_once_whatever_else_runs(tasks, monkeypatch):
    """Threads of one program may all call loops, as those of the server do."""
    monkeypatch.setattr(compiled._config, "NUMBA_NUM_THREADS", 8)
    compiled.limit_threads(4)

    @compiled.njit(nogil=True)
    def count(first, last, out):
        for task in range(first, last):
            out[task] += 1

    outs = [np.zeros(tasks, np.int64) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda out: compiled.run_tasks(count, tasks, out), outs))
    np.testing.assert_array_equal(outs, 1)


def test_an_error_in_one_task_ends_the_others(monkeypatch):
    monkeypatch.setattr(compiled, "loop_threads", lambda: 4)
    begun = []
    with pytest.raises(TypeError):
        compiled.run_tasks(lambda first, last: begun.append(first) + 1, 1000)
    assert len(begun) <= 4
