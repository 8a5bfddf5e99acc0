"""Answer a query by all that a store has: the codes of each modality and the words, as one ranking."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from channelhash.codes import hamming_distances
from channelhash.errors import InputError
from channelhash.search.hits import (
    Hits,
    Query,
    RankedCodes,
    SearchOptions,
    collapse_hits,
    judge_hits,
    make_hit,
    rank_codes,
    search_hits,
)
from channelhash.search.rank import Ranking, fuse_partial
from channelhash.search.store import Store

#: Items that each ranking gives, or more if more answers are asked for.
DEPTH = 100
#: Why what is written cannot be compared with the codes of an encoder without a text side, and what to do.
ALONE = (
    "these codes are of images alone, which a text cannot be compared with; make the store with at least 100 captions "
    "(`channelhash index create STORE PHOTOS --captions FILE`) or with an encoder of texts, too (`--encoder "
    "openclip:NAME/WEIGHTS`), or ask with --image or --like"
)

_WORDS = "words"
# Share of a question's words, by weight, that an item must have so that words speak for it beside codes: "the" alone
# does not.
_COVERAGE = 0.7
# Answers that are looked at where near-duplicates are folded.
_MOST_FOLDED = 400


def answer(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items that answer a query best, in a store that is not empty.

    A query with words is answered by what the store has of codes of images, codes of texts and words, fused by
    reciprocal ranks (`channelhash.search.rank`); ties by distance, then by id. `SearchOptions.by` names one of them.
    Without a code, words alone answer. Another query is answered by codes alone, see `search_hits`, and so is one with
    a modality, radius or re-ranking.

    Raises:
        InputError: the store or the query lacks what ``by`` names, or other options contradict it; or as `search_hits`.

    >>> import channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8, texts=("a dog", ""))
    >>> query = Query(np.array([3], np.uint8), words="dog")
    >>> [(hit.id, hit.distance) for hit in answer(open_codes(codes), query)]
    [('a', 2), ('b', 1)]
    """
    options = options or SearchOptions()
    rankings = _choose(store, query, options)
    if len(rankings) == 1 and rankings[0] != _WORDS:
        return search_hits(store, query, replace(options, modality=rankings[0], by=None))
    if options.rerank is not None:
        raise InputError("--rerank: orders the answers of one modality's codes; name it, --by image or --by text")
    coded = {modality: _by_code(store, query, options, modality) for modality in rankings if modality != _WORDS}
    nearest: dict[str, int] = {}
    for ranked in coded.values():
        nearest |= {name: min(d, nearest.get(name, d)) for name, d in zip(ranked.ids, ranked.distances, strict=True)}
    found = {modality: Ranking(ranked.ids, ranked.keys) for modality, ranked in coded.items()}
    if _WORDS in rankings:
        found[_WORDS] = _by_words(store, query, options, nearest, alone=not coded)
    scores = fuse_partial(found, _lacking(store, found))
    order = sorted(scores, key=lambda name: (-round(scores[name], 12), nearest.get(name, np.inf), name))
    count = options.k if options.radius is None else options.limit
    n_found = count and (count if options.collapse is None else max(_MOST_FOLDED, count))
    by_cosine = bool(coded) and store.projected and query.outputs is not None and options.radius is None
    judged = _judged(store, query, order[:n_found], coded, by_cosine)
    close = judged.close
    if close is False and _WORDS in found and order:  # all of the words need no code to confirm them
        whole = store.search_words(query.words, len(order), options.where, query.without, coverage=1.0)
        close = not set(whole.ids).isdisjoint(order[:n_found])
    hits = list(judged)
    if options.collapse is not None:
        hits = collapse_hits(hits, options.collapse, store.choose_modality(), count)
    note = "" if query.words_coded or options.by == _WORDS else f"what you wrote is looked for by its words: {ALONE}"
    return Hits(hits[:count], close if coded or hits else False, note)


def _judged(store: Store, query: Query, names: Sequence[str], coded: dict[str, RankedCodes], by_cosine: bool) -> Hits:
    """Return the items of these ids as hits, and what their distances mean."""
    searched = store.choose_modality()
    hits = [make_hit(item, None, searched if searched in item.codes else min(item.codes)) for item in store.get(names)]
    if len(query.code) and hits:
        distances = hamming_distances(query.code[None], np.stack([hit.code for hit in hits]))[0].tolist()
        hits = [replace(hit, distance=distance) for hit, distance in zip(hits, distances, strict=True)]
    ranked = coded.get(searched, RankedCodes([], [], []))
    cosines = [-key for key in ranked.keys] if by_cosine else None
    return judge_hits(store, query, searched, hits, ranked.distances, cosines)


