"""Connections of a store to its database: their addresses, and what is sent over them.

Every transaction has a connection of its own, which is kept for the next one. Codes are sent as
`Bits`, metadata as jsonb that keeps every number, filters as conditions on a row of ``items``.
"""

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

import numpy as np
from pydantic import Field

from channelhash.codes import PackedCodes
from channelhash.errors import InputError, JobError
from channelhash.search import filters
from channelhash.search.checks import check_process
from channelhash.search.items import Metadata, Value
from channelhash.utils.decode import one_line
from channelhash.utils.optional_imports import library
from channelhash.utils.typed_settings import Settings, read_settings

#: Bytes in front of the bits that say how many these are.
_LENGTH_BYTES = 4
#: The most candidates that pgvector allows HNSW to keep while it searches.
MOST_EF = 1000


class _Options(Settings):
    """The options of an address that are not passed to libpq."""

    index: Literal["hnsw"] | None = None
    ef_search: int = Field(100, ge=1, le=MOST_EF)


def parse_address(text: str) -> tuple[str, str, int]:
    """Parse ``postgresql://user@host:port/database?store=NAME&index=hnsw&ef_search=100``.

    ``store`` names the schema that holds the store. With ``index=hnsw`` searches are approximate.
    All other options go to libpq
    (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS).

    >>> parse_address("postgresql://localhost/photos?store=holidays&sslmode=require")
    ('postgresql://localhost/photos?sslmode=require', 'holidays', 0)
    """
    # As libpq does: `urlsplit` would read a # as a fragment, and drop the // before an empty host,
    # which means the socket of this machine.
    database, _, query = text.partition("?")
    # libpq does not read a + as a space.
    values = dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))
    schema = values.pop("store", "channelhash")
    if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", schema) or schema in (
        "public",
        "information_schema",
    ):
        problem = "not a name of lower-case letters, digits and '_', or PostgreSQL's own"
        raise InputError(f"{text}: store is {schema!r}, {problem}")
    options = read_settings(
        _Options, {key: values.pop(key) for key in ("index", "ef_search") if key in values}, text
    )
    if options.index is None and "ef_search" in options.model_fields_set:
        raise InputError(f"{text}: ef_search belongs to index=hnsw; leave it out")
    if values:
        database += f"?{urlencode(values, quote_via=quote)}"
    return database, schema, options.ef_search if options.index else 0


class Bits(NamedTuple):
    """A packed code, to be sent as ``bit(n_bits)``.

    >>> Bits(8, bytes([7])).n_bits
    8
    """

    n_bits: int
    packed: bytes


