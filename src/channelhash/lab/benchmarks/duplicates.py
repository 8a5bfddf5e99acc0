"""Speed of finding near-duplicates, beside FAISS."""

from collections.abc import Sequence

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.search.index.duplicates import duplicate_groups
from channelhash.utils.optional_imports import library
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, compare

RADIUS = 3
# One of so many codes is a near-duplicate of another; so many queries FAISS is timed on, its time is scaled to all.
_SHARE, _SAMPLE = 10, 1000


def benchmark_duplicates(sizes: Sequence[int], lengths: Sequence[int]) -> list[Row]:
    """Measure the groups of near-duplicates among random codes, a tenth of which are others with up to 3 bits flipped.

    FAISS's multi-index hashing has a table for each of 4 substrings, so that it finds every pair within 3 bits, too; it
    asks with each code and makes no groups of the pairs.

    Args:
        sizes: numbers of codes.
        lengths: code lengths, multiples of 8.

    Raises:
        InputError: FAISS is not installed.
    """
    faiss = library("faiss", "faiss")
    rows = []
    for n in sizes:
        for n_bits in lengths:
            codes = draw_near_duplicates(n, n_bits)
            index = faiss.IndexBinaryMultiHash(n_bits, RADIUS + 1, min(32, n_bits // (RADIUS + 1)))
            index.nflip = 0
            index.add(codes)
            sample = codes[:_SAMPLE]
            rows.append(
                compare(
                    f"near-duplicates within {RADIUS} bits",
                    f"{n} codes × {n_bits} bits",
                    lambda codes=codes, n_bits=n_bits: duplicate_groups(codes, n_bits, RADIUS),  # type: ignore[misc]
                    f"FAISS multi-index hashing ({len(sample)} queries timed)",
                    lambda index=index, sample=sample: index.range_search(sample, RADIUS + 1),  # type: ignore[misc]
                    repeats=3,
                    part=len(sample) / n,
                )
            )
    return rows


def draw_near_duplicates(n: int, n_bits: int) -> PackedCodes:
    """Draw random codes, of which a tenth are others with up to `RADIUS` bits flipped.

    >>> draw_near_duplicates(20, 64).shape
    (20, 8)
    """
    random = generator(0, "benchmark duplicates", n, n_bits)
    codes = random.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)
    places = random.permutation(n)
    copies, sources = places[: n // _SHARE], places[n // _SHARE :][: n // _SHARE]
    codes[copies] = codes[sources]
    for _ in range(RADIUS):
        bits = random.integers(0, n_bits, len(copies))
        flipped = (random.random(len(copies)) < 0.5).astype(np.uint8) << (bits % 8).astype(np.uint8)
        codes[copies, bits // 8] ^= flipped
    return codes
