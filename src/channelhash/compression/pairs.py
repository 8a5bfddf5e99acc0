"""Learn from pairs of a question and a document, such as clicks or judgements, how questions are to
be asked: a linear map of their vectors.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from channelhash.channels import unit_rows
from channelhash.compression.compressor import prepare
from channelhash.compression.learning import cosine_schedule
from channelhash.compression.rivals import VectorRows
from channelhash.compression.task import Pairs
from channelhash.losses.listwise import cross_entropy
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]
_Rows = NDArray[np.int64]

#: Batches in all, and the first learning rate, which falls as a cosine.
_STEPS = 100
_RATE = 0.003
#: Scale of the cosines of questions and documents.
_SCALE = 20.0
#: Weight, over the number of questions, of the squared change of the map.
_DECAY = 8.0
#: Questions, and documents beside those of their pairs, in a batch.
_ASKED = 256
_OTHERS = 4096
#: Parts of the questions, each of which is asked by what the others have taught.
FOLDS = 5


def learn_question_map(
    questions: _Floats, vectors: VectorRows, pairs: Pairs, seed: int = 0
) -> _Floats:
    """Learn M ``(d_q, d)``: a question q is asked as q M, which is near the documents of its pairs.

    M minimises the cross-entropy of `ListwiseLoss`, of the shares of a question's pairs and of the
    softmax of 20 ⟨q M, x⟩ over the documents x of a batch, plus 8 ‖M − M_0‖² over the number of
    questions. M_0 is the unit matrix where questions and documents have one encoder, and otherwise
    the ridge regression of documents on their questions. Vectors are compared by cosine.

    Args:
        questions: ``(nq, d_q)``.
        vectors: ``(n, d)``, of the documents.
        pairs: of rows of both.
        seed: of the batches.

    >>> random = np.random.default_rng(0)
    >>> vectors = np.eye(4, dtype=np.float32)
    >>> rows = np.arange(4)
    >>> pairs = Pairs(rows, rows[::-1], np.ones(4, np.float32))  # the opposite one is meant
    >>> learned = learn_question_map(vectors, vectors, pairs)
    >>> bool((vectors @ learned)[0, 3] > 0)
    True
    """
    questions = prepare(questions, "cosine")
    start = _first_question_map(questions, vectors, pairs)
    change = torch.zeros(start.shape, requires_grad=True)
    initial = torch.from_numpy(start)
    optimizer = torch.optim.Adam([change])
    schedule = cosine_schedule(optimizer, _RATE, _STEPS)
    random = generator(seed, "batches of pairs")
    known = np.unique(pairs.questions)
    for _ in range(_STEPS):
        asked, documents, relevance = _draw_pairs(known, len(vectors), pairs, random)
        moved = unit_rows(torch.from_numpy(questions[asked]) @ (initial + change))
        answers = torch.from_numpy(prepare(vectors[documents], "cosine"))
        value = cross_entropy(_SCALE * moved @ answers.T, torch.from_numpy(relevance))
        value = value + _DECAY / len(known) * change.square().sum()
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return np.asarray((initial + change).detach().numpy(), np.float32)


def _first_question_map(questions: _Floats, vectors: VectorRows, pairs: Pairs) -> _Floats:
    """Return M_0."""
    width = questions.shape[1]
    documents = prepare(vectors[pairs.documents], "cosine")
    if width == documents.shape[1]:
        return np.eye(width, dtype=np.float32)
    asked = questions[pairs.questions]
    products = asked.T @ asked
    ridge = np.eye(width) * np.trace(products) / width
    start = np.linalg.solve(products + ridge, asked.T @ documents)
    return np.asarray(start, np.float32)


def _draw_pairs(
    known: _Rows, n: int, pairs: Pairs, random: np.random.Generator
) -> tuple[_Rows, _Rows, _Floats]:
    """Draw rows of questions and documents, and their relevance ``(questions, documents)``."""
    asked = np.sort(random.permutation(known)[:_ASKED])
    kept = np.isin(pairs.questions, asked)
    others = random.choice(n, min(_OTHERS, n), replace=False)
    documents = np.union1d(pairs.documents[kept], others)
    relevance = np.zeros((len(asked), len(documents)), np.float32)
    rows = np.searchsorted(asked, pairs.questions[kept])
    columns = np.searchsorted(documents, pairs.documents[kept])
    relevance[rows, columns] = pairs.weights[kept]
    return asked, documents, relevance


def cross_fit(
    questions: _Floats,
    vectors: VectorRows,
    pairs: Pairs,
    seed: int = 0,
    progress: Progress = no_progress,
) -> _Floats:
    """Return questions ``(nq, d)`` as they are asked, each by a map that was learned from pairs of
    other questions alone: of those outside its fold of five. Two questions or more have pairs.
    """
    rows = prepare(questions, "cosine")
    known = np.unique(pairs.questions)
    folds = np.arange(len(rows)) % FOLDS
    folds[known] = generator(seed, "folds of questions").permutation(len(known)) % FOLDS
    moved = np.empty((len(rows), np.asarray(vectors[:1]).shape[1]), np.float32)
    for fold in range(FOLDS):
        held = folds == fold
        moved[held] = rows[held] @ learn_question_map(rows, vectors, pairs.of(~held), seed)
        progress(fold + 1, FOLDS)
    return prepare(moved, "cosine")
