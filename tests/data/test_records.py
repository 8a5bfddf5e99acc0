"""What a collection holds is known by its content, wherever and however it is stored."""

import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, strategies as st

from channelhash.data import records
from channelhash.data.records import Records, items_hash
from channelhash.utils.array_files import SparseRows
from picture_runs import picture_records


def sparse(values: np.ndarray) -> SparseRows:
    """The values as a sparse matrix."""
    rows, columns = np.nonzero(values)
    starts = np.searchsorted(rows, np.arange(len(values) + 1))
    return SparseRows(values[rows, columns], columns, starts, values.shape[1])


@given(st.integers(0, 10**6))
def test_features_are_known_by_their_values_alone(seed):
    random = np.random.default_rng(seed)
    shape = random.integers(1, 9, size=2)
    values = random.integers(-2, 3, size=shape).astype(np.float32)
    stored = {
        "float64": values.astype(np.float64),
        "int8": values.astype(np.int8),
        "by columns": np.asfortranarray(values),
        "sparse": sparse(values),
        "negative zeros": np.where(values == 0, np.float32(-0.0), values),
    }
    assert {name: items_hash(each) for name, each in stored.items()} == dict.fromkeys(
        stored, items_hash(values)
    )
    changed = values.copy()
    changed[tuple(random.integers(0, shape))] += 1
    assert items_hash(changed) != items_hash(values)
    with patch.object(records, "_HASHED_ROWS", 2):
        assert items_hash(changed) != items_hash(values)


def test_pictures_are_hashed_once_and_again_when_a_file_changes(tmp_path, monkeypatch):
    paths = picture_records(tmp_path, 4).items["image"]
    first = items_hash(paths)
    monkeypatch.setattr(records, "file_hash", lambda path: pytest.fail("read again"))
    assert items_hash(paths) == first
    monkeypatch.undo()
    os.utime(paths[0], ns=(1, 1))
    assert items_hash(paths) == first  # read again, and the same
    paths[0].write_bytes(paths[1].read_bytes())
    assert items_hash(paths) != first
    assert items_hash(["a", "b"]) != items_hash(["ab"])


def test_a_picture_replaced_by_one_of_its_size_and_date_is_another(tmp_path):
    picture, other = tmp_path / "a.png", tmp_path / "b.png"
    picture.write_bytes(b"first")
    first = items_hash((picture,))
    before = picture.stat()
    other.write_bytes(b"other")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(picture)
    assert items_hash((picture,)) != first


def test_pictures_are_hashed_where_no_cache_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "a.png").write_bytes(b"first")
    (tmp_path / "file").touch()
    expected = items_hash((tmp_path / "a.png",))
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "file"))
    assert items_hash((tmp_path / "a.png",)) == expected


@given(st.integers(0, 10**6))
def test_the_content_of_records_names_what_differs(seed):
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 9))
    ids, texts = (tuple(f"{word}{row}" for row in range(n)) for word in ("id", "text"))
    shown = {"image": tuple(f"{row // 2}.jpg" for row in range(n))}
    items = {"image": random.normal(size=(n, 3)).astype(np.float32), "text": texts}
    labels = random.random((n, 2)) < 0.5
    whole = Records(ids, items, labels, ("dog", "sea"), display=shown)
    row = int(random.integers(n))
    flipped = labels.copy()
    flipped[row, 0] ^= True

    def replaced(values: tuple[str, ...], value: str) -> tuple[str, ...]:
        return (*values[:row], value, *values[row + 1 :])

    changes = {
        "labels": replace(whole, labels=flipped),
        "texts": replace(whole, items=items | {"text": replaced(texts, "another")}),
        "image features": replace(whole, items=items | {"image": items["image"] + 1}),
        "images to display": replace(whole, display={"image": replaced(shown["image"], "9.jpg")}),
        "ids": replace(whole, ids=replaced(ids, "another")),
    }
    for what, changed in changes.items():
        differing = {key for key, value in whole.contents.items() if changed.contents[key] != value}
        assert differing - {"pairs"} == {what}
    elsewhere = tuple(str(Path("folder", name)) for name in shown["image"])
    assert replace(whole, display={"image": elsewhere}).contents == whole.contents
