"""Damage a bare SQLite table and a FAISS index as `damage.py` damages stores, for docs/reference/guarantees.md.

    python tools/attacks/alternatives.py

Both hold the same 20,000 codes. Each damaged file is opened and asked in a process of its own, in the ways that their
own documentation shows; an exception counts as refused.
"""

import argparse
import hashlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
from damage import Damage, damages

_ITEMS, _BYTES = 20_000, 8
# Damages of each engine, drawn from the matrices of so many seeds.
_DAMAGES, _SEEDS = 300, 30
_FILES = {"sqlite": "items.sqlite", "faiss": "codes.faiss"}


def _build(stores: Path) -> None:
    """Write the files of every engine, and others that a file can be exchanged for."""
    for name, seed, count in (
        ("sqlite", 0, _ITEMS),
        ("faiss", 0, _ITEMS),
        ("older", 0, _ITEMS - 500),
        ("other", 1, _ITEMS),
    ):
        folder = stores / name
        folder.mkdir(parents=True)
        codes = np.random.default_rng(seed).integers(0, 256, (count, _BYTES), dtype=np.uint8)
        if name != "faiss":
            _write_sqlite(folder / _FILES["sqlite"], codes)
        if name != "sqlite":
            _write_faiss(folder / _FILES["faiss"], codes)


def _write_sqlite(path: Path, codes: np.ndarray) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE items (id TEXT PRIMARY KEY, code BLOB, year INTEGER)")
    rows = ((f"item {number:06}", code.tobytes(), 2000 + number % 25) for number, code in enumerate(codes))
    with connection:
        connection.executemany("INSERT INTO items VALUES (?, ?, ?)", rows)
    connection.close()


def _write_faiss(path: Path, codes: np.ndarray) -> None:
    import faiss

    index = faiss.IndexBinaryFlat(8 * _BYTES)
    index.add(codes)
    faiss.write_index_binary(index, str(path))


def _ask_sqlite(path: Path) -> list[object]:
    """Return all codes in order, some rows by id, and the items that pass a filter."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True)
    answers: list[object] = connection.execute("SELECT id, code, year FROM items ORDER BY id").fetchall()
    for number in range(0, _ITEMS, 50):
        answers += connection.execute("SELECT * FROM items WHERE id = ?", (f"item {number:06}",)).fetchall()
    return answers + connection.execute("SELECT id FROM items WHERE year > 2012 ORDER BY id").fetchall()


def _ask_faiss(path: Path) -> list[object]:
    """Return the ten nearest codes of 200 queries."""
    import faiss

    queries = np.random.default_rng(2).integers(0, 256, (200, _BYTES), dtype=np.uint8)
    distances, numbers = faiss.read_index_binary(str(path)).search(queries, 10)
    return [distances.tolist(), numbers.tolist()]


def _outcome(engine: str, path: Path, expected: str) -> tuple[str, str]:
    """Return how a damaged file ended, and the digest of its answers; ``expected`` is that of the whole file."""
    command = [sys.executable, __file__, "--ask", engine, str(path)]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return "CRASH", ""
    if asked.returncode < 0:
        return "CRASH", ""
    if asked.returncode:
        return "refused", ""
    return ("harmless" if asked.stdout == expected else "WRONG"), asked.stdout


def main() -> None:
    """Print how the damages of each engine ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ask", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        engine, path = options.ask
        answers = (_ask_sqlite if engine == "sqlite" else _ask_faiss)(Path(path))
        print(hashlib.sha256(repr(answers).encode()).hexdigest())
        return
    with tempfile.TemporaryDirectory() as temporary:
        stores = Path(temporary)
        _build(stores)
        for engine, file in _FILES.items():
            expected = _outcome(engine, stores / engine / file, "")[1]
            matrix = [damage for seed in range(_SEEDS) for damage in damages(stores, engine, seed) if not damage.opened]
            counts = Counter(
                _of_damage(damage, stores, engine, expected) for damage in random.Random(0).sample(matrix, _DAMAGES)
            )
            print(json.dumps({"engine": engine, "damages": counts.total(), **counts}))


def _of_damage(damage: Damage, stores: Path, engine: str, expected: str) -> str:
    with tempfile.TemporaryDirectory(dir=stores) as temporary:
        folder = Path(temporary) / engine
        shutil.copytree(stores / engine, folder)
        damage.do(folder, stores)
        return _outcome(engine, folder / _FILES[engine], expected)[0]


if __name__ == "__main__":
    main()
