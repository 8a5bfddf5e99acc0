"""Downloads from loopback: resume, checksums, archives that cannot be trusted."""

import hashlib
import io
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest.mock import patch

import pytest

from channelhash.errors import JobError
from channelhash.lab.download import _SOURCES, _Source, _unpack, download
from refusals import check_refusal


def zip_of(members: dict[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


class Handler(BaseHTTPRequestHandler):
    """Serves the server's one file; counts requests, can cut the connection."""

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.requests.append(asked)
        if self.server.status != 200:
            self.send_error(self.server.status)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        body = self.server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut_after.pop(0)] if self.server.cut_after else body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch):
    """``cut_after`` are the bytes to send of each of the next answers."""
    monkeypatch.setattr("channelhash.lab.download._PAUSE", 0)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        made.content = zip_of({"a/x.txt": b"hello" * 60000, "b.txt": b"world"})
        made.cut_after, made.status, made.requests = [], 200, []
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def fetch(server, root, md5=None):
    source = _Source(f"http://127.0.0.1:{server.server_port}/set.zip", "set", md5)
    with patch.dict(_SOURCES, {"test": (source,)}):
        return download("test", root)


def assert_complete(root) -> None:
    assert (root / "set" / "a" / "x.txt").read_bytes() == b"hello" * 60000
    assert (root / "set" / "b.txt").read_bytes() == b"world"
    assert not list(root.rglob("*.part*"))
    assert not list(root.rglob("*.tmp"))


def test_a_cut_connection_goes_on_where_it_broke_and_an_archive_is_fetched_once(server, tmp_path):
    server.cut_after = [100_000, 50_000]
    assert fetch(server, tmp_path) == ["set.zip"]
    assert_complete(tmp_path)
    assert fetch(server, tmp_path) == []
    assert server.requests == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_call_goes_on_too(server, tmp_path):
    server.cut_after = [1000] * 5
    check_refusal(
        "5000 bytes are kept, the same command goes on from there",
        fetch,
        server,
        tmp_path,
        error=JobError,
    )
    assert not (tmp_path / "set").exists()
    fetch(server, tmp_path)
    assert_complete(tmp_path)
    assert server.requests[-1] == "bytes=5000-"


def test_a_file_that_changed_meanwhile_is_refused(server, tmp_path):
    server.cut_after = [20_000] * 5
    with pytest.raises(JobError):
        fetch(server, tmp_path)
    server.content = zip_of({"a/x.txt": bytes(300_000), "b.txt": b"world", "c.txt": b"new"})
    check_refusal(r"damaged archive.*remove it and download again", fetch, server, tmp_path)
    assert not (tmp_path / "set").exists()


def test_a_corrupt_byte_is_found_and_the_archive_set_aside(server, tmp_path):
    md5 = hashlib.md5(server.content).hexdigest()
    good, middle = server.content, len(server.content) // 2
    server.content = good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :]
    check_refusal(
        r"set\.zip: MD5 is .* set aside as set\.zip\.bad",
        fetch,
        server,
        tmp_path,
        md5,
        error=JobError,
    )
    assert not (tmp_path / "set").exists()
    server.content = good
    fetch(server, tmp_path, md5)
    assert_complete(tmp_path)


def test_errors_of_the_server_and_the_name_are_one_line(server, tmp_path):
    for server.status in (404, 503):
        check_refusal(
            f"the server answers {server.status}", fetch, server, tmp_path, error=JobError
        )
    assert len(server.requests) == 1 + 5
    server.shutdown()
    server.server_close()
    check_refusal("refused", fetch, server, tmp_path, error=JobError)
    check_refusal("did you mean 'nuswide'", download, "nuswid", tmp_path)


def test_nothing_lands_outside_the_folder_and_nothing_becomes_a_link(tmp_path):
    (tmp_path / "in").mkdir()
    archive = tmp_path / "in" / "x.zip"
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    names = (
        "good.txt",
        "../evil.txt",
        "/etc/evil.txt",
        "a/../../evil.txt",
        "C:\\evil.txt",
        "a\\..\\..\\evil",
        link,
    )
    archive.write_bytes(zip_of(dict.fromkeys(names, b"/etc/passwd")))
    _unpack(archive, tmp_path / "in" / "out")
    assert sorted(path.name for path in (*tmp_path.glob("*"), *tmp_path.glob("in/*"))) == [
        "in",
        "out",
        "x.zip",
    ]
    assert not (tmp_path / "in" / "out" / "link").is_symlink()


def test_damaged_archives_are_refused(tmp_path):
    good = zip_of({"a.txt": b"x" * 1000})
    # a member larger than it says
    lying = good.replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    for name, content in {
        "cut": good[:500],
        "flipped": good[:300] + b"y" + good[301:],
        "lying": lying,
    }.items():
        (tmp_path / f"{name}.zip").write_bytes(content)
        check_refusal(
            rf"{name}\.zip: damaged archive", _unpack, tmp_path / f"{name}.zip", tmp_path / "no"
        )
    assert not (tmp_path / "no").exists()
