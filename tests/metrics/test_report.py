"""Tasks are keyed by name and cannot be swapped; intervals cover, and p-values are those of the
full enumeration.
"""

import dataclasses
import json
from itertools import product

import numpy as np
import pytest

import channelhash as ch
from channelhash.metrics import bootstrap_interval, paired_test
from channelhash.metrics.report import evaluate_sets
from refusals import check_refusal

TASKS = ["image->text", "text->image", "image->image", "text->text"]


def toy_sets() -> tuple[ch.CodeSet, ch.CodeSet]:
    """One query with label 0 and four items, two of them relevant. The item's distance from each
    query modality in each item modality is set so that the four tasks have four different
    answers."""
    k = 8
    codes = lambda *ones: ch.codes.pack(np.array([[i < n for i in range(k)] for n in ones]))  # noqa: E731
    query = ch.CodeSet(["q"], {"image": codes(0), "text": codes(8)}, np.array([[True, False]]), k)
    labels = np.array([[True, False], [True, False], [False, True], [False, True]])
    # From the image query the distance is the number of ones, from the text query 8 minus it.
    database = ch.CodeSet(
        list("abcd"), {"image": codes(0, 1, 2, 3), "text": codes(7, 3, 5, 1)}, labels, k
    )
    return query, database


def test_four_tasks_have_their_own_four_answers_with_the_counts_beside_them():
    expected = {  # by hand: relevant items are a and b
        "image->text": (1 / 2 + 2 / 4) / 2,  # texts by ones: d(1) b(3) c(5) a(7): ranks 2, 4
        "text->image": (1 / 3 + 2 / 4) / 2,  # images by 8 − ones: d(5) c(6) b(7) a(8): ranks 3, 4
        "image->image": 1.0,  # a(0) b(1) c(2) d(3)
        "text->text": (1 / 1 + 2 / 3) / 2,  # texts by 8 − ones: a(1) c(3) b(5) d(7): ranks 1, 3
    }
    assert len(set(expected.values())) == 4
    scores = ch.metrics.evaluate(*toy_sets())
    assert {task: report["map_tie_aware"] for task, report in scores.items()} == pytest.approx(
        expected
    )
    tasks, histograms = evaluate_sets(*toy_sets(), "toy codes")
    assert tasks == scores
    assert list(histograms) == list(scores) == TASKS


def test_a_report_has_only_reachable_cut_offs():
    query, database = toy_sets()
    report = ch.metrics.evaluate(query, database, cutoffs=(1, 4, 5))["text->text"]
    assert report["map_at"] == pytest.approx({"1": 1.0, "4": (1 + 2 / 3) / 2})
    assert report["precision_at"] == pytest.approx({"1": 1.0, "4": 0.5})


def test_every_figure_of_a_report_is_that_of_its_histogram_and_is_written_as_json():
    random = np.random.default_rng(0)
    codes = {m: ch.codes.pack(random.random((70, 12)) < 0.5) for m in ("image", "text")}
    labels = random.random((70, 4)) < 0.3
    labels[:2] = [[False] * 4, [True] * 4]  # no relevant item; then many
    whole = ch.CodeSet([str(i) for i in range(70)], codes, labels, 12)
    query, database = whole.take(range(20)), whole.take(range(20, 70))
    pairs = query.codes["image"], database.codes["text"], query.labels, database.labels
    report = json.loads(
        json.dumps(ch.metrics.evaluate(query, database, cutoffs=(3, 50)), allow_nan=False)
    )[TASKS[0]]
    hist = ch.metrics.hamming_histogram(*pairs, n_bits=12)
    lower, upper = hist.map_bounds()
    each = hist.average_precision()
    interval = bootstrap_interval(each, resamples=1000)
    in_order = np.nanmean(ch.metrics.average_precisions_in_order(*pairs, hist))
    assert report.pop("map_in_order") == pytest.approx(in_order)
    assert lower <= in_order <= upper
    by_radius = report.pop("by_radius")
    assert (report.pop("recall_items"), len(report.pop("recall_at"))) == (20, 3)
    assert report.pop("median_rank") > 0
    for r in range(13):
        at_radius = {name: figures[r] for name, figures in by_radius.items()}
        assert at_radius == pytest.approx(hist.within_radius(r)._asdict())
    curve = hist.precision_recall_curve()
    finds = curve.precision[~np.isnan(curve.precision)].tolist()
    assert report == {
        "map_tie_aware": hist.mean_average_precision(),
        "map_interval": {"lower": interval.lower, "upper": interval.upper},
        "map_lower": lower,
        "map_upper": upper,
        "map_at": {"3": hist.map_at(3), "50": hist.map_at(50)},
        "precision_at": {"3": hist.precision_at(3), "50": hist.precision_at(50)},
        "ndcg": hist.ndcg(),
        "ndcg_graded": hist.ndcg_graded(),
        "roc_auc_micro": hist.roc_auc("micro"),
        "roc_auc_micro_every_query": hist.roc_auc(every_query=True),
        "roc_auc_macro": hist.roc_auc("macro"),
        "roc_auc_macro_queries": hist.counted,
        "radius_2": hist.within_radius(2)._asdict(),
        "precision_recall_curve": {
            "precision": [None] * (13 - len(finds)) + finds,
            "recall": curve.recall.tolist(),
        },
        "chance": hist.chance_level(),
        "queries": hist.counted,
        "skipped": 20 - hist.counted,
        "codes_in_use": len(np.unique(database.codes["text"], axis=0)) / 50,
    }
    assert interval.lower < report["map_tie_aware"] < interval.upper
    assert report["roc_auc_micro_every_query"] != report["roc_auc_micro"]
    assert report["skipped"] == int(np.isnan(each).sum()) > 0


