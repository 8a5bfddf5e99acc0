import json
import platform
import re
import subprocess
from functools import partial
from pathlib import Path

import torch

from channelhash.runs import folder as run_folder
from channelhash.runs.folder import _git_commit, _record_environment, read_environments


def test_the_environment_says_what_computes_and_not_where():
    found = run_folder._environment(torch.device("cpu"), processes=2)
    assert found["python"] == platform.python_version()
    # one of a build may lack what is behind the "+"
    assert torch.__version__.startswith(found["packages"]["torch"])
    assert (found["device"], found["device_name"], found["processes"]) == ("cpu", None, 2)
    text = json.dumps(found)
    assert platform.node() not in re.findall(r"[\w.-]+", text)
    assert str(Path.home()) not in text
    assert str(Path.cwd()) not in text


def test_only_a_tracked_file_has_a_commit(tmp_path):
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    tracked, other = tmp_path / "a.py", tmp_path / "b.py"
    tracked.write_text("1")
    other.write_text("1")
    assert _git_commit(tracked) is None  # no checkout yet
    git("init", "-q")
    git("add", "a.py")
    git("commit", "-qm", "one")
    assert _git_commit(tracked) == git("rev-parse", "HEAD")
    assert _git_commit(other) is None
    tracked.write_text("2")
    assert _git_commit(tracked) == git("rev-parse", "HEAD") + "-dirty"


def test_a_run_that_goes_on_elsewhere_keeps_both_environments(tmp_path, monkeypatch):
    path = tmp_path / "environment.json"
    assert read_environments(path) == []
    for version in ("1", "1", "2"):
        monkeypatch.setattr(run_folder, "_versions", partial(dict, channelhash=version))
        _record_environment(path, torch.device("cpu"), 1)
    assert [entry["channelhash"] for entry in read_environments(path)] == ["1", "2"]
