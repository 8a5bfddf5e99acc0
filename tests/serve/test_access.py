"""Who may read and write, and that every refusal of a method names the others."""

import os
import shutil
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from channelhash.serve import access
from channelhash.serve.app import _read_token, open_app
from channelhash.serve.service import Limits
from refusals import check_refusal
from serve.served import (
    ODD_ID,
    TOKEN,
    WRITER,
    app_of,
    on_loopback,
    refused,
    serving,
    small_store,
    store_of_copies,
)

READ_TOKEN = "another-token-to-read"
READER = {"Authorization": f"Bearer {READ_TOKEN}"}
PAGE = (
    "/",
    "/docs",
    "/duplicates.html",
    "/style.css",
    "/script.js",
    "/draw.js",
    "/why.js",
    "/requests.js",
    "/docs.js",
)
PAGE += ("/duplicates.js", "/icon.svg")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, model):
    """A client of a server whose every call needs a token."""
    with serving(tmp_path_factory.mktemp("guarded"), model=model, read_token=READ_TOKEN) as client:
        yield client


def test_every_call_of_the_description_needs_a_token_but_probes(guarded):
    paths = guarded.get("/openapi.json").json()["paths"]
    for path, method in [
        (pattern, method) for pattern, methods in paths.items() for method in methods
    ]:
        says = paths[path][method]
        address = path.replace("{item_id}", "item001")
        for sent in (
            "",
            "Bearer wrong",
            f"Basic {READ_TOKEN}",
            f"Bearer {READ_TOKEN}x",
            READ_TOKEN,
            "Bearer ü",
        ):
            headers = {"Authorization": sent.encode("latin-1")} if sent else {}
            answer = guarded.request(method, address, headers=headers)
            needs = path not in ("/health", "/ready")
            assert (answer.status_code == 401) == needs == bool(says.get("security")), (
                method,
                path,
            )
            if needs:
                assert "token" in answer.json()["error"].lower()
                assert answer.headers["www-authenticate"] == "Bearer"
                assert "401" in says["responses"]


def test_the_token_for_reading_reads_and_that_for_writing_does_both(guarded):
    for headers in (READER, WRITER):
        assert guarded.get("/items/item001", headers=headers).status_code == 200
        assert guarded.post("/search", json={"id": "item001"}, headers=headers).status_code == 200
        assert "channelhash_items" in guarded.get("/metrics", headers=headers).text
    assert guarded.delete("/items/item001", headers=READER).status_code == 401
    assert guarded.get("/items/item001", headers=READER).status_code == 200
    assert all(guarded.get(address).status_code == 200 for address in PAGE)
    body = guarded.post(
        "/items", content=b"x" * 100, headers={"Content-Type": "text/plain"} | READER
    )
    assert body.status_code == 401, "the token is asked for before a body is received"


def test_one_token_for_both_is_refused(tmp_path, model):
    small_store(tmp_path, model).close()
    (tmp_path / "token").write_text(TOKEN)
    store, token, gone = str(tmp_path / "store"), tmp_path / "token", tmp_path / "nothing"
    check_refusal("could write", open_app, store, None, Limits(), token, None, token)
    check_refusal(
        r"read_token_file .*no such file", open_app, store, None, Limits(), None, None, gone
    )


def test_a_store_that_was_removed_takes_no_write_and_the_server_still_ends(tmp_path, model):
    with serving(tmp_path, model) as client:
        shutil.rmtree(tmp_path / "store")
        new = {"items": [{"id": "lost", "text": "a"}]}
        refused(client.post("/items", json=new, headers=WRITER), 500, says="was removed")
        refused(client.delete("/items/item001", headers=WRITER), 500, says="was removed")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("path", "allowed"),
    [("/items", "GET, HEAD, POST"), ("/items/a", "DELETE, GET, HEAD"), ("/style.css", "GET, HEAD")],
)
def test_a_refused_method_is_answered_with_those_that_are_allowed(client, path, allowed):
    for method in ("PUT", "PATCH", "OPTIONS", "TRACE", "SEARCH"):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
        assert client.request(method, "/nothing").status_code == 404


def test_a_generated_client_knows_every_option_and_every_file(client):
    """Generators take the entries of ``anyOf`` or ``oneOf`` for whole requests, and look for
    ``binary``.
    """
    described = client.get("/openapi.json").json()
    for name in ("SearchRequest", "ExplainItem"):
        assert not {"anyOf", "oneOf"} & described["components"]["schemas"][name].keys()
    for name in ("ImageSearch", "ImageExplanation", "NewImage"):
        assert described["components"]["schemas"][name]["properties"]["image"]["format"] == "binary"
    for path in ("/images/{item_id}", "/originals/{item_id}"):
        [content] = described["paths"][path]["get"]["responses"]["200"]["content"].values()
        assert content["schema"]["format"] == "binary"


HERE = {"Origin": "http://127.0.0.1:8080"}


