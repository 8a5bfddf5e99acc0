"""Precomputed features."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from scipy.io import savemat
from scipy.sparse import csc_matrix, csr_array, save_npz

from channelhash.data.collection import Collection, describe
from channelhash.data.features import load_features, load_simulated, load_wikipedia
from channelhash.data.splits import draw_splits
from channelhash.models import MODELS
from channelhash.models.hash_model import encode_records
from channelhash.runs.train import train
from channelhash.utils.array_files import SparseRows
from channelhash.utils.seeds import generator
from refusals import check_refusal, refusal
from small_runs import feature_config

LABELS = np.array([[1, 0], [0, 1], [1, 1]])
IMAGE = np.arange(12, dtype=np.int8).reshape(3, 4)
WORDS = np.array([[0, 2, 0, 0], [0, 0, 0, 0], [1, 0, 0, 3]], np.float32)


def write(path, **arrays):
    """Three images and their labels, some arrays replaced or added, or left out where None."""
    merged = {"image": IMAGE, "labels": LABELS} | arrays
    np.savez(path, **{name: values for name, values in merged.items() if values is not None})
    return path


def check_records(records, labels=None, **items):
    """Compare labels and features with what was written."""
    for name, expected in items.items():
        np.testing.assert_array_equal(records.items[name], expected)
    if labels is not None:
        np.testing.assert_array_equal(records.labels, labels)


def test_arrays_become_records(tmp_path):
    path = write(tmp_path / "f.npz", text=np.ones((3, 2), np.float16), id=np.array(["x", "y", "z"]))
    records = load_features(path)
    assert records.ids == ("x", "y", "z")
    assert records.items["text"].dtype == np.float32
    assert records.labels.dtype == bool
    assert records.label_names == ("label 0", "label 1")
    assert list(
        load_features(write(tmp_path / "g.npz", label_names=np.array(["a", "b"]))).items
    ) == ["image"]


@pytest.mark.parametrize(
    ("scale", "zero"), [(0.5, 3), (np.array([1, 2, 3, 4.0]), np.array([0, 1, 0, 1]))]
)
def test_quantised_features_get_their_real_values(tmp_path, scale, zero):
    records = load_features(write(tmp_path / "f.npz", image_scale=scale, image_zero=zero))
    np.testing.assert_allclose(records.items["image"], (IMAGE.astype(float) - zero) * scale)


@pytest.mark.parametrize("dtype", ["?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8"])
def test_features_of_any_numeric_type_become_float32(tmp_path, dtype):
    stored = np.array([[0, 1], [1, 1], [1, 0]], dtype)
    values = load_features(write(tmp_path / "f.npz", image=stored)).items["image"]
    np.testing.assert_array_equal(values, stored.astype(np.float32), strict=True)


def test_captions_and_pictures_are_shown_and_not_learned_from(tmp_path):
    strings = {
        "captions": np.array(["one", "two", "three"]),
        "pictures": np.array(["a.jpg", "b/b.jpg", "/c.jpg"]),
    }
    image = IMAGE.astype(float)
    image[1] = np.nan
    records = load_features(write(tmp_path / "f.npz", image=image, **strings), skip_bad=True)
    shown = ("one", "three"), (str(tmp_path / "a.jpg"), "/c.jpg")
    assert list(records.items) == ["image"]
    assert (records.display_values("text"), records.display_values("image")) == shown
    codes = encode_records(MODELS["features"].create(records, 8, hidden=[4]), records)
    assert (codes.texts, codes.images) == shown
    # someone's features, not ours to show
    plain = load_features(write(tmp_path / "f.npz", captions=np.ones((3, 7))))
    assert plain.display_values("text") is None
    assert plain.display_values("image") is None


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3)])
@pytest.mark.parametrize("number", [int, float])
def test_one_dimension_of_labels_are_class_numbers(tmp_path, shape, number):
    records = load_features(
        write(tmp_path / "f.npz", labels=np.array([7, -1, 7], number).reshape(shape))
    )
    assert records.label_names == ("label -1", "label 7")
    check_records(records, [[0, 1], [1, 0], [0, 1]])


UNCLEAR = ": rows cannot be told from columns"


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"labels": LABELS[:2]}, ": image is (3, 4) int8, expected (2, d) numbers with d ≥ 1"),
        ({"labels": LABELS * 2}, ": labels[0, 0] is 2, expected 0 or 1"),
        ({"labels": LABELS[:0]}, ": labels are (0, 2), expected (n, c) with at least one row"),
        ({"labels": LABELS * 1j}, ": labels are complex128, expected numbers or names"),
        (
            {"labels": np.array([1, np.nan, 2])},
            ": labels[1] is nan, expected the number of a class",
        ),
        (
            {"image": np.array([[1.0, 2], [3, np.inf], [np.nan, 4]])},
            (
                ", row 1 (id 1): image features are not finite; mend such rows, 2 in all, or "
                "leave them out with skip_bad"
            ),
        ),
        (
            {"image": np.array([[1], [1e300], [2]])},  # too large for float32
            (
                ", row 1 (id 1): image features are not finite; mend such rows, 1 in all, or "
                "leave them out with skip_bad"
            ),
        ),
        ({"text": np.ones((2, 2))}, ": text is (2, 2) float64, expected (3, d) numbers with d ≥ 1"),
        ({"id": np.array(["a", "b", "a"])}, ": several rows have the id 'a'"),
        ({"id": np.array(["a"])}, ": has 3 rows, but there are 1 ids"),
        ({"id": np.array([0.5, np.nan, 2])}, ": row 1 has no id; give every row one"),
        ({"id": np.array([b"a", b"\xff", b"c"])}, ": id[1] is not UTF-8 text"),
        ({"image_scale": np.ones(3)}, ": image_scale is (3,) float64, expected 1 or 4 numbers"),
        ({"image_zero": np.array("a")}, ": image_zero is () <U1, expected 1 or 4 numbers"),
        ({"captions": np.array(["a"])}, ": captions has 1 entries, expected 3, one a row"),
        ({"label_names": np.array(["a"])}, ": 1 label_names, but labels have 2 columns"),
        (
            {"label_names": np.array("")},
            ": label_names is an object or a structure; in MATLAB, save cellstr(label_names)",
        ),
        ({"label_names": np.array(["a", "a"])}, ": several label_names are 'a'"),
        (
            {"image": np.ones((2, 3))},
            f"{UNCLEAR} (image (2, 3), labels (3, 2)); save every array with a row an item",
        ),
        (
            {"image": np.ones((3, 3)), "text": np.ones((5, 3)), "labels": None},
            f"{UNCLEAR} (image (3, 3), text (5, 3)); save every array with a row an item",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path, arrays, says):
    assert (
        refusal(load_features, write(tmp_path / "f.npz", **arrays)) == f"{tmp_path / 'f.npz'}{says}"
    )


def test_rows_that_are_not_finite_can_be_left_out(tmp_path):
    image = IMAGE.astype(float)
    image[1, 2] = np.inf
    path = write(tmp_path / "f.npz", image=image, text=np.array([[1.0], [np.nan], [2]]))
    records = load_features(path, skip_bad=True)
    assert records.ids == ("0", "2")
    assert records.removed == {"bad features": 1}
    assert records.found == 3
    assert records.problems == (f"{path}, row 1 (id 1): image and text features are not finite",)
    write(path, image=image[[1, 1, 1]])
    problem = f"{path}, row 2 (id 2): image features are not finite"
    says = f"{path}: no usable row is left of 3; the last problem is {problem}"
    assert refusal(load_features, path, skip_bad=True) == says


WHOLE = {"IAll": IMAGE.astype(np.float64), "YAll": np.eye(3), "LAll": LABELS.astype(np.uint8)}
PARTED = {
    "I_tr": WHOLE["IAll"][:2],
    "I_te": WHOLE["IAll"][2:],
    "T_tr": np.eye(3)[:2],
    "T_te": np.eye(3)[2:],
    "L_tr": LABELS[:2].astype(float),
    "L_te": LABELS[2:].astype(float),
}


def write_as(path, arrays):
    """The arrays in each format; v7.3 as MATLAB writes it: HDF5 behind a header of 512 bytes,
    transposed.
    """
    by_matlab = path.name.endswith(".v73.mat")
    if by_matlab or path.suffix == ".h5":
        with h5py.File(path, "w", userblock_size=512 * by_matlab) as file:
            for name, values in arrays.items():
                file[name] = values.T if by_matlab else values
    elif path.suffix == ".mat":
        savemat(path, arrays)
    else:
        np.savez(path, **arrays)
    if by_matlab:
        with open(path, "r+b") as file:
            file.write(b"MATLAB 7.3 MAT-file".ljust(512))
    return path


@pytest.mark.parametrize("ending", [".mat", ".v73.mat", ".h5", ".npz"])
def test_the_fields_files_are_read_in_every_format_and_truncated_ones_are_named(tmp_path, ending):
    path = write_as(tmp_path / f"f{ending}", PARTED)
    parted = load_features(path)
    assert parted.ids == ("train0", "train1", "query0")
    check_records(parted, LABELS, image=IMAGE)
    check_records(load_features(write_as(path, WHOLE)), LABELS, image=IMAGE, text=np.eye(3))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert refusal(load_features, path).startswith(
        f"{path}: not a readable {path.suffix} file, perhaps truncated"
    )


def test_names_are_texts_in_every_format(tmp_path):
    arrays = {"image": np.eye(3), "labels": LABELS}
    np.savez(
        tmp_path / "f.npz",
        **arrays,
        id=np.array([b"a", b"b", "é".encode()]),
        label_names=np.array(["x", "yy"]),
    )
    write_as(
        tmp_path / "f.h5", {**arrays, "id": ["a", "b", "é"], "label_names": np.array([b"x", b"yy"])}
    )
    cells = np.array(["a", "b", "é"], dtype=object)
    # cells, and padded characters
    savemat(tmp_path / "f.mat", {**arrays, "id": cells, "label_names": ["x", "yy"]})
    for name in ("f.npz", "f.h5", "f.mat"):
        records = load_features(tmp_path / name)
        assert records.ids == ("a", "b", "é")
        assert records.label_names == ("x", "yy")


def test_arrays_can_be_named_and_missing_files_and_arrays_are(tmp_path):
    path = tmp_path / "f.npz"
    assert refusal(load_features, path) == f"{path}: no such file"
    known = (
        "image or text (or IAll, TAll; I_tr, T_tr …), and labels (or LAll; L_tr …) if there are any"
    )
    for arrays, names in (({"labels": LABELS}, "labels"), ({}, "none")):
        np.savez(path, **arrays)
        assert refusal(load_features, path) == f"{path}: needs the arrays {known}; it has {names}"
    np.savez(path, resnet=IMAGE, truth=LABELS)
    assert list(load_features(path, image_array="resnet", labels_array="truth").items) == ["image"]
    says = r"has no array 'vgg' \(image\); it has resnet, truth"
    check_refusal(says, load_features, path, image_array="vgg", labels_array="truth")
    change(write_parts(path, tr=TRAIN, te=QUERY), vgg=IMAGES)
    assert "comes in parts (L_tr …), but one array is named" in refusal(
        load_features, path, image_array="vgg"
    )


@pytest.mark.parametrize(("arrays", "turned"), [
    ({"image": IMAGE.T}, ["image"]),
    ({"image": IMAGE.T, "text": np.ones((5, 3)), "labels": LABELS.T}, ["image", "text", "labels"]),
    ({"image": IMAGE.T, "labels": np.array([3, 7, 3])}, ["image"]),
    ({"image": IMAGE, "text": np.ones((5, 3))}, ["text"]),
    ({"image": np.ones((3, 3))}, []),
    ({"image": IMAGE.T, "labels": None, "id": np.array(["x", "y", "z"])}, ["image"]),
])  # fmt: skip
def test_columns_become_rows_where_the_other_arrays_say_so(tmp_path, arrays, turned):
    records = load_features(write(tmp_path / "f.npz", **arrays))
    assert len(records) == 3
    assert [line.split(": ")[1].split(" is ")[0] for line in records.problems] == turned
    if "image" in turned:
        np.testing.assert_array_equal(records.items["image"], IMAGE)


IMAGES, TEXTS, SETS = np.arange(24.0).reshape(12, 2), np.eye(12), np.arange(36).reshape(12, 3) % 2
TRAIN, DATABASE, QUERY = range(5), range(5, 9), range(9, 12)


def write_parts(path, **parts):
    """The rows of each part under its ending."""
    whole = {"I": IMAGES, "T": TEXTS, "L": SETS}
    np.savez(
        path,
        **{
            f"{name}_{part}": whole[name][list(rows)]
            for part, rows in parts.items()
            for name in whole
        },
    )
    return path


def change(path, **arrays):
    """The file with some arrays replaced, or left out where None."""
    return write(path, **{"image": None, "labels": None, **np.load(path), **arrays})


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(range(9)), st.integers(1, 9))
def test_training_rows_that_the_database_repeats_are_read_once(tmp_path, database, n_train):
    train = sorted(database)[:n_train]
    path = change(
        write_parts(tmp_path / "f.npz", tr=train, db=database, te=QUERY),
        L_tr=SETS[train].astype(np.float32),
    )
    records = load_features(path)
    assert len(records) == 12
    rows, places = (
        [records.ids.index(f"train{i}") for i in range(n_train)],
        records.items["image"][:, 0] // 2,
    )
    assert places[rows].tolist() == train
    splits = draw_splits(records, method="given")
    assert sorted(places[splits.retrieval]) == [*range(9)]
    assert sorted(places[splits.train]) == train


def test_equal_rows_stay_and_a_database_without_all_training_rows_stands_beside_them(tmp_path):
    records = load_features(write_parts(tmp_path / "f.npz", tr=[0, 0], db=[0, 0, 0, 1], te=[2]))
    assert sorted(records.ids) == ["database2", "database3", "query0", "train0", "train1"]
    assert len(load_features(write_parts(tmp_path / "g.npz", tr=[0, 1], db=[1, 2, 3], te=[4]))) == 6


def test_given_splits_are_those_of_the_file_and_need_parts_and_no_sizes(tmp_path):
    records = load_features(write_parts(tmp_path / "f.npz", tr=TRAIN, db=DATABASE, te=QUERY))
    splits = draw_splits(records, validation_queries=1, method="given")
    assert set(splits.retrieval) == set(range(12)) - set(splits.query)
    validation = [*splits.validation_query, *splits.validation_retrieval]
    for part, rows, n in (
        ("query", splits.query, 3),
        ("train", splits.train, 5),
        ("database", validation, 4),
    ):
        assert sorted(records.ids[row] for row in rows) == [f"{part}{i}" for i in range(n)]
    assert len(splits.validation_query) == 1
    order = np.arange(12)[::-1]
    again = draw_splits(records.take(order), validation_queries=1, method="given")
    for name, rows in vars(splits).items():
        assert set(order[vars(again)[name]]) == set(rows)
    records = load_features(write_parts(tmp_path / "f.npz", tr=TRAIN, te=QUERY))
    says = "given takes queries and train from the file; leave both settings out"
    check_refusal(says, draw_splits, records, queries=2, method="given")
    for others in (
        load_features(write_parts(tmp_path / "g.npz", tr=TRAIN)),
        records.take(range(5, 8)),
    ):
        check_refusal(
            "given needs a features file with the parts I_te", draw_splits, others, method="given"
        )


@pytest.mark.parametrize(
    ("asked", "sizes"), [(None, (16, 2, 2)), (0, (20, 0, 0)), (3, (14, 3, 3)), (9, (2, 9, 9))]
)
def test_without_a_database_beside_them_training_rows_are_held_out_for_validation(
    tmp_path, asked, sizes
):
    ids = [f"train{row}" for row in range(20)] + [f"query{row}" for row in range(5)]
    np.savez(tmp_path / "f.npz", image=np.arange(50.0).reshape(25, 2), id=np.array(ids))
    records = load_features(tmp_path / "f.npz")
    splits = draw_splits(records, validation_queries=asked, method="given")
    parts = (splits.train, splits.validation_query, splits.validation_retrieval)
    assert tuple(map(len, parts)) == sizes
    assert sorted(np.concatenate(parts)) == splits.retrieval.tolist() == list(range(20))
    check_refusal(
        "but 20 training rows allow 0 … 9",
        draw_splits,
        records,
        validation_queries=10,
        method="given",
    )


def write_wikipedia(root, **files):
    """The collection as published: features by part, and a line for each text, its image and its
    class.
    """
    features = {"I_tr": IMAGES[:3], "I_te": IMAGES[3:5], "T_tr": TEXTS[:3], "T_te": TEXTS[3:5]}
    savemat(root / "raw_features.mat", features)
    lists = {
        "trainset": "t-1\ti1\t3\nt-2\ti1\t1\nu-1\ti2\t3\n",
        "testset": "t-3\ti3\t2\nv-1\ti4\t3\n",
    }
    for name, text in (lists | files).items():
        (root / f"{name}_txt_img_cat.list").write_text(text)
    (root / "categories.list").write_text("art\nbiology\ngeography")
    return root


def test_wikipedia_is_read_as_published(tmp_path):
    records = load_wikipedia(write_wikipedia(tmp_path))
    assert records.ids == ("train0", "train1", "train2", "query0", "query1")
    assert records.label_names == ("art", "biology", "geography")
    check_records(records, np.eye(3)[[2, 0, 2, 1, 2]], image=IMAGES[:5], text=TEXTS[:5])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a\tb\t1\n", ": has 1 lines, but I_te in raw_features.mat has 2 rows"),
        (
            "a\tb\t1\nc\td\t4\n",
            ", line 2: ends in '4', expected the number of a class in categories.list, 1 to 3",
        ),
        (
            "a\tb\tart\n\n",
            ", line 1: ends in 'art', expected the number of a class in categories.list, 1 to 3",
        ),
    ],
)
def test_lists_of_wikipedia_that_do_not_fit_are_named(tmp_path, text, says):
    write_wikipedia(tmp_path, testset=text)
    path = tmp_path / "testset_txt_img_cat.list"
    assert refusal(load_wikipedia, tmp_path) == f"{path}{says}"
    path.unlink()
    assert (
        refusal(load_wikipedia, tmp_path) == f"{path}: cannot be read (No such file or directory)"
    )


@pytest.mark.parametrize(("arrays", "says"), [
    ({"L_te": None}, "has I_te, but no L_te (labels)"),
    ({"T_tr": None}, "has I_tr, but no T_tr (text)"),
    ({"I_te": IMAGES[:2]}, "I_te is (2, 2), but L_te has 3 rows"),
    ({"I_te": np.array(["a", "b", "c"])}, "I_te holds <U1, expected numbers"),
    ({"I_te": np.ones((3, 4))}, "I_te is (3, 4), but I_tr is (5, 2)"),
    ({"L_tr": np.array(1)}, "I_tr is (5, 2), but L_tr has 1 rows"),
    ({"I_query": IMAGES[:1], "T_query": TEXTS[:1], "L_query": SETS[:1]},
     "has two query parts, one of them I_query, T_query, L_query"),
])  # fmt: skip
def test_parts_that_do_not_fit_are_named(tmp_path, arrays, says):
    path = change(write_parts(tmp_path / "f.npz", tr=TRAIN, te=QUERY), **arrays)
    assert refusal(load_features, path) == f"{path}: {says}"


@pytest.mark.parametrize(("train", "query"), [
    ("I_train T_train L_train", "I_test T_test L_test"),
    ("XTrain YTrain LTrain", "XTest YTest LTest"),
    ("image_tr text_tr label_tr", "image_te text_te label_te"),
])  # fmt: skip
def test_parts_have_many_names_and_may_be_stored_by_columns(tmp_path, train, query):
    arrays = dict(zip(train.split(), (IMAGES[:5].T, TEXTS[:5].T, SETS[:5].T), strict=True))
    arrays |= dict(zip(query.split(), (IMAGES[5:], TEXTS[5:], SETS[5:]), strict=True))
    np.savez(tmp_path / "f.npz", **arrays)
    records = load_features(tmp_path / "f.npz")
    check_records(records, SETS, image=IMAGES)
    assert records.ids[0] == "train0"
    assert records.ids[-1] == "query6"
    assert len(records.problems) == 3


def test_features_are_labels_times_a_matrix_plus_noise(tmp_path):
    labels = np.random.default_rng(0).random((300, 5)) < 0.3
    path = tmp_path / "labels.npz"
    np.savez(path, labels=labels, label_names=np.array(list("abcde")))
    records = load_simulated(
        path, rows=200, width=16, image_noise=0.5, text_noise=0.0, simulation_seed=3
    )
    rows = np.array([int(name) for name in records.ids])
    np.testing.assert_array_equal(records.labels, labels[rows])
    assert records.labels.any(axis=1).all()
    assert len(set(rows)) == 200
    for modality, noise in (("image", 0.5), ("text", 0.0)):
        random = generator(3, "simulated features", modality)
        matrix, spread = random.standard_normal((5, 16)), random.standard_normal((200, 16))
        expected = [
            sum(matrix[j] for j in range(5) if row[j]) / 5**0.5 + np.zeros(16)
            for row in records.labels
        ]
        np.testing.assert_allclose(records.items[modality], expected + noise * spread, atol=1e-5)
    check_refusal(
        r"data\.rows is 14000, but .*labels\.npz has \d+ rows with a label", load_simulated, path
    )
    np.savez(path, image=np.zeros((3, 2)))
    check_refusal("has no array 'labels'; it has image", load_simulated, path, rows=1)


def write_dcmh(folder, **changed):
    """The three files of DCMH's toolbox: names of pictures, tags and labels, an array a file."""
    cells = np.array([[f"im{row}.jpg"] for row in (1, 2, 3)], dtype=object)
    arrays = {
        "imgList": {"FAll": cells},
        "tagList": {"YAll": np.eye(3, 4)},
        "labelList": {"LAll": LABELS},
    }
    for name, content in (arrays | changed).items():
        if content:
            savemat(folder / f"{name}.mat", content)
    return folder


