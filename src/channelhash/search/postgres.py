"""``postgresql``: a schema of PostgreSQL with pgvector: postgresql://user@host/database?store=name

`channelhash.search.postgres_tables` says which tables it has.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.codes.quantizer import QuantizedRows
from channelhash.codes.stage import Stage
from channelhash.errors import InputError
from channelhash.search.filters import Filter, SqlCondition, to_sql
from channelhash.search.items import Facts, NewItems, by_count
from channelhash.search.postgres_connections import (
    MOST_EF,
    Bits,
    Connections,
    parse_address,
    to_codes,
    to_postgres,
)
from channelhash.search.postgres_tables import Stored, Tables
from channelhash.search.rank import (
    ALL,
    CANDIDATES,
    FIRST,
    ORDERED,
    KeyedAnswers,
    asymmetric_distances,
    sure_distances,
)
from channelhash.search.store import Answers, Item, Scope, Score, Store

#: Bytes of the longest id. An entry of a B-tree has up to 2,704, some of them PostgreSQL's own.
_MAX_ID = 2_600


class _Match(NamedTuple):
    """What one query found, by distance, then by id.

    Attributes:
        ids: the items' ids.
        distances: the distances of their codes.
        codes: the code of each, as the database sends it, if it was asked for.
    """

    ids: list[str]
    distances: NDArray[np.int64]
    codes: list[Any]

    def take(self, places: NDArray[np.int64]) -> "_Match":
        """Return some of the items."""
        chosen = places.tolist()
        ids = [self.ids[place] for place in chosen]
        return _Match(ids, self.distances[places], [self.codes[place] for place in chosen])


class _NearestSql(NamedTuple):
    """The parts of the statements that find the nearest codes.

    Attributes:
        source: FROM and WHERE of the codes that are searched.
        distance: the distance of a code to a query.
        code: the column of codes if they are read, or NULL.
        order: the order of ids.
    """

    source: str
    distance: str
    code: str
    order: str

    def exact(self, within: bool) -> str:
        """Compare every code: no index orders by a distance that is cast."""
        distance = f"({self.distance})::integer"
        radius = f"AND {distance} <= %s " if within else ""
        return (
            f"SELECT id, {distance} AS distance, {self.code} {self.source} {radius}"
            f"ORDER BY distance, {self.order} LIMIT %s"
        )

    def by_index(self) -> str:
        """Find nearly the nearest codes by the index HNSW, and order them."""
        return (
            f"SELECT id, distance::integer, code FROM (SELECT id, {self.distance} AS distance, "
            f"{self.code} AS code {self.source} ORDER BY {self.distance} LIMIT %s) AS nearest "
            f"ORDER BY distance, {self.order}"
        )


class PostgresStore(Store):
    """A `Store` in PostgreSQL with pgvector.

    Every call is one transaction, and sees what was committed before it. Searches compare every
    code, exactly, unless the address asks for the index HNSW.
    """

    keeps_projections = True

    def __init__(self, address: str, new: Facts) -> None:
        super().__init__(address, new)
        database, schema, self._ef_search = parse_address(address)
        self._tables = Tables(address, schema)
        self._stored: Stored | None = None
        self._connections = Connections(address, database)
        try:
            self._look()
        except Exception:
            self._connections.close()
            raise

    @property
    def writable(self) -> bool:
        """Whether this user could add items when the store was opened; true of a new store."""
        stored = self._look()
        return stored is None or stored.writable

    @property
    def modalities(self) -> tuple[str, ...]:
        if not self._look():
            return ()
        with self._connections.reading() as cursor:
            sql = f'SELECT 1 FROM {self._tables.items} WHERE "code_{{}}" IS NOT NULL LIMIT 1'
            names = self._tables.coded_modalities(cursor)
            return tuple(name for name in names if cursor.execute(sql.format(name)).fetchall())

    @property
    def version(self) -> int:
        """A number that grows with every write."""
        rows = self._rows(f"SELECT version FROM {self._tables.facts}")
        return sum(version for (version,) in rows)

    def __len__(self) -> int:
        return sum(count for (count,) in self._rows(f"SELECT count(*) FROM {self._tables.items}"))

    def label_counts(self) -> dict[str, int]:
        labels = (
            f"{self._tables.items}, LATERAL (SELECT DISTINCT jsonb_array_elements_text(metadata -> "
            "'labels') AS label)"
        )
        return by_count(dict(self._rows(f"SELECT label, count(*) FROM {labels} GROUP BY 1")))

    def value_counts(self, key: str) -> dict[str, int]:
        value = (
            f"SELECT metadata ->> %s, count(*) FROM {self._tables.items} "
            "WHERE jsonb_typeof(metadata -> %s) = 'string'"
        )
        return by_count(dict(self._rows(f"{value} GROUP BY 1", key, key)))

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
        rows = self._rows(f"SELECT unnest(keys) FROM {self._tables.facts}")
        return [key for (key,) in rows]

    def _ids(self, where: Filter | None) -> list[str]:
        condition = to_sql(where, to_postgres)
        sql = f"SELECT id FROM {self._tables.items} WHERE {condition.sql}"
        return sorted(name for (name,) in self._rows(sql, *condition.parameters))

    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        if not self._look():
            return {}
        with self._connections.reading() as cursor:
            cursor.execute(
                f"SELECT * FROM {self._tables.items} WHERE id = ANY(%s)",
                (list(filter(_is_storable, ids)),),
            )
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {row["id"]: _to_item(row) for row in rows}

    def _write(self, new: NewItems) -> None:
        for name in new.ids:
            if not _is_storable(name):
                raise InputError(
                    f"{self.address}: id {name[:40]!r} holds a NUL or is longer than {_MAX_ID:,} "
                    "bytes"
                )
        stored = self._make_if_absent(new.n_bits)
        with self._connections.writing() as cursor:
            self._tables.lock_writers(cursor, _keys_written(new))
            self._tables.add_columns(cursor, sorted(new.codes), stored.facts)
            if self._ef_search:
                self._tables.add_hnsw(cursor, stored.vector)
            if not new.replace:
                self._tables.check_absent(cursor, new)
            self._tables.write_items(cursor, new)

    def _delete(self, ids: list[str]) -> int:
        if not self._look():
            return 0
        with self._connections.writing() as cursor:
            self._tables.lock_writers(cursor)
            cursor.execute(
                f"DELETE FROM {self._tables.items} WHERE id = ANY(%s)",
                (list(filter(_is_storable, ids)),),
            )
            return int(cursor.rowcount)

    def _search(
        self, queries: PackedCodes, radius: int | None, limit: int | None, scope: Scope
    ) -> Answers:
        matches = self._nearest(queries, limit, radius, scope)
        return Answers([match.ids for match in matches], [match.distances for match in matches])

    def _by_outputs(
        self, outputs: NDArray[Any], k: int | None, radius: int | None, scope: Scope
    ) -> KeyedAnswers:
        answers = KeyedAnswers([], [], [])
        depth = k and CANDIDATES * max(k, ORDERED)
        matches = self._nearest(pack(binarize(outputs)), depth, radius, scope, with_codes=True)
        for row, match in zip(outputs, matches, strict=True):
            keys = asymmetric_distances(row, to_codes(match.codes, len(row)))
            if radius is not None:
                keys = sure_distances(row, keys, match.distances)
            _add_answer(answers, match, keys, np.argsort(keys, kind="stable")[:k])
        return answers

    def _read_stage(self) -> Stage:
        rows = self._rows(f"SELECT stage FROM {self._tables.facts}")
        if rows:
            return Stage.from_bytes(bytes(rows[0][0]))
        assert self.new_stage is not None
        return self.new_stage

    def _scored(
        self,
        outputs: NDArray[Any],
        scores: Sequence[Score],
        k: int,
        first: int | None,
        scope: Scope,
    ) -> KeyedAnswers:
        if first is None:
            source = self._source(scope)
            rows = self._rows(f"SELECT 1 {source.sql} LIMIT %s", *source.parameters, ALL + 1)
            first = ALL if len(rows) <= ALL else max(k, FIRST)
        answers = KeyedAnswers([], [], [])
        queries = pack(binarize(outputs))
        matches = self._nearest(queries, CANDIDATES * first, None, scope, with_codes=True)
        for row, score, match in zip(outputs, scores, matches, strict=True):
            if len(match.ids) > first:
                keys = asymmetric_distances(row, to_codes(match.codes, len(row)))
                match = match.take(np.sort(np.argsort(keys, kind="stable")[:first]))
            values = score(self._projections(match.ids, scope.modality))
            _add_answer(answers, match, values, np.argsort(-values, kind="stable")[:k])
        return answers

    def _projections(self, ids: Sequence[str], modality: str) -> QuantizedRows:
        """Return the projections ``(n, bytes)`` of items, in the order of ``ids``; zeros of those
        that were deleted meanwhile.
        """
        column = f'"projection_{modality}"'
        sql = f"SELECT id, {column} FROM {self._tables.items} WHERE id = ANY(%s)"
        kept = dict(self._rows(f"{sql} AND {column} IS NOT NULL", list(ids)))
        empty = bytes(self._common().projection_bytes)
        rows = b"".join(kept.get(name, empty) for name in ids)
        return np.frombuffer(rows, np.uint8).reshape(len(ids), len(empty))

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
            f"SELECT pg_total_relation_size('{self._tables.items}'){counted} "
            f"FROM {self._tables.items}"
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
        has_code = f'"code_{scope.modality}" IS NOT NULL'
        sql = f"FROM {self._tables.items} WHERE {has_code} AND {condition.sql}"
        return condition._replace(sql=sql)

    def _nearest(
        self,
        queries: PackedCodes,
        count: int | None,
        radius: int | None,
        scope: Scope,
        with_codes: bool = False,
    ) -> list[_Match]:
        """Find items for every query by distance, then by id, perhaps with their codes.

        The search is exact, or finds nearly the nearest by the index HNSW. The index gives up after
        some 20,000 codes (``hnsw.max_scan_tuples``). If too few of them pass the filter, every code
        is compared after all.
        """
        source = self._source(scope)
        stored = self._look()
        assert stored is not None
        vector = stored.vector.replace("%", "%%")
        sql = _NearestSql(
            source.sql,
            f'"code_{scope.modality}" OPERATOR({vector}.<~>) %s',
            f'"code_{scope.modality}"' if with_codes else "NULL",
            stored.order,
        )
        matches: list[_Match] = []
        with self._connections.reading() as cursor:
            uses_index = radius is None and self._set_up_index(cursor, count)
            for query in queries:
                code = Bits(stored.facts.n_bits, query.tobytes())
                rows: list[tuple[Any, ...]] = []
                if uses_index:
                    values = (code, *source.parameters, code, count)
                    rows = cursor.execute(sql.by_index(), values).fetchall()
                if len(rows) != count:
                    bound = () if radius is None else (code, min(radius, code.n_bits))
                    values = (code, *source.parameters, *bound, count)
                    rows = cursor.execute(sql.exact(radius is not None), values).fetchall()
                matches.append(_to_match(rows))
        return matches

    def _set_up_index(self, cursor: Any, count: int | None) -> bool:
        """Return whether the index can find so many items; let it look far enough for them."""
        if not self._ef_search or count is None:
            return False
        cursor.execute(f"SET LOCAL hnsw.ef_search = {min(max(count, self._ef_search), MOST_EF)}")
        cursor.execute("SET LOCAL hnsw.iterative_scan = strict_order")
        return True

    def _rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query; none while the store does not exist."""
        if not self._look():
            return []
        with self._connections.reading() as cursor:
            return list(cursor.execute(sql, parameters).fetchall())

    def _look(self) -> Stored | None:
        """Return what the store and its database say of themselves; None without a store."""
        if self._stored is not None:
            return self._stored
        with self._connections.reading() as cursor:
            facts = self._tables.read_facts(cursor)
            if facts is None:
                return None
            stored = self._tables.read_database(cursor, facts)
            lacks_hnsw = bool(self._ef_search and self._tables.missing_hnsw(cursor))
        facts.check(self.address, self._new)
        if lacks_hnsw:
            self._add_hnsw(stored)
        self._stored = stored
        return stored

    def _add_hnsw(self, stored: Stored) -> None:
        if not stored.writable:
            raise InputError(f"{self.address}: has no index HNSW; open it once as its owner")
        with self._connections.writing() as cursor:
            self._tables.lock_writers(cursor)
            self._tables.add_hnsw(cursor, stored.vector)

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(
                f"{self.address}: this user can only read it; let the owner GRANT INSERT, UPDATE, "
                "DELETE"
            )

    def _make_if_absent(self, n_bits: int) -> Stored:
        """Return what the store says of itself; create it if it does not exist."""
        if not self._look():
            with self._connections.writing() as cursor:
                self._tables.create(cursor, self._new._replace(n_bits=n_bits), self.new_stage)
        stored = self._look()
        assert stored is not None
        return stored


