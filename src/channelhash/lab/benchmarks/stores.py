"""Every engine of a store beside the others: how fast it takes items and answers, and what a kill leaves of it."""

import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from channelhash.codes import PackedCodes
from channelhash.lab.benchmarks.store_servers import SERVERS, running
from channelhash.search import Store, open_store
from channelhash.search.index import CodeIndex
from channelhash.search.validation import Metadata
from channelhash.utils.seeds import generator

_N_BITS, _K, _QUERIES, _ADDED = 64, 10, 20, 20_000
# Items of a call, and calls that return before the kill.
_BATCH, _CALLS = 1000, 20
_WHERE = "year >= 2010"  # a third of the items

# Adds batches until it is killed, and says after each that it was added.
_WRITER = f"""
import sys, numpy, channelhash
store = channelhash.open_store(sys.argv[1], n_bits={_N_BITS})
for call in range(10**6):
    codes = numpy.full(({_BATCH}, {_N_BITS // 8}), call % 256, numpy.uint8)
    store.add([f"{{call}}-{{row}}" for row in range({_BATCH})], codes, metadata=[{{"call": call}}] * {_BATCH})
    print(call, flush=True)
"""


class StoreRow(TypedDict):
    """What was measured of one engine.

    Attributes:
        what: the engine, and how it searches.
        items_per_second: added, in calls of 20,000, codes with id, a label and a number.
        top10_ms, filtered_ms: one question alone, the middle of 20; with a filter that a third of the items pass.
        right: share of the distances that are those of comparing all codes.
        bytes_an_item: on the disk.
        delete_seen_ms: from the call of ``delete`` to the answer of another opened store, in which the item is missing.
        acknowledged: calls of 1,000 items that had returned when the engine got SIGKILL.
        lost: those of them of which an item is missing after it has started again.
    """

    what: str
    items_per_second: float
    top10_ms: float
    filtered_ms: float
    right: float
    bytes_an_item: float
    delete_seen_ms: float
    acknowledged: int
    lost: int


def benchmark_stores(n: int = 10**6) -> list[StoreRow]:
    """Measure the store in a folder, and those of the servers whose libraries are installed.

    Args:
        n: random codes of 64 bits that each engine holds.
    """
    rows = [_measure("folder", n)]
    for engine, (library, _) in SERVERS.items():
        if importlib.util.find_spec(library):
            rows.append(_measure(engine, n))
    return rows


def _measure(engine: str, n: int) -> StoreRow:
    codes = generator(0, "stores").integers(0, 256, (n, _N_BITS // 8), dtype=np.uint8)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name) / "data"
        with _started(engine, folder) as (prefix, _):
            empty = _n_bytes(folder)
            store = open_store(f"{prefix}measured", n_bits=_N_BITS)
            try:
                row = _speeds(store, codes, lambda: open_store(f"{prefix}measured"))
            finally:
                store.close()
        size = row["bytes_an_item"] or (_n_bytes(folder) - empty) / n
        acknowledged, lost = _kill(engine, folder)
    return {**row, "what": engine, "bytes_an_item": size, "acknowledged": acknowledged, "lost": lost}


def _n_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def _started(engine: str, folder: Path) -> Iterator[tuple[str, Callable[[], None] | None]]:
    """Run the server of an engine; a folder has none to kill."""
    if engine == "folder":
        folder.mkdir(exist_ok=True)
        yield f"{folder}/", None
    else:
        with running(engine, folder) as started:
            yield started


def _speeds(store: Store, codes: PackedCodes, again: Callable[[], Store]) -> StoreRow:
    n = len(codes)
    began = time.perf_counter()
    for start in range(0, n, _ADDED):
        rows = range(start, min(n, start + _ADDED))
        metadata: list[Metadata] = [{"year": 1990 + row % 30, "labels": [f"label {row % 80}"]} for row in rows]
        store.add([f"{row:09}" for row in rows], codes[rows.start : rows.stop], metadata=metadata)
    added = time.perf_counter() - began
    queries = generator(0, "questions").integers(0, 256, (_QUERIES, codes.shape[1]), dtype=np.uint8)
    expected = CodeIndex.build(codes, _N_BITS).nearest(queries, _K)
    found = store.search(queries, _K)
    right = np.mean([a.distances == b for a, b in zip(expected, found.distances, strict=True)])
    return {
        "what": "",
        "items_per_second": n / added,
        "top10_ms": _middle_ms(lambda query: store.search(query, _K), queries),
        "filtered_ms": _middle_ms(lambda query: store.search(query, _K, where=_WHERE), queries),
        "right": float(right),
        "bytes_an_item": store.info()["bytes_an_item"].get("disk", 0),
        "delete_seen_ms": _delete_seen_ms(store, again, queries[:1]),
        "acknowledged": 0,
        "lost": 0,
    }


def _middle_ms(search: Callable[[PackedCodes], Any], queries: PackedCodes) -> float:
    times = []
    for query in np.concatenate([queries[:1], queries]):
        began = time.perf_counter()
        search(query[None])
        times.append(time.perf_counter() - began)
    return 1000 * statistics.median(times[1:])


def _delete_seen_ms(store: Store, again: Callable[[], Store], query: PackedCodes) -> float:
    other = again()
    try:
        [[nearest, *_]] = other.search(query, 1).ids
        began = time.perf_counter()
        store.delete([nearest])
        while other.search(query, 1).ids[0] == [nearest]:
            pass
        return 1000 * (time.perf_counter() - began)
    finally:
        other.close()


def _kill(engine: str, folder: Path) -> tuple[int, int]:
    """Return the calls that had returned when the engine was killed, and those that are not whole afterwards."""
    with _started(engine, folder) as (prefix, kill):
        command = [sys.executable, "-W", "ignore", "-c", _WRITER, f"{prefix}killed"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
            assert writer.stdout is not None
            acknowledged = [int(writer.stdout.readline()) for _ in range(_CALLS)]
            (kill or writer.kill)()
            acknowledged += [int(line) for line in writer.stdout.read().split()]
    time.sleep(5 if kill else 0)  # a server's other processes end when they miss it
    with _started(engine, folder) as (prefix, _):
        store = open_store(f"{prefix}killed")
        try:
            there = set(store.ids())
        finally:
            store.close()
    lost = [call for call in acknowledged if not there.issuperset(f"{call}-{row}" for row in range(_BATCH))]
    return len(acknowledged), len(lost)
