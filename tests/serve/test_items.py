"""Adding, reading and deleting over HTTP: what is written is found, and only who has the token
writes.
"""

import http.client
import io
import json
import re
from urllib.parse import quote

import numpy as np
import pytest
from PIL import Image

from channelhash.errors import InputError
from channelhash.serve.app import _read_token
from channelhash.serve.items import _image_copy
from channelhash.serve.service import Limits
from refusals import check_refusal
from serve.served import ODD_ID, WRITER, app_of, on_loopback, refused, serving, small_store
from serve.test_search import found, picture


def add(client, *items, **options):
    return client.post("/items", json={"items": items, **options}, headers=WRITER)


def add_image(client, image: bytes, **form):
    return client.post("/items/image", data=form, files={"image": image}, headers=WRITER)


def test_a_text_that_is_added_is_encoded_and_found(client, model):
    new = {
        "id": "new/1",
        "text": "a bright blue picture",
        "metadata": {"year": 1999, "labels": ["sea"]},
    }
    answer = add(client, new)
    assert answer.status_code == 201
    assert answer.json() == {"items": 1}
    stored = client.get("/items/new%2F1").json()
    assert stored["codes"] == {"text": model.encode_texts([new["text"]])[0].tobytes().hex()}
    assert stored["text"] == new["text"]
    assert stored["labels"] == ["sea"]
    assert stored["metadata"] == {"year": 1999}
    nearest = found(client, text=new["text"], modality="text", where="label = 'sea'")
    assert nearest == [(0, "new/1")]
    assert client.get("/labels").json()["labels"]["sea"] == 1


def test_a_picture_that_is_added_is_encoded_kept_small_and_goes_with_its_item(
    client, model, folder
):
    form = {"id": ODD_ID + "2", "text": "red", "metadata": '{"labels": ["red"], "year": 1}'}
    content = picture(size=(1500, 900))
    assert add_image(client, content, **form).status_code == 201
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
    for path in (f"/items/{address}", f"/{stored['image']}"):
        assert client.get(path).status_code == 404


def test_codes_are_taken_as_they_are_and_replaced_only_where_that_is_asked_for(client):
    assert add(client, {"id": "coded", "codes": {"image": "abc0"}}).status_code == 201
    assert client.get("/items/coded").json()["codes"] == {"image": "abc0"}
    item = {"id": "twice", "text": "a red picture"}
    for replace, status in ((False, 201), (False, 422), (True, 201)):
        answer = add(client, item, replace=replace)
        assert answer.status_code == status, answer.text


