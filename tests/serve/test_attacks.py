"""A small draw of each attack of ``tools/attacks/http_requests.py``: bodies, forms, pictures, connections."""

import asyncio
import http.client
import json
import socket
import sys
import threading
import time
import tracemalloc
from contextlib import contextmanager
from types import SimpleNamespace
from typing import ClassVar

import pytest
import uvicorn
from fastapi import HTTPException

from channelhash.serve import Limits, connections, create_app, json_bodies, routing
from channelhash.serve.json_bodies import Shape, check_shape, parse_json
from channelhash.serve.places import Room
from channelhash.serve.receiving import PACE, receive_body
from channelhash.serve.schemas import NewItems, SearchRequest
from channelhash.serve.server import listen
from pages import ROOT
from serve.served import WRITER, serving, small_store

sys.path.insert(0, str(ROOT / "tools" / "attacks"))

import http_requests as attacks

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def cautious(tmp_path_factory, model):
    with serving(tmp_path_factory.mktemp("cautious"), Limits(side=1000, pixels=400_000), model=model) as client:
        yield client


def refused(answer, statuses: tuple[int, ...], says: str = "") -> None:
    assert answer.status_code in statuses, answer.text
    assert list(answer.json()) == ["error"]
    assert says in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


def reading_noted(monkeypatch) -> list[str]:
    """The texts of which the server has made objects from now on."""
    texts = []

    def loads(text):
        texts.append(text)
        return json.loads(text)

    monkeypatch.setattr(json_bodies, "json", SimpleNamespace(loads=loads, JSONDecodeError=json.JSONDecodeError))
    return texts


# JSON. --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in attacks.json_bodies(10) if name != "blanks"])
def test_json_of_any_shape_is_refused_before_anything_is_made_of_it(client, monkeypatch, name):
    parsed = reading_noted(monkeypatch)
    body = attacks.json_bodies(200_000)[name]
    for path in ("/search", "/explain"):
        refused(client.post(path, content=body, headers=JSON), (422,))
    assert bool(parsed) == (
        name in ("a giant string", "escapes", "a string without end", "a giant integer", "a giant float")
    )
    refused(client.post("/search", content=attacks.json_bodies(300_000)[name], headers=JSON), (413,), "0.256 MB")


def test_a_question_of_many_blanks_is_one(client):
    assert client.post("/search", content=b'{"id":"item001"' + b" " * 200_000 + b"}", headers=JSON).status_code == 200


def test_more_items_than_allowed_are_not_even_made(client, monkeypatch):
    parsed = reading_noted(monkeypatch)
    refused(client.post("/items", content=attacks.empty_items(50_000), headers=JSON | WRITER), (422,), "entries")
    assert not parsed


@pytest.mark.parametrize(
    ("shape", "cheap"),
    [(Shape(3, 1000, 10**9), True), (Shape(3, 10**9, 1000), True), (Shape(3, 10**9, 10**9), False)],
)
def test_what_is_refused_by_its_shape_costs_no_memory(shape, cheap):
    body = attacks.empty_items(20_000)
    tracemalloc.start()
    try:
        with pytest.raises(HTTPException):
            parse_json(body, NewItems, shape)
        assert (tracemalloc.get_traced_memory()[1] < 3 * len(body)) == cheap  # the text itself, and little beside it
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("[1, 2, 3]", True),
        ('{"a": 1, "b": 2, "c": 3}', True),
        ("[[[1]]]", True),
        ('["[[[[", ",,,,,"]', False),
        ('["\\"[[[[", "\\\\"]', False),
        ("]]]]", False),  # no JSON, which is not asked here
        ('"a"' * 30, True),
        ("[][][][][][][][][][][]", True),
    ],
)
def test_the_shape_is_that_of_the_text(text, refused):
    if refused:
        with pytest.raises(HTTPException):
            check_shape(text, Shape(depth=2, entries=2, marks=20))
    else:
        check_shape(text, Shape(depth=2, entries=2, marks=20))


