import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

import channelhash.utils.torchvision_compat  # noqa: F401  before a test imports anything that imports torchvision
from channelhash.utils.files import cache_folder

# Compiled loops are the same in all tests and their child processes, whose other caches are their own.
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "compiled-in-tests"))

# A busy machine is no failure: examples have no deadline. Else as hypothesis has it: in CI the same examples each time.
settings.register_profile("untimed", settings.default, deadline=None)
settings.load_profile("untimed")

# Literal transcriptions and fixture generators are imported by the tests that use them.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Caches of the tests are their own, in child processes too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CHANNELHASH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def own_signals():
    """Commands that tests run in this process take SIGINT and SIGTERM for themselves; each test gives them back."""
    before, hook = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}, sys.unraisablehook
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    sys.unraisablehook = hook
