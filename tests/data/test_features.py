"""Precomputed features."""

import h5py
import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import csc_matrix

from channelhash.data.features import load_features
from channelhash.errors import InputError

LABELS = np.array([[1, 0], [0, 1], [1, 1]])
IMAGE = np.arange(12, dtype=np.int8).reshape(3, 4)


def write(path, **arrays):
    np.savez(path, **{"image": IMAGE, "labels": LABELS, **arrays})
    return path


def test_arrays_become_records(tmp_path):
    path = write(tmp_path / "f.npz", text=np.ones((3, 2), np.float16), id=np.array(["x", "y", "z"]))
    records = load_features(path)
    assert records.ids == ("x", "y", "z")
    assert records.items["text"].dtype == np.float32
    assert records.labels.dtype == bool
    assert records.label_names == ("label 0", "label 1")
    assert list(load_features(write(tmp_path / "g.npz", label_names=np.array(["a", "b"]))).items) == ["image"]


@pytest.mark.parametrize(("scale", "zero"), [(0.5, 3), (np.array([1, 2, 3, 4.0]), np.array([0, 1, 0, 1]))])
def test_quantised_features_get_their_real_values(tmp_path, scale, zero):
    records = load_features(write(tmp_path / "f.npz", image_scale=scale, image_zero=zero))
    np.testing.assert_allclose(records.items["image"], (IMAGE.astype(float) - zero) * scale)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"labels": LABELS[:2]}, "image is (3, 4) int8, expected (2, d) numbers"),
        ({"labels": LABELS * 2}, "labels[0, 0] is 2, expected 0 or 1"),
        ({"labels": LABELS[:0]}, "labels are (0, 2), expected (n, c)"),
        ({"image": np.full((3, 4), np.nan)}, "row 0 (id 0): image features are not finite, and 2 more"),
        ({"image": np.array(["a", "b", "c"])}, "image is (3,) <U1, expected (3, d) numbers"),
        ({"id": np.array(["a", "b", "a"])}, "the id 'a' occurs twice"),
        ({"id": np.array(["a"])}, "id has 1 entries, labels have 3 rows"),
        ({"image_scale": np.ones(3)}, "image_zero or image_scale does not fit the 4 columns"),
        ({"label_names": np.array(["a"])}, "1 label_names, but labels have 2 columns"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, arrays, says):
    with pytest.raises(InputError) as caught:
        load_features(write(tmp_path / "f.npz", **arrays))
    assert says in str(caught.value)


def test_rows_that_are_not_finite_can_be_left_out(tmp_path):
    image = IMAGE.astype(float)
    image[1, 2] = np.inf
    records = load_features(write(tmp_path / "f.npz", image=image), skip_bad=True)
    assert records.ids == ("0", "2")
    assert (records.removed, records.found) == ({"features not finite": 1}, 3)
    assert records.problems[0].endswith("row 1 (id 1): image features are not finite")


WHOLE = {"IAll": IMAGE.astype(np.float64), "YAll": np.eye(3), "LAll": LABELS.astype(np.uint8)}
PARTED = {
    "I_tr": WHOLE["IAll"][:2],
    "I_te": WHOLE["IAll"][2:],
    "T_tr": np.eye(3)[:2],
    "T_te": np.eye(3)[2:],
    "L_tr": LABELS[:2].astype(float),
    "L_te": LABELS[2:].astype(float),
}


def write_as(folder, ending, arrays):
    """The arrays in each format, v7.3 as MATLAB writes it: HDF5 behind a header of 512 bytes, transposed."""
    path = folder / f"f{ending}"
    if ending == ".mat":
        savemat(path, arrays)
    elif ending == ".h5":
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    elif ending == ".npz":
        np.savez(path, **arrays)
    else:
        path = folder / "f73.mat"
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, values in arrays.items():
                file[name] = values.T
        with open(path, "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(512))
    return path


@pytest.mark.parametrize("ending", [".mat", "v7.3", ".h5", ".npz"])
def test_the_fields_files_are_read_in_every_format(tmp_path, ending):
    records = load_features(write_as(tmp_path, ending, WHOLE))
    np.testing.assert_array_equal(records.items["image"], IMAGE)
    np.testing.assert_array_equal(records.items["text"], np.eye(3))
    np.testing.assert_array_equal(records.labels, LABELS)
    parted = load_features(write_as(tmp_path, ending, PARTED))
    assert parted.ids == ("train0", "train1", "query0")
    np.testing.assert_array_equal(parted.items["image"], IMAGE)
    np.testing.assert_array_equal(parted.labels, LABELS)


def test_sparse_matlab_matrices_and_columns_of_classes(tmp_path):
    savemat(
        tmp_path / "f.mat",
        {"IAll": IMAGE.astype(float), "LAll": np.array([[3], [7], [5]]), "YAll": csc_matrix(np.eye(3))},
    )
    records = load_features(tmp_path / "f.mat")
    np.testing.assert_array_equal(records.items["text"], np.eye(3))
    np.testing.assert_array_equal(records.labels, [[1, 0, 0], [0, 0, 1], [0, 1, 0]])


def test_arrays_can_be_named(tmp_path):
    path = tmp_path / "f.npz"
    np.savez(path, resnet=IMAGE, truth=LABELS)
    assert list(load_features(path, image_array="resnet", labels_array="truth").items) == ["image"]
    with pytest.raises(InputError, match=r"has no array 'vgg' \(image\); it has resnet, truth"):
        load_features(path, image_array="vgg", labels_array="truth")


@pytest.mark.parametrize("ending", [".mat", "v7.3", ".h5"])
def test_truncated_files_are_named(tmp_path, ending):
    path = write_as(tmp_path, ending, WHOLE)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=r"perhaps truncated|needs the arrays"):
        load_features(path)


def test_files_that_cannot_be_used_are_named(tmp_path):
    path = tmp_path / "f.npz"
    with pytest.raises(InputError, match="no such file"):
        load_features(path)
    write(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="perhaps truncated"):
        load_features(path)
    np.savez(path, labels=LABELS)
    with pytest.raises(InputError, match=r"needs the arrays image or text, and labels .*; it has labels"):
        load_features(path)
    np.savez(path, image=np.array([{}], dtype=object), labels=LABELS)  # a pickle is never loaded
    with pytest.raises(InputError, match="not a readable"):
        load_features(path)
