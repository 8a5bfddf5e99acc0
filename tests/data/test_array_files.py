"""Every file that holds arrays gives the same records and vectors, and what is bad in it is named."""

import json

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.io import savemat

from channelhash.data.features import load_features
from channelhash.data.folder import load_any
from channelhash.data.vectors import content_of, load_vectors
from channelhash.indexing.source import Source
from channelhash.presets import data_kind
from channelhash.utils.array_files import open_arrays
from refusals import check_refusal, refusal
from small_runs import feature_config, run_command, run_json, train_run, write_features

N = 12
DRAWS = np.random.default_rng(0)
IMAGE = DRAWS.normal(size=(N, 4)).astype(np.float32)
TEXT = DRAWS.normal(size=(N, 3)).astype(np.float32)
SETS = DRAWS.random((N, 3)) < 0.5
IDS = [f"item{row}" for row in DRAWS.permutation(N)]
NAMES = [
    [name for name, has in zip(["a dog", "b", "sea"], row, strict=True) if has] for row in SETS
]
COLUMNS = {"id": IDS, "image": IMAGE.tolist(), "text": TEXT.tolist()}


def arrays_of(columns):
    """The columns of a table as arrays; lists of names as one text."""
    arrays = {}
    for name, cells in columns.items():
        are_names = name == "labels" and any(
            isinstance(cell, list) and "b" in cell for cell in cells
        )
        arrays[name] = np.array(list(map(";".join, cells)) if are_names else cells)
    return arrays


