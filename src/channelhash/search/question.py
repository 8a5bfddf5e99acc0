"""What a store is asked: a query, and which items may answer it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, unpack
from channelhash.errors import InputError, argument
from channelhash.search.items import Item

#: What `SearchOptions.by` and rankings call the words of items.
WORDS = "words"
# Options that are numbers -> the least that they take, and what they count.
_LEAST = {
    "k": (1, "answer"),
    "radius": (0, "bits"),
    "limit": (1, "answer"),
    "offset": (0, "answers"),
    "rerank": (1, "answer"),
    "collapse": (0, "bits"),
}


@dataclass(frozen=True)
class Query:
    """A query to a store.

    Attributes:
        code: ``(ceil(k / 8),)`` packed code; of length 0 where words alone are asked for.
        outputs: ``(k,)`` real-valued outputs of the model, whose signs are the code; None where
            only bits are known.
        modality: modality of the code, empty if unknown.
        words: what is searched for in the items' words, see `Store.search_words`.
        without: phrases that are not wanted there.
        words_coded: whether the code stands for the words, too; only an encoder of texts makes such
            ones.

    >>> Query(np.array([7], np.uint8)).outputs is None
    True
    """

    code: PackedCodes
    outputs: NDArray[np.float32] | None = None
    modality: str = ""
    words: str = ""
    without: tuple[str, ...] = ()
    words_coded: bool = True

    @classmethod
    def of_item(cls, item: Item, modality: str) -> "Query":
        """Return an item as a query by its code of a modality, and by its projection where the
        store keeps those.

        >>> Query.of_item(Item("b", {"image": np.array([7], np.uint8)}), "image").modality
        'image'
        """
        projection = item.projections.get(modality)
        return cls(
            item.codes[modality],
            None if projection is None else projection.astype(np.float32),
            modality,
        )

    def as_outputs(self, n_bits: int) -> NDArray[np.float32]:
        """Return outputs ``(n_bits,)`` that can be part of a question: 1 and -1 where only bits are
        known.

        >>> Query(np.array([0b10100000], np.uint8)).as_outputs(3).tolist()
        [1.0, -1.0, 1.0]
        """
        if self.outputs is not None:
            return self.outputs
        return np.where(unpack(self.code[None], n_bits)[0], np.float32(1), np.float32(-1))


@dataclass(frozen=True)
class SearchOptions:
    """Which items a search returns, of all answers in their one order.

    Attributes:
        k: number of answers.
        radius: instead of ``k``, all items within so many bits, inclusive.
        limit: at most so many of those within ``radius``.
        modality: modality to search; images if the store has any, else its only modality.
        where: filter that items must pass, see `channelhash.search.filters`.
        rerank: number of nearest items to reorder by asymmetric distance, see
            `channelhash.search.rank`, whether or not the store keeps projections.
        collapse: fold answers within so many bits of an earlier one into it, if their pictures are
            alike, see `Hit.duplicates`. True: within the bits that are usual for near-duplicates.
        by: what `answer` searches: ``"image"`` or ``"text"`` codes, ``"words"``, or ``"all"``
            that the store has.
        offset: number of answers to pass over: a page is a part of the order, whose first answers
            are the same for every ``k``.
        leave_out: id of an item that is no answer, such as the one that asks; with ``collapse``,
            neither are its near-duplicates, see `Hits.alike`.
        fitting: leave out what is less likely to answer, where that is known, see `Hit.fits`.

    Raises:
        InputError: a number is out of range, or ``by`` is none of these.

    >>> SearchOptions(k=5, where="label = 'dog'").radius is None
    True
    """

    k: int = 10
    radius: int | None = None
    limit: int | None = None
    modality: str | None = None
    where: str | None = None
    rerank: int | None = None
    collapse: int | bool | None = None
    by: str | None = None
    offset: int = 0
    leave_out: str | None = None
    fitting: bool = False

    def __post_init__(self) -> None:
        for option, (least, unit) in _LEAST.items():
            value = getattr(self, option)
            if value is not None and value < least:
                raise InputError(f"{argument(option)} {value}: takes at least {least} {unit}")
        if self.by not in (None, "all", "image", "text", WORDS):
            raise InputError(f"{argument('by')} {self.by}: none of all, image, text and words")

    @property
    def count(self) -> int | None:
        """Number of answers, at most; None for all.

        >>> SearchOptions(k=5, radius=3).count is None
        True
        """
        return self.k if self.radius is None else self.limit
