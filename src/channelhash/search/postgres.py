"""``postgresql``: a schema of PostgreSQL with pgvector: postgresql://user@host/database?store=name

Everything is in one schema, so that ``DROP SCHEMA … CASCADE`` removes a store and nothing else.
``facts`` has one row; whoever writes locks it first, so that writers take turns. ``items`` has a
row an item: ``id``, ``metadata``, and for every modality ``code_…``, ``bit(n_bits)``, and in a
store that keeps projections ``projection_…``, one byte a bit.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.errors import InputError
from channelhash.search.checks import check_format
from channelhash.search.filters import Filter, SqlCondition, to_sql
from channelhash.search.items import Facts, NewItems
from channelhash.search.postgres_connections import (
    MOST_EF,
    Bits,
    Connections,
    parse_address,
    to_codes,
    to_postgres,
)
from channelhash.search.rank import ALL, FIRST, KeyedAnswers, cosines, sure_distances
from channelhash.search.store import Answers, Item, Scope, Store

_FORMAT = "channelhash postgres 1"
# An entry of a B-tree has up to 2,704 bytes, some of which are PostgreSQL's own.
_MAX_ID = 2_600

#: The ids and distances that one query found, by distance, then by id, and what was asked for
#: beside them.
_Match = tuple[list[str], NDArray[np.int64], list[Any]]


class _Stored(NamedTuple):
    """What a store says of itself, and what the database is like that holds it.

    Attributes:
        facts: what the codes have in common.
        vector: the schema of pgvector, as SQL writes it; hosted databases have it in one of its
            own.
        order: SQL by which ids are in the order of their code points.
        writable: whether this user may write to the store.
    """

    facts: Facts
    vector: str
    order: str
    writable: bool


class PostgresStore(Store):
    """A `Store` in PostgreSQL with pgvector.

    Every call is one transaction, and sees what was committed before it. Searches compare every
    code, exactly, unless the address asks for the index HNSW.
    """

    keeps_projections = True

    def __init__(self, address: str, new: Facts) -> None:
        super().__init__(address, new)
        database, self._schema, self._ef_search = parse_address(address)
        self._items = f"{self._schema}.items"
        self._stored: _Stored | None = None
        self._connections = Connections(address, database)
        try:
            self._look()
        except Exception:
            self._connections.close()
            raise

    @property
    def writable(self) -> bool:
        """Whether this user may add items, as it was when the store was opened; where none is
        there, `add` will see.
        """
        stored = self._look()
        return stored is None or stored.writable

    @property
    def modalities(self) -> tuple[str, ...]:
        if not self._look():
            return ()
        with self._connections.reading() as cursor:
            sql = f'SELECT 1 FROM {self._items} WHERE "code_{{}}" IS NOT NULL LIMIT 1'
            return tuple(
                name for name in self._coded(cursor) if cursor.execute(sql.format(name)).fetchall()
            )

    @property
    def version(self) -> int:
        """A number that grows with every write."""
        return sum(
            version for (version,) in self._rows(f"SELECT version FROM {self._schema}.facts")
        )

    def __len__(self) -> int:
        return sum(count for (count,) in self._rows(f"SELECT count(*) FROM {self._items}"))

    def label_counts(self) -> dict[str, int]:
        """Read the labels of all items."""
        labels = (
            f"{self._items}, LATERAL (SELECT DISTINCT jsonb_array_elements_text(metadata -> "
            "'labels') AS label)"
        )
        rows = self._rows(f"SELECT label, count(*) FROM {labels} GROUP BY 1")
        return dict(sorted(rows, key=lambda row: (-row[1], row[0])))

    def value_counts(self, key: str) -> dict[str, int]:
        value = (
            f"SELECT metadata ->> %s, count(*) FROM {self._items} WHERE jsonb_typeof(metadata -> "
            "%s) = 'string'"
        )
        return dict(
            sorted(self._rows(f"{value} GROUP BY 1", key, key), key=lambda row: (-row[1], row[0]))
        )

    def make(self) -> None:
        """Make the tables of a new store of known code length now."""
        if self._new.n_bits:
            self._make_if_absent(self._new.n_bits)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def _common(self) -> Facts:
        stored = self._look()
        return stored.facts if stored else self._new

    def _keys(self) -> Collection[str]:
        return [
            key for (keys,) in self._rows(f"SELECT keys FROM {self._schema}.facts") for key in keys
        ]

    def _ids(self, where: Filter | None) -> list[str]:
        condition = to_sql(where, to_postgres)
        sql = f"SELECT id FROM {self._items} WHERE {condition.sql}"
        return sorted(name for (name,) in self._rows(sql, *condition.parameters))

    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        if not self._look():
            return {}
        with self._connections.reading() as cursor:
            cursor.execute(
                f"SELECT * FROM {self._items} WHERE id = ANY(%s)",
                (list(filter(_is_storable, ids)),),
            )
            names = [column.name for column in cursor.description]
            return {
                row[0]: _to_item(dict(zip(names, row, strict=True))) for row in cursor.fetchall()
            }

    def _write(self, new: NewItems) -> None:
        if wrong := next((name for name in new.ids if not _is_storable(name)), None):
            raise InputError(
                f"{self.address}: id {wrong[:40]!r} holds a NUL or is longer than {_MAX_ID:,} bytes"
            )
        stored = self._make_if_absent(new.n_bits)
        keys = {
            key
            for values in new.metadata or ()
            for key, value in values.items()
            if value is not None
        }
        with self._connections.writing() as cursor:
            self._lock_writers(cursor, sorted(keys))
            self._add_columns(cursor, sorted(new.codes), stored.facts)
            if self._ef_search:
                self._add_hnsw(cursor, stored.vector)
            for modality in () if new.replace else sorted(new.codes):
                sql = (
                    f'SELECT id FROM {self._items} WHERE id = ANY(%s) AND "code_{modality}" IS '
                    "NOT NULL LIMIT 1"
                )
                for (name,) in cursor.execute(sql, (new.ids,)).fetchall():
                    raise InputError(
                        f"{self.address}: {name!r} has a code for {modality} already; use upsert"
                    )
            self._write_items(cursor, new)

    def _delete(self, ids: list[str]) -> int:
        if not self._look():
            return 0
        with self._connections.writing() as cursor:
            self._lock_writers(cursor)
            cursor.execute(
                f"DELETE FROM {self._items} WHERE id = ANY(%s)", (list(filter(_is_storable, ids)),)
            )
            return int(cursor.rowcount)

    def _search(
        self, queries: PackedCodes, radius: int | None, limit: int | None, scope: Scope
    ) -> Answers:
        matches = self._nearest(queries, limit, radius, scope)
        return Answers([ids for ids, *_ in matches], [distances for _, distances, _ in matches])

    def _surest(
        self, outputs: NDArray[Any], k: int | None, radius: int | None, scope: Scope
    ) -> KeyedAnswers:
        answers = KeyedAnswers([], [], [])
        matches = self._nearest(pack(binarize(outputs)), k and max(k, FIRST), radius, scope, "code")
        for row, of_query in zip(outputs, matches, strict=True):
            keys = sure_distances(row, to_codes(of_query[2], outputs.shape[1]), of_query[1])
            _add_answer(answers, of_query, keys, np.argsort(keys, kind="stable")[:k])
        return answers

    def _scored(
        self, outputs: NDArray[Any], k: int, first: int | None, scope: Scope
    ) -> KeyedAnswers:
        if first is None:
            rows = self._source(scope)
            more = self._rows(f"SELECT 1 {rows.sql} LIMIT %s", *rows.parameters, ALL + 1)
            first = ALL if len(more) <= ALL else max(k, FIRST)
        answers = KeyedAnswers([], [], [])
        matches = self._nearest(pack(binarize(outputs)), first, None, scope, "projection")
        for row, of_query in zip(outputs, matches, strict=True):
            projections = np.frombuffer(b"".join(of_query[2]), np.int8).reshape(
                len(of_query[2]), len(row)
            )
            scores = cosines(row, projections)
            _add_answer(answers, of_query, scores, np.argsort(-scores, kind="stable")[:k])
        return answers

    def _all_codes(self, scope: Scope) -> tuple[list[str], PackedCodes]:
        source = self._source(scope)
        rows = sorted(
            self._rows(f'SELECT id, "code_{scope.modality}" {source.sql}', *source.parameters)
        )
        return [name for name, _ in rows], to_codes([code for _, code in rows], self.n_bits or 0)

    def _facts(self) -> dict[str, Any]:
        modalities = self.modalities
        counted = "".join(f', count("code_{modality}")' for modality in modalities)
        rows = self._rows(
            f"SELECT pg_total_relation_size('{self._schema}.items'){counted} FROM {self._items}"
        )
        n_bytes, *counts = rows[0] if rows else (None,)
        index = "hnsw" if self._ef_search else "none"
        return {
            "codes": dict(zip(modalities, counts, strict=True)),
            "index": index,
            "bytes": n_bytes,
        }

    def _source(self, scope: Scope) -> SqlCondition:
        """Return FROM and WHERE of the items that have a code of a modality and pass a filter."""
        condition = to_sql(scope.where, to_postgres)
        sql = f'FROM {self._items} WHERE "code_{scope.modality}" IS NOT NULL AND {condition.sql}'
        return condition._replace(sql=sql)

    def _nearest(
        self,
        queries: PackedCodes,
        count: int | None,
        radius: int | None,
        scope: Scope,
        beside: str = "",
    ) -> list[_Match]:
        """Find, for every query, items by distance, then by id, and their "code" or "projection"
        beside it.

        Exactly, or nearly the nearest by the index HNSW. It gives up after some 20,000 codes
        (``hnsw.max_scan_tuples``): where it has found too few by then that pass the filter, every
        code is compared.
        """
        source = self._source(scope)
        stored = self._look()
        modality = scope.modality
        assert stored is not None
        vector = stored.vector.replace("%", "%%")
        distance = f'"code_{modality}" OPERATOR({vector}.<~>) %s'
        exact = f"({distance})::integer"  # no index orders by a distance that is cast, so every code is compared
        column = f'"{beside}_{modality}"' if beside else "NULL"
        compared = (
            f"SELECT id, {exact} AS distance, {column} {source.sql} "
            f"{'' if radius is None else f'AND {exact} <= %s'}"
            f" ORDER BY distance, {stored.order} LIMIT %s"
        )
        indexed = (
            f"SELECT id, distance::integer, beside FROM (SELECT id, {distance} AS distance, "
            f"{column} AS beside {source.sql} ORDER BY {distance} LIMIT %s) AS nearest ORDER BY "
            f"distance, {stored.order}"
        )
        ef_search = self._ef_search if radius is None else 0
        matches: list[_Match] = []
        with self._connections.reading() as cursor:
            for query in queries:
                code = Bits(stored.facts.n_bits, query.tobytes())
                rows = []
                if ef_search and count is not None:
                    cursor.execute(
                        f"SET LOCAL hnsw.ef_search = {min(max(count, ef_search), MOST_EF)}"
                    )
                    cursor.execute("SET LOCAL hnsw.iterative_scan = strict_order")
                    rows = cursor.execute(
                        indexed, (code, *source.parameters, code, count)
                    ).fetchall()
                if not ef_search or len(rows) != count:
                    bound = () if radius is None else (code, min(radius, code.n_bits))
                    rows = cursor.execute(
                        compared, (code, *source.parameters, *bound, count)
                    ).fetchall()
                distances = np.array([bits for _, bits, _ in rows], dtype=np.int64)
                matches.append(
                    ([name for name, *_ in rows], distances, [sent for *_, sent in rows])
                )
        return matches

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a question; none while nobody has made the store."""
        if not self._look():
            return []
        with self._connections.reading() as cursor:
            return list(cursor.execute(sql, parameters).fetchall())

    def _look(self) -> _Stored | None:
        """Return what the store and its database say of themselves; None while nobody has made the
        store.
        """
        if self._stored is None:
            with self._connections.reading() as cursor:
                facts = self._read_facts(cursor)
                if facts is None:
                    return None
                stored = self._read_database(cursor, facts)
                lacks_hnsw = bool(self._ef_search and self._lacking_hnsw(cursor))
            facts.check(self.address, self._new)
            if lacks_hnsw:
                if not stored.writable:
                    raise InputError(
                        f"{self.address}: has no index HNSW; open it once as its owner"
                    )
                with self._connections.writing() as cursor:
                    self._lock_writers(cursor)
                    self._add_hnsw(cursor, stored.vector)
            self._stored = stored
        return self._stored

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(
                f"{self.address}: this user can only read it; let the owner GRANT INSERT, UPDATE, "
                "DELETE"
            )

    def _make_if_absent(self, n_bits: int) -> _Stored:
        """Return what the store says of itself; make it if it is not there."""
        if not self._look():
            with self._connections.writing() as cursor:
                self._make_tables(cursor, self._new._replace(n_bits=n_bits))
        stored = self._look()
        assert stored is not None
        return stored

    # Within a transaction:

    def _read_facts(self, cursor: Any) -> Facts | None:
        """Return the facts of the store, which must be one of this version; None if it is not
        there.
        """
        # Not by to_regclass, which may not see yet what another process has made since the
        # transaction began.
        sql = (
            "SELECT relname FROM pg_namespace AS n JOIN pg_class ON relnamespace = n.oid WHERE "
            "nspname = %s"
        )
        names = [name for (name,) in cursor.execute(sql, (self._schema,)).fetchall()]
        # a schema without a table an administrator may have made for a user who may make none
        if not names:
            return None
        if "facts" not in names:
            problem = (
                f"the schema {self._schema} was not made by channelhash; choose another store="
            )
            raise InputError(f"{self.address}: {problem}")
        sql = f"SELECT format, n_bits, model, projections FROM {self._schema}.facts"
        [(written_as, *values)] = cursor.execute(sql).fetchall()
        check_format(self.address, written_as, _FORMAT, "push it again")
        return Facts(*values)

    def _read_database(self, cursor: Any, facts: Facts) -> _Stored:
        cursor.execute(
            "SELECT (SELECT quote_ident(nspname) FROM pg_extension JOIN pg_namespace AS n ON "
            "n.oid = extnamespace WHERE extname = 'vector'), getdatabaseencoding(), NOT "
            "pg_is_in_recovery() AND has_table_privilege(items, 'INSERT') AND "
            "has_table_privilege(items, 'UPDATE') AND has_table_privilege(facts, 'UPDATE') FROM "
            "(SELECT %s::regclass AS items, %s::regclass AS facts) AS tables",
            (self._items, f"{self._schema}.facts"),
        )
        [(vector, encoding, writable)] = cursor.fetchall()
        if vector is None:
            raise InputError(
                f"{self.address}: has no pgvector any more; let an administrator CREATE EXTENSION "
                "vector"
            )
        # Those whose bytes, by which COLLATE "C" compares, are in the order of the code points.
        order = "id" if encoding in ("UTF8", "LATIN1", "SQL_ASCII") else "convert_to(id, 'UTF8')"
        return _Stored(facts, vector, order, writable)

    def _make_tables(self, cursor: Any, facts: Facts) -> None:
        """Make the store, unless another process has made it meanwhile."""
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('channelhash'))")
        if self._read_facts(cursor):
            return
        cursor.execute("CREATE EXTENSION IF NOT EXISTS vector")
        sql = (
            "SELECT has_database_privilege(current_database(), 'CREATE'), current_user, "
            "to_regnamespace(%s) IS NULL"
        )
        [(allowed, user, is_new)] = cursor.execute(sql, (self._schema,)).fetchall()
        if is_new and not allowed:
            remedy = f"let an administrator run: CREATE SCHEMA {self._schema} AUTHORIZATION {user}"
            raise InputError(f"{self.address}: {user} may make no schema here; {remedy}")
        if is_new:
            cursor.execute(f"CREATE SCHEMA {self._schema}")
        cursor.execute(
            f"CREATE TABLE {self._schema}.facts (format text NOT NULL, n_bits integer NOT NULL, "
            "model text NOT NULL,"
            " projections boolean NOT NULL, keys text[] NOT NULL, version bigint NOT NULL)"
        )
        cursor.execute(
            f"INSERT INTO {self._schema}.facts VALUES (%s, %s, %s, %s, '{{}}', 0)",
            (_FORMAT, *facts),
        )
        cursor.execute(
            f'CREATE TABLE {self._items} (id text COLLATE "C" PRIMARY KEY, metadata jsonb NOT NULL)'
        )
        cursor.execute(
            f"CREATE INDEX items_labels ON {self._items} USING gin ((metadata -> 'labels'))"
        )

    def _coded(self, cursor: Any) -> list[str]:
        """Return the modalities that the items have columns for, in alphabetical order."""
        sql = (
            "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
            "AND NOT attisdropped"
        )
        columns = [name for (name,) in cursor.execute(sql, (self._items,)).fetchall()]
        return sorted(name.removeprefix("code_") for name in columns if name.startswith("code_"))

    def _add_columns(self, cursor: Any, modalities: Sequence[str], facts: Facts) -> None:
        """Add the columns of the modalities that have none yet."""
        coded = self._coded(cursor)
        for modality in modalities:
            # bytes, the most of an identifier of PostgreSQL
            if len(f"projection_{modality}".encode()) > 63:
                raise InputError(
                    f"{self.address}: modality {modality!r} has too long a name; choose a shorter "
                    "one"
                )
            if modality not in coded:
                cursor.execute(
                    f'ALTER TABLE {self._items} ADD COLUMN "code_{modality}" bit({facts.n_bits})'
                )
                if facts.projected:
                    cursor.execute(
                        f'ALTER TABLE {self._items} ADD COLUMN "projection_{modality}" bytea'
                    )

    def _lacking_hnsw(self, cursor: Any) -> list[str]:
        """Return the modalities that have no index yet. To ask is left to everybody, to make one to
        the owner.
        """
        cursor.execute("SELECT indexname FROM pg_indexes WHERE schemaname = %s", (self._schema,))
        names = {name for (name,) in cursor.fetchall()}
        return [modality for modality in self._coded(cursor) if f"hnsw_{modality}" not in names]

    def _add_hnsw(self, cursor: Any, vector: str) -> None:
        """Make the index of every modality that has none yet; nobody can write meanwhile."""
        # What does not fit here is built many times slower; 64 MB, the server's own value, hold
        # about 150,000 codes.
        cursor.execute("SET LOCAL maintenance_work_mem = '1GB'")
        for modality in self._lacking_hnsw(cursor):
            name, column = f'"hnsw_{modality}"', f'"code_{modality}"'
            cursor.execute(
                f"CREATE INDEX {name} ON {self._items} USING hnsw ({column} "
                f"{vector}.bit_hamming_ops)"
            )

    def _lock_writers(self, cursor: Any, keys: Sequence[str] = ()) -> None:
        """Wait until no other process writes to the store, and note the metadata keys that are now
        written.
        """
        every_key = "ARRAY(SELECT DISTINCT unnest(keys || %s::text[]) ORDER BY 1)"
        cursor.execute(
            f"UPDATE {self._schema}.facts SET version = version + 1, keys = {every_key}",
            (list(keys),),
        )

    def _write_items(self, cursor: Any, new: NewItems) -> None:
        """Write items over those of the same ids: new codes replace codes, new metadata replace
        those of equal keys.
        """
        metadata = new.metadata or [{} for _ in new.ids]
        columns: dict[str, tuple[str, Sequence[Any]]] = {
            "id": ("text", new.ids),
            "metadata": ("jsonb", metadata),
        }
        for modality, packed in new.codes.items():
            columns[f'"code_{modality}"'] = (
                "bit",
                [Bits(new.n_bits, code) for code in map(bytes, packed)],
            )
        for modality, rows in (new.projections or {}).items():
            columns[f'"projection_{modality}"'] = ("bytea", [*map(bytes, rows)])
        names = ", ".join(columns)
        cursor.execute(
            f"CREATE TEMP TABLE incoming ON COMMIT DROP AS SELECT {names} FROM {self._items} WITH "
            "NO DATA"
        )
        with cursor.copy(f"COPY pg_temp.incoming ({names}) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types([kind for kind, _ in columns.values()])
            for row in zip(*(values for _, values in columns.values()), strict=True):
                copy.write_row(row)
        merged = "jsonb_strip_nulls(coalesce(items.metadata, '{}') || incoming.metadata)"  # a null takes its key away
        # of items that are there; one that was deleted meanwhile does not come back
        if not new.codes:
            source = "FROM pg_temp.incoming WHERE items.id = incoming.id"
            cursor.execute(f"UPDATE {self._items} SET metadata = {merged} {source}")
            return
        changed = [
            name for name in columns if name != "id" and (name != "metadata" or new.metadata)
        ]
        values = ", ".join(merged if name == "metadata" else f"incoming.{name}" for name in columns)
        cursor.execute(
            f"INSERT INTO {self._items} ({names}) SELECT {values} FROM pg_temp.incoming LEFT JOIN "
            f"{self._items} ON items.id = incoming.id ON CONFLICT (id) DO UPDATE SET "
            f"{', '.join(f'{name} = EXCLUDED.{name}' for name in changed)}"
        )


def _is_storable(item_id: str) -> bool:
    """Return whether an item can have this id."""
    return "\0" not in item_id and len(item_id.encode()) <= _MAX_ID


def _add_answer(
    answers: tuple[list[Any], ...], match: _Match, values: NDArray[Any], order: NDArray[np.int64]
) -> None:
    """Add the ids, distances and values of what one query found, in an order."""
    ids, distances, _ = match
    answers[0].append([ids[place] for place in order])
    answers[1].append(distances[order])
    answers[2].append(values[order])


def _to_item(row: Mapping[str, Any]) -> Item:
    """Return the item of a row: column -> value, as a binary cursor reads it."""
    codes, projections = {}, {}
    for column, value in row.items():
        kind, _, modality = column.partition("_")
        if kind == "code" and value:
            n_bits = int.from_bytes(value[:4], "big")  # it begins with the code length
            [codes[modality]] = to_codes([value], n_bits)
        elif kind == "projection" and value is not None:
            projections[modality] = np.frombuffer(value, np.int8)
    return Item(row["id"], codes, row["metadata"], projections)
