"""Signals: real processes that are stopped at once, in the middle, twice, and where a library
swallows the stop.

Commands that are stopped by SIGINT or SIGTERM end cleanly and can be continued. Each runs once in
peace, then it is stopped three times by each signal, some before its imports are done. The end is
right if the exit status is 130 or 143, the last line says what was kept and names a command, and
that command ends well, with the same result and no temporary file. ``KILLS="train,index add" pytest
-m slow`` names others by what they begin with.
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
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from channelhash import open_store
from picture_runs import write_pictures
from small_runs import write_features
from utils.test_watch import until

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
#: Temporary files, as the package names them.
TEMPORARY = re.compile(r"\.tmp$|\.partial$|\.journal$")


#: A command line in a folder that `write_inputs` has filled -> the pattern of the files that are
#: its result.
ATTACKS = {
    "train run.yaml --out new": "new/model/model.safetensors",
    "encode shown --data images --out codes --shard-items 40": "codes/*.parquet",
    "index create new.store INPUTS/images --encoder shown": "new.store/items",
    "index add photos.store INPUTS/images": "photos.store/items",
}


def write_inputs(folder: Path) -> None:
    """Write features, pictures, configurations, and the runs and the store that the commands work
    on.
    """
    write_features(folder / "f.npz", 500)
    write_pictures(folder, 600)
    features = {"kind": "features", "path": str(folder / "f.npz"), "queries": 60, "train": 300}
    pictures = {"kind": "table", "path": str(folder / "items.csv"), "queries": 60, "train": 400}
    for name, data, model, epochs in (
        ("run", features, "features", 60),
        ("shown", pictures, "small", 1),
    ):
        train = {
            "batch_size": 32,
            "learning_rate": 1e-3,
            "validate_every": 5,
            "checkpoint_every": 1,
            "epochs": epochs,
        }
        sections = {
            "data": data,
            "model": {"name": model, "n_bits": 16},
            "train": train,
            "loss": {"name": "dsch"},
        }
        (folder / f"{name}.yaml").write_text(json.dumps(sections))
    for words in (
        "train shown.yaml --out shown",
        f"index create photos.store {folder}/images --encoder shown",
    ):
        done = _run(words, folder)
        assert done.returncode == 0, f"{words}: {done.stderr}"
    # changed: `index add` has something to do
    for image in sorted((folder / "images").iterdir())[:100]:
        Image.open(image).rotate(90).save(image)


def _start(words: str, folder: Path) -> "subprocess.Popen[str]":
    """Start it in a group of its own, as a shell does: Ctrl-C goes to all of its processes."""
    command = [sys.executable, "-m", "channelhash", *shlex.split(words)]
    environment = {**os.environ, "CHANNELHASH_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder,
                            env=environment, start_new_session=True)  # fmt: skip


def _run(words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command to its end."""
    process = _start(words, folder)
    out, error = process.communicate(timeout=1200)
    return subprocess.CompletedProcess(words, process.returncode, out, error)


def _copy(inputs: Path, folder: Path) -> Path:
    """Return a new folder with the inputs."""
    shutil.rmtree(folder, ignore_errors=True)
    return shutil.copytree(inputs, folder, ignore=shutil.ignore_patterns("cache"))


def _result(pattern: str, folder: Path) -> dict[str, str]:
    """Return the hash of each file of the result; of a store, the code of each item."""
    if pattern.endswith(".store/items"):
        with open_store(folder / pattern.removesuffix("/items")) as store:
            return {item.id: item.codes["image"].tobytes().hex() for item in store.get(store.ids())}
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob(pattern)
    }


def obeys(process: "subprocess.Popen[str]") -> bool:
    """Whether a process has installed a handler of SIGTERM, or has ended."""
    with suppress(OSError):
        caught = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
        return caught is None or bool(int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)
    return True


