"""Systems other than Linux: right values that this one shows; the CI runs the tests on macOS and Windows."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from channelhash.utils.files import cache_folder
from pages import ROOT


def opened_without_encoding(source: str) -> list[int]:
    """Lines of calls that read or write text in the encoding of the machine."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and not any(keyword.arg == "encoding" for keyword in node.keywords):
            name, modes = ast.unparse(node.func), " ".join(map(ast.unparse, node.args[1:]))
            opened = name == "open" and not re.search(r"'[^']*b", modes)
            if opened or name.endswith((".read_text", ".write_text")):
                lines.append(node.lineno)
    return lines


def test_text_is_read_and_written_as_utf8_on_every_machine():
    sources = sorted((ROOT / "src" / "channelhash").rglob("*.py"))
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    assert not {name: lines for name, text in texts.items() if (lines := opened_without_encoding(text))}


@pytest.mark.parametrize(("variables", "expected"), [
    ({"CHANNELHASH_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "/c"),
    ({"XDG_CACHE_HOME": "/x"}, "/x/channelhash"),
    ({}, {"win32": "/home/me/AppData/Local/channelhash/Cache", "darwin": "/home/me/Library/Caches/channelhash"}),
])  # fmt: skip
def test_the_cache_lies_where_the_system_keeps_caches(variables, expected, monkeypatch):
    for name in ("CHANNELHASH_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Path, "home", lambda: Path("/home/me"))
    if isinstance(expected, dict):
        expected = expected.get(sys.platform, "/home/me/.cache/channelhash")
    assert cache_folder() == Path(expected)


@pytest.mark.parametrize("settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}])
def test_signs_that_a_terminal_lacks_are_written_as_numbers(settings, tmp_path):
    words = [sys.executable, "-m", "channelhash", "list", "losses"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "0"} | settings
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"\\x" in done.stdout
    assert not done.stderr