def to_codes(sent: list[bytes], n_bits: int) -> PackedCodes:
    """Return the codes ``(n, ceil(n_bits / 8))`` that a binary cursor reads.

    >>> to_codes([bytes([0, 0, 0, 8, 7])], 8).tolist()
    [[7]]
    """
    width = _LENGTH_BYTES + -(-n_bits // 8)
    return np.frombuffer(b"".join(sent), np.uint8).reshape(len(sent), width)[:, _LENGTH_BYTES:]


def _connect(database: str) -> Any:
    """Open a connection that commits every statement by itself.

    Strings are sent as UTF-8, whatever the database's encoding is. No statement is prepared on the
    server, since a pool of connections (PgBouncer) may send the next one to another server.
    """
    psycopg = library("psycopg", "postgres")

    class BitsDumper(psycopg.adapt.Dumper):  # type: ignore[misc, name-defined]
        format = psycopg.pq.Format.BINARY
        #: The type bit(n), see https://www.postgresql.org/docs/current/catalog-pg-type.html.
        oid = 1560

        def dump(self, code: Bits) -> bytes:
            return code.n_bits.to_bytes(_LENGTH_BYTES, "big") + code.packed

    options = {"application_name": "channelhash", "client_encoding": "UTF8", "connect_timeout": 10}
    connection = psycopg.connect(database, autocommit=True, prepare_threshold=None, **options)
    connection.adapters.register_dumper(Bits, BitsDumper)
    library("psycopg.types.json", "postgres").set_json_dumps(_as_jsonb, connection)
    return connection


def _as_jsonb(metadata: Metadata) -> str:
    """Return metadata as JSON of which jsonb keeps every value, and whole numbers as such.

    >>> _as_jsonb({"year": 2020, "weight": 1e16, "text": None})
    '{"year": 2020, "weight": 10000000000000000.0, "text": null}'
    """
    entries = (f"{_as_json(key)}: {_as_json(value)}" for key, value in metadata.items())
    return f"{{{', '.join(entries)}}}"


def _as_json(value: Value) -> str:
    # Python writes larger floats with an exponent and 17 digits. jsonb would return them as whole
    # numbers with other digits.
    if isinstance(value, float) and abs(value) >= 1e16:
        return f"{Decimal(value):f}.0"
    return json.dumps(value, ensure_ascii=False)


#: Kind of a literal -> what `jsonb_typeof` calls its values, and the type to cast their text to.
#: Strings compare by code points.
_JSONB_KINDS = {
    "strings": ("string", 'text COLLATE "C"'),
    "numbers": ("number", "numeric"),
    "Booleans": ("boolean", "boolean"),
}


def to_postgres(condition: filters.Condition) -> filters.SqlCondition:
    """Translate a condition on a row of ``items(id, metadata jsonb)``.

    It is true for the items that pass, and null for those with a value of another kind or none.

    >>> to_postgres(filters.Condition("label", "=", ("dog",)))
    SqlCondition(sql="(metadata -> 'labels' ?| %s)", parameters=(['dog'],))
    """
    key = condition.key
    no = "NOT " if condition.negated else ""
    if key == "label":
        inner = _any_label(condition)
        return inner._replace(sql=f"({inner.sql} IS NOT TRUE)") if condition.negated else inner
    if key == "id":
        sql, parameters = _postgres_test("id", condition)
    elif condition.test == "IS NOT NULL":
        sql = "(metadata ? %s)"
        parameters = (key,)
    else:
        kind, cast = _JSONB_KINDS[filters.kind_of(condition.literals[0])]
        # CASE keeps its order, AND does not: a cast of another kind's value would fail.
        value = (
            f"(CASE jsonb_typeof(metadata -> %s) WHEN '{kind}' THEN (metadata ->> %s)::{cast} END)"
        )
        sql, parameters = _postgres_test(value, condition)
        parameters = (key, key, *parameters)
    return filters.SqlCondition(f"({no}{sql})", parameters)


def _any_label(condition: filters.Condition) -> filters.SqlCondition:
    """Return whether any label satisfies a test; null or false for an item that has none."""
    if condition.test in ("=", "IN"):
        return filters.SqlCondition("(metadata -> 'labels' ?| %s)", (list(condition.literals),))
    inner = _postgres_test('(label COLLATE "C")', condition)
    labels = "jsonb_array_elements_text(metadata -> 'labels') AS label"
    return filters.SqlCondition(
        f"EXISTS (SELECT 1 FROM {labels} WHERE {inner.sql})", inner.parameters
    )


def _postgres_test(value: str, condition: filters.Condition) -> filters.SqlCondition:
    literals = condition.literals
    mark = "%s"
    if (
        value != "id"
        and condition.test not in ("IN", "LIKE", "IS NOT NULL")
        and isinstance(literals[0], str)
    ):
        # By code points: bytes of the database's own encoding may be ordered differently.
        value = f"convert_to({value}, 'UTF8')"
        mark = "convert_to(%s, 'UTF8')"
    # Numbers are sent as they are written, not rounded to 64 bits.
    sent = tuple(
        literal if isinstance(literal, bool | str) else Decimal(_as_json(literal))
        for literal in literals
    )
    return filters.SqlCondition(filters.compared(value, condition, "LIKE %s ESCAPE ''", mark), sent)


class Connections:
    """Connections to a database: as many as threads need at the same time.

    They raise `JobError` if PostgreSQL refuses something, but `InputError` for what its encoding
    cannot hold or this user may not do.
    """

    def __init__(self, address: str, database: str) -> None:
        self._address = address
        self._database = database
        self._psycopg = library("psycopg", "postgres")
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._closed = False
        self._process = os.getpid()

    def reading(self) -> AbstractContextManager[Any]:
        """Yield a cursor that reads what was committed before its first statement."""
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def writing(self) -> AbstractContextManager[Any]:
        """Yield a cursor whose changes are committed at the end; after an error, none are."""
        return self._transaction("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")

    def close(self) -> None:
        """Close the connections; those in use are closed when they are given back."""
        if os.getpid() != self._process:
            return  # they are the parent's, and in this process the lock may never be free
        with self._lock:
            idle = self._idle
            self._idle = []
            self._closed = True
        for connection in idle:
            connection.close()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Any]:
        connection = self._begin(begin)
        try:
            with connection.cursor(binary=True) as cursor:
                yield cursor
            connection.execute("COMMIT")
        except self._psycopg.errors.UntranslatableCharacter as error:
            remedy = (
                "keep the store in a database of UTF-8: CREATE DATABASE … ENCODING 'UTF8' "
                "TEMPLATE template0"
            )
            raise InputError(f"{self._address}: {error.diag.message_primary}; {remedy}") from None
        except self._psycopg.errors.InsufficientPrivilege as error:
            remedy = "open it as its owner, or let the owner GRANT this to the user"
            raise InputError(f"{self._address}: {one_line(error)}; {remedy}") from None
        except self._psycopg.Error as error:
            raise JobError(
                f"{self._address}: {one_line(error)}; see the log of the server"
            ) from None
        finally:
            self._give_back(connection)

    def _begin(self, begin: str) -> Any:
        """Begin a transaction on a kept connection that still works, else on a new one."""
        check_process(self._address, self._process)
        while True:
            with self._lock:
                if self._closed:
                    raise ValueError(f"{self._address}: this store is closed")
                idle = self._idle.pop() if self._idle else None
            try:
                connection = idle or _connect(self._database)
                connection.execute(begin)
            except self._psycopg.Error as error:
                if idle is None:
                    hint = "is the server there, and PGPASSWORD right?"
                    raise InputError(
                        f"{self._address}: cannot be opened ({one_line(error)}); {hint}"
                    ) from None
                idle.close()
            else:
                return connection

    def _give_back(self, connection: Any) -> None:
        status = self._psycopg.pq.TransactionStatus
        if connection.info.transaction_status in (status.INERROR, status.INTRANS):
            connection.execute("ROLLBACK")
        with self._lock:
            usable = connection.info.transaction_status == status.IDLE and not self._closed
            if usable:
                self._idle.append(connection)
        if not usable:
            connection.close()
