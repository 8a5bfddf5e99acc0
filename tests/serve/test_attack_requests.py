"""Attacks by requests: what they get, how long others wait meanwhile, and what they cost the
server.
"""

import io
import json
import re
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from PIL import Image

from serve.served import WRITER, model_and_token, refused, small_model, small_store, started

MB = 1_000_000
JSON = {"Content-Type": "application/json"}


def json_bodies(size: int) -> dict[str, bytes]:
    """What a body of ``size`` bytes can be made of."""
    return {
        "unknown keys": b'{"text":"a",'
        + b",".join(b'"%d":0' % i for i in range(size // 11))
        + b"}",
        "deep lists": b'{"text":' + b"[" * size,
        "deep objects": b'{"text":' * (size // 8),
        "a giant list": b'{"text":[' + b"0," * (size // 2) + b"0]}",
        "escapes": b'{"text":"' + b"\\u00e9" * (size // 6) + b'"}',
        "a string without end": b'{"text":"' + b'\\"' * (size // 2),
        "empty strings": b'{"text":[' + b'"",' * (size // 3) + b'""]}',
        "a giant integer": b'{"text":"a","k":' + b"9" * size + b"}",
        "a giant float": b'{"text":"a","k":0.' + b"9" * size + b"}",
    }


ODD_BODIES: dict[str, tuple[int, bytes, dict[str, str]]] = {
    "no type": (415, b'{"id":"item000"}', {}),
    "text": (415, b'{"id":"item000"}', {"Content-Type": "text/plain"}),
    "a form": (415, b"id=item000", {"Content-Type": "application/x-www-form-urlencoded"}),
    "gzip": (415, b"\x1f\x8b\x08\x00" + b"\x00" * 50, JSON | {"Content-Encoding": "gzip"}),
    "bad UTF-8": (400, b'{"text":"\xff\xfe\xc0\x80"}', JSON),
    "half a character": (422, b'{"text":"\\ud800"}', JSON),
    "NaN": (422, b'{"text":"a","radius":NaN}', JSON),
    "1e999": (422, b'{"text":"a","k":1e999}', JSON),
    "10,000 digits": (422, b'{"text":"a","k":' + b"1" * 10_000 + b"}", JSON),
    "zero bytes": (422, b"\x00" * 1000, JSON),
    "nothing": (422, b"", JSON),
    "a key twice": (
        200,
        b'{"text":"a","text":"b","k":1,"k":2}',
        JSON,
    ),  # the last one counts, as everywhere
}


def form(parts: list[tuple[str, bytes]]) -> tuple[bytes, dict[str, str]]:
    """A multipart body of (header, content), and its header."""
    body = b"".join(
        b"--xxxx\r\n%b\r\n\r\n%b\r\n" % (header.encode(), part) for header, part in parts
    )
    return body + b"--xxxx--\r\n", {"Content-Type": "multipart/form-data; boundary=xxxx"}


def upload(content: bytes) -> tuple[bytes, dict[str, str]]:
    return form([('Content-Disposition: form-data; name="image"; filename="a.png"', content)])


def png(mode: str, *size: int) -> bytes:
    """A black PNG of any size in few bytes."""
    Image.new(mode, size).save(out := io.BytesIO(), "PNG")
    return out.getvalue()


def head(method: str, path: str, *lines: str) -> bytes:
    """The start of a request, up to its body."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def request(method: str, path: str, body: bytes = b"", headers: dict[str, str] = JSON) -> bytes:
    """A request after whose answer the connection ends."""
    lines = [f"{name}: {value}" for name, value in headers.items()]
    return head(method, path, *lines, f"Content-Length: {len(body)}", "Connection: close") + body


class Server(NamedTuple):
    """A running server."""

    process: psutil.Process
    port: int

    def ask(self, content: bytes) -> str:
        """Send a request on a connection of its own; return the status, or why there is none."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=90) as connection:
                with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
                    connection.sendall(content)
                answer = connection.recv(100)
                while connection.recv(MB):  # until it is closed
                    pass
                return answer.split()[1].decode() if answer else "closed"
        except OSError as error:
            return type(error).__name__


Attack = Callable[[Server], Counter[str]]


def at_once(*requests: bytes) -> Attack:
    def attack(server: Server) -> Counter[str]:
        with ThreadPoolExecutor(len(requests)) as clients:
            return Counter(clients.map(server.ask, requests))

    return attack


def hold(server: Server, n: int, start: bytes, seconds: float) -> Counter[str]:
    """Open ``n`` connections that send the start of a request and then nothing; return what they
    got in the end.
    """
    statuses: Counter[str] = Counter()
    with ExitStack() as stack:
        connections = []
        for _ in range(n):
            with suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", server.port), timeout=1)
                connections.append(stack.enter_context(connection))
                connection.sendall(start)
        time.sleep(seconds)
        for connection in connections:
            connection.setblocking(False)
            try:
                answer = connection.recv(100)
                statuses[answer.split()[1].decode() if answer else "closed"] += 1
            except BlockingIOError:
                statuses["open"] += 1
            except OSError as error:
                statuses[type(error).__name__] += 1
    return statuses


def post_at_once(n: int, path: str, *body: Any) -> Attack:
    return at_once(*[request("POST", path, *body)] * n)


def json_head(*headers: str) -> bytes:
    return head("POST", "/search", "Content-Type: application/json", *headers)


def attacks() -> dict[str, Attack]:
    """Name -> what to do to a server."""
    write = JSON | WRITER
    keys = json_bodies(11 * MB)["unknown keys"]
    items = b'{"items":[' + b"{}," * (4 * MB) + b"{}]}"
    texts = [{"id": f"new{i}", "text": "a red picture " * 100} for i in range(1000)]
    texts = json.dumps({"items": texts, "replace": True}).encode()
    large = {"text": "a red picture", "k": 1000, "modality": "image"}
    large = json.dumps(large).encode()
    search = json.dumps({"id": "item000", "k": 1000}).encode()
    search = json_head(f"Content-Length: {len(search)}") + search
    half = json_head("Content-Length: 1000") + b'{"text":'
    half_picture = head(
        "POST",
        "/search/image",
        "Content-Type: multipart/form-data; boundary=xxxx",
        "Content-Length: 15000000",
    )
    half_picture += bytes(14 * MB)
    chunked = json_head("Transfer-Encoding: chunked")
    narrow = upload(png("1", 1, 40 * MB))
    colour = upload(png("RGB", 6300, 6300))
    breaks = upload(b"\r\n--xxx" * (15 * MB // 7))
    header = form([("X: " + "y" * 15 * MB, b"")])
    silent = b"GET /info HTTP/1.1\r\nHost: loc"
    found = {
        "a million unknown keys, 4 at once": post_at_once(4, "/search", keys),
        "a million unknown keys, with the token": post_at_once(1, "/items", keys, write),
        "4 million empty items, with the token": post_at_once(1, "/items", items, write),
        "4 million empty items, no token, 4 at once": post_at_once(4, "/items", items),
        "64 of the largest searches at once": post_at_once(64, "/search", large),
        "a write of 1000 long texts, 4 at once": post_at_once(4, "/items", texts, write),
        "picture: 1 x 40,000,000, 4 at once": post_at_once(4, "/search/image", *narrow),
        "picture: 6,300 x 6,300 in colour, 32 at once": post_at_once(32, "/search/image", *colour),
        "form: breaks that are none": post_at_once(1, "/search/image", *breaks),
        "form: a header of 15 MB": post_at_once(1, "/search/image", *header),
        "80 half-sent bodies": partial(hold, n=80, start=half, seconds=25),
        "80 half-sent pictures of 14 MB": partial(hold, n=80, start=half_picture, seconds=25),
        "300 half-sent headers": partial(hold, n=300, start=silent, seconds=25),
        "1500 connections that say nothing": partial(hold, n=1500, start=b"", seconds=25),
        "100 clients that ask for 200 answers and read none": partial(
            hold, n=100, start=search * 200, seconds=45
        ),
        "chunks of one byte, 8 at once": at_once(*[chunked + b"1\r\n \r\n" * 200_000] * 8),
    }
    bodies = json_bodies(15 * MB).items()
    return found | {f"15 MB: {name}": post_at_once(1, "/search", body) for name, body in bodies}


def served_of_2000_items(folder: Path) -> tuple[object, ...]:
    """What `channelhash serve` takes: a store of 2000 items, its model and a token."""
    model = small_model(folder)
    ids = [f"item{i:03d}" for i in range(30, 2000)]
    texts = ["a red picture", "a blue picture"] * 985
    codes = model.encode_texts(texts)
    with small_store(folder, model) as store:
        store.add(ids, {"text": codes, "image": codes}, metadata=[{"text": text} for text in texts])
    return folder / "store", *model_and_token(folder, model)


def measure(server: Server, attack: Attack) -> dict[str, object]:
    """Attack a server; return its answers and what they cost it, and the longest wait of others for
    ``/health``.
    """
    ended, healthy, longest = threading.Event(), Counter(), [0.0]

    def watch() -> None:
        while not ended.wait(0.05):
            start = time.perf_counter()
            healthy[server.ask(request("GET", "/health"))] += 1
            longest[0] = max(longest[0], time.perf_counter() - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # forget the peak
    used = sum(server.process.cpu_times()[:2])
    statuses = attack(server)
    time.sleep(0.5)
    ended.set()
    watcher.join()
    peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
    cost = {"peak_mb": int(peak[1]) / 1000, "cpu": sum(server.process.cpu_times()[:2]) - used}
    return {
        "statuses": statuses,
        "health": healthy,
        "longest": longest[0],
        "alive": server.process.is_running(),
    } | cost


@pytest.mark.parametrize("name", json_bodies(10))
def test_json_of_any_shape_is_refused_and_a_large_one_unread(client, name):
    for path in ("/search", "/explain"):
        refused(client.post(path, content=json_bodies(60_000)[name], headers=JSON), 400, 422)
    large = client.post("/search", content=json_bodies(80_000)[name], headers=JSON)
    refused(large, 413, says="0.064 MB")


@pytest.mark.parametrize("name", ODD_BODIES)
def test_odd_types_encodings_and_numbers(client, name):
    status, body, headers = ODD_BODIES[name]
    answer = client.post("/search", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    if status != 200:
        refused(answer, status)


@pytest.mark.parametrize("parts", [
    [(f'Content-Disposition: form-data; name="a{i}"', b"x") for i in range(100)],
    [(f'Content-Disposition: form-data; name="a{i}"; filename="a"', b"x") for i in range(5)],
    [("X: " + "y" * 300_000, b"")],
])  # fmt: skip
def test_forms_of_many_parts_are_refused(client, parts):
    body, headers = form(parts)
    refused(client.post("/search/image", content=body, headers=headers), 400)


@pytest.mark.slow
def test_a_server_answers_others_during_every_attack(tmp_path):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    arguments = served_of_2000_items(tmp_path)
    for name, attack in attacks().items():
        with (
            open(tmp_path / "log.txt", "a") as log,
            started(*arguments, log=log) as (process, address),
        ):
            server = Server(psutil.Process(process.pid), int(address.strip("/").rpartition(":")[2]))
            server.ask(request("POST", "/search", b'{"text":"a red picture"}'))
            result = measure(server, attack)
        print(name, result)
        assert result["alive"], name
        assert set(result["health"]) == {"200"}, name
        assert result["peak_mb"] < 2500, name
        assert "500" not in result["statuses"], name
