"""Precomputed features."""

import numpy as np
import pytest

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
        ({"labels": LABELS[:, 0]}, "labels are (3,), expected (n, c)"),
        ({"image": np.full((3, 4), np.nan)}, "image has 3 rows that are not finite, the first is row 0"),
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


def test_files_that_cannot_be_used_are_named(tmp_path):
    path = tmp_path / "f.npz"
    with pytest.raises(InputError, match="no such file"):
        load_features(path)
    write(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="perhaps truncated"):
        load_features(path)
    np.savez(path, labels=LABELS)
    with pytest.raises(InputError, match="needs the arrays image or text, and labels; it has labels"):
        load_features(path)
    np.savez(path, image=np.array([{}], dtype=object), labels=LABELS)  # a pickle is never loaded
    with pytest.raises(InputError, match="not a readable"):
        load_features(path)
