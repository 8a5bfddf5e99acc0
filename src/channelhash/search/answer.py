"""The one order of all answers to a question; every page is a slice of it.

A store ranks its items by the codes of each modality and by words (`channelhash.search.rankings`).
A search by one of these keeps the order of that ranking. Several rankings are fused by reciprocal
ranks (`channelhash.search.rank`); ties are broken by distance, then by id.

The order does not depend on how many answers are asked for. Rankings that end at another place are
fused differently, so stores are asked for rankings of fixed depths. The answers of the first depth
come first, then those that the second depth adds, and so on, as far as answers are read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.search.fold import default_radius, fold
from channelhash.search.items import Item
from channelhash.search.match import FITS, Judge, doubt
from channelhash.search.question import WORDS, Query, SearchOptions
from channelhash.search.rank import Ranking, fuse_partial
from channelhash.search.rankings import rank_codes
from channelhash.search.store import Store

#: First depth: the number of items of each ranking.
DEPTH = 100
#: Second depth, which holds all answers that a server returns, at most 1,000.
_SECOND = 1024
#: Factor between further depths. Each costs more than all before it together, so reading far costs
#: little more than reading the last depth.
_TIMES = 4
#: Share of a question's words, by weight, that an item must have to be ranked by words beside
#: codes: having only "the" does not count.
_COVERAGE = 0.7
#: Decimals of fused scores that count; sums of the same shares may differ in the last ones.
_DECIMALS = 12
#: `doubt` of what does not fit.
_UNFIT = 2
#: Stands for a ranking that was not asked for.
_NO_RANKING = Ranking([], [])


class Ranked(NamedTuple):
    """An answer at its place in the order.

    Attributes:
        id: the item's id.
        fit: the probability that it answers a question in words, 1 where its own words do; None
            where the store cannot say.
        by_words: whether its words helped to find it.
        similarity: see `Hit.similarity`.
        copies: ids of the near-duplicates of the same depth that were folded into it; None if none
            are folded.

    >>> Ranked("a", fit=0.1).fits
    False
    """

    id: str
    fit: float | None = None
    by_words: bool = False
    similarity: float | None = None
    copies: tuple[str, ...] | None = None

    @property
    def fits(self) -> bool:
        """Whether it may answer the question; true if that is not known."""
        return doubt(self.fit) < _UNFIT


class _Depth(NamedTuple):
    """The answers that rankings of one depth add to those of shallower ones.

    Attributes:
        answers: the answers, best first.
        nearest: the ranking by the codes whose distances answers show.
        deeper: the least `doubt` of answers that may lie deeper: that of the last of ``nearest``,
            none if more have the question's words.
    """

    answers: list[Ranked]
    nearest: Ranking
    deeper: int

    @property
    def fits(self) -> list[float]:
        """The fits of its answers that are known."""
        return [answer.fit for answer in self.answers if answer.fit is not None]


class AnswerOrder:
    """All answers of a store to one question, in one order, which can be read once.

    Likely answers come first, then possible ones, where that is known. A search by codes alone
    within a radius keeps its own order.

    Attributes:
        modality: the modality whose distances answers show.
        judge: what these distances mean.
        close: see `Hits.close`.
        best_fit: the largest `Ranked.fit` of the first depth; 0 if none is known.
        alike: see `Hits.alike`; complete once the answers are read.
        unlikely: whether an answer that is unlikely to fit was left out so far.

    Args:
        store: a store that is not empty.
        query: the query.
        options: what is asked for. The order does not depend on ``k``, ``limit`` and ``offset``.
        rankings: modalities of codes, and `WORDS`, see `channelhash.search.rankings`.

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
        self.modality = store.choose_modality() if self._is_fused else rankings[0]
        self.judge = Judge(store, query, self.modality)
        self._fits_first = self._is_fused or options.radius is None
        self._sorts_by_fit = self._fits_first and self.judge.knows_fit
        self._folds = folds(store, options, self.modality)
        self._items: dict[str, Item] = {}
        self._kept: list[Ranked] = []  # answers into which others are folded
        self._depths = self._look_deeper()
        self._first = next(self._depths)
        fits = self._first.fits
        self.best_fit = max(fits, default=0.0)
        self.close = self.best_fit >= FITS if fits else self._is_close()
        self.alike: list[str] | None = None
        if self._folds and options.leave_out is not None:
            self.alike = []
        self.unlikely = False

    @property
    def found(self) -> int | None:
        """Number of answers that fit or are near enough; None where more may lie deeper than the
        first depth, and where all items answer.
        """
        is_limited = self._first.fits or self._options.radius is not None or not self._modalities
        return self._count(_UNFIT) if is_limited else None

    @property
    def likely(self) -> int | None:
        """Number of answers that are likely to fit, which come first; None as for `found`, or if no
        fit is known.
        """
        return self._count(1) if self._fits_first and self._first.fits else None

    def answers(self) -> Iterator[Ranked]:
        """Yield the answers, best first, and look deeper as they are read."""
        for answer in self._all():
            if self._leave_out(answer):
                continue
            if answer.fits or not self._options.fitting:
                yield answer
                continue
            self.unlikely = True
            if self._fits_first:
                return  # all answers that fit come before this one

    def read(self, ids: Sequence[str]) -> list[Item]:
        """Return the items of these ids, each read once, but those that were deleted meanwhile."""
        unread = [name for name in ids if name not in self._items]
        self._items |= {item.id: item for item in self._store.get(unread, missing_ok=True)}
        return [self._items[name] for name in ids if name in self._items]

    def _count(self, doubts: int) -> int | None:
        """Return the number of answers of less `doubt`; None if more may lie deeper."""
        if self._first.deeper < doubts:
            return None
        answers = [each for each in self._first.answers if not self._is_left(each)]
        return sum(_doubt_of(answer) < doubts for answer in answers)

    def _leave_out(self, answer: Ranked) -> bool:
        """Return whether an answer is the item to leave out, or a near-duplicate of it."""
        if not self._is_left(answer):
            return False
        if self.alike is not None:
            names = [answer.id, *(answer.copies or ())]
            self.alike += [name for name in names if name != self._options.leave_out]
        return True

    def _is_left(self, answer: Ranked) -> bool:
        return self._options.leave_out in (answer.id, *(answer.copies or ()))

    def _all(self) -> Iterator[Ranked]:
        """Yield all answers. Doubtful ones wait until no less doubtful ones can lie deeper."""
        waiting: list[Ranked] = []
        for found in chain([self._first], self._depths):
            waiting += found.answers
            ready = waiting
            if self._sorts_by_fit:
                waiting.sort(key=_doubt_of)
                ready = [answer for answer in waiting if _doubt_of(answer) <= found.deeper]
            yield from ready
            waiting = waiting[len(ready) :]
        yield from waiting

    def _look_deeper(self) -> Iterator[_Depth]:
        """Yield the new answers of each depth, up to the one that holds all rankings in full."""
        seen: set[str] = set()
        for depth in _depths():
            rankings, cut = self._rank(depth)
            names = [name for name in self._merge(rankings) if name not in seen]
            seen.update(names)
            yield self._judge_names(names, rankings, cut)
            if not cut:
                return

    def _rank(self, depth: int) -> tuple[dict[str, Ranking], set[str]]:
        """Return the rankings of one depth, and the names of those that go on deeper."""
        radius = self._options.radius
        rankings = {}
        for modality in self._modalities:
            options = replace(self._options, modality=modality)
            rankings[modality] = rank_codes(self._store, self._query, depth, options)
        near = _ids_of(rankings)
        cut = {name for name, ranking in rankings.items() if len(ranking.ids) == depth}
        if self._with_words:
            words = self._rank_words(depth)
            if radius is None and len(words.ids) == depth:
                cut.add(WORDS)
            rankings[WORDS] = self._keep_words(words, depth, None if radius is None else near)
        return rankings, cut

    def _rank_words(self, depth: int, coverage: float | None = None) -> Ranking:
        """Rank the items that have enough of the words."""
        if coverage is None:
            coverage = _COVERAGE if self._modalities else 0.0
        query = self._query
        where = self._options.where
        return self._store.search_words(query.words, depth, where, query.without, coverage)

    def _keep_words(self, words: Ranking, depth: int, near: set[str] | None) -> Ranking:
        """Return the part of a ranking by words that counts beside codes.

        With ``near``, other items are left out.
        """
        least = -np.inf
        if self._modalities and len(words.ids) == depth:
            # The ranking may end among items of equal scores, so none of these count.
            least = words.keys[-1]
        ids: list[str] = []
        scores: list[float] = []
        for name, score in zip(words.ids, words.keys, strict=True):
            if score > least and (near is None or name in near):
                ids.append(name)
                scores.append(score)
        return Ranking(ids, scores)

    def _merge(self, rankings: dict[str, Ranking]) -> Sequence[str]:
        """Return the ids of several rankings in one order."""
        by_codes = [rankings[modality] for modality in self._modalities]
        words = rankings.get(WORDS, _NO_RANKING)
        if len(by_codes) == 1 and not words.ids:
            return by_codes[0].ids
        nearest: dict[str, int] = {}
        for ranking in by_codes:
            for name, distance in zip(ranking.ids, ranking.distances, strict=True):
                nearest[name] = min(distance, nearest.get(name, distance))
        scores = fuse_partial(rankings, self._impossible_rankings(rankings))

        def order(name: str) -> tuple[float, float, str]:
            return -round(scores[name], _DECIMALS), nearest.get(name, np.inf), name

        return sorted(scores, key=order)

    def _impossible_rankings(self, rankings: dict[str, Ranking]) -> dict[str, list[str]]:
        """Return id -> the rankings that an item cannot be in, since it lacks a code.

        An item without a text code has hardly any words, so the ranking by words does not count
        either unless it holds the item.
        """
        counts = {self._store.count(modality) for modality in self._modalities}
        if len(counts) < 2:
            return {}  # one modality, or all items have codes of each
        names = _ids_of(rankings)
        by_words = set(rankings.get(WORDS, _NO_RANKING).ids)
        impossible = {}
        for item in self.read(sorted(names)):
            missing = [modality for modality in self._modalities if modality not in item.codes]
            if missing:
                lacks_words = "text" in missing and item.id not in by_words
                impossible[item.id] = [*missing, WORDS] if lacks_words else missing
        return impossible

    def _judge_names(
        self, names: Sequence[str], rankings: dict[str, Ranking], cut: set[str]
    ) -> _Depth:
        """Make items answers: judge how likely they fit, sort by that, and fold near-duplicates."""
        by_words = set(rankings.get(WORDS, _NO_RANKING).ids)
        nearest = rankings.get(self.modality, _NO_RANKING)
        fits = self._fits(names, nearest, by_words)
        similarities: dict[str, float] = {}
        if nearest.similarities is not None:
            similarities = dict(zip(nearest.ids, nearest.similarities, strict=True))
        answers = [
            Ranked(name, fits.get(name), name in by_words, similarities.get(name)) for name in names
        ]
        if self._sorts_by_fit:
            answers.sort(key=_doubt_of)
        if self._folds:
            answers = self._fold(answers)
        deeper = doubt(fits.get(nearest.ids[-1])) if self.modality in cut else _UNFIT
        return _Depth(answers, nearest, 0 if WORDS in cut else deeper)

    def _fits(self, names: Sequence[str], nearest: Ranking, by_words: set[str]) -> dict[str, float]:
        """Return id -> the probability that the item fits, where that is known.

        It follows from the cosines of the ranking, or of projections that are read.
        """
        query = self._query
        if not self.judge.knows_fit or query.outputs is None:
            return {}
        fits: dict[str, float] = {}
        if nearest.similarities is not None:
            fits.update(zip(nearest.ids, self.judge.fits(nearest.similarities), strict=True))
        fits |= dict.fromkeys(by_words, 1.0)
        unjudged = self.read([name for name in names if name not in fits])
        projections = {
            item.id: item.projections[self.modality]
            for item in unjudged
            if self.modality in item.projections
        }
        stage = self._store.stage
        if projections and stage is not None:
            rows = np.stack(list(projections.values()))
            angles = stage.scores(self.modality, query.outputs, rows, query.modality)
            fits.update(zip(projections, self.judge.fits(angles.tolist()), strict=True))
        return fits

    def _fold(self, answers: list[Ranked]) -> list[Ranked]:
        """Fold near-duplicates into the answer before them.

        Those of an answer of a shallower depth, which may have been returned, are dropped.
        """
        items = self.read([answer.id for answer in answers])
        present = {item.id for item in items}
        answers = [*self._kept, *(answer for answer in answers if answer.id in present)]
        kept = []
        for front, others in self._copies_of([answer.id for answer in answers]).items():
            if min([front, *others]) >= len(self._kept):
                kept.append(_as_one([answers[place] for place in (front, *others)]))
        self._kept += kept
        return kept

    def _copies_of(self, ids: Sequence[str]) -> dict[int, list[int]]:
        """Return the place of each answer to keep -> the places of its near-duplicates, in the
        order of the best of each group.

        In a search of images their files are compared, too, as `find_duplicates` does.
        """
        if not ids:
            return {}
        items = self.read(ids)
        images = _images_of(items) if self.modality == "image" else []
        codes = np.stack([code_of(item, self.modality) for item in items])
        radius = self._options.collapse
        if radius is not None and radius is not True:
            return fold(codes, radius, images)
        radius = default_radius(self._store.n_bits or 0, images=bool(images))
        folded = fold(codes, radius, images)
        regroup = self._options.regroup
        return regroup(self._store, items, codes, folded) if regroup and images else folded

    def _is_close(self) -> bool | None:
        """Return whether any answer is close if it is not known what fits; None if unknown.

        The nearest codes are close, or an answer has all words.
        """
        found = self._first.answers
        nearest = self._first.nearest
        if not found and not self._modalities:
            return False  # none has any of the words
        close = self.judge.is_close(nearest.distances, nearest.similarities)
        if close is False and self._with_words and found:
            complete = set(self._rank_words(max(DEPTH, len(found)), coverage=1.0).ids)
            close = any(answer.id in complete for answer in found)
        return close


def _images_of(items: Sequence[Item]) -> list[str]:
    return [str(item.metadata.get("image") or "") for item in items]


def _as_one(group: Sequence[Ranked]) -> Ranked:
    """Return the first of some copies with the others, and as likely to fit as any."""
    copies = tuple(answer.id for answer in group[1:])
    return group[0]._replace(copies=copies, fit=min(group, key=_doubt_of).fit)


def _doubt_of(answer: Ranked) -> int:
    return doubt(answer.fit)


def _ids_of(rankings: Mapping[str, Ranking]) -> set[str]:
    return set(chain.from_iterable(ranking.ids for ranking in rankings.values()))


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
    return modality == "image" and options.radius is None and store.has_images


def code_of(item: Item, modality: str) -> PackedCodes:
    """Return an item's code of a modality, or another of its codes if it has none of that.

    >>> code_of(Item("a", {"text": np.array([7], np.uint8)}), "image").tolist()
    [7]
    """
    return item.codes[modality if modality in item.codes else min(item.codes)]


def _depths() -> Iterator[int]:
    """Yield the depths of rankings."""
    yield DEPTH
    depth = _SECOND
    while True:
        yield depth
        depth *= _TIMES
