"""Measure every benchmark again, one after another, each in a process of its own: ``make benchmarks``.

    python tools/benchmarks.py [NAME …]

A benchmark begins when the machine has nothing else to do. Its rows are written to ``build/benchmarks/NAME.json``, and
as a table for docs/reference/benchmarks.md to ``NAME.md``. A file that exists is not measured again: remove it first.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path("build/benchmarks")
NAMES = ("metrics", "loss", "augment", "train", "encode", "index", "ray", "start", "serve", "stores", "search")
# Runnable processes of the last minute below which the machine counts as idle, and seconds that this is waited for.
_IDLE, _PATIENCE = 0.3, 600


def main(names: list[str]) -> None:
    """Measure the benchmarks of these names; all if there are none."""
    if unknown := sorted({*names} - {*NAMES}):
        sys.exit(f"{unknown[0]} is no benchmark; there are {', '.join(NAMES)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        path = FOLDER / f"{name}.json"
        if path.exists():
            print(f"{name}: {path} is there", flush=True)
            continue
        load = wait_until_idle()
        print(f"{name}: begins {time.strftime('%H:%M:%S')}, load {load:.2f}", flush=True)
        command = [sys.executable, "-m", "channelhash", "benchmark", name, "--json"]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            sys.exit(f"{name} ended with {done.returncode}")
        result = {**json.loads(done.stdout), "load_before": load}
        write(path.with_suffix(".md"), table(result))
        write(path, json.dumps(result, indent=1) + "\n")


def wait_until_idle() -> float:
    """Return the load of the last minute once it is low; end the program where it stays high."""
    until = time.monotonic() + _PATIENCE
    while (load := os.getloadavg()[0]) > _IDLE:
        if time.monotonic() > until:
            sys.exit(f"the machine is busy (load {load:.1f}): figures would say nothing")
        time.sleep(5)
    return load


def table(result: dict[str, object]) -> str:
    """Return the rows of a benchmark in Markdown, a column for each key that any of them has.

    >>> print(table({"machine": "two cores", "rows": [{"what": "sum", "seconds": 0.0012, "ratio": None}]}))
    two cores
    <BLANKLINE>
    | what | seconds | ratio |
    |---|---|---|
    | sum | 0.0012 |  |
    <BLANKLINE>
    """
    rows = result["rows"]
    assert isinstance(rows, list)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    head, *body = (
        f"| {' | '.join(line)} |" for line in [keys, *([_cell(row.get(key)) for key in keys] for row in rows)]
    )
    return "\n".join([str(result["machine"]), "", head, "|---" * len(keys) + "|", *body, ""])


def _cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def write(path: Path, content: str) -> None:
    """Write a file under another name, and rename it."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(content, encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    main(sys.argv[1:])
