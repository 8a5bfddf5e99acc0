"""What the evaluation is measured against gives the same figures; the drawn data are as described."""

import numpy as np
import pytest

import channelhash as ch
from channelhash.lab.benchmarks import metrics
from channelhash.lab.benchmarks.literal_evaluation import evaluate_literally

ROW = {"what", "size", "seconds", "baseline", "baseline_seconds", "ratio", "peak_mb"}


def test_the_literal_evaluation_gives_the_figures_of_the_report():
    k, c = 16, 21
    labels = metrics.draw_labels(20, c, "queries"), metrics.draw_labels(300, c, "items")
    packed = metrics.draw_codes(labels[0], k, "image"), metrics.draw_codes(labels[1], k, "text")
    query, database = (
        ch.CodeSet([str(i) for i in range(len(codes))], {"image": codes}, own, k)
        for codes, own in zip(packed, labels, strict=True)
    )
    report = ch.metrics.evaluate(query, database, cutoffs=())["image->image"]
    bits = [ch.codes.unpack(codes, k) for codes in packed]
    scores = evaluate_literally(*bits, *labels, cutoffs=(300,))
    assert report["skipped"] == 0
    for name in (
        "map_tie_aware", "map_lower", "map_upper", "map_in_order", "ndcg", "ndcg_graded", "chance",
        "roc_auc_micro", "roc_auc_macro",
    ):  # fmt: skip
        assert scores[name] == pytest.approx(report[name], abs=1e-9), name
    for name in ("precision", "recall"):
        assert scores[f"radius_2_{name}"] == pytest.approx(report["radius_2"][name])
    assert scores["recall_within_2"] == pytest.approx(report["precision_recall_curve"]["recall"][2])
    assert scores["map_at_300"] == pytest.approx(scores["map_in_order"])
    assert scores["precision_at_300"] == pytest.approx(scores["chance"])


def test_drawn_codes_are_clustered_by_label():
    labels = metrics.draw_labels(500, 21, "items")
    assert labels.any(axis=1).all()
    assert 1.5 < labels.sum(axis=1).mean() < 3
    codes = metrics.draw_codes(labels, 64, "image")
    histogram = ch.metrics.hamming_histogram(codes[:50], codes, labels[:50], labels, n_bits=64)
    assert histogram.mean_average_precision() > histogram.chance_level() + 0.2


def test_rows_say_what_was_measured():
    rows = metrics.benchmark_metrics(queries=6, items=200, sample=2, sizes=(100, 300))
    assert [row["what"].split(" (")[0] for row in rows] == [
        "all figures, 4 tasks", *["counting, 1 task"] * 6, "mAP in database order, 1 task", *["counting, 1 task"] * 2,
    ]  # fmt: skip
    assert all(set(row) == ROW for row in rows)
    for row in rows[:7]:
        assert row["ratio"] == pytest.approx(row["baseline_seconds"] / row["seconds"])
    assert [row["ratio"] for row in rows[7:]] == [None] * 3
    assert rows[5]["size"] == "6 queries × 200 items, k = 256, 21 labels"
    assert rows[-1]["size"] == "1 queries × 300 items, k = 64, 21 labels"
    assert "10⁹ pairs/s" in rows[-1]["what"]
    assert all(np.isfinite(row["seconds"]) and row["seconds"] > 0 for row in rows)
