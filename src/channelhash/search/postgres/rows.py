"""Codes and metadata as PostgreSQL keeps them, and the connections that send and read them so."""

import json
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
from channelhash.search.validation import Metadata
from channelhash.utils.optional_imports import library

_BIT_OID = 1560  # of the type bit(n), https://www.postgresql.org/docs/current/catalog-pg-type.html
_LENGTH_BYTES = 4  # the number of bits, before the bits
# An entry of a B-tree has up to 2,704 bytes, some of which are PostgreSQL's own.
_MAX_ID = 2_600
# From here on Python writes a float with an exponent and rounds it to 17 digits, which jsonb would return as a whole
# number of other digits.
_EXPONENT = 1e16


class Bits(NamedTuple):
    """A packed code, to be sent as ``bit(n_bits)``.

    >>> Bits(8, bytes([7])).n_bits
    8
    """

    n_bits: int
    packed: bytes


def connect(database: str) -> Any:
    """Open a connection that commits every statement on its own, and sends `Bits` as codes, metadata by `as_jsonb`.

    Strings are sent as UTF-8, whatever the database's encoding is. No statement is prepared on the server: a pool of
    connections (PgBouncer) may send the next one to another.

    Raises:
        InputError: psycopg is missing.
    """
    psycopg = library("psycopg", "postgres")

    class BitsDumper(psycopg.adapt.Dumper):  # type: ignore[misc, name-defined]
        format = psycopg.pq.Format.BINARY
        oid = _BIT_OID

        def dump(self, code: Bits) -> bytes:
            return code.n_bits.to_bytes(_LENGTH_BYTES, "big") + code.packed

    connection = psycopg.connect(
        database,
        autocommit=True,
        prepare_threshold=None,
        application_name="channelhash",
        client_encoding="UTF8",
        connect_timeout=10,
    )
    connection.adapters.register_dumper(Bits, BitsDumper)
    library("psycopg.types.json", "postgres").set_json_dumps(as_jsonb, connection)
    return connection


def to_code(sent: bytes) -> PackedCodes:
    """Return the packed code that a binary cursor reads as ``bit(n)``.

    >>> to_code(bytes([0, 0, 0, 8, 7])).tolist()
    [7]
    """
    return np.frombuffer(sent, np.uint8, offset=_LENGTH_BYTES)


def to_codes(sent: list[bytes], n_bits: int) -> PackedCodes:
    """Return codes ``(n, ceil(n_bits / 8))`` of what a binary cursor reads.

    >>> to_codes([bytes([0, 0, 0, 8, 7])], 8).tolist()
    [[7]]
    """
    width = _LENGTH_BYTES + -(-n_bits // 8)
    return np.frombuffer(b"".join(sent), np.uint8).reshape(len(sent), width)[:, _LENGTH_BYTES:]


def as_jsonb(metadata: Metadata) -> str:
    """Return metadata as JSON of which jsonb keeps every value, and whether it is a whole number.

    >>> as_jsonb({"year": 2020, "weight": 1e16, "text": None})
    '{"year": 2020, "weight": 10000000000000000.0, "text": null}'
    """
    fields = (f"{json.dumps(key, ensure_ascii=False)}: {_literal(value)}" for key, value in metadata.items())
    return f"{{{', '.join(fields)}}}"


def as_decimal(value: float) -> Decimal:
    """Return the number that stands for a whole number or a float in jsonb, and in comparisons with it.

    >>> as_decimal(0.1), as_decimal(1e16)
    (Decimal('0.1'), Decimal('10000000000000000'))
    """
    exact = isinstance(value, int) or abs(value) >= _EXPONENT
    return Decimal(value) if exact else Decimal(float.__repr__(value))


def is_storable(item_id: str) -> bool:
    """Return whether an item can have this id.

    >>> is_storable("a"), is_storable(chr(0)), is_storable(3_000 * "a")
    (True, False, False)
    """
    return "\0" not in item_id and len(item_id.encode()) <= _MAX_ID


def check_storable(address: str, ids: list[str]) -> None:
    """Raise `InputError` unless items can have these ids."""
    for name in ids:
        if not is_storable(name):
            raise InputError(
                f"{address}: id {name[:40]!r} holds a NUL or more than {_MAX_ID:,} bytes, which PostgreSQL does not"
                " take; choose another id"
            )


def _literal(value: Any) -> str:
    if isinstance(value, float) and abs(value) >= _EXPONENT:
        return f"{as_decimal(value):f}.0"
    return json.dumps(value, ensure_ascii=False)
