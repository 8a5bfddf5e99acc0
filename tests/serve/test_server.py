"""Batches, guards, counters, and a real process: started, asked, stopped."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock, Mock

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient
from uvicorn.server import ServerState

from channelhash.codes import CodeSet
from channelhash.errors import InputError
from channelhash.search import open_store
from channelhash.serve import middleware, routing, server
from channelhash.serve.app import open_app
from channelhash.serve.encoding import Batcher
from channelhash.serve.server import allowed_hosts, listen
from channelhash.serve.service import Limits
from refusals import check_refusal
from serve.served import (
    WRITER,
    app_of,
    model_and_token,
    on_loopback,
    refused,
    serving,
    small_model,
    small_store,
    started,
)
from serve.test_attack_requests import head
from small_runs import assert_refused
from utils.test_watch import until


def test_items_that_come_while_the_model_is_busy_are_encoded_together_and_fail_alone():
    batches, busy, go_on = [], threading.Event(), threading.Event()

    def encode(items):
        batches.append(list(items))
        busy.set()
        assert go_on.wait(30)
        if 4 in items:
            raise InputError("cannot encode 4")
        return np.array([[item, -item] for item in items], np.float32)

    async def ask():
        with ThreadPoolExecutor(1) as thread:
            batcher = Batcher(encode, thread, 3)
            first = asyncio.create_task(batcher(0))
            await asyncio.to_thread(busy.wait, 30)
            others = [asyncio.create_task(batcher(item)) for item in range(1, 7)]
            await asyncio.sleep(0)  # all have asked
            first.cancel()
            others.pop().cancel()
            go_on.set()
            return await asyncio.gather(*others, return_exceptions=True)

    *rows, bad, last = asyncio.run(ask())
    assert [row.tolist() for row in [*rows, last]] == [[item, -item] for item in (1, 2, 3, 5)]
    assert isinstance(bad, InputError)
    assert batches == [[0], [1, 2, 3], [4, 5], [4], [5]]


def test_batches_follow_each_other_while_the_event_loop_has_other_work():
    batches = []

    def encode(items):
        batches.append(list(items))
        return [-item for item in items]

    async def ask():
        with ThreadPoolExecutor(1) as thread:
            batcher = Batcher(encode, thread, 2)
            asked = [asyncio.create_task(batcher(item)) for item in range(5)]
            await asyncio.sleep(0)  # all have asked
            await asyncio.sleep(0)  # the thread begins
            until(lambda: len(batches) == 3)
            answers = await asyncio.gather(*asked)
            return [*answers, await batcher(5)]

    assert asyncio.run(ask()) == [0, -1, -2, -3, -4, -5]
    assert batches == [[0, 1], [2, 3], [4], [5]]


def test_more_requests_than_allowed_at_one_time_are_refused_but_health_is_not(tmp_path, model):
    with serving(tmp_path, model, limits=Limits(concurrency=2)) as client:
        counted, answers = client.app_store.label_counts, []
        # the first request, and the second
        within = iter([["/labels"], ["/info", "/health", "/metrics"]])

        def ask_within():
            answers.append([client.get(path) for path in next(within)])
            return counted()

        client.app_store.label_counts = ask_within
        others = client.get("/labels"), client.get("/info")
    [refused, *healthy], second = answers
    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert "too many requests" in refused.json()["error"]
    assert [answer.status_code for answer in (*healthy, *second, *others)] == [200] * 5


def test_every_answer_forbids_other_hosts_and_guessing(client):
    for address in ("/", "/info", "/nothing", "/images/item001", "/script.js"):
        headers = client.get(address).headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "[::2]", "10.0.3.7:8080"]
)
def test_another_host_name_is_refused_but_to_probes(client, host):
    headers = {"Host": host}
    for path in ("/", "/info", "/health/", "/ready/", "/items"):
        refused(client.get(path, headers=headers), 400, says="Host")
    for method in ("GET", "HEAD"):
        assert client.request(method, "/health", headers=headers).status_code == 200
        assert client.request(method, "/ready", headers=headers).status_code in (200, 503)
    assert client.get("/info", headers={"Host": "127.0.0.1:8080"}).status_code == 200


def test_on_loopback_only_names_of_loopback_are_answered_to():
    allowed = allowed_hosts("127.0.0.1", ["Search.example"])
    assert allowed == {"localhost", "127.0.0.1", "::1", "search.example"}
    assert allowed_hosts("0.0.0.0", []) is None
    assert allowed_hosts("0.0.0.0", ["search.example"]) == {"0.0.0.0", "search.example"}


def test_metrics_count_requests_batches_and_items(client):
    client.post("/search", json={"text": "a red picture"})
    client.get("/images/item001")
    client.get("/nothing")
    text = client.get("/metrics").text
    assert (
        'channelhash_requests_total{method="GET",route="/images/{item_id}",status="200",store=""}'
        in text
    )
    assert re.search(
        r'requests_total\{method="POST",route="/search",status="200",store=""\} \d', text
    )
    assert 'channelhash_requests_total{method="GET",route="other",status="404",store=""}' in text
    assert re.search(r'encode_batch_items_count\{modality="text"\} [1-9]', text)
    assert 'channelhash_items{store=""} 31.0' in text
    assert "channelhash_running_requests 1.0" in text


def test_an_error_inside_is_one_line_and_not_the_end(client, monkeypatch):
    monkeypatch.setattr(client.app_store, "label_counts", lambda: 1 / 0)
    refused(client.get("/labels"), 500, says="an error inside the server; its log has the details")
    monkeypatch.undo()
    assert client.get("/labels").status_code == 200


def test_the_log_has_a_line_for_each_request_where_it_is_asked_for(client, caplog):
    client.get("/health")
    assert not caplog.messages
    with caplog.at_level("INFO", "channelhash.serve"):
        client.head("/items/a%20b%0Ac?where=secret")
        client.get("/info", headers={"Host": "elsewhere"})
    head, get = caplog.messages
    assert re.fullmatch(r"method=HEAD path=/items/a%20b%0Ac status=404 ms=\d+\.\d", head)
    assert re.fullmatch(r"method=GET path=/info status=400 ms=\d+\.\d", get)


HALF = head("POST", "/search", "Content-Type: application/json", "Content-Length: 99") + b"{"


def place_of(address: str) -> tuple[str, int]:
    host, port = address.split("/")[2].split(":")
    return host, int(port)


@pytest.fixture
def address(client):
    with on_loopback(client.app, "off") as address:
        yield place_of(address)


def first_answer(address, content: bytes) -> bytes:
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(content)
        return connection.recv(1000)


def test_half_sent_headers_and_bodies_and_silent_connections_end(client, address, monkeypatch):
    monkeypatch.setattr(server, "_HEADER_SECONDS", 0.1)
    for sent in (b"GET /info HTTP/1.1\r\nHost: loc", b""):
        assert first_answer(address, sent) == b""
    service = client.app.state.service
    monkeypatch.setattr(service, "limits", replace(service.limits, question_seconds=0.1))
    assert b" 408 " in first_answer(address, HALF)


@pytest.mark.parametrize("content", [
    head("GET", "/info", "X: " + "y" * 300_000),
    head("GET", "/info", *[f"a{i}: b" for i in range(5000)]),
    b"\x16\x03\x01 no HTTP\r\n\r\n",
])  # fmt: skip
def test_what_is_no_request_is_refused(address, content):
    assert first_answer(address, content).split(b" ")[1] == b"400"


FORM, BLOB = "Content-Type: multipart/form-data; boundary=x", "Content-Type: image/jpeg"
#: What is refused while its body arrives.
REFUSALS = {
    "no token": (401, "POST", "/items/image", FORM),
    "no token to delete": (401, "DELETE", "/items/a", BLOB),
    "too large": (413, "POST", "/search/image", FORM),
    "another type": (415, "POST", "/search/image", BLOB),
    "compressed": (415, "POST", "/search/image", FORM + "\r\nContent-Encoding: gzip"),
    "no such address": (404, "PUT", "/upload", BLOB),
    "another method": (405, "PUT", "/search/image", BLOB),
    "another host": (400, "POST", "/search/image", "X-Host: other.example"),
    "a picture that is asked for": (404, "GET", "/images/lost", BLOB),
}


def send_all(address, request: bytes, body: bytes) -> bytes:
    """What a client reads that first sends all."""
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(request)
        connection.sendall(body)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


@pytest.mark.parametrize("framing", ["1.0", "close", "keep-alive", "chunked", "expected"])
@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_arrives_while_the_body_is_still_sent(address, name, framing):
    status, method, path, *headers = REFUSALS[name]
    size = 17_000_000
    body = bytes(size)
    if framing in ("chunked", "expected"):
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (size, body)
        headers.append("Transfer-Encoding: chunked")
    else:
        headers.append(f"Content-Length: {size}")
    if framing == "expected" and status == 413:  # the others are answered before the body comes
        headers.append("Expect: 100-continue")
    headers.append(f"Connection: {'keep-alive' if framing == 'keep-alive' else 'close'}")
    request = head(method, path, *headers)
    if framing == "1.0":
        request = request.replace(b" HTTP/1.1", b" HTTP/1.0")
    if name == "another host":
        request = re.sub(rb"\r\nHost: [^\r]*", b"\r\nHost: other.example", request)
    if framing == "keep-alive":
        body += head("GET", "/health", "Connection: close")
    answer = send_all(address, request, body).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert int(answer.split(b" ")[1]) == status
    assert answer.endswith(b"}")
    assert answer.count(b"HTTP/1.1 200 ") == (framing == "keep-alive")  # the next is answered, too


def test_who_waits_for_leave_to_send_is_refused_at_once(address):
    request = head(
        "POST", "/items", "Expect: 100-continue", "Content-Length: 9", "Connection: close"
    )
    start = time.monotonic()
    answer = send_all(address, request, b"")
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(("silence", "seconds"), [(0.1, 60), (60, 0.2)])
def test_a_refused_body_is_read_for_a_short_time(tmp_path, monkeypatch, silence, seconds):
    monkeypatch.setattr(middleware, "_SILENCE", silence)
    request = head("POST", "/items", "Content-Length: 99999999", "Connection: close")
    limits = Limits(upload_seconds=seconds)
    with (
        serving(tmp_path, None, limits=limits) as client,
        on_loopback(client.app, "off") as address,
        socket.create_connection(place_of(address), timeout=60) as connection,
    ):
        connection.sendall(request)
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")
        connection.settimeout(0.02 if seconds < silence else 60)
        start, ended = time.monotonic(), False
        with suppress(ConnectionError):
            while not ended:  # a byte at a time, or one and then silence
                connection.sendall(b"a")
                with suppress(TimeoutError):
                    ended = connection.recv(1000) == b""
        assert time.monotonic() - start < 10


def test_no_more_than_twice_the_largest_upload_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(middleware, "_READ_ON", 0)
    limits = Limits(upload_bytes=1_000_000)
    with (
        serving(tmp_path, None, limits=limits) as client,
        on_loopback(client.app, "off") as address,
    ):
        request = head("POST", "/items", "Content-Length: 999999999", "Connection: close")
        with socket.create_connection(place_of(address), timeout=60) as connection:
            connection.sendall(request)
            sent = 0
            with suppress(ConnectionError):
                while sent < 500_000_000:
                    sent += connection.send(bytes(1_000_000))
        assert 2_000_000 <= sent < 50_000_000


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_reads_nothing_is_left(client, monkeypatch, reads):
    monkeypatch.setattr(server, "_READING_SECONDS", 0.05)

    async def write():
        config = server._server_config(client.app)
        config.load()
        transport = MagicMock(get_extra_info=lambda *_: None)
        connection = server._Connection(config, ServerState(), {}, asyncio.get_running_loop())
        connection.connection_made(transport)
        connection.cycle = MagicMock(response_complete=False)
        connection._stop_timer()  # as a request does that has arrived
        connection.pause_writing()
        if reads:
            connection.resume_writing()
        await asyncio.sleep(0.1)
        return transport.abort.called

    assert asyncio.run(write()) != reads


def test_half_sent_bodies_take_no_place(tmp_path, model):
    with (
        serving(tmp_path, model, limits=Limits(concurrency=1)) as client,
        on_loopback(client.app, "off") as address,
    ):
        connections = [socket.create_connection(place_of(address)) for _ in range(80)]
        for connection in connections:
            connection.sendall(HALF)
        assert ask(address, "search", {"id": "item001", "k": 1})["results"]
        for connection in connections:
            connection.close()


def test_uploads_beyond_their_places_are_refused(tmp_path, model, monkeypatch):
    monkeypatch.setattr(routing, "_UPLOAD_WAIT", 0.01)
    with serving(tmp_path, model) as client:
        client.app.state.service.uploads.bodies = asyncio.Semaphore(0)
        answer = client.post("/search/image", files={"image": bytes(100_000)})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "10"
        assert client.post("/search/image", files={"image": bytes(60_000)}).status_code == 422


def add_elsewhere(folder: Path, name: str) -> None:
    """Add an item to a store in a process of its own."""
    program = f"""
