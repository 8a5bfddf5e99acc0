"""A loss, a model and a data set of one's own, named by ``python:``, through a run."""

import json
from functools import partial
from pathlib import Path

import pytest

from channelhash.bulk.workers import _Worker
from channelhash.cli.train import _print_trained
from channelhash.config import make_config, read_run_config
from channelhash.errors import InputError, JobError
from channelhash.models import HashModel, load_model
from channelhash.runs.evaluate import evaluate
from channelhash.runs.folder import open_run
from channelhash.runs.train import start_run
from channelhash.search import open_store
from channelhash.serve.service import Service
from channelhash.utils import watch
from channelhash.utils.typed_settings import check_trusted, python_names, resolve, trusting
from channelhash.utils.watch import Report
from refusals import check_refusal, refusal
from small_runs import grid_base, run_command

OWN = {"code_of_mine": """
import numpy as np
from torch import nn
from channelhash.data.records import Records
from channelhash.losses import HashLoss
from channelhash.models import HashModel, ModelKind
from channelhash.models.hash_model import Branch, feature_rows
from functools import partial

class Length(HashLoss):
    def __init__(self, n_bits, target: float = 1.0):
        super().__init__()
        self.target = target
    def compute(self, batch):
        return (batch.codes.square().mean() - self.target) ** 2

def create(train, n_bits, bias: bool = True):
    architecture = {"n_bits": n_bits, "bias": bias}
    return HashModel("any name", n_bits, architecture, build(**architecture))

def build(n_bits, bias):
    return {name: Branch(partial(feature_rows, modality=name, width=3), nn.Identity(), nn.Linear(3, n_bits, bias))
            for name in ("image", "text")}

LINEAR = ModelKind(create, build)

def load(n: int = 40):
    random = np.random.default_rng(0)
    items = {name: random.normal(size=(n, 3)) for name in ("image", "text")}
    return Records(tuple(map(str, range(n))), items, random.random((n, 2)) < 0.6, ("a", "b"))
"""}  # fmt: skip
SECTIONS = {
    "data": {"kind": "python:code_of_mine:load", "n": 50, "queries": 10, "train": 20},
    "model": {"name": "python:code_of_mine:LINEAR", "n_bits": 8, "bias": False},
    "loss": {"name": "python:code_of_mine:Length", "target": 2},
    "train": {"epochs": 2, "batch_size": 10, "validate_every": 0, "device": "cpu"},
}


def test_code_of_ones_own_is_trained_resumed_evaluated_and_loaded_by_consent(in_folder, capsys):
    config, folder = make_config(SECTIONS), in_folder / "run"
    start_run(config, folder)
    assert (config.source.n, config.model.bias, config.loss.target) == (50, False, 2.0)
    with trusting(True):
        assert read_run_config(folder) == config
    run = start_run(config, folder, resume=True)
    assert run.load_model().n_bits == 8
    _print_trained(run.as_dict(), folder)
    assert capsys.readouterr().out.endswith(f"Next: channelhash evaluate {folder} --trust-code\n")
    for read in (read_run_config, evaluate, open_run):
        check_refusal(
            r"config\.yaml: names python:code_of_mine:\w+, code that would run", read, folder
        )
    assert evaluate(folder, trust_code=True)["image->text"]["queries"] > 0
    saved = folder / "model"
    assert json.loads((saved / "config.json").read_text())["name"] == "python:code_of_mine:LINEAR"
    for load in (load_model, HashModel.from_pretrained):
        message = refusal(load, saved)
        assert "names python:code_of_mine:LINEAR" in message
        assert "add trust_code" in message
        assert (
            load(saved, trust_code=True).fingerprint()
            == load_model(folder, trust_code=True).fingerprint()
        )


