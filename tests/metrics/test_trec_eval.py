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


@settings(max_examples=50)
@given(st.integers(1, 60), st.integers(0, 2**32 - 1), st.integers(1, 60))
def test_average_precision_at_a_cut_off_divides_by_the_hits_and_not_by_all_relevant_items(nd, seed, z):
    """The definition of eq. (lit:ap): trec_eval's map_cut times all relevant items over those found."""
    pairs, places = without_ties(nd, seed)
    hist = ch.metrics.hamming_histogram(*pairs, n_bits=nd)
    z = min(z, nd)
    related = (pairs[2] & pairs[3]).any(axis=1)
    hits = related[places < z].sum()
    cut = trec_eval(related, places, {f"map_cut.{z}"})[f"map_cut_{z}"]
    expected = cut * related.sum() / hits if hits else 0.0
    assert hist.map_at(z) == pytest.approx(expected, abs=1e-9)


def test_the_order_of_the_database_as_trec_eval_ranks_it():
    """Ties broken by rank in the database, handed to trec_eval as a total order."""
    random = np.random.default_rng(0)
    codes, labels = ch.codes.pack(random.random((80, 6)) < 0.5), random.random((80, 4)) < 0.3
    labels[:5, 0] = True  # every query has a relevant item
    pairs = codes[:5], codes, labels[:5], labels
    hist = ch.metrics.hamming_histogram(*pairs, n_bits=6)
    actual = ch.metrics.average_precisions_in_order(*pairs, hist)
    for q, distances in enumerate(ch.codes.hamming_distances(codes[:5], codes)):
        related = (labels[q] & labels).any(axis=1)
        expected = trec_eval(related, distances * 80 + np.arange(80), {"map"})["map"]
        assert actual[q] == pytest.approx(expected, abs=1e-9)
