"""Files of MATLAB that nobody vouches for."""

from threading import Thread

import h5py
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.io import savemat
from scipy.sparse import csc_matrix, csr_array

from channelhash.errors import InputError
from channelhash.utils.array_files import SparseRows, open_arrays, read_arrays
from refusals import check_refusal


def test_a_file_that_kills_its_reader_is_refused(tmp_path):
    path = tmp_path / "f.mat"
    savemat(path, {"Y": csc_matrix(([1.0], ([3], [0])), shape=(7, 2))})
    row, far = b"\x05\x00\x04\x00\x03\x00\x00\x00", b"\x05\x00\x04\x00\x00\x00\x00\x70"
    assert path.read_bytes().count(row) == 1
    path.write_bytes(path.read_bytes().replace(row, far))
    check_refusal(r"f\.mat: not a readable \.mat file, perhaps truncated", read_arrays, path)


def test_arrays_texts_and_structures_come_back_from_the_other_process(tmp_path):
    path = tmp_path / "f é.mat"
    cells = np.array(["ab", "c", ""], dtype=object)
    content = {
        "X": np.eye(2),
        "S": csc_matrix(np.eye(3)),
        "names": cells,
        "struct": {"a": 1},
        "text": "dog",
    }
    savemat(path, content, do_compression=True)
    matrices = {"X": np.eye(2).tolist(), "S": np.eye(3).tolist()}
    arrays = {name: values.tolist() for name, values in read_arrays(path).items()}
    assert arrays == {**matrices, "names": ["ab", "c", ""], "struct": "", "text": ["dog"]}
    with open_arrays(path) as opened:
        assert isinstance(opened["S"], SparseRows)


def write_matlab(file, name, values, matlab_class, **attributes):
    """A dataset as MATLAB writes it into a v7.3 file: columns before rows, with the class as an
    attribute.
    """
    dataset = file.create_dataset(name, data=np.asarray(values).T)
    dataset.attrs.update({"MATLAB_class": np.bytes_(matlab_class), **attributes})
    return dataset.ref


def letters(*texts):
    return [[ord(letter) for letter in text] for text in texts]


def test_texts_of_a_file_of_version_7_3_are_read(tmp_path):
    with h5py.File(tmp_path / "f.mat", "w", userblock_size=512) as file:
        write_matlab(file, "names", letters("dog ", "seal"), "char")
        write_matlab(file, "none", np.zeros(2, np.uint64), "double", MATLAB_empty=1)
        write_matlab(
            file,
            "strings",
            np.array([[0xDD000000, 2, 1]], np.uint32),
            "string",
            MATLAB_object_decode=3,
        )
        cells = [
            write_matlab(file, f"#refs#/{text}", letters(text), "char")
            for text in ("a dog", "Äpfel")
        ]
        cells.append(
            write_matlab(file, "#refs#/empty", np.zeros(2, np.uint64), "char", MATLAB_empty=1)
        )
        for name, shape in (("captions", (3, 1)), ("row", (1, 3))):
            write_matlab(file, name, np.array(cells, h5py.ref_dtype).reshape(shape), "cell")
        numbers = write_matlab(file, "#refs#/number", np.eye(2), "double")
        write_matlab(file, "mixed", np.array([[cells[0], numbers]], h5py.ref_dtype), "cell")
    arrays = {name: values.tolist() for name, values in read_arrays(tmp_path / "f.mat").items()}
    texts = ["a dog", "Äpfel", ""]
    expected = {
        "captions": texts,
        "row": texts,
        "names": ["dog", "seal"],
        "none": [],
        "strings": "",
        "mixed": "",
    }
    assert arrays == expected


def test_of_hdf5_only_numbers_and_texts_are_decoded(tmp_path, monkeypatch):
    path = tmp_path / "f.h5"
    others = {
        "references": h5py.ref_dtype,
        "lists": h5py.vlen_dtype(np.int32),
        "records": np.dtype([("a", "i4")]),
    }
    with h5py.File(path, "w") as file:
        for name, dtype in others.items():
            file.create_dataset(name, (2,), dtype)
        file["numbers"], file["flags"], file["texts"] = [1.5, 2.5], [True, False], ["a", "é"]
    decoded, decode = [], h5py.Dataset.__getitem__
    monkeypatch.setattr(
        h5py.Dataset,
        "__getitem__",
        lambda self, key: decoded.append(self.name) or decode(self, key),
    )
    arrays = {name: values.tolist() for name, values in read_arrays(path).items()}
    assert arrays == dict.fromkeys(others, "") | {
        "numbers": [1.5, 2.5],
        "flags": [True, False],
        "texts": ["a", "é"],
    }
    assert not {f"/{name}" for name in others} & {*decoded}


@given(st.data())
def test_rows_of_a_sparse_matrix_are_those_of_the_dense_one(data):
    n_rows, n_columns = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))
    entries = data.draw(
        st.lists(st.integers(0, 3), min_size=n_rows * n_columns, max_size=n_rows * n_columns)
    )
    matrix = np.array(entries, np.float32).reshape(n_rows, n_columns)
    sparse, room = csr_array(matrix), data.draw(st.integers(0, 2))
    values, columns = np.pad(sparse.data, (0, room)), np.pad(sparse.indices, (0, room))
    rows = SparseRows(values, columns, sparse.indptr.astype(np.uint64), n_columns)
    for part in (rows, rows.T.T, rows.take(range(n_rows)), rows.astype(np.float64)):
        np.testing.assert_array_equal(part, matrix, strict=part.dtype == matrix.dtype)
    np.testing.assert_array_equal(rows.T, matrix.T)
    if n_rows:
        np.testing.assert_allclose(rows.std(axis=0), matrix.std(axis=0), atol=1e-6)
    chosen = data.draw(st.lists(st.integers(0, n_rows - 1))) if n_rows else []
    np.testing.assert_array_equal(rows.take(chosen), matrix[chosen])
    for places in (slice(1, 4), slice(None, None, -2), *chosen):
        np.testing.assert_array_equal(rows[places], matrix[places], strict=True)


SPARSE = {"data": np.ones(3), "ir": np.array([0, 2, 1]), "jc": np.array([0, 2, 3])}


def write_sparse(path, **parts):
    with h5py.File(path, "w", userblock_size=512) as file:
        group = file.create_group("S")
        group.attrs["MATLAB_sparse"] = np.uint64(3)
        for name, values in (SPARSE | parts).items():
            group[name] = values


@pytest.mark.parametrize("parts", [
    {"ir": [0, 2, 3]}, {"ir": [0, -1, 1]}, {"ir": [0, 2]},
    {"jc": [0, 4, 3]}, {"jc": [1, 2, 3]}, {"jc": [0, 2, 4]}, {"jc": [0, -2, 0]},
    *({name: odd} for name in SPARSE for odd in (1, "words", [[0, 2, 1]])),
])  # fmt: skip
def test_sparse_matrices_of_v73_files_whose_entries_lie_outside_are_refused(parts, tmp_path):
    write_sparse(tmp_path / "whole.mat")
    assert read_arrays(tmp_path / "whole.mat")["S"].tolist() == [[1, 0], [0, 1], [1, 0]]
    write_sparse(tmp_path / "f.mat", **parts)
    with pytest.raises(InputError, match=r"f\.mat: not a readable \.mat file") as refused:
        read_arrays(tmp_path / "f.mat")
    other = Thread(target=read_arrays, args=[tmp_path / "whole.mat"], daemon=True)
    other.start()
    other.join(20)
    assert not other.is_alive(), f"what the error holds has h5py's lock: {refused}"
