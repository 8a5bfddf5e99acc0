"""The one order of all answers to a question, of which every page is a part.

A store ranks its items by the codes of each modality and by words. A search by one of these keeps
the order of that ranking. Several rankings are fused by reciprocal ranks
(`channelhash.search.rank`), ties by distance, then by id.

The order does not depend on how many answers are asked for. Rankings that are cut at another place
are fused differently, so stores are asked for rankings of fixed depths. What the first depth finds
comes first, then what the second one adds, and so on, as far as answers are read.

Codes are ranked by all that is known of the query:

* With outputs of the model, in a store with projections: by score, in two stages.
* With outputs, in other stores and within a radius: by distance, equal distances by how sure the
  model was of the bits that differ (`Store.search_surest`).
* A query known only by its bits: by distance.

Remaining ties are broken by id.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.errors import InputError, argument
from channelhash.search.fold import default_radius, fold
from channelhash.search.items import Item
from channelhash.search.match import FITS, Judge
from channelhash.search.question import WORDS, Query, SearchOptions
from channelhash.search.rank import FIRST, Ranking, cosines, fuse_partial, rerank
from channelhash.search.store import Store

#: Items that each ranking gives at first.
DEPTH = 100
#: Why what is written cannot be compared with the codes of an encoder without a text side, and what
#: to do.
ALONE = (
    "these codes are of images alone, which a text cannot be compared with; make the store with "
    "at least 100 captions (`channelhash index create STORE PHOTOS --captions FILE`) or with an "
    "encoder of texts, too (`--encoder openclip:NAME/WEIGHTS`), or ask with a picture or an item "
    "of the store"
)

#: Second depth, which holds all that a server answers, at most 1,000 results.
_SECOND = 1024
#: How many times deeper each further depth is. It costs more than those before it together, so that
#: reading far costs little more than reading once.
_TIMES = 4
#: Share of a question's words, by weight, that an item must have so that words speak for it beside
#: codes: "the" alone does not.
_COVERAGE = 0.7
_NO_RANKING = Ranking([], [])


class Ranked(NamedTuple):
    """An answer at its place in the order.

    Attributes:
        id: the item's id.
        fit: the probability that it answers a question in words, 1 where its own words do; None
            where the store cannot say.
        by_words: whether its words helped to find it.
        copies: ids of the answers of the same depth that were folded into it; None where none were
            to be.

    >>> Ranked("a", fit=0.3).fits
    False
    """

    id: str
    fit: float | None = None
    by_words: bool = False
    copies: tuple[str, ...] | None = None

    @property
    def fits(self) -> bool:
        """Whether it is likely to answer the question; true where that is not known."""
        return self.fit is None or self.fit >= FITS


class _Depth(NamedTuple):
    """What rankings of one depth add to what shallower ones have found.

    Attributes:
        answers: in their order.
        nearest: the ranking by the codes whose distances answers show.
        continues: whether more that fits may lie deeper, since the last of these does.
    """

    answers: list[Ranked]
    nearest: Ranking
    continues: bool


class AnswerOrder:
    """All answers of a store to one question, in one order, which can be read once.

    What fits comes first, where that is known. Codes alone that are searched within a radius or
    ranked again keep their own order.

    Attributes:
        modality: whose distances answers show.
        judge: what these distances mean.
        close: see `Hits.close`.
        best_fit: the largest `Ranked.fit` of the first depth, 0 where none is known.
        alike: see `Hits.alike`; complete once the answers are read.
        unlikely: whether less likely answers were left out of those that were read.

    Args:
        store: a store that is not empty.
        query: the question.
        options: what is asked for. The order does not depend on ``k``, ``limit`` and ``offset``.
        rankings: modalities of codes, and `WORDS`; see `choose_rankings`.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8)
    >>> query = Query(np.array([7], np.uint8))
    >>> order = AnswerOrder(open_codes(codes), query, SearchOptions(k=1), ["image"])
    >>> [answer.id for answer in order.answers()]
    ['b', 'a']
    """

    def __init__(
        self, store: Store, query: Query, options: SearchOptions, rankings: Sequence[str]
    ) -> None:
        self._store = store
        self._query = query
        self._options = options
        self._modalities = [name for name in rankings if name != WORDS]
        self._with_words = WORDS in rankings
        self._is_fused = self._with_words or len(rankings) > 1
        self._check_rerank()
        self.modality = store.choose_modality() if self._is_fused else rankings[0]
        self.judge = Judge(store, query, self.modality)
        is_by_distance = options.radius is not None or options.rerank is not None
        self._fits_first = self._is_fused or not is_by_distance
        self._folds = folds(store, options, self.modality)
        self._items: dict[str, Item] = {}
        self._kept: list[Ranked] = []  # answers into which others are folded
        self._depths = self._look_deeper()
        self._first = next(self._depths)
        known = [answer.fit for answer in self._first.answers if answer.fit is not None]
        self.best_fit = max(known, default=0.0)
        self.close = self.best_fit >= FITS if known else self._is_close()
        is_left_out = options.leave_out is not None and self._folds
        self.alike: list[str] | None = [] if is_left_out else None
        self.unlikely = False

    def answers(self) -> Iterator[Ranked]:
        """Yield the answers, best first, as deep as they are read."""
        left_out = self._options.leave_out
        for answer in self._all():
            names = (answer.id, *(answer.copies or ()))
            if left_out in names:
                if self.alike is not None:
                    self.alike += [name for name in names if name != left_out]
            elif answer.fits or not self._options.fitting:
                yield answer
            else:
                self.unlikely = True
                if self._fits_first:
                    return  # what fits of the depths looked at has come

    def read(self, ids: Sequence[str]) -> list[Item]:
        """Return the items of these ids, each read once; those that were deleted since they were
        found are left out.
        """
        unread = [name for name in ids if name not in self._items]
        self._items |= {item.id: item for item in self._store.get(unread, missing_ok=True)}
        return [self._items[name] for name in ids if name in self._items]

    def _check_rerank(self) -> None:
        if self._options.rerank is None:
            return
        if self._is_fused:
            raise InputError(
                f"{argument('rerank')}: orders the answers of one modality's codes; name it, "
                f"{argument('by')} image or {argument('by')} text"
            )
        if self._query.outputs is None:
            raise InputError(
                f"{argument('rerank')}: of a stored item only its bits are known; ask with "
                f"{argument('text')} or {argument('image')}"
            )

    def _all(self) -> Iterator[Ranked]:
        """Yield all answers; what does not fit once no deeper ranking finds more that does."""
        waiting: list[Ranked] = []
        for found in chain([self._first], self._depths):
            for answer in found.answers:
                if answer.fits or not self._fits_first:
                    yield answer
                else:
                    waiting.append(answer)
            if not found.continues:
                yield from waiting
                waiting = []
        yield from waiting

    def _look_deeper(self) -> Iterator[_Depth]:
        """Yield what each depth finds, up to the one that has all rankings in full."""
        seen: set[str] = set()
        for depth in _depths(self._options.rerank or 0):
            rankings, is_full = self._rank(depth)
            names = [name for name in self._merge(rankings) if name not in seen]
            if self._options.rerank is not None and not seen:
                names = self._rerank(names, self._options.rerank)
            seen.update(names)
            yield self._judged(names, rankings, depth)
            if is_full:
                return

    def _rank(self, depth: int) -> tuple[dict[str, Ranking], bool]:
        """Return the rankings of one depth, and whether none goes any deeper."""
        query = self._query
        radius = self._options.radius
        if self._options.rerank is not None:
            query = replace(query, outputs=None)  # the nearest by bits alone are ranked again
        rankings = {}
        for modality in self._modalities:
            options = replace(self._options, modality=modality)
            rankings[modality] = rank_codes(self._store, query, depth, options)
        near = set().union(*(ranking.ids for ranking in rankings.values()))
        is_full = all(len(ranking.ids) < depth for ranking in rankings.values())
        if self._with_words:
            words = self._rank_words(depth)
            if radius is None:
                is_full = is_full and len(words.ids) < depth
            rankings[WORDS] = self._keep_words(words, depth, None if radius is None else near)
        return rankings, is_full

    def _rank_words(self, depth: int, coverage: float | None = None) -> Ranking:
        """Rank by words, of which an item has enough to speak for it."""
        if coverage is None:
            coverage = _COVERAGE if self._modalities else 0.0
        query = self._query
        where = self._options.where
        return self._store.search_words(query.words, depth, where, query.without, coverage)

    def _keep_words(self, words: Ranking, depth: int, near: set[str] | None) -> Ranking:
        """Return the part of a ranking by words that counts beside codes; with ``near``, of these
        items alone.
        """
        least = -np.inf
        if self._modalities and len(words.ids) == depth:
            # The ranking was cut among items of equal scores, which says nothing about them.
            least = words.keys[-1]
        ids: list[str] = []
        scores: list[float] = []
        for name, score in zip(words.ids, words.keys, strict=True):
            if score > least and (near is None or name in near):
                ids.append(name)
                scores.append(score)
        return Ranking(ids, scores)

    def _merge(self, rankings: dict[str, Ranking]) -> Sequence[str]:
        """Return the items of several rankings in one order."""
        by_codes = [rankings[modality] for modality in self._modalities]
        words = rankings.get(WORDS, _NO_RANKING)
        if len(by_codes) == 1 and not words.ids:
            return by_codes[0].ids
        nearest: dict[str, int] = {}
        for ranking in by_codes:
            for name, distance in zip(ranking.ids, ranking.distances, strict=True):
                nearest[name] = min(distance, nearest.get(name, distance))
        scores = fuse_partial(rankings, self._impossible_rankings(rankings))
        return sorted(
            scores, key=lambda name: (-round(scores[name], 12), nearest.get(name, np.inf), name)
        )

    def _impossible_rankings(self, rankings: dict[str, Ranking]) -> dict[str, list[str]]:
        """Return the id of each item that was found -> the rankings that it cannot be in, for items
        that lack a code.

        An item without a text code has hardly any words, so the ranking by words does not count
        either unless it holds the item.
        """
        counts = {self._store.count(modality) for modality in self._modalities}
        if len(self._modalities) < 2 or len(counts) < 2:
            return {}
        names = set().union(*(ranking.ids for ranking in rankings.values()))
        by_words = set(rankings.get(WORDS, _NO_RANKING).ids)
        impossible: dict[str, list[str]] = {}
        for item in self.read(sorted(names)):
            missing = [modality for modality in self._modalities if modality not in item.codes]
            if self._with_words and "text" in missing and item.id not in by_words:
                missing.append(WORDS)
            if missing:
                impossible[item.id] = missing
        return impossible

    def _rerank(self, names: Sequence[str], first: int) -> list[str]:
        """Order the first items by the asymmetric distance of their codes."""
        items = self.read(names[:first])
        if not items or self._query.outputs is None:
            return list(names)
        codes = np.stack([code_of(item, self.modality) for item in items])
        order = rerank(self._query.outputs, codes, first)
        return [*(items[place].id for place in order.tolist()), *names[first:]]

    def _judged(self, names: Sequence[str], rankings: dict[str, Ranking], depth: int) -> _Depth:
        """Return items as answers, what fits first, near-duplicates folded if they are to be."""
        by_words = set(rankings.get(WORDS, _NO_RANKING).ids)
        nearest = rankings.get(self.modality, _NO_RANKING)
        fits = self._fits(names, nearest, by_words)
        answers = [Ranked(name, fits.get(name), name in by_words) for name in names]
        if self._fits_first:
            answers.sort(key=lambda answer: not answer.fits)
        if self._folds:
            answers = self._fold(answers)
        is_cut = len(nearest.ids) == depth
        return _Depth(answers, nearest, is_cut and fits.get(nearest.ids[-1], 0.0) >= FITS)

    def _fits(self, names: Sequence[str], nearest: Ranking, by_words: set[str]) -> dict[str, float]:
        """Return id -> the probability that it fits, where that is known: by the cosines of a
        ranking, else by projections that are read.
        """
        query = self._query
        if not self.judge.knows_fit or query.outputs is None:
            return {}
        fits: dict[str, float] = {}
        if nearest.cosines is not None:
            fits.update(zip(nearest.ids, self.judge.fits(nearest.cosines), strict=True))
        fits |= dict.fromkeys(by_words, 1.0)
        unjudged = self.read([name for name in names if name not in fits])
        projections = {
            item.id: item.projections[self.modality]
            for item in unjudged
            if self.modality in item.projections
        }
        if projections:
            angles = cosines(query.outputs, np.stack(list(projections.values())))
            fits.update(zip(projections, self.judge.fits(angles.tolist()), strict=True))
        return fits

    def _fold(self, answers: list[Ranked]) -> list[Ranked]:
        """Fold near-duplicates of an earlier answer into it. Those of an answer of a shallower
        depth, which may have been read, are dropped.
        """
        items = self.read([answer.id for answer in answers])
        present = {item.id for item in items}
        answers = [*self._kept, *(answer for answer in answers if answer.id in present)]
        kept = []
        for place, others in self._copies_of([answer.id for answer in answers]).items():
            if place >= len(self._kept):
                copies = tuple(answers[other].id for other in others)
                kept.append(answers[place]._replace(copies=copies))
        self._kept += kept
        return kept

    def _copies_of(self, ids: Sequence[str]) -> dict[int, list[int]]:
        """Return the places of answers that stay -> those of their near-duplicates behind them.

        Where codes of images are searched, the images are compared, too, as
        `channelhash.duplicates.groups.find_duplicates` does.
        """
        if not ids:
            return {}
        items = self.read(ids)
        images: list[str] = []
        if self.modality == "image":
            images = [str(item.metadata.get("image") or "") for item in items]
        radius = self._options.collapse
        if radius is None or radius is True:
            radius = default_radius(self._store.n_bits or 0, pictures=bool(images))
        codes = np.stack([code_of(item, self.modality) for item in items])
        return fold(codes, radius, images)

    def _is_close(self) -> bool | None:
        """Return whether any answer is close where it is not known what fits: the nearest codes
        are, or an answer has all of the words, which need no code to confirm them.
        """
        found = self._first.answers
        nearest = self._first.nearest
        if not self._modalities and not found:
            return False
        close = self.judge.is_close(nearest.distances, nearest.cosines)
        if close is False and self._with_words and found:
            complete = set(self._rank_words(max(DEPTH, len(found)), coverage=1.0).ids)
            close = any(answer.id in complete for answer in found)
        return close


def folds(store: Store, options: SearchOptions, modality: str) -> bool:
    """Return whether near-duplicates among the answers to a search of a modality are folded.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a"], {"image": np.array([[0]], np.uint8)}, None, n_bits=8))
    >>> folds(store, SearchOptions(), "image"), folds(store, SearchOptions(collapse=0), "image")
    (False, True)
    """
    if options.collapse is not None:
        return options.collapse is not False
    keeps_order = options.radius is not None or options.rerank is not None
    return modality == "image" and not keeps_order and store.has_images


def choose_rankings(store: Store, query: Query, options: SearchOptions) -> Sequence[str]:
    """Return what answers a query: modalities of codes, and `WORDS`.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a"], {"image": np.array([[0]], np.uint8)}, None, n_bits=8))
    >>> choose_rankings(store, Query(np.array([7], np.uint8), words="dog"), SearchOptions())
    ['image', 'words']
    """
    if options.modality is not None and options.by not in (None, options.modality):
        raise InputError(
            f"{argument('by')} {options.by}: says what is searched, and so does "
            f"{argument('modality')}; leave that out"
        )
    rankings = _rankings_asked_for(store, query, options)
    if not query.words_coded and WORDS not in rankings:
        raise InputError(ALONE)
    if rankings == [WORDS]:
        _check_words_alone(query, options)
    return rankings


def _rankings_asked_for(store: Store, query: Query, options: SearchOptions) -> Sequence[str]:
    if options.by == WORDS:
        return [WORDS]
    if options.by in ("image", "text"):
        return [store.choose_modality(options.by)]
    if options.by is None and _by_codes_alone(query, options):
        return [store.choose_modality(options.modality)]
    rankings = [*store.modalities] if len(query.code) else []
    if store.has_words and query.words:
        rankings.append(WORDS)
    return rankings


def _by_codes_alone(query: Query, options: SearchOptions) -> bool:
    """Return whether the codes of one modality alone are searched unless others are named."""
    named = (options.modality, options.radius, options.rerank)
    return not query.words or any(option is not None for option in named)


def _check_words_alone(query: Query, options: SearchOptions) -> None:
    if not query.words:
        raise InputError(
            f"{argument('by')} words: the question has no words; add some, or search by image or "
            "text"
        )
    if options.radius is not None:
        raise InputError(
            f"{argument('by')} words: words have no distance; leave {argument('radius')} out"
        )


def rank_codes(store: Store, query: Query, count: int | None, options: SearchOptions) -> Ranking:
    """Return the best ``count`` items by codes, see the module; None, only with a radius, for all
    within it.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8)
    >>> rank_codes(open_codes(codes), Query(np.array([7], np.uint8)), 2, SearchOptions()).distances
    [0, 3]
    """
    outputs = query.outputs
    radius = options.radius
    modality = options.modality
    where = options.where
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


def code_of(item: Item, modality: str) -> PackedCodes:
    """Return an item's code of a modality, or of another one if it has none of that.

    >>> code_of(Item("a", {"text": np.array([7], np.uint8)}), "image").tolist()
    [7]
    """
    return item.codes[modality if modality in item.codes else min(item.codes)]


def _depths(least: int) -> Iterator[int]:
    """Yield the depths of rankings, the first of which is at least ``least``."""
    first = max(DEPTH, least)
    yield first
    depth = _SECOND
    while True:
        if depth > first:
            yield depth
        depth *= _TIMES
