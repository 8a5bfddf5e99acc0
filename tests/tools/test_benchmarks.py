"""All benchmarks by one command: which are run, what is written, and what is not measured again."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from channelhash.cli.benchmark import app
from pages import ROOT

sys.path.append(str(ROOT / "tools"))

import benchmarks

RESULT = {"machine": "two cores", "rows": [{"what": "sum", "seconds": 0.00123456}, {"what": "all", "ratio": None}]}


@pytest.fixture
def idle(tmp_path, monkeypatch):
    """A folder, an idle machine, and the commands that were run on it."""
    ran = []

    def run(command, **_):
        ran.append(command[3:])
        return SimpleNamespace(returncode=int(command[4] == "loss"), stdout=json.dumps(RESULT))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0, 0))
    monkeypatch.setattr(subprocess, "run", run)
    return ran


def test_each_benchmark_is_there():
    assert {command.callback.__name__ for command in app.registered_commands} == {*benchmarks.NAMES}


def test_rows_are_written_and_what_is_there_is_not_measured_again(idle, capsys):
    benchmarks.main(["metrics", "search"])
    benchmarks.main(["search", "start"])
    assert idle == [["benchmark", name, "--json"] for name in ("metrics", "search", "start")]
    files = sorted(path.name for path in benchmarks.FOLDER.iterdir())
    assert files == [f"{name}.{ending}" for name in ("metrics", "search", "start") for ending in ("json", "md")]
    assert json.loads((benchmarks.FOLDER / "search.json").read_text()) == {**RESULT, "load_before": 0.1}
    expected = "two cores\n\n| what | seconds | ratio |\n|---|---|---|\n| sum | 0.001235 |  |\n| all |  |  |\n"
    assert (benchmarks.FOLDER / "search.md").read_text() == expected
    assert "search: build/benchmarks/search.json is there" in capsys.readouterr().out


def test_a_benchmark_that_fails_and_one_that_does_not_exist_end_the_program(idle):
    with pytest.raises(SystemExit, match="loss ended with 1"):
        benchmarks.main(["loss"])
    assert not list(benchmarks.FOLDER.iterdir())
    with pytest.raises(SystemExit, match="speed is no benchmark"):
        benchmarks.main(["speed"])


def test_a_busy_machine_is_waited_for(idle, monkeypatch):
    loads, slept = [(3.0,), (0.2,)], []
    monkeypatch.setattr(os, "getloadavg", lambda: loads.pop(0))
    monkeypatch.setattr(benchmarks.time, "sleep", slept.append)
    assert benchmarks.wait_until_idle() == 0.2
    assert slept == [5]
    monkeypatch.setattr(benchmarks, "_PATIENCE", -1)
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0,))
    with pytest.raises(SystemExit, match=r"the machine is busy \(load 2.0\)"):
        benchmarks.wait_until_idle()
