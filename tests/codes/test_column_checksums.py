"""Checksums of columns: zlib's CRC-32 of the lengths and of the values, wherever the rows are cut."""

from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest

from channelhash.codes.column_checksums import column_checksums

TEXTS, CODES, LISTS = ["a", "", "bcd", "e"], [b"xy", b"\x00\x01", b"zz", b"xy"], [[1], [], [2, 3], [4]]
TABLE = pa.table(
    {"text": TEXTS, "code": pa.array(CODES, pa.binary(2)), "labels": pa.array(LISTS, pa.list_(pa.int32()))}
)


def of_lengths(values):
    return crc32(np.array([len(value) for value in values], np.int32).tobytes())


@pytest.mark.parametrize("table", [TABLE, pa.concat_tables([TABLE[:1], TABLE[1:1], TABLE[1:]])], ids=["one", "cut"])
def test_they_are_rows_and_the_crcs_of_lengths_and_values(table):
    assert column_checksums(table) == {
        "text": [4, of_lengths(TEXTS), crc32("".join(TEXTS).encode())],
        "code": [4, 0, crc32(b"".join(CODES))],
        "labels": [4, of_lengths(LISTS), crc32(np.array([1, 2, 3, 4], np.int32).tobytes())],
    }


def test_they_go_on_and_other_columns_or_types_are_refused():
    assert column_checksums(TABLE[2:], column_checksums(TABLE[:2])) == column_checksums(TABLE)
    with pytest.raises(ValueError, match="the columns are text, not text, code, labels"):
        column_checksums(TABLE.select(["text"]), column_checksums(TABLE))
    with pytest.raises(ValueError, match="a column of double is none of codes"):
        column_checksums(pa.table({"x": [0.5]}))
