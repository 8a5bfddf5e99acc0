"""Adding, reading and deleting over HTTP: what is written is found, and only who has the token
writes.
"""

import http.client
import io
import json
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from channelhash.serve.app import _read_token
from channelhash.serve.items import _image_copy
from channelhash.serve.service import Limits
from refusals import check_refusal
from serve.served import ODD_ID, WRITER, app_of, on_loopback, refused, serving, small_store
from serve.test_search import picture


def test_a_text_that_is_added_is_encoded_and_found(client, model):
    new = {
        "id": "new/1",
        "text": "a bright blue picture",
        "metadata": {"year": 1999, "labels": ["sea"]},
    }
    answer = client.post("/items", json={"items": [new]}, headers=WRITER)
    assert (answer.status_code, answer.json()) == (201, {"items": 1})
    stored = client.get("/items/new%2F1").json()
    assert stored["codes"] == {"text": model.encode_texts([new["text"]])[0].tobytes().hex()}
    assert (stored["text"], stored["labels"], stored["metadata"]) == (
        new["text"],
        ["sea"],
        {"year": 1999},
    )
    found = client.post(
        "/search", json={"text": new["text"], "modality": "text", "where": "label = 'sea'"}
    ).json()
    assert [(result["id"], result["distance"]) for result in found["results"]] == [("new/1", 0)]
    assert client.get("/labels").json()["labels"]["sea"] == 1


def test_a_picture_that_is_added_is_encoded_kept_small_and_goes_with_its_item(
    client, model, folder
):
    form = {"id": ODD_ID + "2", "text": "red", "metadata": '{"labels": ["red"], "year": 1}'}
    content = picture(size=(1500, 900))
    assert (
        client.post("/items/image", data=form, files={"image": content}, headers=WRITER).status_code
        == 201
    )
    address = quote(form["id"], safe="")
    stored = client.get(f"/items/{address}").json()
    codes = {
        "image": model.encode_images([Image.open(io.BytesIO(content))]),
        "text": model.encode_texts(["red"]),
    }
    assert stored["codes"] == {name: code[0].tobytes().hex() for name, code in codes.items()}
    assert stored["image"] == f"images/{address}"
    kept = _image_copy(folder / "store" / "pictures", form["id"])
    assert Image.open(kept).size == (640, 384)
    thumbnail = client.get(f"/{stored['image']}?size=100")
    assert thumbnail.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(thumbnail.content)).size == (100, 60)
    assert client.delete(f"/items/{address}", headers=WRITER).json() == {"items": 1}
    assert not kept.exists()
    assert [
        client.get(path).status_code for path in (f"/items/{address}", f"/{stored['image']}")
    ] == [404, 404]


def test_codes_are_taken_as_they_are_and_replaced_only_where_that_is_asked_for(client):
    answer = client.post(
        "/items", json={"items": [{"id": "coded", "codes": {"image": "abc0"}}]}, headers=WRITER
    )
    assert (answer.status_code, client.get("/items/coded").json()["codes"]) == (
        201,
        {"image": "abc0"},
    )
    item = {"id": "twice", "text": "a red picture"}
    for replace, status in ((False, 201), (False, 422), (True, 201)):
        answer = client.post("/items", json={"items": [item], "replace": replace}, headers=WRITER)
        assert answer.status_code == status, answer.text


BAD_ITEMS = {
    "none": ([], "items"),
    "more than the limit": (
        [{"id": str(i), "text": "a"} for i in range(1001)],
        "at most 1000 items",
    ),
    "no content": ([{"id": "x"}], "neither a text nor codes"),
    "an empty text": ([{"id": "x", "text": " "}], "text: is empty"),
    "an id twice": ([{"id": "x", "text": "a"}, {"id": "x", "text": "b"}], "twice"),
    "codes of other modalities": (
        [{"id": "x", "text": "a"}, {"id": "y", "codes": {"image": "0000"}}],
        "requests of",
    ),
    "a code of the wrong length": ([{"id": "x", "codes": {"image": "000000"}}], "12 bits"),
    "codes of two lengths": (
        [{"id": f"{n}", "codes": {"image": "00" * n}} for n in (1, 2)],
        "length",
    ),
    "a picture's path": (
        [{"id": "x", "text": "a", "metadata": {"image": "/etc/passwd"}}],
        "set by the server",
    ),
    "a reserved key": ([{"id": "x", "text": "a", "metadata": {"label": "dog"}}], "label"),
    "a number beyond 64 bits": ([{"id": "x", "text": "a", "metadata": {"n": 2**63}}], "metadata"),
    "a nested value": ([{"id": "x", "text": "a", "metadata": {"n": {"m": 1}}}], "metadata"),
}


@pytest.mark.parametrize("case", BAD_ITEMS)
def test_items_that_cannot_be_stored_are_refused_all_together(client, case):
    items, says = BAD_ITEMS[case]
    before = client.get("/health").json()["items"]
    content = json.dumps({"items": items})  # also what has no UTF-8 form
    answer = client.post(
        "/items", content=content, headers=WRITER | {"Content-Type": "application/json"}
    )
    refused(answer, 422, says=says)
    assert client.get("/health").json() == {"status": "ok", "items": before}


