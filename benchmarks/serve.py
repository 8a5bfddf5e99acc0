"""A server on loopback over many codes, beside FAISS behind FastAPI: requests a second, waiting
times, errors, memory.

Each client sends its next query when it has the response to the last. The clients are connections
of one more process on the same machine, and take part of its cores.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.error import HTTPError, URLError

import numpy as np
import psutil

from channelhash.codes import CodeSet
from channelhash.search import open_store
from measure import clustered_codes, draw_texts, options, print_table, small_text_model

BITS, K, ADDED = 64, 10, 100_000
HERE = Path(__file__).parent


def main() -> None:
    """Print a row for each program, number of processes, kind of query and number of clients."""
    cores = tuple(sorted({1, os.cpu_count() or 1}))
    given = options(__doc__, seconds=15.0, codes=10**6, clients=(1, 8, 32), workers=cores)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        queries = fill(folder, given.codes)
        for program in (channelhash, faiss_server):
            for workers in given.workers:
                with running(*program(folder, workers)) as (address, process):
                    for kind, bodies in queries.items():
                        for clients in given.clients:
                            row = {
                                "program": program.__name__,
                                "processes": workers,
                                "query": kind,
                                "clients": clients,
                            }
                            rows.append(
                                row | measure(address, bodies, clients, given.seconds, process.pid)
                            )
    print_table(rows, f"{given.codes:,} codes of {BITS} bits, top {K}")


def fill(folder: Path, n: int) -> dict[str, bytes]:
    """Write a model, a store and a file of codes; return bodies of queries."""
    model, codes = small_text_model(BITS), clustered_codes(n, BITS, max(1, n // 100))
    model.save_pretrained(folder / "model")
    ids = [f"{row:07d}" for row in range(n)]
    CodeSet(ids, {"image": codes}, None, BITS, model=model.fingerprint()).save(
        folder / "codes.parquet"
    )
    with closing(open_store(folder / "store", BITS, model.fingerprint())) as store:
        for start in range(0, n, ADDED):
            store.add(ids[start : start + ADDED], codes[start : start + ADDED])
    queries = {
        "an id": [{"id": ids[row], "k": K} for row in range(0, n, max(1, n // 500))],
        "words": [{"text": text, "k": K} for text in draw_texts(200, "questions")],
    }
    return {kind: "\n".join(map(json.dumps, bodies)).encode() for kind, bodies in queries.items()}


def channelhash(folder: Path, workers: int) -> tuple[list[str], str]:
    """Return the command of our server, which says its address."""
    command = [sys.executable, "-m", "channelhash", "serve", str(folder / "store"), "--port", "0"]
    return [*command, "--model", str(folder / "model"), "--workers", str(workers)], ""


def faiss_server(folder: Path, workers: int) -> tuple[list[str], str]:
    """Return the command of the program over FAISS, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    os.environ.update({"MODEL": str(folder / "model"), "CODES": str(folder / "codes.parquet")})
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "faiss_server:make_app",
        "--factory",
        "--app-dir",
        str(HERE),
    ]
    command += [
        "--port",
        str(port),
        "--workers",
        str(workers),
        "--no-access-log",
        "--log-level",
        "error",
    ]
    return command, f"http://127.0.0.1:{port}"


@contextmanager
def running(command: list[str], address: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run a server; yield its address and its process once it answers and has nothing more to
    load.
    """
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        if not address and (match := re.search(r"at (http://\S+)/", process.stdout.readline())):
            address = match[1]
        end = time.monotonic() + 120
        while not (address and is_loaded(address)):
            if process.poll() is not None or time.monotonic() > end:
                sys.exit(f"the server did not start: {' '.join(command)}")
            time.sleep(0.2)
        yield address, process
    finally:
        process.terminate()
        process.wait()


def is_loaded(address: str) -> bool:
    """Return whether a server answers and is not loading anything, asked several times: each worker
    answers in turn.
    """
    try:
        for _ in range(4):
            with urllib.request.urlopen(f"{address}/info", timeout=60) as answer:
                if json.loads(answer.read())["loading"]:
                    return False
    except HTTPError:  # another program, which knows no such address
        return True
    except URLError:
        return False
    return True


def measure(
    address: str, bodies: bytes, clients: int, seconds: float, pid: int
) -> dict[str, object]:
    """Measure one load, after a second of warm-up."""
    for length in (min(1.0, seconds), seconds):
        command = [sys.executable, str(HERE / "http_load.py"), address, str(clients), str(length)]
        done = subprocess.run(command, input=bodies, stdout=subprocess.PIPE, check=True)
    waits, errors = json.loads(done.stdout)
    p50, p95, p99 = (
        round(1000 * float(np.quantile(waits, share)), 1) for share in (0.5, 0.95, 0.99)
    )
    server = psutil.Process(pid)
    used = [each.memory_full_info() for each in [server, *server.children(recursive=True)]]
    # what processes share counts once
    memory = sum(getattr(each, "pss", each.rss) for each in used)
    row = {"requests/s": round(len(waits) / seconds), "p50 ms": p50, "p95 ms": p95, "p99 ms": p99}
    return row | {"errors": errors, "MB": round(memory / 1e6)}


if __name__ == "__main__":
    main()
