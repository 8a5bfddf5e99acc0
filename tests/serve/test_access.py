"""Who may read and write, where writes are noted, and that every refusal of a method names the others."""

import itertools
import json
import re
import shutil

import jsonschema
import pytest
from fastapi.testclient import TestClient

from channelhash.errors import InputError, JobError
from channelhash.serve import Limits, create_app
from channelhash.serve.access import AuditLog, Tokens
from channelhash.serve.app import open_app
from serve.served import METHODS, ROUTES, TOKEN, WRITER, serving, small_store

READ_TOKEN = "another-token-to-read"
READER = {"Authorization": f"Bearer {READ_TOKEN}"}
PAGE = ("/", "/docs", "/duplicates.html", "/style.css", "/script.js", "/draw.js", "/why.js", "/requests.js", "/docs.js")
PAGE += ("/duplicates.js", "/icon.svg")


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "writes.jsonl"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory, model, log):
    """A client of a server whose every call needs a token, and which notes writes."""
    folder = tmp_path_factory.mktemp("guarded")
    store = small_store(folder, model)
    app = create_app(store, model, Limits(), Tokens(TOKEN, READ_TOKEN), None, folder / "pictures", AuditLog(log))
    with TestClient(app, raise_server_exceptions=False) as client:
        client.app_store = store
        yield client


def described(client) -> dict[tuple[str, str], dict]:
    """(method, pattern) -> what the API's description says of it."""
    paths = client.get("/openapi.json").json()["paths"]
    return {(method.upper(), path): says for path, methods in paths.items() for method, says in methods.items()}


def test_every_call_of_the_description_needs_a_token_but_health(guarded):
    for (method, path), says in described(guarded).items():
        address = path.replace("{item_id}", "item001")
        for sent in ("", "Bearer wrong", f"Basic {READ_TOKEN}", f"Bearer {READ_TOKEN}x", READ_TOKEN, "Bearer ü"):
            headers = {"Authorization": sent.encode("latin-1")} if sent else {}
            answer = guarded.request(method, address, headers=headers)
            assert (answer.status_code == 401) == (path != "/health") == bool(says.get("security")), (method, path)
            if path != "/health":
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


def test_a_token_is_asked_for_before_a_body_is_received(guarded):
    answer = guarded.post("/items", content=b"x" * 100, headers={"Content-Type": "text/plain"} | READER)
    assert answer.status_code == 401


def test_one_token_for_both_is_refused(tmp_path, model):
    small_store(tmp_path, model).close()
    (tmp_path / "token").write_text(TOKEN)
    with pytest.raises(InputError, match="could write"):
        open_app(str(tmp_path / "store"), None, Limits(), tmp_path / "token", None, tmp_path / "token")
    with pytest.raises(InputError, match=r"--read-token-file .*no such file"):
        open_app(str(tmp_path / "store"), None, Limits(), None, None, tmp_path / "nothing")


def noted(log) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_every_write_is_noted_before_and_after(guarded, log):
    log.write_text("")
    new = {"items": [{"id": "noted\n1", "text": "a"}, {"id": "2", "text": "b"}]}
    assert guarded.post("/items", json=new, headers=WRITER).status_code == 201
    assert guarded.post("/items", json=new, headers=WRITER).status_code == 422  # there already
    assert guarded.delete("/items/2", headers=WRITER).status_code == 200
    assert guarded.delete("/items/2", headers=READER).status_code == 401
    assert guarded.delete("/items/nobody", headers=WRITER).status_code == 404
    lines = noted(log)
    assert [(line["event"], line.get("method"), line.get("ids")) for line in lines[::2]] == [
        ("begins", "POST", ["noted\n1", "2"]),
        ("begins", "POST", ["noted\n1", "2"]),
        ("begins", "DELETE", ["2"]),
    ]
    assert [line["result"].partition(":")[0] for line in lines[1::2]] == ["done", "refused", "done"]
    assert [line["write"] for line in lines[::2]] == [line["write"] for line in lines[1::2]]
    assert (lines[0]["route"], lines[0]["items"], lines[0]["address"]) == ("/items", 2, "testclient")
    assert lines[0]["token"].startswith("sha256:")
    assert TOKEN not in log.read_text()