def test_an_array_a_file_is_one_set_and_names_of_pictures_are_no_features(tmp_path):
    records = load_features(write_dcmh(tmp_path))
    assert list(records.items) == ["text"]
    check_records(records, LABELS, text=np.eye(3, 4))
    assert records.display_values("image") == tuple(
        str(tmp_path / f"im{row}.jpg") for row in (1, 2, 3)
    )
    np.save(tmp_path / "image.npy", IMAGE)
    for labels, expected in (
        (csc_matrix(LABELS), LABELS),
        ([[3], [7], [5]], [[1, 0, 0], [0, 0, 1], [0, 1, 0]]),
    ):
        write_dcmh(
            tmp_path, tagList={"tagList": csc_matrix(np.eye(3, 4))}, labelList={"labelList": labels}
        )
        check_records(load_features(tmp_path), expected, text=np.eye(3, 4), image=IMAGE)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"labelList": {"LAll": LABELS[:2]}},
            "the files differ in their number of rows (YAll (3, 4), LAll (2, 2))",
        ),
        (
            {"imgList": {"FAll": np.array([["a"]], dtype=object)}},
            "FAll has 1 entries, expected 3, one a row",
        ),
        (
            {"more": {"YAll": np.eye(3)}},
            "more.mat and tagList.mat both hold YAll; take one of them away",
        ),
        (
            dict.fromkeys(("imgList", "tagList", "labelList")),
            "is a folder without files that end in .npy, .npz, .mat, .h5, .hdf5",
        ),
    ],
)
def test_files_of_a_folder_that_do_not_fit_are_named(tmp_path, changed, says):
    assert refusal(load_features, write_dcmh(tmp_path, **changed)) == f"{tmp_path}: {says}"


