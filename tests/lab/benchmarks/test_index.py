"""The benchmark of indexing measures what it says."""

import json

from channelhash.lab.benchmarks import index
from picture_runs import write_pictures
from small_runs import run_command


def test_rows_are_printed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(index, "_MODELS", (("small", {"image_size": 16, "width": 8}, 6, 6),))
    write_pictures(tmp_path, 3)
    arguments = ("--pictures", tmp_path / "images", "--files", 1200, "--device", "cpu", "--json")
    assert run_command("benchmark", "index", *arguments) == 0
    indexing, checking = json.loads(capsys.readouterr().out)["rows"]
    assert indexing["what"].startswith("index, small (")
    assert indexing["size"] == "6 to 64 bits, cpu"
    assert indexing["ratio"] > 0
    assert (checking["what"], checking["size"]) == ("check, nothing changed", "1200 files in folders of 1,000")
