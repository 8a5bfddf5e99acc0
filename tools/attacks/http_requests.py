"""Attack a server with requests, and measure how long others wait for it.

For each attack: the statuses that it got, the longest wait of somebody else for ``/health`` and for a search, the
server's largest memory and its CPU seconds.

    python tools/attacks/http_requests.py [--count N] [--seed S] [--only WORDS]
"""

import argparse
import io
import json
import random
import resource
import socket
import struct
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

from attacked_server import TOKEN, Server, Watch, make_store, serving

MB = 1_000_000
JSON = {"Content-Type": "application/json"}
WRITER = {"Authorization": f"Bearer {TOKEN}"}
Statuses = Counter[str]
Request = tuple[str, str, bytes, dict[str, str]]

ROUTES = (
    "/search", "/search/image", "/explain", "/explain/image", "/items", "/items/image", "/items/item001",
    "/images/item001", "/info", "/labels", "/health", "/metrics", "/", "/docs", "/openapi.json", "/script.js",
    "/duplicates", "/duplicates.html", "/nothing",
)  # fmt: skip
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "SEARCH")


# Bodies. ------------------------------------------------------------------------------------------


def unknown_keys(n: int) -> bytes:
    """Return an object with ``n`` keys that no request has."""
    return b'{"text":"a",' + b",".join(b'"%d":0' % i for i in range(n)) + b"}"


def empty_items(n: int) -> bytes:
    """Return a write of ``n`` items without anything."""
    return b'{"items":[' + b",".join([b"{}"] * n) + b"]}"