import numpy as np, channelhash as ch
with ch.open_store({str(folder)!r}, n_bits=8) as store:
    store.add([{name!r}], np.zeros((1, 1), np.uint8))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def check_order(process) -> str:
    """Return what a process has written to its log that ends in good order."""
    out, error = process.communicate(timeout=60)
    assert (process.returncode, out.strip()) == (143, "Stopped."), error
    assert "Traceback" not in error
    return error


def test_a_process_answers_writes_and_stops_in_good_order(tmp_path, model):
    small_store(tmp_path, model).close()
    options = model_and_token(tmp_path, model)
    with started(tmp_path / "store", *options, "--log-level", "info") as (process, address):
        new = {"id": "late", "text": "a red picture"}
        assert ask(address, "items", {"items": [new]}) == {"items": 1}
        question = b'{"id": "item001"}'
        # a request under way is answered
        with socket.create_connection(place_of(address), timeout=60) as connection:
            headers = ("Content-Type: application/json", f"Content-Length: {len(question)}")
            connection.sendall(head("POST", "/search", *headers) + question[:5])
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            connection.sendall(question[5:])
            assert connection.recv(12) == b"HTTP/1.1 200"
        written = check_order(process)
    lines = re.findall(
        r"^\d{4}-\S+ \S+ INFO method=(\w+) path=(\S+) status=20\d ms=", written, re.MULTILINE
    )
    assert lines == [("POST", "/items"), ("POST", "/search")]
    assert "late" in open_store(tmp_path / "store")


