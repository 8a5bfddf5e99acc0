"""How good codes of vectors are: every code and second stage beside the exact search in floats.

Of each are measured the bytes of a vector, the share of the exact neighbours that it finds, and
where people have judged answers how well it ranks these. All figures are means over questions, with
bootstrap intervals; two rows are compared question by question.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.quantizer import QuantizedRows, Quantizer
from channelhash.compression.compressor import (
    Compressed,
    Compressor,
    Searcher,
    Similarity,
    encode_blocks,
    prepare,
    sample_of,
)
from channelhash.data.vectors import Vectors
from channelhash.errors import InputError, argument
from channelhash.metrics.resampling import Interval, bootstrap_interval
from channelhash.metrics.retrieval import ndcg_at_k, neighbour_recall, recall_of_relevant
from channelhash.utils.decode import read_text, split_lines
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]
#: Question -> document -> grade.
Judgements = Mapping[str, Mapping[str, float]]

#: Neighbours that count in the recall of neighbours.
_NEIGHBOURS = 10
#: Answers that count in the recall of relevant documents.
_DEPTH = 100
#: Vectors that are held out as questions at most, where no questions are given.
_HELD_OUT = 1000
#: Vectors compared with all questions at a time, which bounds memory.
_ROWS = 8192
#: Code lengths that are tried by default, as far as vectors have so many numbers.
N_BITS = (64, 128, 256)
#: Second stages that are tried by default: none, or mean bits a number.
SECOND = (None, 1, 2, 3, 4)


class Task(NamedTuple):
    """What codes are measured on.

    Attributes:
        vectors: the database.
        questions: ``(nq, d)``.
        question_ids: ``nq`` of them.
        judgements: of people, for some questions; empty without any.
        held_out: whether the questions are vectors that were taken out of the database.
    """

    vectors: Vectors
    questions: _Floats
    question_ids: Sequence[str]
    judgements: Judgements
    held_out: bool


class Scores(NamedTuple):
    """Scores of each question: of the exact neighbours, and of judgements or NaN."""

    neighbours: NDArray[np.float64]
    ndcg: NDArray[np.float64]
    recall: NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """What one code costs and is worth.

    Attributes:
        name: for people.
        n_bits: code length; None for the floats themselves.
        second: mean bits a number of the second stage; None without one.
        n_bytes: bytes of a vector that a search reads, both stages together.
        scores: of each question.
        question_ms: milliseconds of a question, asked one at a time.
        build_seconds: time to fit the code and encode all vectors.
    """

    name: str
    n_bits: int | None
    second: float | None
    n_bytes: int
    scores: Scores
    question_ms: float
    build_seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able values, with mean and interval of each score that there is."""
        values: dict[str, Any] = {
            "name": self.name,
            "n_bits": self.n_bits,
            "second": self.second,
            "bytes": self.n_bytes,
        }
        for name, scores in self.scores._asdict().items():
            if not np.isnan(scores).all():
                values[name] = bootstrap_interval(scores)._asdict()
        return values | {"question_ms": self.question_ms, "build_seconds": self.build_seconds}


