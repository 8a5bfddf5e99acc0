"""Re-ranking against a literal transcription of its formula."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import channelhash as ch
from channelhash.search.rank import asymmetric_distances, rerank

NUMBERS = st.integers(0, 2**31)


def literally(outputs: np.ndarray, bits: np.ndarray) -> list[float]:
    """A(u, b), the sum of |u_j| over the bits in which b is not the sign of u."""
    signs = [1 if u >= 0 else -1 for u in outputs]
    return [
        sum(abs(u) for u, sign, bit in zip(outputs, signs, row, strict=True) if (1 if bit else -1) != sign)
        for row in bits
    ]


def draw(k: int, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Outputs, some of them 0, and bits of which many rows are the same."""
    random = np.random.default_rng(seed)
    outputs = random.normal(size=k).astype(np.float32) * (random.random(k) > 0.1)
    return outputs, (random.random((5, k)) < 0.5)[random.integers(0, 5, n)]


@given(st.integers(1, 70), st.integers(1, 40), NUMBERS)
def test_the_distance_is_its_formula_and_orders_as_euclid_does(k, n, seed):
    outputs, bits = draw(k, n, seed)
    found = asymmetric_distances(outputs, ch.codes.pack(bits))
    np.testing.assert_allclose(found, literally(outputs.astype(float), bits), atol=1e-9)
    signs = np.where(bits, 1.0, -1.0)
    squares = ((outputs.astype(float) - signs) ** 2).sum(axis=1)
    np.testing.assert_allclose(squares, 4 * found + ((np.abs(outputs.astype(float)) - 1) ** 2).sum(), atol=1e-6)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 50), NUMBERS)
def test_the_first_answers_are_sorted_and_the_others_stay(k, n, first, seed):
    outputs, bits = draw(k, n, seed)
    packed = ch.codes.pack(bits)
    own = ch.codes.pack(ch.codes.binarize(outputs[None]))
    hamming = ch.codes.hamming_distances(own, packed)[0]
    answers = np.argsort(hamming, kind="stable")  # row numbers stand for ids
    order = rerank(outputs, packed[answers], first)
    distances = asymmetric_distances(outputs, packed)
    expected = sorted(answers[:first], key=lambda row: (distances[row], hamming[row], row))
    assert answers[order].tolist() == [*expected, *answers[first:].tolist()]


def test_equal_codes_tie_exactly_wherever_they_stand():
    random = np.random.default_rng(0)
    outputs, code = random.normal(size=61), random.random((1, 61)) < 0.5
    assert len(set(asymmetric_distances(outputs, ch.codes.pack(np.repeat(code, 1001, axis=0))).tolist())) == 1
