"""How good codes of vectors are: every code and second stage beside the exact search in floats, and
beside what the market does.

Of each are measured the bytes of a vector, the share of the exact neighbours that it finds, and
where people have judged answers how well it ranks these. All figures are means over questions, with
bootstrap intervals; two rows are compared question by question.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.stage import Similarity
from channelhash.compression.compressor import Method, prepare
from channelhash.compression.rivals import similarities
from channelhash.compression.task import Task
from channelhash.compression.trials import (
    Code,
    Job,
    Plan,
    Row,
    begin,
    try_code,
    try_rivals,
    try_second,
)
from channelhash.data.vectors import Vectors
from channelhash.metrics.resampling import Interval, bootstrap_interval
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]
_Rows = NDArray[np.int64]

#: Questions from which on half of them choose and the others are reported.
_FEWEST_HALVED = 40
#: `question_distance` from which on ITQ finds more than learned codes, as measured on data sets of
#: four encoders: docs/how-to/compress.md.
_FAR_QUESTIONS = 0.4
#: Vectors, and questions, that are compared with the others at most.
_ASKED = 1000
#: Of this share of pairs of vectors the two are farther from each other.
_PAIRS = 0.95
#: Share of questions that are farther from all vectors than such pairs, from which on they may be
#: of another encoder; of five collections with their own questions it is 0.09 at most, and with
#: those of another encoder 1.
_FAR = 0.9
#: How far from 1 the length of a vector of unit length may be, by rounding, and that of one whose
#: length is near 1 by chance.
_UNIT = 0.001
_NEAR_UNIT = 0.05
#: Share of vectors from which on their lengths are worth a word.
_SOME = 0.01


class Centring(NamedTuple):
    """What was measured to choose the vectors that the second stage keeps: as they are, or without
    their mean.

    Attributes:
        name: of the code that was measured.
        is_judged: whether by nDCG or by the exact neighbours.
        plain: with the vectors as they are.
        centred: without their mean.
        difference: of the two, question by question.
        questions: number of questions.
        is_apart: whether these are others than the reported ones.
    """

    name: str
    is_judged: bool
    plain: Interval
    centred: Interval
    difference: Interval
    questions: int
    is_apart: bool

    @property
    def is_better(self) -> bool:
        """Whether vectors without their mean are significantly better; the encoder's own ranking
        stays otherwise.
        """
        return self.difference.lower > 0

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able values."""
        intervals = {name: getattr(self, name)._asdict() for name in _KINDS}
        return {**self._asdict(), **intervals}


_KINDS = ("plain", "centred", "difference")


class Proof(NamedTuple):
    """What codes are worth.

    Attributes:
        rows: the floats, then codes with each second stage, then what the market does.
        n_questions: of which all figures are means.
        is_centred: whether second stages keep vectors without their mean.
        centring: why; None where that was not measured.
        notes: what a person should know of the data, a line each.
    """

    rows: list[Row]
    n_questions: int
    is_centred: bool
    centring: Centring | None
    notes: list[str]


def prove(
    task: Task, plan: Plan | None = None, progress: StageProgress = no_stage_progress
) -> Proof:
    """Measure floats, every code length with every second stage, and what the market does.

    Where the plan leaves open whether second stages keep vectors without their mean, both are
    measured with the last code and second stage, and half of the questions choose for all. The
    others are reported. Of fewer than 40 questions all do both.

    Raises:
        InputError: a code length is longer than the vectors, or all vectors are equal.
    """
    plan = plan or Plan()
    lengths = plan.lengths(task.vectors.width)
    job, floats = begin(task, plan, progress)
    methods, method_note = _order_methods(job)
    codes = [try_code(job, length, method) for length in lengths for method in methods]
    stages, centring = _try_stages(job, codes)
    rows = [*floats, *_in_order(codes, stages, plan), *try_rivals(job)]
    reported = np.arange(len(job.asked))
    if centring is not None:
        reported = _halves(job)[1]
    rows = [replace(row, scores=row.scores.of(reported)) for row in rows]
    is_centred = bool(plan.centred) if centring is None else centring.is_better
    notes = [
        *task.notes,
        _lesson_note(task),
        method_note,
        _foreign_note(job),
        _length_note(task.vectors, plan.similarity),
    ]
    return Proof(rows, len(reported), is_centred, centring, list(filter(None, notes)))


def _in_order(codes: Sequence[Code], stages: Sequence[Sequence[Row]], plan: Plan) -> Iterator[Row]:
    """Yield the rows of each code: its bits alone, then with each second stage."""
    for place, code in enumerate(codes):
        if None in plan.second:
            yield from code.rows
        for stage in stages:
            yield stage[place]


def _try_stages(job: Job, codes: Sequence[Code]) -> tuple[list[list[Row]], Centring | None]:
    """Return the rows of each second stage, a row a code, and how their centring was chosen."""
    stages = [bits for bits in job.plan.second if bits]
    if not stages:
        return [], None
    *others, last = stages
    is_centred = bool(job.plan.centred)
    ends = try_second(job, codes, last, is_centred)
    centring = None
    if job.plan.centred is None and job.plan.similarity != "euclidean":  # distances stay the same
        moved = try_second(job, codes, last, centred=True)
        centring = _compare(job, ends[-1], moved[-1])
        is_centred = centring.is_better
        ends = moved if is_centred else ends
    return [*(try_second(job, codes, bits, is_centred) for bits in others), ends], centring


