"""Compressors as models and models as compressors: both make the same bytes."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.compression.test_compressor import vectors

import channelhash as ch
from channelhash.codes import pack, unpack
from channelhash.compression.compressor import Compressor
from channelhash.compression.models import to_model
from channelhash.data.vectors import Vectors
from channelhash.indexing.fit import NewCodes
from channelhash.indexing.stores import create_store, read_again
from channelhash.models import load_model
from channelhash.models.description import fit_facts, read_description
from channelhash.models.encoders import open_encoder
from channelhash.models.fitted import FittedModel, fit_codes
from channelhash.search import Address
from refusals import check_refusal

SIMILARITIES = ("cosine", "inner", "euclidean")
#: Bits a number of the second stage, and whether it is centred.
SECOND = [(None, False), (0.5, False), (4, False), (4, True)]


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("second", "centred"), SECOND)
def test_a_model_of_a_compressor_makes_its_bytes(similarity, second, centred, tmp_path):
    rows = vectors(n=300)
    rows[7] = 0
    compressor = Compressor.fit(rows, 20, second, similarity, centred=centred)
    to_model(compressor).save_pretrained(tmp_path)
    model = load_model(tmp_path)
    outputs = model.outputs("vector", rows)
    codes, stored = compressor.encode(rows)
    assert (pack(outputs[:, :20] >= 0) == codes).all()
    assert (model.encode("vector", rows) == codes).all()
    if second:
        assert (model.stage.encode("vector", outputs) == stored).all()
        question = vectors(n=1, seed=1)
        scores = model.stage.scores("vector", model.outputs("vector", question)[0], stored)
        found = compressor.search(question, compressor.encode(rows), k=10, first=300)
        np.testing.assert_allclose(np.sort(scores)[::-1][:10], found.scores[0], rtol=1e-6)
    again = Compressor.of_model(model, "vector")
    assert (again.transform(rows) == compressor.transform(rows)).all()
    facts = fit_facts(read_description(tmp_path / "config.json"))
    assert facts == {"encoder": "features", "fitted": "a compressor of vectors"}


def fitted(*modalities, **options) -> tuple[FittedModel, np.ndarray]:
    """A model that was fitted to rows of features, and these."""
    rows = vectors(n=300)
    widths = dict.fromkeys(modalities, rows.shape[1])
    features = dict.fromkeys(modalities, rows)
    return fit_codes(open_encoder("features", widths), features, 16, **options), rows


@pytest.mark.parametrize("method", ["itq", "sign"])
def test_a_compressor_of_a_model_makes_its_bytes(method):
    model, rows = fitted("image", codes=method)
    compressor = Compressor.of_model(model, "image")
    codes, stored = compressor.encode(rows)
    assert (codes == model.encode("image", rows)).all()
    assert (stored == model.stage.encode("image", model.outputs("image", rows))).all()


@pytest.mark.parametrize("modality", ["image", "text"])
def test_codes_of_two_spaces_have_no_second_stage(modality):
    model, rows = fitted("image", "text", codes="cca-itq")
    compressor = Compressor.of_model(model, modality)
    codes, stored = compressor.encode(rows)
    assert stored is None
    assert unpack(codes, 16).any()
    assert (codes == model.encode(modality, rows)).all()


def test_a_model_and_a_compressor_are_fitted_alike():
    rows = vectors(n=300)
    model = fit_codes(open_encoder("features", {"vector": 32}), {"vector": rows}, 16, "itq", seed=3)
    compressor = Compressor.fit(rows, 16, None, seed=3)
    assert (model.encode("vector", rows) == compressor.encode(rows).codes).all()


def test_a_model_without_such_a_map_is_refused():
    model, _ = fitted("image", codes="itq")
    check_refusal("text: no map of it was fitted", Compressor.of_model, model, "text")
    own = FittedModel.from_encoder(open_encoder("features", {"image": 8}))
    check_refusal("image: no map of it was fitted", Compressor.of_model, own, "image")
    raw = FittedModel(
        model.encoder, model.architecture | {"unit": False}, model.maps, model.stage.quantizers
    )
    says = "image: the map takes features as they are"
    check_refusal(says, Compressor.of_model, raw, "image")


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
    path = tmp_path_factory.getbasetemp() / "codes"
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
    Compressor.fit(vectors(), 16).save(tmp_path / "codes")
    return tmp_path / "codes"


def test_a_damaged_compressor_is_refused_and_so_is_a_missing_one(saved):
    file = saved / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    check_refusal("model.safetensors: is damaged", Compressor.load, saved)
    check_refusal("no such folder", Compressor.load, saved / "none")


def test_a_saved_compressor_makes_the_codes_of_a_store(saved, tmp_path):
    np.save(tmp_path / "vectors.npy", vectors())
    address = Address.parse(tmp_path / "a.store")
    create_store(address, NewCodes(str(saved)), read_again(address, tmp_path / "vectors.npy"))
    compressor = Compressor.load(saved)
    with ch.open_store(tmp_path / "a.store") as store:
        ids, codes = store.codes("vector")
    rows = [int(name) for name in ids]
    np.testing.assert_array_equal(codes, compressor.encode(vectors()).codes[rows])
    same = Compressor.load(tmp_path / "a.store")
    np.testing.assert_array_equal(same.transform(vectors()), compressor.transform(vectors()))


def test_a_model_of_images_and_texts_is_no_compressor(tmp_path):
    features = {"image": vectors(n=120), "text": vectors(n=120, seed=1)}
    widths = {name: values.shape[1] for name, values in features.items()}
    fit_codes(open_encoder("features", widths), features, 8).save_pretrained(tmp_path / "m")
    check_refusal("holds no compressor of vectors", Compressor.load, tmp_path / "m")


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