def stop(words: str, folder: Path, number: signal.Signals, seconds: float, twice: bool) -> str:
    """Stop a command ``seconds`` after its start; return the words of the command that goes on,
    none if it had ended.

    Ctrl-C goes to all processes of the command, as a terminal sends it, SIGTERM to the first alone.
    No signal comes before the package has begun to run.
    """
    began = time.monotonic()
    process = _start(words, folder)
    until(partial(obeys, process))
    time.sleep(max(0.0, seconds - (time.monotonic() - began)))
    ended = process.poll() is not None
    for _ in range(1 + twice):
        if process.poll() is None:
            os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(
                number
            )
            time.sleep(0.05)
    try:
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    if ended or process.returncode == 0:
        return ""
    assert (process.returncode, "Traceback" in error) == (STATUS[number], False), error
    assert [line.startswith("stopped by") for line in error.strip().splitlines()][-1], error
    assert sum(line.startswith(("stopped by", "error")) for line in error.splitlines()) == 1, error
    return error.strip().rpartition("continue with: channelhash ")[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", os.environ.get("KILLS", "train").split(","))
def test_a_stopped_command_goes_on_to_the_same_result(name, tmp_path):
    inputs, work, draws, n_stopped = (
        tmp_path / "inputs",
        tmp_path / "work",
        random.Random(f"0 {name}"),
        0,
    )
    inputs.mkdir()
    write_inputs(inputs)
    attack, pattern = next(pair for pair in ATTACKS.items() if pair[0].startswith(name))
    command = attack.replace("INPUTS", str(inputs))
    began = time.monotonic()
    done = _run(command, _copy(inputs, work))
    seconds, whole = time.monotonic() - began, _result(pattern, work)
    assert (done.returncode, bool(whole)) == (0, True), done.stderr
    for number, place in itertools.product(STATUS, range(3)):
        folder = _copy(inputs, work)
        share = draws.uniform(0.05, 1.0) if place else 0.0
        if words := stop(command, folder, number, share * seconds, twice=place == 2):
            done = _run(words, folder)
            assert done.returncode == 0, f"{words}: {done.stderr}"
            leftovers = [path for path in folder.rglob("*") if TEMPORARY.search(path.name)]
            assert (_result(pattern, folder), leftovers) == (whole, [])
            n_stopped += 1
    assert n_stopped


#: A command of the command line's that is in the middle of its work: it waits for the signal.
WAITING = """
import os, sys, time
from channelhash.cli import main, when_stopped
def wait():
    when_stopped("the half is kept")
    try:
        {body}
    finally:
        print("closed", flush=True)
main.app.command("wait")(wait)
sys.argv = ["channelhash", "wait"]
main.main()
"""
SLEEPING = "print('begun', flush=True); time.sleep(60)"


def begun(body: str = SLEEPING) -> subprocess.Popen[str]:
    """A process that is in the middle of its work."""
    command = [sys.executable, "-c", WAITING.format(body=body)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "begun\n"
    return process


def assert_stopped(
    process: subprocess.Popen[str], number: signal.Signals, out: str, first: int = 0
) -> None:
    """Send a signal; the process ends by it, or by the first one, and says what was kept and how to
    go on.
    """
    process.send_signal(number)
    printed, error = process.communicate(timeout=60)
    assert (process.returncode, printed) == (STATUS[first or number], out)
    name = "Ctrl-C" if (first or number) == signal.SIGINT else "SIGTERM"
    assert error == f"stopped by {name}: the half is kept; continue with: channelhash wait\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("end", ["", "raise ValueError('closing failed') from None", "pass"])
def test_a_stopped_command_closes_its_files_and_says_how_to_go_on(number, end):
    """A stop that becomes another error, or none, is a stop, too."""
    body = f"{SLEEPING}\n    except BaseException: {end}" if end else SLEEPING
    assert_stopped(begun(body), number, "closed\n")


def test_a_second_signal_ends_a_command_that_does_not_come_to_its_end():
    process = begun(
        f"{SLEEPING}\n    except BaseException: print('closing', flush=True); time.sleep(60)"
    )
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "closing\n"
    assert_stopped(process, signal.SIGINT, "")


def test_a_signal_while_python_ends_changes_nothing():
    body = "class Last:\n            def __del__(self, write=os.write, sleep=time.sleep): "
    body += f"write(1, b'last\\n'); sleep(1)\n        main.last = Last(); {SLEEPING}"
    process = begun(body)
    process.send_signal(signal.SIGTERM)
    assert [process.stdout.readline() for _ in range(2)] == ["closed\n", "last\n"]
    assert_stopped(process, signal.SIGINT, "", first=signal.SIGTERM)


def test_a_command_that_only_imports_ends_at_once(tmp_path):
    command = [sys.executable, "-m", "channelhash", "train", "no such file.yaml"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    until(partial(obeys, process))
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == (
        "stopped by Ctrl-C: nothing half is left; continue with: channelhash train 'no such "
        "file.yaml'\n"
    )
