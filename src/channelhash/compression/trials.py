"""Trials of codes: each code length, second stage and rival is fitted, encodes all vectors and
answers all questions.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.stage import Similarity
from channelhash.compression.compressor import (
    Compressor,
    Method,
    Searcher,
    encode_blocks,
    prepare,
    sample_of,
)
from channelhash.compression.rivals import Int8Rows, nearest, round_int8, signs, similarities
from channelhash.compression.task import Lessons, Task
from channelhash.errors import InputError, argument
from channelhash.metrics.resampling import bootstrap_interval
from channelhash.metrics.retrieval import ndcg_at_k, neighbour_recall, recall_of_relevant
from channelhash.search.index import CodeIndex
from channelhash.utils.optional_imports import naming_extra
from channelhash.utils.progress import StageProgress

_Floats = NDArray[np.float32]
_Rows = NDArray[np.int64]

#: Neighbours that count in the recall of neighbours.
_NEIGHBOURS = 10
#: Answers that count in the recall of relevant documents, and of signs those that int8 orders.
_DEPTH = 100
#: Questions between two reports of progress.
_SHOWN = 50
#: Code lengths that are tried by default, as far as vectors have so many numbers.
N_BITS = (64, 128, 256)
#: Second stages that are tried by default: none, or mean bits a number.
SECOND = (None, 1, 2, 3, 4)


class Scores(NamedTuple):
    """Scores of each question: of the exact neighbours, and of judgements or NaN."""

    neighbours: NDArray[np.float64]
    ndcg: NDArray[np.float64]
    recall: NDArray[np.float64]

    @property
    def is_judged(self) -> bool:
        """Whether people have judged answers."""
        return not np.isnan(self.ndcg).all()

    @property
    def quality(self) -> NDArray[np.float64]:
        """What counts in a choice: nDCG where it is known, else the exact neighbours."""
        return self.ndcg if self.is_judged else self.neighbours

    def of(self, rows: NDArray[np.int64]) -> "Scores":
        """Return the scores of some questions."""
        return Scores(*(scores[rows] for scores in self))


@dataclass(frozen=True)
class Row:
    """What one code costs and is worth.

    Attributes:
        name: for people.
        n_bits: code length; None for floats and int8.
        second: mean bits a number of the second stage; None without one.
        n_bytes: bytes of a vector that a search reads, both stages together.
        scores: of each question.
        question_ms: milliseconds of a question, asked one at a time; of floats and int8, which are
            compared with all vectors, asked together.
        build_seconds: time to fit the code and encode all vectors.
        is_ours: whether it is a code of ours in its best search, which can be chosen.
        is_rival: whether it is what the market does.
        method: how the map of the code was fitted; None for what is no code of ours.
    """

    name: str
    n_bits: int | None
    second: float | None
    n_bytes: int
    scores: Scores
    question_ms: float
    build_seconds: float
    is_ours: bool = True
    is_rival: bool = False
    method: Method | None = None

    def as_dict(self, floats: "Row") -> dict[str, Any]:
        """Return JSON-able values, with mean and interval of each score that there is, and of its
        difference to that of the floats, question by question.
        """
        values: dict[str, Any] = {
            "name": self.name,
            "n_bits": self.n_bits,
            "second": self.second,
            "codes": self.method,
            "bytes": self.n_bytes,
            "ours": self.is_ours,
        }
        for name, scores in self.scores._asdict().items():
            if not np.isnan(scores).all():
                whole = getattr(floats.scores, name)
                values[name] = bootstrap_interval(scores)._asdict()
                values[f"{name}_difference"] = bootstrap_interval(scores - whole)._asdict()
        return values | {"question_ms": self.question_ms, "build_seconds": self.build_seconds}


class Plan(NamedTuple):
    """What is tried.

    Attributes:
        similarity: how the encoder means its vectors to be compared.
        n_bits: code lengths; empty for those of `N_BITS` that vectors have numbers for, or else as
            many bits as numbers.
        second: second stages: None, or mean bits a number.
        first: candidates that the second stage orders.
        seed: of samples, rotations, and the questions that choose.
        centred: whether the second stage keeps vectors without their mean; None to choose.
        codes: how maps are fitted, each way for each code length.
    """

    similarity: Similarity = "cosine"
    n_bits: Sequence[int] = ()
    second: Sequence[float | None] = SECOND
    first: int = 500
    seed: int = 0
    centred: bool | None = None
    codes: Sequence[Method] = ("itq",)

    def lengths(self, width: int) -> Sequence[int]:
        """Return the code lengths of vectors of ``width`` numbers.

        Raises:
            InputError: one is longer than the vectors.
        """
        lengths = self.n_bits or [length for length in N_BITS if length <= width] or [width]
        if max(lengths) > width:
            raise InputError(
                f"{argument('n_bits')} {max(lengths)}: vectors of {width} numbers have 1 to {width}"
            )
        return lengths


class Job(NamedTuple):
    """What all trials share.

    Attributes:
        task: the data.
        plan: what is tried.
        sample: vectors that codes are fitted to.
        asked: questions ``(nq, d)`` as they are asked: as `prepare` gives them, or by a map that
            was learned from pairs of other questions.
        exact: ``(nq, k)``, the most similar vectors of each.
        progress: of each stage.
    """

    task: Task
    plan: Plan
    sample: _Floats
    asked: _Floats
    exact: _Rows
    progress: StageProgress

    @property
    def k(self) -> int:
        """Answers of a question."""
        return int(self.exact.shape[1])

    def row(self, name: str, found: _Rows, n_bytes: int, **values: Any) -> Row:
        """Return the row of the answers ``(nq, k)``; ``values`` are its other attributes."""
        scores = score(self.task, found, self.exact)
        given: dict[str, Any] = {"n_bits": None, "second": None, "build_seconds": 0.0}
        return Row(name, n_bytes=n_bytes, scores=scores, **given | values)

    def answers(self, stage: str, answer: Callable[[int], _Rows]) -> tuple[list[_Rows], float]:
        """Ask all questions one at a time, each by its number; return the rows found for each, and
        milliseconds a question.
        """
        shown = self.progress(stage)
        n = len(self.asked)
        began = time.perf_counter()
        found = []
        for number in range(n):
            found.append(answer(number))
            if len(found) % _SHOWN == 0:
                shown(len(found), n)
        took = 1000 * (time.perf_counter() - began) / n
        shown(n, n)
        return found, took


def begin(task: Task, plan: Plan, progress: StageProgress) -> tuple[Job, list[Row]]:
    """Draw the sample and find the exact neighbours; return the rows of the floats, too: of
    questions as they are, and as they are asked, if that differs.
    """
    sample = sample_of(task.vectors, plan.similarity, plan.seed)
    k = min(_DEPTH, len(task.vectors))
    asked = prepare(task.questions, plan.similarity)
    own = None
    if task.lessons is not None:
        if task.questions.shape[1] == task.vectors.width:
            own = _ask_floats(task, asked, k, plan, progress)
        asked = _cross_fit(task, task.lessons, plan, progress)
    exact, took = _ask_floats(task, asked, k, plan, progress)
    job = Job(task, plan, sample, asked, exact, progress)
    n_bytes = 4 * task.vectors.width
    if task.lessons is None:
        return job, [job.row("floats", exact, n_bytes, question_ms=took, is_ours=False)]
    learned = "floats, questions learned from pairs"
    rows = [job.row(learned, exact, n_bytes, question_ms=took, is_ours=False)]
    if own is not None:
        found, own_ms = own
        rows.insert(0, job.row("floats", found, n_bytes, question_ms=own_ms, is_ours=False))
    return job, rows


def _ask_floats(
    task: Task, asked: _Floats, k: int, plan: Plan, progress: StageProgress
) -> tuple[_Rows, float]:
    """Return the exact neighbours of questions, and milliseconds a question."""
    began = time.perf_counter()
    shown = progress("compare in floats")
    found = nearest(asked, task.vectors, k, plan.similarity, shown)
    return found, 1000 * (time.perf_counter() - began) / len(found)


def _cross_fit(task: Task, lessons: Lessons, plan: Plan, progress: StageProgress) -> _Floats:
    """Return the questions that are asked, each by what other questions have taught."""
    with naming_extra("train"):
        from channelhash.compression.pairs import cross_fit
    if plan.similarity != "cosine":
        raise InputError(f"{argument('similarity')} {plan.similarity}: pairs teach cosines")
    shown = progress("learn questions from pairs")
    moved = cross_fit(lessons.questions, task.vectors, lessons.pairs, plan.seed, shown)
    return np.asarray(moved[lessons.asked])


class Code(NamedTuple):
    """A code of all vectors, without a second stage.

    Attributes:
        compressor: what made it.
        method: how its map was fitted.
        candidates: for each question the nearest rows by its outputs, best first.
        question_ms: to find these.
        build_seconds: to fit the code and encode all vectors.
        rows: by the number of different bits, and by the question's outputs.
    """

    compressor: Compressor
    method: Method
    candidates: list[_Rows]
    question_ms: float
    build_seconds: float
    rows: list[Row]


def try_code(job: Job, n_bits: int, method: Method) -> Code:
    """Fit a code, encode all vectors and ask by bits alone and by outputs."""
    began = time.perf_counter()
    similarity = job.plan.similarity
    vectors = job.task.vectors if method == "learned" else job.sample
    compressor = Compressor.fit(vectors, n_bits, None, similarity, method, job.plan.seed)
    name = _name(n_bits, method)
    compressed = compressor.encode(job.task.vectors, job.progress(f"encode {name}"))
    built = time.perf_counter() - began
    searcher = Searcher(compressor, compressed)
    first = max(job.plan.first, job.k)
    found, alone_ms = job.answers(
        f"ask {name} alone", lambda number: searcher.by_bits(job.asked[number], job.k)[0]
    )
    candidates, took = job.answers(
        f"ask {name}", lambda number: searcher.by_outputs(job.asked[number], first)[0]
    )
    answers = np.stack([rows[: job.k] for rows in candidates])
    by_outputs = job.row(
        name,
        answers,
        compressor.n_bytes,
        n_bits=n_bits,
        question_ms=took,
        build_seconds=built,
        method=method,
    )
    scores = score(job.task, np.stack(found), job.exact)
    alone = replace(
        by_outputs, name=f"{name} by distance", scores=scores, question_ms=alone_ms, is_ours=False
    )
    return Code(compressor, method, candidates, took, built, [alone, by_outputs])


def _name(n_bits: int, method: Method) -> str:
    return f"{n_bits} bits" if method == "itq" else f"{n_bits} {method} bits"


def try_second(job: Job, codes: Sequence[Code], bits: float, centred: bool) -> list[Row]:
    """Fit a second stage, encode all vectors and order the candidates of each code."""
    began = time.perf_counter()
    fitted = codes[0].compressor.with_second(job.sample, bits, centred, job.plan.seed)
    name = f"{bits:g} bit{'s'[: bits != 1]} a number"
    stored = fitted.encode_second(job.task.vectors, job.progress(f"encode {name}"))
    built = time.perf_counter() - began
    rows = []
    for code in codes:
        compressor = replace(fitted, weights=code.compressor.weights)
        whole = f"{_name(compressor.n_bits, code.method)}, then {name}"

        def order(number: int, code: Code = code) -> _Rows:
            near = code.candidates[number]
            found = fitted.similarities(job.asked[number], stored[near])
            return near[_first(found, job.k)]

        answers, took = job.answers(f"ask {whole}", order)
        rows.append(
            job.row(
                whole,
                np.stack(answers),
                compressor.n_bytes,
                n_bits=compressor.n_bits,
                second=bits,
                question_ms=code.question_ms + took,
                build_seconds=code.build_seconds + built,
                method=code.method,
            )
        )
    return rows


def _first(scores: _Floats, k: int) -> _Rows:
    """Return the places of the ``k`` largest scores, largest first."""
    return np.argsort(-scores, kind="stable")[:k]


def try_rivals(job: Job) -> list[Row]:
    """Ask by the signs of all numbers, by int8, and by signs whose first 100 int8 orders; with
    questions as they are, if these have as many numbers as the vectors.
    """
    if job.task.questions.shape[1] == job.task.vectors.width:
        job = job._replace(asked=prepare(job.task.questions, job.plan.similarity))
    by_signs, near = _try_signs(job)
    by_int8, rounded = _try_int8(job)
    similarity = job.plan.similarity

    def order(number: int) -> _Rows:
        kept = prepare(rounded[near[number]], similarity)
        return near[number][_first(similarities(job.asked[number], kept, similarity), job.k)]

    answers, took = job.answers("ask signs, then int8", order)
    both = job.row(
        f"sign, first {job.k}, then int8",
        np.stack(answers),
        by_signs.n_bytes + by_int8.n_bytes,
        question_ms=by_signs.question_ms + took,
        build_seconds=by_signs.build_seconds + by_int8.build_seconds,
        is_ours=False,
        is_rival=True,
    )
    return [by_signs, by_int8, both]


def _try_signs(job: Job) -> tuple[Row, list[_Rows]]:
    """Return the row of the signs of all numbers, and the rows found for each question."""
    began = time.perf_counter()
    vectors = job.task.vectors
    codes = encode_blocks(vectors, job.plan.similarity, signs, job.progress("encode signs"))
    built = time.perf_counter() - began
    index = CodeIndex.build(codes, vectors.width)
    asked = signs(job.asked)
    near, took = job.answers(
        "ask signs", lambda number: index.nearest(asked[number][None], job.k)[0].rows
    )
    row = job.row(
        "sign",
        np.stack(near),
        codes.shape[1],
        n_bits=vectors.width,
        question_ms=took,
        build_seconds=built,
        is_ours=False,
        is_rival=True,
    )
    return row, near


def _try_int8(job: Job) -> tuple[Row, Int8Rows]:
    """Return the row of int8, and all vectors in it."""
    began = time.perf_counter()
    similarity = job.plan.similarity
    shown = job.progress("encode int8")
    rounded = Int8Rows(encode_blocks(job.task.vectors, similarity, round_int8, shown))
    built = time.perf_counter() - began
    began = time.perf_counter()
    found = nearest(job.asked, rounded, job.k, similarity, job.progress("ask int8"))
    took = 1000 * (time.perf_counter() - began) / len(found)
    row = job.row(
        "int8",
        found,
        rounded.n_bytes,
        question_ms=took,
        build_seconds=built,
        is_ours=False,
        is_rival=True,
    )
    return row, rounded


def score(task: Task, found: NDArray[np.int64], exact: NDArray[np.int64]) -> Scores:
    """Return the scores of answers ``(nq, k)``, best first."""
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