def test_a_file_of_codes_is_served_with_its_model_and_takes_no_token(tmp_path, model):
    codes = {"text": model.encode_texts(["red", "blue"])}
    path = tmp_path / "codes.parquet"
    CodeSet(["a", "b"], codes, None, 12, model=model.fingerprint()).save(path)
    *_, token = model_and_token(tmp_path, model)
    with TestClient(open_app({"": str(path)}, tmp_path / "model", Limits(), None, None)) as client:
        assert client.get("/info").json()["codes"] == {"text": 2}
        (result,) = client.post("/search", json={"text": "red", "k": 1}).json()["results"]
        assert result["id"] == "a"
    with TestClient(app_of(open_store(path), model, token=token.read_text())) as client:
        refused(client.delete("/items/a", headers=WRITER), 403, says="this store can only be read")
    check_refusal("can only be read", open_app, {"": str(path)}, None, Limits(), token, None)


def test_what_cannot_be_served_is_refused_in_one_line(tmp_path, model, capsys):
    assert_refused(capsys, "serve", tmp_path / "nothing", says="no such folder")
    small_store(tmp_path, model).close()
    small_model(tmp_path, seed=1).save_pretrained(tmp_path / "other")
    words = ["serve", tmp_path / "store", "--port", 0]
    other = tmp_path / "other"
    assert_refused(capsys, *words, "--model", other, says="two models cannot be compared")
    assert_refused(capsys, *words, "--token-file", tmp_path / "no", says="no such file")
    assert_refused(capsys, *words, "--host", "192.0.2.1", says="cannot listen")
    with listen("127.0.0.1", 0) as taken:
        words[-1] = taken.getsockname()[1]
        assert_refused(capsys, *words, says="Address already in use")