def sparse_parts(matrix=WORDS, prefix="", **changed):
    """The arrays of a sparse matrix, by rows."""
    rows = csr_array(matrix)
    parts = {
        "indptr": rows.indptr,
        "indices": rows.indices,
        "shape": rows.shape,
        "data": rows.data,
    } | changed
    return {f"{prefix}{part}": values for part, values in parts.items() if values is not None}


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_what_scipy_saves_is_a_sparse_text(tmp_path, form):
    save_npz(tmp_path / "f.npz", csr_array(WORDS).asformat(form))
    items = load_features(tmp_path / "f.npz").items
    assert {name: type(values) for name, values in items.items()} == {"text": SparseRows}
    np.testing.assert_array_equal(items["text"], WORDS, strict=True)
    save_npz(tmp_path / "f.npz", csr_array(WORDS).tobsr((1, 2)))
    check_refusal(
        "indptr is not that of a sparse matrix by rows", load_features, tmp_path / "f.npz"
    )


def test_sparse_arrays_of_either_modality_are_joined_and_labels_may_be_packed(tmp_path):
    labels = np.random.default_rng(0).random((3, 11)) < 0.5
    arrays = sparse_parts(prefix="image_") | sparse_parts(prefix="text_", data=None)
    names = np.array(list("abcdefghijk"))
    np.savez(tmp_path / "f.npz", **arrays, labels=np.packbits(labels, axis=1), label_names=names)
    records = load_features(tmp_path / "f.npz")
    check_records(records, labels, image=WORDS, text=WORDS > 0)
    joined = Collection((records, replace(records, ids=("a", "b", "c")))).records
    check_records(joined, image=np.vstack([WORDS, WORDS]))
    assert describe(records)["words_per_text"] == {}
    np.savez(tmp_path / "f.npz", **arrays, labels=np.full((3, 2), 255, np.uint8), label_names=names)
    check_refusal(
        "packed bits, and some lie beyond the 11 label_names", load_features, tmp_path / "f.npz"
    )
    np.savez(tmp_path / "f.npz", **sparse_parts(WORDS.T, "text_"), image=IMAGE, labels=LABELS)
    check_records(load_features(tmp_path / "f.npz"), text=WORDS)


