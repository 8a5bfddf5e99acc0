"""Searches of one modality's codes in PostgreSQL: by comparing every code, or by the index HNSW."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.search.filters import Filter
from channelhash.search.postgres.address import MOST_EF_SEARCH
from channelhash.search.postgres.filters import to_postgres
from channelhash.search.postgres.rows import Bits
from channelhash.search.postgres.tables import Database


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


def ask_index(cursor: Any, searched: Searched, query: PackedCodes, count: int, ef_search: int) -> Found:
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


def has_at_most(cursor: Any, searched: Searched, count: int) -> bool:
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