def test_a_log_that_was_renamed_is_begun_again(guarded, log):
    log.rename(log.with_suffix(".1"))
    guarded.post("/items", json={"items": [{"id": "rotated", "text": "a"}]}, headers=WRITER)
    assert len(noted(log)) == 2


def test_a_write_that_cannot_be_noted_is_not_done(guarded, log, monkeypatch):
    monkeypatch.setattr(AuditLog, "_append", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    answer = guarded.post("/items", json={"items": [{"id": "unnoted", "text": "a"}]}, headers=WRITER)
    assert (answer.status_code, "nothing was changed" in answer.json()["error"]) == (503, True)
    assert guarded.get("/items/unnoted", headers=READER).status_code == 404
    monkeypatch.undo()
    with pytest.raises(InputError, match="--audit-log"):
        AuditLog(log.parent)


def test_a_write_that_the_store_cannot_do_is_a_line_and_noted(guarded, log, monkeypatch):
    log.write_text("")

    def fail(*_):
        raise JobError("the store is gone")

    monkeypatch.setattr(guarded.app_store, "add", fail)
    answer = guarded.post("/items", json={"items": [{"id": "x", "text": "a"}]}, headers=WRITER)
    assert (answer.status_code, answer.json()) == (500, {"error": "the store is gone"})
    assert noted(log)[1]["result"] == "failed: JobError"


def test_a_store_that_was_removed_takes_no_write_and_the_server_still_ends(tmp_path, model):
    with serving(tmp_path, model=model) as client:
        shutil.rmtree(tmp_path / "store")
        new = {"items": [{"id": "lost", "text": "a"}]}
        for answer in (
            client.post("/items", json=new, headers=WRITER),
            client.delete("/items/item001", headers=WRITER),
        ):
            assert (answer.status_code, "was removed" in answer.json()["error"]) == (500, True)
    assert not (tmp_path / "store").exists()


def pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", r"[\\s\\S]+", re.escape(path)))


@pytest.mark.parametrize("path", [*ROUTES, *PAGE])
def test_every_method_is_allowed_or_refused_with_those_that_are(client, path):
    allowed = {method for method, route in described(client) if pattern(route).fullmatch(path)}
    allowed |= {"GET"} if path in PAGE or path == "/openapi.json" else set()
    allowed |= {"HEAD"} if "GET" in allowed else set()
    for method in METHODS:
        answer = client.request(method, path)
        if method == "HEAD":
            assert not answer.content
        if method in allowed:
            missing = "no item" in client.get(path).text
            assert answer.status_code not in (404, 405) or missing, (method, path)
        elif allowed:
            assert answer.status_code == 405, (method, path)
            assert set(answer.headers["allow"].split(", ")) == allowed, (method, path)
        else:
            assert answer.status_code == 404, (method, path)


def test_the_description_says_that_a_query_is_needed(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    for name, two in (("SearchRequest", [{"text", "id"}, {"text", "code"}]), ("ExplainItem", [])):
        for values in itertools.product(({}, None, "ab"), repeat=3):
            request = {key: value for key, value in zip(("text", "id", "code"), values, strict=True) if value != {}}
            queries = {key for key, value in request.items() if value is not None}
            schema = {**schemas[name], "components": {"schemas": schemas}}
            assert jsonschema.Draft202012Validator(schema).is_valid(request) == (len(queries) == 1 or queries in two), (
                request
            )


def test_a_generated_client_knows_every_option_and_every_file(client):
    """Generators take the entries of ``anyOf`` or ``oneOf`` for whole requests, and look for ``binary``."""
    described = client.get("/openapi.json").json()
    for name in ("SearchRequest", "ExplainItem"):
        assert not {"anyOf", "oneOf"} & described["components"]["schemas"][name].keys()
    for name in ("ImageSearch", "ImageExplanation", "NewImage"):
        assert described["components"]["schemas"][name]["properties"]["image"]["format"] == "binary"
    for path in ("/images/{item_id}", "/originals/{item_id}"):
        [content] = described["paths"][path]["get"]["responses"]["200"]["content"].values()
        assert content["schema"]["format"] == "binary"
