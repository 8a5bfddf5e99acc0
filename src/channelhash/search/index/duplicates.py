"""Groups of near-duplicates: exact all-pairs within a radius, by substrings that must agree.

Why nothing is missed (pigeonhole). Codes are cut into t substrings. Two codes within r bits of each other differ in at
most r of the substrings, so at least t − r of them agree. For each choice of t − r substrings the codes are sorted by
those, and only codes that agree in all of them are compared. More substrings make more passes with smaller buckets; a
sample of the codes says which t costs least.

Pairs are never kept: each joins two sets of a union-find, and codes that are in one set already are not compared.
"""

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed, pack
from channelhash.codes.popcount import popcount
from channelhash.search.index import Words, code_words, find_distinct, rows_by_number
from channelhash.utils.compiled import inner, njit
from channelhash.utils.seeds import generator

# Codes that the cost of a cut is estimated from, and what sorting a code costs beside comparing two.
_SAMPLE, _SORT = 1 << 12, 100
# Substrings beyond the radius + 1 that are tried, and passes at most.
_FURTHER, _PASSES = 4, 60
_MIX = np.uint64(0x9E3779B97F4A7C15)


def duplicate_groups(packed: PackedCodes, n_bits: int, radius: int = 3) -> list[NDArray[np.int64]]:
    """Find the groups of codes that are connected by steps of at most ``radius`` bits: connected components.

    In a chain, two ends may be farther apart than the radius.

    Equal codes cost O(n log n) for n rows. Of m distinct ones, random and of 64 bits or more, the time grows little
    faster than m for m up to some millions; short codes in dense clusters are compared pair by pair at worst. Memory is
    O(m), whatever the number of pairs.

    >>> codes = np.array([[0], [255], [1], [7], [255]], np.uint8)
    >>> [group.tolist() for group in duplicate_groups(codes, n_bits=8, radius=2)]
    [[0, 2, 3], [1, 4]]
    """
    if radius < 0:
        raise ValueError(f"radius is {radius}; a distance is at least 0")
    check_packed(packed, n_bits)
    codes, starts, rows = find_distinct(packed, n_bits)
    parents = np.arange(codes.shape[1])
    if radius >= n_bits:
        parents[:] = 0
    elif radius and codes.shape[1] > 1:
        by_code = np.ascontiguousarray(codes.T)
        for mask in _masks(by_code, n_bits, radius):
            keys = _keys(by_code, mask)
            order = np.argsort(keys)
            _join_buckets(by_code[order], keys[order], order, radius, parents)
    numbers = np.empty(len(rows), np.int64)
    numbers[rows] = np.repeat(parents, starts[1:] - starts[:-1])
    groups = [group for group in rows_by_number(numbers) if len(group) > 1]
    return sorted(groups, key=lambda group: (-len(group), int(group[0])))


def _masks(codes: Words, n_bits: int, radius: int) -> list[Words]:
    """Return the bits ``(words,)`` that must agree in each pass: those of the cut that costs least in a sample."""
    m = len(codes)
    sample = codes[generator(0, "duplicates", m).choice(m, min(m, _SAMPLE), replace=False)]
    best: list[Words] = []
    least = np.inf
    for parts in range(radius, min(n_bits, radius + 1 + _FURTHER) + 1):  # of as many as the radius none need agree
        if best and comb(parts, radius) > _PASSES:
            break
        masks = _masks_of_cut(parts, codes.dtype, n_bits, radius)
        compared = sum(_pairs(_keys(sample, mask)) for mask in masks) * (m / len(sample)) ** 2
        if (cost := _SORT * m * len(masks) + compared) < least:
            best, least = masks, cost
    return best


def _masks_of_cut(parts: int, word: np.dtype[Any], n_bits: int, radius: int) -> list[Words]:
    """Return a mask for each choice of ``parts`` − ``radius`` of the substrings."""
    bounds = np.arange(parts + 1) * n_bits // parts
    masks = []
    for chosen in combinations(range(parts), parts - radius):
        bits = np.zeros((1, n_bits), dtype=np.bool_)
        for part in chosen:
            bits[0, bounds[part] : bounds[part + 1]] = True
        masks.append(code_words(pack(bits), n_bits)[0].astype(word))
    return masks


def _pairs(keys: NDArray[np.uint64]) -> float:
    """Count the pairs of equal keys."""
    counts = np.unique(keys, return_counts=True)[1].astype(np.float64)
    return float((counts * (counts - 1)).sum() / 2)


def _keys(codes: Words, mask: Words) -> NDArray[np.uint64]:
    """Return a number for each code, equal where the masked bits are; rarely equal where they are not, which costs
    a comparison."""
    keys = np.zeros(len(codes), dtype=np.uint64)
    for w in range(len(mask)):
        keys = (keys ^ (codes[:, w] & mask[w])) * _MIX
        keys ^= keys >> np.uint64(29)
    return keys


@inner
def _root(parents, c):  # type: ignore[no-untyped-def]
    """Return the root of a code's set, and halve the way there."""
    while parents[c] != c:
        parents[c] = parents[parents[c]]
        c = parents[c]
    return c


@inner
def _largest_set_last(codes, order, parents, begin, end):  # type: ignore[no-untyped-def]
    """Move the codes of the set that most of a bucket is in, if any is, to its end; return where they begin."""
    root, votes = np.int64(-1), 0
    for i in range(begin, end):  # Boyer and Moore's vote
        set_root = _root(parents, order[i])
        if votes == 0:
            root = set_root
        votes += 1 if set_root == root else -1
    i = begin
    while i < end:
        if _root(parents, order[i]) == root:
            end -= 1
            order[i], order[end] = order[end], order[i]
            for w in range(codes.shape[1]):
                codes[i, w], codes[end, w] = codes[end, w], codes[i, w]
        else:
            i += 1
    return end


@njit(cache=True, nogil=True)
def _join_buckets(codes, keys, order, radius, parents):  # type: ignore[no-untyped-def]
    """Join the near ones among codes of equal key, which stand side by side; their order within a key may change.

    In the end each of the union-find ``parents`` names the root of its set.
    """
    begin = 0
    while begin < len(keys):
        end = begin + 1
        while end < len(keys) and keys[end] == keys[begin]:
            end += 1
        last = _largest_set_last(codes, order, parents, begin, end) if end > begin + 1 else begin
        for i in range(begin, last):
            root = _root(parents, order[i])
            for j in range(i + 1, end):
                if j >= last and root == _root(parents, order[last]):
                    break  # the rest is one set, and this code is in it by now
                distance = np.int64(0)
                for w in range(codes.shape[1]):
                    distance += np.int64(popcount(codes[i, w] ^ codes[j, w]))  # type: ignore[call-arg]
                if distance <= radius:
                    other = _root(parents, order[j])
                    if other != root:
                        first = min(root, other)
                        parents[max(root, other)] = first
                        root = first
        begin = end
    for c in range(len(parents)):
        parents[c] = _root(parents, c)
