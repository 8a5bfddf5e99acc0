"""Damaged files and odd values, and folders that name code of this machine, through the real
commands.

A valid file of each kind is damaged at random, as bytes and within its format; a command reads it
in a process of its own, and succeeds (ok) or refuses in one line (refused); everything else is a
failure. A forged folder is whole: with consent its code runs and leaves a mark; without, one line
names the code. ``DAMAGES=10000 pytest -s -m slow`` counts more of them.
"""

import contextlib
import io
import json
import multiprocessing
import os
import random
import re
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from scipy.io import loadmat, savemat

import channelhash as ch
from bulk.made_inputs import write_tar
from channelhash.cli import main as command_line
from channelhash.errors import InputError
from channelhash.serve.app import open_app
from channelhash.serve.service import Limits
from channelhash.utils.typed_settings import trusting
from picture_runs import picture_config, write_pictures
from small_runs import feature_config, run_command, write_features

_SECONDS, _MEMORY = 20, 4 << 30

# Damage

PIECES = """
1e308 -1 0 nan inf 1e999 99999999999999999999 0x1f 1_000 1:30 2020-13-45 null true ~ [] {} [ { } ( : , !!binary
!!python/object:os.system &a *a --- > ' " \\ .. % # {0} %s \\ud800 \\u0000 é 漢 😀 id labels image text ٣ ½ Infinity
""".split()  # noqa: SIM905
PIECES += ["\x00", "\t", "\u2028", "\ufeff", "\r\n", ""]
PIECES += ["9" * 5000, "[" * 20000, "{" * 500, "a" * 70000, '{"a":' * 20000]

VALUES: list[Any] = [
    None,
    True,
    [],
    {},
    "",
    "é\x00",
    -1,
    2**31,
    2**64,
    10**400,
    1.5,
    [[]],
    float("nan"),
    "\ud800",
]
_SQL = (
    "UPDATE items SET metadata = '{'",
    "UPDATE items SET metadata = x'ff'",
    "UPDATE items SET id = x'ff'",
    "UPDATE codes SET code = x'00'",
    "UPDATE codes SET code = 'text'",
    "UPDATE codes SET item = 99999",
    "DELETE FROM state",
    "UPDATE state SET snapshot = '../..'",
    "DROP TABLE codes",
    "DROP TABLE items",
    "INSERT INTO labels VALUES (x'ff', 1)",
    "PRAGMA user_version = 99",
    "PRAGMA application_id = 1",
)


