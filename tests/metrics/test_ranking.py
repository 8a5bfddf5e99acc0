"""Every closed form against its definition, all orders of ties, scikit-learn, trec_eval and the
toolboxes of others.
"""

from fractions import Fraction
from itertools import chain
from unittest.mock import patch

import numpy as np
import pytest
import pytrec_eval
import torch
from hypothesis import assume, given, settings, strategies as st
from sklearn.metrics import roc_auc_score

import channelhash as ch
from channelhash.metrics import HammingHistogram, histogram
from channelhash.metrics.conventions import _CONVENTIONS, convention_scores
from channelhash.metrics.tied_orders import harmonic_difference
from metrics import ranking_equations as literal
from metrics.test_histogram import drawn_pairs
from refusals import check_refusal

GROUPS = st.lists(st.lists(st.booleans(), max_size=4), min_size=1, max_size=3).filter(
    lambda of: any(map(any, of))
)
COUNTS = st.lists(st.tuples(st.integers(0, 60), st.floats(0, 1)), min_size=1, max_size=12).map(
    lambda pairs: ([n for n, _ in pairs], [round(n * share) for n, share in pairs])
)

# Figure map:retrievalsequences of the paper: three orders of one set of groups.
SEQUENCES = {
    0.830: [[True, True, False], [True, False, False], [True, False]],
    0.542: [[False, True, True], [False, False, True], [False, True]],
    0.710: [[True, False, True], [False, True, False], [True, False]],
}


@pytest.mark.parametrize(("printed", "groups"), SEQUENCES.items())
def test_the_papers_worked_example(printed, groups):
    distances = np.repeat(range(3), [len(group) for group in groups])
    in_order = np.concatenate(groups)
    assert ch.metrics.average_precision_in_order(distances, in_order) == pytest.approx(
        printed, abs=5e-4
    )
    assert HammingHistogram(*literal.histograms(groups)).mean_average_precision() == pytest.approx(
        0.691, abs=5e-4
    )


@settings(max_examples=40)
@given(GROUPS, st.integers(1, 13))
def test_figures_are_means_over_all_orders_of_ties_and_the_bounds_are_the_ends(groups, z):
    hist, orders = HammingHistogram(*literal.histograms(groups)), list(literal.orders(groups))
    values = [literal.average_precision(order) for order in orders]
    assert hist.map_bounds() == pytest.approx((min(values), max(values)), abs=1e-12)
    assert hist.mean_average_precision() == pytest.approx(np.mean(values), abs=1e-12)
    for figure, expected in (
        (hist.map_at(z), [literal.average_precision(order, z) for order in orders]),
        (hist.precision_at(z), [np.mean(order[:z]) for order in orders]),
        (hist.ndcg(), [literal.ndcg(order) for order in orders]),
    ):
        assert figure == pytest.approx(np.mean(expected), abs=1e-12)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_ap_in_order_keeps_the_order_given_within_ties(items):
    distances, relevant = (np.array(column) for column in zip(*items, strict=True))
    assume(relevant.any())
    ranked = [hit for _, hit in sorted(items, key=lambda item: item[0])]  # a stable sort
    expected = pytest.approx(literal.average_precision(ranked), abs=1e-12)
    assert ch.metrics.average_precision_in_order(distances, relevant) == expected


@settings(max_examples=60)
@given(st.lists(GROUPS, min_size=1, max_size=4), st.integers(0, 4))
def test_lookups_within_a_radius_and_the_curve_are_those_of_the_items_found(queries, radius):
    """No order of ties matters: one of them stands for all."""
    width = max(len(groups) for groups in queries)
    queries = [groups + [[]] * (width - len(groups)) for groups in queries]
    total, relevant = (
        np.concatenate(parts) for parts in zip(*map(literal.histograms, queries), strict=True)
    )
    hist = HammingHistogram(total, relevant)
    items = [
        (list(chain(*groups)), [d for d, group in enumerate(groups) for _ in group])
        for groups in queries
    ]
    expected = np.mean(
        [literal.lookup(ranking, distances, radius) for ranking, distances in items], axis=0
    )
    assert hist.within_radius(radius) == pytest.approx(expected)
    if radius < width:
        curves = hist.by_radius()
        assert (
            curves.precision[radius],
            curves.recall[radius],
            curves.empty[radius],
        ) == pytest.approx(expected)
        curve = hist.precision_recall_curve()
        together = [list(chain(*parts)) for parts in zip(*items, strict=True)]
        precision, recall, empty = literal.lookup(*together, radius)
        assert curve.recall[radius] == pytest.approx(recall)
        assert (
            np.isnan(curve.precision[radius])
            if empty
            else curve.precision[radius] == pytest.approx(precision)
        )


