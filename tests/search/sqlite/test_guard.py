"""Damage to a store's record of truth is harmless, refused in one line, or mended; nothing is
answered wrongly.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tests.search.sqlite.damaging import change, flip

import channelhash as ch
from channelhash.errors import JobError
from channelhash.search.sqlite import guard
from channelhash.search.sqlite.check import check_store, repair_store
from channelhash.search.sqlite.database import ItemsDatabase
from channelhash.search.sqlite.folder import StoreFolder
from channelhash.utils.hashes import dump_checked
from refusals import check_refusal, refusal

N = 120
NAMES = [f"i{row}" for row in range(N)]
CODES = np.random.default_rng(0).integers(0, 256, (N, 2), dtype=np.uint8)
METADATA = [{"labels": [f"l{row % 3}"], "text": "x" * (row % 70), "row": row} for row in range(N)]


def fill(folder: Path) -> ch.Store:
    """A store of all items but the first, which was written and deleted."""
    store = ch.open_store(folder, n_bits=16)
    for start in range(0, N, 40):
        rows = slice(start, start + 40)
        store.add(
            NAMES[rows], {"image": CODES[rows], "text": ~CODES[rows]}, metadata=METADATA[rows]
        )
    store.upsert(NAMES[5:9], CODES[5:9])
    store.delete(NAMES[:1])
    return store


@pytest.fixture
def closed(tmp_path):
    fill(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def killed(tmp_path):
    """The files as they are when the process is killed that wrote them."""
    with fill(tmp_path / "open"):
        shutil.copytree(tmp_path / "open", tmp_path / "store")
    return tmp_path / "store"


def is_sealed(folder: Path) -> bool:
    """Whether the description says what the database is now."""
    manifest = StoreFolder(folder).manifest()
    with closing(ItemsDatabase(folder / "items.sqlite")) as items:
        return bool(manifest.digest) and manifest.writes == items.state().writes


def check_whole(folder: Path) -> None:
    with ch.open_store(folder) as store:
        assert store.ids() == sorted(NAMES[1:])
        items = store.get(NAMES[1:])
        assert [item.metadata for item in items] == METADATA[1:]
        for modality, codes in (("image", CODES), ("text", ~CODES)):
            np.testing.assert_array_equal([item.codes[modality] for item in items], codes[1:])
        assert store.label_counts() == {"l1": 40, "l2": 40, "l0": 39}
        assert store.search(CODES[3:4], 1).ids == [["i3"]]


def refused(folder: Path) -> str:
    line = refusal(ch.open_store, folder)
    assert f"`channelhash index repair {folder}`" in line
    return line


def test_a_store_is_sealed_when_the_last_who_has_it_open_closes_it(tmp_path):
    folder = tmp_path / "store"
    first = fill(folder)
    with ch.open_store(folder):
        first.close()
        assert not is_sealed(folder)
    assert is_sealed(folder)
    assert not list(folder.glob("*-wal"))
    content = (folder / "items.sqlite").read_bytes()
    check_whole(folder)
    assert (folder / "items.sqlite").read_bytes() == content


def test_a_store_that_nobody_closes_is_sealed_when_the_process_ends(tmp_path):
    program = (
        "import sys, channelhash as c; s = c.open_store(sys.argv[1], 8); s.add(['a'], "
        "c.codes.pack([[True] * 8]))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "store")], check=True)
    assert is_sealed(tmp_path / "store")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "store.json",
            dump_checked({"format": "channelhash store 99"}).encode(),
            "written as 'channelhash store 99'",
        ),
        ("items.sqlite", None, "is missing"),
        ("items.sqlite", b"no database, but more than a hundred bytes long" * 10, "is damaged"),
        ("items.sqlite", b"SQLite format 3\0" + bytes(5000), "is damaged"),
        ("items.sqlite", b"", "is empty"),
    ],
)
def test_files_that_are_none_of_a_stores_are_named_in_one_line(closed, name, content, says):
    (closed / name).unlink() if content is None else (closed / name).write_bytes(content)
    message = refusal(ch.open_store, closed)
    assert says in message
    assert str(closed) in message


@pytest.mark.parametrize("offset", [30, 4096 + 4, -700, -1])
def test_a_closed_database_with_a_flipped_bit_is_refused(closed, offset):
    flip(closed / "items.sqlite", offset)
    refused(closed)
    assert check_store(closed)


@pytest.mark.parametrize("damage", ["remove", "flip", "cut", "older", "no JSON"])
@pytest.mark.parametrize("store", ["closed", "killed"])
def test_a_description_that_is_damaged_is_made_again(request, store, damage):
    folder = request.getfixturevalue(store)
    path = folder / "store.json"
    content = path.read_bytes()
    older = StoreFolder(folder).manifest()._replace(writes=1, digest="5 0a").to_json()
    if damage == "remove":
        path.unlink()
    elif damage == "flip":
        flip(path, content.index(b"16"))
    else:
        path.write_bytes({"older": older.encode(), "cut": content[:20], "no JSON": b"{}"}[damage])
    assert [finding.where for finding in check_store(folder)] == ["store.json"] * (
        damage != "older"
    )
    check_whole(folder)
    assert is_sealed(folder)
    assert not check_store(folder)


@pytest.mark.parametrize("damage", ["remove", "zero", "cut"])
def test_writes_that_are_lost_with_the_log_are_noticed(killed, damage):
    log = killed / "items.sqlite-wal"
    if damage == "remove":
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:-5000] if damage == "cut" else bytes(log.stat().st_size))
    assert "lacks the last" in refused(killed)
    assert any("writes" in finding.what for finding in check_store(killed))
    repaired = repair_store(killed)
    assert repaired.damaged
    assert not check_store(killed)
    with ch.open_store(killed) as store:
        assert len(store) == repaired.n_items
        assert set(store.ids()) != set(NAMES[1:]) or damage == "cut"


def test_an_old_copy_of_the_database_is_noticed(closed):
    old = (closed / "items.sqlite").read_bytes()
    with ch.open_store(closed) as store:
        store.delete(["i3"])
    (closed / "items.sqlite").write_bytes(old)
    refused(closed)
    says = "items.sqlite: lacks the last 1 or more writes: its log was cut, or an old copy put back"
    assert [str(finding) for finding in check_store(closed)] == [says]
    assert repair_store(closed).n_items == N - 1
    check_whole(closed)


@pytest.mark.parametrize(
    ("sql", "finding"),
    [
        (
            "UPDATE items SET metadata = replace(metadata, '3', '4') WHERE id = 'i3'",
            "i3: the item is damaged",
        ),
        ("UPDATE items SET id = 'j3' WHERE id = 'i3'", "j3: the item is damaged"),
        ("UPDATE items SET checksum = NULL WHERE id = 'i3'", "i3: the item is damaged"),
        ("UPDATE codes SET code = x'0102' WHERE serial = 20", "the image code is damaged (row 20)"),
        (
            "UPDATE codes SET projection = x'01' WHERE serial = 20",
            "the image code is damaged (row 20)",
        ),
        ("UPDATE codes SET item = 999 WHERE serial = 20", "the image code 20 belongs to no item"),
        ("DELETE FROM items WHERE id = 'i3'", "belongs to no item"),
        ("UPDATE labels SET label = 'l9' WHERE item = 5", "the table of labels does not agree"),
        ("DELETE FROM keys WHERE name = 'row'", "the table of metadata's keys lacks row"),
        ("UPDATE state SET last_serial = 3", "the state is not as it was written"),
        ("DROP TRIGGER code_removed", "the trigger code_removed is not defined as it should be"),
    ],
)
def test_a_check_finds_what_sqlite_does_not(closed, sql, finding):
    change(closed, sql)
    assert any(finding in str(found) for found in check_store(closed))
    assert "is damaged (" in refused(closed)
    repaired = repair_store(closed)
    assert check_store(closed) == []
    with ch.open_store(closed) as store:
        assert len(store) == repaired.n_items >= N - 2


def test_a_damaged_row_is_not_answered(closed):
    says = "is not as it was written"
    store = ch.open_store(closed)
    change(closed, "UPDATE items SET metadata = '{}' WHERE id = 'i3'")
    check_refusal(f"the item 'i3' {says}", store.get, ["i3"])
    check_refusal(says, store.upsert, ["i3"], CODES[:1], metadata=[{"row": 1}])
    change(closed, "UPDATE codes SET code = x'0102'")
    check_refusal(f"the item 'i5' {says}", store.get, ["i5"])
    check_refusal(says, store.search, CODES[:1])


def test_a_repair_lists_what_is_lost_and_keeps_the_rest(closed):
    path = closed / "items.sqlite"
    content = bytearray(path.read_bytes())
    page = content.index(b'"row":60') // 4096
    content[page * 4096 : (page + 1) * 4096] = bytes(4096)
    path.write_bytes(content)
    refused(closed)
    lost = {finding.where for finding in repair_store(closed).lost}
    assert "i60" in lost
    assert (closed / "items.sqlite.damaged").read_bytes() == content
    with ch.open_store(closed) as store:
        assert set(store.ids()) == set(NAMES[1:]) - lost
        assert all(item.metadata == METADATA[int(item.id[1:])] for item in store.get(store.ids()))
    assert repair_store(closed) == ([], [], N - 1 - len(lost))


def test_a_whole_store_is_not_touched_by_a_repair_and_one_in_use_is_checked_alone(closed):
    before = {
        path.name: path.read_bytes() for path in closed.iterdir() if not path.name.startswith(".")
    }
    assert repair_store(closed) == ([], [], N - 1)
    assert {
        path.name: path.read_bytes() for path in closed.iterdir() if not path.name.startswith(".")
    } == before
    with ch.open_store(closed) as store:
        store.add(["new"], CODES[:1])
        assert check_store(closed) == []
        check_refusal("is open in another process; stop that before a repair", repair_store, closed)


def test_a_file_that_another_program_changes_is_noticed_while_it_is_read(closed):
    store = ch.open_store(closed)
    assert store.search(CODES[3:4], 1).ids == [["i3"]]
    # the same file, not another one in its place
    with open(closed / "items.sqlite", "r+b") as file:
        file.seek(5000)
        file.write(b"x")
    says = "another program has written to it"
    check_refusal(says, store.ids)
    check_refusal(says, store.search, CODES[:1])
    check_refusal(says, store.add, ["x"], CODES[:1])
    os.truncate(closed / "items.sqlite", 0)  # which nothing waits for
    check_refusal(r"is damaged \(is empty\)", store.ids)
    check_refusal("malformed", store.close)
    file = os.stat(closed / "items.sqlite")
    # the number may be that of another store's file soon
    assert guard._holds[file.st_dev, file.st_ino] == 0


@pytest.mark.parametrize("name", ["store.json", "items.sqlite"])
def test_a_file_of_another_store_is_noticed(closed, tmp_path, name):
    with ch.open_store(tmp_path / "other", n_bits=16, model="abc") as other:
        other.add(["a"], CODES[:1])
    shutil.copy(tmp_path / "other" / name, closed / name)
    assert "is another store's, or store.json is" in refused(closed)
    assert check_store(closed)
    assert repair_store(closed).n_items == (1 if name == "items.sqlite" else N - 1)
    assert not check_store(closed)
    if name == "store.json":
        check_whole(closed)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_removed_under_a_server_is_neither_written_nor_read(closed, replaced):
    with ch.open_store(closed) as store:
        shutil.move(closed, closed.with_name("moved"))
        if replaced:
            shutil.copytree(closed.with_name("moved"), closed)
        says = "the store was removed or replaced while it was open; open it again"
        check_refusal(says, store.add, ["x"], CODES[:1], error=JobError)
        check_refusal(says, store.search, CODES[:1], error=JobError)
        check_refusal(says, store.get, ["i3"], error=JobError)
        assert closed.exists() == replaced


def test_a_forked_process_is_refused_in_one_line_and_leaves_the_store_of_its_parent_alone(
    closed, monkeypatch
):
    with ch.open_store(closed) as store:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            opened = []
            monkeypatch.setattr(sqlite3, "connect", lambda *args, **kwargs: opened.append(args))
            for call in (
                lambda: store.add(["child's"], CODES[:1]),
                store.ids,
                lambda: store.search(CODES[:1]),
            ):
                try:
                    call()
                except JobError as error:
                    os.write(writing, f"{error}\n".encode())
            store.close()
            os._exit(len(opened))
        assert os.waitpid(child, 0)[1] == 0
        os.close(writing)
        line = f"{closed}: was opened before this process was forked; open it in each process\n"
        assert os.read(reading, 10_000).decode() == line * 3
        os.close(reading)
        store.add(["new"], CODES[:1])
    assert is_sealed(closed)


def test_a_full_disk_while_sealing_leaves_a_store_that_is_checked_when_it_is_opened(
    closed, monkeypatch
):
    store = ch.open_store(closed)
    store.upsert([NAMES[3]], CODES[3:4])
    monkeypatch.setattr("os.replace", Mock(side_effect=OSError(28, "No space left on device")))
    store.close()
    assert not is_sealed(closed)
    assert not list(closed.glob(".store.json*"))
    monkeypatch.undo()
    check_whole(closed)
    assert is_sealed(closed)