@pytest.mark.parametrize(("changed", "says"), [
    ({"indices": np.array([1, 0, 4])}, "not in it"),
    ({"indices": np.array([1, 3, 3])}, "two values in a cell; sum_duplicates"),
    ({"shape": (2, 4)}, "of 3 rows"),
    ({"shape": None}, "(it lacks 'shape')"),
    ({"data": np.array([1, np.inf, 2])}, "row 2 (id 2): text features are not finite"),
    ({"text": WORDS}, "has text and indptr, features twice; leave one out"),
    ({"text_scale": 2}, "text is sparse, which goes without text_scale; store real values"),
])  # fmt: skip
def test_sparse_arrays_that_do_not_fit_are_named(tmp_path, changed, says):
    np.savez(tmp_path / "f.npz", **sparse_parts(**changed), labels=LABELS)
    assert says in refusal(load_features, tmp_path / "f.npz")


@pytest.mark.parametrize("model", [[], ["model.name=aligned", "model.encoder=features"]])
def test_a_model_of_sparse_features_is_that_of_dense_ones(tmp_path, model):
    draws, results = np.random.default_rng(0), []
    dense = draws.random((200, 30), np.float32) * (draws.random((200, 30)) < 0.2)
    dense[:, 0], labels = 0.1, draws.random((200, 3)) < 0.4
    for name, arrays in {"sparse": sparse_parts(dense), "dense": {"text": dense}}.items():
        np.savez(path := tmp_path / f"{name}.npz", **arrays, labels=labels)
        run = train(
            feature_config(tmp_path / f"{name}.json", path, epochs=2), model, out=tmp_path / name
        )
        codes = encode_records(run.load_model(), load_features(path)).codes["text"]
        results.append((run.validation, codes.tolist()))
    assert results[0] == results[1]


