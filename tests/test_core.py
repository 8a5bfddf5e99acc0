"""The core runs without what extras install: codes, metrics, searches, stores and the server import none of it."""

import os
import subprocess
import sys

import numpy as np
import pytest

import channelhash as ch
from channelhash.errors import InputError
from channelhash.utils.optional_imports import EXTRAS, naming_extra

# Runs commands, one a line, with the packages of the first argument blocked; a second exit status ends it.
SCRIPT = """
import shlex, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked = sys.argv[1].split()
sys.meta_path.insert(0, Blocked())
import channelhash, channelhash.codes, channelhash.metrics, channelhash.search.query, channelhash.serve.factory
import channelhash.explanation, channelhash.data, channelhash.serve.server
from channelhash.cli.main import main

for line in sys.argv[2:]:
    sys.argv = ["channelhash", *shlex.split(line)]
    print("$", line, flush=True)
    try:
        main()
    except SystemExit as ended:
        print("exit", ended.code, flush=True)
assert not set(blocked) & {name.partition(".")[0] for name in sys.modules}
channelhash.train
"""
BLOCKED = [*EXTRAS["train"], *EXTRAS["clip"], *EXTRAS["photos"], *EXTRAS["report"]]


def test_the_core_evaluates_and_searches_without_the_packages_of_extras(tmp_path):
    random = np.random.default_rng(0)
    for name, n in (("q", 4), ("d", 30)):
        codes = {"image": random.integers(0, 256, (n, 2), np.uint8)}
        ch.CodeSet([f"{name}{i}" for i in range(n)], codes, random.random((n, 3)) < 0.5, n_bits=16).save(
            tmp_path / f"{name}.parquet"
        )
    commands = [
        "--help",
        "evaluate --query q.parquet --database d.parquet --json",
        "search d.parquet --like d3 -k 1 --json",
        "search d.parquet dog",
        "duplicates d.parquet --json",
        "index info d.parquet --json",
        "train --dry-run",
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, " ".join(BLOCKED), *commands],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    answers = [part.strip().splitlines() for part in done.stdout.split("$ ")[1:]]
    assert [answer[-1] for answer in answers] == [*["exit 0"] * 3, "exit 2", *["exit 0"] * 2, "exit 2"], done.stderr
    assert '"id": "d3"' in "".join(answers[2])
    first, second = (line for line in done.stderr.splitlines() if line.startswith("error: "))
    assert first.startswith("error: d.parquet: to encode a question, add --model")
    assert second == "error: this needs torch, which is not installed: pip install 'channelhash[train]'"
    assert done.stderr.rstrip().endswith(
        f"InputError: {second.removeprefix('error: ')}"
    )  # what `channelhash.train` raises


def test_other_missing_modules_stay_what_they_are():
    with pytest.raises(ModuleNotFoundError), naming_extra():
        raise ModuleNotFoundError("No module named 'mine'", name="mine")
    with pytest.raises(InputError, match=r"channelhash\[report\]"), naming_extra():
        raise ModuleNotFoundError("No module named 'matplotlib.figure'", name="matplotlib.figure")