def json_bodies(size: int) -> dict[str, bytes]:
    """Return what a body of ``size`` bytes can be made of: name -> body for ``/search``."""
    return {
        "unknown keys": unknown_keys(size // 11),
        "deep lists": b'{"text":' + b"[" * size,
        "deep objects": b'{"text":' * (size // 8),
        "a giant list": b'{"text":[' + b"0," * (size // 2) + b"0]}",
        "a giant string": b'{"text":"' + b"a" * size + b'"}',
        "escapes": b'{"text":"' + b"\\u00e9" * (size // 6) + b'"}',
        "a string without end": b'{"text":"' + b'\\"' * (size // 2),
        "empty strings": b'{"text":[' + b'"",' * (size // 3) + b'""]}',
        "a giant integer": b'{"text":"a","k":' + b"9" * size + b"}",
        "a giant float": b'{"text":"a","k":0.' + b"9" * size + b"}",
        "blanks": b'{"text":"a"' + b" " * size + b"}",
    }


ODD_BODIES: dict[str, tuple[bytes, dict[str, str]]] = {
    "no type": (b'{"id":"item000"}', {}),
    "text": (b'{"id":"item000"}', {"Content-Type": "text/plain"}),
    "a form": (b"id=item000", {"Content-Type": "application/x-www-form-urlencoded"}),
    "gzip": (b"\x1f\x8b\x08\x00" + b"\x00" * 50, JSON | {"Content-Encoding": "gzip"}),
    "bad UTF-8": (b'{"text":"\xff\xfe\xc0\x80"}', JSON),
    "UTF-16": ('{"id":"item000"}'.encode("utf-16"), JSON),
    "UTF-32": ('{"id":"item000"}'.encode("utf-32"), JSON),
    "half a character": (b'{"text":"\\ud800"}', JSON),
    "NaN": (b'{"text":"a","radius":NaN}', JSON),
    "1e999": (b'{"text":"a","k":1e999}', JSON),
    "-Infinity": (b'{"text":"a","radius":-Infinity}', JSON),
    "10,000 digits": (b'{"text":"a","k":' + b"1" * 10_000 + b"}", JSON),
    "zero bytes": (b"\x00" * 1000, JSON),
    "nothing": (b"", JSON),
    "a key twice": (b'{"text":"a","text":"b","k":1,"k":2}', JSON),
}


def form(parts: list[tuple[str, bytes]], boundary: str = "xxxx") -> tuple[bytes, dict[str, str]]:
    """Return a multipart body of (header, content) and its header."""
    body = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary.encode(), header.encode(), part) for header, part in parts)
    return body + b"--%b--\r\n" % boundary.encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def upload(content: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a picture as a form."""
    return form([('Content-Disposition: form-data; name="image"; filename="a.png"', content)])


def png(width: int, height: int) -> bytes:
    """Return a black PNG of any size, a bit a pixel: few bytes, written without ever holding its pixels."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    deflate, row = zlib.compressobj(9), bytes(1 + -(-width // 8))
    rows = max(1, MB // len(row))
    packed = b"".join(deflate.compress(row * min(rows, height - done)) for done in range(0, height, rows))
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed + deflate.flush()) + chunk(b"IEND", b"")
    )


def pictures() -> dict[str, bytes]:
    """Return name -> a small file that claims or makes many pixels."""
    from PIL import Image

    small = io.BytesIO()
    Image.new("RGB", (1, 1)).save(small, "BMP")
    side = struct.pack("<I", 60_000)
    frames = io.BytesIO()
    Image.new("L", (6000, 6000)).save(frames, "GIF", save_all=True, append_images=[Image.new("L", (6000, 6000), 9)] * 3)
    return {
        "10,000 x 10,000": png(10_000, 10_000),
        "60,000 x 60,000, only a header": small.getvalue()[:18] + side + side + small.getvalue()[26:],
        "40,000,000 x 1": png(40_000_000, 1),
        "1 x 40,000,000": png(1, 40_000_000),
        "6,300 x 6,300": png(6300, 6300),
        "a GIF of four frames of 36 million": frames.getvalue(),
    }


# Attacks. -----------------------------------------------------------------------------------------


def together(server: Server, requests: list[Request]) -> Statuses:
    """Send all requests at one time."""
    with ThreadPoolExecutor(len(requests)) as clients:
        return Counter(clients.map(lambda request: server.ask(*request), requests))


def one_after_another(server: Server, requests: list[Request]) -> Statuses:
    """Send one request after another."""
    return Counter(server.ask(*request) for request in requests)


def hold(server: Server, n: int, start: bytes, seconds: float) -> Statuses:
    """Open ``n`` connections that send the start of a request and then nothing; return what they got in the end."""
    statuses: Statuses = Counter()
    with ExitStack() as stack:
        held = []
        for _ in range(n):
            with suppress(OSError):
                connection = stack.enter_context(socket.create_connection((server.host, server.port), timeout=30))
                held.append(connection)
                connection.sendall(start)
        time.sleep(seconds)
        for connection in held:
            connection.setblocking(False)
            try:
                answer = connection.recv(100)
                statuses[answer.split()[1].decode() if answer else "closed"] += 1
            except BlockingIOError:
                statuses["still open"] += 1
            except OSError as error:
                statuses[type(error).__name__] += 1
    return statuses


def send_raw(server: Server, content: bytes) -> str:
    """Send bytes on a connection of their own; return the first status, or why there is none."""
    try:
        with socket.create_connection((server.host, server.port), timeout=90) as connection:
            with suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(content)
            answer = connection.recv(100)
            return answer.split()[1].decode() if answer else "closed"
    except OSError as error:
        return type(error).__name__


def raw_together(server: Server, n: int, content: bytes) -> Statuses:
    """Send the same bytes on ``n`` connections at one time."""
    with ThreadPoolExecutor(n) as clients:
        return Counter(clients.map(lambda _: send_raw(server, content), range(n)))


def head(method: str, path: str, *lines: str) -> bytes:
    """Return the start of a request, up to its body."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def random_requests(n: int, seed: int) -> Iterator[Request]:
    """Make requests from all routes, methods and pieces of bodies."""
    draw = random.Random(seed)
    pieces = [
        b"{",
        b"}",
        b"[",
        b"]",
        b'"text"',
        b'"id"',
        b'"item000"',
        b":",
        b",",
        b"1",
        b"null",
        b"\xff",
        b"\\u12",
        b'"',
        b"-",
        b"e9",
    ]
    types = ["application/json", "application/json", "multipart/form-data; boundary=x", "text/plain", "a/b/c", ""]
    for _ in range(n):
        body = b"".join(draw.choices(pieces, k=draw.randrange(12)))
        if draw.random() < 0.3:
            body = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n' + body + b"\r\n--x--"
        headers = {"Content-Type": draw.choice(types)} | (WRITER if draw.random() < 0.5 else {})
        yield (
            draw.choice(METHODS),
            draw.choice(ROUTES) + draw.choice(["", "", "?size=x", "?k=1e999", "/%00", "%ff"]),
            body,
            headers,
        )


Attack = Callable[[Server], Statuses]


def json_attacks() -> dict[str, Attack]:
    """Return attacks by JSON."""
    bodies = json_bodies(15 * MB)
    keys, items, write = unknown_keys(MB), empty_items(4 * MB), JSON | WRITER
    small = [("POST", "/search", body, JSON) for body in json_bodies(200_000).values()]
    full = json.dumps(
        {"items": [{"id": f"new{i}", "text": "a red picture " * 100} for i in range(1000)], "replace": True}
    ).encode()
    large = json.dumps({"text": "a red picture", "k": 1000, "rerank": 10_000, "modality": "image"}).encode()
    return {
        "a million unknown keys": lambda s: one_after_another(s, [("POST", "/search", keys, JSON)]),
        "a million unknown keys, 4 at once": lambda s: together(s, [("POST", "/search", keys, JSON)] * 4),
        "a million unknown keys to write, no token": lambda s: one_after_another(s, [("POST", "/items", keys, JSON)]),
        **{
            f"15 MB: {name}": lambda s, body=body: one_after_another(s, [("POST", "/search", body, JSON)])
            for name, body in bodies.items()
            if name != "unknown keys"
        },
        "200 kB of each of these, 4 times at once": lambda s: together(s, small * 4),
        "4 million empty items, with the token": lambda s: one_after_another(s, [("POST", "/items", items, write)]),
        "4 million empty items, no token, 4 at once": lambda s: together(s, [("POST", "/items", items, JSON)] * 4),
        "odd types, encodings and numbers": lambda s: one_after_another(
            s, [("POST", path, *odd) for odd in ODD_BODIES.values() for path in ("/search", "/explain", "/items")]
        ),
        "64 of the largest searches at once": lambda s: together(s, [("POST", "/search", large, JSON)] * 64),
        "a write of 1000 long texts, 4 at once": lambda s: together(s, [("POST", "/items", full, write)] * 4),
    }  # fmt: skip


def form_attacks() -> dict[str, Attack]:
    """Return attacks by forms and pictures."""
    from PIL import Image

    field = 'Content-Disposition: form-data; name="a%d"'
    many = form([(field % i, b"x") for i in range(200_000)])
    files = form([((field + '; filename="a"') % i, b"x") for i in range(150_000)])
    breaks, header = upload(b"\r\n--xxx" * (15 * MB // 7)), form([("X: " + "y" * 15 * MB, b"")])
    fields = (b"a&" * (15 * MB // 2), {"Content-Type": "application/x-www-form-urlencoded"})
    attacks: dict[str, Attack] = {
        f"picture: {name}, 4 at once": lambda s, content=content: together(
            s, [("POST", "/search/image", *upload(content))] * 4
        )
        for name, content in pictures().items()
    }
    colour = io.BytesIO()
    Image.new("RGB", (6300, 6300)).save(colour, "PNG")
    attacks["picture: 6,300 x 6,300 in colour, 32 at once"] = lambda s: together(
        s, [("POST", "/search/image", *upload(colour.getvalue()))] * 32
    )
    forms = {
        "200,000 fields": many,
        "150,000 files": files,
        "breaks that are none": breaks,
        "a header of 15 MB": header,
        "7 million fields in a line": fields,
    }
    return attacks | {
        f"form: {name}": lambda s, body=body: one_after_another(s, [("POST", "/search/image", *body)])
        for name, body in forms.items()
    }


def connection_attacks() -> dict[str, Attack]:
    """Return attacks by connections that send or read slowly."""
    half = head("POST", "/search", "Content-Type: application/json", "Content-Length: 1000") + b'{"text":'
    picture = head("POST", "/search/image", "Content-Type: multipart/form-data; boundary=x", "Content-Length: 15000000")
    picture += b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n' + bytes(14 * MB)
    piece = (
        head("POST", "/search", "Content-Type: application/json", "Transfer-Encoding: chunked")
        + b"1\r\n \r\n" * 200_000
    )
    lines = head("GET", "/info", *[f"a{i}: b" for i in range(5000)])
    large = head("GET", "/info", "X: " + "y" * MB)
    body = json.dumps({"id": "item000", "k": 1000}).encode()
    search = head("POST", "/search", "Content-Type: application/json", f"Content-Length: {len(body)}") + body
    return {
        "80 half-sent bodies": lambda s: hold(s, 80, half, 25),
        "80 half-sent pictures of 14 MB": lambda s: hold(s, 80, picture, 25),
        "300 half-sent headers": lambda s: hold(s, 300, b"GET /info HTTP/1.1\r\nHost: loc", 25),
        "1500 connections that say nothing": lambda s: hold(s, 1500, b"", 25),
        "100 clients that ask for 200 answers and read none": lambda s: hold(s, 100, search * 200, 45),
        "chunks of one byte, 8 at once": lambda s: raw_together(s, 8, piece),
        "5000 headers, 16 at once": lambda s: raw_together(s, 16, lines),
        "a header of 1 MB, 4 at once": lambda s: raw_together(s, 4, large),
        "no HTTP": lambda s: Counter(
            send_raw(s, content)
            for content in (b"\x00" * 100, b"GET / HTTP/9\r\n\r\n", b"\x16\x03\x01", b"GET\r\n\r\n")
        ),
    }


def attacks(count: int, seed: int) -> dict[str, Attack]:
    """Return all attacks: name -> what to do to a server."""
    routes = [(method, path, b"", {}) for path in ROUTES for method in METHODS]
    return {
        **json_attacks(),
        **form_attacks(),
        **connection_attacks(),
        "every route by every method": lambda s: one_after_another(s, routes),
        f"{count} random requests": lambda s: one_after_another(s, list(random_requests(count, seed))),
    }


# Measuring. ---------------------------------------------------------------------------------------


def measure(server: Server, attack: Attack) -> dict[str, object]:
    """Attack a server and return what the attack got, and what others noticed."""
    watch = Watch(server)
    server.forget_peak()
    start, used = time.perf_counter(), server.seconds()
    with watch.watching():
        statuses = attack(server)
        time.sleep(0.5)
    return {
        "statuses": dict(sorted(statuses.items())),
        "health_seconds": round(watch.longest, 3),
        "health": dict(watch.health),
        "search_seconds": round(watch.slowest, 3),
        "searches": dict(watch.searches),
        "peak_mb": round(server.peak()),
        "cpu_seconds": round(server.seconds() - used, 1),
        "seconds": round(time.perf_counter() - start, 1),
    }


def attack_all(folder: Path, chosen: dict[str, Attack]) -> dict[str, dict[str, object]]:
    """Start a server for each attack, and return name -> what `measure` found; print a line for each."""
    make_store(folder)
    print(f"{'attack':52} {'/health':>8} {'search':>8} {'peak MB':>8} {'CPU s':>6}  statuses; others' searches")
    found = {}
    for name, attack in chosen.items():
        with serving(folder) as server:
            server.ask("POST", "/search", b'{"text":"a red picture"}', JSON)
            found[name] = result = measure(server, attack)
            result["alive"] = server.process.poll() is None
        statuses, searches = (
            " ".join(f"{key}:{value}" for key, value in result[of].items()) for of in ("statuses", "searches")
        )
        print(
            f"{name:52} {result['health_seconds']:8.3f} {result['search_seconds']:8.3f} {result['peak_mb']:8} "
            f"{result['cpu_seconds']:6}  {statuses}; {searches}{'' if result['alive'] else '; THE SERVER DIED'}",
            flush=True,
        )
    return found


def main() -> None:
    """Run the attacks that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="number of random requests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="attacks in whose name these words are")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    chosen = {name: attack for name, attack in attacks(options.count, options.seed).items() if options.only in name}
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(attack_all(Path(folder), chosen)))


if __name__ == "__main__":
    main()
