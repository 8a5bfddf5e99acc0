import pytest

from channelhash.lab.benchmarks.scale import benchmark_scale


@pytest.mark.slow
def test_there_is_a_row_for_encoding_and_for_evaluating_each_size():
    rows = benchmark_scale([1000, 2000])
    assert [row["size"] for row in rows] == [
        "1000 items, 64 bits",
        "1000 items, 1000 queries",
        "2000 items, 64 bits",
        "2000 items, 1000 queries",
    ]
    assert all(row["seconds"] > 0 and row["peak_mb"] > 0 for row in rows)
