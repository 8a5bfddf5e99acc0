"""Rankings by cosine against literal ones, and against Hamming rankings where they are the same."""

import itertools

import numpy as np
import pytest

from channelhash.codes import binarize, pack
from channelhash.metrics import hamming_histogram, report
from channelhash.metrics.real_valued import evaluate_cosines, evaluate_ranking


def make_labels(n, seed):
    return np.random.default_rng(seed).random((n, 4)) < 0.35


def literal_average_precision(similarities, relevant):
    """Mean of AP over every order of tied items."""
    groups = [
        [j for j, s in enumerate(similarities) if s == level] for level in sorted(set(similarities), reverse=True)
    ]
    values = []
    for orders in itertools.product(*(itertools.permutations(group) for group in groups)):
        ranked = [relevant[j] for j in itertools.chain(*orders)]
        hits = [sum(ranked[: place + 1]) / (place + 1) for place, hit in enumerate(ranked) if hit]
        values.append(sum(hits) / len(hits))
    return np.mean(values)


def test_figures_are_the_expectation_over_the_orders_of_ties():
    random = np.random.default_rng(0)
    database = random.normal(size=(7, 3))
    database[3] = 2 * database[1]  # the same cosine
    database[5] = 4 * database[1]
    query, labels, query_labels = random.normal(size=(9, 3)), make_labels(7, 1), make_labels(9, 2)
    found = evaluate_ranking(query, database, query_labels, labels, cutoffs=(3, 50))
    expected = []
    for q, y in zip(query, query_labels, strict=True):
        cosines = [round(q @ d / np.linalg.norm(q) / np.linalg.norm(d), 9) for d in database]
        assert len(set(cosines)) <= 5
        relevant = (labels & y).any(axis=1)
        expected.append(literal_average_precision(cosines, relevant) if relevant.any() else np.nan)
    np.testing.assert_allclose(found.average_precision, expected, rtol=1e-12)
    assert found.report["map_tie_aware"] == pytest.approx(np.nanmean(expected))
    assert found.report["map_lower"] < found.report["map_tie_aware"] < found.report["map_upper"]
    assert set(found.report["map_at"]) == {"3"}
    assert found.report["skipped"] == int(np.isnan(expected).sum())


def test_signs_are_ranked_as_hamming_distances_rank_them():
    random = np.random.default_rng(0)
    outputs = {name: np.where(random.random((150, 12)) < 0.5, -1.0, 1.0) for name in ("image", "text")}
    labels = make_labels(150, 0)
    query, database = ({name: values[rows] for name, values in outputs.items()} for rows in (slice(40), slice(40, 150)))
    found = evaluate_cosines(query, database, labels[:40], labels[40:], cutoffs=(10,))
    assert list(found)[:2] == ["image->text", "text->image"]
    for task, evaluation in found.items():
        asked, searched = task.split("->")
        codes = pack(binarize(query[asked])), pack(binarize(database[searched]))
        histogram = hamming_histogram(*codes, labels[:40], labels[40:], n_bits=12)
        expected = report(histogram, cutoffs=(10,))
        for name in ("map_tie_aware", "map_lower", "map_upper", "ndcg", "roc_auc_macro", "chance", "skipped"):
            assert evaluation.report[name] == pytest.approx(expected[name])
        assert evaluation.report["map_at"] == pytest.approx(expected["map_at"])
        assert evaluation.report["precision_at"] == pytest.approx(expected["precision_at"])


def test_blocks_change_nothing(monkeypatch):
    random = np.random.default_rng(0)
    values, labels = random.normal(size=(60, 5)), make_labels(60, 0)
    whole = evaluate_ranking(values[:20], values, labels[:20], labels)
    monkeypatch.setattr("channelhash.metrics.real_valued._PAIRS", 130)
    cut = evaluate_ranking(values[:20], values, labels[:20], labels)
    np.testing.assert_array_equal(whole.average_precision, cut.average_precision)
    assert whole.report == cut.report


def test_nothing_relevant_is_refused():
    with pytest.raises(ValueError, match="none of the 2 queries has a relevant item"):
        evaluate_ranking(np.ones((2, 3)), np.ones((4, 3)), np.zeros((2, 1)), np.ones((4, 1)))
