"""Feed damaged files and odd values to the commands that read them, and count how each command ends.

    python tools/attacks/files.py --count 10000 --seed 0

A small valid file of each kind is made with channelhash's own commands; each input is such a file with random damage
(`mutations`), read through the real command line in a process of its own (`command_worker`). A command may succeed
(ok) or refuse in one line (refused). Everything else is a failure: a traceback, a line that admits a bug (bug), an exit
without a sentence (mute), a signal, or no end within 20 seconds (hang). The last line of the output is JSON.
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from command_worker import Worker
from mutations import change_text, mutate
from seeds import make_seeds, pick_line

FAILURES = ("bug", "traceback", "mute", "signal", "hang")
OUTCOMES = ("ok", "refused", *FAILURES)


class Kind(NamedTuple):
    """One kind of input.

    Attributes:
        folder: folder of valid files below that of the seeds; copied for each input.
        files: patterns of the files in it that are damaged, one for each input.
        commands: commands that read them, one for each input. ``{file}`` is the damaged file, ``{seeds}`` the folder of
            all valid files, ``{value}`` a damaged line of the file.
        weight: share of the inputs: quick commands are asked more often.
    """

    folder: str
    files: tuple[str, ...]
    commands: tuple[str, ...]
    weight: float = 1.0


def _describe(kind: str, *settings: str) -> tuple[str, ...]:
    command = f"data describe {kind} " + " ".join(settings)
    return command, f"{command} --skip-bad"


_TABLE = _describe("table", "--path {file}")
_FEATURES = _describe("features", "--path {file}")
_CODES = "evaluate --codes {file}"
_ENCODE = "encode {seeds}/run/run --data {file} --out {here}/out"
_SEARCH = "search photos.store --like images/0.png -k 3"

KINDS: dict[str, Kind] = {
    "csv": Kind("tables", ("items.csv",), _TABLE),
    "tsv": Kind("tables", ("items.tsv",), _TABLE),
    "jsonl": Kind("tables", ("items.jsonl",), _TABLE),
    "parquet table": Kind("tables", ("items.parquet",), _TABLE, 2),
    "parquet bulk": Kind("tables", ("bulk/*",), (_ENCODE,), 2),
    "parquet features": Kind("tables", ("vectors/*",), (_ENCODE.replace("/run/run", "/plain/run"),)),
    "parquet codes": Kind(
        "codes", ("*.parquet",), ("evaluate --query {file} --database {file}", "search {file} --like i00"), 2
    ),
    "npz": Kind("arrays", ("features.npz",), _FEATURES, 2),
    "hdf5": Kind("arrays", ("features.h5",), _FEATURES),
    "mat": Kind("arrays", ("features.mat",), _FEATURES, 2),
    "mat 7.3": Kind("arrays", ("seven.mat",), _FEATURES),
    "foreign codes": Kind("arrays", ("codes.mat", "codes.npz"), (_CODES,)),
    "tar": Kind("shards", ("*.tar",), (_ENCODE,), 3),
    "coco": Kind("coco", ("*.json",), _describe("coco", "--set instances=instances.json --set captions=captions.json")),
    "nuswide": Kind("nuswide", ("**/*.txt",), _describe("nuswide", "--root . --set require_pictures=false")),
    "mirflickr": Kind("mirflickr", ("**/*.txt",), _describe("mirflickr25k", "--root . --set min_tag_count=1")),
    "yaml": Kind(
        "configs",
        ("config.yaml",),
        (
            "call:readers:read_configuration config.yaml",
            "index create s.store config.yaml --model {seeds}/plain/run",
        ),
        2,
    ),
    "training": Kind(
        "configs", ("config.yaml",), ("train config.yaml --out run --set train.epochs=1 --set train.workers=0",), 0.3
    ),
    "set": Kind("values", ("set.value",), ("call:readers:override_configuration {seeds}/configs/config.yaml {value}",)),
    "where": Kind(
        "store", ("values/where.value",), (f"{_SEARCH} --where {{value}}", "index delete photos.store --where {value}")
    ),
    "numbers": Kind(
        "values",
        ("number.value",),
        (
            "search {seeds}/run/run --like i00 -k {value}",
            "search {seeds}/run/run --like i00 --radius {value}",
        ),
    ),
    "names": Kind(
        "values",
        ("name.value", "text.value"),
        (
            "search {seeds}/run/run --like {value}",
            "search {seeds}/run/run --text {value}",
            "search {seeds}/run/run --image {value}",
            "evaluate {value}",
            "data explain-text {value}",
            "evaluate --codes {seeds}/arrays/codes.npz --task {value}",
            "evaluate --codes {seeds}/arrays/codes.npz --array {value}",
        ),
    ),
    "model config": Kind("model", ("config.json",), ("search {seeds}/codes/codes.parquet --text red --model .",), 2),
    "feature model": Kind("textmodel", ("*",), ("encode . --data {seeds}/arrays/features.npz --out o.parquet",)),
    "weights": Kind("model", ("*.safetensors",), ("encode . --data {seeds}/pictures/items.csv --out o.parquet",)),
    "word vectors": Kind("words", ("words.*", "glove.txt"), ("call:readers:read_word_vectors {file}",), 2),
    "texts": Kind("words", ("texts.txt",), ("data explain-text --file {file}",)),
    "onnx": Kind("onnx", ("*.onnx",), ("call:readers:onnx_features {file}",)),
    "archives": Kind("archives", ("*",), ("call:readers:unpacked {file}",)),
    "images": Kind("photos", ("*",), ("search {seeds}/run/run --image {file} -k 2", "data preview . --pictures 9"), 2),
    "faiss": Kind("faiss", ("*",), ("index import-faiss {here}/new.store photos.faiss",), 2),
    "store file": Kind("store", ("photos.store/store.json",), (_SEARCH, "index info photos.store")),
    "database": Kind("store", ("photos.store/items.sqlite",), (_SEARCH, "index info photos.store"), 2),
    "store model": Kind("store", ("photos.store/model/*",), ("search photos.store --text red",)),
    "run": Kind(
        "run",
        ("run/*.*", "run/checkpoints/last.pt", "run/codes/*", "run/model/config.json"),
        (
            "report run",
            "evaluate run",
            "search run --like i00",
            "train {seeds}/small.yaml --out run --resume",
            "explain run --like i00 --like i01 --no-maps",
        ),
    ),
    "grid": Kind("grid", ("grid/*.json", "grid/*.csv", "grid/runs/*/*.*", "grid/tables/*"), ("report grid",)),
    "job": Kind(
        "job", ("codes/job/*.json", "codes/*.parquet"), ("encode {seeds}/run/run --data {seeds}/shards --out codes",)
    ),
}


class Input(NamedTuple):
    """One damaged input, and how its command ended."""

    number: int
    kind: str
    command: list[str]
    outcome: str
    said: str


def attack(
    count: int,
    seed: int,
    folder: Path,
    kinds: list[str] | None = None,
    keep: Path | None = None,
    verbose: bool = False,
    first: int = 0,
) -> list[Input]:
    """Run ``count`` damaged inputs, each drawn from ``seed`` and its number; the same numbers give the same inputs.

    Args:
        count: number of inputs.
        seed: of all draws.
        folder: folder of the valid files, made once, and of copies.
        kinds: the kinds to draw from; all by default.
        keep: folder to copy inputs to whose command failed.
        verbose: print failures as they come.
        first: number of the first input.
    """
    names = kinds or list(KINDS)
    done = []
    seconds: dict[str, float] = {}
    with Worker() as worker:
        seeds = make_seeds(folder / "seeds", worker)
        others = sorted(path for path in seeds.rglob("*") if path.is_file() and path.stat().st_size < 100_000)
        for number in range(first, first + count):
            rng = random.Random(f"{seed} {number}")
            name = rng.choices(names, [KINDS[name].weight for name in names])[0]
            here = folder / "here"
            shutil.rmtree(here, ignore_errors=True)
            arguments = _prepare(KINDS[name], seeds, here, rng, others)
            start = time.perf_counter()
            result = worker.run(arguments, here)
            done.append(Input(number, name, arguments, result["outcome"], result["error"] or result["trace"]))
            if result["outcome"] in FAILURES:
                if result["outcome"] == "bug":
                    result = (
                        worker.run([*arguments, "--debug"], here) if not arguments[0].startswith("call:") else result
                    )
                if keep:
                    shutil.copytree(here, keep / f"{seed}-{number}", dirs_exist_ok=True)
                if verbose:
                    lines = [line.strip() for line in (result["trace"] or result["error"]).strip().splitlines()]
                    print(
                        number, name, done[-1].outcome, " ".join(arguments)[-150:], "::", " | ".join(lines[-7:])[-900:]
                    )
            seconds[name] = seconds.get(name, 0) + time.perf_counter() - start
    if verbose:
        print("seconds:", {name: round(value) for name, value in sorted(seconds.items(), key=lambda pair: -pair[1])})
    return done


def refused_valid(folder: Path) -> list[str]:
    """Return each kind with a command that does not take the valid file: its damage would not be seen."""
    refused = []
    with Worker() as worker:
        seeds = make_seeds(folder / "seeds", worker)
        for name, kind in KINDS.items():
            for command in kind.commands:
                shutil.rmtree(folder / "here", ignore_errors=True)
                words = _prepare(kind, seeds, folder / "here", random.Random(0), [], command, damage=False)
                result = worker.run(words, folder / "here")
                if result["outcome"] != "ok":
                    refused.append(f"{name}: {' '.join(words)}: {result['error'] or result['trace']}")
    return refused


def _prepare(
    kind: Kind, seeds: Path, here: Path, rng: random.Random, others: list[Path], command: str = "", damage: bool = True
) -> list[str]:
    """Copy the valid files of a kind into ``here``, damage one and return the words of a command that reads it."""
    shutil.copytree(seeds / kind.folder, here)
    file = rng.choice(sorted(path for pattern in kind.files for path in here.glob(pattern) if path.is_file()))
    value = ""
    if not damage:
        value = file.read_text().split("\n")[0] if file.suffix == ".value" else ""
    elif file.suffix == ".value":
        value = pick_line(file.read_text(), rng)
        if rng.random() < 0.9:
            value = change_text(value.encode(), rng).decode("utf-8", "surrogateescape")
        value = value.replace("\0", "")[:100_000]  # no command line can hold those
    else:
        for _ in range(rng.choice((1, 1, 1, 2))):
            mutate(file, rng, others)
    command = command or rng.choice(kind.commands)
    places = {"{file}": str(file), "{seeds}": str(seeds), "{here}": str(here)}
    words = []
    for word in command.split():
        for place, text in places.items():
            word = word.replace(place, text)
        words.append(word.replace("{value}", value))
    return words


def table(done: list[Input]) -> dict[str, dict[str, int]]:
    """Count the outcomes of each kind, and of all."""
    counts: dict[str, Counter[str]] = {}
    for one in done:
        counts.setdefault(one.kind, Counter())[one.outcome] += 1
    rows = {name: counts[name] for name in KINDS if name in counts}
    total: Counter[str] = sum(rows.values(), Counter())
    return {name: {outcome: row[outcome] for outcome in OUTCOMES} for name, row in {**rows, "all": total}.items()}


def main() -> None:
    """Parse the command line, attack, print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input, to repeat some of them")
    parser.add_argument("--kinds", help="kinds of input, separated by commas; all by default")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that failed")
    parser.add_argument("--folder", type=Path, help="folder for the valid files, to use them again")
    parser.add_argument("--quiet", action="store_true", help="print no failures")
    given: Any = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        kinds = given.kinds.split(",") if given.kinds else None
        counts = table(attack(given.count, given.seed, folder, kinds, given.keep, not given.quiet, given.first))
    print(f"{'kind':<16}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES))
    for name, row in counts.items():
        print(f"{name:<16}" + "".join(f"{number:>10}" for number in row.values()))
    print(
        json.dumps(
            {"seed": given.seed, "count": given.count, "seconds": round(time.perf_counter() - start), **counts["all"]}
        )
    )


if __name__ == "__main__":
    main()
