"""Answer a query by all that a store has: the codes of each modality and the words, as one ranking."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from channelhash.codes import hamming_distances
from channelhash.errors import InputError
from channelhash.search.fusion import Ranking, fuse
from channelhash.search.hits import Hit, Hits, Query, SearchOptions, collapse_hits, judge_hits, make_hit, search_hits
from channelhash.search.ranked_codes import RankedCodes, rank_codes
from channelhash.search.store import Store

#: Items that each ranking gives, or more if more answers are asked for.
DEPTH = 100

_WORDS = "words"
# Share of a question's words, by weight, that an item must have so that words speak for it beside codes: "the" alone
# does not.
_COVERAGE = 0.7
# Answers that are looked at where near-duplicates are folded.
_MOST_FOLDED = 400


def answer(store: Store, query: Query, options: SearchOptions | None = None) -> Hits:
    """Find the items that answer a query best, in a store that is not empty.

    A query with words is answered by what the store has of codes of images, codes of texts and words, fused by
    reciprocal ranks (`channelhash.search.fusion`); ties by distance, then by id. `SearchOptions.by` names one of them.
    Another query is answered by codes alone, see `search_hits`, and so is one with a modality, radius or re-ranking.

    Raises:
        InputError: the store or the query lacks what ``by`` names, or other options contradict it; or as `search_hits`.

    >>> import channelhash as ch
    >>> from channelhash.search.local.store import open_codes
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
    depth = max(DEPTH, options.k)
    found, nearest = [], dict[str, int]()
    searched, of_searched, cosines = store.choose_modality(), list[int](), None
    for modality in rankings:
        if modality != _WORDS:
            ids, distances, keys = _by_code(store, query, options, modality, depth)
            found.append(Ranking(ids, keys))
            if modality == searched:
                of_searched = distances
                cosines = [-key for key in keys] if store.projected and query.outputs is not None else None
            nearest |= {name: min(d, nearest.get(name, d)) for name, d in zip(ids, distances, strict=True)}
    if _WORDS in rankings:
        ranking = _by_words(store, query, options, depth)
        if options.radius is not None:
            kept = [place for place, name in enumerate(ranking.ids) if name in nearest]
            ranking = Ranking([ranking.ids[place] for place in kept], [ranking.keys[place] for place in kept])
        found.append(ranking)
    scores = _level(store, fuse(found), rankings, found)
    order = sorted(scores, key=lambda name: (-round(scores[name], 12), nearest.get(name, np.inf), name))
    count = options.k if options.radius is None else options.limit
    n_found = count and (count if options.collapse is None else max(_MOST_FOLDED, count))
    hits = []
    for item in store.get(order[:n_found]):
        modality = searched if searched in item.codes else min(item.codes)
        distance = int(hamming_distances(query.code[None], item.codes[modality][None])[0, 0])
        hits.append(make_hit(item, distance, modality))
    judged = judge_hits(store, query, searched, hits, of_searched, cosines)
    close = judged.close or (None if judged.close is None else any(_has_words(hit, query.words) for hit in judged))
    hits = list(judged) if options.collapse is None else collapse_hits(judged, options.collapse, count)
    return Hits(hits[:count], close)


def _has_words(hit: Hit, words: str) -> bool:
    """Return whether an item's id, text and labels have all of the words, which no code needs to confirm."""
    wanted, there = (set(re.findall(r"\w+", text.casefold())) for text in (words, f"{hit.id} {hit.text} {hit.labels}"))
    return bool(wanted) and wanted <= there


def _choose(store: Store, query: Query, options: SearchOptions) -> Sequence[str]:
    """Return what answers: modalities of codes, and ``"words"``."""
    by, asked_otherwise = options.by, options.radius is not None or options.rerank is not None
    if by is None and (options.modality is not None or asked_otherwise or not query.words):
        return [store.choose_modality(options.modality)]
    if options.modality not in (None, by):
        raise InputError(f"--by {by}: says what is searched, and so does --modality; leave that out")
    if by in ("image", "text"):
        return [store.choose_modality(by)]
    if by == _WORDS:
        if not query.words:
            raise InputError("--by words: the question has no words; add some, or search by image or text")
        if options.radius is not None:
            raise InputError("--by words: words have no distance; leave --radius out")
        return [_WORDS]
    return [*store.modalities, *[_WORDS] * (store.has_words and bool(query.words))]


def _level(
    store: Store, scores: dict[str, float], rankings: Sequence[str], found: Sequence[Ranking]
) -> dict[str, float]:
    """Let what an item lacks not count against it: without a code of a modality, its score is that of the others.

    Nor do words count that do not find an item without text code, for it has hardly any.
    """
    modalities = [name for name in rankings if name != _WORDS]
    if len({store.count(modality) for modality in modalities}) < 2:
        return scores
    by_words = set(found[-1].ids) if _WORDS in rankings else set()
    for item in store.get(list(scores)):
        n_known = sum(modality in item.codes for modality in modalities)
        n_known += _WORDS in rankings and ("text" in item.codes or item.id in by_words)
        scores[item.id] *= len(rankings) / max(1, n_known)
    return scores


def _by_code(store: Store, query: Query, options: SearchOptions, modality: str, depth: int) -> RankedCodes:
    count = depth if options.radius is None else options.limit
    return rank_codes(store, query.code, query.outputs, count, options.radius, modality, options.where)


def _by_words(store: Store, query: Query, options: SearchOptions, depth: int) -> Ranking:
    coverage = 0.0 if options.by == _WORDS else _COVERAGE
    ranking = store.search_words(query.words, depth, options.where, query.without, coverage)
    if options.by == _WORDS or len(ranking.ids) < depth:
        return ranking
    # Of many items with equal scores only some came: which, says nothing about them.
    whole = sum(score > ranking.keys[-1] for score in ranking.keys)
    return Ranking(ranking.ids[:whole], ranking.keys[:whole])