def _choose(store: Store, query: Query, options: SearchOptions) -> Sequence[str]:
    """Return what answers: modalities of codes, and ``"words"``."""
    by, asked_otherwise = options.by, options.radius is not None or options.rerank is not None
    if options.modality is not None and by not in (None, options.modality):
        raise InputError(f"--by {by}: says what is searched, and so does --modality; leave that out")
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
        raise InputError("--by words: the question has no words; add some, or search by image or text")
    if rankings == [_WORDS] and options.radius is not None:
        raise InputError("--by words: words have no distance; leave --radius out")
    return rankings


def _lacking(store: Store, found: dict[str, Ranking]) -> dict[str, list[str]]:
    """Return the id of each item that was found and has no code of a modality -> the rankings that it cannot be in.

    Without a text code it has hardly any words, so words do not count either unless they found it.
    """
    modalities = [name for name in found if name != _WORDS]
    if len({store.count(modality) for modality in modalities}) < 2:
        return {}
    by_words = set(found[_WORDS].ids) if _WORDS in found else set()
    lacking: dict[str, list[str]] = {}
    for item in store.get(sorted({name for ranking in found.values() for name in ranking.ids})):
        lacks = [modality for modality in modalities if modality not in item.codes]
        if _WORDS in found and "text" in lacks and item.id not in by_words:
            lacks.append(_WORDS)
        if lacks:
            lacking[item.id] = lacks
    return lacking


def _by_code(store: Store, query: Query, options: SearchOptions, modality: str) -> RankedCodes:
    count = max(DEPTH, options.k) if options.radius is None else options.limit
    return rank_codes(store, query.code, query.outputs, count, options.radius, modality, options.where)


def _by_words(store: Store, query: Query, options: SearchOptions, near: Collection[str], alone: bool) -> Ranking:
    """Rank by words; within a radius, only what is near."""
    depth = max(DEPTH, options.k)
    ids, keys = store.search_words(query.words, depth, options.where, query.without, 0.0 if alone else _COVERAGE)
    whole = len(ids)
    if not alone and whole == depth:
        # Of many items with equal scores only some came: which, says nothing about them.
        whole = sum(score > keys[-1] for score in keys)
    places = [place for place in range(whole) if options.radius is None or ids[place] in near]
    return Ranking([ids[place] for place in places], [keys[place] for place in places])


#: Answers that can be turned over to, at most, if nobody says otherwise.
_MOST = 1000


class Page(NamedTuple):
    """Some of a query's answers.

    Attributes:
        hits: the answers of the page.
        alike: ids of the near-duplicates of the item that was left out; None where none was, or none are folded.
    """

    hits: Hits
    alike: list[str] | None


def answer_page(
    store: Store, query: Query, options: SearchOptions, offset: int = 0, most: int = _MOST, leave_out: str | None = None
) -> Page:
    """Return ``options.k`` answers to a query from ``offset`` on; over all offsets, each comes once.

    The ranking is that of `channelhash.search.fused.answer` for its `DEPTH` best, behind which come those that the same
    finds among its ``most`` best: what fused rankings say of the first hundred depends on how deep they go.

    Args:
        store: searched.
        query: the query.
        options: which items to return; ``k`` of them, also within a radius.
        offset: answers before the first of the page.
        most: answers of all pages.
        leave_out: id of an item that is no answer; with ``options.collapse``, nor are its near-duplicates.

    Raises:
        InputError: as `answer`.

    >>> import numpy as np, channelhash as ch
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b", "c"], {"image": np.array([[0], [1], [7]], np.uint8)}, None, n_bits=8))
    >>> page = answer_page(store, Query(np.array([0], np.uint8)), SearchOptions(k=1), offset=1, leave_out="a")
    >>> [hit.id for hit in page.hits]
    ['c']
    """
    end = offset + options.k + (leave_out is not None)
    # With a radius, the depth of fused rankings is the number of answers.
    first = DEPTH if options.radius is not None else min(end, DEPTH)
    hits = answer(store, query, replace(options, k=first, limit=first))
    if len(hits) < end and (len(hits) == DEPTH or options.collapse is not None):
        seen = {name for hit in hits for name in (hit.id, *(hit.duplicates or ()))}
        rest = most + (leave_out is not None)
        further = answer(store, query, replace(options, k=rest, limit=rest))
        hits += [hit for hit in further if seen.isdisjoint((hit.id, *(hit.duplicates or ())))]
    own = [(hit.id, *(hit.duplicates or ())) for hit in hits if leave_out in (hit.id, *(hit.duplicates or ()))]
    left_out = [name for group in own for name in group]
    others = [hit for hit in hits if hit.id not in left_out]
    folds = leave_out is not None and options.collapse is not None
    alike = [name for name in left_out if name != leave_out] if folds else None
    return Page(Hits(others[offset : offset + options.k], hits.close, hits.note), alike)