def test_a_histogram_alone_leaves_open_what_it_does_not_know():
    hist = ch.metrics.HammingHistogram(np.array([[1, 1]]), np.array([[1, 0]]))
    figures = ch.metrics.report(hist)
    assert figures["map_in_order"] is figures["ndcg_graded"] is None
    assert figures["map_tie_aware"] == 1.0


def test_sets_that_cannot_be_compared_are_refused():
    query, database = toy_sets()
    names = (("sea", "sky"), ("cat", "dog"))
    named, other = (dataclasses.replace(query, label_names=list(pair)) for pair in names)
    with pytest.raises(
        ValueError, match=r"query labels are 2 \(sea, sky\), database labels 2 \(cat, dog\)"
    ):
        ch.metrics.evaluate(named, other)
    check_refusal(
        "none of the 0 queries", ch.metrics.evaluate, query.take([]), database, error=ValueError
    )


def test_roc_auc_is_left_open_where_every_item_is_relevant():
    query, database = toy_sets()
    all_relevant = dataclasses.replace(database, labels=np.ones((4, 2)))
    for report in ch.metrics.evaluate(query, all_relevant).values():
        figures = [
            report[name] for name in ("roc_auc_micro", "roc_auc_macro", "roc_auc_macro_queries")
        ]
        assert (report["map_tie_aware"], figures) == (pytest.approx(1.0), [None, None, 0])


def many(n: int, seed: int, ids: str = "photo") -> ch.CodeSet:
    random = np.random.default_rng(seed)
    # many ties
    codes = {name: random.integers(0, 4, (n, 1), dtype=np.uint8) for name in ("image", "text")}
    return ch.CodeSet([f"{ids}{row}" for row in range(n)], codes, random.random((n, 5)) < 0.4, 8)


def figures_of(report, share=1.0):
    """Figures whose means over queries are those of all, of which so many have an answer."""
    names = "map_tie_aware map_lower map_upper map_in_order ndcg ndcg_graded chance"
    sch = report["conventions"]["sch"]["map"]
    return [
        *(report[name] for name in names.split()),
        report["precision_at"]["23"],
        report["map_at"]["5"],
        sch["in_order"] / share,
        sch["lower"] / share,
        *report["by_radius"]["precision"],
    ]


def test_no_item_is_an_answer_to_itself():
    """The scores are the means over queries that search all others, one by one."""
    items = many(24, 0)
    queries = items.take(range(3, 17))
    each: dict[str, list[list[float]]] = {task: [] for task in TASKS}
    for row in range(3, 17):
        others = items.take([other for other in range(24) if other != row])
        if items.labels[row].any() and (others.labels & items.labels[row]).any():
            for task, report in ch.metrics.evaluate(
                items.take([row]), others, (5, 23), conventions=["sch"]
            ).items():
                each[task].append(figures_of(report))
    reports = ch.metrics.evaluate(queries, items, (5, 23, 24), conventions=["sch"])
    for task, report in reports.items():
        assert (report["queries"], report["own_left_out"]) == (len(each[task]), 14)
        assert list(report["map_at"]) == ["5", "23"]
        assert (
            report["codes_in_use"] == len(np.unique(items.codes[task.split("->")[1]], axis=0)) / 24
        )
        figures = figures_of(report, report["queries"] / 14)
        assert figures == pytest.approx(np.mean(each[task], axis=0).tolist())


