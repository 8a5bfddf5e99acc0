"""What codes are measured on: vectors, questions, and where people have judged answers these."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.data.vectors import Vectors
from channelhash.errors import InputError
from channelhash.utils.decode import read_text, split_lines
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]
#: Question -> document -> grade.
Judgements = Mapping[str, Mapping[str, float]]

#: Questions that are asked at most, which bounds time.
_QUESTIONS = 1000


class Pairs(NamedTuple):
    """Which documents belong to which questions.

    Attributes:
        questions: ``(p,)`` rows of questions.
        documents: ``(p,)`` rows of documents.
        weights: ``(p,)``, above 0: clicks, or grades.
    """

    questions: NDArray[np.int64]
    documents: NDArray[np.int64]
    weights: _Floats

    def of(self, chosen: NDArray[np.bool_]) -> "Pairs":
        """Return the pairs of the questions that are chosen, ``(nq,)``."""
        kept = chosen[self.questions]
        return Pairs(self.questions[kept], self.documents[kept], self.weights[kept])


class Lessons(NamedTuple):
    """What a map of questions is learned from.

    Attributes:
        questions: ``(nq, d_q)``, all of them.
        pairs: of these and the documents.
        asked: rows of the questions that are asked.
    """

    questions: _Floats
    pairs: Pairs
    asked: NDArray[np.int64]


class Task(NamedTuple):
    """What codes are measured on.

    Attributes:
        vectors: the database.
        questions: ``(nq, d)``.
        question_ids: ``nq`` of them.
        judgements: of people, for some questions; empty without any.
        held_out: whether the questions are vectors that were taken out of the database.
        notes: what a person should know of these data, a line each.
        lessons: what a map of questions is learned from; None asks them as they are.
    """

    vectors: Vectors
    questions: _Floats
    question_ids: Sequence[str]
    judgements: Judgements
    held_out: bool
    notes: tuple[str, ...] = ()
    lessons: Lessons | None = None


def make_task(
    vectors: Vectors,
    questions: Vectors | None = None,
    judgements: Judgements | None = None,
    seed: int = 0,
    pairs: Judgements | None = None,
) -> Task:
    """Return the questions to measure with: judged ones where there are judgements, and without
    any questions a tenth of the vectors; at most 1,000, drawn by the seed.

    Pairs that questions learn from are their judgements, too, unless there are others.

    Raises:
        InputError: questions have another width and no pairs; judgements or pairs lack questions,
            or name none of the questions or documents.
    """
    if questions is None:
        if judgements or pairs:
            raise InputError("judgements and pairs are of questions; give these, too")
        return _hold_out(vectors, seed)
    if questions.width != vectors.width and not pairs:
        raise InputError(
            f"questions have {questions.width} numbers, vectors {vectors.width}; both are of one "
            "encoder"
        )
    taught, of_pairs = _known(pairs, vectors, questions, "pairs")
    judged, of_judgements = _known(judgements, vectors, questions, "judgements")
    judged = judged or taught
    rows, drawn = _asked(judged, questions, seed)
    ids = [questions.ids[row] for row in rows.tolist()]
    notes = (*of_pairs, *of_judgements, *drawn)
    task = Task(vectors, questions[rows], ids, judged, held_out=False, notes=notes)
    if not taught:
        return task
    return task._replace(lessons=Lessons(questions[:], _rows_of(taught, vectors, questions), rows))


def _asked(
    judged: Judgements, questions: Vectors, seed: int
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the rows of the questions that are asked, judged ones if there are any, and a note
    where they are drawn.
    """
    rows = np.arange(len(questions))
    if judged:
        rows = np.array([row for row, name in enumerate(questions.ids) if name in judged])
    if len(rows) <= _QUESTIONS:
        return rows, ()
    drawn = generator(seed, "questions").choice(rows, _QUESTIONS, replace=False)
    note = f"{_QUESTIONS:,} of {len(rows):,} questions are asked, drawn by the seed"
    return np.sort(drawn), (note,)


