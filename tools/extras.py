"""Measure what extras bring: ``python tools/extras.py [none] [photos,serve] …`` prints a table in
Markdown.

For each an empty virtual environment gets the package by a plain ``pip install``, as a user does:
no constraints, and the index that pip is configured for. Where that has PyTorch, the line says
which build came. The download is the sum of the files that pip takes, the installed size that of
the environment less an empty one's (1 MB = 2²⁰ bytes, as `du -m` counts). Times are of this
machine: of ``pip install`` with the files beside it, and of ``import channelhash`` in a new
process, the middle of five. Run it alone.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
#: Extras of the table, without those for work on channelhash itself; the first is the package
#: alone.
SHOWN = ["", *(extra for extra in EXTRAS if extra not in ("docs", "test", "dev"))]


def main(extras: list[str]) -> None:
    """Print a line for each extra."""
    print(
        "| extra | packages | download, MB | installed, MB | `pip install`, s | `import "
        "channelhash`, s |"
    )
    print("|---|---:|---:|---:|---:|---:|", flush=True)
    for extra in extras:
        with tempfile.TemporaryDirectory(prefix="channelhash-extras-") as folder:
            print(measured(extra, Path(folder)), flush=True)


def measured(extra: str, folder: Path) -> str:
    """Return the line of an extra, measured in an empty folder."""
    python, wheels = folder / "venv" / "bin" / "python", folder / "wheels"
    name, brackets = (f"`{extra}`", f"[{extra}]") if extra else ("none", "")
    run(sys.executable, "-m", "venv", str(folder / "venv"))
    empty = installed_bytes(folder / "venv")
    run(
        str(python),
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--wheel-dir",
        str(wheels),
        f"{ROOT}{brackets}",
    )
    files = [file.stat().st_size for file in wheels.iterdir()]
    began = time.perf_counter()
    [own] = wheels.glob("channelhash-*.whl")
    run(
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--find-links",
        str(wheels),
        f"{own}{brackets}",
    )
    seconds = time.perf_counter() - began
    size = installed_bytes(folder / "venv") - empty
    run(str(python), "-m", "pip", "check")
    times = [
        timed(str(python), "-c", "import channelhash") - timed(str(python), "-c", "")
        for _ in range(5)
    ]
    torch = "".join(f", PyTorch {file.name.split('-')[1]}" for file in wheels.glob("torch-*.whl"))
    cells = [len(files), f"{sum(files) / 2**20:,.0f}", f"{size / 2**20:,.0f}", f"{seconds:.0f}"]
    return f"| {name}{torch} | {' | '.join(map(str, cells))} | {statistics.median(times):.2f} |"


def installed_bytes(folder: Path) -> int:
    """Return the bytes that the files of a folder take on the disk, links not followed."""
    files = (file.lstat() for file in folder.rglob("*") if file.is_symlink() or file.is_file())
    return sum(512 * file.st_blocks for file in files)


def timed(*command: str) -> float:
    """Return the seconds of a command."""
    began = time.perf_counter()
    run(*command)
    return time.perf_counter() - began


def run(*command: str) -> None:
    """Run a command; what it printed is shown if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{json.dumps(command)}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    main([argument.removeprefix("none") for argument in sys.argv[1:]] or SHOWN)
