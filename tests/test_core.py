"""The core runs without what extras install: codes, metrics, searches, stores and the server import
none of it.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.errors import InputError
from channelhash.models.exported import export_onnx
from channelhash.utils.optional_imports import _EXTRAS, naming_extra
from small_stores import small_model

# Runs commands, one a line, with the packages of the first argument blocked; a second exit status
# ends it.
SCRIPT = """
import json, shlex, sys

blocked = dict.fromkeys(sys.argv[1].split())
sys.modules.update(blocked)
import channelhash, channelhash.codes, channelhash.search.query, channelhash.serve.app, channelhash.explanation
import channelhash.data, channelhash.presets, channelhash.serve.server, channelhash.indexing.stores
from channelhash.cli.main import main
from fastapi.testclient import TestClient

for line in sys.argv[2:]:
    sys.argv = ["channelhash", *shlex.split(line)]
    print("$", line, flush=True)
    try:
        if line.startswith("POST"):
            _, place, body = shlex.split(line)
            served = channelhash.serve.app.open_app({"": place}, None, channelhash.serve.service.Limits(), None, None)
            with TestClient(served) as client:
                answer = client.post("/search", json=json.loads(body), headers={"Host": "localhost"})
                sys.exit(print(answer.text))
        main()
    except SystemExit as ended:
        print("exit", ended.code, flush=True)
assert not {name.partition(".")[0] for name, module in sys.modules.items() if module} & {*blocked}
channelhash.train
"""
BLOCKED = [name for extra in _EXTRAS if extra != "serve" for name in _EXTRAS[extra]]


def run_core(folder, *commands, without=BLOCKED):
    """Return (what each command printed, the lines with errors, all of stderr) where packages are
    not installed.
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", SCRIPT, " ".join(without), *commands]
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    answers = [part.strip().splitlines() for part in done.stdout.split("$ ")[1:]]
    return (
        answers,
        [line for line in done.stderr.splitlines() if line.startswith("error: ")],
        done.stderr,
    )


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


def make_store(folder):
    """Return a store of the codes `d`, made without a command."""
    codes = ch.CodeSet.load(folder / "d.parquet")
    with ch.open_store(folder / "a.store", codes.n_bits) as store:
        store.add(codes.ids, codes.codes, metadata=[{"text": text} for text in codes.texts])


def test_the_core_evaluates_and_searches_without_the_packages_of_extras(code_files):
    random = np.random.default_rng(0)
    codes, labels = random.integers(0, 2, (30, 16)), random.integers(0, 2, (30, 3))
    np.savez(code_files / "theirs.npz", B_q=codes[:4], B_r=codes, L_q=labels[:4], L_r=labels)
    np.save(code_files / "v.npy", random.normal(size=(30, 8)))
    (code_files / "pairs.tsv").write_text("0 1\n1 2\n")
    make_store(code_files)
    export_onnx(small_model(code_files / "model", n_bits=16), code_files / "exported")
    works = [
        "--help",
        "evaluate --codes theirs.npz --json",
        "search a.store --like d3 -k 1 --json",
        "search a.store dog --by words --sheet dög.png --json",
        "duplicates a.store --json",
        "index push a.store c.store",
        "index info c.store --json",
    ]
    extras = {
        "search a.store 'a red picture' --model exported": "exported",
        "search d.parquet --like d3": "parquet",
        "evaluate --query q.parquet --database d.parquet": "parquet",
        "index create b.store d.parquet": "parquet",
        "serve d.parquet --port 0": "parquet",
        "data describe table --data d.parquet": "parquet",
        "compress v.npy --method learned --bits 8": "train",
        "compress v.npy --questions v.npy --pairs pairs.tsv": "train",
        "train --dry-run": "train",
    }
    answers, errors, stderr = run_core(code_files, *works, *extras)
    assert [answer[-1] for answer in answers] == ["exit 0"] * len(works) + ["exit 2"] * len(
        extras
    ), stderr
    assert '"id": "d3"' in "".join(answers[2])
    assert json.loads(answers[len(works) - 1][1])["items"] == 30
    assert [line.rpartition("channelhash")[2] for line in errors] == [
        f"[{extra}]'" for extra in extras.values()
    ]
    needs = "this needs torch, which is not installed: pip install 'channelhash[train]'"
    assert errors[-1] == f"error: {needs}"
    assert stderr.rstrip().endswith(f"InputError: {needs}")  # what `channelhash.train` raises


