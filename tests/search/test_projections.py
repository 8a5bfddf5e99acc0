"""Projections: outputs as int8, and the score of a question against them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from channelhash.codes import binarize, pack
from channelhash.errors import InputError
from channelhash.search.rank import check_projections, cosines, quantize

FINITE = st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False)
OUTPUTS = arrays.arrays(np.float64, st.tuples(st.integers(0, 4), st.integers(1, 9)), elements=FINITE)


def literal_cosine(outputs: np.ndarray, row: np.ndarray) -> float:
    lengths = np.sqrt(sum(float(x) ** 2 for x in outputs)) * np.sqrt(sum(float(x) ** 2 for x in row))
    return sum(float(x) * float(y) for x, y in zip(outputs, row, strict=True)) / lengths if lengths else 0.0


@given(OUTPUTS)
def test_projections_have_the_signs_of_the_outputs_and_their_direction(outputs):
    kept = quantize(outputs)
    assert (kept.dtype, kept.shape) == (np.int8, outputs.shape)
    np.testing.assert_array_equal(pack(binarize(kept)), pack(binarize(outputs)))
    np.testing.assert_array_equal(quantize(kept), kept)
    for row, values in zip(kept, outputs, strict=True):
        largest = np.abs(values).max()
        assert np.abs(row).max() == (127 if largest else 0)
        if largest:
            assert (np.abs(row - values / largest * 127) <= np.where(values < 0, 1, 0.5) + 1e-9).all()


@given(OUTPUTS)
def test_a_score_is_the_cosine_in_whichever_row_a_projection_stands(outputs):
    kept = quantize(outputs)
    for question in outputs:
        scores = cosines(question, kept)
        np.testing.assert_allclose(scores, [literal_cosine(question, row) for row in kept], atol=1e-6)
        rows = np.arange(37)[::-1] % len(kept)
        assert cosines(question, kept[rows]).tolist() == scores[rows].tolist()


def test_only_projections_of_the_codes_are_taken():
    outputs = np.array([[0.5, -2.0], [1.0, 0.0]], np.float32)
    codes = {"image": pack(binarize(outputs)), "text": pack(binarize(-outputs))}
    kept = check_projections({"text": -outputs, "image": outputs}, codes, 2)
    assert {modality: rows.tolist() for modality, rows in kept.items()} == {
        "image": [[32, -127], [127, 0]],
        "text": [[-32, 127], [-127, 0]],
    }
    assert check_projections(None, codes, 2) is None
    for given_instead, message in [
        ({"image": outputs}, "projections: of image, but codes of image and text"),
        ({"image": outputs, "text": outputs}, "text projections: are not the outputs of which"),
        ({"image": outputs, "text": -outputs[:1]}, "text projections: are not the outputs"),
        ({"image": outputs[:, :1], "text": -outputs}, r"image projections: \(n, 2\) numbers are expected"),
        ({"image": np.full((2, 2), np.inf), "text": -outputs}, "image projections: row 0 is not finite"),
        ({"image": [["a", "b"]], "text": -outputs}, "image projections: .* numbers are expected"),
    ]:
        with pytest.raises(InputError, match=message):
            check_projections(given_instead, codes, 2)
