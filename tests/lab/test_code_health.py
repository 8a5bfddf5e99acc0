"""Bits, buckets and channels against loops over items and pairs."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import channelhash as ch
from channelhash.channels import dsch_bounds, label_similarity, sch_bounds
from channelhash.lab.report import code_health
from refusals import check_refusal

KINDS = ["dissimilar", "partly_similar", "identical_labels"]


def collection(n: int, k: int, c: int, seed: int) -> ch.CodeSet:
    random = np.random.default_rng(seed)
    codes = {m: ch.codes.pack(random.random((n, k)) < 0.6) for m in ("image", "text")}
    return ch.CodeSet([str(i) for i in range(n)], codes, random.random((n, c)) < 0.4, k)


def channels_literally(codes: ch.CodeSet, first: str, second: str, bounds) -> dict[str, dict]:
    """Over all pairs, one by one."""
    similarity = label_similarity(torch.from_numpy(codes.labels).double())
    lower, upper = (end.numpy() for end in bounds(similarity))
    distances = ch.codes.hamming_distances(codes.codes[first], codes.codes[second])
    found = {kind: {"at": Counter(), "inside": 0, "below": 0, "above": 0} for kind in KINDS}
    n = len(codes)
    for i in range(n):
        for j in range(n) if first != second else range(i + 1, n):
            s, d = similarity[i, j].item(), distances[i, j]
            kind = found[KINDS[0] if s == 0 else KINDS[2] if s == 1 else KINDS[1]]
            kind["at"][int(d)] += 1
            side = (
                "below"
                if d < lower[i, j] - 1e-9
                else "above"
                if d > upper[i, j] + 1e-9
                else "inside"
            )
            kind[side] += 1
    return found


@settings(max_examples=40)
@given(
    st.integers(1, 25),
    st.integers(1, 70),
    st.integers(0, 6),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_pairs_lie_against_their_channels_as_a_loop_over_them_finds(n, k, c, seed, fixed_width):
    codes = collection(n, k, c, seed)
    bounds = (lambda s: sch_bounds(s, k)) if fixed_width else (lambda s: dsch_bounds(s, k))
    health = code_health.code_report(codes, bounds if fixed_width else None)["channels"]
    assert list(health) == ["image-image", "image-text", "text-text"]
    for pair, kinds in health.items():
        expected = channels_literally(codes, *pair.split("-"), bounds)
        assert list(kinds) == KINDS
        for kind, report in kinds.items():
            assert report["distances"] == [expected[kind]["at"][d] for d in range(k + 1)]
            assert report["pairs"] == sum(report["distances"])
            for side in ("inside", "below", "above"):
                if report["pairs"]:
                    assert report[side] == expected[kind][side] / report["pairs"]
                else:
                    assert report[side] is None
    n_pairs = {
        pair: sum(report["pairs"] for report in kinds.values()) for pair, kinds in health.items()
    }
    assert n_pairs == {
        "image-image": n * (n - 1) // 2,
        "image-text": n * n,
        "text-text": n * (n - 1) // 2,
    }


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_bits_and_buckets_are_those_of_the_unpacked_codes(n, k, seed):
    random = np.random.default_rng(seed)
    bits = random.random((n, k)) < random.choice([0, 0.1, 0.5, 1], k)
    health = code_health.bit_health(ch.codes.pack(bits), k)
    share = bits.mean(axis=0)
    assert health["ones"] == pytest.approx(share.tolist())
    for p, entropy in zip(share, health["entropy"], strict=True):
        expected = 0 if p in (0, 1) else -p * np.log2(p) - (1 - p) * np.log2(1 - p)
        assert entropy == pytest.approx(expected, abs=1e-12)
    varied = np.flatnonzero((share > 0) & (share < 1))
    assert health["constant"] == k - len(varied)
    pairs = [
        abs(np.corrcoef(bits[:, a], bits[:, b])[0, 1]) for a in varied for b in varied if a < b
    ]
    correlations = (np.mean(pairs), np.max(pairs)) if pairs else (None, None)
    assert (health["correlation_mean"], health["correlation_max"]) == pytest.approx(
        correlations, abs=1e-9
    )
    buckets = Counter(map(tuple, bits))
    assert health["distinct"] == len(buckets) / n
    assert health["alone"] == sum(size == 1 for size in buckets.values()) / n
    assert health["largest_bucket"] == max(buckets.values())


def test_a_bit_its_copy_its_opposite_and_a_constant_one_over_blocks_of_items(monkeypatch):
    monkeypatch.setattr(code_health, "_ROWS", 7)
    bit = np.random.default_rng(0).random(50) < 0.3
    health = code_health.bit_health(
        ch.codes.pack(np.stack([bit, bit, ~bit, np.ones(50, dtype=bool)], axis=1)), 4
    )
    assert health["ones"] == pytest.approx([bit.mean(), bit.mean(), 1 - bit.mean(), 1])
    assert (
        health["constant"],
        health["correlation_mean"],
        health["correlation_max"],
    ) == pytest.approx((1, 1, 1))


def test_codes_that_cannot_be_judged_are_refused():
    codes = collection(3, 8, 2, 0)
    unlabelled = ch.CodeSet(codes.ids, codes.codes, None, 8)
    check_refusal("have no labels", code_health.code_report, unlabelled, error=ValueError)
    check_refusal("no codes to judge", code_health.code_report, codes.take([]), error=ValueError)
    check_refusal(
        "codes of 9 bits are", code_health.bit_health, codes.codes["image"], 9, error=ValueError
    )