def make_task(
    vectors: Vectors,
    questions: Vectors | None = None,
    judgements: Judgements | None = None,
    seed: int = 0,
) -> Task:
    """Return the questions to measure with; without any, hold a tenth of the vectors out, at most
    1,000.

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
    judged = judgements or {}
    _check_judged(judged, vectors, questions)
    rows = np.arange(len(questions))
    if judged:
        rows = np.array([row for row, name in enumerate(questions.ids) if name in judged])
    ids = [questions.ids[row] for row in rows.tolist()]
    return Task(vectors, questions[rows], ids, judged, held_out=False)


def _check_judged(judged: Judgements, vectors: Vectors, questions: Vectors) -> None:
    """Check that judgements name questions and documents that are there."""
    if not judged:
        return
    documents = set(vectors.ids)
    if all(documents.isdisjoint(grades) for grades in judged.values()):
        raise InputError("judgements name no document of the vectors; their ids differ")
    if judged.keys().isdisjoint(questions.ids):
        raise InputError("judgements name none of the questions; their ids differ")


def _hold_out(vectors: Vectors, seed: int) -> Task:
    n = len(vectors)
    n_questions = min(_HELD_OUT, n // 10)
    if n_questions < 1:
        raise InputError(f"{n} vectors: ten or more are needed to hold questions out; give some")
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


def prove(
    task: Task,
    similarity: Similarity = "cosine",
    n_bits: Sequence[int] = (),
    second: Sequence[float | None] = SECOND,
    first: int = 500,
    seed: int = 0,
    progress: StageProgress = no_stage_progress,
) -> Iterator[Row]:
    """Yield the row of the floats, then one for each code length and second stage.

    Without code lengths, `N_BITS` are tried that vectors have numbers for, or else as many bits as
    numbers.

    Raises:
        InputError: a code length is longer than the vectors.
    """
    d = task.vectors.width
    lengths = n_bits or [length for length in N_BITS if length <= d] or [d]
    if max(lengths) > d:
        raise InputError(
            f"{argument('n_bits')} {max(lengths)}: vectors of {d} numbers have 1 to {d}"
        )
    start = time.perf_counter()
    k = min(_DEPTH, len(task.vectors))
    exact = nearest(task.questions, task.vectors, k, similarity, progress("compare in floats"))
    took = 1000 * (time.perf_counter() - start) / len(task.questions)
    yield Row("floats", None, None, 4 * d, _scores(task, exact, exact), took, 0.0)
    quantized = [_quantize(task, bits, similarity, seed, progress) for bits in second if bits]
    for length in lengths:
        began = time.perf_counter()
        plain = Compressor.fit(task.vectors, length, None, similarity, seed=seed)
        codes = plain.encode(task.vectors, progress(f"{length} bits")).codes
        took = time.perf_counter() - began
        if None in second:
            searcher = Searcher(plain, Compressed(codes, None))
            yield _measure(task, exact, searcher, f"{length} bits", None, first, took)
        for stage in quantized:
            compressor = replace(plain, quantizer=stage.quantizer)
            searcher = Searcher(compressor, Compressed(codes, stage.rows))
            name = f"{length} bits, then {stage.bits:g} bits a number"
            built = took + stage.seconds
            yield _measure(task, exact, searcher, name, stage.bits, first, built)


class _Stage(NamedTuple):
    """A second stage of all vectors, and the time that it took."""

    bits: float
    quantizer: Quantizer
    rows: QuantizedRows
    seconds: float


def _quantize(
    task: Task, bits: float, similarity: Similarity, seed: int, progress: StageProgress
) -> _Stage:
    began = time.perf_counter()
    quantizer = Quantizer.fit(sample_of(task.vectors, similarity, seed), bits, seed)
    shown = progress(f"{bits:g} bits a number")
    rows = encode_blocks(task.vectors, similarity, quantizer.encode, shown)
    return _Stage(bits, quantizer, rows, time.perf_counter() - began)


def _measure(
    task: Task,
    exact: NDArray[np.int64],
    searcher: Searcher,
    name: str,
    second: float | None,
    first: int,
    built: float,
) -> Row:
    """Ask all questions, one at a time."""
    compressor = searcher.compressor
    k = exact.shape[1]
    start = time.perf_counter()
    answers = [searcher.search(question[None], k, first).rows for question in task.questions]
    took = 1000 * (time.perf_counter() - start) / len(answers)
    scores = _scores(task, np.concatenate(answers), exact)
    return Row(name, compressor.n_bits, second, compressor.n_bytes, scores, took, built)


def nearest(
    questions: _Floats,
    vectors: Vectors,
    k: int,
    similarity: Similarity,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> NDArray[np.int64]:
    """Return the rows of the ``k`` most similar vectors of each question, by all of them in floats;
    ties are broken by row.
    """
    asked = prepare(questions, similarity)
    n = len(vectors)
    best = np.full((len(asked), k), -np.inf, np.float32)
    rows = np.zeros((len(asked), k), np.int64)
    for start in range(0, n, _ROWS):
        block = prepare(vectors[start : start + _ROWS], similarity)
        scores = asked @ block.T
        if similarity == "euclidean":
            scores = 2 * scores - np.square(block).sum(axis=1)
        places = np.broadcast_to(np.arange(start, start + len(block)), scores.shape)
        all_scores = np.hstack([best, scores])
        all_rows = np.hstack([rows, places])
        order = np.argpartition(-all_scores, k - 1, axis=1)[:, :k]
        best = np.take_along_axis(all_scores, order, axis=1)
        rows = np.take_along_axis(all_rows, order, axis=1)
        progress(min(start + _ROWS, n), n)
    order = np.lexsort((rows, -best))
    return np.take_along_axis(rows, order, axis=1)


def _scores(task: Task, found: NDArray[np.int64], exact: NDArray[np.int64]) -> Scores:
    neighbours = neighbour_recall(found[:, :_NEIGHBOURS], exact[:, :_NEIGHBOURS])
    ndcg = np.full(len(found), np.nan)
    recall = np.full(len(found), np.nan)
    for place, (name, rows) in enumerate(zip(task.question_ids, found, strict=True)):
        grades = task.judgements.get(name)
        if grades:
            answers = [task.vectors.ids[row] for row in rows.tolist()]
            ndcg[place] = ndcg_at_k(answers, grades)
            recall[place] = recall_of_relevant(answers, grades, _DEPTH)
    return Scores(neighbours, ndcg, recall)


def choose(rows: Sequence[Row], keep: float) -> Row | None:
    """Return the smallest code that is not significantly worse than the wanted share of what the
    floats are worth: of nDCG where there are judgements, else of the exact neighbours.

    None where no code is good enough.
    """
    floats, *codes = rows
    judged = not np.isnan(floats.scores.ndcg).all()
    for row in sorted(codes, key=lambda row: row.n_bytes):
        gap = row.scores.neighbours - keep
        if judged:
            gap = row.scores.ndcg - keep * floats.scores.ndcg
        if bootstrap_interval(gap).upper >= 0:
            return row
    return None


def interval_of(scores: NDArray[np.float64]) -> Interval:
    """Return mean and interval of scores in percent."""
    return Interval(*(100 * value for value in bootstrap_interval(scores)))
