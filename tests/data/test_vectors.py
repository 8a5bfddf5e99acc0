"""Files of vectors: every form gives the same vectors, and bad rows are named."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from channelhash.data.vectors import Vectors, load_vectors
from refusals import check_refusal
from vector_files import write_vectors

VALUES = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
IDS = ["a", "b", "c", "d", "e"]


def write(path):
    write_vectors(path, VALUES, IDS, year=range(5))


def write_npz(path):
    np.savez(path, embeddings=VALUES, id=np.array(IDS), labels=np.arange(5))


def write_compressed(path):
    np.savez_compressed(path, embeddings=VALUES, id=np.array(IDS))


def write_by_columns(path):
    np.savez(path, embeddings=np.asfortranarray(VALUES), id=np.array(IDS))


def write_fixed(path):
    lists = pa.FixedSizeListArray.from_arrays(pa.array(VALUES.ravel()), 3)
    pq.write_table(pa.table({"id": IDS, "vector": lists, "year": range(5)}), path)


@pytest.mark.parametrize(
    ("name", "write", "has_ids"),
    [
        ("v.npy", write, False),
        ("v.npz", write_npz, True),
        ("compressed.npz", write_compressed, True),
        ("by_columns.npz", write_by_columns, True),
        ("v.parquet", write, True),
        ("fixed.parquet", write_fixed, True),
        ("v.jsonl", write, True),
        ("v.h5", write, True),
        ("v.fvecs", write, False),
    ],
)
def test_every_form_holds_the_same_vectors(name, write, has_ids, tmp_path):
    write(tmp_path / name)
    vectors = load_vectors(tmp_path / name)
    np.testing.assert_array_equal(vectors[:], VALUES)
    assert list(vectors.ids) == (IDS if has_ids else ["0", "1", "2", "3", "4"])
    if name.endswith((".parquet", ".jsonl")):
        assert vectors.columns == {"year": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize(
    ("name", "write"), [("v.npy", write), ("v.npz", write_npz), ("v.fvecs", write)]
)
def test_large_files_stay_on_disk(name, write, tmp_path):
    write(tmp_path / name)
    stored = load_vectors(tmp_path / name).stored
    while not isinstance(stored, np.memmap):
        stored = stored.base
    assert stored.filename


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8])
def test_numbers_of_every_type_become_float32(dtype, tmp_path):
    values = np.arange(1, 7).reshape(2, 3).astype(dtype)
    np.save(tmp_path / "v.npy", values)
    read = load_vectors(tmp_path / "v.npy")[:]
    assert read.dtype == np.float32
    assert read.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_ids_come_from_a_text_file(tmp_path):
    np.save(tmp_path / "v.npy", VALUES)
    (tmp_path / "ids.txt").write_text("\n".join(IDS) + "\n")
    assert list(load_vectors(tmp_path / "v.npy", ids=tmp_path / "ids.txt").ids) == IDS
    (tmp_path / "ids.txt").write_text("a\nb\n")
    says = r"v.npy: has 5 rows, but there are 2 ids"
    check_refusal(says, load_vectors, tmp_path / "v.npy", ids=tmp_path / "ids.txt")
    (tmp_path / "ids.txt").write_text("a\na\nb\nc\nd\n")
    says = r"several rows have the id 'a'"
    check_refusal(says, load_vectors, tmp_path / "v.npy", ids=tmp_path / "ids.txt")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.nan, r"row 2 \(id 2\): is not finite"),
        (np.inf, r"row 2 \(id 2\): is not finite"),
        (1e300, r"row 2 \(id 2\): is not finite, or too large for float32"),
        (0, r"row 2 \(id 2\): is zero"),
    ],
)
def test_a_bad_row_is_named_and_can_be_left_out(value, says, tmp_path):
    values = VALUES.astype(np.float64)
    values[2] = value
    np.save(tmp_path / "v.npy", values)
    check_refusal(says, load_vectors, tmp_path / "v.npy")
    vectors = load_vectors(tmp_path / "v.npy", skip_bad=True)
    assert vectors.ids == ("0", "1", "3", "4")
    np.testing.assert_array_equal(vectors[:], VALUES[[0, 1, 3, 4]])
    assert len(vectors.problems) == 1


def test_a_row_of_another_width_is_named(tmp_path):
    path = tmp_path / "v.jsonl"
    path.write_text('{"v": [1, 2]}\n{"v": [1, 2, 3]}\n{"v": null}\n{"v": [3, 4]}\n')
    check_refusal(r"row 1 \(id 1\): has 3 numbers, others have 2", load_vectors, path)
    vectors = load_vectors(path, skip_bad=True)
    assert vectors.ids == ("0", "3")
    assert vectors[:].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("arrays", "array", "says"),
    [
        ({"a": VALUES, "b": VALUES}, None, "several arrays of vectors: a, b; name one with array"),
        ({"a": np.arange(3)}, None, "has no array of vectors; it has a"),
        ({"a": VALUES}, "c", "has no array 'c'; it has a"),
        ({"a": VALUES[0]}, "a", r"holds an array \(3,\), expected vectors"),
    ],
)
def test_an_array_has_to_be_meant(arrays, array, says, tmp_path):
    np.savez(tmp_path / "v.npz", **arrays)
    check_refusal(says, load_vectors, tmp_path / "v.npz", array)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("v.npy", b"no array", "not a readable .npy file"),
        ("v.npz", b"no archive", "not a readable .npz file"),
        ("v.parquet", b"no table", "not a readable .parquet file"),
        ("v.jsonl", b"{]\n", "line 1: is not JSON that can be read"),
        ("v.fvecs", b"\3\0\0\0abcd", "not a readable .fvecs file"),
        ("v.csv", b"a,b\n", "a file of arrays ends in .npz"),
    ],
)
def test_a_damaged_file_is_one_line(name, content, says, tmp_path):
    (tmp_path / name).write_bytes(content)
    check_refusal(says, load_vectors, tmp_path / name)


def test_rows_are_taken_with_their_ids_and_columns():
    vectors = Vectors(tuple(IDS), VALUES, None, {"year": [1, 2, 3, 4, 5]})
    taken = vectors.take(np.array([4, 0]))
    assert taken.ids == ("e", "a")
    assert taken.columns == {"year": [5, 1]}
    np.testing.assert_array_equal(taken.take(np.array([1]))[:], VALUES[:1])


def resident(path):
    """Bytes of a mapped file that are in this process's memory."""
    parts = Path("/proc/self/smaps").read_text(encoding="utf-8").split(str(path))[1:]
    return sum(1024 * int(part.split("Rss:")[1].split()[0]) for part in parts)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="Linux says what is in memory")
def test_rows_of_a_mapped_file_leave_memory_once_they_were_read(tmp_path):
    values = np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float32)
    np.save(tmp_path / "v.npy", values)
    vectors = load_vectors(tmp_path / "v.npy")
    held = vectors[:100]
    sizes = []
    for block in vectors.blocks():
        assert np.isfinite(block).all()
        sizes.append(resident(tmp_path / "v.npy"))
    assert 8192 * 64 * 4 <= max(sizes) < values.nbytes / 2
    np.testing.assert_array_equal(held, values[:100])
