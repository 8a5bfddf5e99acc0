"""Follow the ways of docs/explanation/architecture.md through the running code, and count the files that they touch.

    python tools/ways.py

Each table of the page is a way: a file and a function a row, from a command to its result. This program runs the
command on small data and looks at the call stack whenever a function of the table is called.

* *On the way*: the files on those stacks. The table lists exactly these, in this order.
* *All*: those, and every file with a function that runs meanwhile. What all ways use (`COMMON`) and what that calls is
  not counted, nor is the training and evaluation of a run of a grid, which is a way of its own.
"""

import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "channelhash"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"

#: What every way uses: files by the beginnings of their paths.
COMMON = ("utils/", "codes/", "data/", "models/", "text/", "config.py")
#: What a grid does with each of its runs.
RUN_OF_A_GRID = ("lab/experiments/runner.py:_run_and_evaluate",)


class Step(NamedTuple):
    """One row of a table: a function, and types that its annotations name; ``takes`` is None without an argument."""

    file: str
    function: str
    takes: str | None
    gives: str


class Way(NamedTuple):
    """What was seen of a way.

    Attributes:
        spine: the files on the stacks of its steps, in order.
        files: those and all others that were counted.
        missed: steps whose function was never called.
    """

    spine: list[str]
    files: set[str]
    missed: set[str]


def read_ways(page: str) -> dict[str, list[Step]]:
    """Read the tables with the header ``file | function | takes | gives``, by the heading above each."""
    ways: dict[str, list[Step]] = {}
    heading = ""
    for line in page.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif row := re.fullmatch(r"\| `([\w/]+\.py)` \| `([\w.]+)` \| (?:`(\w+)`|–) \| `(\w+)` \|.*", line):
            ways.setdefault(heading, []).append(Step(row[1], row[2], row[3], row[4]))
    return ways


def follow(steps: Sequence[Step], command: Callable[[], Any], start: str = "", aside: Sequence[str] = ()) -> Way:
    """Run a command and watch for the steps.

    Args:
        steps: a table's rows.
        command: runs the command in this process.
        start: ``file:function`` from which on files are counted; the command's beginning if empty.
        aside: functions during which no files are counted, likewise.
    """
    goals = {f"{step.file}:{step.function}" for step in steps}
    spine: list[str] = []
    files: set[str] = set()
    pending, counting, depth = set(goals), not start, 0

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counting, depth
        if event not in ("call", "return") or (file := _file(frame.f_code)) is None:
            return
        place = f"{file}:{frame.f_code.co_qualname}"
        if place in aside or file.startswith(COMMON):
            depth += 1 if event == "call" else -1
        if event == "return":
            return
        counting = counting or place == start
        if counting and pending and not depth:
            files.add(file)
        if place in pending:
            pending.remove(place)
            spine.extend(file for file in _stack(frame) if file not in spine)

    sys.setprofile(watch)
    try:
        command()
    finally:
        sys.setprofile(None)
    return Way(spine, files | set(spine), pending)


@cache
def _file(code: CodeType) -> str | None:
    """Return the file of a function of the package, None for other code and for the bodies of modules and classes."""
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
    """Run the command line in this process.

    Raises:
        SystemExit: the command failed.
    """
    from channelhash.cli.main import main

    before, sys.argv = sys.argv, ["channelhash", *map(str, arguments)]
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.argv = before


def follow_all(ways: dict[str, list[Step]], folder: Path) -> dict[str, Way]:
    """Follow the ways "One training step", "One search" and "One grid" with small data below ``folder``."""
    os.environ.setdefault("CHANNELHASH_CACHE", str(folder / "cache"))
    random = np.random.default_rng(0)
    labels = np.eye(4, dtype=bool)[random.integers(0, 4, 120)]
    arrays = {name: labels + random.normal(size=labels.shape) for name in ("image", "text")}
    np.savez(folder / "features.npz", labels=labels, **arrays)
    base = {
        "data": {"kind": "features", "path": str(folder / "features.npz"), "queries": 20, "train": 60},
        "model": {"name": "features", "hidden": [8], "n_bits": 8},
        "loss": {"name": "dsch"},
        "train": {"epochs": 1, "batch_size": 30, "learning_rate": 1e-3, "validate_every": 1},
    }
    (folder / "base.yaml").write_text(json.dumps(base))
    drawn = base | {
        "data": {"kind": "synthetic", "root": str(folder / "images"), "n_images": 60, "queries": 10, "train": 30},
        "model": {"name": "small", "image_size": 16, "width": 8, "n_bits": 8},
    }
    (folder / "drawn.yaml").write_text(json.dumps(drawn))
    run_command("train", folder / "drawn.yaml", "--out", folder / "drawn")
    run_command("evaluate", folder / "drawn")
    train = ["train", folder / "base.yaml", "--out", folder / "run"]
    search = ["search", folder / "drawn", "--text", "boats on the sea"]
    grid = ["experiment", "losses", "--config", folder / "base.yaml", "--out", folder / "grid"]
    grid += ["--bits", "8", "--seeds", "1"]
    return {
        name: follow(ways[name], lambda command=command: run_command(*command), start, aside)
        for name, command, start, aside in (
            ("One training step", train, "training/trainer.py:train", ()),
            ("One search", search, "", ()),
            ("One grid", grid, "", RUN_OF_A_GRID),
        )
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
