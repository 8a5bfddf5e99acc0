"""Whether an answer is a match: what a distance means in a store.

Some items are always the nearest ones, even to nonsense. What is near is known from questions whose kind is known: a
random sample of the store's own items asks for the others, texts by their text codes, images by their image codes.

* The distances of these questions to random items say how rare a distance is: its *match*.
* Their distances to their nearest items (themselves left out) say how near a question comes that the store has answers
  to. A question whose first answers are farther than those of all but a few of them has *nothing close*.
* A store of photographs without captions has no texts that could ask. There, texts that mean nothing do, once somebody
  has encoded them (`learn_close`): a text has something close if its answers are nearer than those of nearly all.
  Texts that mean nothing also resemble each other: what a text has in common with them counts against it, so that few
  photographs are enough.
"""

import os
import string
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, hamming_distances, pack, unit_rows
from channelhash.models.description import QueryEncoder
from channelhash.search.store import Store
from channelhash.utils.files import atomic_path
from channelhash.utils.seeds import generator

#: Items that ask, and the fewest of which a store says whether an answer is close.
_QUESTIONS, _FEWEST = 200, 100
#: Random items that they are compared with.
_ITEMS = 2000
#: Answers whose mean distance says whether they are close.
_FIRST = 10
#: Share of the store's own questions that would have nothing close.
_LOST = 0.03

# Of all bits, how many a cosine of 1 counts beside distances in bits.
_HALF = 0.5
# A reference is made anew when the number of codes has changed by more than this share.
_CHANGED = 0.1


@dataclass(frozen=True)
class _Reference:
    """What distances mean in a store, for questions of one modality to items of one.

    Attributes:
        count: number of codes when it was made.
        items: packed codes of random items.
        shares: ``(k + 1,)``: of random items, the share within each distance of a question; None where the store has
            too few items that can ask.
        limits: ``(m,)``: the largest mean distance of the first 1, 2, … m answers that are close; None likewise.
        cosine_limits: ``(m,)``: the same of 1 − cosine, where the store keeps projections; they tell nonsense better.
        common: ``(n_bits,)``: the mean direction of texts that mean nothing, where these say what is close. A text's
            cosine to it is added to distances, as a share of half the bits, and to 1 − cosine.
    """

    count: int
    items: PackedCodes
    shares: NDArray[np.float64] | None = None
    limits: NDArray[np.float64] | None = None
    cosine_limits: NDArray[np.float64] | None = None
    common: NDArray[np.float64] | None = None

    def match_shares(self, code: PackedCodes, distances: Sequence[int], n_bits: int) -> list[float]:
        """Return, for each item found, the share of random items as near or nearer; *closer than* is 1 − share.

        Where the store has too few items that can ask, the shares are those of the question itself.

        >>> items = np.array([[0], [1], [3], [7]], np.uint8)
        >>> _Reference(4, items).match_shares(np.array([0], np.uint8), [0, 2], n_bits=8)
        [0.25, 0.75]
        """
        shares = self.shares
        if shares is None:
            shares = _shares_within(hamming_distances(code[None], self.items), n_bits)
        return list(shares[list(distances)].tolist())

    def is_close(
        self,
        distances: Sequence[float],
        cosines: Sequence[float] | None = None,
        outputs: NDArray[np.floating[Any]] | None = None,
    ) -> bool | None:
        """Return whether the first answers are as near as those of the store's own questions; None if unknown.

        >>> reference = _Reference(4, np.zeros((4, 1), np.uint8), None, np.array([2.0, 3.0]))
        >>> [reference.is_close(found) for found in ([2], [2, 5], [])]
        [True, False, None]
        """
        limits, common = self.limits, self.common
        against = 0.0 if common is None or outputs is None else float(unit_rows(outputs[None])[0] @ common)
        if self.cosine_limits is not None and cosines is not None:
            limits, distances = self.cosine_limits, [1 - cosine for cosine in cosines]
        elif common is not None:
            against *= _HALF * len(common)
        if limits is None or len(distances) == 0 or (common is not None and outputs is None):
            return None
        first = sorted(distances)[: len(limits)]
        return bool(sum(first) / len(first) + against <= limits[len(first) - 1])


def _shares_within(distances: NDArray[np.integer], n_bits: int) -> NDArray[np.float64]:
    """Return the share of distances that are at most 0, 1, … ``n_bits``.

    >>> _shares_within(np.array([0, 2, 2, 3]), n_bits=3).tolist()
    [0.25, 0.25, 0.75, 1.0]
    """
    return np.cumsum(np.bincount(distances.ravel(), minlength=n_bits + 1)) / max(1, distances.size)