def _rows_of(known: Judgements, vectors: Vectors, questions: Vectors) -> Pairs:
    """Return pairs of known ids as pairs of rows, without those of weight 0."""
    if len(known) < 2:
        raise InputError(
            "pairs: 1 question has one; each is asked by what others have taught, so give more"
        )
    question_rows = {name: row for row, name in enumerate(questions.ids)}
    document_rows = {name: row for row, name in enumerate(vectors.ids)}
    found = [
        (question_rows[question], document_rows[document], weight)
        for question, documents in known.items()
        for document, weight in documents.items()
        if weight > 0
    ]
    of_questions, of_documents, weights = zip(*found, strict=True)
    return Pairs(
        np.array(of_questions, np.int64),
        np.array(of_documents, np.int64),
        np.array(weights, np.float32),
    )


def _known(
    judgements: Judgements | None, vectors: Vectors, questions: Vectors, kind: str
) -> tuple[Judgements, tuple[str, ...]]:
    """Return the judgements, or pairs, of questions and documents that are there, of questions with
    a relevant document, and notes on the others.
    """
    if not judgements:
        return {}, ()
    documents = set(vectors.ids)
    named = set().union(*judgements.values())
    if named.isdisjoint(documents):
        raise InputError(f"{kind} name no document of the vectors; their ids differ")
    asked = judgements.keys() & questions.ids
    if not asked:
        raise InputError(f"{kind} name none of the questions; their ids differ")
    known = {name: _graded(judgements[name], documents) for name in sorted(asked)}
    judged = {name: grades for name, grades in known.items() if max(grades.values(), default=0) > 0}
    if not judged:
        raise InputError(f"{kind} name no relevant document of any question; their ids differ")
    counted = (
        (len(judgements) - len(asked), len(judgements), "questions are unknown"),
        (len(named - documents), len(named), "documents are unknown"),
        (len(asked) - len(judged), len(asked), "questions have no relevant document"),
    )
    return judged, _notes(kind, counted)


def _notes(kind: str, counted: Sequence[tuple[int, int, str]]) -> tuple[str, ...]:
    """Return a line for each number that is not 0, of how many these are and what they are."""
    return tuple(f"{kind}: {n:,} of {total:,} {what}" for n, total, what in counted if n)


def _graded(grades: Mapping[str, float], documents: Collection[str]) -> dict[str, float]:
    return {name: grade for name, grade in grades.items() if name in documents}


def _hold_out(vectors: Vectors, seed: int) -> Task:
    n = len(vectors)
    n_questions = min(_QUESTIONS, n // 10)
    if n_questions < 1:
        raise InputError(
            f"vectors: {n} of them; of ten or more some can be held out as questions; give "
            "questions"
        )
    drawn = generator(seed, "held-out questions").choice(n, n_questions, replace=False)
    held = np.sort(drawn)
    rest = np.setdiff1d(np.arange(n), held)
    ids = [vectors.ids[row] for row in held.tolist()]
    return Task(vectors.take(rest), vectors[held], ids, {}, held_out=True)


def read_judgements(path: Path) -> dict[str, dict[str, float]]:
    """Read judgements: ``question document`` a line, with a grade at the end or, as TREC has them,
    ``question 0 document grade``.

    Raises:
        InputError: a line has another form.
    """
    judgements: dict[str, dict[str, float]] = {}
    for number, line in enumerate(split_lines(read_text(path)), start=1):
        cells = line.split("\t") if "\t" in line else line.split()
        if not cells or (number == 1 and cells[0].lower().startswith("query")):
            continue
        document, grade = _judgement(cells, f"{path}, line {number}")
        judgements.setdefault(cells[0], {})[document] = grade
    if not judgements:
        raise InputError(f"{path}: names no question and document")
    return judgements


def _judgement(cells: Sequence[str], place: str) -> tuple[str, float]:
    """Return document and grade of a line."""
    if not 2 <= len(cells) <= 4:
        raise InputError(
            f"{place}: has {len(cells)} cells; expected question, document and perhaps a grade"
        )
    document = cells[2] if len(cells) == 4 else cells[1]
    return document, 1.0 if len(cells) == 2 else _grade(cells[-1], place)


def _grade(text: str, place: str) -> float:
    try:
        grade = float(text)
    except ValueError:
        grade = math.nan
    if not math.isfinite(grade):
        raise InputError(f"{place}: grade {text!r} is no number")
    return grade