def _compare(job: Job, plain: Row, moved: Row) -> Centring:
    """Compare a code with second stages of vectors with and without their mean, by the questions
    that choose.
    """
    choosing, reported = _halves(job)
    before = plain.scores.of(choosing).quality
    after = moved.scores.of(choosing).quality
    return Centring(
        plain.name,
        plain.scores.is_judged,
        bootstrap_interval(before),
        bootstrap_interval(after),
        bootstrap_interval(after - before),
        len(choosing),
        is_apart=len(reported) < len(job.asked),
    )


def _halves(job: Job) -> tuple[_Rows, _Rows]:
    """Return the questions that choose, and those that are reported."""
    n = len(job.asked)
    if n < _FEWEST_HALVED:
        return np.arange(n), np.arange(n)
    drawn = generator(job.plan.seed, "questions that choose").permutation(n)
    return np.sort(drawn[: n // 2]), np.sort(drawn[n // 2 :])


def _order_methods(job: Job) -> tuple[Sequence[Method], str | None]:
    """Return how codes are fitted, what is likely to find most first, and a note on that."""
    methods = job.plan.codes
    if not {"itq", "learned"} <= set(methods):
        return methods, None
    distance = question_distance(job.sample, job.asked, job.plan.similarity, job.plan.seed)
    are_near = distance < _FAR_QUESTIONS
    first = "learned" if are_near else "itq"
    nearness = "as near" if are_near else "not as near"
    note = f"{first} codes are expected to find more: questions are {nearness} to vectors as these"
    return sorted(methods, key=lambda method: method != first), f"{note} are to each other"


def question_distance(
    sample: _Floats, questions: _Floats, similarity: Similarity, seed: int = 0
) -> float:
    """Return how much nearer vectors are to their nearest other one than questions to theirs, in
    standard deviations of the similarity of two vectors; of 1,000 of each at most.
    """
    drawn = generator(seed, "vectors that ask").permutation(len(sample))[:_ASKED]
    scores = similarities(sample[drawn], sample, similarity)
    usual = scores.std()
    scores[np.arange(len(drawn)), drawn] = -np.inf
    asked = similarities(questions[:_ASKED], sample, similarity).max(axis=1)
    return float((scores.max(axis=1).mean() - asked.mean()) / usual)


def _lesson_note(task: Task) -> str | None:
    """Return what questions were learned from."""
    if task.lessons is None:
        return None
    pairs = task.lessons.pairs
    return (
        f"questions are learned from {len(pairs.questions):,} pairs of "
        f"{len(np.unique(pairs.questions)):,} questions, each from those of other questions alone "
        "(five folds)"
    )


def _foreign_note(job: Job) -> str | None:
    """Return a warning where nearly all questions are farther from every vector than most vectors
    are from each other.
    """
    if job.task.held_out or job.task.lessons is not None:  # which turn them to the vectors
        return None
    similarity = job.plan.similarity
    drawn = generator(job.plan.seed, "pairs of vectors").permutation(len(job.sample))
    pairs = _similarities_of(job.sample[drawn], job.sample[np.roll(drawn, 1)], similarity)
    usual = np.quantile(pairs, _PAIRS)
    best = prepare(job.task.vectors[job.exact[:, 0]], similarity)
    far = int((_similarities_of(job.asked, best, similarity) < usual).sum())
    if far < _FAR * len(best):
        return None
    return (
        f"{far:,} of {len(best):,} questions are farther from every vector than 1 in 20 pairs of "
        "vectors from each other; questions and vectors may be of two encoders"
    )


def _similarities_of(first: _Floats, second: _Floats, similarity: Similarity) -> _Floats:
    """Return the similarity of each pair ``(n,)`` of prepared vectors."""
    if similarity == "euclidean":
        return np.asarray(-np.square(first - second).sum(axis=1))
    return np.asarray((first * second).sum(axis=1))


def _length_note(vectors: Vectors, similarity: Similarity) -> str | None:
    """Return a warning where some vectors were normalised and others not, which only cosines do not
    mind.
    """
    if similarity == "cosine":
        return None
    lengths = np.concatenate([np.linalg.norm(block, axis=1) for block in vectors.blocks()])
    off = np.abs(lengths - 1)
    n_unit = int((off < _UNIT).sum())
    n_near = int((off < _NEAR_UNIT).sum()) - n_unit
    n_others = len(lengths) - n_unit
    if min(n_unit, n_others) < _SOME * len(lengths) or n_near > n_unit:
        return None
    return (
        f"{n_unit:,} vectors have length 1, {n_others:,} have not: by {similarity} these are "
        "compared by their lengths, too; cosine ignores them"
    )


def choose(rows: Sequence[Row], keep: float) -> Row | None:
    """Return the smallest code of ours that is not significantly worse than the wanted share of
    what the floats are worth: of nDCG where there are judgements, else of the exact neighbours.

    None where no code is good enough.
    """
    floats, *others = rows
    codes = [row for row in others if row.is_ours]
    for row in sorted(codes, key=lambda row: row.n_bytes):
        gap = row.scores.quality - keep * floats.scores.quality
        if bootstrap_interval(gap).upper >= 0:
            return row
    return None
