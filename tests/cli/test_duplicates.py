"""``duplicates`` as a person runs it."""

import re
from itertools import accumulate

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from small_runs import assert_refused, run_json, run_text


@pytest.fixture
def store(tmp_path):
    """Two near groups and one item that is far from all, with pictures."""
    folder = tmp_path / "s"
    numbers = [0b11111111, 0b0, 0b1, 0b11110000, 0b111]
    with ch.open_store(folder, n_bits=8) as opened:
        metadata = [{"image": str(tmp_path / f"{number}.png"), "year": number} for number in numbers]
        for values in metadata:
            Image.new("RGB", (8, 8)).save(values["image"])
        opened.add([*"abcde"], np.array(numbers, np.uint8)[:, None], metadata=metadata)
    return folder


def test_groups_as_json_and_as_a_table_and_as_a_sheet(store, tmp_path, capsys):
    found = run_json(capsys, "duplicates", store, "--radius", 2)
    assert (found["groups"], found["distances"], found["problems"]) == ([["b", "c", "e"]], [[0, 1, 3]], [])
    assert (found["keepers"], found["reasons"]) == (["b"], ["all are equal"])
    assert [photo["path"] for photo in found["photos"][0]] == [str(tmp_path / f"{number}.png") for number in (0, 1, 7)]
    out = run_text(capsys, "duplicates", store, "--radius", 2, "--where", "year < 7", "--sheet", tmp_path / "g.png")
    assert "2 items in 1 groups" in out
    assert Image.open(tmp_path / "g.png").width > 200
    assert "No near-duplicates within 0 bits" in run_text(capsys, "duplicates", store, "--radius", 0)
    # Different pictures are no duplicates unless codes alone are to count.
    Image.fromarray(np.eye(8, dtype=np.uint8) * 200).save(tmp_path / "1.png")
    assert run_json(capsys, "duplicates", store, "--radius", 1)["groups"] == []
    assert run_json(capsys, "duplicates", store, "--radius", 1, "--no-pictures")["groups"] == [["b", "c"]]


def test_bad_input_is_one_line(store, tmp_path, capsys):
    assert_refused(capsys, "duplicates", store, "--radius", -1, says="radius is -1")
    assert_refused(capsys, "duplicates", store, "--modality", "text", says="no text codes")
    assert_refused(capsys, "duplicates", tmp_path / "none", says="none: no such folder")


def test_the_rest_is_listed_moved_and_moved_back(store, tmp_path, capsys):
    """All five are black; their ids are no paths, so that a file keeps its whole path below the folder."""
    rest = [str(tmp_path / f"{number}.png") for number in (0, 1, 240, 7)]
    assert run_text(capsys, "duplicates", store, "--rest").splitlines() == rest
    assert run_text(capsys, "duplicates", store, "--rest", "-0").split("\0") == [*rest, ""]
    folder = tmp_path / "moved"
    assert "4 files would be moved, by --yes" in run_text(capsys, "duplicates", store, "--move", folder)
    assert not folder.exists()
    moved = run_json(capsys, "duplicates", store, "--move", folder, "--yes")
    assert moved["paths"] == dict(zip("bcde", (str(folder / path.lstrip("/")) for path in rest), strict=True))
    assert "No near-duplicates" in run_text(capsys, "duplicates", store)
    assert "4 files moved back" in run_text(capsys, "duplicates", store, "--undo")
    run_text(capsys, "duplicates", store, "--not", "a", "--not", "b")
    assert run_json(capsys, "duplicates", store)["groups"] == [["a", "c", "d", "e"]]
    assert "Took back --not" in run_text(capsys, "duplicates", store, "--undo")
    assert "no decision" in run_text(capsys, "duplicates", store, "--undo")
    assert_refused(capsys, "duplicates", store, "--undo", "--rest", says="give one of them")


def test_a_search_folds_them(store, capsys):
    results = run_json(capsys, "search", store, "--like", "c")["results"]
    assert [(result["id"], result["duplicates"]) for result in results] == [("c", ["b", "e"]), ("d", []), ("a", [])]
    assert "duplicates" in run_text(capsys, "search", store, "--like", "c")
    apart = run_json(capsys, "search", store, "--like", "c", "--no-collapse")["results"]
    assert "".join(result["id"] for result in apart) == "cbeda"


def test_a_search_says_what_is_close(tmp_path, capsys):
    """A store of many near items, and one far from all of them."""
    codes = np.random.default_rng(0).integers(0, 4, (200, 1), dtype=np.uint8)
    with ch.open_store(tmp_path / "s", n_bits=64) as opened:
        packed = np.concatenate([codes, np.zeros((200, 7), np.uint8)], axis=1)
        opened.add([f"{row:03}" for row in range(200)], packed)
        opened.add(["far"], np.full((1, 8), 255, np.uint8))
    for name, close in (("007", True), ("far", False)):
        answer = run_json(capsys, "search", tmp_path / "s", "--like", name)
        assert answer["close"] is close
        assert all(0 <= result["match"] <= 1 for result in answer["results"])
        printed = run_text(capsys, "search", tmp_path / "s", "--like", name)
        assert ("nothing close" in printed) is not close
        assert re.findall(r"\w+(?= +[│┃])", printed.splitlines()[2]) == ["rank", "id", "than"]
        shares = [min(99.9, 100 - 100 * result["match"]) for result in answer["results"]]
        assert re.findall(r"[\d.]+(?= % of all)", printed) == [f"{share:.1f}" for share in accumulate(shares, min)]
