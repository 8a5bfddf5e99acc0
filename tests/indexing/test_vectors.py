"""Files of vectors become stores and grow by further files, in one command each."""

import datetime
import json

import numpy as np
import pytest

import channelhash as ch
from channelhash.cli import shared
from channelhash.indexing import stores
from channelhash.search.query import search_store
from extras import needs
from small_runs import assert_refused, run_json
from vector_files import needs_form, write_vectors

N = 40
VALUES = np.random.default_rng(0).normal(size=(N, 16)).astype(np.float32)
IDS = [f"d{row:02}" for row in range(N)]
COLUMNS = {
    "year": list(range(N)),
    "title": ["a tale"] * N,
    "tags": [["new", "long"]] * N,
}


FORMS = [f"v.{ending}" for ending in ("npy", "npz", "parquet", "jsonl", "h5", "fvecs")]


def write(path, values=VALUES, ids=IDS, **columns):
    further = columns or {key: cells[: len(values)] for key, cells in COLUMNS.items()}
    write_vectors(path, values, ids, **further)


def create(capsys, folder, file, *options):
    return run_json(capsys, "index", "create", folder / "s", file, "--bits", 8, *options)


@pytest.mark.parametrize("name", FORMS)
def test_a_file_of_vectors_becomes_a_store_in_one_command(name, tmp_path, capsys):
    file = tmp_path / name
    write(file)
    done = create(capsys, tmp_path, file)
    assert (done["added"], done["items"], done["problems"]) == (N, N, [])
    done = run_json(capsys, "index", "add", tmp_path / "s", file)
    assert (done["added"], done["replaced"], done["unchanged"]) == (0, 0, N)
    with ch.open_store(tmp_path / "s") as store:
        assert store.modalities == ("vector",)
        ids = IDS if name.endswith((".parquet", ".jsonl", ".h5")) else list(map(str, range(N)))
        assert sorted(store.ids()) == sorted(ids)
        (item,) = store.get([ids[3]])
        assert item.projections["vector"].shape == (store.stage.n_bytes,)
    known = {key: item.metadata.get(key) for key in COLUMNS}
    columns = {key: cells[3] for key, cells in COLUMNS.items()}
    assert known == (columns if name.endswith((".parquet", ".jsonl")) else dict.fromkeys(COLUMNS))


@pytest.mark.parametrize("name", FORMS)
def test_a_further_file_brings_further_items(name, tmp_path, capsys):
    file = tmp_path / name
    write(tmp_path / "first.parquet")
    create(capsys, tmp_path, tmp_path / "first.parquet")
    ids = [f"later{row}" for row in range(5)]
    write(file, VALUES[:5], ids)
    (tmp_path / "ids.txt").write_text("\n".join(ids))
    done = run_json(capsys, "index", "add", tmp_path / "s", file, "--ids", tmp_path / "ids.txt")
    assert (done["added"], done["replaced"], done["items"]) == (5, 0, N + 5)
    with ch.open_store(tmp_path / "s") as store:
        first, later = store.get([IDS[4], ids[4]])
        np.testing.assert_array_equal(later.codes["vector"], first.codes["vector"])
        np.testing.assert_array_equal(later.projections["vector"], first.projections["vector"])


@pytest.mark.parametrize("name", FORMS[2:4])
def test_columns_of_every_type_are_kept(name, tmp_path, capsys):
    day = datetime.date(2020, 5, 17)
    columns = {
        "huge": [2**63] * N,
        "lowest": [-(2**63)] * N,
        "share": [0.5] * N,
        "is_new": [True] * N,
        "nothing": [None] * N,
        "none of": [[]] * N,
        "day": [day if name.endswith("parquet") else str(day)] * N,
        "label": ["a"] * N,
    }
    if name.endswith("parquet"):
        needs("parquet")
        import pyarrow as pa

        columns["huge"] = pa.array(columns["huge"], pa.uint64())
        columns["none of"] = pa.array(columns["none of"], pa.list_(pa.string()))
    write(tmp_path / name, **columns)
    done = create(capsys, tmp_path, tmp_path / name)
    (problem,) = done["problems"]
    assert "the column 'label' is left out: 'label' means something else in filters" in problem
    with ch.open_store(tmp_path / "s") as store:
        known = store.get([IDS[0]])[0].metadata
    known.pop("encoded_from")
    assert known == {
        "huge": str(2**63), "lowest": -(2**63), "share": 0.5, "is_new": True, "none of": [],
        "day": "2020-05-17",
    }  # fmt: skip