#: Name of the server, who asks, and the answer's status.
ASKERS = (
    ("127.0.0.1", "127.0.0.1", HERE, 200),
    ("127.0.0.1", "127.0.0.1", {}, 403),
    ("127.0.0.1", "127.0.0.1", {"Origin": "null"}, 403),
    ("127.0.0.1", "127.0.0.1", {"Origin": "http://evil.example"}, 403),
    ("127.0.0.1", "127.0.0.1", {"Origin": "https://127.0.0.1:8080"}, 403),
    ("127.0.0.1", "127.0.0.1", {"Origin": "http://127.0.0.1:3000"}, 403),
    ("127.0.0.1", "127.0.0.1", {"Origin": "http://localhost:8080"}, 403),
    ("127.0.0.1", "127.0.0.1", HERE | {"X-Forwarded-For": "192.0.2.1"}, 403),
    ("127.0.0.1", "192.0.2.1", HERE, 403),
    ("photos.local", "127.0.0.1", HERE, 403),
    (None, "127.0.0.1", HERE, 403),
)
REBOUND = {"Origin": "http://evil.example:8080", "Host": "evil.example:8080"}
DECISIONS = {
    "decisions": {"kind": "keep", "ids": ["a.png", "small.png"]},
    "move": {"keeper": "a.png", "ids": ["small.png"]},
    "undo": None,
}


@pytest.fixture
def own(monkeypatch):
    """Whoever asks from this machine runs the server."""
    monkeypatch.setattr(access, "_is_own", lambda host, port: True)


@pytest.mark.parametrize(
    ("host", "client", "headers", "status"), [*ASKERS, ("127.0.0.1", "127.0.0.1", REBOUND, 400)]
)
def test_the_page_on_this_machine_decides_without_a_token_and_nobody_else(
    tmp_path, own, host, client, headers, status
):
    app = app_of(store_of_copies(tmp_path), hosts=host and {"127.0.0.1", host})
    with TestClient(app, "http://127.0.0.1:8080", client=(client, 50_000)) as asking:
        for what, wish in DECISIONS.items():
            answer = asking.post(f"/duplicates/{what}", json=wish, headers=headers)
            done = 201 if what == "decisions" else 200
            assert answer.status_code == (done if status == 200 else status), what
        writes = asking.post("/items", json={"items": []}, headers=headers)
        refused(writes, 400 if status == 400 else 403)
        is_local = (host, client) == ("127.0.0.1", "127.0.0.1") and "X-Forwarded-For" not in headers
        assert (
            asking.get("/info", headers={**headers, "Host": "127.0.0.1"}).json()["decides"]
            == is_local
        )


@pytest.mark.parametrize("kind", ["token", "read_token"])
def test_who_gave_the_server_a_token_is_asked_for_it_when_deciding(kind, tmp_path, own):
    app = app_of(store_of_copies(tmp_path), hosts={"127.0.0.1"}, **{kind: TOKEN})
    with TestClient(app, "http://127.0.0.1:8080", client=("127.0.0.1", 50_000)) as asking:
        for what, wish in DECISIONS.items():
            refused(asking.post(f"/duplicates/{what}", json=wish, headers=HERE), 401, says="needs")
            assert asking.post(f"/duplicates/{what}", json=wish, headers=HERE | WRITER).is_success


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says whose a connection is")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_another_user_of_this_machine_decides_nothing(address, tmp_path, monkeypatch):
    app = app_of(store_of_copies(tmp_path), hosts={address})
    with on_loopback(app, address=address) as here:
        ask = partial(httpx.post, f"{here}duplicates/move", json=DECISIONS["move"])
        headers = {"Origin": here.rstrip("/")}
        assert ask(headers=headers).status_code == 200
        monkeypatch.setattr(os, "getuid", lambda: 12_345)
        monkeypatch.setattr(access, "_SYSTEM", 12_345)
        assert ask(headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("host", "client", "headers", "status"),
    [*ASKERS, ("127.0.0.1", "127.0.0.1", HERE | {"Content-Type": "text/plain"}, 415)],
)
def test_where_files_lie_is_for_the_page_on_this_machine(
    tmp_path, model, own, monkeypatch, host, client, headers, status
):
    manager = tmp_path / ("open" if sys.platform == "darwin" else "xdg-open")
    manager.write_text(f'#!/bin/sh\nprintf "%s" "$*" > "{tmp_path}/shown"')
    manager.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    store = small_store(tmp_path, model)
    path = store.get(["item001"])[0].metadata["image"]
    app = app_of(store, model, hosts=host and {"127.0.0.1", host})
    app.state.service.report.problem = b"/home/me/photos: no pictures"
    with TestClient(app, "http://127.0.0.1:8080", client=(client, 50_000)) as asking:
        ask = partial(asking.post, "/reveal", headers=headers)
        answer = ask(json={"id": "item001", "show": True})
        assert answer.status_code == status
        told = asking.get("/info", headers=headers).json()
        assert ("/home/me" in told["problem"], told["problem"] != "") == (told["local"], True)
        assert (tmp_path / "shown").exists() == (status == 200)
        if status == 200:
            assert answer.json() == {"path": path}
            assert (tmp_path / "shown").read_text().endswith((path, str(Path(path).parent)))
            assert [ask(json={"id": name}).status_code for name in (ODD_ID, "/etc/passwd")] == [
                404,
                404,
            ]
            manager.unlink()
            refused(ask(json={"id": "item001", "show": True}), 422, says="no file manager")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8-sig", "utf-16"])
def test_a_token_is_read_from_a_file_that_windows_wrote(tmp_path, encoding):
    (tmp_path / "token").write_text(f"{TOKEN}\r\n", encoding=encoding, newline="")
    assert _read_token(tmp_path / "token", "token_file") == TOKEN