def _first_means(distances: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the mean of the first 1, 2, … m of ``(nq, m)`` distances, smallest first.

    >>> _first_means(np.array([[1.0, 2.0, 6.0]])).tolist()
    [[1.0, 1.5, 3.0]]
    """
    means: NDArray[np.float64] = np.cumsum(distances, axis=1) / np.arange(1, distances.shape[1] + 1)
    return means


def find_reference(store: Store, question: str, modality: str) -> _Reference | None:
    """Return what distances mean in a store; None where the store cannot say.

    It is computed from a sample that is always the same, kept, and computed again when the number of codes has changed
    by a tenth. That takes `_QUESTIONS` searches, using it microseconds.
    """
    count = store.count(modality)
    if not count:
        return None
    with _lock:
        reference = _references.setdefault(store, {}).get((question, modality))
    if reference is None or abs(count - reference.count) > _CHANGED * reference.count:
        reference = _make_reference(store, question, modality, count)
        with _lock:
            _references[store][question, modality] = reference
    return reference


def learn_close(store: Store, encoder: QueryEncoder) -> None:
    """Let a store without captions say what is close to a text, from texts that mean nothing.

    What the encoder makes of them is kept in the store's folder.
    """
    if "text" not in encoder.modalities or not _lacks_nonsense(store, "text"):
        return
    file = Path(store.model_folder or os.devnull) / f"nonsense-keys-{encoder.fingerprint()}.npy"
    try:
        outputs = np.load(file)
    except (OSError, ValueError, EOFError):  # not there, or damaged
        outputs = np.asarray(encoder.outputs("text", _nonsense_texts()), np.float32)
        if store.writable:
            with suppress(OSError), atomic_path(file) as temporary, open(temporary, "wb") as opened:
                np.save(opened, outputs)
    _learn_nonsense(store, "text", outputs)


def _nonsense_texts(n: int = _QUESTIONS) -> list[str]:
    """Return ``n`` texts that mean nothing, always the same ones: in turn random letters and keys side by side.

    >>> _nonsense_texts(2) == _nonsense_texts(2), len(_nonsense_texts())
    (True, 200)
    """
    drawn = generator(0, "nonsense")
    letters, rows = list(string.ascii_lowercase), ["qwertyuiop", "asdfghjkl", "zxcvbnm"]
    texts = []
    for place in range(n):
        words = ["".join(drawn.choice(letters, size)) for size in drawn.integers(3, 10, 3)]
        if place % 2:
            chosen = drawn.choice(rows, drawn.integers(1, 5))
            words = [row[drawn.integers(5) :][: drawn.integers(3, 7)] for row in chosen]
        texts.append(" ".join(words))
    return texts


def _learn_nonsense(store: Store, question: str, outputs: NDArray[np.floating[Any]]) -> None:
    """Let a store without codes of a modality say what is close to questions of that modality."""
    with _lock:
        _nonsense.setdefault(store, {})[question] = outputs
        for key in [key for key in _references.get(store, {}) if key[0] == question]:
            del _references[store][key]


_nonsense: "WeakKeyDictionary[Store, dict[str, NDArray[np.floating[Any]]]]" = WeakKeyDictionary()
_references: "WeakKeyDictionary[Store, dict[tuple[str, str], _Reference]]" = WeakKeyDictionary()
_lock = Lock()


def _make_reference(store: Store, question: str, modality: str, count: int) -> _Reference:
    ids, items = store.sample(_ITEMS, modality)
    names, questions = store.sample(_QUESTIONS, question) if question in store.modalities else ([], items)
    # Of a few items, many would be a question's only answers.
    if len(names) < _FEWEST or count < _FEWEST:
        return _Reference(count, items, None, *_nonsense_limits(store, question, modality))
    foreign = np.array(names)[:, None] != np.array(ids)
    shares = _shares_within(hamming_distances(questions, items)[foreign], store.n_bits or 0)
    answers = store.search(questions, _FIRST + 1, modality)
    limits, cosine_limits = _limits(names, answers.ids, answers.distances), None
    if store.projected:
        outputs = np.stack([item.projections[question] for item in store.get(names)])
        scored = store.search_projections(outputs, _FIRST + 1, modality)
        cosine_limits = _limits(names, scored.ids, [1 - scores for scores in scored.scores])
    return _Reference(count, items, shares, limits, cosine_limits)


def _limits(
    names: Sequence[str], ids: Sequence[Sequence[str]], distances: Sequence[NDArray[Any]]
) -> NDArray[np.float64]:
    """Return the mean distance of the first 1, 2, … answers to all but a few questions, items that ask left out."""
    nearest = [
        values[np.array(others) != name][:_FIRST] for name, others, values in zip(names, ids, distances, strict=True)
    ]
    limits: NDArray[np.float64] = np.quantile(_first_means(np.array(nearest)), 1 - _LOST, axis=0, method="higher")
    return limits


def _lacks_nonsense(store: Store, question: str) -> bool:
    """Return whether `learn_close` would let a store say what is close to questions of a modality."""
    counts = [store.count(modality) for modality in {question, *store.modalities}]
    few = any(count is not None and count < _FEWEST for count in counts)
    return few and question not in _nonsense.get(store, {})


def _nonsense_limits(
    store: Store, question: str, modality: str
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Return limits in bits and in 1 − cosine that nearly all texts that mean nothing exceed, and their mean direction.

    All three are None where no such texts are known; the second also where the store keeps no projections.
    """
    outputs = _nonsense.get(store, {}).get(question)
    if outputs is None:
        return None, None, None
    units = unit_rows(outputs)
    common = units.mean(axis=0)
    common /= np.linalg.norm(common) or 1
    against = units @ common[:, None]
    answers = store.search(pack(binarize(outputs)), _FIRST, modality)
    bits = _limits_below(_first_means(np.array(answers.distances)) + _HALF * (store.n_bits or 0) * against)
    if not store.projected:
        return bits, None, common
    scores = store.search_projections(outputs, _FIRST, modality).scores
    return bits, _limits_below(_first_means(1 - np.array(scores)) + against), common


def _limits_below(means: NDArray[np.float64]) -> NDArray[np.float64]:
    # An equal distance is not close.
    limits: NDArray[np.float64] = np.nextafter(np.quantile(means, _LOST, axis=0, method="lower"), -np.inf)
    return limits