def test_a_saved_model_cannot_run_code_that_is_no_model(tmp_path):
    config = {
        "name": "python:os:mkdir",
        "n_bits": 8,
        "architecture": {"path": str(tmp_path / "made")},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    for trust_code, says in (
        (False, "names python:os:mkdir"),
        (True, r"is not a channelhash\.models\.ModelKind"),
    ):
        check_refusal(says, load_model, tmp_path, trust_code=trust_code)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("section", "key", "name", "says"),
    [
        ("model", "name", "python:code_of_mine:Length", "is not a channelhash.models.ModelKind"),
        ("model", "name", "python:code_of_mine:Gone", "has no 'Gone'"),
        ("data", "kind", "python:code_of_mine:OWN", "has no 'OWN'"),
        (
            "data",
            "kind",
            "python:no_such_module:load",
            "data.kind python:no_such_module:load: the module cannot be",
        ),
        (
            "data",
            "kind",
            "python:math:pi",
            "is neither a function that returns records nor a DataKind",
        ),
        ("loss", "name", "code_of_mine:Length", "did you mean 'python:code_of_mine:Length'?"),
    ],
)
def test_what_a_name_does_not_lead_to_is_one_line(in_folder, section, key, name, says):
    assert says in refusal(make_config, {**SECTIONS, section: {**SECTIONS[section], key: name}})


def test_names_are_found_at_any_depth_and_in_circles(tmp_path):
    values: dict = {"a": [1, {"b": ("python:x:Y", None)}], "python:key:K": 2}
    values["self"] = values
    assert sorted(python_names(values)) == ["python:key:K", "python:x:Y"]
    with trusting(["python:x:Y"]):
        with pytest.raises(InputError, match="names python:key:K,"), trusting(False):
            check_trusted(values, tmp_path)
        with trusting(["python:key:K"]):
            check_trusted(values, tmp_path)
    check_refusal("names python:", check_trusted, values, tmp_path)


OWN["broken_code"] = """
from channelhash.losses import HashLoss
from code_of_mine import LINEAR, HashModel, ModelKind

class Divides(HashLoss):
    def compute(self, batch):
        return batch.codes.sum() / (1 // 0)  # line 7

class Multiplies(HashLoss):
    def compute(self, batch):
        return (batch.codes @ batch.codes).sum()  # line 11: PyTorch raises below it

class Number(HashLoss):  # line 13
    def compute(self, batch):
        return 3.0

class Built(HashLoss):
    def __init__(self):
        raise KeyError("part")  # line 19
    def compute(self, batch):
        return batch.codes.sum()

def create(train, n_bits):
    return {}["width"]  # line 24

def nothing(path: str = ""):  # line 26
    return None

def no_file(path: str = ""):
    return open("gone.txt")  # line 30

MODEL = ModelKind(create, create)

def encoder():
    return {}["side"]  # line 35

def create_linear(train, n_bits):
    return HashModel("", n_bits, {"n_bits": n_bits}, LINEAR.build(n_bits, True))

LESS = ModelKind(create_linear, LINEAR.build)  # whose architecture lacks bias
DICTIONARY = ModelKind(lambda train, n_bits: {}, create)
BITS = ModelKind(lambda n_bits: {}, create)

class Logs(HashLoss):  # line 44
    def compute(self, batch):
        return batch.codes.mean(), {"norm": 1}
"""


@pytest.fixture
def broken(in_folder):
    return in_folder / "broken_code.py"


@pytest.mark.parametrize(("key", "name", "says"), [
    ("loss.name", "Divides", ", line 7, in Divides.compute: ZeroDivisionError: "),
    ("loss.name", "Multiplies", ", line 11, in Multiplies.compute: RuntimeError: "),
    ("loss.name", "Built", ", line 19, in Built.__init__: KeyError: 'part'; "),
    ("model.name", "MODEL", ", line 24, in create: KeyError: 'width'; "),
    ("data.kind", "no_file", ", line 30, in no_file: FileNotFoundError: "),
])  # fmt: skip
def test_an_error_in_ones_own_code_has_its_line(broken, capsys, key, name, says):
    error = failure(capsys, key, f"python:broken_code:{name}")
    assert error.startswith(f"error: in {broken}{says}")
    assert f"your python:broken_code:{name} failed" in error


