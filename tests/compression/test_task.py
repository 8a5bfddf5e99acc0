"""Questions and judgements: held out, drawn, known and unknown."""

import numpy as np
import pytest

from channelhash.compression.task import make_task, read_judgements
from channelhash.data.vectors import Vectors
from refusals import check_refusal


def vectors(n=300, d=16, seed=0):
    values = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return Vectors.of(values, [f"d{row}" for row in range(n)])


def test_questions_are_held_out_of_the_vectors():
    database = vectors()
    task = make_task(database)
    assert task.held_out
    assert len(task.questions) == 30
    assert not set(task.question_ids) & set(task.vectors.ids)
    assert len(task.vectors) == 270


def test_only_judged_questions_count():
    questions = Vectors.of(vectors(n=3, seed=1)[:], ["q0", "q1", "q2"])
    task = make_task(vectors(), questions, {"q1": {"d5": 1.0}, "other": {"d7": 1.0}})
    assert task.question_ids == ["q1"]


def test_unknown_ids_are_counted_and_left_out():
    questions = Vectors.of(vectors(n=3, seed=1)[:], ["q0", "q1", "q2"])
    judged = {
        "q0": {"d1": 2.0, "lost": 1.0},
        "q1": {"lost": 1.0},
        "q2": {"d3": 0.0},
        "q9": {"d1": 1.0},
    }
    task = make_task(vectors(), questions, judged)
    assert task.judgements == {"q0": {"d1": 2.0}}
    assert task.notes == (
        "judgements: 1 of 4 questions are unknown",
        "judgements: 1 of 3 documents are unknown",
        "judgements: 2 of 3 questions have no relevant document",
    )


def test_pairs_teach_by_their_rows_and_judgements_are_others():
    questions = Vectors.of(vectors(n=3, seed=1)[:], ["q0", "q1", "q2"])
    pairs = {"q2": {"d1": 3.0, "lost": 1.0}, "q0": {"d5": 1.0, "d6": 0.0}, "q9": {"d1": 1.0}}
    task = make_task(vectors(), questions, {"q1": {"d2": 1.0}}, pairs=pairs)
    assert task.question_ids == ["q1"]
    assert task.lessons.asked.tolist() == [1]
    assert [values.tolist() for values in task.lessons.pairs] == [[0, 2], [5, 1], [1, 3]]
    np.testing.assert_array_equal(task.lessons.questions, questions[:])
    notes = ("pairs: 1 of 3 questions are unknown", "pairs: 1 of 4 documents are unknown")
    assert task.notes == notes
    alone = make_task(vectors(), questions, pairs=pairs)
    assert alone.judgements == {"q0": {"d5": 1.0, "d6": 0.0}, "q2": {"d1": 3.0}}
    assert alone.lessons.asked.tolist() == [0, 2]
    assert alone.notes == notes
    says = "pairs: 1 question has one; each is asked by what others have taught"
    check_refusal(says, make_task, vectors(), questions, pairs={"q0": {"d1": 1.0}})


def test_of_many_questions_some_are_drawn(monkeypatch):
    monkeypatch.setattr("channelhash.compression.task._QUESTIONS", 5)
    task = make_task(vectors(), vectors(n=40, seed=1))
    assert len(task.questions) == len(set(task.question_ids)) == 5
    assert task.notes == ("5 of 40 questions are asked, drawn by the seed",)
    assert len(make_task(vectors()).questions) == 5


@pytest.mark.parametrize(
    ("questions", "judgements", "says"),
    [
        (Vectors.of(np.ones((2, 3))), None, "questions have 3 numbers, vectors 16"),
        (None, {"q": {"d1": 1.0}}, "judgements and pairs are of questions; give these, too"),
        (vectors(n=2), {"d0": {"x": 1.0}}, "judgements name no document of the vectors"),
        (vectors(n=2), {"x": {"d0": 1.0}}, "judgements name none of the questions"),
        (vectors(n=2), {"d0": {"d1": 0.0}}, "judgements name no relevant document"),
    ],
)
@pytest.mark.parametrize("kind", ["judgements", "pairs"])
def test_what_does_not_fit_together_is_refused(questions, judgements, says, kind):
    says = says.replace("judgements name", f"{kind} name")
    check_refusal(says, make_task, vectors(), questions, **{kind: judgements})


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
    [
        ("q1\n", "line 1: has 1 cells"),
        ("q1 d1 good\n", "line 1: grade 'good' is no number"),
        ("q1 d1 1\nq1 d2 inf\n", "line 2: grade 'inf' is no number"),
        ("query\tdocument\n", "qrels.tsv: names no question and document"),
    ],
)
def test_a_line_of_another_form_is_named(text, says, tmp_path):
    (tmp_path / "qrels.tsv").write_text(text)
    check_refusal(says, read_judgements, tmp_path / "qrels.tsv")


def test_too_few_vectors_hold_no_question_out():
    check_refusal("vectors: 9 of them; of ten or more", make_task, vectors(n=9))