def test_answers_are_the_same_without_compiled_loops(code_files):
    random = np.random.default_rng(0)
    np.save(code_files / "v.npy", random.normal(size=(300, 8)))
    make_store(code_files)
    commands = [
        "evaluate --query q.parquet --database d.parquet --convention sch --json",
        "compress v.npy --json",
        "search a.store --like d3 --json",
        "duplicates a.store --json",
        "index check a.store",
        """POST a.store '{"id": "d3", "k": 1}'""",
    ]
    without = {*BLOCKED} - {*_EXTRAS["parquet"]}
    answers, _, stderr = run_core(code_files, *commands, without=without)
    assert [answer[-1] for answer in answers] == ["exit 0"] * 5 + ["exit None"], stderr
    compiled = run_core(code_files, *commands, without=without - {*_EXTRAS["fast"]})[0]
    # Sums of fractions differ in the last digits, and times.
    varies = re.compile(r'(\.\d{12})\d+|"\w*(?:ms|seconds)": ?[\d.e-]+')
    texts = [varies.sub(r"\1", str(found)) for found in (answers, compiled)]
    assert texts[0] == texts[1]


def test_the_core_keeps_and_searches_compressed_vectors(tmp_path):
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(300, 8)))
    commands = [
        "compress v.npy --bits 8 --quality 5 --out a.store",
        "search a.store --vector v.npy -k 1",
    ]
    answers, _, stderr = run_core(tmp_path, *commands)
    assert [answer[-1] for answer in answers] == ["exit 0"] * 2, stderr


@pytest.mark.slow
def test_files_of_codes_become_stores_with_parquet_alone(code_files):
    commands = [
        "index create a.store d.parquet --json",
        "index add a.store q.parquet --json",
        "index add a.store q.parquet --json",
        "index delete a.store q1",
        "index backup a.store b.store",
        "index repair b.store",
        "evaluate --query q.parquet --database d.parquet --json",
    ]
    answers, _, stderr = run_core(code_files, *commands, without={*BLOCKED} - {*_EXTRAS["parquet"]})
    assert [answer[-1] for answer in answers] == ["exit 0"] * len(commands), stderr
    counts = [json.loads(answer[1]) for answer in answers[:3]]
    assert [(done["added"], done["unchanged"]) for done in counts] == [(30, 0), (4, 0), (0, 4)]


@pytest.mark.slow
def test_the_core_lists_describes_and_names_the_extra_that_encodes(code_files):
    (code_files / "photos").mkdir()
    Image.new("RGB", (8, 8)).save(code_files / "photos" / "a.png")
    (code_files / "items.csv").write_text(
        "id,text,labels\na,a dog,dog\nb,a cat,cat\n", encoding="utf-8"
    )
    (code_files / "run").mkdir()
    (code_files / "run" / "config.json").write_text('{"name": "small"}', encoding="utf-8")
    for name in ("theirs.mat", "theirs.h5"):
        (code_files / name).write_bytes(b"MATLAB 5.0 MAT-file")
    works = [*(f"list {kind}" for kind in ("encoders", "data", "stores")), "config list"]
    works.append("data describe table --data items.csv --set data.image_column=null --json")
    extras = {
        **{f"list {kind}": "train" for kind in ("losses", "models", "experiments")},
        "search photos dog": "photos",
        "index create b.store photos": "photos",
        "index create b.store photos --encoder openclip:ViT-B-32/openai": "clip",
        "index create b.store photos --encoder run": "train",
        "recall run items.csv": "train",
        "report run": "report",
        "evaluate --query q.parquet --database d.parquet --out scores": "report",  # before a file is read
        "evaluate --codes theirs.mat": "mat",
        "evaluate --codes theirs.h5": "mat",
    }
    answers, errors, stderr = run_core(code_files, *works, *extras)
    assert [answer[-1] for answer in answers] == ["exit 0"] * len(works) + ["exit 2"] * len(
        extras
    ), stderr
    named = [line.rpartition("channelhash")[2].partition("'")[0] for line in errors]
    assert named == [f"[{extra}]" for extra in extras.values()]


def test_other_missing_modules_stay_what_they_are():
    with pytest.raises(ModuleNotFoundError), naming_extra():
        raise ModuleNotFoundError("No module named 'mine'", name="mine")
    with pytest.raises(InputError, match=r"channelhash\[report\]"), naming_extra():
        raise ModuleNotFoundError("No module named 'matplotlib.figure'", name="matplotlib.figure")