def damage(path: Path, rng: random.Random) -> None:
    """Change one file in place, within its format where that is known."""
    before = path.read_bytes()
    if (inside := INSIDE.get(path.suffix)) and rng.random() < 0.6:
        # what was damaged before may not be readable here either
        with contextlib.suppress(Exception):
            inside(path, rng)
            return
    text = path.suffix in (".csv", ".tsv", ".jsonl", ".json", ".yaml", ".txt")
    path.write_bytes((change_text if text and rng.random() < 0.7 else change_bytes)(before, rng))


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with bits flipped, or a piece inserted, removed, repeated, cut or
    overwritten.
    """
    at, kind = rng.randrange(len(data) + 1), rng.randrange(8)
    end = min(len(data), at + 2 ** rng.randrange(12))
    if kind < 3 and data:
        flipped = bytearray(data)
        for _ in range(rng.choice((1, 1, 1, 8, 64))):
            flipped[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    number = rng.choice((1, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**63)).to_bytes(
        8, rng.choice(("little", "big"))
    )
    middle = (
        rng.randbytes(20),
        b"",
        data[at:end] * 30,
        b"\xff" * (end - at),
        number,
        b"\xed\xa0\x80",
    )
    return (
        data[:at] if kind == 3 else data[:at] + rng.choice(middle) + data[rng.choice((at, end)) :]
    )


def change_text(data: bytes, rng: random.Random) -> bytes:
    """Return text with words and numbers replaced, doubled, or joined by odd pieces."""
    parts = re.split(rb"([\w.+-]+)", data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place, piece = (
            rng.randrange(len(parts)),
            rng.choice(PIECES).encode("utf-8", "surrogatepass"),
        )
        parts[place] = rng.choice(
            (piece, parts[place] + piece, b"", parts[rng.randrange(len(parts))])
        )
    return b"".join(parts)


def change_value(value: Any, rng: random.Random) -> Any:
    """Return a nested value with one part replaced, removed, repeated or wrapped."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key, kind = rng.choice(list(value)), rng.randrange(8)
        if kind < 2:
            return {name: part for name, part in value.items() if name != key} | {
                "x" * kind: 1
            } * kind
        return {**value, key: change_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = rng.randrange(len(value))
        return [
            *value[:place],
            *[change_value(value[place], rng)] * rng.randrange(3),
            *value[place + 1 :],
        ]
    return rng.choice((*VALUES, [value], {"a": value}, str(value)))


def change_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    """Return an array of another shape, type or content."""
    if rng.random() < 0.3:
        return array.astype(
            rng.choice(("float16", "int64", "complex64", "uint8", "bool", "U3", "S2", "M8[s]"))
        )
    odd = [
        array[:0],
        array.ravel(),
        array[None],
        array[:-1],
        array[..., :-1],
        array.T,
        np.array([b"\xff\xfe", b"a"]),
    ]
    odd += [
        np.full(array.shape, value) for value in (float("nan"), float("inf"), -(2**63), 1e308, "x")
    ]
    return rng.choice([*odd, np.array(-1), np.zeros(array.shape, [("a", "i4"), ("b", "f8")])])


def _in_json(path: Path, rng: random.Random) -> None:
    load, dump = (
        (yaml.safe_load, yaml.safe_dump) if path.suffix == ".yaml" else (json.loads, json.dumps)
    )
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    place = rng.randrange(len(lines))
    lines[place] = dump(change_value(load(lines[place]), rng))
    path.write_text("\n".join(lines))


def _in_arrays(path: Path, rng: random.Random) -> None:
    of_numpy = np.load, lambda file, arrays: np.savez(file, **arrays)
    load, save = of_numpy if path.suffix == ".npz" else (loadmat, savemat)
    arrays = {
        name: np.asarray(value)
        for name, value in dict(load(path)).items()
        if not name.startswith("__")
    }
    name = rng.choice(list(arrays))
    save(path, arrays | {name: change_array(arrays[name], rng)})


def _in_parquet(path: Path, rng: random.Random) -> None:
    table = pq.read_table(path)
    place, facts = rng.randrange(table.num_columns), dict(table.schema.metadata or {})
    if facts and rng.random() < 0.4:
        key = rng.choice(list(facts))
        table = table.replace_schema_metadata({**facts, key: change_text(facts[key], rng)})
    else:
        name = rng.choice(
            (table.column_names[place], table.column_names[place], "id", "code_image", *PIECES[:30])
        )
        odd = (
            None,
            [None, 1.5],
            {"bytes": None},
            [["a"]],
            2**63 - 1,
            b"\xff",
            True,
            ["a", None],
            datetime.max,
        )
        table = table.set_column(place, name, pa.array([rng.choice(odd)] * table.num_rows))
    pq.write_table(table, path)


def _in_sqlite(path: Path, rng: random.Random) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(rng.choice(_SQL))


#: File ending -> change within the format, so that the damage gets past the first check.
INSIDE: dict[str, Callable[[Path, random.Random], None]] = {
    **dict.fromkeys((".json", ".jsonl", ".yaml"), _in_json),
    **dict.fromkeys((".npz", ".mat"), _in_arrays),
    ".parquet": _in_parquet,
    ".sqlite": _in_sqlite,
}

# Valid files, and commands that read them


def make_seeds(root: Path) -> Path:
    """Write a valid file of each kind below a new folder."""
    write_pictures(root / "pictures", 24)
    for folder in ("tables", "arrays", "shards", "photos"):
        (root / folder).mkdir()
    rows = [
        {"id": f"i{i}", "text": f"a red one, é {i}", "labels": f"red;{i % 3}"} for i in range(24)
    ]
    lines = ["id,text,labels", *(f'{row["id"]},"{row["text"]}",{row["labels"]}' for row in rows)]
    (root / "tables/items.csv").write_text("\n".join(lines))
    (root / "tables/items.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pq.write_table(pa.Table.from_pylist(rows), root / "tables/items.parquet")
    arrays = dict(np.load(write_features(root / "arrays/features.npz", 24)))
    mat = {"IAll": arrays["image"], "YAll": arrays["text"], "LAll": arrays["labels"] * 1.0}
    savemat(root / "arrays/features.mat", mat)
    signs, labels = np.sign(arrays["image"][:, :8]), arrays["labels"] * 1
    both = {"B_q": signs[:9], "B_r": signs[9:], "L_q": labels[:9], "L_r": labels[9:]}
    savemat(root / "arrays/codes.mat", both, do_compression=True)
    np.savez(root / "arrays/codes.npz", **both)
    pictures = [(root / f"pictures/images/{i}.png").read_bytes() for i in range(4)]
    write_tar(
        root / "shards/0.tar", {str(i): {"png": pictures[i], "txt": b"a red one"} for i in range(4)}
    )
    for ending in ("png", "jpg", "webp", "gif", "bmp", "tiff"):
        Image.new("RGB", (12, 9), "red").save(root / "photos" / f"a.{ending}")
    model = {"name": "small", "n_bits": 8, "image_size": 16, "width": 8}
    picture_config(
        root / "small.yaml", root / "pictures/items.csv", model, epochs=1, batch_size=4, workers=0
    )
    small = json.loads((root / "small.yaml").read_text())
    small["data"] |= {"queries": 6, "train": 8, "validation_queries": 4}
    (root / "small.yaml").write_text(json.dumps(small))
    features = feature_config(
        root / "features.yaml", root / "arrays/features.npz", epochs=1, batch_size=4, workers=0
    )
    plain = json.loads(features.read_text())
    plain["data"] |= {"queries": 6, "train": 8}
    (root / "plain.yaml").write_text(yaml.safe_dump(plain))
    run, store = root / "run/run", root / "store/photos.store"
    for words in (
        ("train", root / "small.yaml", "--out", run),
        ("evaluate", run),
        ("train", root / "plain.yaml", "--out", root / "plain/run"),
        ("index", "create", store, root / "pictures", "--encoder", run),
        (
            "encode",
            run,
            "--data",
            root / "pictures/items.csv",
            "--out",
            root / "codes/codes.parquet",
        ),
        ("encode", run, "--data", root / "shards", "--out", root / "job/codes"),
    ):
        assert run_command(*words) == 0, words
    return root


_ENCODE = "encode {seeds}/run/run --data {file} --out {here}/out"
_SEARCH = "search photos.store --like images/0.png -k 3"


_TABLE = ("data describe table --data {file}", "data describe table --data {file} --skip-bad")
_FEATURES = ("data describe features --data {file}",)
#: Kind -> a folder of valid files that is copied, which of them are damaged, and the commands that
#: read them.
KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    **{ending: ("tables", f"items.{ending}", _TABLE) for ending in ("csv", "jsonl", "parquet")},
    **{ending: ("arrays", f"features.{ending}", _FEATURES) for ending in ("npz", "mat")},
    "foreign codes": ("arrays", "codes.*", ("evaluate --codes {file}",)),
    "bulk": ("tables", "items.parquet", (_ENCODE,)),
    "tar": ("shards", "*.tar", (_ENCODE,)),
    "codes": (
        "codes",
        "*.parquet",
        ("evaluate --query {file} --database {file}", "search {file} --like item001"),
    ),
    "image": ("photos", "*", ("search {seeds}/run/run --image {file} -k 2",)),
    "model": (
        "plain/run/model",
        "*",
        ("encode . --data {seeds}/arrays/features.npz --out o.parquet",),
    ),
    "store": (
        "store",
        "photos.store/**/*",
        (_SEARCH, "index info photos.store", "search photos.store --text red"),
    ),
    "run": (
        "run",
        "run/**/*",
        ("report run", "evaluate run", "train {seeds}/small.yaml --out run --resume"),
    ),
    "job": ("job", "codes/**/*", ("encode {seeds}/run/run --data {seeds}/shards --out codes",)),
}


def _prepared(kind: str, seeds: Path, here: Path, rng: random.Random | None) -> list[str]:
    """Copy the valid files of a kind, damage one if ``rng`` is given, and return the words of a
    command.
    """
    folder, pattern, commands = KINDS[kind]
    shutil.copytree(seeds / folder, here)
    files = sorted(path for path in here.glob(pattern) if path.is_file() and path.name != ".lock")
    file, command = (rng.choice(files), rng.choice(commands)) if rng else (files[0], commands[0])
    if rng:
        damage(file, rng)
    named = {"{file}": str(file), "{seeds}": str(seeds), "{here}": str(here)}
    return [re.sub(r"\{\w+\}", lambda place: named[place[0]], word) for word in command.split()]


def _child(words: list[str], here: Path, log: Path) -> None:
    """Run a command in this forked process, whose output goes to a file."""
    import resource

    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = sys.stderr = os.fdopen(2, "w", 1, closefd=False)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    os.chdir(here)
    sys.argv = ["channelhash", *words]
    command_line.main()


# What the server has imported costs its forks nothing.
_PACKAGE = Path(ch.__file__).parent
_MODULES = [
    ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)
    for path in _PACKAGE.rglob("*.py")
]
_MODULES = [name for name in _MODULES if not name.endswith("__")]