def _is_storable(item_id: str) -> bool:
    return "\0" not in item_id and len(item_id.encode()) <= _MAX_ID


def _keys_written(new: NewItems) -> list[str]:
    """Return the metadata keys that get a value."""
    keys = set[str]()
    for values in new.metadata or ():
        keys.update(key for key, value in values.items() if value is not None)
    return sorted(keys)


def _to_match(rows: Sequence[tuple[Any, ...]]) -> _Match:
    """Return rows of an id, a distance and perhaps a code."""
    distances = np.array([distance for _, distance, _ in rows], dtype=np.int64)
    return _Match([name for name, *_ in rows], distances, [code for *_, code in rows])


def _add_answer(
    answers: KeyedAnswers, match: _Match, keys: NDArray[Any], order: NDArray[np.int64]
) -> None:
    """Add what one query found in an order, with the keys that decide it."""
    answers.ids.append([match.ids[place] for place in order])
    answers.distances.append(match.distances[order])
    answers.keys.append(keys[order])


def _to_item(row: Mapping[str, Any]) -> Item:
    """Return the item of a row: column -> value, as a binary cursor reads it."""
    codes = {}
    projections = {}
    for column, value in row.items():
        kind, _, modality = column.partition("_")
        if kind == "code" and value:
            n_bits = int.from_bytes(value[:4], "big")  # it begins with the code length
            [codes[modality]] = to_codes([value], n_bits)
        elif kind == "projection" and value is not None:
            projections[modality] = np.frombuffer(value, np.uint8)
    return Item(row["id"], codes, row["metadata"], projections)
