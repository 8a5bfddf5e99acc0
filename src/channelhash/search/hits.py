"""Find the items of a store that are nearest to a query, and what is known of them.

Items are ranked by their codes, and by all that is known beside these:

* A question of which the model's outputs are known, to a store with projections: in two stages, by score.
* To a store without, and within a radius: by distance, and equal distances by how sure the model was of the bits that
  differ (`Store.search_surest`).
* A question of which only bits are known: by distance.

What is equal by all that is in the order of ids.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances
from channelhash.errors import InputError
from channelhash.search.duplicates import alike, read_copy
from channelhash.search.items import Value
from channelhash.search.match import find_reference, is_close, match_shares
from channelhash.search.rank import FIRST, rerank
from channelhash.search.store import Item, Store
from channelhash.utils.image_grid import Cell, bits, write_contact_sheet


class RankedCodes(NamedTuple):
    """Items, best first.

    Attributes:
        ids: the items' ids.
        distances: number of bits in which each item's code differs from the question's.
        keys: what they are ordered by, ascending; items of equal keys are equally good.

    >>> RankedCodes(["a"], [3], [3.0]).ids
    ['a']
    """

    ids: list[str]
    distances: list[int]
    keys: list[float]


def rank_codes(
    store: Store,
    code: PackedCodes,
    outputs: NDArray[Any] | None,
    count: int | None,
    radius: int | None = None,
    modality: str | None = None,
    where: str | None = None,
) -> RankedCodes:
    """Return the best ``count`` items, or of those within ``radius`` bits the best ``count`` or all.

    Args:
        store: searched.
        code: ``(ceil(n_bits / 8),)`` of the question.
        outputs: ``(n_bits,)``, whose signs the code is; None where they are not known.
        count: None only with a radius.
        radius, modality, where: see `Store.search_radius`.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[64], [128]], np.uint8)}, None, n_bits=2))
    >>> code, outputs = np.array([192], np.uint8), np.array([0.9, 0.1])
    >>> rank_codes(store, code, None, count=2).ids, rank_codes(store, code, outputs, count=2).ids
    (['a', 'b'], ['b', 'a'])
    """
    if outputs is not None and store.projected and radius is None and count is not None:
        scored = store.search_projections(outputs[None], count, modality, where)
        return RankedCodes(scored.ids[0], scored.distances[0].tolist(), (-scored.scores[0]).tolist())
    if outputs is not None:
        found = store.search_surest(outputs[None], count, modality, where, radius)
        return RankedCodes(found.ids[0], found.distances[0].tolist(), found.keys[0].tolist())
    if radius is not None:
        answers = store.search_radius(code[None], radius, modality, where, count)
    else:
        answers = store.search(code[None], count or FIRST, modality, where)
    distances = answers.distances[0].tolist()
    return RankedCodes(answers.ids[0], distances, distances)


def _fold(
    codes: PackedCodes, radius: int, most: int | None = None, same: Callable[[int, int], bool] = lambda one, other: True
) -> dict[int, list[int]]:
    """Fold each code into the first earlier one within ``radius`` bits that is not folded itself.

    Args:
        codes: ``(n, b)`` packed codes, best answer first.
        radius: in bits, inclusive.
        most: number of codes that stay, at most; others are left out.
        same: whether two places may be near-duplicates; asked of those within the radius only.

    Returns:
        Place of each code that stays -> places of the codes that were folded into it. Unlike in a group of duplicates,
        all of these are within the radius. O(n m) for the m that stay.

    >>> _fold(np.array([[0], [255], [1], [3], [254]], np.uint8), radius=1)
    {0: [2], 1: [4], 3: []}
    """
    folded: dict[int, list[int]] = {}
    for place in range(len(codes)):
        stay = list(folded)
        near = np.flatnonzero(hamming_distances(codes[place : place + 1], codes[stay])[0] <= radius).tolist()
        first = next((stay[other] for other in near if same(stay[other], place)), None)
        if first is not None:
            folded[first].append(place)
        elif most is None or len(folded) < most:
            folded[place] = []
    return folded


# Answers that are looked at, at most, to find enough that are no near-duplicates.
_MOST = 10_000


@dataclass(frozen=True)
class Query:
    """A query to a store.

    Attributes:
        code: ``(ceil(k / 8),)`` packed code; of length 0 where words alone are asked for.
        outputs: ``(k,)`` real-valued outputs of the model, whose signs are the code; None where only bits are known.
        modality: modality of the code, empty if unknown.
        words: what is searched for in the items' words, see `Store.search_words`.
        without: phrases that are not wanted there.
        words_coded: whether the code stands for the words, too; only an encoder of texts makes such ones.

    >>> Query(np.array([7], np.uint8)).outputs is None
    True
    """

    code: PackedCodes
    outputs: NDArray[np.float32] | None = None
    modality: str = ""
    words: str = ""
    without: tuple[str, ...] = ()
    words_coded: bool = True


@dataclass(frozen=True)
class SearchOptions:
    """Which items a search returns.

    Attributes:
        k: number of items.
        radius: instead of ``k``, all items within so many bits, inclusive.
        limit: at most so many of those within ``radius``.
        modality: modality to search; images if the store has any, else its only modality.
        where: filter that items must pass, see `channelhash.search.filters`.
        rerank: number of nearest items to reorder by asymmetric distance, see `channelhash.search.rank`, whether or
            not the store keeps projections; with ``k``, a search returns the best ``k`` of them.
        collapse: fold answers within so many bits of an earlier one into it, if their pictures are alike, see
            `collapse_hits` and `Hit.duplicates`; up to 10,000 answers are looked at for ``k`` that stay.
        by: what `channelhash.search.fused.answer` searches: ``"image"`` or ``"text"`` codes, ``"words"``, or ``"all"``
            that the store has.

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
    collapse: int | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        answers, distance = "ask for at least 1 answer", "a distance is at least 0 bits"
        for option, value, least, says in (
            ("-k", self.k, 1, answers),
            ("--radius", self.radius, 0, distance),
            ("--limit", self.limit, 1, answers),
            ("--rerank", self.rerank, 1, "at least 1 answer can be re-ranked"),
            ("--collapse", self.collapse, 0, distance),
        ):
            if value is not None and value < least:
                raise InputError(f"{option} {value}: {says}")
        if self.by not in (None, "all", "image", "text", "words"):
            raise InputError(f"--by {self.by}: none of all, image, text and words")


