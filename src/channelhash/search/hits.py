"""Answer a query by what a store has: the codes of each modality and the words, each alone or all
as one ranking.

By codes, items are ranked by all that is known beside these:

* A question of which the model's outputs are known, to a store with projections: in two stages, by
  score.
* To a store without, and within a radius: by distance, and equal distances by how sure the model
  was of the bits that differ (`Store.search_surest`).
* A question of which only bits are known: by distance.

What is equal by all that is in the order of ids.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, hamming_distances, unpack
from channelhash.errors import InputError
from channelhash.search.duplicates import default_radius, fold
from channelhash.search.items import DEFAULT_MODALITY, Value
from channelhash.search.match import NEAREST, find_reference
from channelhash.search.rank import FIRST, Ranking, fuse_partial, rerank
from channelhash.search.sqlite.words import quote
from channelhash.search.store import Item, Store
from channelhash.text.dates import Phrase
from channelhash.utils.image_files import Cell, write_contact_sheet

#: Items that each ranking gives, or more if more answers are asked for.
DEPTH = 100
#: Why what is written cannot be compared with the codes of an encoder without a text side, and what
#: to do.
ALONE = (
    "these codes are of images alone, which a text cannot be compared with; make the store with at "
    "least 100 captions "
    "(`channelhash index create STORE PHOTOS --captions FILE`) or with an encoder of texts, too "
    "(`--encoder "
    "openclip:NAME/WEIGHTS`), or ask with --image or --like"
)

_WORDS = "words"
# Probability from which an answer counts as one that fits.
_FITS = 0.5
# Share of a question's words, by weight, that an item must have so that words speak for it beside
# codes: "the" alone does not.
_COVERAGE = 0.7
# Answers that are looked at where near-duplicates are folded.
_MOST_FOLDED = 400
# Answers that are looked at, at most, to find enough that are no near-duplicates.
_MOST_LOOKED_AT = 10_000


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
    """Which items a search returns.

    Attributes:
        k: number of items.
        radius: instead of ``k``, all items within so many bits, inclusive.
        limit: at most so many of those within ``radius``.
        modality: modality to search; images if the store has any, else its only modality.
        where: filter that items must pass, see `channelhash.search.filters`.
        rerank: number of nearest items to reorder by asymmetric distance, see
            `channelhash.search.rank`, whether or not the store keeps projections; with ``k``, a
            search returns the best ``k`` of them.
        collapse: fold answers within so many bits of an earlier one into it, if their pictures are
            alike, see `Hit.duplicates`; up to 10,000 answers are looked at for ``k`` that stay.
            True: within the bits that are usual for near-duplicates.
        by: what `answer` searches: ``"image"`` or ``"text"`` codes, ``"words"``, or ``"all"``
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
    collapse: int | bool | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        for option, least in {"k": 1, "radius": 0, "limit": 1, "rerank": 1, "collapse": 0}.items():
            value = getattr(self, option)
            if value is not None and value < least:
                dashes, unit = "-" if option == "k" else "--", "answer" if least else "bits"
                raise InputError(f"{dashes}{option} {value}: takes at least {least} {unit}")
        if self.by not in (None, "all", "image", "text", "words"):
            raise InputError(f"--by {self.by}: none of all, image, text and words")


@dataclass(frozen=True)
class Hit:
    """One item that a search found.

    Attributes:
        id: the item's id.
        distance: number of bits in which its code differs from the query's; None where that has no
            code.
        text: its text, empty if unknown.
        labels: its label names, empty if unknown.
        image: path of its image, empty if unknown.
        metadata: its other metadata.
        code: ``(ceil(k / 8),)`` the packed code that was found.
        modalities: the modalities that it has codes of.
        match: of random items, the share at least as near as this one; None where the store cannot
            say. See `channelhash.search.match`.
        fit: the probability that it answers a question in words, 1 where its own words do; None
            where the store cannot say.
        duplicates: ids of the answers that were folded into this one; None where none were to be.
        by_words: whether its words helped to find it.
        quote: the lines of the text in its picture that hold the question's words, if these helped
            to find it.

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
    fit: float | None = None
    duplicates: list[str] | None = None
    by_words: bool = False
    quote: str = ""

    @classmethod
    def of(
        cls,
        item: Item,
        modality: str = DEFAULT_MODALITY,
        distance: int | None = None,
        **judged: Any,
    ) -> "Hit":
        """Return an item as what was found, with its code of a modality, or of another one if it
        has none of that.

        >>> Hit.of(Item("a", {"image": np.array([7], np.uint8)}, {"text": "a dog"})).text
        'a dog'
        """
        metadata = dict(item.metadata)
        text, image, labels = (metadata.pop(key, None) for key in ("text", "image", "labels"))
        shown = str(text or ""), list(labels) if isinstance(labels, list) else [], str(image or "")
        code = _code_of(item, modality)
        return cls(item.id, distance, *shown, metadata, code, tuple(sorted(item.codes)), **judged)

    @property
    def fits(self) -> bool:
        """Whether it is likely to answer the question; true where that is not known."""
        return self.fit is None or self.fit >= _FITS

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the codes as JSON-able values."""
        names = ["id", "distance", "match", "fit", "text", "labels", "image", "metadata"]
        if self.duplicates is not None:
            names.append("duplicates")
        return {name: getattr(self, name) for name in names}


