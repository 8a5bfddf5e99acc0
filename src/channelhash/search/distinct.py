"""Codes without repetition: each distinct code once, with the rows that have it."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, words

#: Codes as words of 32 bits where one is enough, else of 64.
Words = NDArray[Any]
Rows = NDArray[np.uint32]

_EMPTY = np.uint32(0xFFFFFFFF)


class DistinctCodes(NamedTuple):
    """Each code once, in the order in which they first occur.

    Attributes:
        codes: ``(words, m)``, a word of neighbouring codes side by side.
        starts: ``(m + 1,)``: the rows of code ``c`` are ``rows[starts[c] : starts[c + 1]]``, in ascending order.
        rows: ``(n,)``.
    """

    codes: Words
    starts: Rows
    rows: Rows


def distinct_codes(packed: PackedCodes, n_bits: int) -> DistinctCodes:
    """Distinct codes of ``(n, ceil(n_bits / 8))`` packed ones, in expected O(n) time.

    Raises:
        ValueError: there are 2³² rows or more.
    """
    if len(packed) >= _EMPTY:
        raise ValueError(f"{len(packed)} codes are too many for one index: it numbers rows with 32 bits")
    codes = code_words(packed, n_bits)
    code_of_row = np.empty(len(codes), dtype=np.uint32)
    first_rows = np.empty(len(codes), dtype=np.uint32)
    slots = np.full(1 << max(1, int(np.ceil(np.log2(2 * max(1, len(codes)))))), _EMPTY, dtype=np.uint32)
    m = _number_codes(codes, slots, code_of_row, first_rows)
    starts = np.zeros(m + 1, dtype=np.uint32)
    rows = np.empty(len(codes), dtype=np.uint32)
    _list_rows(code_of_row, starts, rows)
    return DistinctCodes(np.ascontiguousarray(codes[first_rows[:m]].T), starts, rows)


def code_words(packed: PackedCodes, n_bits: int) -> Words:
    """Packed codes as words ``(n, words)``; bit ``j`` of a code is bit ``b - 1 - j % b`` of word ``j // b`` of b bits."""
    big_endian = words(packed).view(">u8")
    return (big_endian >> np.uint64(32)).astype(np.uint32) if n_bits <= 32 else big_endian.astype(np.uint64)


@njit(
    ["int64(uint32[:, ::1], uint32[::1], uint32[::1], uint32[::1])",
     "int64(uint64[:, ::1], uint32[::1], uint32[::1], uint32[::1])"],
    cache=True,
    nogil=True,
)  # fmt: skip
def _number_codes(codes, slots, code_of_row, first_rows):  # type: ignore[no-untyped-def]
    """Number the codes as they come, by a hash table with open addressing; the number of distinct ones.

    Args:
        codes: ``(n, words)``.
        slots: code numbers, all free; a power of 2 and at least ``2 n`` of them.
        code_of_row: ``(n,)`` to write to.
        first_rows: ``(n,)`` to write to: the first row that has each code.
    """
    m, last = 0, np.uint64(len(slots) - 1)
    for row in range(len(codes)):
        code = codes[row]
        value = np.uint64(0)
        for word in code:
            # Fibonacci hashing; the upper bits are the well mixed ones.
            value = (value ^ np.uint64(word)) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(32)
        slot = value & last
        while slots[slot] != _EMPTY:
            other, same = codes[first_rows[slots[slot]]], True
            for w in range(len(code)):
                same &= code[w] == other[w]
            if same:
                break
            slot = (slot + np.uint64(1)) & last
        if slots[slot] == _EMPTY:
            slots[slot] = m
            first_rows[m] = row
            m += 1
        code_of_row[row] = slots[slot]
    return m


@njit("void(uint32[::1], uint32[::1], uint32[::1])", cache=True, nogil=True)
def _list_rows(code_of_row, starts, rows):  # type: ignore[no-untyped-def]
    """Rows by code, as `DistinctCodes` has them. ``starts`` comes as zeros."""
    for code in code_of_row:
        starts[code + 1] += 1
    for c in range(1, len(starts)):
        starts[c] += starts[c - 1]
    # ``starts[c]`` goes ahead to where the next row of code c belongs, and so ends at ``starts[c + 1]``.
    for row in range(len(code_of_row)):
        code = code_of_row[row]
        rows[starts[code]] = row
        starts[code] += 1
    for c in range(len(starts) - 1, 0, -1):
        starts[c] = starts[c - 1]
    starts[0] = 0