@pytest.mark.parametrize(
    "metadata", ["{", "[]", '{"a": NaN}', '{"image": "/etc/passwd"}', '{"a": {"b": 1}}']
)
def test_metadata_of_a_picture_that_cannot_be_stored_is_refused(client, metadata):
    form = {"id": "x", "metadata": metadata}
    answer = client.post("/items/image", data=form, files={"image": picture()}, headers=WRITER)
    refused(answer, 422, says="metadata")


def test_without_a_token_file_nobody_writes_and_the_answer_says_how_to(tmp_path, model):
    with serving(tmp_path, model, token=None) as client:
        refused(client.delete("/items/item001", headers=WRITER), 403, says="--token-file")
        assert client.get("/info").json()["writable"] is False
        assert client.get("/items/item001").status_code == 200


@pytest.mark.parametrize("content", [b"", b"short", b"two words of a token", b"\xff" * 20])
def test_a_token_that_is_none_is_refused_at_the_start(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    check_refusal("one line of at least 16 ASCII", _read_token, tmp_path / "token")


@pytest.mark.parametrize(
    "name",
    [
        "../../../../etc/passwd",
        "/etc/passwd",
        "images/0.png",
        "item001/../item002",
        "item001\x00",
        "%2e%2e/x",
    ],
)
def test_no_path_from_a_request_is_ever_opened(client, name):
    for place in ("images", "originals", "items"):
        refused(client.get(f"/{place}/{quote(name, safe='')}"), 404)
    for address in (
        "/../../etc/passwd",
        "/page/index.html",
        "/style.css/../../app.py",
        "/%2e%2e/app.py",
    ):
        assert client.get(address).status_code == 404


def test_a_picture_that_is_gone_or_never_was_is_a_404(client, folder):
    answer = client.get(f"/images/{quote(ODD_ID, safe='')}")
    assert (answer.status_code, answer.json()["error"]) == (404, "this item has no picture")
    (folder / "images" / "9.png").unlink()
    refused(client.get("/images/item009"), 404, says="not there any more")
    assert client.get("/images/item001?size=9999").status_code == 422


def test_an_original_is_the_file_as_it_is_stored_if_it_is_a_picture(client, folder):
    answer = client.get("/originals/item008")
    assert (answer.headers["content-type"], answer.content) == (
        "image/png",
        (folder / "images/8.png").read_bytes(),
    )
    (folder / "images" / "8.png").write_text("<script>")
    for item_id in ("item008", ODD_ID):
        refused(client.get(f"/originals/{quote(item_id, safe='')}"), 404, says="no picture")


def test_pictures_follow_the_file_and_thumbnails_are_opaque(tmp_path, model):
    with serving(tmp_path, model) as client:
        before = client.get("/images/item000?size=64").content
        Image.new("RGBA", (64, 64), (0, 0, 0, 0)).save(tmp_path / "images" / "0.png")
        after = client.get("/images/item000?size=64").content
        assert before != after
        assert np.asarray(Image.open(io.BytesIO(after))).min() > 250
        # Several JPEG pictures in one file are shown as JPEG.
        images = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
        images[0].save(
            tmp_path / "images" / "0.png", "MPO", save_all=True, append_images=images[1:]
        )
        assert client.get("/originals/item000").headers["content-type"] == "image/jpeg"


def test_stored_pictures_of_more_pixels_than_uploads_have_thumbnails(tmp_path, model, monkeypatch):
    with serving(tmp_path, model, limits=Limits(pixels=1000)) as client:
        path = tmp_path / "images" / "0.png"
        for file_format in ("JPEG", "PNG"):
            Image.new("RGB", (80, 40), "red").save(path, file_format)
            assert client.get("/images/item000?size=64").status_code == 200
        monkeypatch.setenv("CHANNELHASH_MAX_PIXELS", "0.002")
        answer = client.get("/images/item000?size=70")
        refused(answer, 404, says="80 x 40 pixels are more than 0.002 million")
        assert str(tmp_path) not in answer.text


# HEAD wherever GET is answered, and no body for a client that has it already

FILES = [
    "/images/item001",
    "/images/item001?size=900",
    "/originals/item001",
    "/",
    "/style.css",
    "/icon.svg",
]
EVERY = [
    *FILES,
    "/health",
    "/info",
    "/items",
    "/items/item001",
    "/items/nobody",
    "/labels",
    "/metrics",
    "/docs",
]


@pytest.mark.parametrize(
    "path", [*EVERY, f"/items/{quote(ODD_ID, safe='')}", "/nothing", "/images/nobody"]
)
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
    for other, status in (("/images/nobody", 404), ("/images/item001?size=1", 422)):
        assert client.get(other, headers={"If-None-Match": "*"}).status_code == status


def test_a_real_connection_goes_on_after_answers_without_body(tmp_path, model):
    with on_loopback(app_of(small_store(tmp_path, model, n=3), None)) as address:
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=30)
        for method, headers, status in (
            ("HEAD", {}, 200),
            ("GET", {"If-None-Match": "*"}, 304),
            ("GET", {}, 200),
        ) * 2:
            connection.request(method, "/images/item000", headers=headers)
            answer = connection.getresponse()
            content = answer.read()
            assert (answer.status, content[:2]) == (
                status,
                b"\xff\xd8" if (method, status) == ("GET", 200) else b"",
            )
        connection.close()