#: Ways to number c classes, from what the field's files hold.
NUMBERED = {
    "from 0": lambda classes: classes,
    "from 1": lambda classes: classes + 1,
    "any numbers": lambda classes: 3 * classes + 100,
}


@given(
    st.integers(2, 12),
    st.sampled_from([np.uint8, np.int8, np.int64, np.float32]),
    st.sampled_from(list(NUMBERED)),
    st.booleans(),
    st.integers(0, 999),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_of_classes_beside_names_are_never_read_as_other_labels(
    tmp_path, c, dtype, numbered, in_parts, seed
):
    """One column may also be packed bits: where both fit, a line asks which."""
    random = np.random.default_rng(seed)
    classes = np.append(random.permutation(c), random.integers(0, c, 9))
    numbers = NUMBERED[numbered](classes).astype(dtype)[:, None]
    if not np.array_equal(numbers.ravel(), NUMBERED[numbered](classes)):
        return  # beyond what the type holds
    names = np.array([f"class{number}" for number in range(c)])
    image = random.normal(size=(len(classes), 5))
    arrays = {"image": image, "labels": numbers}
    if in_parts:
        arrays = {f"{name}_tr": values[:-4] for name, values in arrays.items()} | {
            f"{name}_te": values[-4:] for name, values in arrays.items()
        }
    np.savez(tmp_path / "f.npz", label_names=names, **arrays)
    may_be_bits = dtype == np.uint8 and c <= 8 and not (numbers.ravel() % 2 ** (8 - c)).any()
    if may_be_bits and numbered != "any numbers":
        check_refusal("numbers of . classes, or packed bits", load_features, tmp_path / "f.npz")
    elif not may_be_bits and not (dtype == np.uint8 and c <= 8 and numbered == "any numbers"):
        records = load_features(tmp_path / "f.npz")
        check_records(records, np.eye(c, dtype=bool)[classes])
        assert records.label_names == tuple(names)


@given(st.integers(2, 20), st.integers(0, 999))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_packed_bits_are_read_or_asked_about(tmp_path, c, seed):
    random = np.random.default_rng(seed)
    labels = random.random((30, c)) < 0.4
    names = np.array([f"label {number}" for number in range(c)])
    packed = np.packbits(labels, axis=1)
    np.savez(tmp_path / "f.npz", image=np.eye(30), labels=packed, label_names=names)
    if c <= 8 and packed.max() <= c:
        check_refusal("numbers of . classes, or packed bits", load_features, tmp_path / "f.npz")
    else:
        check_records(load_features(tmp_path / "f.npz"), labels)


@pytest.mark.parametrize(
    ("numbers", "c", "expected"),
    [
        ([1, 3, 1], 3, [0, 2, 0]),  # nothing has class 2; 3 is the third counted from 1
        ([0, 1, 0], 3, [0, 1, 0]),
        ([0, 1, 0], 2, [0, 1, 0]),
        ([-1, 1, 1], 2, [0, 1, 1]),
    ],
    ids=str,
)
def test_classes_that_do_not_occur_keep_their_names(tmp_path, numbers, c, expected):
    names = np.array([f"class{number}" for number in range(c)])
    for shape in ((3,), (3, 1)):
        labels = np.array(numbers).reshape(shape)
        path = write(tmp_path / "f.npz", labels=labels, label_names=names)
        check_records(load_features(path), np.eye(c, dtype=bool)[expected])
    unclear = write(tmp_path / "g.npz", labels=np.array([1, 2, 1]), label_names=[*"abc"])
    check_refusal("3 label_names, but labels have 2 columns", load_features, unclear)


def rows_of(n, seed):
    """Features and labels of a part."""
    random = np.random.default_rng(seed)
    return {
        "I": random.normal(size=(n, 5)),
        "T": random.normal(size=(n, 4)),
        "L": np.eye(3, dtype=int)[random.integers(0, 3, n)],
    }


def test_matlabs_numbers_may_name_rows_and_labels(tmp_path):
    numbers = {"id": np.array([[7.0, 8.0, 9.0]]), "label_names": np.array([[1.0, 2.0]])}
    arrays = {"image": IMAGE, "labels": LABELS} | numbers
    records = load_features(write_as(tmp_path / "f.mat", arrays))
    assert records.ids == ("7", "8", "9")
    assert records.label_names == ("1", "2")


@pytest.mark.parametrize("ending", ["val", "valid", "validation", "dev", "VAL"])
@pytest.mark.parametrize("database", [0, 6], ids=["no database", "a database"])
def test_a_validation_part_is_read_and_validates_where_the_split_is_given(
    tmp_path, ending, database
):
    sizes = {"tr": 20, ending: 9, "te": 7} | ({"db": database} if database else {})
    arrays = {
        f"{name}_{part}": values
        for seed, (part, n) in enumerate(sizes.items())
        for name, values in rows_of(n, seed).items()
    }
    np.savez(tmp_path / "f.npz", **arrays)
    records = load_features(tmp_path / "f.npz")
    assert len(records) == 36 + database
    assert records.problems == ()
    splits = draw_splits(records, method="given")
    parts = {
        name: {records.ids[row].rstrip("0123456789") for row in rows}
        for name, rows in vars(splits).items()
        if name != "retrieval"
    }
    others = {"validation_query": {"validation"}, "validation_retrieval": {"validation"}}
    if database:
        others["validation_retrieval"] = {"database"}
    assert parts == {"query": {"query"}, "train": {"train"}} | others
    assert len(splits.query) == 7
    assert len(splits.train) == 20
    assert len(splits.validation_query) == (9 if database else 4)
    assert len(splits.validation_query) + len(splits.validation_retrieval) == 9 + database
    asked = draw_splits(records, validation_queries=2, method="given")
    assert len(asked.validation_query) == 2
    assert splits.retrieval.tolist() == asked.retrieval.tolist()
    check_refusal(
        "the 9 rows of the validation part allow",
        draw_splits,
        records,
        validation_queries=10,
        method="given",
    )


def test_validation_rows_that_the_database_repeats_are_read_once(tmp_path):
    parts = {part: rows_of(n, n) for part, n in (("tr", 5), ("val", 4), ("te", 3), ("rest", 2))}
    every = [parts[part] for part in ("rest", "val", "tr")]
    arrays = {
        f"{name}_{part}": values
        for part in ("tr", "val", "te")
        for name, values in parts[part].items()
    }
    arrays |= {f"{name}_db": np.concatenate([part[name] for part in every]) for name in "ITL"}
    np.savez(tmp_path / "f.npz", **arrays)
    records = load_features(tmp_path / "f.npz")
    assert len(records) == 14
    counts = draw_splits(records, method="given").counts()
    assert counts == {
        "query": 3,
        "retrieval": 11,
        "train": 5,
        "validation_query": 4,
        "validation_retrieval": 2,
    }


@pytest.mark.parametrize("ending", [".npz", ".mat", ".v73.mat", ".h5", "a folder"])
@pytest.mark.parametrize(
    "unread", [["image_test", "labels_test"], ["I_val"], ["note", "IAll", "captions_fr"]], ids=str
)
def test_every_array_that_is_not_read_is_named_once(tmp_path, ending, unread):
    arrays = {"image": IMAGE, "text": WORDS, "labels": LABELS, "image_scale": np.array([2.0])}
    extra = {name: np.ones((7, 2)) for name in unread}
    path = tmp_path / f"f{ending}"
    if ending == "a folder":
        path.mkdir()
        for name, values in (arrays | extra).items():
            np.save(path / f"{name}.npy", values)
    else:
        write_as(path, arrays | extra)
    if ending in (".h5", ".v73.mat"):
        with h5py.File(path, "a") as file:
            file["group/inside"] = [1]
        unread = [*unread, "group"]
    (line,) = load_features(path).problems
    assert line.startswith(f"{path}: not read: {', '.join(sorted(unread))}; ")
    assert describe(load_features(path))["problems"][0] == line


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("sparse", [["text"], ["image", "text"], ["image", "text", "labels"]])
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_a_folder_may_hold_one_matrix_a_file_sparse_or_not(tmp_path, form, sparse, ending):
    arrays = {"image": IMAGE.astype(float), "text": WORDS, "labels": LABELS}
    for name, values in arrays.items():
        if name in sparse:
            save_npz(tmp_path / f"{name}.npz", csr_array(values).asformat(form))
        elif ending == ".npy":
            np.save(tmp_path / f"{name}.npy", values)
        else:
            np.savez(tmp_path / f"{name}.npz", values)
    records = load_features(tmp_path)
    check_records(records, LABELS, image=IMAGE, text=WORDS)
    assert records.problems == ()
