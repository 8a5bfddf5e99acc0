"""What codes are measured on: vectors, questions, and where people have judged answers these."""

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


class Task(NamedTuple):
    """What codes are measured on.

    Attributes:
        vectors: the database.
        questions: ``(nq, d)``.
        question_ids: ``nq`` of them.
        judgements: of people, for some questions; empty without any.
        held_out: whether the questions are vectors that were taken out of the database.
        notes: what a person should know of these data, a line each.
    """

    vectors: Vectors
    questions: _Floats
    question_ids: Sequence[str]
    judgements: Judgements
    held_out: bool
    notes: tuple[str, ...] = ()


def make_task(
    vectors: Vectors,
    questions: Vectors | None = None,
    judgements: Judgements | None = None,
    seed: int = 0,
) -> Task:
    """Return the questions to measure with: judged ones where there are judgements, and without
    any questions a tenth of the vectors; at most 1,000, drawn by the seed.

    Raises:
        InputError: questions have another width; judgements lack questions, or name none of the
            questions or documents.
    """
    if questions is None:
        if judgements:
            raise InputError("judgements are of questions; give these, too")
        return _hold_out(vectors, seed)
    if questions.width != vectors.width:
        raise InputError(
            f"questions have {questions.width} numbers, vectors {vectors.width}; both are of one "
            "encoder"
        )
    notes: tuple[str, ...] = ()
    rows = np.arange(len(questions))
    judged: Judgements = {}
    if judgements:
        judged, notes = _known(judgements, vectors, questions)
        rows = np.array([row for row, name in enumerate(questions.ids) if name in judged])
    if len(rows) > _QUESTIONS:
        drawn = generator(seed, "questions").choice(rows, _QUESTIONS, replace=False)
        notes += (f"{_QUESTIONS:,} of {len(rows):,} questions are asked, drawn by the seed",)
        rows = np.sort(drawn)
    ids = [questions.ids[row] for row in rows.tolist()]
    return Task(vectors, questions[rows], ids, judged, held_out=False, notes=notes)


def _known(
    judgements: Judgements, vectors: Vectors, questions: Vectors
) -> tuple[Judgements, tuple[str, ...]]:
    """Return the judgements of questions and documents that are there, of questions with a relevant
    document, and notes on the others.
    """
    documents = set(vectors.ids)
    named = set().union(*judgements.values())
    if named.isdisjoint(documents):
        raise InputError("judgements name no document of the vectors; their ids differ")
    asked = judgements.keys() & questions.ids
    if not asked:
        raise InputError("judgements name none of the questions; their ids differ")
    known = {name: _graded(judgements[name], documents) for name in sorted(asked)}
    judged = {name: grades for name, grades in known.items() if max(grades.values(), default=0) > 0}
    if not judged:
        raise InputError("judgements name no relevant document of any question; their ids differ")
    counted = (
        (len(judgements) - len(asked), len(judgements), "questions are unknown"),
        (len(named - documents), len(named), "documents are unknown"),
        (len(asked) - len(judged), len(asked), "questions have no relevant document"),
    )
    notes = [f"judgements: {n:,} of {total:,} {what}" for n, total, what in counted if n]
    return judged, tuple(notes)


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
        if not 2 <= len(cells) <= 4:
            raise InputError(
                f"{path}, line {number}: has {len(cells)} cells; expected question, document and "
                "perhaps a grade"
            )
        document = cells[2] if len(cells) == 4 else cells[1]
        grade = 1.0 if len(cells) == 2 else _grade(cells[-1], f"{path}, line {number}")
        judgements.setdefault(cells[0], {})[document] = grade
    return judgements


def _grade(text: str, place: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{place}: grade {text!r} is no number") from None
