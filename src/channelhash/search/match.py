"""What a distance means in a store: whether an answer is a match.

Some items are always nearest, even to nonsense. To learn what near means, a random sample of the
store's own items searches for the others: texts with their text codes, images with their image
codes.

* The distances of this sample to random items say how rare a distance is: its *match*.
* The distances to their nearest items, themselves left out, say how near answers are to questions
  that the store can answer. If the first answers to a question are farther than those of nearly all
  of the sample, it has *nothing close*.
* If the encoder has learned what fits, it gives the probability that an image answers a text. This
  depends on their similarity and on the number of words: an image may resemble a long text and
  still lack one of its things. It is less where the text's outputs are small, as those of nonsense
  are. A question without an answer that fits has nothing close.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.models.description import read_description
from channelhash.models.photo import read_fits
from channelhash.search.question import Query
from channelhash.search.store import Store
from channelhash.text.words import count_words

#: Probability from which an answer counts as one that fits. More would hide most images of what a
#: word names, less would show answers to nonsense (docs/reference/results/photo-encoder.md).
FITS = 0.15
#: Number of bits -> root mean square of a text's outputs below which it may be nonsense: of 400
#: made-up texts 82 to 88 % are, of 642 other questions 6 to 8 %.
_CLEAR = {64: 3.4, 128: 3.15, 256: 2.9}
#: How likely such a text is understood.
_UNCLEAR = 0.375
#: Items in the sample that searches for the others.
_QUESTIONS = 200
#: The smallest sample from which a store can say whether an answer is close.
_FEWEST = 100
#: Random items that the sample is compared with.
_ITEMS = 2000
#: First answers whose mean distance says whether they are close.
NEAREST = 10
#: Share of the sample that has nothing close.
_LOST = 0.03
#: Change of the number of codes, as a share, after which a reference is computed again.
_CHANGED = 0.1
#: Probability from which an answer is likely to fit: as likely as not. Below, that is possible.
LIKELY = 0.5


def doubt(fit: float | None) -> int:
    """Return how doubtful a probability to fit is: 0 for likely or unknown, 1 for possible, 2 for
    less.

    >>> [doubt(fit) for fit in (None, 0.9, 0.4, 0.1)]
    [0, 0, 1, 2]
    """
    return 0 if fit is None else (fit < LIKELY) + (fit < FITS)


@dataclass(frozen=True)
class _Reference:
    """What distances mean in a store, between questions of one modality and items of one.

    Attributes:
        count: number of codes when the reference was made.
        items: packed codes of random items.
        shares: ``(n_bits + 1,)``: the share of random items within each distance of a question;
            None if the sample is too small.
        limits: ``(m,)``: the largest mean distance of the first 1, 2, … m answers that are close;
            None if the sample is too small.
        cosine_limits: ``(m,)``: the limits of 1 − cosine, which detect nonsense better; None if the
            store keeps no projections.
        fit: weights of 1, the cosine, its square and the binary logarithm of the number of words
            in the logit of the probability that an image answers a text; None if unknown.
    """

    count: int
    items: PackedCodes
    shares: NDArray[np.float64] | None = None
    limits: NDArray[np.float64] | None = None
    cosine_limits: NDArray[np.float64] | None = None
    fit: Sequence[float] | None = None

    def match_shares(self, code: PackedCodes, distances: Sequence[int], n_bits: int) -> list[float]:
        """Return, for each distance, the share of random items that are at least as near.

        If the sample is too small, the shares are those of the question itself.

        >>> items = np.array([[0], [1], [3], [7]], np.uint8)
        >>> _Reference(4, items).match_shares(np.array([0], np.uint8), [0, 2], n_bits=8)
        [0.25, 0.75]
        """
        shares = self.shares
        if shares is None:
            shares = _shares_within(hamming_distances(code[None], self.items), n_bits)
        return list(shares[list(distances)].tolist())

    def is_close(
        self, distances: Sequence[float], cosines: Sequence[float] | None = None
    ) -> bool | None:
        """Return whether the first answers are as near as those of the sample; None if unknown.

        >>> reference = _Reference(4, np.zeros((4, 1), np.uint8), None, np.array([2.0, 3.0]))
        >>> [reference.is_close(found) for found in ([2], [2, 5], [])]
        [True, False, None]
        """
        limits = self.limits
        if self.cosine_limits is not None and cosines is not None:
            limits = self.cosine_limits
            distances = [1 - cosine for cosine in cosines]
        if limits is None or len(distances) == 0:
            return None
        first = sorted(distances)[: len(limits)]
        return bool(sum(first) / len(first) <= limits[len(first) - 1])

    def fits(self, cosines: Sequence[float], n_words: float) -> list[float] | None:
        """Return the probability that images with these cosines answer a text; None if unknown.

        >>> reference = _Reference(4, np.zeros((4, 1), np.uint8), fit=[-3.0, 2.0, 2.0, -0.5])
        >>> reference.fits([1.0], n_words=4)
        [0.5]
        """
        if self.fit is None:
            return None
        logits = fit_inputs(cosines, n_words) @ np.asarray(self.fit)
        return list((1 / (1 + np.exp(-logits))).tolist())


class Judge:
    """Judges what distances to one query mean in a store.

    Args:
        store: the store that is searched.
        query: the query.
        modality: modality of the codes that are searched.

    Attributes:
        knows_fit: whether `fits` can be asked.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = {"image": np.array([[0], [7]], np.uint8)}
    >>> store = open_codes(ch.CodeSet(["a", "b"], codes, None, n_bits=8))
    >>> Judge(store, Query(np.array([0], np.uint8)), "image").matches([0, 3])
    [0.5, 1.0]
    """

    def __init__(self, store: Store, query: Query, modality: str) -> None:
        self._query = query
        self._n_bits = store.n_bits or 0
        self._reference: _Reference | None = None
        if len(query.code):
            self._reference = find_reference(store, query.modality, modality)
        is_fitted = self._reference is not None and self._reference.fit is not None
        has_outputs = query.outputs is not None and store.projected
        self.knows_fit = is_fitted and has_outputs and bool(query.words)

    def fits(self, cosines: Sequence[float]) -> list[float]:
        """Return the probability that items with these cosines fit; only if `knows_fit`."""
        assert self._reference is not None
        assert self._query.outputs is not None
        fits = self._reference.fits(cosines, count_words(self._query.words)) or []
        share = understood_shares(self._query.outputs[: self._n_bits])
        return [float(share * fit) for fit in fits]

    def matches(self, distances: Sequence[int]) -> Sequence[float | None]:
        """Return, for each distance, the share of random items that are at least as near; None if
        the store cannot say.
        """
        if self._reference is None:
            return [None] * len(distances)
        return self._reference.match_shares(self._query.code, distances, self._n_bits)

    def is_close(
        self, distances: Sequence[float], cosines: Sequence[float] | None = None
    ) -> bool | None:
        """Return whether the nearest items are as near as those of the sample; None if unknown."""
        if self._reference is None:
            return None
        return self._reference.is_close(distances, cosines)


def fit_inputs(cosines: ArrayLike, n_words: ArrayLike) -> NDArray[np.float64]:
    """Return what the probability that an image answers a text depends on, ``(n, 4)``.

    >>> fit_inputs([0.5], 8).tolist()
    [[1.0, 0.5, 0.25, 3.0]]
    """
    cosine = np.asarray(cosines, np.float64)
    words = np.broadcast_to(np.log2(n_words), cosine.shape)
    return np.stack([np.ones_like(cosine), cosine, cosine**2, words], axis=-1)


def understood_shares(outputs: ArrayLike) -> NDArray[np.float64]:
    """Return how likely texts with outputs ``(…, k)`` are understood, ``(…)``: what is not has no
    answers.

    >>> understood_shares([[4.0] * 64, [1.0] * 64]).tolist()
    [1.0, 0.375]
    """
    outputs = np.asarray(outputs, np.float64)
    strength = np.sqrt(np.square(outputs).mean(axis=-1))
    return np.where(strength < _CLEAR[outputs.shape[-1]], _UNCLEAR, 1.0)


def _shares_within(distances: NDArray[np.integer], n_bits: int) -> NDArray[np.float64]:
    """Return the share of distances that are at most 0, 1, … ``n_bits``.

    >>> _shares_within(np.array([0, 2, 2, 3]), n_bits=3).tolist()
    [0.25, 0.25, 0.75, 1.0]
    """
    return np.cumsum(np.bincount(distances.ravel(), minlength=n_bits + 1)) / max(1, distances.size)


def find_reference(store: Store, question: str, modality: str) -> _Reference | None:
    """Return what distances mean in a store; None if the store cannot say.

    It is computed from a fixed sample by `_QUESTIONS` searches, and kept until the number of codes
    has changed by a tenth. Using it takes microseconds.
    """
    count = store.count(modality)
    if not count:
        return None
    reference: _Reference | None = store.references.get((question, modality))
    if reference is None or abs(count - reference.count) > _CHANGED * reference.count:
        reference = store.references[question, modality] = _make_reference(
            store, question, modality, count
        )
    return reference


def _make_reference(store: Store, question: str, modality: str, count: int) -> _Reference:
    ids, items = store.sample(_ITEMS, modality)
    reference = _Reference(count, items)
    if (question, modality) == ("text", "image"):
        reference = replace(reference, fit=_find_fit(store))
    if question not in store.modalities:
        return reference
    names, questions = store.sample(_QUESTIONS, question)
    # Among a few items, many would be the only answers to a question.
    if min(len(names), count) < _FEWEST:
        return reference
    others = np.array(names)[:, None] != np.array(ids)
    answers = store.search(questions, NEAREST + 1, modality)
    return replace(
        reference,
        shares=_shares_within(hamming_distances(questions, items)[others], store.n_bits or 0),
        limits=_limits(names, answers.ids, answers.distances),
        cosine_limits=_cosine_limits(store, names, question, modality) if store.projected else None,
    )


def _cosine_limits(
    store: Store, names: Sequence[str], question: str, modality: str
) -> NDArray[np.float64] | None:
    """Return the limits of 1 − cosine; None if too many of the sample were deleted meanwhile."""
    items = store.get(names, missing_ok=True)
    queries = [
        Query.of_item(item, question, store.stage) for item in items if question in item.codes
    ]
    asking = [item.id for item in items if question in item.codes]
    outputs = [query.outputs for query in queries if query.outputs is not None]
    if len(outputs) < max(len(asking), _FEWEST):
        return None
    scored = store.search_projections(np.stack(outputs), NEAREST + 1, modality, asked=question)
    return _limits(asking, scored.ids, [1 - cosines for cosines in scored.keys])


def _find_fit(store: Store) -> Sequence[float] | None:
    """Return what the encoder of a store has learned of what fits; None if it has not."""
    architecture = described_fit(store).get("architecture", {})
    if (architecture.get("encoder"), architecture.get("codes")) != ("photo", "learned"):
        return None
    corrected = store.stage is not None and store.stage.bank is not None
    return read_fits(corrected).get(str(store.n_bits))


def described_fit(store: Store) -> dict[str, Any]:
    """Return the description of a store's own model if it was fitted to its codes; else {}."""
    if store.model_folder is None:
        return {}
    file = store.model_folder / "model" / "config.json"
    description = read_description(file) if file.exists() else {}
    return description if description.get("name") == "fitted" else {}


def _limits(
    names: Sequence[str], ids: Sequence[Sequence[str]], distances: Sequence[NDArray[Any]]
) -> NDArray[np.float64]:
    """Return the largest mean distance of the first 1, 2, … answers to nearly all of the sample.

    Items are left out of the answers to themselves.
    """
    answers = zip(names, ids, distances, strict=True)
    nearest = np.array(
        [values[np.array(others) != name][:NEAREST] for name, others, values in answers]
    )
    means = np.cumsum(nearest, axis=1) / np.arange(1, nearest.shape[1] + 1)
    limits: NDArray[np.float64] = np.quantile(means, 1 - _LOST, axis=0, method="higher")
    return limits