@pytest.mark.parametrize("z", [1, 30, 31, 50, 250, 400, 431, 600, 193_734])
def test_figures_of_large_groups_are_exact_whether_or_not_a_cut_parts_them(z):
    # as many as NUS-WIDE has
    n, n_plus = ([30, 0, 400, 900, 50_000, 142_404], [12, 0, 90, 850, 30_000, 10_000])
    hist = HammingHistogram(np.array([n]), np.array([n_plus]))
    assert hist.map_at(z) == pytest.approx(
        literal.expected_average_precision_at(n, n_plus, z), rel=1e-11
    )
    if z == sum(n):
        assert hist.mean_average_precision() == pytest.approx(hist.map_at(z), rel=1e-11)


def scores_of(counts) -> tuple[np.ndarray, np.ndarray]:
    """The database of one query as scikit-learn wants it: truth and score of every item."""
    truth, score = [], []
    for d, (n, r) in enumerate(zip(*counts, strict=True)):
        truth += [True] * r + [False] * (n - r)
        score += [-d] * n
    return np.array(truth), np.array(score, dtype=float)


@given(st.lists(COUNTS, min_size=1, max_size=4))
def test_roc_auc_is_that_of_scikit_learn(queries):
    width = max(len(n) for n, _ in queries)
    queries = [([*n, *[0] * (width - len(n))], [*r, *[0] * (width - len(r))]) for n, r in queries]
    hist = HammingHistogram(np.array([n for n, _ in queries]), np.array([r for _, r in queries]))
    truth, score = (
        np.concatenate(parts) for parts in zip(*[scores_of(q) for q in queries], strict=True)
    )
    assume(0 < truth.sum() < len(truth))
    assert hist.roc_auc("micro", every_query=True) == pytest.approx(
        roc_auc_score(truth, score), abs=1e-12
    )
    counted = [scores_of(q) for q in queries if sum(q[1])]
    truth, score = (np.concatenate(parts) for parts in zip(*counted, strict=True))
    if not truth.all():
        assert hist.roc_auc("micro") == pytest.approx(roc_auc_score(truth, score), abs=1e-12)
    each = [scores_of(q) for q in queries if 0 < sum(q[1]) < sum(q[0])]
    if each:
        expected = np.mean([roc_auc_score(*pair) for pair in each])
        assert hist.roc_auc("macro") == pytest.approx(expected, abs=1e-12)
    else:
        check_refusal("needs irrelevant items", hist.roc_auc, "macro", error=ValueError)


@given(st.integers(0, 200), st.integers(0, 200))
def test_harmonic_differences_are_exact(start, count):
    exact = sum((Fraction(1, start + t) for t in range(1, count + 1)), Fraction(0))
    assert harmonic_difference(np.array(start), np.array(count)) == pytest.approx(
        float(exact), rel=1e-14
    )


def test_queries_without_relevant_items_are_left_out_and_counted():
    hist = HammingHistogram(np.array([[1, 1], [1, 1]]), np.array([[1, 0], [0, 0]]))
    assert hist.within_radius(0) == (1.0, 1.0, 0.0)
    assert (hist.chance_level(), hist.precision_at(1), hist.map_at(2), hist.ndcg()) == (
        0.5,
        1.0,
        1.0,
        1.0,
    )
    assert (hist.counted, hist.skipped) == (1, 1)
    assert np.isnan(hist.average_precision()[1])
    assert hist.mean_average_precision() == 1.0
    # Pairs of query 1 at radius 0: 1 of 2; without them precision within radius 0 is 1.
    assert (hist.roc_auc(), hist.roc_auc(every_query=True)) == (1.0, pytest.approx(5 / 6))
    assert hist.precision_recall_curve().precision.tolist() == [1.0, 0.5]
    nothing = HammingHistogram(np.array([[1, 1]]), np.array([[0, 0]]))
    for figure in (
        nothing.mean_average_precision,
        nothing.map_bounds,
        nothing.ndcg,
        nothing.roc_auc,
        nothing.chance_level,
        nothing.precision_recall_curve,
        lambda: nothing.map_at(1),
        lambda: nothing.precision_at(1),
        lambda: nothing.within_radius(1),
    ):
        check_refusal("none of the 1 queries has a relevant item", figure, error=ValueError)