def test_large_bodies_are_read_outside_the_event_loop_and_the_first_error_ends_it(client, monkeypatch):
    readers, loops = [], []
    parse, receive = routing.parse_json, routing.receive_body

    def parse_noting(*arguments):
        readers.append(threading.get_ident())
        return parse(*arguments)

    async def receive_noting(*arguments):
        loops.append(threading.get_ident())
        return await receive(*arguments)

    monkeypatch.setattr(routing, "parse_json", parse_noting)
    monkeypatch.setattr(routing, "receive_body", receive_noting)
    assert client.post("/search", json={"id": "item001"}).status_code == 200
    refused(client.post("/items", json={"items": [{"x": 1}] * 900}, headers=WRITER), (422,), "items.0.")
    assert len(readers) == len(loops) == 2
    assert readers[0] == loops[0]  # a small one is read at once
    assert readers[1] != loops[1]


def test_what_was_read_is_not_read_again(client, monkeypatch):
    validated = []
    validate = SearchRequest.model_validate.__func__
    monkeypatch.setattr(
        SearchRequest, "model_validate", classmethod(lambda cls, value: validated.append(value) or validate(cls, value))
    )
    assert client.post("/search", json={"id": "item001", "k": 2}).status_code == 200
    assert validated == [{"id": "item001", "k": 2}]


ODD_STATUSES = {"no type": 415, "text": 415, "a form": 415, "gzip": 415, "bad UTF-8": 400, "a key twice": 200}


@pytest.mark.parametrize("name", attacks.ODD_BODIES)
def test_odd_types_encodings_and_numbers_are_refused_by_name(client, name):
    body, headers = attacks.ODD_BODIES[name]
    answer = client.post("/search", content=body, headers=headers)
    if name == "a key twice":  # the last one counts, as everywhere
        assert answer.status_code == 200
    elif name in ("UTF-16", "UTF-32"):
        refused(answer, (400, 422))
    else:
        refused(answer, (ODD_STATUSES.get(name, 422),))


# Forms and pictures. ------------------------------------------------------------------------------


def test_forms_of_many_parts_are_refused_and_read_outside_the_event_loop(client, monkeypatch):
    field = 'Content-Disposition: form-data; name="a%d"'
    many = [(field % i, b"x") for i in range(100)]
    files = [((field + '; filename="a"') % i, b"x") for i in range(5)]
    for parts in (many, files, [("X: " + "y" * 300_000, b"")]):
        body, headers = attacks.form(parts)
        refused(client.post("/search/image", content=body, headers=headers), (400,))
    threads = []
    run = asyncio.run
    monkeypatch.setattr(
        routing.asyncio, "run", lambda work: threads.append(threading.current_thread().name) or run(work)
    )
    body, headers = attacks.upload(b"no picture")
    refused(client.post("/search/image", content=body, headers=headers), (422,), "not a picture")
    assert len(threads) == 1
    assert "worker" in threads[0].lower()


@pytest.mark.parametrize(
    ("size", "says"), [((1, 5000), "a side may have 1000"), ((5000, 1), "side"), ((700, 600), "million")]
)
def test_a_picture_with_a_long_side_is_refused_by_its_header(cautious, size, says):
    body, headers = attacks.upload(attacks.png(*size)[:60])  # the header and no more
    refused(cautious.post("/search/image", content=body, headers=headers), (413,), says)


def test_pictures_share_the_room_for_their_pixels():
    async def use():
        room, inside, most = Room(10), 0, 0

        async def hold(size):
            nonlocal inside, most
            async with room.take(size):
                inside += min(size, 10)
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= min(size, 10)

        await asyncio.gather(*[hold(size) for size in (4, 4, 4, 99, 1, 10)])
        return most

    assert asyncio.run(use()) == 10


# Bodies that come slowly, and connections. ------------------------------------------------------------


class Pieces:
    """A request whose body comes in pieces, and then no more."""

    headers: ClassVar[dict[str, str]] = {}

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = list(pieces)

    async def receive(self) -> dict:
        if not self.pieces:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": self.pieces.pop(0), "more_body": True}