def outcome_of(words: list[str], here: Path) -> tuple[str, str]:
    """Run a command in a process of its own; return how it ended, and what it said last."""
    fork = multiprocessing.get_context("forkserver")
    fork.set_forkserver_preload(_MODULES)
    log = here.with_name("log")
    process = fork.Process(target=_child, args=(words, here, log))
    process.start()
    process.join(9 * _SECONDS)  # other programs may use the machine, too
    hung = process.is_alive()
    process.kill()
    process.join()
    said = log.read_text(errors="replace") if log.exists() else ""
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    code = process.exitcode or 0
    if hung or code < 0 or "Traceback (most recent call last)" in said or "this is a bug" in said:
        return "hang" if hung or code == -24 else "crash", f"{code} {said[-2000:]}"
    refused = len(errors) == 1 or (code == 2 and "Error: " in said)
    return "ok" if code == 0 else "refused" if refused else "mute", said[-600:]


# Code that a folder names

_CODE = """
from pathlib import Path
Path("mark").touch()
import numpy as np
from channelhash.data import DATA_KINDS
from channelhash.losses import LOSSES
from channelhash.models import MODELS
MODEL, LOSS, DATA = MODELS["features"], LOSSES["dsch"], DATA_KINDS["features"]
def text(items):
    Path("mark").touch()
    return np.ones((len(items), 12))
"""
#: What is forged: the name, and the keys of a run's configuration that it takes the place of.
FORGED = {
    "model": ("python:forged_code:MODEL", ("model", "name")),
    "extractor": ("python:forged_code:text", ("model", "extractors", "text")),
    "loss": ("python:forged_code:LOSS", ("loss", "name")),
    "data": ("python:forged_code:DATA", ("data", "kind")),
}
_CODED = ("model", "extractor")


