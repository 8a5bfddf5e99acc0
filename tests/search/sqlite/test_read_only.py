"""Stores that can only be read, and processes that may open no more files: both are told from
damage.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

import channelhash as ch
from channelhash.errors import InputError, JobError
from channelhash.search.store import Store
from refusals import check_refusal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="other permissions")

NOBODY = 65534
CODES = np.arange(40, dtype=np.uint8)[:, None]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can reach."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        yield Path(parent) / "store"
        for path in [Path(parent), *Path(parent).rglob("*")]:
            path.chmod(0o755)


def fill(folder: Path) -> Store:
    store = ch.open_store(folder, n_bits=8)
    store.add(
        [f"{n:02}" for n in range(40)],
        CODES,
        metadata=[{"text": "a cat", "n": n} for n in range(40)],
    )
    store.make_snapshot()
    store.add(["late"], CODES[:1], metadata=[{"text": "a dog"}])
    assert answers(store) == RIGHT  # which loads all that is needed
    return store


def answers(store: Store) -> list[object]:
    words = store.search_words("cat", k=3).ids
    return [
        store.search(CODES[1:2], k=2).ids,
        words,
        store.ids("n < 2"),
        len(store),
        store.label_counts(),
    ]


RIGHT = [[["01", "00"]], ["00", "01", "02"], ["00", "01"], 41, {}]


@contextmanager
def only_reading(folder: Path, of_folders: int, of_files: int) -> Iterator[None]:
    """Take the right to write away, from root too, and compare the folder before and after."""
    for path in [*folder.rglob("*"), folder]:
        path.chmod(of_folders if path.is_dir() else of_files)
    before = {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
    assert {
        path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")
    } == before


@pytest.mark.parametrize(
    ("of_folders", "of_files"), [(0o555, 0o444), (0o555, 0o666), (0o755, 0o444)]
)
@pytest.mark.parametrize("was_killed", [False, True])
def test_a_store_that_can_only_be_read_is_searched(folder, of_folders, of_files, was_killed):
    with fill(folder.with_name("first")):
        shutil.copytree(folder.with_name("first"), folder)  # as one that was killed, with a log
    if not was_killed:
        ch.open_store(folder).close()
    with only_reading(folder, of_folders, of_files), ch.open_store(folder) as store:
        assert answers(store) == RIGHT
        assert not store.writable
        writes = (
            (store.add, ["new"], CODES[:1]),
            (store.delete, ["01"]),
            (store.update, ["01"], [{"n": 1}]),
        )
        for write, *arguments in writes:
            check_refusal("can only be read", write, *arguments)


def test_a_log_without_its_index_is_refused_in_one_line(folder):
    with fill(folder.with_name("first")):
        shutil.copytree(folder.with_name("first"), folder)
    (folder / "items.sqlite-shm").unlink()
    with (
        only_reading(folder, 0o555, 0o444),
        pytest.raises(JobError, match="cannot be opened") as refused,
    ):
        ch.open_store(folder)
    assert "damaged" not in str(refused.value)


def test_a_write_of_its_owner_ends_reading(folder):
    fill(folder).close()
    with only_reading(folder, 0o555, 0o444):
        store = ch.open_store(folder)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    with ch.open_store(folder) as owner:
        owner.delete(["01"])
    check_refusal("was written to while it was open; open it again", store.ids, error=JobError)
    store.close()


def test_too_few_file_handles_are_no_damage(folder):
    resource = pytest.importorskip("resource")
    fill(folder).close()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/dev/fd"))) + 40, hard))
    handles, refused, found = [], [], None
    try:
        with suppress(OSError):
            while True:
                handles.append(os.open(os.devnull, os.O_RDONLY))
        while handles and found is None:
            try:
                with ch.open_store(folder) as store:
                    found = answers(store)
            except (InputError, JobError) as error:
                refused.append((type(error), str(error)))
            os.close(handles.pop())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for handle in handles:
            os.close(handle)
    assert found == RIGHT
    assert len(refused) > 3
    assert {kind for kind, _ in refused} == {JobError}
    assert all("oo many open files" in message and "\n" not in message for _, message in refused)
    with ch.open_store(folder) as store:
        assert answers(store) == RIGHT
