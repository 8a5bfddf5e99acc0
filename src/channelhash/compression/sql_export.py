"""Compressors as statements of SQL, for PostgreSQL with pgvector."""

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.compression.compressor import Compressor
from channelhash.errors import InputError, argument
from channelhash.utils.files import write_text

#: Nearest codes that the second stage orders: those that `Searcher.search` looks at.
_FIRST = 2000
#: Most numbers that pgvector keeps of a vector.
_WIDEST = 16_000
#: Longest value of PostgreSQL whose size takes 1 byte.
_SHORT = 126
#: Names of tables that SQL takes without quotes.
_TABLE = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_MAP = """\
-- Short codes of vectors, as channelhash makes them, for PostgreSQL 14 with pgvector 0.7, or later.
-- Bytes of a vector of {width} numbers: {code_bytes} for its code of {n_bits} bits{second_bytes}.
BEGIN;
CREATE EXTENSION IF NOT EXISTS vector;

-- The map that was fitted: weights and vector give bit number `bit`.
CREATE TABLE channelhash_map (bit int PRIMARY KEY, weights vector({width}) NOT NULL);
INSERT INTO channelhash_map VALUES
{map_rows};

-- The code: the signs of the products of the weights and the {prepared}, less the mean.
CREATE FUNCTION channelhash_code(x vector) RETURNS bit
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    WITH given AS MATERIALIZED (SELECT {centred} AS y),
    bits AS (SELECT bit, inner_product(y, weights) >= 0 AS is_one FROM channelhash_map, given)
    SELECT string_agg(CASE WHEN is_one THEN '1' ELSE '0' END, '' ORDER BY bit)::bit({n_bits})
    FROM bits;
END;
"""

_ASK = """
-- The map that pairs have taught: weights and question give number `place` of the vector that those
-- of documents are compared with.
CREATE TABLE channelhash_question_map (place int PRIMARY KEY, weights vector({width}) NOT NULL);
INSERT INTO channelhash_question_map VALUES
{map_rows};

CREATE FUNCTION channelhash_ask(question vector) RETURNS vector
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    WITH given AS MATERIALIZED (SELECT {prepared} AS y)
    SELECT array_agg(inner_product(y, weights) ORDER BY place)::vector
    FROM channelhash_question_map, given;
END;
"""

_CODES_IN_SQL = """
CREATE TABLE {table} (id text PRIMARY KEY, code bit({n_bits}) NOT NULL);
-- INSERT INTO {table} SELECT 'an id', channelhash_code('[…]');

-- Faster and approximate:
-- CREATE INDEX ON {table} USING hnsw (code bit_hamming_ops);

-- The k nearest codes: SELECT * FROM channelhash_search('[…]', 10);
CREATE FUNCTION channelhash_search(question vector, k int DEFAULT 10)
RETURNS TABLE (id text, distance float8)
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    SELECT {table}.id, {table}.code <~> (SELECT channelhash_code({asked})) AS distance
    FROM {table} ORDER BY distance, {table}.id LIMIT k;
END;
COMMIT;
"""

_BOTH_IN_SQL = """
-- The second stage. pgvector keeps no numbers of 4 bits or fewer: what it keeps has 16 bits a
-- number, {second_size} bytes a vector, where channelhash has {own_size}; it orders no worse.
CREATE FUNCTION channelhash_second(x vector) RETURNS halfvec
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN ({kept})::halfvec({width});

CREATE TABLE {table} (
    id text PRIMARY KEY,
    code bit({n_bits}) NOT NULL,
    second halfvec({width}) NOT NULL
);
-- INSERT INTO {table} SELECT 'an id', channelhash_code(x), channelhash_second(x)
-- FROM (SELECT vector '[…]' AS x);

-- Faster and approximate; the index finds hnsw.ef_search codes, not `first`:
-- CREATE INDEX ON {table} USING hnsw (code bit_hamming_ops);
-- SET hnsw.ef_search = 1000;

-- The k most similar of the `first` nearest codes: SELECT * FROM channelhash_search('[…]', 10);
CREATE FUNCTION channelhash_search(question vector, k int DEFAULT 10, first int DEFAULT {first})
RETURNS TABLE (id text, similarity float8)
LANGUAGE sql STABLE STRICT PARALLEL SAFE
BEGIN ATOMIC
    WITH near AS MATERIALIZED (
        SELECT {table}.id, second FROM {table}
        ORDER BY code <~> (SELECT channelhash_code({asked})) LIMIT first
    )
    SELECT near.id, -(second {operator} (SELECT channelhash_second({asked}))) AS similarity
    FROM near ORDER BY similarity DESC, near.id LIMIT k;
END;
COMMIT;
"""