@pytest.mark.parametrize("name", FORMS[2:4])
def test_bad_rows_are_left_out_and_listed(name, tmp_path, capsys):
    values = VALUES.tolist()
    values[7] = [1.0] * 15
    write(tmp_path / name, values)
    done = create(capsys, tmp_path, tmp_path / name)
    assert done["items"] == N - 1
    (problem,) = done["problems"]
    assert f"{name}, row 7 (id d07): has 15 numbers, others have 16" in problem
    with ch.open_store(tmp_path / "s") as store:
        assert "d07" not in store
        assert store.get(["d08"])[0].metadata["year"] == 8


def test_one_of_several_arrays_is_named(tmp_path, capsys):
    file = tmp_path / "v.npz"
    np.savez(file, title=VALUES, body=VALUES[::-1])
    says = "has several arrays of vectors: body, title; name one with --array"
    assert_refused(capsys, "index", "create", tmp_path / "s", file, "--bits", 8, says=says)
    assert not (tmp_path / "s").exists()
    assert create(capsys, tmp_path, file, "--array", "title")["items"] == N
    done = run_json(capsys, "index", "add", tmp_path / "s", file, "--array", "title")
    assert done["unchanged"] == N
    says = "has no array 'abstract'; it has body, title"
    words = ("index", "add", tmp_path / "s", file, "--array", "abstract")
    assert_refused(capsys, *words, says=says)


def test_a_table_of_texts_with_vectors_is_one_of_texts_unless_vectors_are_named(tmp_path, capsys):
    file = tmp_path / "v.parquet"
    write(file, text=[f"tale {row}" for row in range(N)])
    source = stores.read_again(ch.search.Address.parse(str(tmp_path / "s")), file)
    assert list(source.records.items) == ["text"]
    assert create(capsys, tmp_path, file, "--array", "embedding")["items"] == N
    with ch.open_store(tmp_path / "s") as store:
        assert store.modalities == ("vector",)
        assert store.get(["d03"])[0].metadata["text"] == "tale 3"


def test_numbers_of_labels_are_no_vectors(tmp_path, capsys):
    file = tmp_path / "v.parquet"
    write(file, labels=[[1, 2]] * N)
    assert create(capsys, tmp_path, file)["items"] == N
    with ch.open_store(tmp_path / "s") as store:
        assert store.get(["d03"])[0].metadata["labels"] == ["1", "2"]


def test_row_numbers_do_not_replace_other_vectors(tmp_path, capsys):
    np.save(tmp_path / "a.npy", VALUES)
    np.save(tmp_path / "b.npy", VALUES[::-1])
    create(capsys, tmp_path, tmp_path / "a.npy")
    says = f"b.npy: has no ids, and row numbers are those of {N} items with other vectors; give a "
    assert_refused(capsys, "index", "add", tmp_path / "s", tmp_path / "b.npy", says=says + "text")
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    words = ("index", "add", tmp_path / "s", tmp_path / "b.npy", "--ids", tmp_path / "ids.txt")
    assert run_json(capsys, *words)["added"] == N
    # the file that the store was made of may grow
    np.save(tmp_path / "a.npy", np.vstack([VALUES, VALUES[:3] + 1]))
    done = run_json(capsys, "index", "add", tmp_path / "s", tmp_path / "a.npy")
    assert (done["added"], done["unchanged"]) == (3, N)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--root", "."), ("--captions", "c.csv"), ("--exclude", "a"), ("--ocr", None)],
)
def test_options_of_images_are_refused(option, value, tmp_path, capsys):
    np.save(tmp_path / "v.npy", VALUES)
    words = ("index", "create", tmp_path / "s", tmp_path / "v.npy", option)
    says = f"{option}: goes with images and texts, {tmp_path / 'v.npy'} holds vectors; leave it out"
    assert_refused(capsys, *words, *([] if value is None else [value]), says=says)


