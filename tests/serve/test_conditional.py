"""HEAD wherever GET is answered, and no body for a client that has it already."""

import http.client
from urllib.parse import quote

import pytest

from channelhash.serve import create_app
from serve.served import ODD_ID, on_loopback, small_store

FILES = ["/images/item001", "/images/item001?size=900", "/originals/item001", "/", "/style.css", "/icon.svg"]
EVERY = [*FILES, "/health", "/info", "/items", "/items/item001", "/items/nobody", "/labels", "/metrics", "/docs"]


@pytest.mark.parametrize("path", [*EVERY, f"/items/{quote(ODD_ID, safe='')}", "/nothing", "/images/nobody"])
def test_head_is_get_without_its_body(client, path):
    got, asked = client.get(path), client.head(path)
    assert (asked.status_code, asked.content) == (got.status_code, b"")
    if path in ("/info", "/metrics"):
        del asked.headers["content-length"], got.headers["content-length"]
    assert dict(asked.headers) == dict(got.headers)


def test_head_is_counted_with_its_route_and_refused_where_only_post_is_taken(client):
    answer = client.head("/search")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (405, "POST", b"")
    client.head("/items/item001")
    assert 'method="HEAD",route="/items/{item_id}"' in client.get("/metrics").text


@pytest.mark.parametrize("path", FILES)
def test_a_client_is_not_sent_what_it_has(client, path):
    got = client.get(path)
    tag = got.headers["etag"]
    for sent in (tag, f"W/{tag}", f'"other, one", {tag}', f'"a",W/{tag} , "b"', "*"):
        for method in ("GET", "HEAD"):
            answer = client.request(method, path, headers={"If-None-Match": sent})
            assert (answer.status_code, answer.content) == (304, b""), sent
            assert answer.headers["etag"] == tag
            assert answer.headers["cache-control"] == got.headers["cache-control"]
            assert not {"content-type", "content-length"} & answer.headers.keys()
    for sent in ('"other"', f'"{tag}x"', tag.strip('"'), "W/"):
        assert client.get(path, headers={"If-None-Match": sent}).content == got.content


def test_refusals_are_sent_whatever_a_client_has(client):
    assert client.get("/images/nobody", headers={"If-None-Match": "*"}).status_code == 404
    assert client.get("/images/item001?size=1", headers={"If-None-Match": "*"}).status_code == 422


def test_probes_answer_under_any_name_and_nothing_else_does(client):
    for host in ("10.0.3.7:8080", "elsewhere"):
        for method in ("GET", "HEAD"):
            assert client.request(method, "/health", headers={"Host": host}).status_code == 200
            assert client.request(method, "/ready", headers={"Host": host}).status_code in (200, 503)
        for path in ("/", "/info", "/health/", "/ready/", "/items"):
            assert client.get(path, headers={"Host": host}).status_code == 400


def test_a_real_connection_goes_on_after_answers_without_body(tmp_path, model):
    with on_loopback(create_app(small_store(tmp_path, model, n=3), None)) as address:
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=30)
        for method, headers, status in (("HEAD", {}, 200), ("GET", {"If-None-Match": "*"}, 304), ("GET", {}, 200)) * 2:
            connection.request(method, "/images/item000", headers=headers)
            answer = connection.getresponse()
            content = answer.read()
            assert (answer.status, content[:2]) == (status, b"\xff\xd8" if (method, status) == ("GET", 200) else b"")
        connection.close()