class Hits(list[Hit]):
    """The items that a search found.

    Attributes:
        close: whether they are as near as answers are to questions of which the store has some;
            None where it cannot say, see `channelhash.search.match`.
        note: what the question could not be compared with, and what to do; a line, empty if there
            is nothing to say.
        suggestion: what the question may have meant, if one of its words is unknown; empty
            otherwise.
        phrases: the dates and places of the question that the hits are narrowed to.

    >>> Hits([Hit("a", 2, "a dog", ["dog"], "")], close=False).close
    False
    """

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        close: bool | None = None,
        note: str = "",
        suggestion: str = "",
    ) -> None:
        super().__init__(hits)
        self.close, self.note, self.suggestion = close, note, suggestion
        self.phrases: list[Phrase] = []

    def draw(self, query: str | Path, path: Path) -> None:
        """Draw a query, words or an image file, and the hits as one row of a PNG."""
        cells = [Cell(query, "query") if isinstance(query, Path) else Cell(None, query)]
        for rank, hit in enumerate(self, start=1):
            cells.append(
                Cell(Path(hit.image) if hit.image else None, f"{rank}. {hit.text or hit.id}")
            )
        write_contact_sheet([cells], path)


def _rank_codes(store: Store, query: Query, count: int | None, options: SearchOptions) -> Ranking:
    """Return the best ``count`` items, or, only with a radius, all within it; by bits alone without
    outputs.
    """
    outputs, radius, modality, where = (
        query.outputs,
        options.radius,
        options.modality,
        options.where,
    )
    if outputs is not None and store.projected and radius is None and count is not None:
        scored = store.search_projections(outputs[None], count, modality, where)
        scores = scored.keys[0]
        return Ranking(
            scored.ids[0], (-scores).tolist(), scored.distances[0].tolist(), scores.tolist()
        )
    if outputs is not None:
        surest = store.search_surest(outputs[None], count, modality, where, radius)
        return Ranking(surest.ids[0], surest.keys[0].tolist(), surest.distances[0].tolist())
    if radius is not None:
        answers = store.search_radius(query.code[None], radius, modality, where, count)
    else:
        answers = store.search(query.code[None], count or FIRST, modality, where)
    distances = answers.distances[0].tolist()
    return Ranking(answers.ids[0], distances, distances)