@pytest.mark.parametrize("first", [None, []])
def test_the_first_line_need_not_have_a_vector(first, tmp_path, capsys):
    file = tmp_path / "v.jsonl"
    lines = [{"id": name, "v": v} for name, v in zip(IDS, VALUES.tolist(), strict=True)]
    lines[0]["v"] = first
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = create(capsys, tmp_path, file)
    assert done["items"] == N - 1
    assert "row 0 (id d00): has 0 numbers, others have 16" in done["problems"][0]


def test_a_damaged_line_of_a_table_of_texts_is_left_out_as_before(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text('{"id": "a", "text": "a dog"\n{"id": "b", "text": "a cat"}\n')
    source = stores.read_again(ch.search.Address.parse(str(tmp_path / "s")), file)
    assert source.records.ids == ("b",)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (None, "v.jsonl: row 3 has no id; give every row one"),
        ("", "v.jsonl: row 3 has no id; give every row one"),
        ({"a": 1}, "v.jsonl: id[3] holds an object, expected a text"),
        ("d00", "v.jsonl: several rows have the id 'd00'"),
    ],
)
def test_every_vector_has_an_id_of_its_own(name, says, tmp_path, capsys):
    file = tmp_path / "v.jsonl"
    write(file, ids=[*IDS[:3], name, *IDS[4:]])
    words = ("index", "create", tmp_path / "s", file, "--bits", 8)
    assert_refused(capsys, *words, says=says)


def test_numbers_are_ids_as_they_are_written(tmp_path, capsys):
    write(tmp_path / "v.jsonl", ids=[row + 0.0 for row in range(N)])
    create(capsys, tmp_path, tmp_path / "v.jsonl")
    with ch.open_store(tmp_path / "s") as store:
        assert sorted(store.ids()) == sorted(map(str, range(N)))


def test_the_command_that_continues_a_killed_one_names_array_and_ids(tmp_path, capsys, monkeypatch):
    going_on = []
    monkeypatch.setattr(shared, "when_stopped", lambda message, go_on: going_on.append(go_on))
    np.savez(tmp_path / "v.npz", title=VALUES, body=VALUES[::-1])
    (tmp_path / "ids.txt").write_text("\n".join(IDS))
    options = ["--ids", str(tmp_path / "ids.txt"), "--array", "title"]
    create(capsys, tmp_path, tmp_path / "v.npz", *options)
    program, *words = going_on[0]()
    assert program == "channelhash"
    assert words == ["index", "add", str(tmp_path / "s"), str(tmp_path / "v.npz"), *options]
    assert run_json(capsys, *words)["unchanged"] == N


@pytest.mark.parametrize(
    "values", [VALUES[:1], VALUES[:2], np.ones((20, 16), np.float32)], ids=["one", "two", "equal"]
)
def test_few_and_equal_vectors_become_a_store_that_finds_them(values, tmp_path, capsys):
    np.save(tmp_path / "v.npy", values)
    assert create(capsys, tmp_path, tmp_path / "v.npy")["items"] == len(values)
    with ch.open_store(tmp_path / "s") as store:
        hits = search_store(store, vector=values[0])
    assert hits[0].distance == 0
    assert hits[0].id in map(str, range(len(values)))


@pytest.mark.parametrize("name", FORMS)
def test_a_damaged_file_is_named_once(name, tmp_path, capsys):
    file = tmp_path / name
    needs_form(file)
    file.write_bytes(b"damaged")
    error = assert_refused(capsys, "index", "create", tmp_path / "s", file, says=str(file))
    assert error.count(str(file)) == 1
