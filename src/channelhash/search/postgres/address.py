"""Addresses of stores in PostgreSQL."""

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from channelhash.errors import InputError, check_address

DEFAULT_STORE = "channelhash"

#: Candidates that HNSW keeps while it searches, unless an address says otherwise, and the most that pgvector allows.
EF_SEARCH = 100
MOST_EF_SEARCH = 1000


class PostgresAddress(NamedTuple):
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


def parse_address(text: str) -> PostgresAddress:
    """Parse ``postgresql://user@host:port/database?store=NAME&index=hnsw&ef_search=100``.

    ``store`` names the schema that holds the store, `DEFAULT_STORE` where it is left out. With ``index=hnsw`` searches
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
    options = dict(parse_qsl(parts.query.replace("+", "%2B"), keep_blank_values=True))
    schema = options.pop("store", DEFAULT_STORE)
    if not re.fullmatch(r"(?!pg_)[a-z_][a-z0-9_]{0,62}", schema) or schema in ("public", "information_schema"):
        raise InputError(
            f"{text}: store is {schema!r}; a name of lower-case letters, digits and '_' is expected, which is not"
            " PostgreSQL's own"
        )
    index, ef_search = options.pop("index", None), options.pop("ef_search", None)
    if index not in (None, "hnsw"):
        raise InputError(f"{text}: index is {index!r}; hnsw (approximate) is expected, or none for exact searches")
    if ef_search is not None and index is None:
        raise InputError(f"{text}: ef_search belongs to index=hnsw; leave it out")
    value = ef_search or str(EF_SEARCH)
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= MOST_EF_SEARCH:
        raise InputError(f"{text}: ef_search is {value!r}; a whole number from 1 to {MOST_EF_SEARCH} is expected")
    database = urlunsplit(parts._replace(query=urlencode(options, quote_via=quote)))
    return PostgresAddress(text, database, schema, int(value) if index else 0)
