import sys

import pytest

from channelhash.errors import JobError
from channelhash.lab.benchmarks import start


@pytest.mark.slow
def test_searches_and_servers_are_measured_in_processes_of_their_own(monkeypatch):
    models = list(start._models())[:1]  # the small one; that of photographs takes a minute more
    monkeypatch.setattr(start, "_models", lambda: iter(models))
    rows = start.benchmark_start(n_codes=200, repeats=1)
    assert [row["what"] for row in rows] == [
        "search by words alone",
        "search by an item",
        "search by a text, small exported",
        "serve until it listens",
        "import channelhash.losses",
    ]
    assert all(row["seconds"] > 0 and row["peak_mb"] > 20 for row in rows)
    assert [row["baseline"] for row in rows if row["ratio"]] == ["its model", "import torch"]
    # The search does without what this process has loaded.
    assert rows[2]["peak_mb"] < 200


def test_a_command_that_fails_is_no_measurement():
    with pytest.raises(JobError, match="no such folder"):
        start._run([*start._command("search"), "nowhere", "a"])
    seconds, megabytes = start._run([sys.executable, "-c", "print(1)"])
    assert 0 < seconds < 60
    assert 5 < megabytes < 100
