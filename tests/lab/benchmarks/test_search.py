"""The benchmark of search: its rows, and that what is compared gives the same distances."""

import json
import re
import sys

import numpy as np
import pytest

from channelhash.lab.benchmarks import approximate, search
from channelhash.lab.benchmarks.duplicates import draw_near_duplicates
from channelhash.search.index import CodeIndex
from channelhash.search.index.duplicates import duplicate_groups
from small_runs import assert_refused, run_command

SMALL = ("--sizes", 300, "--bits", 64, "--first", 5, "--batch", 3)


RIVALS = ["FAISS flat", "FAISS IVF7, nprobe", "FAISS MultiHash 4 × 8 bits, nflip", "FAISS HNSW32, efSearch"]


def test_rows_are_printed_as_json_or_as_a_table(capsys):
    assert run_command("benchmark", "search", *SMALL, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    named = [(row["what"].split(" (")[0], re.sub(r" \d+, recall .*| \(.*", "", row["baseline"])) for row in rows]
    searches = ("top 5, 1 query", "top 5, 3 queries")
    assert named == [
        *((what, rival) for rival in RIVALS for what in ("build", *searches)),
        *((what, "our scan alone") for what in searches),
        *((what, "FAISS flat") for what in ("build", *searches)),  # random codes
        *((what, "our scan alone") for what in searches),
        ("top 10 in two stages, 1 query", "bits alone"),
        ("top 10 by image codes, text codes and words, 1 question", "image codes alone"),
        ("near-duplicates within 3 bits", "FAISS multi-index hashing"),
    ]
    assert "bytes a code, scan)" in rows[0]["what"]
    assert [row["size"] for row in rows[::14]] == ["300 clustered codes × 64 bits", "300 random codes × 64 bits"]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["baseline_seconds"] / row["seconds"])


def test_the_scan_is_measured_beside_reading_as_many_bytes(monkeypatch):
    monkeypatch.setattr(search, "_LEAST_BANDWIDTH", 300)
    row = next(
        row for row in search.benchmark_search((300,), (64,), (5,), 3) if row["what"].startswith("scan, 1 query")
    )
    assert re.fullmatch(r"reading in \d+ threads \(\d+ GB/s\)", row["baseline"])


def test_the_alternatives_find_the_share_of_the_nearest_codes_that_they_state():
    faiss = pytest.importorskip("faiss")
    codes, queries = search.draw_clustered(2_000, 20, 64)
    truth = np.array([match.distances for match in CodeIndex.build(codes, 64).nearest(queries, 7)])
    found = list(approximate.rivals(faiss, codes, queries, truth))
    np.testing.assert_array_equal(found[0].search(queries, 7)[0], truth)
    for rival in found[1:]:
        recall = np.mean(
            [(row <= kth).sum() / 7 for row, kth in zip(rival.search(queries, 7)[0], truth[:, -1], strict=True)]
        )
        assert f"recall {recall:.3f}" in rival.name
        assert recall >= approximate.RECALL or "nflip 3" in rival.name


def test_answers_that_are_missing_are_not_found():
    faiss = pytest.importorskip("faiss")
    codes = search.draw_clustered(5, 1, 64)[0]
    graph = faiss.IndexBinaryHNSW(64, 4)
    graph.add(codes)
    assert (graph.search(codes, 10)[0].min(axis=1) < 0).all()  # distances of what is missing
    truth = np.full((5, 10), 64)
    rival = approximate._least("HNSW, efSearch", graph, "hnsw.efSearch", [16], 0.0, codes, truth)
    assert rival.name == "HNSW, efSearch 16, recall 0.500"


def test_most_bits_of_clustered_codes_are_those_of_a_prototype():
    codes, queries = search.draw_clustered(4_000, 50, 128)
    nearest = [match.distances[0] for match in CodeIndex.build(codes, 128).nearest(queries, 1)]
    assert np.mean(nearest) == pytest.approx(128 * 2 * 0.08 * 0.92, abs=5)  # both flipped, on two sides


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
