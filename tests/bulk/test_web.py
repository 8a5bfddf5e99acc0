"""``channelhash encode`` and ``evaluate`` with web servers: signed addresses, and servers that
refuse, fail or are not there.
"""

import http.server
import json
import re
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import channelhash as ch
from bulk.made_inputs import (
    feature_model,
    picture_items,
    picture_model,
    write_feature_parquet,
    write_tar,
)
from bulk.test_shards import encoded, evaluated
from channelhash.bulk import encode_bulk
from channelhash.errors import InputError, JobError
from channelhash.utils.addresses import ending_of, list_files, place, without_signature
from picture_runs import write_pictures
from refusals import check_refusal, refusal
from small_runs import assert_refused


class Server(http.server.ThreadingHTTPServer):
    """Gives the files of a folder to whoever has its signature, and a status for a name such as
    ``/status/403/a.parquet``.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.signature = folder, ""
        self.address = f"http://127.0.0.1:{self.server_port}"

    def signed(self, name: str) -> str:
        return f"{self.address}/{name}{self.signature}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        path, mark, options = self.path.partition("?")
        if path.startswith("/status/"):
            self.send_error(int(path.split("/")[2]))
        elif mark + options != self.server.signature:
            self.send_error(403, "SignatureDoesNotMatch")
        elif not (file := self.server.folder / path[1:]).is_file():
            self.send_error(404)
        else:
            self.send_file(file.read_bytes())

    def do_HEAD(self) -> None:  # a signature is for reading alone
        self.send_error(403 if self.server.signature else 405)

    def send_file(self, data: bytes) -> None:
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        first, last = map(int, part.groups()) if part else (0, len(data) - 1)
        self.send_response(206 if part else 200)
        if part:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("ETag", str(hash(data)))
        self.send_header("Content-Length", str(len(data[first : last + 1])))
        self.end_headers()
        self.wfile.write(data[first : last + 1])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path):
    (tmp_path / "www").mkdir()
    with Server(tmp_path / "www") as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


SIGNATURES = {
    "s3": "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=60&X-Amz-Signature=5ec4e7f00",
    "google": "?X-Goog-Date=20261201T000000Z&X-Goog-Signature=5ec4e7f00",
    "azure": "?sv=2022-11-02&se=2026-12-01T00%3A00%3A00Z&sig=5ec4e7%2Bf%2F00%3D",
    "cloudfront": "?Expires=1798761600&Signature=5ec4e7~f00__&Key-Pair-Id=K2.jpg",
    "token": "?a=b/c.tar&token=5ec4e7f00",
}


def check_kept_nowhere(folder: Path, *texts: object) -> None:
    """Look for a signature in all that a job wrote and said."""
    kept = [
        path.name for path in folder.rglob("*") if path.is_file() and b"5ec4e7" in path.read_bytes()
    ]
    assert kept == []
    assert "5ec4e7" not in json.dumps(texts, default=str)


@pytest.mark.parametrize(
    ("name", "signature"),
    [
        ("a.parquet", "s3"),
        ("a.parquet", "azure"),
        ("b.TAR", "google"),
        ("b.TAR", "token"),
        ("c%20d.jpg", "cloudfront"),
    ],
)
def test_a_signed_address_is_read_as_its_file_is_and_its_signature_is_kept_nowhere(
    tmp_path, capsys, server, name, signature
):
    server.signature = SIGNATURES[signature]
    table = write_pictures(tmp_path / "pictures", 6)
    if name == "a.parquet":
        model, file = feature_model(tmp_path / "model"), write_feature_parquet(server.folder / name)
    elif name == "b.TAR":
        model, file = picture_model(tmp_path / "model"), server.folder / name
        write_tar(tmp_path / "b.tar", picture_items(table)).rename(file)
    else:
        model, file = picture_model(tmp_path / "model"), tmp_path / "in" / name
        file.parent.mkdir()
        shutil.copy(next((tmp_path / "pictures" / "images").glob("*.png")), file)
        shutil.copy(file, server.folder / name)
    wanted = encoded(capsys, model, "--data", file, "--out", tmp_path / "wanted")
    arguments = (
        model,
        "--data",
        server.signed(name),
        "--out",
        tmp_path / "out",
        "--shard-items",
        8,
    )
    result = encoded(capsys, *arguments)
    assert result["items"] == wanted["items"]
    codes, here = (
        ch.open_store(tmp_path / name / "codes-000000.parquet") for name in ("out", "wanted")
    )
    assert set(codes.ids()) <= set(here.ids())
    (tmp_path / "out" / "codes-000000.parquet").unlink()
    server.signature = server.signature.replace("5ec4e7", "5ec4e7a")  # renewed
    again = encoded(capsys, model, "--data", server.signed(name), *arguments[3:])
    assert again == result | {"done_before": result["shards"] - 1}
    server.signature = ""
    says = "the server refuses (403 SignatureDoesNotMatch); check the address; if it is signed"
    said = assert_refused(capsys, "encode", *arguments, says=says)
    check_kept_nowhere(tmp_path / "out", result, again, said)


def test_pictures_at_signed_addresses_in_a_table_keep_no_signature(tmp_path, server):
    server.signature = SIGNATURES["azure"]
    write_pictures(tmp_path / "pictures", 3)
    pictures = sorted((tmp_path / "pictures" / "images").glob("*.png"))
    for picture in pictures:
        shutil.copy(picture, server.folder)
    addresses = [server.signed(picture.name) for picture in pictures]
    addresses += [server.signed("lost.png"), f"{server.address}/{pictures[0].name}?sig=5ec4e7"]
    table = pa.table({"id": list("abcde"), "image": addresses})
    pq.write_table(table, tmp_path / "t.parquet")
    model = picture_model(tmp_path / "model", ("image",))
    result = encode_bulk(model, str(tmp_path / "t.parquet"), tmp_path / "out")
    assert (result["items"], result["bad"]) == (3, 2)
    codes = ch.CodeSet.load(tmp_path / "out" / "codes-000000.parquet")
    assert codes.images == tuple(f"{server.address}/{picture.name}" for picture in pictures)
    lost, refused = map(json.loads, (tmp_path / "out" / "bad.jsonl").read_text().splitlines())
    assert lost["reason"] == f"no such picture {server.address}/lost.png"
    assert "the server refuses (403 SignatureDoesNotMatch)" in refused["reason"]
    check_kept_nowhere(tmp_path / "out")


def test_codes_at_a_signed_address_are_evaluated(tmp_path, capsys, server):
    model, data = feature_model(tmp_path / "model"), write_feature_parquet(tmp_path / "a.parquet")
    encode_bulk(model, str(data), tmp_path / "codes")
    file = shutil.copy(tmp_path / "codes" / "codes-000000.parquet", server.folder / "c.parquet")
    wanted = evaluated(capsys, "--query", file, "--database", file)
    server.signature = SIGNATURES["s3"]
    address = server.signed("c.parquet")
    for more in ((), ("--engine", "local")):
        found = evaluated(capsys, "--query", address, "--database", address, *more)
        assert found["tasks"].keys() == wanted["tasks"].keys()
        check_kept_nowhere(tmp_path, found)
    assert ch.CodeSet.load(address).ids == ch.CodeSet.load(file).ids
    assert (place(address) / "a").address == server.signed("c.parquet/a")


@pytest.mark.parametrize(
    ("status", "says", "kind"),
    [
        (400, "the server refuses (400 Bad Request)", InputError),
        (401, "the server refuses (401 Unauthorized)", InputError),
        (403, "the server refuses (403 Forbidden)", InputError),
        (404, "no such folder or file", InputError),
        (410, "no such folder or file", InputError),
        (429, "the server failed (429 Too Many Requests); run the command again later", JobError),
        (500, "the server failed (500 Internal Server Error)", JobError),
        (503, "the server failed (503 Service Unavailable)", JobError),
    ],
)
def test_a_server_that_refuses_or_fails_is_not_a_folder_that_is_not_there(
    tmp_path, server, status, says, kind
):
    for options in ("", "?sig=5ec4e7"):
        address = f"{server.address}/status/{status}/a.parquet{options}"
        listed = refusal(list, list_files(address), error=kind)
        loaded = refusal(ch.CodeSet.load, address, error=kind)
        assert says in listed
        assert (says if status not in (404, 410) else "no such file of codes") in loaded
        assert "5ec4e7" not in listed + loaded


@pytest.mark.parametrize("host", ["127.0.0.1:9", "no-such-host.invalid"])
def test_a_server_that_is_not_there_cannot_be_reached(host):
    says = rf"http://{host}/a\.tar: the server cannot be reached \(.+\); check its name"
    check_refusal(says, list, list_files(f"http://{host}/a.tar"), error=JobError)


@pytest.mark.parametrize("name", ["photos", "a.csv", "c.parquet", "c.parquet?sig=5ec4e7"])
def test_an_address_is_no_folder_that_is_not_there(tmp_path, capsys, name):
    model = picture_model(tmp_path / "model")
    ch.open_store(tmp_path / "store", n_bits=8).close()
    for arguments in (
        ("index", "add", tmp_path / "store", f"https://host/{name}", "--model", model),
        ("index", "create", tmp_path / "new", f"https://host/{name}", "--encoder", model),
        ("encode", model, "--data", f"https://host/{name}", "--out", tmp_path / "out.parquet"),
    ):
        said = assert_refused(capsys, *arguments, says=": an address, but a folder or file of this")
        assert "https://host/" in str(said)
        assert "5ec4e7" not in str(said)


def test_a_signature_belongs_to_one_file():
    address = "https://host/*.tar?sig=5ec4e7"
    check_refusal(r"belongs to one file, not to a pattern", list, list_files(address))


@given(
    st.sampled_from([".parquet", ".tar", ".jpg", ".PNG", ""]),
    st.sampled_from(
        ["sig", "X-Amz-Signature", "token", "Signature", "hdnts", "md5", "auth_key", "q-signature"]
    ),
    st.text("abc019%/+=.~_-", max_size=20),
    st.sampled_from(["", "#part.csv"]),
)
def test_the_path_alone_says_what_an_address_is(ending, option, value, fragment):
    plain = f"https://host.tar/a.b/c{ending}"
    address = f"{plain}?x=.csv&{option}={value}1{fragment}"
    assert ending_of(address) == ending.lower()
    assert without_signature(address) == plain
    assert without_signature(f"{plain}?v=2") == f"{plain}?v=2"
    assert ending_of(f"data/why?{ending}") == ending.lower()
