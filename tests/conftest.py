import gc
import os
import re
import shutil
import signal
import subprocess
import sys
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

import channelhash
from channelhash.utils.files import cache_folder
from channelhash.utils.hashes import content_hash

if find_spec("torchvision"):  # before a test imports anything that imports it
    import channelhash.utils.torchvision_compat  # noqa: F401

# Compiled loops are the same in all tests and their child processes, whose other caches are their
# own. Numba reads what other versions of the loops left behind, and fails where a type has a new
# name.
_PACKAGE = Path(channelhash.__file__).parent
_LOOPS = [*_PACKAGE.glob("search/index/*.py"), *_PACKAGE.glob("metrics/*.py")]
_VERSION = content_hash(*(path.read_bytes() for path in sorted(_LOOPS)))[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "compiled-in-tests" / _VERSION))

# A busy machine is no failure: examples have no deadline. Else as hypothesis has it: in CI the same
# examples each time.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

# Files, signals and limits of processes as only POSIX has them.
_POSIX = re.compile(r"^import (fcntl|resource)$", re.MULTILINE)
if sys.platform == "win32":
    sources = Path(__file__).parent.rglob("*.py")
    collect_ignore = [str(path) for path in sources if _POSIX.search(path.read_text("utf-8"))]

FILES = pytest.StashKey[set[str]]()

# Literal transcriptions and fixture generators are imported by the tests that use them.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Caches of the tests are their own, in child processes too; the processes of one run share
    them.
    """
    base = tmp_path_factory.getbasetemp()
    cache = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache"
    cache.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHANNELHASH_CACHE", str(cache))
        yield


@pytest.fixture(autouse=True)
def own_signals():
    """Commands that tests run in this process take SIGINT and SIGTERM for themselves; each test
    gives them back.
    """
    before, hook = (
        {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)},
        sys.unraisablehook,
    )
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    sys.unraisablehook = hook


@pytest.fixture
def in_folder(request, tmp_path, monkeypatch):
    """A person's folder with the modules `OWN` of a test's file, which the interpreter knows from
    nowhere else.
    """
    for name, text in request.module.OWN.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)  # that of the test before
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture
def few_english_words(tmp_path, monkeypatch):
    """The 8,000 most frequent words of SymSpell's dictionary for all 82,833, which take seconds to
    load.
    """
    from channelhash.text import word_vectors

    name = "frequency_dictionary_en_82_765.txt"
    lines = (files("symspellpy") / name).read_text(encoding="utf-8").splitlines()[:8000]
    (tmp_path / "few words").mkdir()
    (tmp_path / "few words" / name).write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setattr(word_vectors, "files", lambda package: tmp_path / "few words")
    monkeypatch.setattr(word_vectors, "_speller", lru_cache(word_vectors._speller.__wrapped__))


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory):
    """The folder of a saved model that nobody trained; tests only read it."""
    from small_stores import small_model

    folder = tmp_path_factory.mktemp("model")
    small_model(folder)
    return folder / "model"


# Folders of tools and of data, which git ignores.
NOT_LOOKED_AT = {"__pycache__", "build", "data", "dist", "site"}


def files_here() -> set[str]:
    """List the files of the repository and of the current folder; hidden folders are those of
    tools.
    """
    found = set()
    for root in {str(Path(__file__).parents[1]), os.getcwd()}:
        for folder, folders, names in os.walk(root):
            folders[:] = [
                name for name in folders if name not in NOT_LOOKED_AT and not name.startswith(".")
            ]
            found.update(os.path.join(folder, name) for name in names)
    return found


def pytest_sessionstart(session):
    session.config.stash[FILES] = files_here()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    """Leave what collecting has imported out of the garbage collector's rounds, which take a sixth
    of all time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """Fail a run that leaves files behind. A worker leaves that to who started it."""
    left = sorted(files_here() - session.config.stash[FILES])
    if left and shutil.which("git"):  # what a checkout has brought meanwhile is none of the tests'
        root = str(Path(__file__).parents[1])
        tracked = subprocess.run(
            ["git", "ls-files"], cwd=root, capture_output=True, text=True, check=False
        ).stdout
        left = sorted(set(left) - {os.path.join(root, name) for name in tracked.splitlines()})
    if left and not hasattr(session.config, "workerinput"):
        session.exitstatus = max(int(exitstatus), pytest.ExitCode.TESTS_FAILED)
        session.config.get_terminal_writer().line(
            "\nleft behind by the tests: " + ", ".join(left), red=True
        )
