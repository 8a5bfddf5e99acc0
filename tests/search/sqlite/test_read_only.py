"""Stores that can only be read, and processes that may open no more files: both are told from
damage.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path

import numpy as np
import pytest

import channelhash as ch
from channelhash.errors import InputError, JobError
from channelhash.search.sqlite.database import ItemsDatabase
from channelhash.search.sqlite.folder import StoreFolder
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
        check_refusal("can only be read", store.add, ["new"], CODES[:1])
        check_refusal("can only be read", store.delete, ["01"])
        check_refusal("can only be read", store.update, ["01"], [{"n": 1}])


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


#: The owner of a store, who does what lines say: one action each, answered by a line.
OWNER = """
import os, sqlite3, sys
import numpy as np, channelhash as ch
from channelhash.search.sqlite.check import backup_store
folder, store = sys.argv[1], None
for line in sys.stdin:
    action, *numbers = line.split()
    numbers = [int(number) for number in numbers]
    if action == "open":
        store = ch.open_store(folder, n_bits=8)
        len(store)
    elif action == "add":
        codes = np.array(numbers, np.uint8)[:, None]
        metadata = [{"text": f"word{number}", "n": number} for number in numbers]
        store.upsert([str(number) for number in numbers], codes, metadata=metadata)
    elif action == "delete":
        store.delete([str(number) for number in numbers])
    elif action == "search":
        store.search(np.zeros((1, 1), np.uint8), k=3)
    elif action == "snapshot":
        store.make_snapshot()
    elif action == "many":  # so much that the log goes into the file, and begins anew
        ids = [f"x{row}" for row in range(300)]
        for _ in range(6):
            metadata = [{"text": os.urandom(2000).hex()} for _ in ids]
            store.upsert(ids, np.zeros((300, 1), np.uint8), metadata=metadata)
        store.delete(ids)
    elif action in ("vacuum", "truncate"):
        connection = sqlite3.connect(f"{folder}/items.sqlite", timeout=1)
        connection.execute("VACUUM" if action == "vacuum" else "PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
    elif action == "backup":
        from pathlib import Path
        backup_store(Path(folder), Path(f"{folder}.backup{numbers[0]}"))
    elif action == "close":
        store.close()
    print("done", flush=True)
"""


class Owner:
    """A process that owns a store, and the numbers that its items should have."""

    def __init__(self, folder: Path, rights: Callable[[], AbstractContextManager[None]]) -> None:
        self.folder, self.rights, self.items = folder, rights, set[int]()
        self.process: subprocess.Popen[str] | None = None
        self.is_open = False

    def __call__(self, action: str, *numbers: int) -> None:
        with self.rights():
            if self.process is None:
                command = [sys.executable, "-c", OWNER, str(self.folder)]
                pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
                self.process = subprocess.Popen(command, text=True, **pipes)
            self.process.stdin.write(" ".join(map(str, (action, *numbers))) + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "done\n"
        if action in ("open", "close"):
            self.is_open = action == "open"
        if action == "add":
            self.items |= set(numbers)
        if action == "delete":
            self.items -= set(numbers)

    def kill(self) -> None:
        with self.rights():
            if self.process is not None:
                self.process.kill()
                self.process.communicate()
        self.process, self.is_open = None, False


@contextmanager
def as_root() -> Iterator[None]:
    os.seteuid(0)
    try:
        yield
    finally:
        os.seteuid(NOBODY)


@pytest.fixture(params=["without rights", pytest.param("by choice", marks=pytest.mark.slow)])
def owner(request, folder, monkeypatch) -> Iterator[Owner]:
    """The owner of a store that this process can only read: as another user, or as it is told."""
    if request.param == "by choice":
        monkeypatch.setattr(StoreFolder, "writable", False)
        owner = Owner(folder, nullcontext)
    elif os.geteuid():
        pytest.skip("only root can be another user")
    else:
        owner = Owner(folder, as_root)
    try:
        if owner.rights is as_root:
            os.seteuid(NOBODY)
        yield owner
        owner.kill()
    finally:
        if owner.rights is as_root:
            os.seteuid(0)


def check_seen(store: Store, items: set[int]) -> None:
    """Compare what a reader sees with what there is."""
    names = sorted(map(str, items))
    assert len(store) == len(items)
    assert store.ids() == names
    for number in sorted(items)[:2]:
        [[nearest]] = store.search(np.array([[number]], np.uint8), k=1).ids
        assert nearest == str(number)
        assert store.search_words(f"word{number}", k=9).ids == [str(number)]
        assert store.ids(f"n = {number}") == [str(number)]
    assert store.value_counts("text") == dict.fromkeys(sorted(f"word{n}" for n in items), 1)


def act(owner: Owner, draw: random.Random) -> None:
    """Let the owner do something that he can do now."""
    numbers = sorted(draw.sample(range(1, 250), draw.choice([1, 3, 20])))
    if not owner.is_open:
        owner("open")
        return
    choice = draw.random()
    if choice < 0.35:
        owner("add", *numbers)
    elif choice < 0.5 and owner.items:
        owner("delete", *sorted(owner.items)[: draw.randrange(1, 4)])
    elif choice < 0.7:
        owner(draw.choice(["search", "snapshot", "truncate", "vacuum", "many"]))
    elif choice < 0.78:
        owner.kill()
    else:
        owner("close")


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 20))]
)
def test_a_reader_sees_what_the_owner_has_written_whatever_the_owner_does(owner, seed):
    draw = random.Random(seed)
    owner("open")
    owner("add", *range(1, 20))
    readers = []
    if draw.random() < 0.5:
        owner("close")
    for _ in range(16):
        if len(readers) < 2 and draw.random() < 0.4:
            readers.append(ch.open_store(owner.folder))
        act(owner, draw)
        for reader in readers:
            if draw.random() < 0.7:  # another one comes later
                check_seen(reader, owner.items)
    with ch.open_store(owner.folder) as fresh:
        for reader in (*readers, fresh):
            check_seen(reader, owner.items)
            check_refusal("can only be read", reader.add, ["new"], CODES[:1])
    for reader in readers:
        reader.close()


def refused(store: Store, message: str) -> None:
    """Whatever is asked is refused in one line; it is not remembered."""
    for call in (store.ids, lambda: len(store), lambda: store.search(CODES[:1], k=1)):
        with pytest.raises((InputError, JobError), match=message) as error:
            call()
        assert "\n" not in str(error.value)


def test_a_reader_says_that_its_store_is_gone_until_it_is_back(owner):
    owner("open")
    owner("add", 1, 2)
    with ch.open_store(owner.folder) as logged:
        check_seen(logged, {1, 2})
        owner.kill()
        owner("open")
        owner("add", 3)
        away = owner.folder.with_name("away")
        with owner.rights():
            owner.folder.rename(away)
        refused(logged, "was removed while it was open")
        with owner.rights():
            away.rename(owner.folder)
        check_seen(logged, {1, 2, 3})
    owner("close")
    with ch.open_store(owner.folder) as sealed:
        check_seen(sealed, {1, 2, 3})
        with owner.rights():
            owner.folder.rename(away)
        refused(sealed, "was removed while it was open")
        with owner.rights():
            away.rename(owner.folder)
        owner("open")
        owner("delete", 1)
        check_seen(sealed, {2, 3})


def test_a_reader_goes_on_with_the_store_that_takes_the_place_of_its_own(owner):
    owner("open")
    owner("add", 1, 2)
    owner("close")
    others = {}
    for n_bits in (8, 16):
        others[n_bits] = owner.folder.with_name(f"other{n_bits}")
        with owner.rights():
            make_store(others[n_bits], n_bits)
    with ch.open_store(owner.folder) as reader:
        before, version = owner.folder.with_name("before"), reader.version
        check_seen(reader, {1, 2})
        with owner.rights():
            owner.folder.rename(before)
            others[8].rename(owner.folder)
        check_seen(reader, {7, 8, 9})
        assert reader.version != version
        with owner.rights():
            owner.folder.rename(others[8])
            others[16].rename(owner.folder)
        refused(reader, "codes of 16 bits, not 8")
        with owner.rights():
            owner.folder.rename(others[16])
            before.rename(owner.folder)
        check_seen(reader, {1, 2})
        assert reader.version == version


def make_store(folder: Path, n_bits: int) -> None:
    """Make a store of the numbers 7, 8 and 9 in a process of its own."""
    program = """
import sys, numpy as np, channelhash as ch
n_bits = int(sys.argv[2])
with ch.open_store(sys.argv[1], n_bits=n_bits) as store:
    codes = np.array([[n] * (n_bits // 8) for n in (7, 8, 9)], np.uint8)
    store.add(["7", "8", "9"], codes, metadata=[{"text": f"word{n}", "n": n} for n in (7, 8, 9)])
"""
    subprocess.run([sys.executable, "-c", program, str(folder), str(n_bits)], check=True)


def test_what_changes_while_it_is_read_is_read_again(owner):
    owner("open")
    owner("add", 1, 2)
    owner("close")
    with ch.open_store(owner.folder) as reader:

        def read_slowly(items: ItemsDatabase) -> tuple[int, list[str]]:
            before = len(items)
            if 3 not in owner.items:
                owner("open")
                owner("many")
                owner("add", 3)
                owner("close")
            return before, items.ids(None)

        assert reader._ask(read_slowly) == (3, ["1", "2", "3"])


def test_a_log_of_which_a_reader_can_see_nothing_is_not_passed_over(owner):
    owner("open")
    owner("add", 1)
    owner("close")
    with ch.open_store(owner.folder) as reader:
        check_seen(reader, {1})
        owner("open")
        owner("add", 2)
        owner.kill()
        with owner.rights():
            (owner.folder / "items.sqlite-shm").unlink()
        if owner.rights is as_root:  # else this process makes another one
            refused(reader, "let the owner open the store")
        owner("open")
        check_seen(reader, {1, 2})


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
