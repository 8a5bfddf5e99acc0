"""The proof of codes: exact neighbours, judgements, and the choice."""

import numpy as np
import pytest

from channelhash.compression.proof import (
    Row,
    Scores,
    choose,
    make_task,
    nearest,
    prove,
    read_judgements,
)
from channelhash.data.vectors import Vectors
from refusals import check_refusal


def vectors(n=300, d=16, seed=0):
    values = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return Vectors.of(values, [f"d{row}" for row in range(n)])


@pytest.mark.parametrize("similarity", ["cosine", "inner", "euclidean"])
def test_neighbours_are_those_of_all_pairs(similarity, monkeypatch):
    monkeypatch.setattr("channelhash.compression.proof._ROWS", 37)
    database = vectors()
    asked = vectors(n=7, seed=1)[:]
    rows = database[:].astype(np.float64)
    scores = asked @ rows.T
    if similarity == "cosine":
        scores = scores / np.linalg.norm(rows, axis=1)
    if similarity == "euclidean":
        scores = -np.square(asked[:, None] - rows[None]).sum(axis=2)
    expected = np.argsort(-scores, axis=1)[:, :5]
    np.testing.assert_array_equal(nearest(asked, database, 5, similarity), expected)


def test_questions_are_held_out_of_the_vectors():
    database = vectors()
    task = make_task(database)
    assert task.held_out
    assert len(task.questions) == 30
    assert not set(task.question_ids) & set(task.vectors.ids)
    assert len(task.vectors) == 270


def test_more_bytes_find_more_and_floats_find_all():
    rows = list(prove(make_task(vectors()), n_bits=(8,), second=(None, 2, 4), first=50))
    assert [row.name for row in rows] == [
        "floats",
        "8 bits",
        "8 bits, then 2 bits a number",
        "8 bits, then 4 bits a number",
    ]
    means = [row.scores.neighbours.mean() for row in rows]
    assert means[0] == 1
    assert means[1] < means[2] < means[3]
    assert [row.n_bytes for row in rows] == [64, 1, 7, 11]


def test_codes_are_never_longer_than_the_vectors():
    task = make_task(vectors())
    assert [row.n_bits for row in prove(task, second=(None,))] == [None, 16]
    rows = prove(task, n_bits=(8, 17), second=(None,))
    check_refusal("n_bits 17: vectors of 16 numbers have 1 to 16", list, rows)


def test_only_judged_questions_count():
    questions = Vectors.of(vectors(n=3, seed=1)[:], ["q0", "q1", "q2"])
    task = make_task(vectors(), questions, {"q1": {"d5": 1.0}, "other": {"d7": 1.0}})
    assert task.question_ids == ["q1"]
    (floats, *_) = prove(task, n_bits=(8,), second=(None,))
    assert not np.isnan(floats.scores.ndcg).any()


@pytest.mark.parametrize(
    ("questions", "judgements", "says"),
    [
        (Vectors.of(np.ones((2, 3))), None, "questions have 3 numbers, vectors 16"),
        (None, {"q": {"d1": 1.0}}, "judgements are of questions; give these, too"),
        (vectors(n=2), {"d0": {"x": 1.0}}, "judgements name no document of the vectors"),
        (vectors(n=2), {"x": {"d0": 1.0}}, "judgements name none of the questions"),
    ],
)
def test_what_does_not_fit_together_is_refused(questions, judgements, says):
    check_refusal(says, make_task, vectors(), questions, judgements)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("q1\td1\nq1\td2\n", {"q1": {"d1": 1.0, "d2": 1.0}}),
        ("query\tdocument\nq1\td1\n", {"q1": {"d1": 1.0}}),
        ("q1 d1 2\n", {"q1": {"d1": 2.0}}),
        ("q1 0 d1 3\n", {"q1": {"d1": 3.0}}),
    ],
)
def test_judgements_are_read_in_the_forms_that_people_have(text, expected, tmp_path):
    (tmp_path / "qrels.tsv").write_text(text)
    assert read_judgements(tmp_path / "qrels.tsv") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [("q1\n", "line 1: has 1 cells"), ("q1 d1 good\n", "line 1: grade 'good' is no number")],
)
def test_a_line_of_another_form_is_named(text, says, tmp_path):
    (tmp_path / "qrels.tsv").write_text(text)
    check_refusal(says, read_judgements, tmp_path / "qrels.tsv")


def row_of(n_bytes, neighbours, n=200):
    scores = Scores(np.full(n, neighbours), np.full(n, np.nan), np.full(n, np.nan))
    return Row(f"{n_bytes} B", 8, None, n_bytes, scores, 0.0, 0.0)


@pytest.mark.parametrize(("keep", "chosen"), [(0.8, "8 B"), (0.9, "16 B"), (0.99, None)])
def test_the_smallest_code_that_is_good_enough_is_chosen(keep, chosen):
    rows = [row_of(64, 1.0), row_of(16, 0.95), row_of(8, 0.85), row_of(32, 0.96)]
    found = choose(rows, keep)
    assert (found and found.name) == chosen
