"""Manifests tell a folder as it was written from any other."""

import os
from pathlib import Path

import pytest

from channelhash.utils.manifest import FileFacts, find_damaged, find_lost, list_files, parse_files, read_checked


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_bytes(b"a dog")
    (tmp_path / "sub" / "b.txt").write_bytes(b"")
    return tmp_path


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "message", "lost"),
    [
        (lambda path: path.write_bytes(b"a cat"), "a.txt: has changed since it was written", False),
        (lambda path: path.write_bytes(b"a dog!"), "a.txt: has 6 bytes, not 5", True),
        (Path.unlink, "a.txt: is missing", True),
        (as_pipe, "a.txt: is no file", True),
    ],
)
def test_what_changed_is_found(folder, damage, message, lost):
    files = list_files(folder)
    assert find_damaged(folder, files) == find_lost(folder, files) == []
    assert read_checked(folder, files, files) == [b"a dog", b""]
    assert [bytes(content) for content in read_checked(folder, files, files, mapped=True)] == [b"a dog", b""]
    damage(folder / "a.txt")
    assert find_damaged(folder, files) == [message]
    assert find_lost(folder, files) == [message] * lost
    for mapped in (False, True):
        with pytest.raises(ValueError, match=message):
            read_checked(folder, files, files, mapped)


def test_files_come_back_from_json(folder):
    files = list_files(folder)
    assert list(files) == ["a.txt", "sub/b.txt"]
    assert parse_files({name: facts._asdict() for name, facts in files.items()}) == files
    with pytest.raises(ValueError, match="is not listed"):
        read_checked(folder, ["c.txt"], files)


@pytest.mark.parametrize("name", ["/etc/passwd", "../a.txt", "sub/../../a.txt"])
def test_files_elsewhere_are_refused(name):
    with pytest.raises(ValueError, match="does not lie in the folder"):
        parse_files({name: FileFacts(1, "")._asdict()})


@pytest.mark.parametrize("described", [None, [], {"a": 1}, {"a": {"size": 1}}, {"a": {"size": None, "sha256": ""}}])
def test_lists_of_another_form_are_refused(described):
    with pytest.raises(ValueError, match="listed by path"):
        parse_files(described)
