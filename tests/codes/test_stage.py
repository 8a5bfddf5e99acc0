"""The second stage against its slow transcription, and its file."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as arrays

from channelhash.codes import binarize, pack
from channelhash.codes.hubs import Bank
from channelhash.codes.quantizer import Quantizer
from channelhash.codes.stage import Stage, unit_parts
from refusals import check_refusal

FINITE = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)
OUTPUTS = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=FINITE
)
D, N_BITS = 12, 5


def vectors(n=60, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32) + 0.3


def outputs_of(values):
    """Outputs of codes, then the vectors."""
    return np.hstack([values @ np.random.default_rng(9).normal(size=(D, N_BITS)), values])


def fitted_stage(similarity="cosine"):
    quantizers = {name: Quantizer.fit(vectors(), 8) for name in ("image", "text")}
    return Stage(N_BITS, quantizers, similarity)


def corrected_stage():
    bank = vectors(n=7, seed=2).astype(np.float16)
    return Stage(D, bank=Bank(bank / np.linalg.norm(bank, axis=1, keepdims=True), 0.2))


def literal_cosine(one, other):
    lengths = np.sqrt(sum(x**2 for x in one)) * np.sqrt(sum(x**2 for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0


@given(OUTPUTS)
def test_a_score_is_the_cosine_in_whichever_row_a_projection_stands(outputs):
    stage = Stage(outputs.shape[1])
    rows = stage.encode("image", outputs)
    assert rows.shape == (len(outputs), stage.n_bytes)
    order = np.arange(37)[::-1] % len(rows)
    for question in outputs.astype(float):
        scores = stage.scores("image", question, rows)
        expected = [literal_cosine(question, row) for row in outputs.astype(float)]
        np.testing.assert_allclose(scores, expected, atol=0.03)
        assert stage.scores("image", question, rows[order]).tolist() == scores[order].tolist()


@pytest.mark.parametrize("similarity", ["cosine", "inner", "euclidean"])
def test_vectors_behind_the_code_are_compared_as_the_encoder_means_it(similarity):
    stage = fitted_stage(similarity)
    assert stage.n_outputs == N_BITS + D
    rows = stage.encode("text", outputs_of(vectors()))
    for question in vectors(n=5, seed=1):
        scores = stage.scores("text", outputs_of(question[None])[0], rows)
        for score, vector in zip(scores, vectors(), strict=True):
            expected = {
                "cosine": literal_cosine(question, vector),
                "inner": question @ vector,
                "euclidean": -((question - vector) ** 2).sum(),
            }[similarity]
            assert score == pytest.approx(
                expected, abs=0.02 * float(np.linalg.norm(question) * np.linalg.norm(vector))
            )


def test_stored_items_ask_with_their_bits_and_vectors():
    stage = fitted_stage()
    outputs = outputs_of(vectors())
    codes = pack(binarize(outputs[:, :N_BITS]))
    asked = stage.outputs("image", codes, stage.encode("image", outputs))
    np.testing.assert_array_equal(pack(binarize(asked[:, :N_BITS])), codes)
    assert set(np.abs(asked[:, :N_BITS]).ravel().tolist()) == {1.0}
    units = vectors() / np.linalg.norm(vectors(), axis=1, keepdims=True)
    np.testing.assert_allclose(asked[:, N_BITS:], units, atol=0.03)


def test_texts_find_images_by_less_the_nearer_these_are_to_a_bank_of_texts():
    stage = corrected_stage()
    rows = stage.encode("image", vectors())
    for question in vectors(n=3, seed=1):
        scores = {asked: stage.scores("image", question, rows, asked) for asked in ("text", "")}
        taken = scores[""] - scores["text"]
        for row, image in enumerate(vectors()):
            assert scores[""][row] == pytest.approx(literal_cosine(question, image), abs=0.02)
            cosines = [literal_cosine(text, image) for text in stage.bank.vectors.astype(float)]
            nearness = 0.2 * math.log(sum(math.exp(cosine / 0.2) for cosine in cosines) / 7)
            assert taken[row] == pytest.approx(0.5 * nearness, abs=2e-3)
        texts = stage.encode("text", vectors())
        plain = Stage(D).scores("text", question, Stage(D).encode("text", vectors()))
        assert stage.scores("text", question, texts, "text").tolist() == plain.tolist()


def test_an_image_has_the_same_row_whatever_is_rounded_with_it():
    stage = corrected_stage()
    rows = [stage.encode("image", vector[None])[0] for vector in vectors()]
    assert np.array_equal(stage.encode("image", vectors()), rows)


@pytest.mark.parametrize(
    "stage",
    [Stage(N_BITS), fitted_stage("inner"), corrected_stage()],
    ids=["plain", "fitted", "corrected"],
)
def test_a_stage_comes_back_from_its_file_bit_by_bit(stage):
    again = Stage.from_bytes(stage.to_bytes())
    assert again.fingerprint == stage.fingerprint
    outputs = outputs_of(vectors())[:, : stage.n_outputs]
    rows = stage.encode("image", outputs)
    np.testing.assert_array_equal(again.encode("image", outputs), rows)
    scores = stage.scores("image", outputs[0], rows, "text")
    np.testing.assert_array_equal(again.scores("image", outputs[0], rows, "text"), scores)
    items = again.outputs("image", pack(binarize(outputs[:, : stage.n_bits])), rows)
    np.testing.assert_allclose(
        stage.vectors(items), stage.vectors(outputs), atol=0.03 * float(np.abs(outputs).max())
    )


def test_stages_that_differ_in_anything_have_other_fingerprints():
    quantizer = Quantizer.fit(vectors(), 8)
    stages = [
        Stage(5),
        Stage(6),
        Stage(5, similarity="inner"),
        Stage(5, {"image": quantizer}),
        Stage(5, {"text": quantizer}),
        Stage(5, {"image": Quantizer.fit(vectors(), 4)}),
        Stage(5, bank=Bank(np.eye(5, dtype=np.float16), 0.1)),
        Stage(5, bank=Bank(np.eye(5, dtype=np.float16), 0.2)),
    ]
    assert len({stage.fingerprint for stage in stages}) == len(stages)


def test_a_modality_without_a_quantizer_is_refused():
    rows = outputs_of(vectors(n=1))
    check_refusal("audio projections: .* image and text", fitted_stage().encode, "audio", rows)


def test_codes_and_vectors_get_unit_length_apart():
    parts = unit_parts(np.array([[3.0, 4.0, 0.0, -5.0], [0.0, 0.0, 1.0, 0.0]]), n_bits=2)
    np.testing.assert_allclose(parts, [[0.6, 0.8, 0.0, -1.0], [0.0, 0.0, 1.0, 0.0]], atol=1e-7)