def _serve(store: Path, trust_code: bool) -> None:
    with trusting(trust_code):
        # which loads the model
        open_app({"": str(store)}, None, Limits(), None, None).state.service.encoding.result()


#: Function of the package -> how it reads a forged run.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "load_model": lambda run, **consent: ch.load_model(run / "model", **consent).encode_texts(
        ["a dog"]
    ),
    "ch.evaluate": lambda run, **consent: ch.evaluate(run, **consent),
    "ch.index": lambda run, **consent: ch.index(
        run.parents[1] / "f.npz", run.with_name("n"), model=run, **consent
    ),
    "ch.explain": lambda run, **consent: ch.explain(
        run, texts=["a", "b"], settings=None, **consent
    ),
    "serve": lambda run, trust_code=False: _serve(run.with_name("run.store"), trust_code),
}
_PAIR = "--text dog --text sea --no-maps"
#: Command or function -> the kinds of names that it meets; the last four train or compile.
ENTRIES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("evaluate RUN", "evaluate RUN --checkpoint best", "report RUN", "ch.evaluate"),
        tuple(FORGED),
    ),
    **dict.fromkeys(
        ("search RUN --text dog", "search STORE --text dog", f"explain RUN {_PAIR}", "ch.explain"),
        _CODED,
    ),
    **dict.fromkeys(
        ("search STORE --text dog --model BEST", f"explain STORE {_PAIR}", "load_model", "serve"),
        _CODED,
    ),
    **dict.fromkeys(
        ("index create OUT DATA --encoder RUN", "index add STORE NEW", "ch.index"), _CODED
    ),
    "encode RUN --data DATA --out c.parquet": _CODED,
    "train PLAIN --out RUN --resume": tuple(FORGED),
    "extend RUN --data NEW --out OUT": tuple(FORGED),
    "train EXTENDING --out OUT": ("model", "data"),
    "distill RUN --student features --out OUT": tuple(FORGED),
    "export RUN --onnx --out OUT": _CODED,
}
CASES = [(kind, entry) for entry, kinds in ENTRIES.items() for kind in kinds]
QUICK = [("loss", "evaluate RUN"), ("extractor", "search STORE --text dog"), ("model", "ch.index")]


def write_honest(place: Path) -> Path:
    """Write features, a run and a store of it, and the configuration of a run that extends it."""
    for name, prefix in (("f", "item"), ("new", "n")):
        arrays = dict(np.load(write_features(place / "f.npz", 80)))
        np.savez(
            place / f"{name}.npz",
            **arrays | {"id": np.array([f"{prefix}{i:03}" for i in range(80)])},
        )
    config = feature_config(place / "p.json", place / "f.npz", epochs=1, batch_size=20, workers=0)
    plain = json.loads(config.read_text())
    plain["data"] |= {"queries": 10, "train": 40, "path": str(place / "f.npz")}
    (place / "plain.yaml").write_text(yaml.safe_dump(plain))
    ch.train(place / "plain.yaml", out=place / "honest")
    ch.evaluate(place / "honest")
    shutil.copytree(place / "honest/model", place / "honest/checkpoints/best", dirs_exist_ok=True)
    ch.index(place / "f.npz", place / "honest.store", model=place / "honest").store.close()
    return place


