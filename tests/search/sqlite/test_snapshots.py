"""Snapshots: damage is noticed before an answer is given, and mended from the database."""

import errno
import io
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tests.search.contract import N_BITS, Kind, check_any_calls, random_codes
from tests.search.sqlite.damaging import flip

import channelhash as ch
from channelhash.codes.stage import Stage
from channelhash.search.rank import KeyedAnswers
from channelhash.search.sqlite import snapshots as layers
from channelhash.search.sqlite.folder import StoreFolder
from channelhash.search.sqlite.snapshots import check_snapshot
from refusals import check_refusal

N = 40
QUERIES = np.random.default_rng(5).integers(0, 256, (3, 2), dtype=np.uint8)
QUERY_BITS = ch.codes.unpack(QUERIES[:1], 16)
CODES = {
    modality: random_codes(N, seed, n_bits=16) for seed, modality in enumerate(("image", "text"))
}
SIZES = np.random.default_rng(7).random((N, 16))
OUTPUTS = {
    modality: np.where(ch.codes.unpack(codes, 16), 1, -1) * SIZES
    for modality, codes in CODES.items()
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with a snapshot, from which an item was deleted, and its right answers."""
    folder = tmp_path_factory.mktemp("made") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers, "_LEAST_IN_SNAPSHOT", 6)
        with ch.open_store(folder, n_bits=16, stage=Stage(16)) as store:
            names, metadata = [f"i{row} é" for row in range(N)], [{"row": row} for row in range(N)]
            store.add(names, CODES, metadata=metadata, projections=OUTPUTS)
        with ch.open_store(folder) as store:
            store.delete(["i3 é"])
            expected = answers(store)
    assert len(list(folder.glob("snapshot-*/*/index/*.npy"))) == 8
    return folder, expected


@pytest.fixture
def folder(made, tmp_path):
    return Path(shutil.copytree(made[0], tmp_path / "store"))


def answers(store: ch.search.Store, modality: str | None = None) -> object:
    """What a store says to some questions."""
    return {
        name: (
            *(lists(store.search(QUERIES, k, name)) for k in (1, 99)),
            lists(store.search_radius(QUERIES, 6, name)),
            lists(store.search(QUERIES, 5, name, where="row > 10")),
            lists(store.search_projections(OUTPUTS["image"][:3], 5, name)),
        )
        for name in ([modality] if modality else CODES)
    }


def lists(found: ch.search.Answers | KeyedAnswers) -> tuple[list[list[str]], ...]:
    return found.ids, *([values.tolist() for values in numbers] for numbers in found[1:])


def snapshot(folder: Path) -> Path:
    (path,) = folder.glob("snapshot-*")
    return path


DAMAGES: dict[str, Callable[[Path], object]] = {
    "first byte": lambda path: flip(path, 0),
    "byte in the middle": lambda path: flip(path, path.stat().st_size // 2),
    "last byte": lambda path: flip(path, -1),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "cut": lambda path: os.truncate(path, path.stat().st_size // 2),
    "empty": lambda path: os.truncate(path, 0),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "removed": Path.unlink,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize(
    ("mapped", "share"), [(False, 7), (True, 11), pytest.param(False, 1, marks=pytest.mark.slow)]
)
def test_every_damage_to_every_file_is_noticed_and_mended(made, tmp_path, mapped, share):
    names = sorted(path.relative_to(snapshot(made[0])) for path in snapshot(made[0]).rglob("*.*"))
    assert len(names) == 19
    for name, kind in [*product(names, DAMAGES)][::share]:
        folder = Path(shutil.copytree(made[0], tmp_path / "damaged"))
        damaged = snapshot(folder)
        DAMAGES[kind](damaged / name)
        assert f"{damaged.name}/{name}: " in check_snapshot(StoreFolder(folder))[0].what
        with ch.open_store(folder, mapped=mapped) as store:
            assert answers(store) == made[1], (name, kind)
            assert snapshot(folder) != damaged, (name, kind)
            assert not check_snapshot(StoreFolder(folder))
        shutil.rmtree(folder)


def test_a_modality_is_read_when_it_is_searched(folder, made):
    damaged = snapshot(folder)
    flip(damaged / "text" / "index" / "codes.npy", -1)
    store = ch.open_store(folder)
    assert answers(store, "image") == {"image": made[1]["image"]}
    assert snapshot(folder) == damaged
    assert answers(store, "text") == {"text": made[1]["text"]}
    assert snapshot(folder) != damaged


def test_what_happens_to_the_files_of_an_open_store_changes_no_answer(folder, made):
    store = ch.open_store(folder)
    assert answers(store) == made[1]
    for path in snapshot(folder).rglob("*.npy"):
        with open(path, "r+b") as file:  # the same file, not another one in its place
            file.truncate(10)
    assert answers(store) == made[1]
    store.delete(["i4 é"])
    assert "i4 é" not in store.search(QUERIES, 99, "text").ids[0]


@pytest.mark.parametrize("mapped", [False, True])
def test_another_process_makes_a_new_snapshot_before_a_modality_is_read(folder, made, mapped):
    store = ch.open_store(folder, mapped=mapped)
    assert answers(store, "image") == {"image": made[1]["image"]}
    former = snapshot(folder)
    other = ch.open_store(folder)
    other._open().layers.make_snapshot(former.name)
    newer = snapshot(folder)
    assert newer != former
    assert answers(store) == made[1]
    assert snapshot(folder) == newer


def test_codes_that_stay_in_their_files_are_those_that_were_written(monkeypatch):
    monkeypatch.setattr(layers, "_LEAST_IN_SNAPSHOT", 6)
    monkeypatch.setattr(layers, "_LEAST_IN_MEMORY", 2)
    check_any_calls(
        Kind(lambda folder: ch.open_store(folder / "store", n_bits=N_BITS, mapped=True))
    )


def test_stores_over_the_same_files_see_what_either_writes(folder, made):
    one, other = (ch.open_store(folder, mapped=True) for _ in range(2))
    assert answers(one) == answers(other) == made[1]
    assert not one._open().layers._snapshot.codes["image"].items.flags.owndata
    for number, (writing, reading) in enumerate([(one, other), (other, one)]):
        writing.add(
            [f"new {number}"],
            {"image": QUERIES[:1]},
            projections={"image": np.where(QUERY_BITS, 1, -1)},
        )
        writing.make_snapshot()
        assert f"new {number}" in reading.search(QUERIES, 2).ids[0]
        assert answers(one) == answers(other)
    one.close()
    other.close()


@pytest.mark.parametrize("failing", ["save", "fsync", "rename"])
def test_where_no_snapshot_can_be_written_answers_come_from_memory(
    folder, made, monkeypatch, failing
):
    owner = {"save": np, "fsync": os, "rename": Path}[failing]
    monkeypatch.setattr(
        owner, failing, Mock(side_effect=OSError(errno.ENOSPC, "No space left on device"))
    )
    damaged = snapshot(folder)
    flip(damaged / "image" / "items.npy", -1)
    with ch.open_store(folder) as store:
        assert answers(store) == made[1]
        assert snapshot(folder) == damaged  # nothing of the new one is left
        monkeypatch.undo()
        store.delete(["i4 é"])
        assert "i4 é" not in store.search(QUERIES, 99).ids[0]


def test_what_killed_processes_left_goes_with_the_next_snapshot(folder, made):
    for name in ("snapshot-" + "1" * 64, "snapshot-" + "2" * 32 + ".tmp"):
        (folder / name / "image").mkdir(parents=True)
    store = ch.open_store(folder)
    assert answers(store) == made[1]
    store.make_snapshot()
    assert snapshot(folder)
    assert answers(store) == made[1]


def saved(values: object, **options: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, values, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "values", [np.arange(6).reshape(2, 3), np.array(7), np.empty((2, 0), np.uint32), np.eye(2)]
)
def test_arrays_come_back(values):
    found = layers._array_from_npy(saved(values))
    np.testing.assert_array_equal(found, values)
    assert found.dtype == values.dtype
    assert found.flags.aligned
    assert not found.flags.writeable


@pytest.mark.parametrize(("content", "message"), [
    (b"", "not an array's file"),
    (b"no array", "not an array's file"),
    (saved(np.array([{}], object), allow_pickle=True), "cannot create an OBJECT array"),
    (saved(np.asfortranarray(np.eye(3))), "of another layout"),
    (saved(np.arange(3, dtype=">i8")), "an array of >i8"),
    (saved(np.array(["a"])), "an array of <U1"),
    (saved(np.arange(3))[:-1], "buffer size"),
    (saved(np.arange(3)) + b"x", "buffer size"),
    (saved(np.arange(3)) + bytes(8), "cannot reshape"),
    (saved(np.arange(3)).replace(b"(3,)", b"(-3,"), "not an array's file"),
    (saved(np.arange(3)).replace(b"(3,), ", b"(-3,),"), "of another layout"),
])  # fmt: skip
def test_other_files_are_refused(content, message):
    check_refusal(message, layers._array_from_npy, content, error=ValueError)


def test_any_changed_byte_of_a_header_is_refused_or_harmless():
    content = saved(np.arange(3, dtype=np.uint32))
    for place, bit in product(range(128), range(8)):
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        with suppress(ValueError):
            assert layers._array_from_npy(bytes(changed)).nbytes == 12