@dataclass(frozen=True)
class Hit:
    """One item that a search found.

    Attributes:
        id: the item's id.
        distance: number of bits in which its code differs from the query's; None where that has no code.
        text: its text, empty if unknown.
        labels: its label names, empty if unknown.
        image: path of its image, empty if unknown.
        metadata: its other metadata.
        code: ``(ceil(k / 8),)`` the packed code that was found.
        modalities: the modalities that it has codes of.
        match: of random items, the share at least as near as this one; None where the store cannot say. See
            `channelhash.search.match`.
        duplicates: ids of the answers that were folded into this one; None where none were to be.

    >>> Hit("a", 2, "a dog", ["dog"], "").as_dict()["distance"]
    2
    """

    id: str
    distance: int | None
    text: str
    labels: list[str]
    image: str
    metadata: dict[str, Value] = field(default_factory=dict)
    code: PackedCodes = field(default_factory=lambda: np.zeros(0, np.uint8), compare=False)
    modalities: tuple[str, ...] = ()
    match: float | None = None
    duplicates: list[str] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the codes as JSON-able values."""
        names = ["id", "distance", "match", "text", "labels", "image", "metadata"]
        if self.duplicates is not None:
            names.append("duplicates")
        return {name: getattr(self, name) for name in names}


class Hits(list[Hit]):
    """The items that a search found.

    Attributes:
        close: whether they are as near as answers are to questions of which the store has some; None where it cannot
            say, see `channelhash.search.match`.
        note: what the question could not be compared with, and what to do; a line, empty if there is nothing to say.

    >>> Hits([Hit("a", 2, "a dog", ["dog"], "")], close=False).close
    False
    """

    def __init__(self, hits: Iterable[Hit] = (), close: bool | None = None, note: str = "") -> None:
        super().__init__(hits)
        self.close = close
        self.note = note


def search_hits(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items nearest to a query, nearest first, in a store that is not empty.

    Of a query whose outputs are known more is known than its bits: `ranked_codes` says how items are ordered by them.
    Otherwise equal distances are in the order of ids.

    Raises:
        InputError: the store has no such codes, the filter is wrong, or re-ranking needs the real-valued outputs of a
            query of which only bits are known.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> [(hit.id, hit.distance) for hit in search_hits(store, Query(np.array([7], np.uint8)))]
    [('b', 0), ('a', 3)]
    """
    options = options or SearchOptions()
    modality, n_reranked = store.choose_modality(options.modality), options.rerank or 0
    if n_reranked and query.outputs is None:
        raise InputError("--rerank: of a stored item only its bits are known; ask with --text or --image")
    count = options.k if options.radius is None else options.limit
    wanted = count and max(count, n_reranked)
    most = max(wanted or 0, _MOST)
    looked_at = wanted and (min(most, 4 * wanted) if options.collapse is not None else wanted)
    outputs = None if n_reranked else query.outputs
    while True:
        ranked = rank_codes(store, query.code, outputs, looked_at, options.radius, modality, options.where)
        items = store.get(ranked.ids)
        found = [make_hit(item, distance, modality) for item, distance in zip(items, ranked.distances, strict=True)]
        by_cosine = store.projected and outputs is not None and options.radius is None
        hits = judge_hits(store, query, modality, found, cosines=[-key for key in ranked.keys] if by_cosine else None)
        close, n_found = hits.close, len(hits)
        if n_reranked and hits and query.outputs is not None:
            order = rerank(query.outputs, np.stack([hit.code for hit in hits]), n_reranked)
            hits = Hits(hits[place] for place in order.tolist())
        if options.collapse is not None:
            hits = Hits(collapse_hits(hits, options.collapse, modality, count))
        if looked_at is None or count is None or len(hits) >= count or n_found < looked_at or looked_at >= most:
            return Hits(hits[:count], close)
        looked_at = min(most, 4 * looked_at)