def search_hits(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items nearest to a query, nearest first, in a store that is not empty.

    Where the query's outputs are known, they order items too, see `_rank_codes`. Otherwise equal
    distances are in the order of ids.

    Raises:
        InputError: the store has no such codes, the filter is wrong, or re-ranking needs the
            real-valued outputs of a query of which only bits are known.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> [(hit.id, hit.distance) for hit in search_hits(store, Query(np.array([7], np.uint8)))]
    [('b', 0), ('a', 3)]
    """
    options = options or SearchOptions()
    modality, n_reranked = store.choose_modality(options.modality), options.rerank or 0
    if n_reranked and query.outputs is None:
        raise InputError(
            "--rerank: of a stored item only its bits are known; ask with --text or --image"
        )
    count = options.k if options.radius is None else options.limit
    n_candidates = count and max(count, n_reranked)
    most = max(n_candidates or 0, _MOST_LOOKED_AT)
    looked_at = n_candidates and (
        min(most, 4 * n_candidates) if options.collapse is not None else n_candidates
    )
    coded = replace(query, outputs=None) if n_reranked else query
    while True:
        ranked = _rank_codes(store, coded, looked_at, replace(options, modality=modality))
        hits = _judge_hits(store, query, modality, ranked.ids, ranked)
        close, n_found = hits.close, len(hits)
        if n_reranked and hits and query.outputs is not None:
            order = rerank(query.outputs, np.stack([hit.code for hit in hits]), n_reranked)
            hits = Hits(hits[place] for place in order.tolist())
        if options.collapse is not None:
            hits = Hits(_collapse(store, hits, options, modality, count))
        if (
            looked_at is None
            or count is None
            or len(hits) >= count
            or n_found < looked_at
            or looked_at >= most
        ):
            return Hits(hits[:count], close)
        looked_at = min(most, 4 * looked_at)


def _judge_hits(
    store: Store, query: Query, modality: str, ids: Sequence[str], nearest: Ranking
) -> Hits:
    """Return items as hits: with their distances, if the query has a code, and, where a reference
    says it, with their matches and whether each fits, and whether any is close.

    Where it is not known what fits, whether any is close follows from the distances of the nearest
    items; their cosines tell it better, see `Store.search_projections`.
    """
    items = store.get(ids)
    if not len(query.code):
        return Hits(Hit.of(item, modality) for item in items)
    distances = nearest.distances
    if ids is not nearest.ids:
        codes = np.array([_code_of(item, modality) for item in items], np.uint8).reshape(
            len(items), len(query.code)
        )
        distances = hamming_distances(query.code[None], codes)[0].tolist()
    matches: list[float | None] = [None] * len(items)
    fits, close = dict[str, float](), None
    if reference := find_reference(store, query.modality, modality):
        matches = [*reference.match_shares(query.code, distances, store.n_bits or 0)]
        close = reference.is_close(nearest.distances, nearest.cosines)
        rows = {
            item.id: item.projections[modality] for item in items if modality in item.projections
        }
        if query.outputs is not None and rows:
            fits = dict(
                zip(
                    rows,
                    reference.fits(query.outputs, np.stack(list(rows.values()))) or [],
                    strict=False,
                )
            )
    if fits:
        close = any(fit >= _FITS for fit in fits.values())
    judged = zip(items, distances, matches, strict=True)
    hits = (
        Hit.of(item, modality, bits, match=match, fit=fits.get(item.id))
        for item, bits, match in judged
    )
    return Hits(hits, close)


def _collapse(
    store: Store, hits: Sequence[Hit], options: SearchOptions, modality: str, most: int | None
) -> list[Hit]:
    """Fold near-duplicates of an earlier hit into it, and return the first ``most`` that stay.

    Of hits by codes of images, pictures are compared, too, as
    `channelhash.search.duplicates.find_duplicates` does.
    """
    images = [hit.image for hit in hits] if modality == "image" else []
    usual = default_radius(store.n_bits or 0, pictures=bool(images))
    radius = usual if options.collapse is True else options.collapse or 0
    folded = fold(np.stack([hit.code for hit in hits]), radius, most, images) if hits else {}
    return [
        replace(hits[place], duplicates=[hits[other].id for other in others])
        for place, others in folded.items()
    ]


def _code_of(item: Item, modality: str) -> PackedCodes:
    return item.codes[modality if modality in item.codes else min(item.codes)]


def list_hits(store: Store, ids: Sequence[str], options: SearchOptions) -> Hits:
    """Return items that no query found, in the order of their ids.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> [hit.id for hit in list_hits(store, ["b"], SearchOptions())]
    ['b']
    """
    if options.radius is not None or options.rerank is not None:
        raise InputError(
            "--radius, --rerank: only dates and places are asked for, which have no code; leave "
            "them out"
        )
    searched = store.choose_modality(options.modality)
    return Hits(Hit.of(item, searched) for item in store.get(ids))


def answer(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items that answer a query best, in a store that is not empty.

    A query with words is answered by what the store has of codes of images, codes of texts and
    words, fused by reciprocal ranks (`channelhash.search.rank`); ties by distance, then by id.
    `SearchOptions.by` names one of them. Without a code, words alone answer. Another query is
    answered by codes alone, see `search_hits`, and so is one with a modality, radius or re-ranking.

    Raises:
        InputError: the store or the query lacks what ``by`` names, or other options contradict it;
            or as `search_hits`.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8, texts=("a dog", ""))
    >>> query = Query(np.array([3], np.uint8), words="dog")
    >>> [(hit.id, hit.distance) for hit in answer(open_codes(codes), query)]
    [('a', 2), ('b', 1)]
    """
    options = options or SearchOptions()
    chosen = _choose(store, query, options)
    if len(chosen) == 1 and chosen[0] != _WORDS:
        return search_hits(store, query, replace(options, modality=chosen[0], by=None))
    if options.rerank is not None:
        raise InputError(
            "--rerank: orders the answers of one modality's codes; name it, --by image or --by text"
        )
    count = options.k if options.radius is None else options.limit
    modalities = [name for name in chosen if name != _WORDS]
    words = (
        _by_words(store, query, options, alone=not modalities)
        if _WORDS in chosen
        else Ranking([], [])
    )
    depth = options.limit
    if options.radius is None:  # one ranking needs no depth: nothing is fused with it
        is_alone = len(modalities) == 1 and not words.ids and options.collapse is None
        depth = max(options.k, NEAREST if is_alone else DEPTH)
    rankings = {
        name: _rank_codes(store, query, depth, replace(options, modality=name))
        for name in modalities
    }
    nearest: dict[str, int] = {}
    for ranked in rankings.values():
        nearest |= {
            name: min(d, nearest.get(name, d))
            for name, d in zip(ranked.ids, ranked.distances, strict=True)
        }
    if options.radius is not None:
        places = [place for place, name in enumerate(words.ids) if name in nearest]
        words = Ranking(
            [words.ids[place] for place in places], [words.keys[place] for place in places]
        )
    if _WORDS in chosen:
        rankings[_WORDS] = words
    scores = fuse_partial(rankings, _lacking(store, rankings))
    order = sorted(
        scores, key=lambda name: (-round(scores[name], 12), nearest.get(name, np.inf), name)
    )
    n_found = count and (count if options.collapse is None else max(_MOST_FOLDED, count))
    # What words found fits, and comes before what does not, however it ranks by codes.
    names = list(dict.fromkeys([*order[:n_found], *words.ids[:n_found]]))
    searched = store.choose_modality()
    judged = _judge_hits(store, query, searched, names, rankings.get(searched, Ranking([], [])))
    close = judged.close
    # all of the words need no code to confirm them
    if close is False and _WORDS in chosen and order:
        complete = store.search_words(
            query.words, max(DEPTH, len(order)), options.where, query.without, coverage=1.0
        )
        close = not set(complete.ids).isdisjoint(order[:n_found])
    known, by_words = any(hit.fit is not None for hit in judged), set(words.ids)
    hits = [
        _quoted(hit, query.words, 1.0 if known else None) if hit.id in by_words else hit
        for hit in judged
    ]
    hits.sort(key=lambda hit: not hit.fits)
    if known:
        close = any(hit.fit is not None and hit.fits for hit in hits)
    if options.collapse is not None:
        hits = _collapse(store, hits, options, searched, count)
    note = (
        ""
        if query.words_coded or options.by == _WORDS
        else f"what you wrote is looked for by its words: {ALONE}"
    )
    return Hits(hits[:count], close if modalities or hits else False, note)


def _quoted(hit: Hit, words: str, fit: float | None) -> Hit:
    """Return a hit that words helped to find."""
    return replace(
        hit, by_words=True, fit=fit, quote=quote(str(hit.metadata.get("ocr") or ""), words)
    )


def _choose(store: Store, query: Query, options: SearchOptions) -> Sequence[str]:
    """Return what answers: modalities of codes, and ``"words"``."""
    by, asked_otherwise = options.by, options.radius is not None or options.rerank is not None
    if options.modality is not None and by not in (None, options.modality):
        raise InputError(
            f"--by {by}: says what is searched, and so does --modality; leave that out"
        )
    if by in ("image", "text"):
        rankings = [store.choose_modality(by)]
    elif by == _WORDS:
        rankings = [_WORDS]
    elif by is None and (options.modality is not None or asked_otherwise or not query.words):
        rankings = [store.choose_modality(options.modality)]
    else:
        rankings = [*store.modalities] if len(query.code) else []
        rankings += [_WORDS] if store.has_words and query.words else []
    if not query.words_coded and _WORDS not in rankings:
        raise InputError(ALONE)
    if rankings == [_WORDS] and not query.words:
        raise InputError(
            "--by words: the question has no words; add some, or search by image or text"
        )
    if rankings == [_WORDS] and options.radius is not None:
        raise InputError("--by words: words have no distance; leave --radius out")
    return rankings


def _lacking(store: Store, rankings: dict[str, Ranking]) -> dict[str, list[str]]:
    """Return the id of each item that was found and has no code of a modality -> the rankings that
    it cannot be in.

    Without a text code it has hardly any words, so words do not count either unless they found it.
    """
    modalities = [name for name in rankings if name != _WORDS]
    if len(modalities) < 2 or len({store.count(modality) for modality in modalities}) < 2:
        return {}
    by_words = set(rankings[_WORDS].ids) if _WORDS in rankings else set()
    lacking: dict[str, list[str]] = {}
    for item in store.get(sorted({name for ranking in rankings.values() for name in ranking.ids})):
        lacks = [modality for modality in modalities if modality not in item.codes]
        if _WORDS in rankings and "text" in lacks and item.id not in by_words:
            lacks.append(_WORDS)
        if lacks:
            lacking[item.id] = lacks
    return lacking


def _by_words(store: Store, query: Query, options: SearchOptions, alone: bool) -> Ranking:
    """Rank by words."""
    depth = max(DEPTH, options.k)
    ids, keys, *_ = store.search_words(
        query.words, depth, options.where, query.without, 0.0 if alone else _COVERAGE
    )
    n_complete = len(ids)
    if not alone and n_complete == depth:
        # Of many items with equal scores only some came: which, says nothing about them.
        n_complete = sum(score > keys[-1] for score in keys)
    return Ranking(ids[:n_complete], keys[:n_complete])
