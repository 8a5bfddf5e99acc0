"""mAP of other toolboxes: their formulas, item by item, against histograms and a radix sort."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import channelhash as ch
from channelhash.metrics.conventions import _CONVENTIONS, _average_precisions_cut, _Convention, convention_scores
from metrics import ranking_equations as literal
from metrics.test_histogram import drawn_pairs
from metrics.test_ranking import GROUPS
from refusals import check_refusal


def first_relevant(rankings: list[np.ndarray], z: int | None) -> float:
    """QinLab: mean over the first z relevant items of hits / rank, in single precision; over all queries."""
    total = torch.tensor(0.0)
    for hits in rankings:
        ranks = [torch.tensor(float(rank)) for rank, hit in enumerate(hits, start=1) if hit][:z]
        if ranks:
            total += torch.stack([found / rank for found, rank in enumerate(ranks, start=1)]).mean()
    return float(total / len(rankings))


def first_items(rankings: list[np.ndarray], z: int | None) -> float:
    """SCH, HyP²: precision summed at the relevant ones of the first z items, by their number; over all queries."""
    total = 0.0
    for hits in rankings:
        found, precisions = 0, 0.0
        for rank, hit in enumerate(hits[:z], start=1):
            if hit:
                found += 1
                precisions += found / rank
        total += precisions / found if found else 0.0
    return total / len(rankings)


TRANSCRIPTIONS = {"qinlab": first_relevant, "sch": first_items, "hyp2": first_items}


def rankings(pairs, kind: str) -> list[np.ndarray]:
    queries, database, query_labels, labels = pairs
    distances = 0.5 * ch.codes.hamming_distances(queries, database).astype(np.float32)
    related = (query_labels.astype(int) @ labels.T) > 0
    return [row[np.argsort(d, kind=kind)] for d, row in zip(distances, related, strict=True)]


@settings(max_examples=40)
@given(
    st.sampled_from(list(_CONVENTIONS)), st.integers(1, 40), st.integers(1, 12), st.integers(1, 90), st.integers(0, 999)
)
def test_a_stable_sort_gives_the_figure_in_order_and_any_other_one_is_within_the_range(name, k, nq, nd, seed):
    pairs = drawn_pairs(nq, nd, k, 6, seed, 0.15)
    histogram = ch.metrics.hamming_histogram(*pairs, n_bits=k)
    scores = convention_scores(name, histogram, pairs)
    zs = [z for z in _CONVENTIONS[name].cutoffs if z is None or z <= nd]
    assert list(scores) == ["map" if z is None else f"map@{z}" for z in zs]
    for z, score in zip(zs, scores.values(), strict=True):
        assert score["in_order"] == pytest.approx(TRANSCRIPTIONS[name](rankings(pairs, "stable"), z), abs=1e-6)
        printed = TRANSCRIPTIONS[name](rankings(pairs, "quicksort"), z)
        for figure in (score["in_order"], printed):
            assert score["lower"] - 1e-6 <= figure <= score["upper"] + 1e-6
    alone = convention_scores(name, histogram)
    assert [{**score, "in_order": None} for score in scores.values()] == list(alone.values())


@settings(max_examples=40)
@given(GROUPS, st.integers(1, 8), st.booleans())
def test_the_range_is_that_of_all_orders_of_ties(groups, z, of_relevant):
    values = [
        first_relevant([np.array(order)], z) if of_relevant else literal.average_precision(order, z)
        for order in literal.orders(groups)
    ]
    lower, upper = ch.metrics.HammingHistogram(*literal.histograms(groups)).average_precision_bounds(z, of_relevant)
    assert (lower[0], upper[0]) == pytest.approx((min(values), max(values)), abs=1e-6)


@settings(max_examples=25)
@given(st.integers(1, 20), st.integers(1, 60), st.integers(1, 60), st.booleans(), st.integers(0, 999))
def test_every_cut_off_goes_by_the_order_of_the_database(k, nd, z, of_relevant, seed):
    pairs = drawn_pairs(3, nd, k, 6, seed, 0.15)
    transcription = first_relevant if of_relevant else first_items
    each = _average_precisions_cut(pairs, _Convention((z, None), of_relevant))
    for row, ranking in zip(each, rankings(pairs, "stable"), strict=True):
        assert row == pytest.approx([transcription([ranking], z), transcription([ranking], None)], abs=1e-6)


def test_queries_without_a_relevant_item_count_in_the_mean_and_an_unknown_convention_is_named():
    codes, labels = np.zeros((2, 1), np.uint8), np.eye(2, dtype=bool)
    pairs = codes, codes[:1], labels, labels[:1]
    histogram = ch.metrics.hamming_histogram(*pairs, n_bits=8)
    assert histogram.mean_average_precision() == 1.0
    assert convention_scores("sch", histogram, pairs)["map"] == {"in_order": 0.5, "lower": 0.5, "upper": 0.5}
    check_refusal(r"convention 'hyp'.*hyp2", convention_scores, "hyp", histogram)
