"""Commands that are stopped by SIGINT or SIGTERM end cleanly and can be continued.

Each command runs once in peace, then it is stopped three times by each signal, some before its imports are done.
The end is right if the exit status is 130 or 143, the last line says what was kept and names a command, and that
command ends well, with the same result and no temporary file. ``KILLS="train,index add" pytest -m slow`` names others.
"""

import hashlib
import itertools
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
#: Temporary files, as the package names them.
TEMPORARY = re.compile(r"\.tmp$|\.partial$|\.journal$")


class Attack(NamedTuple):
    """A command, the files that are its result, and the inputs that it changes (copied for each attack)."""

    words: str
    results: tuple[str, ...]
    changes: tuple[str, ...] = ()


#: Words are those of a command line in a folder that `write_inputs` has filled.
ATTACKS = {
    "train": Attack("train run.yaml --out new", ("new/model/model.safetensors",)),
    "extend": Attack("extend run --data new.npz --out new --set train.epochs=60", ("new/model/model.safetensors",)),
    "distill": Attack("distill run --student features --out new", ("new/model/model.safetensors",)),
    "encode": Attack("encode shown --data items.csv --out codes.parquet", ("codes.parquet",)),
    "encode shards": Attack("encode shown --data images --out codes --shard-items 40", ("codes/*.parquet",)),
    "index create": Attack("index create new.store INPUTS/images --model shown", ("new.store/items",)),
    "index add": Attack("index add photos.store INPUTS/images", ("photos.store/items",), ("photos.store",)),
    "experiment": Attack(
        "experiment losses --config run.yaml --bits 8 --seeds 2 --losses dsch,sch --out grid", ("grid/figures.csv",)
    ),
    "evaluate": Attack("evaluate run", ("run/codes/*.parquet",), ("run",)),
    "serve": Attack("serve photos.store --port 0", (), ("photos.store",)),
}


def write_inputs(folder: Path) -> None:
    """Write features, pictures, configurations, and the runs and the store that the commands work on."""
    draws = np.random.default_rng(0)
    labels = draws.random((600, 6)) < 0.3
    labels[~labels.any(axis=1), 0] = True
    for name, rows in (("f", slice(0, 500)), ("new", slice(500, 600))):
        features = {
            modality: (labels @ np.random.default_rng(width).normal(size=(6, width))).astype(np.float32)[rows]
            for modality, width in (("image", 32), ("text", 16))
        }
        ids = np.array([f"item{row:03d}" for row in range(600)])[rows]
        np.savez(folder / f"{name}.npz", labels=labels[rows], id=ids, **features)
    (folder / "images").mkdir()
    lines = ["id,image,text,labels"]
    for row in range(600):
        pixels = draws.integers(0, 120, (64, 64, 3), dtype=np.uint8)
        pixels[..., row % 3] += 120
        Image.fromarray(pixels).save(folder / "images" / f"{row}.png")
        colour = ("red", "green", "blue")[row % 3]
        lines.append(f"item{row},images/{row}.png,a {colour} picture,{colour}")
    (folder / "items.csv").write_text("\n".join(lines) + "\n")
    train = {"batch_size": 32, "learning_rate": 1e-3, "validate_every": 5, "checkpoint_every": 1}
    features_data = {"kind": "features", "path": str(folder / "f.npz"), "queries": 60, "train": 300}
    pictures_data = {"kind": "table", "path": str(folder / "items.csv"), "queries": 60, "train": 400}
    small = {"name": "small", "n_bits": 16}
    for name, sections in {
        "run": {"data": features_data, "model": {"name": "features", "n_bits": 16}, "train": {**train, "epochs": 60}},
        "short": {"data": features_data, "model": {"name": "features", "n_bits": 16}, "train": {**train, "epochs": 2}},
        "shown": {"data": pictures_data, "model": small, "train": {**train, "epochs": 1}},
    }.items():
        (folder / f"{name}.yaml").write_text(json.dumps({**sections, "loss": {"name": "dsch"}}))
    for words in (
        "train short.yaml --out run",
        "evaluate run",
        "train shown.yaml --out shown",
        f"index create photos.store {folder}/images --model shown",
    ):
        done = _run(words, folder)
        if done.returncode:
            raise SystemExit(f"{words}: {done.stderr}")
    for image in sorted((folder / "images").iterdir())[:100]:  # changed: `index add` has something to do
        Image.open(image).rotate(90).save(image)


def _start(words: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "channelhash", *shlex.split(words)],
        cwd=folder,
        env={**os.environ, "CHANNELHASH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own, as a shell gives it: Ctrl-C goes to all of its processes
    )