def write(path, columns):
    """The columns of a table, or the arrays of an archive."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            for name, values in arrays_of(columns).items():
                file[name] = values.tolist() if values.dtype.kind == "U" else values
    elif path.suffix == ".mat":
        rows = {name: values.reshape(N, -1) for name, values in arrays_of(columns).items()}
        savemat(path, {n: v.astype(object) if v.dtype.kind == "U" else v for n, v in rows.items()})
    else:
        np.savez(path, **arrays_of(columns))
    return path


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".h5"])
@pytest.mark.parametrize(
    "labels",
    [SETS.tolist(), SETS.astype(float).tolist(), SETS.sum(axis=1).tolist(), NAMES, None],
    ids=["booleans", "rows of 0 and 1", "numbers of classes", "names", "pairs"],
)
def test_every_form_holds_the_same_records(ending, labels, tmp_path):
    columns = COLUMNS if labels is None else {**COLUMNS, "labels": labels}
    expected = load_features(write(tmp_path / "f.npz", columns))
    records = load_features(write(tmp_path / f"f{ending}", columns))
    assert (records.ids, records.label_names) == (tuple(IDS), expected.label_names)
    np.testing.assert_array_equal(records.labels, expected.labels)
    for modality, values in {"image": IMAGE, "text": TEXT}.items():
        np.testing.assert_array_equal(records.items[modality], values, strict=True)
    assert records.contents == expected.contents
    assert records.problems == ()
    assert load_any(tmp_path / f"f{ending}").contents == expected.contents
    if labels is NAMES:
        assert records.label_names == ("a dog", "b", "sea")
        np.testing.assert_array_equal(records.labels, SETS)


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".jsonl", ".h5", ".mat"])
def test_vectors_of_neither_images_nor_texts_are_one_modality(ending, tmp_path):
    columns = {"id": IDS, "embedding": IMAGE.tolist(), "labels": SETS.astype(int).tolist()}
    path = write(tmp_path / f"f{ending}", columns)
    records = load_features(path)
    assert list(records.items) == ["vector"]
    np.testing.assert_array_equal(records.items["vector"], IMAGE)
    np.testing.assert_array_equal(records.labels, SETS)
    vectors = load_vectors(path)
    np.testing.assert_array_equal(vectors[:], IMAGE)
    assert vectors.ids == records.ids == tuple(IDS)


@pytest.mark.parametrize("ending", [".npy", ".fvecs"])
def test_a_file_of_one_array_is_one_modality_and_ids_are_a_file_of_their_own(ending, tmp_path):
    path = tmp_path / f"f{ending}"
    if ending == ".npy":
        np.save(path, IMAGE)
    else:
        np.hstack([np.full((N, 1), 4, "<i4").view("<f4"), IMAGE]).tofile(path)
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    records = load_features(path, ids=tmp_path / "ids.txt")
    np.testing.assert_array_equal(records.items["vector"], IMAGE)
    assert records.ids == tuple(IDS)
    assert load_features(path).ids == tuple(map(str, range(N)))
    np.savez(tmp_path / "parts.npz", I_tr=IMAGE[:8], I_te=IMAGE[8:])
    assert load_features(tmp_path / "parts.npz").ids[-1] == "query3"
    assert load_features(tmp_path / "parts.npz", ids=tmp_path / "ids.txt").ids == tuple(IDS)


RAGGED = [[1.0], *IMAGE.tolist()[1:]]
WITHOUT_NUMBER = [[1.0, None, 2.0, 3.0], *IMAGE.tolist()[1:]]


@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        (
            {"image": RAGGED},
            ", row 0 (id {id}): image has 1 numbers, others have 4; mend such rows",
        ),
        ({"image": [None, *RAGGED[1:]]}, ", row 0 (id {id}): image has 0 numbers, others have 4"),
        ({"image": WITHOUT_NUMBER}, ", row 0 (id {id}): image features are not finite"),
        ({"labels": [[0, 1]] * 11 + [[1]]}, ": labels[11] is [1], expected 2 numbers, each 0 or 1"),
        ({"labels": [[0, 2]] * N}, ": labels[0, 1] is 2, expected 0 or 1"),
        ({"labels": [3] * 11 + [None]}, ": labels[11] is None, expected the number of a class"),
        ({"labels": [{"a": 1}] * N}, ": labels[0] holds an object, expected a text"),
        ({"id": [None, *IDS[1:]]}, ": row 0 has no id; give every row one"),
        ({"id": [IDS[1], *IDS[1:]]}, ": several rows have the id"),
        ({"image": IDS, "text": IDS}, ": image is (12,) object, expected (12, d) numbers"),
        ({"image": None, "text": None, "year": [1] * N}, ": needs the arrays image or text"),
        ({"labels": None, "label_s": ["a"] * N}, ": has no array 'labels'; is it 'label_s'?"),
    ],
    ids=lambda value: "" if isinstance(value, dict) else value[:40],
)
def test_what_is_bad_in_a_table_is_named(ending, changed, says, tmp_path):
    columns = COLUMNS | {"labels": NAMES} | changed
    columns = {name: values for name, values in columns.items() if values is not None}
    path = write(tmp_path / f"f{ending}", columns)
    assert refusal(load_features, path).startswith(f"{path}{says.format(id=IDS[0])}")


@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
def test_bad_rows_of_a_table_can_be_left_out(ending, tmp_path):
    columns = COLUMNS | {"labels": NAMES, "image": RAGGED}
    columns["text"] = [*TEXT.tolist()[:-1], [None] * 3]
    path = write(tmp_path / f"f{ending}", columns)
    records = load_features(path, skip_bad=True)
    assert records.ids == tuple(IDS[1:-1])
    assert records.removed == {"bad features": 2}
    assert [line.split(": ")[1] for line in records.problems] == [
        "image has 1 numbers, others have 4",
        "text features are not finite",
    ]
    np.testing.assert_array_equal(records.items["text"], TEXT[1:-1])


@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
def test_features_of_a_table_are_items_to_index_without_their_bad_rows(ending, tmp_path):
    columns = {name: cells for name, cells in COLUMNS.items() if name != "id"} | {"image": RAGGED}
    records = Source.read(write(tmp_path / f"f{ending}", columns)).records
    assert records.ids == tuple(map(str, range(1, N)))
    np.testing.assert_array_equal(records.items["image"], IMAGE[1:])


@pytest.mark.parametrize(
    ("columns", "content"),
    [
        (COLUMNS, "features"),
        ({"id": IDS, "text": IDS, "image": IMAGE.tolist()}, "features"),
        ({"id": IDS, "text": IDS, "embedding": IMAGE.tolist()}, "table"),
        ({"id": IDS, "image": IDS}, "table"),
        ({"id": IDS, "embedding": IMAGE.tolist(), "labels": NAMES}, "vectors"),
        ({"id": IDS, "labels": [[0, 1]] * N}, "table"),
        ({"text": [None, *IDS[1:]], "image": [[], *IMAGE.tolist()[1:]]}, "features"),
    ],
)
@pytest.mark.parametrize("ending", [".parquet", ".jsonl"])
def test_a_table_holds_items_or_their_features_or_vectors(ending, columns, content, tmp_path):
    path = write(tmp_path / f"f{ending}", columns)
    assert content_of(path) == content
    assert data_kind(path) == ("table" if content == "table" else "features")


@pytest.mark.parametrize("names", [["XTrain", "XTest"], ["IAll"], ["image_tr"]], ids=str)
@pytest.mark.parametrize("ending", [".npz", ".h5"])
def test_arrays_that_are_said_to_be_of_images_are_features(ending, names, tmp_path):
    columns = {name: IMAGE.tolist() for name in names}
    assert content_of(write(tmp_path / f"f{ending}", columns)) == "features"


def test_an_array_that_is_not_asked_for_is_not_read(tmp_path):
    pickled = np.array([{}], dtype=object)
    np.savez(tmp_path / "f.npz", image=IMAGE, notes=pickled)
    records = load_features(tmp_path / "f.npz")
    np.testing.assert_array_equal(records.items["image"], IMAGE)
    assert "not read: notes" in records.problems[0]
    with open_arrays(tmp_path / "f.npz") as arrays:
        check_refusal("f.npz: not a readable .npz file", arrays.get, "notes")


@pytest.mark.parametrize("load", [load_features, load_vectors])
def test_a_file_of_hdf5_is_opened_once(load, tmp_path, monkeypatch):
    opened, open_file = [], h5py.File
    path = write(tmp_path / "f.h5", {"id": IDS, "embedding": IMAGE.tolist()})
    monkeypatch.setattr(h5py, "File", lambda *words: opened.append(words) or open_file(*words))
    assert len(load(path)) == N
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("options", "is_mapped"),
    [
        ({}, True),
        ({"dtype": ">f8"}, True),
        ({"compression": "gzip"}, False),
        ({"chunks": (2, 4)}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("userblock_size", [0, 1024])
def test_plain_rows_of_hdf5_stay_on_disk(options, is_mapped, userblock_size, tmp_path):
    with h5py.File(tmp_path / "f.h5", "w", userblock_size=userblock_size) as file:
        file.create_dataset("before", data=TEXT)
        file.create_dataset("image", data=IMAGE, **options)
    vectors = load_vectors(tmp_path / "f.h5", "image")
    np.testing.assert_array_equal(vectors[:], IMAGE)
    assert isinstance(vectors.stored, np.memmap) == is_mapped


def table_of(path, archive, rows):
    """Rows of a file of features as a table."""
    arrays = dict(np.load(archive))
    return write(path, {name: values[rows].tolist() for name, values in arrays.items()})


def test_runs_are_trained_extended_and_distilled_from_tables_and_hdf5(tmp_path, capsys):
    archive = write_features(tmp_path / "f.npz")
    table = table_of(tmp_path / "f.parquet", archive, slice(160))
    config = feature_config(tmp_path / "c.yaml", archive, epochs=1)
    sizes = ("--set=data.queries=20", "--set=data.train=80")
    run = train_run(config, "--data", table, *sizes)
    more = table_of(tmp_path / "more.jsonl", archive, slice(160, None))
    words = ("extend", run, "--data", more, "--out", tmp_path / "extended")
    assert run_command(*words, "--set=data.queries=10", "--set=data.train=40") == 0
    same = table_of(tmp_path / "f.h5", archive, slice(160))
    words = ("distill", run, "--student", "features", "--data", same, "--out", tmp_path / "student")
    assert run_command(*words) == 0
    scores = run_json(capsys, "evaluate", tmp_path / "student")["tasks"]
    assert set(scores) >= {"image->text", "text->image"}


def test_pairs_of_two_columns_are_learned_without_labels(tmp_path, capsys):
    table = write(tmp_path / "f.parquet", {
        "id": [*map(str, range(90))],
        "image": DRAWS.normal(size=(90, 4)).tolist(),
        "text": DRAWS.normal(size=(90, 3)).tolist(),
    })  # fmt: skip
    config = feature_config(tmp_path / "c.yaml", table, loss="contrastive", epochs=1)
    run = train_run(config, "--set=data.queries=20", "--set=data.train=40")
    scores = run_json(capsys, "evaluate", run)["tasks"]
    assert scores["image->text"]["queries"] == 20
