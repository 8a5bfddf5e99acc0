"""Agreement with trec_eval, which breaks ties by a total order: here no two items lie at one distance."""

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

import channelhash as ch


def without_ties(nd: int, seed: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """One query and ``nd`` items, item i at distance ``places[i]``, all different; every item has two of six labels,
    so that its gain is proportional to the number of shared labels, as trec_eval wants it."""
    random = np.random.default_rng(seed)
    places = random.permutation(nd)
    codes = ch.codes.pack(np.arange(nd) < places[:, None])
    labels = np.zeros((nd, 6), dtype=bool)
    for row in labels:
        row[random.choice(6, 2, replace=False)] = True
    wanted = np.array([[True, True, True, False, False, False]])
    labels[0] = [True, True, False, False, False, False]
    return (ch.codes.pack(np.zeros((1, nd), dtype=bool)), codes, wanted, labels), places


def trec_eval(grades: np.ndarray, places: np.ndarray, measures: set[str]) -> dict[str, float]:
    judged = {"q": {str(i): int(grade) for i, grade in enumerate(grades)}}
    ranked = {"q": {str(i): float(-place) for i, place in enumerate(places)}}
    return pytrec_eval.RelevanceEvaluator(judged, measures).evaluate(ranked)["q"]


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_figures_of_a_ranking_without_ties_are_those_of_trec_eval(nd, seed, z):
    pairs, places = without_ties(nd, seed)
    hist = ch.metrics.hamming_histogram(*pairs, n_bits=nd)
    grades = (pairs[2] & pairs[3]).sum(axis=1)
    z = min(z, nd)
    names = {"map", "ndcg", f"P.{z}", f"recall.{z}"}
    binary, graded = trec_eval(np.minimum(grades, 1), places, names), trec_eval(grades, places, {"ndcg"})
    assert hist.mean_average_precision() == pytest.approx(binary["map"], abs=1e-9)
    assert hist.map_bounds() == pytest.approx((binary["map"],) * 2, abs=1e-9)
    in_order = ch.metrics.average_precisions_in_order(*pairs, hist)
    assert in_order[0] == pytest.approx(binary["map"], abs=1e-9)
    assert hist.ndcg() == pytest.approx(binary["ndcg"], abs=1e-9)
    assert hist.ndcg_graded() == pytest.approx(graded["ndcg"], abs=1e-9)
    assert hist.precision_at(z) == pytest.approx(binary[f"P_{z}"], abs=1e-9)
    # The z nearest items lie at distances 0 … z − 1.
    assert hist.within_radius(z - 1).recall == pytest.approx(binary[f"recall_{z}"], abs=1e-9)
    assert hist.within_radius(z - 1).precision == pytest.approx(binary[f"P_{z}"], abs=1e-9)
