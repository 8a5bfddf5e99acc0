"""The store in a schema of PostgreSQL."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.errors import InputError
from channelhash.search.filters import Filter
from channelhash.search.items import Listed, Metadata, check_opened_as
from channelhash.search.postgres.connections import MOST_EF_SEARCH, Connections, PostgresAddress, parse_address
from channelhash.search.postgres.tables import (
    Bits,
    Database,
    Facts,
    add_columns,
    add_hnsw,
    check_storable,
    code_columns,
    is_storable,
    lacking_hnsw,
    lock_writers,
    make_tables,
    read_database,
    read_facts,
    to_code,
    to_codes,
    to_postgres,
    write_items,
)
from channelhash.search.rank import ALL, FIRST, Scored, Surest, cosines, sure_distances
from channelhash.search.store import Answers, Item, Store
from channelhash.utils.processes import tell_of_fork


class Found(NamedTuple):
    """The items that one query found, by distance, then by id.

    Attributes:
        ids, distances: of ``m`` items.
        sent: what was asked for beside them, as the server sent it.
    """

    ids: list[str]
    distances: NDArray[np.int64]
    sent: list[Any]


class Searched(NamedTuple):
    """What is searched.

    Attributes:
        table: the items.
        database: that has them.
        n_bits: code length.
        modality: whose codes.
        where: which items.
        beside: the column that is read with ids and distances: ``"code"``, ``"projection"`` or none.
    """

    table: str
    database: Database
    n_bits: int
    modality: str
    where: Filter | None
    beside: str = ""


def compare(cursor: Any, searched: Searched, query: PackedCodes, count: int | None, radius: int | None) -> Found:
    """Find the first ``count`` items, or all, within a radius, or at any distance: exactly."""
    condition, beside = to_postgres(searched.where), _beside(searched)
    # No index orders by a distance that is cast, so every code is compared, also where there is an index.
    distance = f"({_distance(searched)})::integer"
    code = Bits(searched.n_bits, query.tobytes())
    within, bound = ("", ()) if radius is None else (f"AND {distance} <= %s", (code, min(radius, searched.n_bits)))
    cursor.execute(
        f"SELECT id, {distance} AS distance, {beside} FROM {searched.table}"
        f' WHERE "code_{searched.modality}" IS NOT NULL AND {condition.sql} {within}'
        f" ORDER BY distance, {searched.database.order} LIMIT %s",
        (code, *condition.parameters, *bound, count),
    )
    return _found(cursor.fetchall())


def _ask_index(cursor: Any, searched: Searched, query: PackedCodes, count: int, ef_search: int) -> Found:
    """Find ``count`` items by the index HNSW: nearly the nearest.

    The index gives up after some 20,000 codes (``hnsw.max_scan_tuples``). Where it has found too few by then that pass
    the filter, every code is compared.
    """
    condition, beside = to_postgres(searched.where), _beside(searched)
    cursor.execute(f"SET LOCAL hnsw.ef_search = {min(max(count, ef_search), MOST_EF_SEARCH)}")
    cursor.execute("SET LOCAL hnsw.iterative_scan = strict_order")
    distance, code = _distance(searched), Bits(searched.n_bits, query.tobytes())
    cursor.execute(
        f"SELECT id, distance::integer, beside FROM (SELECT id, {distance} AS distance, {beside} AS beside"
        f' FROM {searched.table} WHERE "code_{searched.modality}" IS NOT NULL AND {condition.sql} ORDER BY {distance}'
        f" LIMIT %s) AS nearest ORDER BY distance, {searched.database.order}",
        (code, *condition.parameters, code, count),
    )
    found = _found(cursor.fetchall())
    return found if len(found.ids) == count else compare(cursor, searched, query, count, None)


def _has_at_most(cursor: Any, searched: Searched, count: int) -> bool:
    """Return whether no more than ``count`` items are searched."""
    condition = to_postgres(searched.where)
    cursor.execute(
        f'SELECT 1 FROM {searched.table} WHERE "code_{searched.modality}" IS NOT NULL AND {condition.sql} LIMIT %s',
        (*condition.parameters, count + 1),
    )
    return len(cursor.fetchall()) <= count


def _distance(searched: Searched) -> str:
    vector = searched.database.vector.replace("%", "%%")
    return f'"code_{searched.modality}" OPERATOR({vector}.<~>) %s'


def _beside(searched: Searched) -> str:
    return f'"{searched.beside}_{searched.modality}"' if searched.beside else "NULL"


def _found(rows: list[tuple[str, int, Any]]) -> Found:
    distances = np.array([distance for _, distance, _ in rows], dtype=np.int64)
    return Found([name for name, *_ in rows], distances, [sent for *_, sent in rows])


_LISTED_AT_ONCE = 10_000


class PostgresStore(Store):
    """A `Store` in PostgreSQL with pgvector. `tables` says how items are kept.

    Every call is one transaction, and sees what was committed before it. Searches compare every code, exactly, unless
    the address asks for the index HNSW.

    Args:
        address: of the store, which the first `add` makes.
        n_bits: code length of a new store; must be that of one that is there.
        model: fingerprint of the model whose codes go in.
        projections: a new store keeps projections; one that is there must.

    Raises:
        InputError: nothing answers, or what is there is no store, or one of another code length or model.
    """

    def __init__(self, address: PostgresAddress, n_bits: int | None, model: str, projections: bool) -> None:
        super().__init__(address.text)
        self._parsed, self._schema = address, address.schema
        self._new = Facts(n_bits or 0, model, projections)
        self._items = f"{self._schema}.items"
        self._stored: tuple[Facts, Database] | None = None
        self._connections = Connections(address)
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
                for modality in code_columns(cursor, self._schema)
                if cursor.execute(f'SELECT 1 FROM {self._items} WHERE "code_{modality}" IS NOT NULL LIMIT 1').fetchall()
            )

    @property
    def version(self) -> int:
        """A number that grows with every write."""
        return int(self._rows(f"SELECT version FROM {self._schema}.facts")[0][0]) if self._look() else 0

    def __len__(self) -> int:
        return int(self._rows(f"SELECT count(*) FROM {self._items}")[0][0]) if self._look() else 0

    def label_counts(self) -> dict[str, int]:
        """Read the labels of all items."""
        labels = f"{self._items}, LATERAL (SELECT DISTINCT jsonb_array_elements_text(metadata -> 'labels') AS label)"
        rows = self._rows(f"SELECT label, count(*) FROM {labels} GROUP BY 1") if self._look() else []
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
        return list(self._rows(f"SELECT keys FROM {self._schema}.facts")[0][0]) if self._look() else []

    def _ids(self, where: Filter | None) -> list[str]:
        condition = to_postgres(where)
        sql = f"SELECT id FROM {self._items} WHERE {condition.sql}"
        return sorted(name for (name,) in self._rows(sql, *condition.parameters)) if self._look() else []

    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        if not self._look():
            return {}
        with self._connections.reading() as cursor:
            cursor.execute(f"SELECT * FROM {self._items} WHERE id = ANY(%s)", (list(filter(is_storable, ids)),))
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {row["id"]: _to_item(row) for row in rows}

    def _listed(self) -> Iterator[Listed]:
        if not self._look():
            return
        with self._connections.reading() as cursor:
            modalities = code_columns(cursor, self._schema)
        has = "".join(f', "code_{modality}" IS NOT NULL' for modality in modalities)
        sql = f"SELECT id, metadata{has} FROM {self._items} WHERE id > %s ORDER BY id LIMIT {_LISTED_AT_ONCE}"
        rows = self._rows(sql.replace("id > %s", "%s = ''"), "")
        while rows:
            for name, metadata, *there in rows:
                yield Listed(
                    name, tuple(m for m, has_code in zip(modalities, there, strict=True) if has_code), metadata
                )
            rows = self._rows(sql, rows[-1][0])

    def _write(
        self,
        ids: list[str],
        codes: dict[str, PackedCodes],
        n_bits: int,
        metadata: list[Metadata] | None,
        replace: bool,
        projections: dict[str, NDArray[np.int8]] | None = None,
    ) -> None:
        check_storable(self.address, ids)
        facts = self._made(n_bits)
        keys = {key for values in metadata or () for key, value in values.items() if value is not None}
        with self._connections.writing() as cursor:
            lock_writers(cursor, self._schema, sorted(keys))
            add_columns(cursor, self._schema, self.address, sorted(codes), facts)
            if self._parsed.ef_search:
                add_hnsw(cursor, self._schema, self._database().vector)
            for modality in () if replace else sorted(codes):
                sql = f'SELECT id FROM {self._items} WHERE id = ANY(%s) AND "code_{modality}" IS NOT NULL LIMIT 1'
                for (name,) in cursor.execute(sql, (ids,)).fetchall():
                    raise InputError(
                        f"{self.address}: {name!r} has a code for {modality} already; replace it with upsert"
                    )
            write_items(cursor, self._schema, ids, codes, n_bits, metadata, projections)

    def _delete(self, ids: list[str]) -> int:
        if not self._look():
            return 0
        with self._connections.writing() as cursor:
            lock_writers(cursor, self._schema)
            cursor.execute(f"DELETE FROM {self._items} WHERE id = ANY(%s)", (list(filter(is_storable, ids)),))
            return int(cursor.rowcount)

    def _nearest(self, queries: PackedCodes, k: int, modality: str, where: Filter | None) -> Answers:
        found = self._found(queries, k, None, self._searched(modality, where))
        return Answers([rows.ids for rows in found], [rows.distances for rows in found])

    def _within(
        self, queries: PackedCodes, radius: int, limit: int | None, modality: str, where: Filter | None
    ) -> Answers:
        found = self._found(queries, limit, radius, self._searched(modality, where))
        return Answers([rows.ids for rows in found], [rows.distances for rows in found])

    def _surest(
        self,
        outputs: NDArray[Any],
        k: int | None,
        first: int | None,
        radius: int | None,
        modality: str,
        where: Filter | None,
    ) -> Surest:
        answers, n_bits = Surest([], [], []), outputs.shape[1]
        searched = self._searched(modality, where, "code")
        found = self._found(pack(binarize(outputs)), first, radius, searched)
        for row, (ids, distances, codes) in zip(outputs, found, strict=True):
            keys = sure_distances(row, to_codes(codes, n_bits), distances)
            order = np.argsort(keys, kind="stable")[:k]
            answers.ids.append([ids[place] for place in order])
            answers.distances.append(distances[order])
            answers.keys.append(keys[order])
        return answers

    def _scored(self, outputs: NDArray[Any], k: int, first: int | None, modality: str, where: Filter | None) -> Scored:
        searched = self._searched(modality, where, "projection")
        if first is None:
            with self._connections.reading() as cursor:
                first = ALL if _has_at_most(cursor, searched, ALL) else max(k, FIRST)
        answers, n_bits = Scored([], [], []), outputs.shape[1]
        found = self._found(pack(binarize(outputs)), first, None, searched)
        for row, (ids, distances, sent) in zip(outputs, found, strict=True):
            scores = cosines(row, np.frombuffer(b"".join(sent), np.int8).reshape(len(sent), n_bits))
            order = np.argsort(-scores, kind="stable")[:k]
            answers.ids.append([ids[place] for place in order])
            answers.distances.append(distances[order])
            answers.scores.append(scores[order])
        return answers

    def _all_codes(self, modality: str, where: Filter | None) -> tuple[list[str], PackedCodes]:
        column, condition = f'"code_{modality}"', to_postgres(where)
        sql = f"SELECT id, {column} FROM {self._items} WHERE {column} IS NOT NULL AND {condition.sql}"
        rows = sorted(self._rows(sql, *condition.parameters))
        return [name for name, _ in rows], to_codes([code for _, code in rows], self.n_bits or 0)

    def _facts(self) -> dict[str, Any]:
        index = "hnsw" if self._parsed.ef_search else "none"
        if not self._look():
            return {"codes": {}, "index": index, "bytes": None}
        with self._connections.reading() as cursor:
            modalities = code_columns(cursor, self._schema)
            counted = "".join(f', count("code_{modality}")' for modality in modalities)
            size = f"pg_total_relation_size('{self._schema}.items')"
            [(n_bytes, *counts)] = cursor.execute(f"SELECT {size}{counted} FROM {self._items}").fetchall()
        codes = {modality: count for modality, count in zip(modalities, counts, strict=True) if count}
        return {"codes": codes, "index": index, "bytes": n_bytes}

    def _found(self, queries: PackedCodes, count: int | None, radius: int | None, searched: Searched) -> list[Found]:
        """Find, for every query, items by distance, then by id."""
        ef_search = self._parsed.ef_search
        with self._connections.reading() as cursor:
            if ef_search and count is not None and radius is None:
                return [_ask_index(cursor, searched, query, count, ef_search) for query in queries]
            return [compare(cursor, searched, query, count, radius) for query in queries]

    def _searched(self, modality: str, where: Filter | None, beside: str = "") -> Searched:
        return Searched(self._items, self._database(), self.n_bits or 0, modality, where, beside)

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with self._connections.reading() as cursor:
            return list(cursor.execute(sql, parameters).fetchall())

    def _look(self) -> Facts | None:
        """Return what the store says of itself; None while nobody has made it."""
        if self._stored is None:
            with self._connections.reading() as cursor:
                facts = read_facts(cursor, self._schema, self.address)
                if facts is None:
                    return None
                database = read_database(cursor, self._schema, self.address)
                lacks_hnsw = bool(self._parsed.ef_search and lacking_hnsw(cursor, self._schema))
            self._check(facts)
            if lacks_hnsw:
                if not database.writable:
                    raise InputError(
                        f"{self.address}: has no index HNSW; open it once as its owner, or without index=hnsw"
                    )
                with self._connections.writing() as cursor:
                    lock_writers(cursor, self._schema)
                    add_hnsw(cursor, self._schema, database.vector)
            self._stored = facts, database
        return self._stored[0]

    def _database(self) -> Database:
        assert self._stored is not None
        return self._stored[1]

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(
                f"{self.address}: this user or server can only read it; let the owner GRANT INSERT, UPDATE, DELETE ON"
                f" ALL TABLES IN SCHEMA {self._schema} to the user"
            )

    def _check(self, facts: Facts) -> None:
        check_opened_as(self.address, (facts.n_bits, facts.model), self._new.n_bits or None, self._new.model)
        if self._new.projected and not facts.projected:
            raise InputError(f"{self.address}: keeps no projections; choose another store, or search codes alone")

    def _made(self, n_bits: int) -> Facts:
        """Return what the store says of itself; make it if it is not there."""
        facts = self._look()
        if facts is None:
            with self._connections.writing() as cursor:
                make_tables(cursor, self._schema, self.address, self._new._replace(n_bits=n_bits))
            facts = self._look()
        assert facts is not None
        return facts


def open_postgres(address: str, n_bits: int | None, model: str, projections: bool = False) -> PostgresStore:
    """Open the store at an address that begins with ``postgresql://``; the first `add` makes it.

    Raises:
        InputError: the address has another form, nothing answers, or what is there is another store.
    """
    return PostgresStore(parse_address(address), n_bits, model, projections)


def _to_item(row: Mapping[str, Any]) -> Item:
    """Return the item of a row: column -> value, as a binary cursor reads it."""
    codes = {_modality(name): to_code(code) for name, code in row.items() if name.startswith("code_") and code}
    projections = {
        _modality(name): np.frombuffer(values, np.int8)
        for name, values in row.items()
        if name.startswith("projection_") and values is not None
    }
    return Item(row["id"], codes, row["metadata"], projections)


def _modality(column: str) -> str:
    return column.partition("_")[2]