BAD_ITEMS = {
    "none": ([], "items"),
    "more than the limit": ([{"id": f"{i}", "text": "a"} for i in range(1001)], "at most 1000"),
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


@pytest.mark.parametrize("metadata", ["{", "[]", '{"image": "/etc/passwd"}'])
def test_metadata_of_a_picture_that_cannot_be_stored_is_refused(client, metadata):
    answer = add_image(client, picture(), id="x", metadata=metadata)
    refused(answer, 422, says="metadata")


#: JSON of a value of metadata -> what is said of it, as the same call says in Python.
NO_VALUES = {
    "NaN": "x is nan; leave it out where it is not known",
    "Infinity": "x is inf; leave it out where it is not known",
    "9223372036854775808": "x: 9223372036854775808 has more than 64 bits",
    "1" + "0" * 4000: "x: a whole number has more than 64 bits",
    "[null]": "x: a list holds strings, not None",
    '{"lat": 1.5}': "x: expected a string, number, Boolean or list of strings, not dict",
}


@pytest.mark.parametrize("value", NO_VALUES)
def test_what_is_no_value_of_metadata_is_named_with_its_item_and_key(client, value):
    says = f"metadata of 'new': {NO_VALUES[value]}"
    content = f'{{"items": [{{"id": "new", "text": "a", "metadata": {{"x": {value}}}}}]}}'
    headers = WRITER | {"Content-Type": "application/json"}
    refused(client.post("/items", content=content, headers=headers), 422, says=says)
    metadata = f'{{"x": {value}}}'
    refused(add_image(client, picture(), id="new", metadata=metadata), 422, says=says)
    with pytest.raises(InputError, match=re.escape(says)):
        client.app_store.upsert(["new"], np.zeros((1, 2), np.uint8), None, [json.loads(metadata)])


def test_a_number_of_any_digits_is_refused_in_a_line(client):
    digits = "9" * 5000
    headers = WRITER | {"Content-Type": "application/json"}
    item = f'{{"items": [{{"id": "new", "text": "a", "metadata": {{"x": {digits}}}}}]}}'
    refused(client.post("/items", content=item, headers=headers), 422, says="too many digits")
    answer = add_image(client, picture(), id="new", metadata=f'{{"x": {digits}}}')
    refused(answer, 422, says="metadata: ")
    for path, content in (("search", f'{{"text": "a", "k": {digits}}}'), ("explain", digits)):
        answer = client.post(f"/{path}", content=content, headers=headers)
        refused(answer, 422, says="too many digits")
    for query in ("items?offset=", "items?seed=", "images/item001?size=", "duplicates?radius="):
        refused(client.get(f"/{query}{digits}"), 422, says=f"{query.partition('?')[2][:-1]}: ")
    where = f"year = {digits[:1900]}"
    refused(client.get("/items", params={"where": where}), 422, says="too large")


def test_without_a_token_file_nobody_writes_and_the_answer_says_how_to(tmp_path, model):
    with serving(tmp_path, model, token=None) as client:
        refused(client.delete("/items/item001", headers=WRITER), 403, says="--token-file")
        assert client.get("/info").json()["writable"] is False
        assert client.get("/items/item001").status_code == 200


@pytest.mark.parametrize("content", [b"", b"short", b"two words of a token", b"\xff" * 20])
def test_a_token_that_is_none_is_refused_at_the_start(tmp_path, content):
    (tmp_path / "token").write_bytes(content)
    check_refusal("one line of at least 16 ASCII", _read_token, tmp_path / "token", "token_file")


@pytest.mark.parametrize("name", [
    "../../../../etc/passwd", "/etc/passwd", "images/0.png", "item001/../item002", "item001\x00",
    "%2e%2e/x",
])  # fmt: skip
def test_no_path_from_a_request_is_ever_opened(client, name):
    for place in ("images", "originals", "items"):
        refused(client.get(f"/{place}/{quote(name, safe='')}"), 404)
    outside = ("/../../etc/passwd", "/page/index.html", "/style.css/../../app.py", "/%2e%2e/app.py")
    for address in outside:
        assert client.get(address).status_code == 404


def test_a_picture_that_is_gone_or_never_was_is_a_404(client, folder):
    answer = client.get(f"/images/{quote(ODD_ID, safe='')}")
    assert (answer.status_code, answer.json()["error"]) == (404, "this item has no picture")
    (folder / "images" / "9.png").unlink()
    refused(client.get("/images/item009"), 404, says="not there any more")
    assert client.get("/images/item001?size=9999").status_code == 422


def test_an_original_is_the_file_as_it_is_stored_if_it_is_a_picture(client, folder):
    answer = client.get("/originals/item008")
    assert answer.headers["content-type"] == "image/png"
    assert answer.content == (folder / "images/8.png").read_bytes()
    (folder / "images" / "8.png").write_text("<script>")
    for item_id in ("item008", ODD_ID):
        refused(client.get(f"/originals/{quote(item_id, safe='')}"), 404, says="no picture")


SIZE, MANY = 1000, "9" * 5000
#: Header Range -> the bytes that are sent of a file of `SIZE`; none with status 416.
NO_RANGES = ["", "bytes", "bytes=", "bytes=-", "bytes=abc", "bytes=9-5", "bytes=0-9,x", "=0-9"]
NO_RANGES += ["bytes=1_0-2_0", "bytes=+1-+3", "bytes=-0x10", "bytes 0-9", "bytes=0-9;q=1"]
NO_RANGES += ["items=0-9", "seconds=0-9", "items=0-9, bytes=0-9", "bytes=0-9-", "bytes=0 - 9"]
RANGES = dict.fromkeys(NO_RANGES) | {
    "bytes=0-9": (0, 10), "BYTES=0-9": (0, 10), "bytes=0-0": (0, 1), "bytes=990-": (990, SIZE),
    "bytes=-5": (995, SIZE), "bytes=-5000": (0, SIZE), "bytes=0-5000": (0, SIZE),
    "bytes=, 0-9 ,": (0, 10), "bytes=00-09": (0, 10), f"bytes=5-{MANY}": (5, SIZE),
    f"bytes=-{MANY}": (0, SIZE), "bytes=0-9,5000-": (0, 10), "bytes=-0,0-9": (0, 10),
    "bytes=0-9,5-19": (0, 20), "bytes=1000-": (), "bytes=-0": (), "bytes=5000-6000,7000-": (),
    f"bytes={MANY}-": (),
}  # fmt: skip


@pytest.fixture
def original(client, folder) -> bytes:
    """The file of the item ``item009``, of `SIZE` bytes."""
    path = folder / "images" / "9.png"
    Image.new("RGB", (9, 9), "red").save(path)
    content = path.read_bytes().ljust(SIZE, b"\0")
    path.write_bytes(content)
    return content


@pytest.mark.parametrize("sent", RANGES, ids=lambda sent: sent[:24] or "empty")
def test_the_bytes_that_a_range_names_are_sent_and_what_is_none_is_ignored(client, original, sent):
    answer = client.get("/originals/item009", headers={"Range": sent})
    part = RANGES[sent]
    if part == ():
        refused(answer, 416, says="1,000 bytes")
        assert answer.headers["content-range"] == f"bytes */{SIZE}"
    elif part is None:
        assert (answer.status_code, answer.content) == (200, original)
    else:
        assert (answer.status_code, answer.content) == (206, original[slice(*part)])
        assert answer.headers["content-range"] == f"bytes {part[0]}-{part[1] - 1}/{SIZE}"
    head = client.head("/originals/item009", headers={"Range": sent})
    assert (head.status_code, head.headers["content-length"]) == (200, str(SIZE))


def test_several_parts_are_sent_apart(client, original):
    answer = client.get("/originals/item009", headers={"Range": "bytes=0-4, 5000-, 100-104"})
    kind = answer.headers["content-type"]
    assert (answer.status_code, kind.partition(";")[0]) == (206, "multipart/byteranges")
    for start in (0, 100):
        part = f"bytes {start}-{start + 4}/{SIZE}\r\n\r\n".encode()
        assert part + original[start : start + 5] in answer.content
    many = client.get("/originals/item009", headers={"Range": "bytes=" + "0-1," * 3000})
    assert (many.status_code, many.content) in ((200, original), (206, original[:2]))


def test_a_part_is_of_the_file_that_the_client_has(client, original):
    got = client.get("/originals/item009").headers
    parts = ("bytes=0-9", 206, original[:10]), ("bytes=5000-", 416, None)
    for sent, status, content in parts:
        for tag in (got["etag"], got["last-modified"]):
            answer = client.get("/originals/item009", headers={"Range": sent, "If-Range": tag})
            assert answer.status_code == status
            assert content in (None, answer.content)
        for tag in ('"other"', f"W/{got['etag']}", "Thu, 01 Jan 1970 00:00:00 GMT", "x"):
            answer = client.get("/originals/item009", headers={"Range": sent, "If-Range": tag})
            assert (answer.status_code, answer.content) == (200, original)
    answer = client.get("/labels", headers={"Range": "items=0-9"})  # no file
    assert answer.status_code == 200


def test_pictures_follow_the_file_and_thumbnails_are_opaque(tmp_path, model):
    with serving(tmp_path, model) as client:
        before = client.get("/images/item000?size=64").content
        Image.new("RGBA", (64, 64), (0, 0, 0, 0)).save(tmp_path / "images" / "0.png")
        after = client.get("/images/item000?size=64").content
        assert before != after
        assert np.asarray(Image.open(io.BytesIO(after))).min() > 250
        # Several JPEG pictures in one file are shown as JPEG.
        images = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
        path = tmp_path / "images" / "0.png"
        images[0].save(path, "MPO", save_all=True, append_images=images[1:])
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

IMAGES = ["/images/item001", "/images/item001?size=900", "/originals/item001"]
FILES = [*IMAGES, "/", "/style.css", "/icon.svg"]
EVERY = [*FILES, "/health", "/info", "/items", "/items/item001", "/items/nobody", "/labels"]
EVERY += ["/metrics", "/docs"]


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
        jpeg = b"\xff\xd8"
        cases = [("HEAD", {}, 200, b""), ("GET", {"If-None-Match": "*"}, 304, b"")]
        for method, headers, status, begins in [*cases, ("GET", {}, 200, jpeg)] * 2:
            connection.request(method, "/images/item000", headers=headers)
            answer = connection.getresponse()
            assert answer.status == status
            assert answer.read()[:2] == begins
        connection.close()
