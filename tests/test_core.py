"""The core runs without what extras install: codes, metrics, searches, stores and the server import none of it."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.errors import InputError
from channelhash.models.onnx_export import export_onnx
from channelhash.utils.optional_imports import _EXTRAS, naming_extra
from small_stores import small_model

# Runs commands, one a line, with the packages of the first argument blocked; a second exit status ends it.
SCRIPT = """
import shlex, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

blocked = sys.argv[1].split()
sys.meta_path.insert(0, Blocked())
import channelhash, channelhash.codes, channelhash.metrics, channelhash.search.query, channelhash.serve.app
import channelhash.explanation, channelhash.data, channelhash.serve.server, channelhash.photos.code_files
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
BLOCKED = [name for extra in ("train", "clip", "photos", "report", "mat") for name in _EXTRAS[extra]]


def run_core(folder, *commands):
    """Return (what each command printed, the lines with errors, all of stderr) where no extra is installed."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", SCRIPT, " ".join(BLOCKED), *commands]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    answers = [part.strip().splitlines() for part in done.stdout.split("$ ")[1:]]
    return answers, [line for line in done.stderr.splitlines() if line.startswith("error: ")], done.stderr


@pytest.fixture
def code_files(tmp_path):
    random = np.random.default_rng(0)
    for name, n in (("q", 4), ("d", 30)):
        codes = {"image": random.integers(0, 256, (n, 2), np.uint8)}
        texts = [f"a dog number {i}" for i in range(n)]
        labels = random.random((n, 3)) < 0.5
        found = ch.CodeSet([f"{name}{i}" for i in range(n)], codes, labels, n_bits=16, texts=texts)
        found.save(tmp_path / f"{name}.parquet")
    return tmp_path


def test_the_core_evaluates_and_searches_without_the_packages_of_extras(code_files):
    commands = [
        "--help",
        "evaluate --query q.parquet --database d.parquet --json",
        "search d.parquet --like d3 -k 1 --json",
        "search d.parquet dog",
        "search d.parquet 'a red picture' --model exported -k 1 --json",
        "duplicates d.parquet --json",
        "index info d.parquet --json",
        "train --dry-run",
    ]
    export_onnx(small_model(code_files / "model", n_bits=16), code_files / "exported")
    answers, (first, second), stderr = run_core(code_files, *commands)
    assert [answer[-1] for answer in answers] == [*["exit 0"] * 3, "exit 2", *["exit 0"] * 3, "exit 2"], stderr
    assert '"id": "d3"' in "".join(answers[2])
    assert first.startswith("error: d.parquet: to encode a question, add --model")
    assert second == "error: this needs torch, which is not installed: pip install 'channelhash[train]'"
    assert stderr.rstrip().endswith(f"InputError: {second.removeprefix('error: ')}")  # what `channelhash.train` raises


@pytest.mark.slow
def test_the_core_makes_and_keeps_stores_of_codes(code_files):
    commands = [
        "index create a.store d.parquet --json",
        "index add a.store q.parquet --json",
        "index add a.store q.parquet --json",
        "search a.store dog --by words --json",
        "index delete a.store q1",
        "index check a.store",
        "index backup a.store b.store",
        "index repair b.store",
        "index push b.store c.store --json",
        "index info c.store --json",
    ]
    answers, errors, stderr = run_core(code_files, *commands)
    assert [answer[-1] for answer in answers] == ["exit 0"] * len(commands), stderr
    assert not errors
    counts = [json.loads(answer[1]) for answer in answers[:3]]
    assert [(done["added"], done["unchanged"], done["items"]) for done in counts] == [
        (30, 0, 30),
        (4, 0, 34),
        (0, 4, 34),
    ]
    assert json.loads(answers[-1][1])["items"] == 33


@pytest.mark.slow
def test_the_core_lists_describes_and_names_the_extra_that_encodes(code_files):
    (code_files / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(code_files / "photos" / "a.png")
    (code_files / "items.csv").write_text("id,text,labels\na,a dog,dog\nb,a cat,cat\n", encoding="utf-8")
    for name in ("theirs.mat", "theirs.h5"):
        (code_files / name).write_bytes(b"MATLAB 5.0 MAT-file")
    works = [
        *(f"list {kind}" for kind in ("encoders", "data", "stores")),
        "config list",
        "data describe table --path items.csv --set image_column=null --json",
    ]
    extras = {
        **{f"list {kind}": "train" for kind in ("losses", "models", "experiments")},
        "search photos dog": "photos",
        "index create b.store photos": "photos",
        "index create b.store photos --encoder openclip:ViT-B-32/openai": "clip",
        "index create b.store photos --model run": "train",
        "recall run items.csv": "train",
        "report run": "report",
        "evaluate --codes theirs.mat": "mat",
        "evaluate --codes theirs.h5": "mat",
    }
    answers, errors, stderr = run_core(code_files, *works, *extras)
    assert [answer[-1] for answer in answers] == ["exit 0"] * len(works) + ["exit 2"] * len(extras), stderr
    assert [line.rpartition("channelhash")[2] for line in errors] == [f"[{extra}]'" for extra in extras.values()]


def test_other_missing_modules_stay_what_they_are():
    with pytest.raises(ModuleNotFoundError), naming_extra():
        raise ModuleNotFoundError("No module named 'mine'", name="mine")
    with pytest.raises(InputError, match=r"channelhash\[report\]"), naming_extra():
        raise ModuleNotFoundError("No module named 'matplotlib.figure'", name="matplotlib.figure")
