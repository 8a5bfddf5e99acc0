"""Compressors in files, and those that `ch.compress` fits to arrays and files."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from safetensors.numpy import save_file
from tests.compression.test_compressor import vectors

import channelhash as ch
from channelhash.compression.compressor import Compressor
from channelhash.data.vectors import Vectors
from refusals import check_refusal

SIMILARITIES = ("cosine", "inner", "euclidean")


@settings(max_examples=15, deadline=None)
@given(
    n_bits=st.integers(1, 24),
    second=st.sampled_from([None, 0.3, 1, 4, 8]),
    similarity=st.sampled_from(SIMILARITIES),
    centred=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_compressor_from_its_file_encodes_and_searches_alike(
    n_bits, second, similarity, centred, seed, tmp_path_factory
):
    rows = vectors(n=60, d=24, seed=seed)
    compressor = Compressor.fit(rows, n_bits, second, similarity, seed=seed, centred=centred)
    path = tmp_path_factory.getbasetemp() / "codes.safetensors"
    compressor.save(path)
    loaded = Compressor.load(path)
    assert (loaded.similarity, loaded.n_bytes) == (similarity, compressor.n_bytes)
    assert (loaded.transform(rows) == compressor.transform(rows)).all()
    questions = vectors(n=4, d=24, seed=seed + 1)
    found = loaded.search(questions, loaded.encode(rows), k=7)
    expected = compressor.search(questions, compressor.encode(rows), k=7)
    assert (found.rows == expected.rows).all()
    assert (found.scores == expected.scores).all()


def test_the_code_stands_before_the_second_stage():
    rows = vectors(n=30)
    compressor = Compressor.fit(rows, 12, second=2)
    codes, second = compressor.encode(rows)
    assert (compressor.transform(rows) == np.hstack([codes, second])).all()
    without = Compressor.fit(rows, 12, second=None)
    assert (without.transform(rows) == without.encode(rows).codes).all()


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "codes.safetensors"
    Compressor.fit(vectors(), 16).save(path)
    return path


def test_a_damaged_file_is_refused_and_so_is_a_missing_one(saved):
    content = bytearray(saved.read_bytes())
    content[-1] ^= 1
    saved.write_bytes(content)
    check_refusal("codes.safetensors: is damaged", Compressor.load, saved)
    saved.write_bytes(content[:-9])
    check_refusal("weights cannot be read", Compressor.load, saved)
    saved.unlink()
    check_refusal("weights cannot be read", Compressor.load, saved)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        (None, "not a compressor that `Compressor.save` wrote; name one, or fit it again"),
        ({"format": "pt"}, "not a compressor"),
        ({"version": "2"}, "of version 2, this program reads 1; update channelhash"),
        ({"centred": "perhaps"}, r"not a compressor .*perhaps.*; save it again"),
        ({"similarity": "angle"}, r"not a compressor .*similarity 'angle'.*; save it again"),
        ({}, r"not a compressor .*it lacks 'mean'.*; save it again"),
    ],
)
def test_a_foreign_file_is_refused(metadata, says, tmp_path):
    own = {"format": "channelhash compressor", "version": "1", "similarity": "cosine"}
    own["centred"] = "no"
    arrays = {"mean": np.zeros(2), "weights": np.eye(2)} if metadata else {"a": np.zeros(1)}
    given_metadata = None if metadata is None else own | metadata
    save_file(arrays, tmp_path / "other.safetensors", given_metadata)
    check_refusal(says, Compressor.load, tmp_path / "other.safetensors")


def test_arrays_files_and_vectors_are_compressed_alike(tmp_path):
    rows = vectors()
    np.save(tmp_path / "vectors.npy", rows.astype(np.float64))
    fitted = Compressor.fit(rows, 16, 2, "inner", seed=3, centred=True)
    expected = fitted.transform(rows)
    for given_vectors in (rows, Vectors.of(rows), tmp_path / "vectors.npy"):
        options = {"similarity": "inner", "seed": 3, "centred": True}
        codes = ch.compress(given_vectors, bits=16, second=2, **options)
        assert (codes.transform(rows) == expected).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bits": 33}, "^bits 33: vectors of 32 numbers have 1 to 32"),
        ({"bits": 8, "second": 9}, "^second 9: a number takes more than 0 to 8 bits"),
    ],
)
def test_refusals_name_the_arguments_of_compress(options, says):
    check_refusal(says, ch.compress, vectors(), **options)


def test_an_array_with_a_number_that_is_not_finite_is_refused():
    rows = vectors()
    rows[3, 5] = np.nan
    check_refusal("vectors: row 3 is not finite", ch.compress, rows, bits=8)
    check_refusal("no such file", ch.compress, "none.npy", bits=8)