def test_what_first_requests_would_wait_for_is_made_ready_in_the_background(tmp_path, model):
    asked = threading.Event()
    fail = Mock(side_effect=InputError("a line in the log"))
    app = app_of(small_store(tmp_path, model))
    app.state.service.warm_up.steps = {"one": lambda: asked.wait(30), "two": fail, "three": list}
    with TestClient(app) as client:
        assert client.get("/info").json()["loading"] == ["one", "two", "three"]
        early = client.get("/ready")
        refused(early, 503, says="still loading one, two, three;")
        assert early.headers["retry-after"] == "1"
        assert client.head("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        asked.set()
        app.state.service.warm_up.join()
        assert client.get("/info").json()["loading"] == []
        assert client.get("/ready").json() == client.get("/health").json()
        ready = client.head("/ready")
        assert ready.status_code == 200
        assert ready.content == b""


def ask(address: str, path: str, body: object = None) -> dict:
    """Answer of a server over a connection of its own."""
    method = "POST" if body else "GET"
    answer = httpx.request(method, address + path, json=body, headers=WRITER, timeout=60)
    return answer.raise_for_status().json()


def children(pid: int) -> list[int]:
    """Processes that a process has started to work for it, Python's own helper left out."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        found = [int(child) for child in file.read().split()]
    return [
        child for child in found if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def searches_counted(address: str) -> float:
    """Number of searches that were answered, by the server's counters."""
    metrics = httpx.get(f"{address}metrics", timeout=60).text
    searches = r'requests_total\{method="POST",route="/search",status="200",store=""\} (\S+)'
    return float(re.search(searches, metrics)[1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_workers_answer_alike_see_all_writes_and_are_replaced(tmp_path, model):
    small_store(tmp_path, model).close()
    with open_store(tmp_path / "store") as store:
        store.make_snapshot()
    options = (*model_and_token(tmp_path, model), "--workers", 2, "--log-level", "info")
    with started(tmp_path / "store", *options) as (process, address):
        workers = children(process.pid)
        assert len(workers) == 2
        question = {"text": "a red picture", "k": 40, "collapse": False}
        before = [ask(address, "search", question)["results"] for _ in range(4)]
        assert before[1:] == before[:1] * 3
        n_items = len(before[0])
        maps = [Path(f"/proc/{pid}/maps") for pid in workers]
        # codes are in the files
        until(lambda: all("snapshot-" in each.read_text(encoding="utf-8") for each in maps))
        ask(address, "items", {"items": [{"id": "late", "text": "a red picture"}]})
        more = [n_items + 1] * 4  # the workers are asked in turn
        until(lambda: [len(ask(address, "search", question)["results"]) for _ in range(4)] == more)
        # each is counted a moment after its answer was sent
        until(lambda: searches_counted(address) >= 8)
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: len(new := children(process.pid)) == 2 and workers[0] not in new)
        for _ in range(20):  # the one that is there, then both
            assert ask(address, "health") == {"status": "ok", "items": n_items + 1}
        assert searches_counted(address) >= 8  # those of the killed one, too
        metrics = httpx.get(f"{address}metrics", timeout=60).text
        assert f'channelhash_items{{store=""}} {n_items + 1}.0' in metrics
        assert "channelhash_running_requests 1.0" in metrics
        process.send_signal(signal.SIGTERM)
        written = check_order(process)
        assert "another one takes its place" in written
        assert " INFO method=POST path=/search status=200" in written
    assert "late" in open_store(tmp_path / "store")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_workers_end_when_whoever_started_them_is_killed(tmp_path, model):
    small_store(tmp_path, model).close()
    with started(tmp_path / "store", "--workers", 2) as (process, _):
        workers = children(process.pid)
    lines = [Path(f"/proc/{pid}/cmdline") for pid in workers]
    until(lambda: not any(line.exists() and line.read_bytes() for line in lines))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1])
