"""Runs the code blocks of a page of the documentation, in order, as its reader would.

What a block is, its fence and the line before it say:

* ``python``: executed; all such blocks of a page share their names;
* ``sh``: each line is a ``channelhash …`` command, executed in this process; what runs others needs
  the comment below;
* with ``title="FILE"``: written to FILE; below ``src/channelhash/`` it is a module of the package
  while the page runs;
* ``diff``: begins with ``--- src/channelhash/…/FILE.py``; every added line goes below the line above
  it, and the lines that are not added have to be there once; new entries of the registries count
  while the page runs;
* ``text`` after a block that ran: lines of its output, in order; ``…`` stands for any, and a number
  for any number.

``postgresql://localhost/postgres`` becomes the address of the tests' own server.

``<!-- not run: reason -->`` before a block: its commands are parsed against the command line, its
Python is compiled, its lines of a file have to be there. ``<!-- page not run: reason -->`` below
the title: the same for all blocks of the page. ``<!-- background -->``: a server is started as a
process, which ends with the page; port 8080 becomes a free one.
"""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.search.servers import database

from channelhash.cli.main import app
from small_runs import run_command

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_FENCE = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*) -->\n+)?```(?P<kind>\w*)(?: "
    r'title="(?P<title>[^"\n]+)")?\n(?P<code>.*?)^```$',
    re.M | re.S,
)
_PORT = "8080"
_DATABASE = "postgresql://localhost/postgres"