def _put(file: Path, keys: tuple[str, ...], name: str) -> None:
    values = yaml.safe_load(file.read_text())
    inner = values
    for key in keys[:-1]:
        inner[key] = inner.get(key) or {}
        inner = inner[key]
    inner[keys[-1]] = name
    values.pop("checksum", None)  # as whoever changes the file can
    file.write_text(json.dumps(values) if file.suffix == ".json" else yaml.safe_dump(values))


def consent_outcome(place: Path, kind: str, entry: str, consent: bool) -> str:
    """Run one case in a new folder: the code ran, one line names it (refused), or the job goes on
    without it (left).
    """
    name, keys = FORGED[kind]
    folder = Path(tempfile.mkdtemp(dir=place))
    run, store, message = folder / "run", folder / "run.store", ""
    shutil.copytree(place / "honest", run)
    shutil.copytree(place / "honest.store", store)
    _put(run / "config.yaml", keys, name)
    for model in (
        (run / "model", run / "checkpoints/best", store / "model") if kind in _CODED else ()
    ):
        _put(
            model / "config.json",
            ("name",) if kind == "model" else ("architecture", "extractors", "text"),
            name,
        )
    extending = yaml.safe_load((place / "plain.yaml").read_text()) | {"extend": {"run": str(run)}}
    extending["data"]["path"] = str(place / "new.npz")
    (folder / "extending.yaml").write_text(yaml.safe_dump(extending))
    files = {
        "RUN": run,
        "STORE": store,
        "DATA": place / "f.npz",
        "NEW": place / "new.npz",
        "OUT": folder / "out",
    }
    files |= {
        "PLAIN": place / "plain.yaml",
        "BEST": run / "checkpoints/best",
        "EXTENDING": folder / "extending.yaml",
    }
    (folder / "forged_code.py").write_text(_CODE)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend("")  # what a person's own folder is to `python -m`
        patch.delitem(sys.modules, "forged_code", raising=False)
        try:
            if entry in _FUNCTIONS:
                _FUNCTIONS[entry](run, **{"trust_code": True} if consent else {})
            else:
                errors = io.StringIO()
                with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
                    words = [files.get(word, word) for word in entry.split()]
                    status = run_command(*words, *["--trust-code"] * consent)
                message = errors.getvalue().strip().splitlines()[-1] if status else ""
        except InputError as error:
            message = str(error)
        sys.modules.pop("forged_code", None)
        if Path("mark").exists():
            return "ran"
    if message and name in message and not consent:
        return "refused"
    return message or "left"


# Tests

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return write_honest(tmp_path_factory.mktemp("consent").resolve())


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    return make_seeds(tmp_path_factory.mktemp("hostile").resolve())


@pytest.mark.parametrize(
    ("kind", "entry"),
    [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES if case not in QUICK)],
)
def test_code_that_a_folder_names_runs_by_consent_only(honest, kind, entry):
    assert consent_outcome(honest, kind, entry, consent=False) == (
        "left" if entry == "report RUN" else "refused"
    )
    if not entry.endswith("--resume"):  # which reads only files of what was asked for
        outcome = consent_outcome(honest, kind, entry, consent=True)
        assert outcome == "ran" or (kind == "extractor" and outcome == "left")


@pytest.mark.slow
def test_damaged_inputs_end_in_a_result_or_one_line(seeds, tmp_path):
    outcomes, failures = Counter(), []
    for name in KINDS:
        words = _prepared(name, seeds, tmp_path / name, None)
        assert outcome_of(words, tmp_path / name)[0] == "ok", words
    for number in range(int(os.environ.get("DAMAGES", "600"))):
        rng = random.Random(f"1 {number}")
        shutil.rmtree(tmp_path / "here", ignore_errors=True)
        words = _prepared(rng.choice(list(KINDS)), seeds, tmp_path / "here", rng)
        outcome, said = outcome_of(words, tmp_path / "here")
        outcomes[outcome] += 1
        if outcome not in ("ok", "refused"):
            failures.append(f"{number} {outcome} {' '.join(words)[:300]}: {said}")
    print(outcomes)
    assert failures == []