@pytest.mark.parametrize("to_all", [True, False])
def test_workers_end_with_a_signal_as_one_process_does(tmp_path, number, to_all):
    add_elsewhere(tmp_path / "store", "a")
    options = {"start_new_session": True}
    with started(tmp_path / "store", "--workers", 2, **options) as (process, address):
        there = children(process.pid)
        assert len(there) == 2
        (os.killpg if to_all else os.kill)(process.pid, number)
        assert process.wait(30) == -number
    lines = [Path(f"/proc/{pid}/cmdline") for pid in there]
    until(lambda: not any(line.exists() and line.read_bytes() for line in lines))
    with socket.create_server(place_of(address)):  # the port is free again
        pass


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_nohup_starts_outlives_its_terminal(tmp_path, workers):
    add_elsewhere(tmp_path / "store", "a")
    options = {"start_new_session": True, "preexec_fn": ignore_hangup}
    with started(tmp_path / "store", "--workers", workers, **options) as (process, address):
        os.killpg(process.pid, signal.SIGHUP)
        time.sleep(1.5)  # the supervisor looks at its signals every 0.5 s
        assert ask(address, "health") == {"status": "ok", "items": 1}
        process.send_signal(signal.SIGTERM)
        check_order(process)


def ignore_hangup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.mark.slow
def test_what_workers_cannot_serve_is_refused_in_one_line(tmp_path, model):
    small_store(tmp_path, model).close()
    small_model(tmp_path, seed=1).save_pretrained(tmp_path / "other")
    cases = [("nothing", (), "no such folder")]
    cases.append(("store", ("--model", tmp_path / "other"), "two models cannot"))
    for store, options, line in cases:
        words = ["serve", tmp_path / store, "--port", 0, "--workers", 2, *options]
        command = [sys.executable, "-m", "channelhash.cli.main", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert line in done.stderr