def _run(words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end; a server is stopped once it answers."""
    process = _start(words, folder)
    if words.startswith("serve"):
        assert process.stdout is not None
        if process.stdout.readline().startswith("Searching"):
            process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, 0 if process.returncode in (0, 143) else 1, out, error)
    out, error = process.communicate(timeout=1200)
    return subprocess.CompletedProcess(words, process.returncode, out, error)


def _copy(inputs: Path, attack: Attack, folder: Path) -> Path:
    """Return a new folder that shows the inputs; those that the command changes are copies."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for entry in inputs.iterdir():
        if entry.name in attack.changes:
            shutil.copytree(entry, folder / entry.name)
        elif entry.name != "cache":
            (folder / entry.name).symlink_to(entry)
    return folder


def _result(attack: Attack, folder: Path) -> dict[str, str]:
    """Return the hash of each file of the result; of a store, of its items."""
    hashes = {}
    for pattern in attack.results:
        if pattern.endswith(".store/items"):
            from channelhash import open_store

            store = open_store(str(folder / pattern.removesuffix("/items")))
            items = [(item.id, item.codes["image"].tobytes().hex()) for item in store.get(sorted(store.ids()))]
            store.close()
            hashes[pattern] = hashlib.sha256(repr(items).encode()).hexdigest()
        for path in sorted(folder.glob(pattern)):
            content = path.read_bytes()
            if path.suffix in (".csv", ".html"):  # they name the seconds that a run took, or today's date
                content = re.sub(rb"[^\n]*(second|202\d-)[^\n]*", b"", content)
            hashes[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return hashes


def _leftovers(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if not any(part.is_symlink() for part in (path, *path.parents)))
    return [str(path.relative_to(folder)) for path in paths if TEMPORARY.search(path.name)]


def obeys(process: "subprocess.Popen[str]") -> bool:
    """Whether a process has installed a handler of SIGTERM, or has ended."""
    with suppress(OSError):
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
        return caught is None or bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)
    return True


def stop(attack: Attack, folder: Path, number: signal.Signals, seconds: float, twice: bool) -> tuple[str, str]:
    """Stop a command ``seconds`` after its start, and go on; return the kind of its end, and what was wrong with it.

    Ctrl-C goes to all processes of the command, as a terminal sends it, SIGTERM to the first alone. No signal comes
    before the package has begun to run (half a second at the most for a version without handlers).
    """
    began = time.monotonic()
    process = _start(attack.words, folder)
    while not obeys(process) and time.monotonic() - began < 0.5:
        time.sleep(0.002)
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    send = partial(os.killpg, process.pid, number) if number == signal.SIGINT else partial(process.send_signal, number)
    ended = process.poll() is not None
    if not ended:
        send()
        if twice:
            time.sleep(0.05)
            if process.poll() is None:
                send()
    try:
        _, error = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return "goes on", "still ran after 60 s"
    if ended or process.returncode == 0:
        return "had finished", ""
    lines = error.strip().splitlines()
    if "Traceback" in error:
        return "traceback", error[-300:]
    if process.returncode != STATUS[number]:
        return "wrong status", f"{process.returncode} {error[-200:]}"
    if not lines or not lines[-1].startswith("stopped by "):
        return "no line", error[-200:]
    if sum(line.startswith(("stopped by", "error")) for line in lines) != 1:
        return "more lines", error[-300:]
    words = lines[-1].partition("continue with: channelhash ")[2]
    return ("right", words) if words else ("no command", lines[-1])


def go_on(attack: Attack, folder: Path, words: str, whole: dict[str, str]) -> tuple[str, str]:
    """Run a command after an attack; return the kind of its end, and what was wrong with it."""
    done = _run(words, folder)
    if done.returncode:
        return "does not go on", f"{words}: {done.stderr[-300:]}"
    if _result(attack, folder) != whole:
        return "another result", words
    if left := _leftovers(folder):
        return "leftovers", ", ".join(left)
    return "right", ""


def attack(name: str, count: int, seed: int) -> Iterator[tuple[str, str, str]]:
    """Yield (signal, kind of the end, what was wrong) of each attack on a command."""
    with tempfile.TemporaryDirectory() as base:
        inputs, work = Path(base, "inputs"), Path(base, "work")
        inputs.mkdir()
        write_inputs(inputs)
        attack, draws = ATTACKS[name], random.Random(f"{seed} {name}")
        attack = attack._replace(words=attack.words.replace("INPUTS", str(inputs)))
        began = time.monotonic()
        done = _run(attack.words, _copy(inputs, attack, work))
        seconds, whole = time.monotonic() - began, _result(attack, work)
        assert done.returncode == 0, done.stderr
        assert len(whole) >= len(attack.results)
        for number, place in itertools.product(STATUS, range(count)):
            share = 0.0 if place == 0 else draws.uniform(0.05, 1.0)
            if attack.words.startswith("serve"):
                share *= 1.5  # later than its start there is time enough
            folder = _copy(inputs, attack, work)
            kind, wrong = stop(attack, folder, number, share * seconds, twice=place % 3 == 2)
            if kind == "right":
                kind, wrong = go_on(attack, folder, wrong, whole)
            yield f"{number.name} at {share:.2f}", kind, wrong


@pytest.mark.slow
@pytest.mark.parametrize("name", os.environ.get("KILLS", "train").split(","))
def test_a_stopped_command_goes_on_to_the_same_result(name):
    ends = list(attack(name, count=3, seed=0))
    assert [end for end in ends if end[1] not in ("right", "had finished")] == []
    assert any(end[1] == "right" for end in ends)
