"""The groups of near-duplicates within 3 bits among random codes, beside FAISS's multi-index hashing.

A tenth of the codes are others with up to 3 bits flipped. FAISS has a table for each of 4 substrings, so that it finds
every pair within 3 bits, too; it asks with each code, of which a sample is timed, and makes no groups of the pairs.
"""

import faiss
import numpy as np

from channelhash.codes import PackedCodes
from channelhash.search.index.duplicates import duplicate_groups
from channelhash.utils.seeds import generator
from measure import options, print_rows
from timing import Row, compare

RADIUS, SHARE, SAMPLE = 3, 10, 1000


def main() -> None:
    """Print a row for each number of codes and code length."""
    given = options(__doc__, sizes=(10**5, 10**6), bits=(64, 128, 256))
    print_rows([measure(n, n_bits) for n in given.sizes for n_bits in given.bits])


def measure(n: int, n_bits: int) -> Row:
    """Compare finding all groups."""
    codes = draw_near_duplicates(n, n_bits)
    index = faiss.IndexBinaryMultiHash(n_bits, RADIUS + 1, min(32, n_bits // (RADIUS + 1)))
    index.nflip = 0
    index.add(codes)
    sample = codes[:SAMPLE]
    return compare(
        f"near-duplicates within {RADIUS} bits, {len(duplicate_groups(codes, n_bits, RADIUS)):,} groups",
        f"{n:,} × {n_bits}",
        lambda: duplicate_groups(codes, n_bits, RADIUS),
        f"FAISS multi-index hashing ({len(sample)} queries timed)",
        lambda: index.range_search(sample, RADIUS + 1),
        repeats=3,
        part=len(sample) / n,
    )


def draw_near_duplicates(n: int, n_bits: int) -> PackedCodes:
    """Draw random codes, of which a tenth are others with up to `RADIUS` bits flipped."""
    random = generator(0, "benchmark duplicates", n, n_bits)
    codes = random.integers(0, 256, (n, n_bits // 8), dtype=np.uint8)
    places = random.permutation(n)
    copies, sources = places[: n // SHARE], places[n // SHARE :][: n // SHARE]
    codes[copies] = codes[sources]
    for _ in range(RADIUS):
        bits = random.integers(0, n_bits, len(copies))
        flipped = (random.random(len(copies)) < 0.5).astype(np.uint8) << (bits % 8).astype(np.uint8)
        codes[copies, bits // 8] ^= flipped
    return codes


if __name__ == "__main__":
    main()