def test_figures_that_are_not_defined_are_refused():
    hist = HammingHistogram(np.array([[1, 1]]), np.array([[1, 1]]))
    for average in ("micro", "macro"):
        check_refusal("needs irrelevant items as well", hist.roc_auc, average, error=ValueError)
    check_refusal("'micro' or 'macro', not 'mean'", hist.roc_auc, "mean", error=ValueError)
    check_refusal("graded NDCG needs the gains", hist.ndcg_graded, error=ValueError)
    check_refusal("radius is -1", hist.within_radius, -1, error=ValueError)
    for figure in (hist.map_at, hist.precision_at):
        check_refusal("z is 0", figure, 0, error=ValueError)


def test_discounts_are_added_up_across_blocks_of_ranks(monkeypatch):
    hist = HammingHistogram(
        np.array([[4, 0, 5, 2], [1, 7, 1, 2]]), np.array([[1, 0, 3, 1], [0, 2, 1, 1]])
    )
    whole = hist.ndcg()
    monkeypatch.setattr(histogram, "_RANKS", 3)
    assert hist.ndcg() == pytest.approx(whole, rel=1e-12)


LABELS = st.lists(st.booleans(), min_size=4, max_size=4)
# The label sets of a database, as groups of tied items, nearest first.
LABEL_GROUPS = st.lists(st.lists(LABELS, max_size=4), min_size=1, max_size=3)


def histogram_of(wanted: list[bool], groups: list[list[list[bool]]]) -> HammingHistogram:
    """One query, and items whose codes lie as far from its as their group says."""
    items = [(d, labels) for d, group in enumerate(groups) for labels in group]
    k = len(groups)
    codes = ch.codes.pack(np.array([[bit < d for bit in range(k)] for d, _ in items]))
    query = ch.codes.pack(np.zeros((1, k), dtype=bool))
    labels = np.array([labels for _, labels in items])
    return ch.metrics.hamming_histogram(query, codes, np.array([wanted]), labels, n_bits=k)


@settings(max_examples=60)
@given(LABELS, LABEL_GROUPS)
def test_graded_ndcg_is_the_mean_over_all_orders(wanted, groups):
    gains = [
        [literal.label_similarity(np.array(wanted), np.array(labels)) for labels in group]
        for group in groups
    ]
    assume(any(any(group) for group in gains))
    expected = np.mean([literal.ndcg(order) for order in literal.orders(gains)])
    assert histogram_of(wanted, groups).ndcg_graded() == pytest.approx(expected, abs=1e-9)


def without_ties(nd: int, seed: int) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """One query and ``nd`` items, item i at distance ``places[i]``, all different; every item has
    two of six labels, so that its gain is proportional to the number of shared labels, as trec_eval
    wants it."""
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
    binary, graded = (
        trec_eval(np.minimum(grades, 1), places, names),
        trec_eval(grades, places, {"ndcg"}),
    )
    (in_order,) = ch.metrics.average_precisions_in_order(*pairs, hist)
    of_map = [hist.mean_average_precision(), *hist.map_bounds(), in_order]
    assert of_map == pytest.approx([binary["map"]] * 4, abs=1e-9)
    assert (hist.ndcg(), hist.ndcg_graded()) == pytest.approx(
        (binary["ndcg"], graded["ndcg"]), abs=1e-9
    )
    near = hist.within_radius(z - 1)  # the z nearest items lie at distances 0 … z − 1
    figures = (hist.precision_at(z), near.precision, near.recall)
    assert figures == pytest.approx(
        (binary[f"P_{z}"], binary[f"P_{z}"], binary[f"recall_{z}"]), abs=1e-9
    )


