"""The store in a schema of PostgreSQL."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.errors import InputError
from channelhash.search.filters import Filter
from channelhash.search.items import Metadata, check_opened_as
from channelhash.search.postgres import tables
from channelhash.search.postgres.connections import MOST_EF_SEARCH, Connections, parse_address
from channelhash.search.rank import ALL, FIRST, Scored, Surest, cosines, sure_distances
from channelhash.search.store import Answers, Item, Store
from channelhash.utils.processes import tell_of_fork

#: The ids and distances that one query found, by distance, then by id, and what was asked for beside them.
_Found = tuple[list[str], NDArray[np.int64], list[Any]]


class PostgresStore(Store):
    """A `Store` in PostgreSQL with pgvector. `tables` says how items are kept.

    Every call is one transaction, and sees what was committed before it. Searches compare every code, exactly, unless
    the address asks for the index HNSW.

    Args:
        address: of the store, beginning with ``postgresql://``; the first `add` makes it.
        n_bits: code length of a new store; must be that of one that is there.
        model: fingerprint of the model whose codes go in.
        projections: a new store keeps projections; one that is there must.

    Raises:
        InputError: the address has another form, nothing answers, or what is there is no store, or one of another code
            length or model.
    """

    def __init__(self, address: str, n_bits: int | None, model: str, projections: bool = False) -> None:
        super().__init__(address)
        self._parsed = parse_address(address)
        self._schema = self._parsed.schema
        self._new = tables.Facts(n_bits or 0, model, projections)
        self._items = f"{self._schema}.items"
        self._stored: tuple[tables.Facts, tables.Database] | None = None
        self._connections = Connections(self._parsed)
        tell_of_fork(self)
        try:
            self._look()
        except Exception:
            self._connections.close()
            raise

    @property
    def n_bits(self) -> int | None:
        facts = self._look()
        return facts.n_bits if facts else self._new.n_bits or None

    @property
    def model(self) -> str:
        return (self._look() or self._new).model

    @property
    def projected(self) -> bool:
        return (self._look() or self._new).projected

    @property
    def writable(self) -> bool:
        """Whether this user may add items, as it was when the store was opened; where none is there, `add` will see."""
        return self._look() is None or self._database().writable

    @property
    def modalities(self) -> tuple[str, ...]:
        if not self._look():
            return ()
        with self._connections.reading() as cursor:
            return tuple(
                modality
                for modality in tables.code_columns(cursor, self._schema)
                if cursor.execute(f'SELECT 1 FROM {self._items} WHERE "code_{modality}" IS NOT NULL LIMIT 1').fetchall()
            )

    @property
    def version(self) -> int:
        """A number that grows with every write."""
        return sum(version for (version,) in self._rows(f"SELECT version FROM {self._schema}.facts"))

    def __len__(self) -> int:
        return sum(count for (count,) in self._rows(f"SELECT count(*) FROM {self._items}"))

    def label_counts(self) -> dict[str, int]:
        """Read the labels of all items."""
        labels = f"{self._items}, LATERAL (SELECT DISTINCT jsonb_array_elements_text(metadata -> 'labels') AS label)"
        rows = self._rows(f"SELECT label, count(*) FROM {labels} GROUP BY 1")
        return dict(sorted(rows, key=lambda row: (-row[1], row[0])))

    def make(self) -> None:
        """Make the tables of a new store of known code length now."""
        if self._new.n_bits:
            self._made(self._new.n_bits)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def after_fork(self) -> None:
        """Let a forked child open connections of its own."""
        self._connections.after_fork()

    def _keys(self) -> Collection[str]:
        return [key for (keys,) in self._rows(f"SELECT keys FROM {self._schema}.facts") for key in keys]

    def _ids(self, where: Filter | None) -> list[str]:
        condition = tables.to_postgres(where)
        sql = f"SELECT id FROM {self._items} WHERE {condition.sql}"
        return sorted(name for (name,) in self._rows(sql, *condition.parameters))

    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        if not self._look():
            return {}
        with self._connections.reading() as cursor:
            cursor.execute(f"SELECT * FROM {self._items} WHERE id = ANY(%s)", (list(filter(tables.is_storable, ids)),))
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {row["id"]: _to_item(row) for row in rows}

    def _write(
        self,
        ids: list[str],
        codes: dict[str, PackedCodes],
        n_bits: int,
        metadata: list[Metadata] | None,
        replace: bool,
        projections: dict[str, NDArray[np.int8]] | None = None,
    ) -> None:
        if wrong := next((name for name in ids if not tables.is_storable(name)), None):
            raise InputError(f"{self.address}: id {wrong[:40]!r} holds a NUL or is longer than {tables.MAX_ID:,} bytes")
        facts = self._made(n_bits)
        keys = {key for values in metadata or () for key, value in values.items() if value is not None}
        with self._connections.writing() as cursor:
            tables.lock_writers(cursor, self._schema, sorted(keys))
            tables.add_columns(cursor, self._schema, self.address, sorted(codes), facts)
            if self._parsed.ef_search:
                tables.add_hnsw(cursor, self._schema, self._database().vector)
            for modality in () if replace else sorted(codes):
                sql = f'SELECT id FROM {self._items} WHERE id = ANY(%s) AND "code_{modality}" IS NOT NULL LIMIT 1'
                for (name,) in cursor.execute(sql, (ids,)).fetchall():
                    raise InputError(f"{self.address}: {name!r} has a code for {modality} already; use upsert")
            tables.write_items(cursor, self._schema, ids, codes, n_bits, metadata, projections)

    def _delete(self, ids: list[str]) -> int:
        if not self._look():
            return 0
        with self._connections.writing() as cursor:
            tables.lock_writers(cursor, self._schema)
            cursor.execute(f"DELETE FROM {self._items} WHERE id = ANY(%s)", (list(filter(tables.is_storable, ids)),))
            return int(cursor.rowcount)

    def _nearest(self, queries: PackedCodes, k: int, modality: str, where: Filter | None) -> Answers:
        return self._within(queries, None, k, modality, where)

    def _within(
        self, queries: PackedCodes, radius: int | None, limit: int | None, modality: str, where: Filter | None
    ) -> Answers:
        found = self._found(queries, limit, radius, modality, where)
        return Answers([ids for ids, *_ in found], [distances for _, distances, _ in found])

    def _surest(
        self, outputs: NDArray[Any], k: int | None, radius: int | None, modality: str, where: Filter | None
    ) -> Surest:
        found = self._found(pack(binarize(outputs)), k and max(k, FIRST), radius, modality, where, "code")
        keys = [
            sure_distances(row, tables.to_codes(codes, outputs.shape[1]), distances)
            for row, (_, distances, codes) in zip(outputs, found, strict=True)
        ]
        return Surest(*_ordered(found, keys, [np.argsort(values, kind="stable")[:k] for values in keys]))

    def _scored(self, outputs: NDArray[Any], k: int, first: int | None, modality: str, where: Filter | None) -> Scored:
        if first is None:
            rows = self._source(modality, where)
            more = self._rows(f"SELECT 1 {rows.sql} LIMIT %s", *rows.parameters, ALL + 1)
            first = ALL if len(more) <= ALL else max(k, FIRST)
        found = self._found(pack(binarize(outputs)), first, None, modality, where, "projection")
        scores = [
            cosines(row, np.frombuffer(b"".join(sent), np.int8).reshape(len(sent), len(row)))
            for row, (_, _, sent) in zip(outputs, found, strict=True)
        ]
        return Scored(*_ordered(found, scores, [np.argsort(-values, kind="stable")[:k] for values in scores]))

    def _all_codes(self, modality: str, where: Filter | None) -> tuple[list[str], PackedCodes]:
        source = self._source(modality, where)
        rows = sorted(self._rows(f'SELECT id, "code_{modality}" {source.sql}', *source.parameters))
        return [name for name, _ in rows], tables.to_codes([code for _, code in rows], self.n_bits or 0)

    def _facts(self) -> dict[str, Any]:
        modalities = self.modalities
        counted = "".join(f', count("code_{modality}")' for modality in modalities)
        rows = self._rows(f"SELECT pg_total_relation_size('{self._schema}.items'){counted} FROM {self._items}")
        n_bytes, *counts = rows[0] if rows else (None,)
        index = "hnsw" if self._parsed.ef_search else "none"
        return {"codes": dict(zip(modalities, counts, strict=True)), "index": index, "bytes": n_bytes}

    def _source(self, modality: str, where: Filter | None) -> tables.SqlCondition:
        """Return FROM and WHERE of the items that have a code of a modality and pass a filter."""
        condition = tables.to_postgres(where)
        sql = f'FROM {self._items} WHERE "code_{modality}" IS NOT NULL AND {condition.sql}'
        return condition._replace(sql=sql)

    def _found(
        self,
        queries: PackedCodes,
        count: int | None,
        radius: int | None,
        modality: str,
        where: Filter | None,
        beside: str = "",
    ) -> list[_Found]:
        """Find, for every query, items by distance, then by id, and their "code" or "projection" beside it.

        Exactly, or nearly the nearest by the index HNSW. It gives up after some 20,000 codes
        (``hnsw.max_scan_tuples``): where it has found too few by then that pass the filter, every code is compared.
        """
        source, database = self._source(modality, where), self._database()
        vector = database.vector.replace("%", "%%")
        distance = f'"code_{modality}" OPERATOR({vector}.<~>) %s'
        exact = f"({distance})::integer"  # no index orders by a distance that is cast, so every code is compared
        column = f'"{beside}_{modality}"' if beside else "NULL"
        compared = (
            f"SELECT id, {exact} AS distance, {column} {source.sql} {'' if radius is None else f'AND {exact} <= %s'}"
            f" ORDER BY distance, {database.order} LIMIT %s"
        )
        indexed = (
            f"SELECT id, distance::integer, beside FROM (SELECT id, {distance} AS distance, {column} AS beside"
            f" {source.sql} ORDER BY {distance} LIMIT %s) AS nearest ORDER BY distance, {database.order}"
        )
        ef_search = self._parsed.ef_search if radius is None else 0
        found: list[_Found] = []
        with self._connections.reading() as cursor:
            for query in queries:
                code, rows = tables.Bits(self.n_bits or 0, query.tobytes()), []
                if ef_search and count is not None:
                    cursor.execute(f"SET LOCAL hnsw.ef_search = {min(max(count, ef_search), MOST_EF_SEARCH)}")
                    cursor.execute("SET LOCAL hnsw.iterative_scan = strict_order")
                    rows = cursor.execute(indexed, (code, *source.parameters, code, count)).fetchall()
                if not ef_search or len(rows) != count:
                    bound = () if radius is None else (code, min(radius, code.n_bits))
                    rows = cursor.execute(compared, (code, *source.parameters, *bound, count)).fetchall()
                distances = np.array([bits for _, bits, _ in rows], dtype=np.int64)
                found.append(([name for name, *_ in rows], distances, [sent for *_, sent in rows]))
        return found

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a question; none while nobody has made the store."""
        if not self._look():
            return []
        with self._connections.reading() as cursor:
            return list(cursor.execute(sql, parameters).fetchall())

    def _look(self) -> tables.Facts | None:
        """Return what the store says of itself; None while nobody has made it."""
        if self._stored is None:
            with self._connections.reading() as cursor:
                facts = tables.read_facts(cursor, self._schema, self.address)
                if facts is None:
                    return None
                database = tables.read_database(cursor, self._schema, self.address)
                lacks_hnsw = bool(self._parsed.ef_search and tables.lacking_hnsw(cursor, self._schema))
            self._check(facts)
            if lacks_hnsw:
                if not database.writable:
                    raise InputError(f"{self.address}: has no index HNSW; open it once as its owner")
                with self._connections.writing() as cursor:
                    tables.lock_writers(cursor, self._schema)
                    tables.add_hnsw(cursor, self._schema, database.vector)
            self._stored = facts, database
        return self._stored[0]

    def _database(self) -> tables.Database:
        assert self._stored is not None
        return self._stored[1]

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(f"{self.address}: this user can only read it; let the owner GRANT INSERT, UPDATE, DELETE")

    def _check(self, facts: tables.Facts) -> None:
        check_opened_as(self.address, (facts.n_bits, facts.model), self._new.n_bits or None, self._new.model)
        if self._new.projected and not facts.projected:
            raise InputError(f"{self.address}: keeps no projections; choose another store, or search codes alone")

    def _made(self, n_bits: int) -> tables.Facts:
        """Return what the store says of itself; make it if it is not there."""
        facts = self._look()
        if facts is None:
            with self._connections.writing() as cursor:
                tables.make_tables(cursor, self._schema, self.address, self._new._replace(n_bits=n_bits))
            facts = self._look()
        assert facts is not None
        return facts


def _ordered(
    found: list[_Found], values: list[NDArray[Any]], orders: list[NDArray[np.int64]]
) -> tuple[list[list[str]], list[NDArray[np.int64]], list[NDArray[Any]]]:
    """Return ids, distances and values of the items of each query, in an order each."""
    return (
        [[ids[place] for place in order] for (ids, *_), order in zip(found, orders, strict=True)],
        [distances[order] for (_, distances, _), order in zip(found, orders, strict=True)],
        [of_query[order] for of_query, order in zip(values, orders, strict=True)],
    )


def _to_item(row: Mapping[str, Any]) -> Item:
    """Return the item of a row: column -> value, as a binary cursor reads it."""
    codes, projections = {}, {}
    for column, value in row.items():
        kind, _, modality = column.partition("_")
        if kind == "code" and value:
            [codes[modality]] = tables.to_codes([value], 8 * (len(value) - tables.LENGTH_BYTES))
        elif kind == "projection" and value is not None:
            projections[modality] = np.frombuffer(value, np.int8)
    return Item(row["id"], codes, row["metadata"], projections)
