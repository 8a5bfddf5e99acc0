"""A real `channelhash serve` on a small store, and what others notice of it while it is attacked."""

import contextlib
import http.client
import json
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

TOKEN = "a-token-of-some-length"
COLOURS = ("red", "green", "blue")
_TICKS = os.sysconf("SC_CLK_TCK")
# Beyond this a question counts as not answered.
_PATIENCE = 90.0


@dataclass
class Server:
    """A running server.

    Attributes:
        process: the process.
        host: its address.
        port: its port.
    """

    process: subprocess.Popen[str]
    host: str
    port: int

    def connect(self, timeout: float = _PATIENCE) -> http.client.HTTPConnection:
        """Return a connection of its own for one client."""
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def ask(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> str:
        """Send one request; return the status, or why there is none."""
        connection = self.connect()
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
                connection.request(method, path, body or None, headers or {})
            answer = connection.getresponse()
            answer.read()
            return str(answer.status)
        except (OSError, http.client.HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()

    def seconds(self) -> float:
        """Return the CPU seconds that the process has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak(self) -> float:
        """Return the largest resident size in MB since `forget_peak`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1000

    def forget_peak(self) -> None:
        """Count the largest resident size anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


@dataclass
class Watch:
    """Others who ask during an attack, on a new connection each time: ``/health`` every 50 ms, a search every 250 ms.

    Attributes:
        server: the server.
        longest: the longest wait for ``/health`` in seconds.
        health: status -> how often ``/health`` answered with it.
        searches: status -> how often a search answered with it.
        slowest: the longest wait for a search in seconds.
    """

    server: Server
    longest: float = 0.0
    slowest: float = 0.0
    health: Counter[str] = field(default_factory=Counter)
    searches: Counter[str] = field(default_factory=Counter)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Ask until the block ends and all is answered, from a process that the attack does not slow down."""
        context = multiprocessing.get_context("fork")
        ended, found = context.Event(), context.SimpleQueue()
        process = context.Process(target=self._watch, args=(ended, found))
        process.start()
        try:
            yield
        finally:
            ended.set()
            self.longest, self.slowest, self.health, self.searches = found.get()
            process.join()

    def _watch(self, ended: Event, found: Any) -> None:
        threads = [threading.Thread(target=ask, args=(ended,)) for ask in (self._ask_health, self._search)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found.put((self.longest, self.slowest, self.health, self.searches))

    def _ask_health(self, ended: Event) -> None:
        while not ended.wait(0.05):
            start = time.perf_counter()
            self.health[self.server.ask("GET", "/health")] += 1
            self.longest = max(self.longest, time.perf_counter() - start)

    def _search(self, ended: Event) -> None:
        body, headers = json.dumps({"id": "item000", "k": 3}).encode(), {"Content-Type": "application/json"}
        while not ended.wait(0.25):
            start = time.perf_counter()
            self.searches[self.server.ask("POST", "/search", body, headers)] += 1
            self.slowest = max(self.slowest, time.perf_counter() - start)


def make_store(folder: Path, n: int = 2000) -> None:
    """Write a store of ``n`` items with the model of its texts and pictures, and a file with a token."""
    import torch

    from channelhash.data.table import load_table
    from channelhash.models import MODELS
    from channelhash.search import open_store

    (folder / "images").mkdir(parents=True)
    lines = ["id,image,text,labels"]
    for i in range(30):
        pixels = np.full((40, 52, 3), 60, np.uint8)
        pixels[..., i % 3] += np.uint8(100 + i)
        Image.fromarray(pixels).save(folder / "images" / f"{i}.png")
        lines.append(f"item{i:03d},images/{i}.png,a {COLOURS[i % 3]} picture,{COLOURS[i % 3]}")
    (folder / "items.csv").write_text("\n".join(lines) + "\n")
    records = load_table(folder / "items.csv")
    torch.manual_seed(0)
    model = MODELS["small"].create(records, 12, width=8, image_size=32, hidden=[16]).eval()
    model.save_pretrained(folder / "model")
    store = open_store(folder / "store", model.n_bits, model.fingerprint())
    ids, codes = (
        [f"item{i:03d}" for i in range(n)],
        model.encode_texts([f"a {COLOURS[i % 3]} picture" for i in range(n)]),
    )
    metadata = [
        {"text": f"a picture, number {i}", "labels": [COLOURS[i % 3]], "year": 1900 + i % 100} for i in range(n)
    ]
    store.add(ids, {"text": codes, "image": codes}, metadata=metadata)
    store.close()
    (folder / "token").write_text(f"{TOKEN}\n")


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    """Serve the store of `make_store` from a process of its own."""
    command = [sys.executable, "-m", "channelhash.cli.main", "serve", str(folder / "store"), "--port", "0"]
    command += ["--model", str(folder / "model"), "--token-file", str(folder / "token"), *options]
    with open(folder / "log.txt", "a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
    try:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1024, 8192))  # 1024 as on most systems
        address = re.search(r"at http://([\d.]+):(\d+)/", process.stdout.readline())
        if address is None:
            raise RuntimeError(f"the server did not start: {(folder / 'log.txt').read_text()}")
        yield Server(process, address[1], int(address[2]))
    finally:
        process.kill()
        process.communicate()