# ---- mAP of other toolboxes: their formulas, item by item, against histograms and a radix sort


def first_relevant(rankings: list[np.ndarray], z: int | None) -> float:
    """QinLab: mean over the first z relevant items of hits / rank, in single precision; over all
    queries.
    """
    total = torch.tensor(0.0)
    for hits in rankings:
        ranks = [torch.tensor(float(rank)) for rank, hit in enumerate(hits, start=1) if hit][:z]
        if ranks:
            total += torch.stack([found / rank for found, rank in enumerate(ranks, start=1)]).mean()
    return float(total / len(rankings))


def first_items(rankings: list[np.ndarray], z: int | None) -> float:
    """SCH, HyP²: precision summed at the relevant ones of the first z items, by their number; over
    all queries.
    """
    return float(np.mean([literal.average_precision(ranking.tolist(), z) for ranking in rankings]))


TRANSCRIPTIONS = {"qinlab": first_relevant, "sch": first_items, "hyp2": first_items}


def rankings(pairs, kind: str) -> list[np.ndarray]:
    queries, database, query_labels, labels = pairs
    distances = 0.5 * ch.codes.hamming_distances(queries, database).astype(np.float32)
    related = (query_labels.astype(int) @ labels.T) > 0
    return [row[np.argsort(d, kind=kind)] for d, row in zip(distances, related, strict=True)]


@settings(max_examples=40)
@given(
    st.sampled_from(list(_CONVENTIONS)),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(1, 90),
    st.integers(1, 99),
    st.integers(0, 999),
)
def test_a_stable_sort_gives_the_figure_in_order_and_any_other_one_is_within_the_range(
    name, k, nq, nd, cutoff, seed
):
    """Whatever the cut-off; one past the size of the database is left out."""
    pairs = drawn_pairs(nq, nd, k, 6, seed, 0.15)
    histogram = ch.metrics.hamming_histogram(*pairs, n_bits=k)
    with patch.dict(_CONVENTIONS, {name: _CONVENTIONS[name]._replace(cutoffs=(None, cutoff))}):
        scores, alone = (
            convention_scores(name, histogram, pairs),
            convention_scores(name, histogram),
        )
    assert list(scores) == ["map", f"map@{cutoff}"][: 1 + (cutoff <= nd)]
    for z, score in zip((None, cutoff), scores.values(), strict=False):
        assert score["in_order"] == pytest.approx(
            TRANSCRIPTIONS[name](rankings(pairs, "stable"), z), abs=1e-6
        )
        printed = TRANSCRIPTIONS[name](rankings(pairs, "quicksort"), z)
        for figure in (score["in_order"], printed):
            assert score["lower"] - 1e-6 <= figure <= score["upper"] + 1e-6
    assert [{**score, "in_order": None} for score in scores.values()] == list(alone.values())


@settings(max_examples=40)
@given(GROUPS, st.integers(1, 8), st.booleans())
def test_the_range_is_that_of_all_orders_of_ties(groups, z, of_relevant):
    values = [
        first_relevant([np.array(order)], z) if of_relevant else literal.average_precision(order, z)
        for order in literal.orders(groups)
    ]
    lower, upper = HammingHistogram(*literal.histograms(groups)).average_precision_bounds(
        z, of_relevant
    )
    assert (lower[0], upper[0]) == pytest.approx((min(values), max(values)), abs=1e-6)


def test_queries_without_a_relevant_item_count_in_the_mean_and_an_unknown_convention_is_named():
    codes, labels = np.zeros((2, 1), np.uint8), np.eye(2, dtype=bool)
    pairs = codes, codes[:1], labels, labels[:1]
    histogram = ch.metrics.hamming_histogram(*pairs, n_bits=8)
    assert histogram.mean_average_precision() == 1.0
    assert convention_scores("sch", histogram, pairs)["map"] == {
        "in_order": 0.5,
        "lower": 0.5,
        "upper": 0.5,
    }
    check_refusal(r"convention 'hyp'.*hyp2", convention_scores, "hyp", histogram)
