"""Tasks are keyed by name and cannot be swapped."""

import dataclasses
import itertools

import numpy as np
import pytest

import channelhash as ch

TASKS = ["image->text", "text->image", "image->image", "text->text"]


def toy_sets() -> tuple[ch.CodeSet, ch.CodeSet]:
    """One query with label 0 and four items, two of them relevant. The item's distance from each query modality in
    each item modality is set so that the four tasks have four different answers."""
    k = 8
    codes = lambda *ones: ch.codes.pack(np.array([[i < n for i in range(k)] for n in ones]))  # noqa: E731
    query = ch.CodeSet(["q"], {"image": codes(0), "text": codes(8)}, np.array([[True, False]]), k)
    labels = np.array([[True, False], [True, False], [False, True], [False, True]])
    # From the image query the distance is the number of ones, from the text query 8 minus it.
    database = ch.CodeSet(list("abcd"), {"image": codes(0, 1, 2, 3), "text": codes(7, 3, 5, 1)}, labels, k)
    return query, database


def answers() -> dict[str, float]:
    """By hand: relevant items are a and b. image->text orders texts by ones: d(1) b(3) c(5) a(7): ranks 2, 4."""
    return {
        "image->text": (1 / 2 + 2 / 4) / 2,
        "text->image": (1 / 3 + 2 / 4) / 2,  # images by 8 − ones: d(5) c(6) b(7) a(8): ranks 3, 4
        "image->image": 1.0,  # a(0) b(1) c(2) d(3)
        "text->text": (1 / 1 + 2 / 3) / 2,  # texts by 8 − ones: a(1) c(3) b(5) d(7): ranks 1, 3
    }


def test_four_tasks_have_their_own_four_answers():
    expected = answers()
    assert len(set(expected.values())) == 4
    figures = {task: report["map_tie_aware"] for task, report in ch.metrics.evaluate(*toy_sets()).items()}
    assert figures == pytest.approx(expected)
    assert list(figures) == TASKS
    for other in itertools.permutations(TASKS):
        if list(other) != TASKS:
            swapped = {task: figures[source] for task, source in zip(TASKS, other, strict=True)}
            assert swapped != pytest.approx(expected)


def test_a_report_has_every_figure_and_only_reachable_cut_offs():
    query, database = toy_sets()
    report = ch.metrics.evaluate(query, database, cutoffs=(1, 4, 5))["text->text"]
    assert report["map_at"] == pytest.approx({"1": 1.0, "4": (1 + 2 / 3) / 2})
    assert report["precision_at"] == pytest.approx({"1": 1.0, "4": 0.5})
    assert (report["queries"], report["skipped"], report["chance"]) == (1, 0, 0.5)
    assert (report["map_lower"], report["map_upper"]) == pytest.approx((report["map_tie_aware"],) * 2)
    assert set(report) == {
        "map_tie_aware", "map_lower", "map_upper", "map_at", "precision_at", "ndcg",
        "roc_auc_micro", "roc_auc_macro", "radius_2", "chance", "queries", "skipped",
    }  # fmt: skip


def test_sets_that_cannot_be_compared_are_refused():
    query, database = toy_sets()
    shorter = ch.CodeSet(["q"], {"image": np.zeros((1, 1), np.uint8)}, np.array([[True, False]]), 7)
    with pytest.raises(ValueError, match="query codes have 7 bits, database codes 8"):
        ch.metrics.evaluate(shorter, database)
    names = (("sea", "sky"), ("cat", "dog"))
    named, other = (dataclasses.replace(query, label_names=list(pair)) for pair in names)
    with pytest.raises(ValueError, match=r"query labels are 2 \(sea, sky\), database labels 2 \(cat, dog\)"):
        ch.metrics.evaluate(named, other)
    with pytest.raises(ValueError, match="none of the 0 queries"):
        ch.metrics.evaluate(query.take([]), database)
    unlabelled = ch.CodeSet(["q"], query.codes, None, 8)
    with pytest.raises(ValueError, match="needs the labels"):
        ch.metrics.evaluate(unlabelled, database)
    one, other = (ch.CodeSet(["q"], query.codes, query.labels, 8, model=name) for name in ("a", "b"))
    with pytest.raises(ValueError, match="different models"):
        ch.metrics.evaluate(one, other)


def test_roc_auc_is_left_open_where_every_item_is_relevant():
    query, database = toy_sets()
    all_relevant = dataclasses.replace(database, labels=np.ones((4, 2)))
    for report in ch.metrics.evaluate(query, all_relevant).values():
        assert report["map_tie_aware"] == pytest.approx(1.0)
        assert report["roc_auc_micro"] is report["roc_auc_macro"] is None
