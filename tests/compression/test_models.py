"""Compressors as models and models as compressors: both make the same bytes."""

import numpy as np
import pytest
from tests.compression.test_compressor import vectors

from channelhash.codes import pack, unpack
from channelhash.compression.compressor import Compressor
from channelhash.compression.models import to_model
from channelhash.models import load_model
from channelhash.models.description import fit_facts, read_description
from channelhash.models.encoders import open_encoder
from channelhash.models.fitted import FittedModel, fit_codes
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