@pytest.mark.parametrize(
    ("name", "returned", "line"), [("Number", "3.0", 13), ("Logs", "a tuple", 44)]
)
def test_a_wrong_result_of_ones_own_code_is_blamed_on_it(broken, capsys, name, returned, line):
    error = failure(capsys, "loss.name", f"python:broken_code:{name}")
    assert f"{name}.compute has to return a scalar tensor, not {returned}" in error
    assert f"python:broken_code:{name} ({broken}, line {line})" in error


@pytest.mark.parametrize(
    ("key", "name", "says"),
    [
        ("data.kind", "nothing", "has to return Records, not NoneType"),
        ("model.name", "DICTIONARY", "create: has to return HashModel, not dict"),
        ("model.name", "BITS", "create has to take train and n_bits, in this order"),
        (
            "model.name",
            "LESS",
            "architecture has to be JSON, and the arguments of build: missing a required argument",
        ),
    ],
)
def test_what_ones_own_code_has_to_return_is_said_before_the_training(
    broken, capsys, key, name, says
):
    assert f"{key} python:broken_code:{name}: {says}" in failure(
        capsys, key, f"python:broken_code:{name}", status=2
    )


def test_a_wrong_result_is_blamed_on_ones_own_loss_by_a_grid_too(broken, capsys):
    options = ["--loss=python:broken_code:Number", "--bits=8", "--seeds=1"]
    words = ["experiment", "losses", *options]
    assert run_command(*words, "--out", "grid", "--config", grid_base(broken.parent)) == 1
    assert (
        f"probably the fault of your python:broken_code:Number ({broken}, line 13)"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("name", "architecture", "line"),
    [
        (
            "python:broken_code:MODEL",
            {"train": "", "n_bits": 8},
            "24, in create: KeyError: 'width'",
        ),
        (
            "fitted",
            {"encoder": "python:broken_code:encoder", "widths": {}},
            "35, in encoder: KeyError: 'side'",
        ),
    ],
)
def test_a_saved_model_is_not_blamed_for_code_that_it_names(broken, name, architecture, line):
    saved = {"name": name, "n_bits": 8, "architecture": architecture}
    (broken.parent / "config.json").write_text(json.dumps(saved))
    check_refusal(
        f"^in {broken}, line {line}", load_model, broken.parent, trust_code=True, error=JobError
    )


def test_an_error_in_ones_own_code_has_its_line_in_another_process(broken, monkeypatch):
    """Of workers of a server and of Ray, and of the process that indexes what changes: its
    traceback ends there.
    """
    fail, worker, store = (
        resolve("python:broken_code:encoder"),
        _Worker(),
        open_store(broken.parent / "store", 8),
    )
    worker._work = lambda task: fail()
    monkeypatch.setattr(watch, "_report", Report.new(), raising=False)
    service = Service(store, fail)
    for call in (
        service.encoding.result,
        partial(worker.work, [], 0),
        partial(watch._work, lambda progress: fail()),
    ):
        check_refusal(
            f"^in {broken}, line 35, in encoder: KeyError: 'side'; your python:",
            call,
            error=JobError,
        )
    service.close()


def failure(capsys, key, name, status=1):
    """Return what a training says whose loss, model or data are ``name``; those of `OWN`
    otherwise.
    """
    others = [section for section in ("data", "model", "loss") if not key.startswith(section)]
    sections = {section: SECTIONS[section] for section in (*others, "train")}
    sections[key.partition(".")[0]] = {}
    Path("own.yaml").write_text(json.dumps(sections))
    assert run_command("train", "own.yaml", f"--set={key}={name}", "--out", "failed") == status
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "this is a bug" not in error
    return error