def test_all_rows_of_a_querys_id_are_left_out():
    twice = dataclasses.replace(many(6, 0), ids=["a", "a", "b", "c", "d", "e"])
    assert ch.metrics.evaluate(twice, twice)["text->text"]["own_left_out"] == 8


def test_numbers_that_count_rows_are_not_the_same_items():
    query, database = many(9, 0, ""), many(30, 1, "")
    reports = ch.metrics.evaluate(query, database)
    assert "own_left_out" not in reports["text->text"]
    assert reports["image->text"]["recall_items"] == 9
    reports = ch.metrics.evaluate(database.take(range(9)), database)
    assert (reports["text->text"]["own_left_out"], reports["image->text"]["recall_items"]) == (
        9,
        30,
    )
    with pytest.raises(
        ValueError, match="the id 'photo0' is of a query and of a database item with other labels"
    ):
        ch.metrics.evaluate(many(9, 0), many(30, 1))


# ---- how sure a mean is, and whether two runs differ


def test_the_ends_of_an_interval_are_quantiles_of_every_resample():
    figures = np.array([0.1, 0.25, 0.3, 0.7, 0.95])
    means = np.array([np.mean(sample) for sample in product(figures, repeat=5)])
    for confidence in (0.8, 0.95):
        mean, lower, upper = bootstrap_interval(figures, confidence, resamples=20_000)
        assert mean == pytest.approx(figures.mean())
        tail = (1 - confidence) / 2
        for end, share in ((lower, tail), (upper, 1 - tail)):
            assert np.quantile(means, share - 0.01) <= end <= np.quantile(means, share + 0.01)


def test_queries_without_a_figure_do_not_count():
    figures = np.array([0.2, np.nan, 0.9, 0.4, np.nan])
    assert bootstrap_interval(figures) == bootstrap_interval(np.array([0.2, 0.9, 0.4]))
    others = np.array([0.1, np.nan, 0.5, 0.6, np.nan])
    assert paired_test(figures, others) == paired_test(figures[[0, 2, 3]], others[[0, 2, 3]])
    assert paired_test(figures, others).queries == 3


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_p_values_are_those_of_all_sign_assignments(shift):
    first, second = np.random.default_rng(5).normal(size=(2, 12)) * 0.3
    result = paired_test(first + shift, second)
    differences = first + shift - second
    sums = [abs(np.dot(signs, differences)) for signs in product((-1, 1), repeat=len(differences))]
    # over every assignment of signs
    expected = float(np.mean(np.array(sums) >= abs(differences.sum()) - 1e-9))
    assert result.p_value == pytest.approx(
        expected, abs=4 * np.sqrt(expected * (1 - expected) / 10_000) + 1e-4
    )
    assert result.difference == pytest.approx(differences.mean())
    assert paired_test(second, first + shift).p_value == result.p_value


def test_sign_assignments_that_tie_with_the_runs_count_as_hits():
    # Sums of tenths differ in their last digits with their order; only all plus and all minus reach
    # the largest.
    first = np.array([0.1, 0.2, 0.3, 0.7, 0.6, 0.1])
    assert paired_test(first, np.zeros(6)).p_value == pytest.approx(2 / 2**6, abs=0.006)
    assert paired_test(first[::-1].copy(), np.zeros(6)).p_value == pytest.approx(
        2 / 2**6, abs=0.006
    )


def test_equal_runs_do_not_differ_and_clearly_better_ones_do():
    figures = np.random.default_rng(0).random(100)
    assert paired_test(figures, figures) == (0.0, 1.0, 100)
    assert paired_test(figures + 0.01, figures).p_value == pytest.approx(1 / 10_001)


def test_runs_that_cannot_be_compared_are_refused():
    nan = np.nan
    check_refusal("the same queries", paired_test, np.zeros(3), np.zeros(2), error=ValueError)
    with pytest.raises(ValueError, match="query 1 has a score in one run alone"):
        paired_test(np.array([0.1, nan]), np.array([0.1, 0.2]))
    check_refusal(
        "none of the 2 queries",
        paired_test,
        np.array([nan, nan]),
        np.array([nan, nan]),
        error=ValueError,
    )
    check_refusal(
        "none of the 2 queries", bootstrap_interval, np.array([nan, nan]), error=ValueError
    )
    check_refusal(
        "confidence is 95", bootstrap_interval, np.array([0.5]), confidence=95, error=ValueError
    )
