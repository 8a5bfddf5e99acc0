"""The benchmark of search: its rows, and that what is compared gives the same distances."""

import json
import sys

import numpy as np
import pytest

from channelhash.lab.benchmarks import search
from channelhash.lab.benchmarks.duplicates import draw_near_duplicates
from channelhash.lab.benchmarks.metrics import draw_codes, draw_labels
from channelhash.search.index import CodeIndex
from channelhash.search.index.duplicates import duplicate_groups
from small_runs import assert_refused, run_command

SMALL = ("--sizes", 300, "--bits", 64, "--first", 5, "--batch", 3)


def test_rows_are_printed_as_json_or_as_a_table(capsys):
    assert run_command("benchmark", "search", *SMALL, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert [(row["what"].split(" (")[0], row["baseline"].split(" (")[0]) for row in result["rows"]] == [
        ("build", "FAISS flat, 8 bytes a code"),
        ("top 5, 1 query", "FAISS flat"),
        ("top 5, 1 query", "usearch exact"),
        ("top 5, 3 queries", "FAISS flat"),
        ("top 5, 3 queries", "usearch exact"),
        ("top 10 in two stages, 1 query", "bits alone"),
        ("top 10 by image codes, text codes and words, 1 question", "image codes alone"),
        ("near-duplicates within 3 bits", "FAISS multi-index hashing"),
    ]
    assert "bytes a code" in result["rows"][0]["what"]
    assert {row["size"] for row in result["rows"]} == {
        "300 codes × 64 bits",
        "300 codes × 256 bits",
        "300 items × 128 bits, captions of 10 words",
    }
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["baseline_seconds"] / row["seconds"])


def test_tables_are_measured_beside_the_scan(monkeypatch):
    build = CodeIndex.build
    monkeypatch.setattr(CodeIndex, "build", lambda codes, n_bits, tables=True: build(codes, n_bits, tables))
    rows = search.benchmark_search((300,), (32,), (5,), 3)
    assert [row["baseline"] for row in rows].count("our scan alone") == 2
    assert "without tables" in rows[0]["what"]


def test_the_alternatives_answer_the_same_question():
    faiss, usearch = pytest.importorskip("faiss"), pytest.importorskip("usearch.index")
    codes = draw_codes(draw_labels(500, 21, "items"), 64, "image")
    queries = draw_codes(draw_labels(4, 21, "queries"), 64, "text")
    flat = faiss.IndexBinaryFlat(64)
    flat.add(codes)
    ours = [match.distances for match in CodeIndex.build(codes, 64).nearest(queries, 7)]
    np.testing.assert_array_equal(flat.search(queries, 7)[0], ours)
    found = usearch.search(
        codes, queries, 7, metric=usearch.MetricKind.Hamming, dtype=usearch.ScalarKind.B1, exact=True
    )
    np.testing.assert_array_equal(found.distances, ours)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [("--bits", "20", "multiples of 8"), ("--sizes", "0", "positive"), ("--first", "x", "positive")],
)
def test_numbers_that_cannot_be_measured_are_refused(option, value, says, capsys):
    assert_refused(capsys, "benchmark", "search", option, value, says=says)


def test_a_missing_alternative_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert_refused(capsys, "benchmark", "search", *SMALL, says="channelhash[faiss]")


def test_faiss_is_near_to_the_same_codes_as_our_groups():
    faiss, codes = pytest.importorskip("faiss"), draw_near_duplicates(500, 64)
    index = faiss.IndexBinaryMultiHash(64, 4, 16)
    index.nflip = 0
    index.add(codes)
    limits, _, rows = index.range_search(codes, 4)
    pairs = [(row, other) for row in range(500) for other in rows[limits[row] : limits[row + 1]] if row != other]
    groups = duplicate_groups(codes, 64, 3)
    assert {row for pair in pairs for row in pair} == {row for group in groups for row in group.tolist()}
    assert len(groups) > 40
