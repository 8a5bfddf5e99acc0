"""Correlations of bits with labels against NumPy's, and which of them are called clear."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channelhash.codes import pack
from channelhash.codes.code_set import CodeSet
from channelhash.explanation.api import Bit, BitLabels, Explanation, Side, _bit_label_correlation
from channelhash.search import open_store

N, K = 400, 11


def coded(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Bits of which the first is a label's, the second its opposite, the third constant, the others chance."""
    random = np.random.default_rng(seed)
    labels = random.random((N, 4)) < (0.3, 0.1, 0.5, 0.02)
    bits = random.random((N, K)) < 0.4
    bits[:, 0], bits[:, 1], bits[:, 2] = labels[:, 0], ~labels[:, 1], True
    return bits, labels


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_the_correlation_is_numpys(seed):
    random = np.random.default_rng(seed)
    bits, labels = random.random((int(random.integers(2, 30)), 5)) < 0.4, None
    labels = random.random((len(bits), 3)) < 0.4
    found = _bit_label_correlation(pack(bits), 5, labels)
    for j, label in np.ndindex(5, 3):
        if len({*bits[:, j].tolist()}) == 1 or len({*labels[:, label].tolist()}) == 1:
            assert math.isnan(found[j, label])
        else:
            assert found[j, label] == pytest.approx(np.corrcoef(bits[:, j], labels[:, label])[0, 1], abs=1e-9)


def test_many_rows_are_counted_in_blocks(monkeypatch):
    bits, labels = coded()
    whole = _bit_label_correlation(pack(bits), K, labels)
    monkeypatch.setattr("channelhash.explanation.api._ROWS", 7)
    np.testing.assert_array_equal(_bit_label_correlation(pack(bits), K, labels), whole)


def test_a_meaning_has_to_be_clear_in_both_modalities_with_the_same_sign():
    image = np.array([[0.6, -0.5, 0.4, np.nan], [0.1, 0.9, -0.6, 0.0]])
    text = np.array([[0.3, 0.5, 0.0, 0.7], [0.9, 0.8, -0.3, 0.0]])
    bit_labels = BitLabels(("a", "b", "c", "d"), {"image": image, "text": text}, {"image": 10_000, "text": 10_000})
    np.testing.assert_array_equal(bit_labels.clear(("image", "text")), [[0.3, 0, 0, 0], [0, 0.8, -0.3, 0]])
    np.testing.assert_array_equal(bit_labels.clear(("text", "text")), np.nan_to_num(text))


def test_agreeing_bits_speak_for_labels_by_their_values_and_shares():
    first, second = np.array([1.0, -2.0, 0.5], np.float32), np.array([0.5, -1.0, -3.0], np.float32)
    clear = np.array([[0.5, -0.3], [-0.4, 0.2], [0.9, 0.9]])
    bits = Bit.compare(first, second)
    sides = Side("image", "a", first), Side("text", "b", second)
    agreeing = [(j, bit) for j, bit in enumerate(bits) if bit.agrees]
    total = sum(bit.share for _, bit in agreeing)
    expected = sum((1 if bit.values[0] else -1) * bit.share / total * clear[j] for j, bit in agreeing)
    np.testing.assert_allclose(Explanation(sides, bits, ("a", "b"), clear).evidence, expected)
    assert expected[0] > 0 > expected[1]
    assert not Explanation(sides, Bit.compare(first, -first), ("a", "b"), clear).evidence.any()


def test_of_a_store_labelled_items_are_counted_and_of_a_run_and_a_file_all(tmp_path):
    bits, labels = coded()
    both = {"image": pack(bits), "text": pack(bits[:, ::-1])}
    codes = CodeSet([str(i) for i in range(N)], both, labels, K, tuple("abcd"), model="a model")
    run = tmp_path / "run"
    (run / "codes").mkdir(parents=True)
    (run / "config.yaml").write_text("data:\nmodel:\nloss:\ntrain:\n")  # which makes it a run
    for path in (run / "codes" / "test-retrieval.parquet", tmp_path / "codes.parquet"):
        codes.save(path)
    whole = {name: _bit_label_correlation(packed, K, codes.labels) for name, packed in codes.codes.items()}
    for place in ("codes.parquet", "run"):
        found = BitLabels.load(open_store(tmp_path / place))
        np.testing.assert_array_equal(found.correlations["image"], whole["image"])
    store = open_store(tmp_path / "store", K)
    store.add(list(codes.ids), codes.codes, metadata=[{"labels": codes.names_of(i)} for i in range(N)])
    store.add(["unlabelled"], codes.codes["image"][:1], "image", [{"year": 1}])
    counted = BitLabels.load(store)
    assert counted.rows == {"image": N, "text": N}
    np.testing.assert_allclose(counted.correlations["text"], whole["text"])


def test_without_labels_there_are_no_meanings(tmp_path):
    store = open_store(tmp_path / "store", 8)
    assert BitLabels.load(store) is None
    store.add(["a"], pack(np.ones((1, 8), bool)), "image")
    assert BitLabels.load(store) is None


@pytest.mark.parametrize("seed", range(3))
def test_strengths_and_shares_are_what_they_say(seed):
    first, second = np.random.default_rng(seed).normal(size=(2, 13)).astype(np.float32)
    size = {0: math.sqrt(sum(float(x) ** 2 for x in first) / 13), 1: math.sqrt(sum(float(x) ** 2 for x in second) / 13)}
    for j, bit in enumerate(Bit.compare(first, second)):
        signs = first[j] >= 0, second[j] >= 0
        assert (bit.number, bit.values, bit.agrees) == (j + 1, signs, signs[0] == signs[1])
        assert bit.strengths == pytest.approx((abs(first[j]) / size[0], abs(second[j]) / size[1]))
        assert bit.share == pytest.approx(float(first[j]) * float(second[j]) / (13 * size[0] * size[1]))
        assert (bit.share > 0) == bit.agrees


def test_of_bare_bits_each_counts_the_same_and_none_has_a_strength():
    first = np.array([1, -1, 1, 1], dtype=np.float32)
    second = np.array([0.1, -2, -0.3, 0.4], dtype=np.float32)
    bits = Bit.compare(first, second, (False, True))
    assert [bit.strengths[0] for bit in bits] == [None] * 4
    assert all(bit.strengths[1] is not None for bit in bits)
    assert {abs(bit.share) for bit in Bit.compare(first, -first, (False, False))} == {0.25}


def test_outputs_without_direction_have_no_share():
    bits = Bit.compare(np.zeros(3, np.float32), np.ones(3, np.float32))
    assert [(bit.share, bit.strengths[0], bit.agrees) for bit in bits] == [(0.0, 0.0, True)] * 3