def judge_hits(
    store: Store,
    query: Query,
    modality: str,
    hits: Sequence[Hit],
    nearest: Sequence[int] | None = None,
    cosines: Sequence[float] | None = None,
) -> Hits:
    """Say what the distances of hits mean, by code of ``modality``; nothing where the query has no code.

    Args:
        store: where they were found.
        query: the query.
        modality: the modality that was searched.
        hits: found by whatever; their distances are to codes of ``modality``.
        nearest: the distances of the nearest items, which say whether anything is close; left out, those of ``hits``.
        cosines: the cosines of the best items, which say so better, see `Store.search_projections`.
    """
    reference = find_reference(store, query.modality, modality) if len(query.code) else None
    distances = [hit.distance for hit in hits if hit.distance is not None]
    if reference is None or len(distances) < len(hits):
        return Hits(hits)
    matches = match_shares(reference, query.code, distances, store.n_bits or 0)
    found = [replace(hit, match=match) for hit, match in zip(hits, matches, strict=True)]
    return Hits(found, is_close(reference, distances if nearest is None else nearest, cosines, query.outputs))


def collapse_hits(hits: Sequence[Hit], radius: int, modality: str, most: int | None = None) -> list[Hit]:
    """Fold near-duplicates of an earlier hit into it, and return the first ``most`` that stay; see `_fold`.

    Of hits by codes of images, pictures are compared, too, as `channelhash.search.duplicates.find_duplicates` does.
    """

    def same(one: int, other: int) -> bool:
        if modality != "image":
            return True
        first, second = read_copy(hits[one].image), read_copy(hits[other].image)
        if first is None or second is None:
            return first is second
        return bool(alike([first], [second])[0, 0])

    folded = _fold(np.stack([hit.code for hit in hits]), radius, most, same) if hits else {}
    return [replace(hits[place], duplicates=[hits[other].id for other in others]) for place, others in folded.items()]


def draw_hits(hits: Sequence[Hit], query: str | Path, path: Path) -> None:
    """Draw a query, words or an image file, and its hits as one row of a PNG."""
    cells = [Cell(query, "query") if isinstance(query, Path) else Cell(None, query)]
    for hit in hits:
        distance = "" if hit.distance is None else f"{bits(hit.distance)}: "
        cells.append(Cell(Path(hit.image) if hit.image else None, distance + (hit.text or hit.id)))
    write_contact_sheet([cells], path)


def make_hit(item: Item, distance: int | None, modality: str) -> Hit:
    """Return an item as what was found, with its code of a modality."""
    metadata = dict(item.metadata)
    text, image, labels = (metadata.pop(key, None) for key in ("text", "image", "labels"))
    return Hit(
        item.id,
        distance,
        str(text or ""),
        list(labels) if isinstance(labels, list) else [],
        str(image or ""),
        metadata,
        item.codes[modality],
        tuple(sorted(item.codes)),
    )
