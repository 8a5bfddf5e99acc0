"""Instance retrieval of code sets: who is a query's counterpart, and where it is searched."""

import numpy as np
import pytest

import channelhash as ch
from channelhash.metrics.recall import instance_recall


def code_set(n, seed, images=None, labels=None, modalities=("image", "text"), prefix="q"):
    random = np.random.default_rng(seed)
    codes = {name: random.integers(0, 256, (n, 2), dtype=np.uint8) for name in modalities}
    return ch.CodeSet([f"{prefix}{row}" for row in range(n)], codes, labels, 16, images=images)


def literal_recall(queries, items, own, k):
    """Mean over random orders of equal distances, counted query by query."""
    random, hits = np.random.default_rng(0), []
    for code, mine in zip(queries, own, strict=True):
        distances = np.unpackbits(items ^ code, axis=1).sum(axis=1)
        orders = (np.lexsort((random.random(len(items)), distances)) for _ in range(300))
        hits.append(np.mean([bool(set(order[:k]) & mine) for order in orders]))
    return np.mean(hits)


def test_texts_of_one_image_are_its_counterparts_and_the_image_is_there_once():
    images = ["a", "b", "a", "c", "b", "d", "a"]
    codes = code_set(7, 0, images)
    report = instance_recall(codes, codes)
    first = [0, 1, 3, 5]  # rows of the images a, b, c, d
    texts = [{row for row, image in enumerate(images) if image == name} for name in "abcd"]
    places = [{"abcd".index(image)} for image in images]
    for task, queries, items, own in (
        ("image->text", codes.codes["image"][first], codes.codes["text"], texts),
        ("text->image", codes.codes["text"], codes.codes["image"][first], places),
    ):
        assert (report[task]["queries"], report[task]["recall_items"]) == (len(queries), len(items))
        for k in (1, 5):
            assert report[task]["recall_at"][str(k)] == pytest.approx(literal_recall(queries, items, own, k), abs=0.02)


def test_the_database_is_searched_where_it_holds_counterparts_else_the_queries_themselves():
    query, other = code_set(6, 0), code_set(9, 1, prefix="item")
    assert instance_recall(query, other) == instance_recall(query, query)
    found = instance_recall(query.take([0, 1]), query)["text->image"]
    assert (found["recall_items"], found["queries"], found["skipped"]) == (6, 2, 0)
    texts, images = (ch.CodeSet(query.ids, {name: query.codes[name]}, None, 16) for name in ("text", "image"))
    assert list(instance_recall(texts, images)) == ["text->image"]
    assert instance_recall(texts, other) == {}


def test_evaluation_adds_recall_to_the_scores_by_label_and_has_recall_alone_without_labels():
    labels = np.eye(2)[[0, 1, 0, 1, 0, 1]] > 0
    labelled, plain = code_set(6, 0, labels=labels), code_set(6, 0)
    scores = ch.metrics.evaluate(labelled, labelled)
    recall = ch.metrics.evaluate(plain, plain)
    assert list(recall) == ["image->text", "text->image"]
    for task, report in recall.items():
        assert report == instance_recall(plain, plain)[task]
        assert {"recall_at", "median_rank", "recall_items"} <= report.keys()
        assert scores[task]["recall_at"] == report["recall_at"]
        assert scores[task]["map_tie_aware"] > 0
    assert "recall_at" not in scores["image->image"]
    with pytest.raises(ValueError, match="or an image and a text of each query"):
        ch.metrics.evaluate(*[code_set(3, 0, modalities=("text",))] * 2)
    with pytest.raises(ValueError, match="needs the labels"):
        ch.metrics.evaluate(labelled, plain)