@dataclass(frozen=True)
class Block:
    """A fenced block: language, text, the file that it is, the comment before it, and where it
    begins.
    """

    kind: str
    code: str
    title: str | None
    note: str
    line: int

    @property
    def runs(self) -> bool:
        """Whether it is executed."""
        return not self.note.startswith("not run")


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a Markdown text, in order."""
    return [
        Block(
            *found.group("kind", "code", "title"),
            found["note"] or "",
            text[: found.start("code")].count("\n") + 1,
        )
        for found in _FENCE.finditer(text)
    ]


def commands_of(block: Block) -> list[list[str]]:
    """The commands of a shell block as lists of words: without comments and ``NAME=value``,
    continued lines joined.
    """
    found = []
    for line in block.code.replace("\\\n", " ").splitlines():
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word in ("&&", "|", ";", "&"):
                found += [words] if words else []
                words = []
            elif words or not re.match(r"[A-Z_]+=", word):
                words.append(word)
    return found


def check_command(words: list[str]) -> None:
    """Parse a ``channelhash`` command without running it: it exists, so do its options, and no
    argument is missing.
    """
    command: Any = typer.main.get_command(app)
    rest = words[1:]
    while hasattr(command, "commands"):
        assert (rest or [None])[0] in command.commands, f"no such command: {' '.join(words)}"
        command, rest = command.commands[rest[0]], rest[1:]
    context = command.make_context(command.name, [], resilient_parsing=True)
    try:
        given, left, _ = command.make_parser(context).parse_args(list(rest))
    except Exception as error:
        raise AssertionError(f"{' '.join(words)}: {error}") from None
    assert not left, f"{' '.join(words)}: what is {left}?"
    missing = [
        p.name for p in command.get_params(context) if p.required and given.get(p.name) is None
    ]
    assert not missing or "--help" in rest, f"{' '.join(words)}: {missing} missing"


@dataclass
class _State:
    """What a running page has made so far."""

    folder: Path
    patch: pytest.MonkeyPatch
    stack: contextlib.ExitStack
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    output: str = ""
    port: str = _PORT


def run_page(path: Path, folder: Path) -> None:
    """Run all blocks of a page in ``folder``; an assertion or error names the block."""
    blocks = blocks_of(path.read_text(encoding="utf-8"))
    with _running(folder) as state:
        for block in blocks:
            try:
                _run(block, state)
            except BaseException as error:
                error.add_note(f"{path}, block at line {block.line}")
                raise


@contextlib.contextmanager
def _running(folder: Path) -> Iterator[_State]:
    for name in ("configs", "examples"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)  # a reader stands in the root of the repository
    modules = set(sys.modules)
    try:
        with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
            patch.chdir(folder)
            patch.setenv("COLUMNS", "100")
            yield _State(folder, patch, stack)
    finally:
        for name in set(sys.modules) - modules:
            if name.startswith("channelhash.") and str(folder) in str(
                getattr(sys.modules[name], "__file__", "")
            ):
                parent, _, child = name.rpartition(".")
                del sys.modules[name]
                vars(sys.modules[parent]).pop(child, None)


def _run(block: Block, state: _State) -> None:
    if block.title:
        _write(block, state)
    elif block.kind == "diff":
        _apply(block, state)
    elif block.kind == "text":
        _compare(block.code, state.output)
    elif block.kind == "python":
        text = block.code.replace(_PORT, state.port)
        if block.runs and _DATABASE in text:
            text = text.replace(_DATABASE, database())
        code = compile(text, f"block at line {block.line}", "exec")
        if block.runs:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, state.names)
            state.output = printed.getvalue()
    elif block.kind == "sh":
        _run_commands(block, state)
    else:
        assert block.kind in ("", "yaml", "json"), f"what is ```{block.kind}?"


def _run_commands(block: Block, state: _State) -> None:
    commands = commands_of(block)
    if not block.runs:
        for words in commands:
            if words[0] == "channelhash":
                check_command(words)
        return
    state.output = ""
    for words in commands:
        assert words[0] == "channelhash", (
            f"only channelhash is run; say why {words[0]} is not: <!-- not run: … -->"
        )
        check_command(words)
        words = [word.replace(_PORT, state.port) for word in words]
        if block.note == "background":
            from serve.served import started  # seconds to load

            assert {"serve", "--port"} <= set(words), (
                "a server that is started names its port: --port 8080"
            )
            _, address = state.stack.enter_context(started(*words[2:], log=subprocess.DEVNULL))
            state.port = address.strip("/").rpartition(":")[2]
        else:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                status = run_command(*words[1:])
            assert status == 0, f"{' '.join(words)} ended with {status}"
            state.output += printed.getvalue()


def _write(block: Block, state: _State) -> None:
    """Make the file that a block is; a module of the package can be imported from then on."""
    assert block.title
    path = state.folder / block.title
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.code, encoding="utf-8")
    if block.title.startswith("src/channelhash/"):
        package = import_module(".".join(Path(block.title).parent.parts[1:]))
        if str(path.parent) not in package.__path__:
            state.patch.setattr(package, "__path__", [*package.__path__, str(path.parent)])


def _apply(block: Block, state: _State) -> None:
    """Put the added lines into the package's file, execute it, and take over what its registries
    have gained.
    """
    head, *lines = block.code.splitlines()
    name = head.removeprefix("--- ")
    source = _insert(name, [line for line in lines if line.strip()])
    if not block.runs:
        return
    parts = Path(name).with_suffix("").parts[1:]
    module = import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    edited: dict[str, Any] = {"__name__": module.__name__}
    if hasattr(module, "__path__"):
        edited["__path__"] = module.__path__
    exec(compile("\n".join(source), name, "exec"), edited)
    gained = 0
    for registry, entries in edited.items():
        if registry.isupper() and isinstance(entries, dict):
            there = getattr(module, registry)
            for key in entries.keys() - there.keys():
                state.patch.setitem(there, key, entries[key])
                gained += 1
    assert gained, f"{name}: no registry has gained an entry"


def _insert(name: str, lines: list[str]) -> list[str]:
    """Return the lines of a file of the package with those that a block adds and without those that
    it takes away; its other lines say where.
    """
    source = (ROOT / name).read_text(encoding="utf-8").splitlines()
    place: int | None = None  # the line of the file that the last line of the block is
    for line in lines:
        if line.startswith("+"):
            assert place is not None, f"{name}: nothing says where the added lines go"
            place += 1
            source.insert(place, line[1:])
            continue
        assert source.count(line[1:]) == 1, f"{name}: {line[1:]!r} is not there once"
        place = source.index(line[1:])
        if line.startswith("-"):
            del source[place]
            place -= 1
    return source


def _compare(shown: str, printed: str) -> None:
    """Every line that a page shows was printed, in that order; numbers and spacing aside."""
    lines = [bare(line) for line in printed.splitlines()]
    place = 0
    for line in filter(None, map(str.strip, shown.splitlines())):
        if line == "…":
            continue
        wanted = bare(line)
        assert wanted in lines[place:], (
            f"{line!r} is not in the rest of what was printed:\n{printed}"
        )
        place += lines[place:].index(wanted) + 1


def bare(line: str) -> str:
    """A line without numbers, rules of tables and spacing."""
    return " ".join(re.sub(r"[━─]+", "─", re.sub(r"-?\d[\d,.]*(?:e[+-]?\d+)?", "#", line)).split())