def write_sql(compressor: Compressor, path: Path, table: str = "items") -> None:
    """Write statements for PostgreSQL with pgvector: the function ``channelhash_code`` from a
    vector to its ``bit(k)``, a table, and the function ``channelhash_search``.

    The second stage is kept as ``halfvec``, 2 bytes a number: pgvector keeps no numbers of fewer
    bits. A database takes one such file a schema.

    Raises:
        InputError: ``table`` is no plain name of SQL, or pgvector keeps no vectors of that width.
    """
    width = len(compressor.mean)
    _check(table, width)
    is_cosine = compressor.similarity == "cosine"
    prepare = "l2_normalize({})" if is_cosine else "{}"
    prepared = prepare.format("x")
    centred = f"{prepared} - {_vector(compressor.mean)}::vector"
    quantizer = compressor.quantizer
    second_size = _stored_bytes(2 * width)
    values = {
        "table": table,
        "width": width,
        "n_bits": compressor.n_bits,
        "code_bytes": _stored_bytes(-(-compressor.n_bits // 8)),
        "second_bytes": "" if quantizer is None else f", {second_size} for the second stage",
        "second_size": second_size,
        "own_size": 0 if quantizer is None else quantizer.n_bytes,
        "map_rows": _map_rows(compressor.weights),
        "prepared": "vector's direction" if is_cosine else "vector",
        "centred": centred,
        "kept": prepare.format(centred) if compressor.centred else prepared,
        "operator": "<->" if compressor.similarity == "euclidean" else "<#>",
        "first": _FIRST,
        "asked": "question",
    }
    ask = ""
    if compressor.question_map is not None:
        values["asked"] = "channelhash_ask(question)"
        ask = _ASK.format(
            width=len(compressor.question_map),
            map_rows=_map_rows(compressor.question_map),
            prepared=prepare.format("question"),
        )
    rest = _CODES_IN_SQL if quantizer is None else _BOTH_IN_SQL
    write_text(path, _MAP.format(**values) + ask + rest.format(**values))


def _map_rows(weights: NDArray[np.float32]) -> str:
    """Return the columns of a matrix as rows of a table, by their numbers."""
    return ",\n".join(f"({number}, {_vector(column)})" for number, column in enumerate(weights.T))


def _check(table: str, width: int) -> None:
    """Raise `InputError` for what a database cannot keep."""
    if not _TABLE.fullmatch(table):
        raise InputError(
            f"{argument('table')} {table!r}: not a name of lower-case letters, digits and _"
        )
    if width > _WIDEST:
        raise InputError(f"pgvector keeps vectors of up to {_WIDEST:,} numbers, not {width:,}")


def _stored_bytes(n_bytes: int) -> int:
    """Return the bytes of a value in PostgreSQL: with its width, and 1 or 4 bytes for its size."""
    with_width = n_bytes + 4
    return with_width + (1 if with_width <= _SHORT else 4)


def _vector(values: NDArray[np.float32]) -> str:
    """Return a vector as SQL writes it, in as few digits as give back every number.

    >>> _vector(np.array([0.1, -2], np.float32))
    "'[0.1,-2.0]'"
    """
    numbers = ",".join(str(value) for value in values.astype(np.float32))
    return f"'[{numbers}]'"
