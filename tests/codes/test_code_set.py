"""Bits, packed bytes, distances, and sets of codes in memory and on disk."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

import channelhash as ch
from channelhash.errors import InputError
from channelhash.utils.hashes import dump_checked
from refusals import check_refusal


def make(n: int = 5, k: int = 12, labelled: bool = True) -> ch.CodeSet:
    random = np.random.default_rng(n * 100 + k)
    codes = {m: ch.codes.pack(random.random((n, k)) < 0.5) for m in ("image", "text")}
    labels = random.random((n, 3)) < 0.5 if labelled else None
    names = ("sea", "sky", "dog") if labelled else ()
    texts = [f"text {i}" for i in range(n)]
    images = [f"{i}.jpg" for i in range(n)]
    return ch.CodeSet([f"id{i}" for i in range(n)], codes, labels, k, names, texts, images, "abc")


def assert_equal(a: ch.CodeSet, b: ch.CodeSet) -> None:
    np.testing.assert_equal(vars(a), vars(b))


@given(st.integers(0, 9), st.integers(1, 130), st.booleans())
def test_what_is_saved_is_loaded(tmp_path_factory, n, k, labelled):
    path = tmp_path_factory.mktemp("codes") / "c.parquet"
    codes = make(n, k, labelled)
    codes.save(path)
    assert_equal(ch.CodeSet.load(path), codes)


def test_the_file_is_plain_parquet(tmp_path):
    codes = make()
    codes.save(tmp_path / "c.parquet")
    table = pq.read_table(tmp_path / "c.parquet")
    pq.write_table(table, tmp_path / "groups.parquet", row_group_size=2)
    assert_equal(ch.CodeSet.load(tmp_path / "groups.parquet"), codes)
    assert table.column_names == ["id", "code_image", "code_text", "labels", "text", "image"]
    assert table.schema.field("code_image").type == pa.binary(2)
    assert table["code_image"][0].as_py() == codes.codes["image"][0].tobytes()
    assert table["labels"].to_pylist() == [np.flatnonzero(row).tolist() for row in codes.labels]
    assert json.loads(table.schema.metadata[b"channelhash"])["n_bits"] == 12


def test_missing_and_foreign_files_are_named(tmp_path):
    path = tmp_path / "c.parquet"
    check_refusal(r"c\.parquet: no such file of codes", ch.CodeSet.load, path)
    pq.write_table(pa.table({"id": ["a"]}), path)
    check_refusal("a Parquet file, but not one of codes", ch.CodeSet.load, path)
    check_refusal("no such file of codes", ch.CodeSet.load, tmp_path)


def described(table: pa.Table, **changes: object) -> pa.Table:
    """The table with other values in its description, or without those that are None; it is not
    damaged.
    """
    description = json.loads(table.schema.metadata[b"channelhash"]) | changes
    del description["checksum"]
    text = dump_checked({key: value for key, value in description.items() if value is not None})
    return table.replace_schema_metadata({**table.schema.metadata, b"channelhash": text})


@pytest.mark.parametrize(("name", "kind"), [
    ("id", pa.large_string()),
    ("id", pa.string_view()),
    ("text", pa.dictionary(pa.int32(), pa.string())),
    ("code_image", pa.binary()),
    ("code_image", pa.binary_view()),
    ("labels", pa.large_list(pa.int64())),
    ("labels", pa.list_view(pa.int32())),
], ids=str)  # fmt: skip
def test_a_copy_with_other_types_of_the_same_values_is_read(tmp_path, name, kind):
    codes = make()
    codes.save(tmp_path / "c.parquet")
    table = pq.read_table(tmp_path / "c.parquet")
    column = table.column(name).to_pylist()
    copy = pa.array(column).cast(kind) if pa.types.is_dictionary(kind) else pa.array(column, kind)
    pq.write_table(
        table.set_column(table.column_names.index(name), name, copy), tmp_path / "c.parquet"
    )
    parts = list(ch.CodeSet.stream(tmp_path / "c.parquet", 2))
    for loaded in (ch.CodeSet.load(tmp_path / "c.parquet"), ch.CodeSet.join(parts)):
        assert loaded.ids == codes.ids
        assert loaded.texts == codes.texts
        assert loaded.labels.tolist() == codes.labels.tolist()
        assert loaded.codes["image"].tolist() == codes.codes["image"].tolist()


def test_parts_with_and_without_image_paths_are_joined():
    codes = make()
    joint = ch.CodeSet.join(
        [replace(codes, images=None), replace(codes, images=["p"] * len(codes))]
    )
    assert joint.images == ("",) * len(codes) + ("p",) * len(codes)
    assert ch.CodeSet.join([replace(codes, images=None)] * 2).images is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: described(t, n_bits=20), "column code_image is fixed_size_binary.*20 bits"),
        (lambda t: described(t, n_bits=9), "bits past the 9th are set"),
        (lambda t: described(t, n_bits=None), "it lacks 'n_bits'"),
        (lambda t: described(t, n_labels=1, label_names=[]), "labels has numbers outside 0 … 0"),
        (
            lambda t: t.replace_schema_metadata({b"channelhash.format": b"channelhash codes 2"}),
            "description.*damaged",
        ),
        (
            lambda t: t.replace_schema_metadata({b"channelhash.format": b"channelhash codes 9"}),
            "'channelhash codes 9'",
        ),
        (lambda t: t.drop(["id"]), "column id is missing"),
        (lambda t: t.drop(["code_image", "code_text"]), "at least one modality"),
        (
            lambda t: t.set_column(1, "code_image", pa.array(["ab"] * 5)),
            "column code_image is string",
        ),
        (
            lambda t: t.set_column(1, "code_image", pa.array([None] * 5, pa.binary(2))),
            "code_image has empty cells",
        ),
        (lambda t: t.set_column(3, "labels", pa.array([0] * 5)), "column labels is int64"),
    ],
)
def test_files_whose_parts_do_not_fit_are_named_in_one_line(tmp_path, change, message):
    path = tmp_path / "c.parquet"
    make().save(path)
    pq.write_table(change(pq.read_table(path)), path)
    check_refusal(rf"c\.parquet: .*{message}", ch.CodeSet.load, path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": list("abc")}, "2 image codes for 3 ids"),
        ({"n_bits": 9}, "codes of 9 bits"),
        ({"labels": np.ones((3, 2), bool)}, "labels are"),
        ({"labels": np.array([[1, 2], [0, 1]])}, r"not 2 \(row 0, column 1\)"),
        ({"labels": np.ones(2, bool)}, r"labels are \(n, c\), not \(2,\)"),
        ({"label_names": ["dog"]}, "1 label names do not fit the labels"),
        (
            {"labels": np.ones((2, 2), bool), "label_names": ["dog"]},
            "1 label names do not fit the labels",
        ),
        ({"texts": ["x"]}, "1 texts for 2 ids"),
        ({"codes": {}}, "at least one modality"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    codes = {"image": np.zeros((2, 1), np.uint8)}
    with pytest.raises(ValueError, match=message):
        ch.CodeSet(**{"ids": ["a", "b"], "codes": codes, "labels": None, "n_bits": 8, **changes})


def test_a_file_is_read_in_parts_that_join_to_the_whole(tmp_path):
    codes = make(n=11)
    codes.save(tmp_path / "c.parquet")
    parts = list(ch.CodeSet.stream(tmp_path / "c.parquet", rows=4))
    assert [len(part) for part in parts] == [4, 4, 3]
    assert_equal(ch.CodeSet.join(parts), codes)
    codes.take([]).save(tmp_path / "empty.parquet")
    assert sum(len(part) for part in ch.CodeSet.stream(tmp_path / "empty.parquet", rows=4)) == 0
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "c.parquet").read_bytes()[:-9])
    check_refusal("perhaps truncated", list, ch.CodeSet.stream(tmp_path / "cut.parquet", rows=4))


@pytest.mark.parametrize("labelled", [True, False])
def test_no_flipped_bit_gives_other_codes(tmp_path, labelled):
    path, codes = tmp_path / "c.parquet", make(40, labelled=labelled)
    codes.save(path)
    content = path.read_bytes()
    random = np.random.default_rng(0)
    refused = 0
    for offset in random.choice(len(content), 250, replace=False).tolist():
        damaged = bytearray(content)
        damaged[offset] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        for load in (
            ch.CodeSet.load,
            lambda path: ch.CodeSet.join(list(ch.CodeSet.stream(path, 7))),
        ):
            try:
                assert_equal(load(path), codes)
            except InputError:
                refused += 1
    assert refused > 250  # most bits mean something


@given(arrays(bool, st.tuples(st.integers(0, 6), st.integers(1, 200))))
def test_unpack_undoes_pack_for_any_number_of_bits(bits):
    n, k = bits.shape
    packed = ch.codes.pack(bits)
    assert packed.shape == (n, -(-k // 8))
    assert packed.dtype == np.uint8
    np.testing.assert_array_equal(ch.codes.pack(bits.astype(int)), packed)
    np.testing.assert_array_equal(ch.codes.unpack(packed, k), bits)


@given(st.integers(1, 200), st.integers(0, 5), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_distances_count_differing_bits(k, nq, nd, seed):
    random = np.random.default_rng(seed)
    queries, database = random.random((nq, k)) < 0.5, random.random((nd, k)) < 0.5
    expected = (queries[:, None] != database[None]).sum(-1)
    actual = ch.codes.hamming_distances(ch.codes.pack(queries), ch.codes.pack(database))
    np.testing.assert_array_equal(actual, expected)
    assert np.issubdtype(actual.dtype, np.integer)


@pytest.mark.parametrize(
    "as_outputs", [np.array, torch.tensor, partial(torch.tensor, dtype=torch.bfloat16)]
)
def test_zero_counts_as_plus_one_for_arrays_and_tensors(as_outputs):
    bits = ch.codes.binarize(as_outputs([[0.0, -0.0, 1e-30, -1e-30]]))
    assert bits.tolist() == [[True, True, True, False]]


_BYTE = np.zeros((1, 1), np.uint8)


@pytest.mark.parametrize(
    ("says", "call", "arguments"),
    [
        (
            "1 of 2 outputs are NaN, the first in row 1",
            ch.codes.binarize,
            [np.array([[1.0, 2], [np.nan, 1]])],
        ),
        ("codes of 9 bits are", ch.codes.unpack, [_BYTE, 9]),
        ("bits past the 9th are set", ch.codes.unpack, [np.full((1, 2), 255, np.uint8), 9]),
        ("differ in length", ch.codes.hamming_distances, [_BYTE, np.zeros((1, 2), np.uint8)]),
        ("0 and 1", ch.codes.pack, [np.array([[1, -1]])]),
        (r"bits are an \(n, k\) array with k >= 1, not ", ch.codes.pack, [np.array([1, 0])]),
        (
            r"bits are an \(n, k\) array with k >= 1, not ",
            ch.codes.pack,
            [np.zeros((2, 0), bool)],
        ),
        (
            "n_bits is 0; a code has at least 1 bit",
            ch.codes.unpack,
            [np.zeros((1, 0), np.uint8), 0],
        ),
    ],
)
def test_codes_that_do_not_fit_are_refused(says, call, arguments):
    check_refusal(says, call, *arguments, error=ValueError)
