"""``duplicates`` as a person runs it."""

import json

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.indexing.stores import Index
from small_runs import assert_refused, run_command


@pytest.fixture
def store(tmp_path):
    """Two near groups and one item that is far from all, with pictures."""
    folder = tmp_path / "s"
    numbers = [0b11111111, 0b0, 0b1, 0b11110000, 0b111]
    opened = ch.open_store(folder, n_bits=8)
    metadata = [{"image": str(tmp_path / f"{number}.png"), "year": number} for number in numbers]
    for values in metadata:
        Image.new("RGB", (8, 8)).save(values["image"])
    opened.add([*"abcde"], np.array(numbers, np.uint8)[:, None], metadata=metadata)
    opened.close()
    return folder


def test_groups_as_json_and_as_a_table_and_as_a_sheet(store, tmp_path, capsys):
    assert run_command("duplicates", store, "--radius", 2, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"groups": [["b", "c", "e"]], "distances": [[0, 1, 3]]}
    assert run_command("duplicates", store, "--radius", 2, "--where", "year < 7", "--sheet", tmp_path / "g.png") == 0
    out = capsys.readouterr().out
    assert "2 items in 1 groups" in out
    assert Image.open(tmp_path / "g.png").width > 200
    assert run_command("duplicates", store, "--radius", 0) == 0
    assert "No two items within 0 bits" in capsys.readouterr().out


def test_python_says_the_same_as_the_command(store):
    index = Index(ch.open_store(store), None, None)
    assert [group.ids for group in index.duplicates(radius=2)] == [["b", "c", "e"]]


def test_bad_input_is_one_line(store, tmp_path, capsys):
    assert_refused(capsys, "duplicates", store, "--radius", -1, says="radius is -1")
    assert_refused(capsys, "duplicates", store, "--modality", "text", says="no text codes")
    assert_refused(capsys, "duplicates", tmp_path / "none", says="none")
