"""Follow the ways of docs/explanation/architecture.md through the running code, and count the files
that they touch.

    python tools/ways.py

Each table of the page is a way: a file and a function a row, from a command to its result. This
program runs the command on small data and looks at the call stack whenever a function of the table
is called.

* *On the way*: the files on those stacks. The table lists exactly these, in this order.
* *All*: those, and every file with a function that runs meanwhile. What all ways use (`COMMON`) and
  what that calls is not counted, nor is what is a way of its own (`WITHIN`).
"""

import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "channelhash"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"

#: What every way uses: files by the beginnings of their paths.
COMMON = ("utils/", "codes/", "data/", "models/", "text/", "config.py")
#: Where a way begins that does not begin with its command.
START = {
    "One training step": "training/trainer.py:train",
    "One request": "serve/routing.py:Route.get_route_handler.<locals>.checked",
}
#: What is a way of its own: a run of a grid, the search of a request.
WITHIN = ("lab/experiments/runner.py:_run_and_evaluate", "serve/searcher.py:Searcher._find")


class Step(NamedTuple):
    """One row of a table: a function, and types that its annotations name; ``takes`` is None
    without an argument.
    """

    file: str
    function: str
    takes: str | None
    gives: str


class Way(NamedTuple):
    """The files on the stacks of a way's steps, those and all others that were counted, and steps
    never called.
    """

    spine: list[str]
    files: set[str]
    missed: set[str]


def read_ways(page: str) -> dict[str, list[Step]]:
    """Read the tables with the header ``file | function | takes | gives``, by the heading above
    each.
    """
    ways: dict[str, list[Step]] = {}
    heading = ""
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif row := re.fullmatch(
            r"\| `([\w/]+\.py)` \| `([\w.]+)` \| (?:`(\w+)`|–) \| `(\w+)` \|.*", line
        ):
            ways.setdefault(heading, []).append(Step(row[1], row[2], row[3], row[4]))
    return ways


def follow(
    steps: Sequence[Step], command: Callable[[], Any], start: str = "", aside: Sequence[str] = ()
) -> Way:
    """Run a command in this process and watch for the steps, also in threads that it starts.

    Files are counted from the function ``start`` on (``file:function``; empty for the beginning),
    except while a function of ``aside`` runs.
    """
    goals = {f"{step.file}:{step.function}" for step in steps}
    spine: list[str] = []
    files: set[str] = set()
    pending, counting, thread = set(goals), not start, threading.local()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counting
        if event not in ("call", "return") or (file := _file(frame.f_code)) is None:
            return
        place = f"{file}:{frame.f_code.co_qualname}"
        if place in aside or file.startswith(COMMON):
            thread.depth = getattr(thread, "depth", 0) + (1 if event == "call" else -1)
        if event == "return":
            return
        counting = counting or place == start
        if counting and pending and not getattr(thread, "depth", 0):
            files.add(file)
        if place in pending:
            pending.remove(place)
            spine.extend(file for file in _stack(frame) if file not in spine)

    for profile in (sys.setprofile, threading.setprofile):
        profile(watch)
    try:
        command()
    finally:
        for profile in (sys.setprofile, threading.setprofile):
            profile(None)
    return Way(spine, files | set(spine), pending)


@cache
def _file(code: CodeType) -> str | None:
    """Return the file of a function of the package, None for other code and for the bodies of
    modules and classes.
    """
    path, is_function = code.co_filename, code.co_flags & 1  # CO_OPTIMIZED
    return path[len(str(PACKAGE)) + 1 :] if is_function and path.startswith(f"{PACKAGE}/") else None


def _stack(frame: FrameType | None) -> list[str]:
    """List the files of the package on the stack, outermost first."""
    files: list[str] = []
    while frame is not None:
        if (file := _file(frame.f_code)) is not None:
            files.append(file)
        frame = frame.f_back
    return list(dict.fromkeys(reversed(files)))


def run_command(*arguments: object) -> None:
    """Run the command line in this process."""
    from channelhash.cli.main import main

    before, sys.argv = sys.argv, ["channelhash", *map(str, arguments)]
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.argv = before


def ask_server(store: Path) -> None:
    """Send a question to a server of a store in this process, once the server is warm."""
    from fastapi.testclient import TestClient

    from channelhash.serve.app import open_app
    from channelhash.serve.service import Limits

    with TestClient(open_app({"": str(store)}, None, Limits(), None, None)) as client:
        client.app.state.service.warm_up.join()
        client.post("/search", json={"text": "boats on the sea"}).raise_for_status()


def follow_all(ways: dict[str, list[Step]], folder: Path) -> dict[str, Way]:
    """Follow the ways of the page with small data below ``folder``."""
    os.environ.setdefault("CHANNELHASH_CACHE", str(folder / "cache"))
    random = np.random.default_rng(0)
    labels = np.eye(4, dtype=bool)[random.integers(0, 4, 120)]
    arrays = {name: labels + random.normal(size=labels.shape) for name in ("image", "text")}
    np.savez(folder / "features.npz", labels=labels, **arrays)
    base = {
        "data": {
            "kind": "features",
            "path": str(folder / "features.npz"),
            "queries": 20,
            "train": 60,
        },
        "model": {"name": "features", "hidden": [8], "n_bits": 8},
        "loss": {"name": "dsch"},
        "train": {"epochs": 1, "batch_size": 30, "learning_rate": 1e-3, "validate_every": 1},
    }
    (folder / "base.yaml").write_text(json.dumps(base))
    drawn = base | {
        "data": {
            "kind": "synthetic",
            "root": str(folder / "images"),
            "n_images": 60,
            "queries": 10,
            "train": 30,
        },
        "model": {"name": "small", "image_size": 16, "width": 8, "n_bits": 8},
    }
    (folder / "drawn.yaml").write_text(json.dumps(drawn))
    run_command("train", folder / "drawn.yaml", "--out", folder / "drawn")
    run_command("evaluate", folder / "drawn")
    store, photographs = folder / "store", folder / "images" / "mirflickr"
    grid = [
        "experiment",
        "losses",
        "--config",
        folder / "base.yaml",
        "--out",
        folder / "grid",
        "--bits",
        "8",
    ]
    commands = {
        "One training step": partial(
            run_command, "train", folder / "base.yaml", "--out", folder / "run"
        ),
        "One search": partial(
            run_command, "search", folder / "drawn", "--text", "boats on the sea"
        ),
        "One request": partial(ask_server, folder / "drawn"),
        "One indexing": partial(
            run_command, "index", "create", store, photographs, "--encoder", folder / "drawn"
        ),
        "One grid": partial(run_command, *grid, "--seeds", "1"),
    }
    return {
        name: follow(ways[name], command, START.get(name, ""), WITHIN)
        for name, command in commands.items()
    }


def main() -> None:
    """Print the ways."""
    with tempfile.TemporaryDirectory() as folder:
        seen = follow_all(read_ways(PAGE.read_text(encoding="utf-8")), Path(folder))
    for name, way in seen.items():
        print(f"\n{name}: {len(way.files)} files, {len(way.spine)} on the way")
        print("  on the way:", " → ".join(way.spine))
        print("  beside it: ", ", ".join(sorted(way.files - set(way.spine))))
        if way.missed:
            print("  never called:", ", ".join(sorted(way.missed)))


if __name__ == "__main__":
    main()
