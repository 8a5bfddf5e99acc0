"""The tables of a store in PostgreSQL: how they are made, what they say of themselves; items and filters in them.

Everything is in one schema, so that ``DROP SCHEMA … CASCADE`` removes a store and nothing else. ``facts`` has one row;
whoever writes locks it first, so that writers take turns. ``items`` has a row an item: ``id``, ``metadata``, and for
every modality ``code_…``, ``bit(n_bits)``, and in a store that keeps projections ``projection_…``, one byte a bit.
"""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
from channelhash.search import filters
from channelhash.search.items import Metadata
from channelhash.search.sqlite.tables import as_bytes
from channelhash.utils.optional_imports import library

_BIT_OID = 1560  # of the type bit(n), https://www.postgresql.org/docs/current/catalog-pg-type.html
LENGTH_BYTES = 4  # the number of bits, before the bits
# An entry of a B-tree has up to 2,704 bytes, some of which are PostgreSQL's own.
MAX_ID = 2_600
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
    """Open a connection that commits every statement on its own, and sends `Bits` as codes, metadata by `_as_jsonb`.

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
            return code.n_bits.to_bytes(LENGTH_BYTES, "big") + code.packed

    connection = psycopg.connect(
        database,
        autocommit=True,
        prepare_threshold=None,
        application_name="channelhash",
        client_encoding="UTF8",
        connect_timeout=10,
    )
    connection.adapters.register_dumper(Bits, BitsDumper)
    library("psycopg.types.json", "postgres").set_json_dumps(_as_jsonb, connection)
    return connection


def to_codes(sent: list[bytes], n_bits: int) -> PackedCodes:
    """Return codes ``(n, ceil(n_bits / 8))`` of what a binary cursor reads.

    >>> to_codes([bytes([0, 0, 0, 8, 7])], 8).tolist()
    [[7]]
    """
    width = LENGTH_BYTES + -(-n_bits // 8)
    return np.frombuffer(b"".join(sent), np.uint8).reshape(len(sent), width)[:, LENGTH_BYTES:]


def _as_jsonb(metadata: Metadata) -> str:
    """Return metadata as JSON of which jsonb keeps every value, and whether it is a whole number.

    >>> _as_jsonb({"year": 2020, "weight": 1e16, "text": None})
    '{"year": 2020, "weight": 10000000000000000.0, "text": null}'
    """
    fields = (f"{json.dumps(key, ensure_ascii=False)}: {_literal(value)}" for key, value in metadata.items())
    return f"{{{', '.join(fields)}}}"


def _as_decimal(value: float) -> Decimal:
    """Return the number that stands for a whole number or a float in jsonb, and in comparisons with it.

    >>> _as_decimal(0.1), _as_decimal(1e16)
    (Decimal('0.1'), Decimal('10000000000000000'))
    """
    exact = isinstance(value, int) or abs(value) >= _EXPONENT
    return Decimal(value) if exact else Decimal(float.__repr__(value))


def is_storable(item_id: str) -> bool:
    """Return whether an item can have this id.

    >>> is_storable("a"), is_storable(chr(0)), is_storable(3_000 * "a")
    (True, False, False)
    """
    return "\0" not in item_id and len(item_id.encode()) <= MAX_ID


def _literal(value: Any) -> str:
    if isinstance(value, float) and abs(value) >= _EXPONENT:
        return f"{_as_decimal(value):f}.0"
    return json.dumps(value, ensure_ascii=False)


_FORMAT = "channelhash postgres 1"
# Encodings whose bytes, by which COLLATE "C" compares, are in the order of the code points.
_BY_CODE_POINTS = ("UTF8", "LATIN1", "SQL_ASCII")
# An identifier of PostgreSQL has up to 63 bytes.
_MAX_NAME = 63


class Facts(NamedTuple):
    """What all codes of a store have in common.

    Attributes:
        n_bits: code length.
        model: fingerprint of their model, empty if unknown.
        projected: whether projections are kept beside the codes.
    """

    n_bits: int
    model: str
    projected: bool


def read_facts(cursor: Any, schema: str, address: str) -> Facts | None:
    """Return the facts of a store; None if it is not there.

    Raises:
        InputError: the schema holds something else, or a store of another version.
    """
    # Not by to_regclass, which may not see yet what another process has made since the transaction began.
    cursor.execute(
        "SELECT relname FROM pg_namespace AS n JOIN pg_class ON relnamespace = n.oid WHERE nspname = %s", (schema,)
    )
    names = [name for (name,) in cursor.fetchall()]
    if not names:  # nor is a schema without a table: an administrator may have made it for a user who may make none
        return None
    if "facts" not in names:
        raise InputError(f"{address}: the schema {schema} was not made by channelhash; choose another store=")
    cursor.execute(f"SELECT format, n_bits, model, projections FROM {schema}.facts")
    [(written_as, *values)] = cursor.fetchall()
    if written_as != _FORMAT:
        raise InputError(f"{address}: written as {written_as!r}, this version reads {_FORMAT!r}; push it again")
    return Facts(*values)


class Database(NamedTuple):
    """What a database is like that holds a store.

    Attributes:
        vector: the schema of pgvector, as SQL writes it; hosted databases have it in one of its own.
        order: SQL by which ids are in the order of their code points.
        writable: whether this user may write to the store.
    """

    vector: str
    order: str
    writable: bool


def read_database(cursor: Any, schema: str, address: str) -> Database:
    """Return what the database of a store is like.

    Raises:
        InputError: it has no pgvector any more.
    """
    cursor.execute(
        "SELECT (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS n ON n.oid = extnamespace"
        " WHERE extname = 'vector'), getdatabaseencoding(), NOT pg_is_in_recovery()"
        " AND has_table_privilege(items, 'INSERT') AND has_table_privilege(items, 'UPDATE')"
        " AND has_table_privilege(facts, 'UPDATE')"
        " FROM (SELECT %s::regclass AS items, %s::regclass AS facts) AS tables",
        (f"{schema}.items", f"{schema}.facts"),
    )
    [(vector, encoding, writable)] = cursor.fetchall()
    if vector is None:
        raise InputError(f"{address}: has no pgvector any more; let an administrator CREATE EXTENSION vector")
    order = "id" if encoding in _BY_CODE_POINTS else "convert_to(id, 'UTF8')"
    return Database(vector, order, writable)


def make_tables(cursor: Any, schema: str, address: str, facts: Facts) -> None:
    """Make a store, unless another process has made it meanwhile.

    Raises:
        InputError: this user may make no schema.
    """
    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('channelhash'))")
    if read_facts(cursor, schema, address):
        return
    cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
    sql = "SELECT has_database_privilege(current_database(), 'CREATE'), current_user, to_regnamespace(%s) IS NULL"
    [(allowed, user, is_new)] = cursor.execute(sql, (schema,)).fetchall()
    if is_new and not allowed:
        raise InputError(
            f"{address}: {user} may make no schema here; let an administrator run:"
            f" CREATE SCHEMA {schema} AUTHORIZATION {user}"
        )
    if is_new:
        cursor.execute(f"CREATE SCHEMA {schema}")
    cursor.execute(
        f"CREATE TABLE {schema}.facts (format text NOT NULL, n_bits integer NOT NULL, model text NOT NULL,"
        " projections boolean NOT NULL, keys text[] NOT NULL, version bigint NOT NULL)"
    )
    cursor.execute(f"INSERT INTO {schema}.facts VALUES (%s, %s, %s, %s, '{{}}', 0)", (_FORMAT, *facts))
    cursor.execute(f'CREATE TABLE {schema}.items (id text COLLATE "C" PRIMARY KEY, metadata jsonb NOT NULL)')
    cursor.execute(f"CREATE INDEX items_labels ON {schema}.items USING gin ((metadata -> 'labels'))")


def code_columns(cursor: Any, schema: str) -> list[str]:
    """Return the modalities that the items have columns for, in alphabetical order."""
    cursor.execute(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
        (f"{schema}.items",),
    )
    return sorted(name.removeprefix("code_") for (name,) in cursor.fetchall() if name.startswith("code_"))


def add_columns(cursor: Any, schema: str, address: str, modalities: Sequence[str], facts: Facts) -> None:
    """Add the columns of the modalities that have none yet.

    Raises:
        InputError: the name of a modality is too long for PostgreSQL.
    """
    there = code_columns(cursor, schema)
    for modality in modalities:
        if len(f"projection_{modality}".encode()) > _MAX_NAME:
            raise InputError(f"{address}: modality {modality!r} has too long a name; choose a shorter one")
        if modality not in there:
            cursor.execute(f'ALTER TABLE {schema}.items ADD COLUMN "code_{modality}" bit({facts.n_bits})')
            if facts.projected:
                cursor.execute(f'ALTER TABLE {schema}.items ADD COLUMN "projection_{modality}" bytea')


def lacking_hnsw(cursor: Any, schema: str) -> list[str]:
    """Return the modalities that have no index yet. To ask is left to everybody, to make one to the owner."""
    cursor.execute("SELECT indexname FROM pg_indexes WHERE schemaname = %s", (schema,))
    there = {name for (name,) in cursor.fetchall()}
    return [modality for modality in code_columns(cursor, schema) if f"hnsw_{modality}" not in there]


def add_hnsw(cursor: Any, schema: str, vector: str) -> None:
    """Make the index of every modality that has none yet; nobody can write meanwhile. ``vector`` as in `Database`."""
    # What does not fit here is built many times slower; 64 MB, the server's own value, hold about 150,000 codes.
    cursor.execute("SET LOCAL maintenance_work_mem = '1GB'")
    for modality in lacking_hnsw(cursor, schema):
        name, column = f'"hnsw_{modality}"', f'"code_{modality}"'
        cursor.execute(f"CREATE INDEX {name} ON {schema}.items USING hnsw ({column} {vector}.bit_hamming_ops)")


def lock_writers(cursor: Any, schema: str, keys: Sequence[str] = ()) -> None:
    """Wait until no other process writes to the store, and note the metadata keys that are now written."""
    every_key = "ARRAY(SELECT DISTINCT unnest(keys || %s::text[]) ORDER BY 1)"
    cursor.execute(f"UPDATE {schema}.facts SET version = version + 1, keys = {every_key}", (list(keys),))


def write_items(
    cursor: Any,
    schema: str,
    ids: list[str],
    codes: dict[str, PackedCodes],
    n_bits: int,
    metadata: list[Metadata] | None,
    projections: dict[str, NDArray[np.int8]] | None,
) -> None:
    """Write items over those of the same ids: new codes replace codes, new metadata replace those of equal keys."""
    columns: dict[str, tuple[str, Sequence[Any]]] = {
        "id": ("text", ids),
        "metadata": ("jsonb", metadata or [{} for _ in ids]),
    }
    for modality, packed in codes.items():
        columns[f'"code_{modality}"'] = ("bit", [Bits(n_bits, code) for code in as_bytes(packed)])
    for modality, rows in (projections or {}).items():
        columns[f'"projection_{modality}"'] = ("bytea", as_bytes(rows))
    names = ", ".join(columns)
    cursor.execute(f"CREATE TEMP TABLE incoming ON COMMIT DROP AS SELECT {names} FROM {schema}.items WITH NO DATA")
    with cursor.copy(f"COPY pg_temp.incoming ({names}) FROM STDIN (FORMAT binary)") as copy:
        copy.set_types([kind for kind, _ in columns.values()])
        for row in zip(*(values for _, values in columns.values()), strict=True):
            copy.write_row(row)
    merged = "jsonb_strip_nulls(coalesce(items.metadata, '{}') || incoming.metadata)"  # a null takes its key away
    if not codes:  # of items that are there; one that was deleted meanwhile does not come back
        cursor.execute(
            f"UPDATE {schema}.items SET metadata = {merged} FROM pg_temp.incoming WHERE items.id = incoming.id"
        )
        return
    replaced = [f"{name} = EXCLUDED.{name}" for name in columns if name != "id" and (name != "metadata" or metadata)]
    values = ", ".join(merged if name == "metadata" else f"incoming.{name}" for name in columns)
    cursor.execute(
        f"INSERT INTO {schema}.items ({names}) SELECT {values}"
        f" FROM pg_temp.incoming LEFT JOIN {schema}.items ON items.id = incoming.id"
        f" ON CONFLICT (id) DO UPDATE SET {', '.join(replaced)}"
    )


class SqlCondition(NamedTuple):
    """A Boolean SQL expression with ``%s`` in the place of every literal.

    >>> from channelhash.search.filters import parse_filter
    >>> to_postgres(parse_filter("id = 'a'", []))
    SqlCondition(sql='(id = %s)', parameters=('a',))
    """

    sql: str
    parameters: tuple[Any, ...]


# Kind of literal -> what `jsonb_typeof` calls values of that kind, and what their text is cast to. Strings compare by
# code points, as everywhere here.
_KINDS = {
    "strings": ("string", 'text COLLATE "C"'),
    "numbers": ("number", "numeric"),
    "Booleans": ("boolean", "boolean"),
}


def to_postgres(tree: filters.Filter | None) -> SqlCondition:
    """Translate a filter for a row of ``items(id, metadata jsonb)``.

    >>> from channelhash.search.filters import parse_filter
    >>> to_postgres(parse_filter("label = 'dog'", []))
    SqlCondition(sql="(metadata -> 'labels' ?| %s)", parameters=(['dog'],))
    """
    if tree is None:
        return SqlCondition("true", ())
    if isinstance(tree, filters.Condition):
        return _condition(tree)
    parts = [to_postgres(part) for part in tree.parts]
    word = " AND " if isinstance(tree, filters.And) else " OR "
    return SqlCondition(
        f"({word.join(part.sql for part in parts)})", tuple(value for part in parts for value in part.parameters)
    )


def _condition(condition: filters.Condition) -> SqlCondition:
    """Return what is true of the items that pass; a value of another kind, or none, makes it null."""
    key, test = condition.key, condition.test
    if key == "label":
        inner = _any_label(test)
        return SqlCondition(f"(({inner.sql}) IS NOT TRUE)", inner.parameters) if condition.negated else inner
    if key == "id":
        inner = _test("id", test)
    elif isinstance(test, filters.Known):
        inner = SqlCondition("(metadata ? %s)", (key,))
    else:
        kind, cast = _KINDS[filters.kind_of(filters.literals_of(test)[0])]
        # CASE keeps its order, AND does not: a cast of another kind's value would fail.
        inner = _test(f"(CASE jsonb_typeof(metadata -> %s) WHEN '{kind}' THEN (metadata ->> %s)::{cast} END)", test)
        inner = SqlCondition(inner.sql, (key, key, *inner.parameters))
    return SqlCondition(f"(NOT {inner.sql})", inner.parameters) if condition.negated else inner


def _any_label(test: filters.Test) -> SqlCondition:
    """Return whether any label satisfies a test; null or false for an item that has none."""
    if isinstance(test, filters.Among) or (isinstance(test, filters.Compare) and test.operator == "="):
        return SqlCondition("(metadata -> 'labels' ?| %s)", (list(filters.literals_of(test)),))
    if isinstance(test, filters.Known):
        return SqlCondition("(jsonb_array_length(metadata -> 'labels') > 0)", ())
    inner = _test('(label COLLATE "C")', test)
    labels = "jsonb_array_elements_text(metadata -> 'labels') AS label"
    return SqlCondition(f"EXISTS (SELECT 1 FROM {labels} WHERE {inner.sql})", inner.parameters)


def _test(value: str, test: filters.Test) -> SqlCondition:
    literals = tuple(_sent(literal) for literal in filters.literals_of(test))
    sent = "%s"
    if value != "id" and isinstance(test, filters.Compare | filters.Between) and isinstance(literals[0], str):
        # By code points; the bytes of the database's own encoding may be in another order.
        value, sent = f"convert_to({value}, 'UTF8')", "convert_to(%s, 'UTF8')"
    match test:
        case filters.Compare(operator=sign):
            compared = f"{sign} {sent}"
        case filters.Among():
            compared = f"IN ({', '.join(['%s'] * len(literals))})"
        case filters.Between():
            compared = f"BETWEEN {sent} AND {sent}"
        case filters.Like():
            compared = "LIKE %s ESCAPE ''"
        case filters.Known():
            compared = "IS NOT NULL"
    return SqlCondition(f"({value} {compared})", literals)


def _sent(literal: filters.Literal) -> Any:
    """Return a literal as psycopg is to send it: numbers as they are written, not as the nearest of 64 bits."""
    return literal if isinstance(literal, bool | str) else _as_decimal(literal)
