"""The address and the connections of one store to its database: one a transaction, kept for the next."""

import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from pydantic import Field

from channelhash.errors import InputError, JobError, check_address
from channelhash.search.postgres.tables import connect
from channelhash.utils.files import one_line
from channelhash.utils.optional_imports import library
from channelhash.utils.processes import keep_forever
from channelhash.utils.typed_settings import Settings, read_settings

_DEFAULT_STORE = "channelhash"

#: The most candidates that pgvector allows HNSW to keep while it searches.
MOST_EF_SEARCH = 1000


class _Options(Settings):
    """The options of an address that libpq does not get."""

    index: Literal["hnsw"] | None = None
    ef_search: int = Field(100, ge=1, le=MOST_EF_SEARCH)


class _PostgresAddress(NamedTuple):
    """A store and the database that it is in.

    Attributes:
        text: as it was given.
        database: the address of the database as libpq knows it.
        schema: the schema that holds the store's tables.
        ef_search: candidates of a search by the index HNSW; 0 where searches compare every code.

    >>> parse_address("postgresql://localhost/photos").ef_search
    0
    """

    text: str
    database: str
    schema: str
    ef_search: int


def parse_address(text: str) -> _PostgresAddress:
    """Parse ``postgresql://user@host:port/database?store=NAME&index=hnsw&ef_search=100``.

    ``store`` names the schema that holds the store, `_DEFAULT_STORE` where it is left out. With ``index=hnsw`` searches
    are approximate. All other options go to libpq
    (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS).

    Raises:
        InputError: it holds a password, or one of these options has a value that it cannot have.

    >>> parse_address("postgresql://localhost/photos?store=holidays&sslmode=require")[1:3]
    ('postgresql://localhost/photos?sslmode=require', 'holidays')
    """
    check_address(text)
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise InputError(f"{text}: {error}; write it as postgresql://USER@HOST:PORT/DATABASE") from None
    # To libpq a + is no space.
    values = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))
    schema = values.pop("store", _DEFAULT_STORE)
    if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", schema) or schema in ("public", "information_schema"):
        raise InputError(
            f"{text}: store is {schema!r}, not a name of lower-case letters, digits and '_', or PostgreSQL's own"
        )
    options = read_settings(_Options, {key: values.pop(key) for key in ("index", "ef_search") if key in values}, text)
    if options.index is None and "ef_search" in options.model_fields_set:
        raise InputError(f"{text}: ef_search belongs to index=hnsw; leave it out")
    database = urlunsplit(parts._replace(query=urlencode(values, quote_via=quote)))
    return _PostgresAddress(text, database, schema, options.ef_search if options.index else 0)


class Connections:
    """Connections to a database: as many as threads have needed at a time.

    What PostgreSQL refuses is a `JobError`; what its encoding cannot hold or this user may not do, an `InputError`.

    Args:
        address: of the store.
    """

    def __init__(self, address: _PostgresAddress) -> None:
        self._address = address
        self._psycopg = library("psycopg", "postgres")
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._closed = False

    def reading(self) -> AbstractContextManager[Any]:
        """Yield a cursor that reads what was committed before its first statement."""
        return self._transaction("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def writing(self) -> AbstractContextManager[Any]:
        """Yield a cursor whose changes are committed at the end, or, after an error, none of them."""
        return self._transaction("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")

    def close(self) -> None:
        """Close the connections; those that are in use when they are given back."""
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def after_fork(self) -> None:
        """Leave the parent's connections to the parent: a forked child opens its own."""
        self._lock = threading.Lock()
        for connection in self._idle:
            keep_forever(connection)
        self._idle = []

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[Any]:
        connection = self._begun(begin)
        try:
            with connection.cursor(binary=True) as cursor:
                yield cursor
            connection.execute("COMMIT")
        except self._psycopg.errors.UntranslatableCharacter as error:
            remedy = "keep the store in a database of UTF-8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
            raise InputError(f"{self._address.text}: {error.diag.message_primary}; {remedy}") from None
        except self._psycopg.errors.InsufficientPrivilege as error:
            remedy = "open it as its owner, or let the owner GRANT this to the user"
            raise InputError(f"{self._address.text}: {one_line(error)}; {remedy}") from None
        except self._psycopg.Error as error:
            raise JobError(f"{self._address.text}: {one_line(error)}; see the log of the server") from None
        finally:
            self._give_back(connection)

    def _begun(self, begin: str) -> Any:
        """Return a connection on which a transaction has begun, not one that was lost since it was used last."""
        while True:
            with self._lock:
                if self._closed:
                    raise ValueError(f"{self._address.text}: this store is closed")
                kept = self._idle.pop() if self._idle else None
            try:
                connection = kept or connect(self._address.database)
                connection.execute(begin)
            except self._psycopg.Error as error:
                if kept is None:
                    hint = "is the server there, and PGPASSWORD right?"
                    raise InputError(f"{self._address.text}: cannot be opened ({one_line(error)}); {hint}") from None
                kept.close()
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
