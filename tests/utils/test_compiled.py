import shutil
from pathlib import Path

import pytest

from channelhash.channels import dsch_bounds
from channelhash.utils import compiled


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_machine_code_is_kept_in_the_users_cache(cache):
    # A function of a file of this package, so that Numba takes it for one of ours.
    code = compile("def double(x):\n    return 2 * x\n", compiled.__file__, "exec")
    functions = {"__name__": compiled.__name__}
    exec(code, functions)
    assert compiled.njit(cache=True)(functions["double"])(21) == 42
    (folder,) = (cache / "compiled").iterdir()
    assert folder.name.startswith("utils-")
    assert {path.suffix for path in folder.iterdir()} == {".nbi", ".nbc"}
    again = compiled.njit(cache=True)(functions["double"])
    assert again(21) == 42
    assert again.stats.cache_hits == {again.signatures[0]: 1}


def test_the_place_goes_by_the_content_and_not_by_the_environment(tmp_path):
    folder = Path(compiled.__file__).parents[1] / "search" / "index"
    copy = shutil.copytree(folder, tmp_path / "elsewhere", ignore=shutil.ignore_patterns("__pycache__"))
    before = compiled._version_of(copy)
    assert before == compiled._version_of(folder)
    compiled._version_of.cache_clear()
    (copy / "plain_scan.py").write_text((copy / "plain_scan.py").read_text() + "# more\n")
    assert compiled._version_of(copy) != before


def test_other_functions_and_places_are_left_to_numba(monkeypatch, cache):
    ours = dsch_bounds.__code__.co_filename
    assert compiled.SharedCache.from_function(test_other_functions_and_places_are_left_to_numba, __file__) is None
    assert compiled.SharedCache.from_function(dsch_bounds, ours) is not None
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(cache))
    assert compiled.SharedCache.from_function(dsch_bounds, ours) is None
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setenv("CHANNELHASH_CACHE", str(Path(__file__)))  # where nothing can be written
    assert compiled.SharedCache.from_function(dsch_bounds, ours) is None


@pytest.mark.parametrize("home", ["cannot be written", "missing"])
def test_loops_are_compiled_where_nothing_can_be_kept(monkeypatch, home):
    def refuse(*_):
        raise PermissionError("no cache here") if home == "cannot be written" else RuntimeError("no home")

    monkeypatch.delenv("CHANNELHASH_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(
        *((compiled.caching._CacheLocator, "ensure_cache_path") if home == "cannot be written" else (Path, "home")),
        refuse,
    )
    code = compile("def double(x):\n    return 2 * x\n", compiled.__file__, "exec")
    functions = {"__name__": compiled.__name__}
    exec(code, functions)
    double = compiled.njit("int64(int64)", cache=True)(functions["double"])
    assert double(21) == 42
    assert double.stats.cache_path is None