def test_a_body_that_stops_is_refused_and_a_long_one_needs_a_reservation():
    reserved = []

    async def reserve():
        reserved.append(True)

    for pieces, count in (((b"half",), 0), ((bytes(PACE),) * 3, 1)):
        with pytest.raises(HTTPException, match="408: the body comes too slowly"):
            asyncio.run(receive_body(Pieces(*pieces), 10 * PACE, 0.05, reserve))
        assert len(reserved) == count
    with pytest.raises(HTTPException, match="413"):
        asyncio.run(receive_body(Pieces(bytes(20)), 10, 5, reserve))


def test_half_sent_bodies_take_no_place(tmp_path, model):
    store = small_store(tmp_path, model)
    app = create_app(store, model, Limits(concurrency=1))
    body = b'{"id": "item001"}'

    async def ask(receive):
        sent = []
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/search", "raw_path": b"/search", "query_string": b""}
        scope |= {"headers": headers, "client": ("127.0.0.1", 1), "scheme": "http", "server": ("localhost", 1)}

        async def send(message):
            sent.append(message)

        await app(scope | {"root_path": "", "http_version": "1.1", "asgi": {"version": "3.0"}}, receive, send)
        return sent[0]["status"]

    async def whole():
        return {"type": "http.request", "body": body, "more_body": False}

    async def ask_all():
        slow = [asyncio.create_task(ask(Pieces(body[:5]).receive)) for _ in range(80)]
        await asyncio.sleep(0)
        statuses = [await ask(whole) for _ in range(3)]
        for task in slow:
            task.cancel()
        return statuses

    assert asyncio.run(ask_all()) == [200] * 3
    store.close()


@contextmanager
def connected(app):
    """The application behind a real socket as `serve` has it; the socket's address."""
    with listen("127.0.0.1", 0) as listening:
        options = {"http": connections.Connection, "ws": "none", "lifespan": "off", "log_level": "critical"}
        server = uvicorn.Server(uvicorn.Config(app, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def address(client):
    with connected(client.app) as address:
        yield address


def first_answer(address, content: bytes) -> tuple[int, dict]:
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(content)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        return answer.status, json.loads(answer.read())


def test_a_header_that_stops_is_refused(address, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.1)
    status, answer = first_answer(address, b"GET /info HTTP/1.1\r\nHost: loc")
    assert (status, "no whole request" in answer["error"]) == (408, True)


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (attacks.head("GET", "/info", "X: " + "y" * 300_000), 431, "header is larger"),
        (attacks.head("GET", "/info", *[f"a{i}: b" for i in range(5000)]), 431, "header is larger"),
        (b"\x16\x03\x01 no HTTP\r\n\r\n", 400, "no HTTP"),
        (
            attacks.head("POST", "/search", "Content-Type: application/json", "Transfer-Encoding: chunked")
            + b"1\r\n \r\n" * 2000,
            400,
            "tiny chunks",
        ),
    ],
)
def test_what_is_no_request_is_refused_as_json(address, content, status, says):
    found, answer = first_answer(address, content)
    assert (found, says in answer["error"]) == (status, True), answer


def test_beyond_the_number_of_connections_the_one_that_waits_longest_goes(address, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    silent = [socket.create_connection(address, timeout=60) for _ in range(6)]
    status, _ = first_answer(address, attacks.head("GET", "/health", "Connection: close"))
    assert status == 200
    assert silent[0].recv(1) == b"" if not _reset(silent[0]) else True
    silent[-1].sendall(attacks.head("GET", "/health"))
    assert silent[-1].recv(12) == b"HTTP/1.1 200"
    for connection in silent:
        connection.close()


def _reset(connection: socket.socket) -> bool:
    """Whether the other side has ended a connection at once."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except ConnectionResetError:
        return True
    return False


# A real server. -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_server_answers_others_during_every_attack(tmp_path):
    start = time.monotonic()
    found = attacks.attack_all(tmp_path, attacks.attacks(count=2000, seed=1))
    print(f"{len(found)} attacks in {time.monotonic() - start:.0f} s")
    for name, result in found.items():
        assert result["alive"], name
        assert set(result["health"]) == {"200"}, name
        assert result["peak_mb"] < 2500, name
        assert not {"500"} & set(result["statuses"]), name
        assert not {"500"} & set(result["searches"]), name
