"""``channelhash compress``: the table, the choice and JSON."""

import numpy as np
import pytest

from small_runs import assert_refused, run_json, run_text


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    topics = random.normal(size=(20, 32))
    documents = topics[np.arange(400) % 20] + 0.5 * random.normal(size=(400, 32))
    questions = topics + 0.5 * random.normal(size=(20, 32))
    np.savez(tmp_path / "d.npz", vectors=documents.astype(np.float32))
    np.save(tmp_path / "q.npy", questions)
    lines = [f"{row % 20}\t{row}\n" for row in range(400)]
    (tmp_path / "qrels.tsv").write_text("".join(lines))
    return tmp_path


def test_codes_are_measured_against_floats_and_judgements(files, capsys):
    words = ("compress", files / "d.npz", "--questions", files / "q.npy")
    found = run_json(capsys, *words, "--qrels", files / "qrels.tsv", "--bits", 8, "--bits", 16)
    assert (found["vectors"], found["width"], found["questions"]) == (400, 32, 20)
    assert not found["held_out"]
    floats, *codes = found["codes"]
    assert floats["neighbours"]["mean"] == 1
    assert floats["bytes"] == 128
    assert [code["n_bits"] for code in codes] == [8] * 5 + [16] * 5
    assert all(code["bytes"] < 30 for code in codes)
    ends = codes[-1]["ndcg"]
    assert ends["lower"] <= ends["mean"] <= ends["upper"]
    assert found["chosen"] in [code["name"] for code in codes]


def test_without_questions_some_are_held_out(files, capsys):
    text = run_text(capsys, "compress", files / "d.npz", "--bits", 8, "--keep", 50)
    assert "360 vectors of 32 numbers, 40 questions (held out of them)" in text
    assert "Smallest code that is not significantly worse than 50 %: 8 bits" in text
    assert "nDCG" not in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("lost.npy", "lost.npy: no such file"),
        ("d.npz --bits 33", "--bits 33: vectors of 32 numbers have 1 to 32"),
        ("d.npz --array lost", "has no array 'lost'; it has vectors"),
        ("d.npz --questions narrow.npy", "questions have 2 numbers, vectors 32"),
        ("d.npz --qrels qrels.tsv", "judgements are of questions; give these, too"),
        ("d.npz --questions q.npy --qrels bad.tsv", "bad.tsv, line 1: has 1 cells"),
        ("bad.npy", "bad.npy, row 1 (id 1): is zero"),
    ],
)
def test_what_cannot_be_measured_is_one_line(files, capsys, words, says):
    np.save(files / "narrow.npy", np.ones((3, 2)))
    np.save(files / "bad.npy", np.array([[1.0, 2.0], [0.0, 0.0]]))
    (files / "bad.tsv").write_text("q1\n")
    places = [files / word if "." in word else word for word in words.split()]
    assert_refused(capsys, "compress", *places, says=says)
