"""The training loop: its schedule and options, order, resuming, and stopping where the loss or the
machine breaks.
"""

import copy
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from channelhash.config import TrainSettings, read_config
from channelhash.data.features import load_features
from channelhash.data.records import Records
from channelhash.errors import JobError
from channelhash.losses import LOSSES, DSCHLoss, HyP2Loss, make_loss
from channelhash.models import MODELS, Branch, HashModel
from channelhash.models.hash_model import feature_rows
from channelhash.runs.plan import plan_run
from channelhash.training import inputs
from channelhash.training.inputs import TrainingSet, epoch_steps, memory_batches, prepare_inputs
from channelhash.training.schedule import learning_rate
from channelhash.training.steps import Steps
from channelhash.training.trainer import train
from channelhash.training.validation import read_log, selection_score
from channelhash.utils.progress import no_progress
from channelhash.utils.typed_settings import read_settings
from picture_runs import clip_model, picture_config, write_pictures
from refusals import check_refusal
from small_runs import (
    assert_refused,
    feature_config,
    interrupt_at,
    run_command,
    run_json,
    train_run,
    write_features,
)


@pytest.fixture
def refuse_run(capsys):
    """A function that checks that a training is refused with a line."""

    def refuse(config, run, *more, says):
        assert_refused(capsys, "train", config, "--out", run, *more, says=says)

    return refuse


@pytest.fixture
def records(tmp_path):
    return load_features(write_features(tmp_path / "f.npz"))


def test_the_schedule_is_the_papers():
    for e in range(200):
        if e < 75:
            expected = 1e-5
        elif e < 150:
            expected = 1e-5 * (0.1 + 0.9 * (1 + math.cos(math.pi * (e - 75) / 75)) / 2)
        else:
            expected = 1e-6
        assert learning_rate(e, 200, 1e-5) == pytest.approx(expected, rel=1e-12)
    assert [learning_rate(e, 8, 1.0) == 1.0 for e in range(4)] == [True, True, True, True]
    assert learning_rate(6, 8, 1.0) == pytest.approx(0.1)


@pytest.mark.parametrize(("how", "anchors"), [("epoch", "iiittt"), ("batch", "ititit")])
def test_anchored_losses_get_a_pass_of_each_stream_in_turn_or_each_batch(how, anchors):
    settings = TrainSettings(batch_size=10, alternate=how)
    assert "".join(anchor for _, anchor in epoch_steps(30, settings, 0, ("i", "t"))) == anchors


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"contrastive"}))
def test_every_loss_of_labels_learns_from_texts_alone(name):
    features = torch.randn(8, 6, generator=torch.manual_seed(0))
    labels = torch.eye(4).repeat(2, 1).bool()
    records = Records(tuple("abcdefgh"), {"text": features.numpy()}, labels.numpy(), tuple("wxyz"))
    model = MODELS["features"].create(records, 8, hidden=[5]).eval()
    settings = TrainSettings(batch_size=8, learning_rate=1e-2)
    data = TrainingSet({"text": partial(memory_batches, features, settings)}, labels)
    steps = Steps(model, make_loss(name, 8, 4), data, settings)
    before = model({"text": features})["text"]
    losses = steps.run(list(steps.batches(epoch=0)))
    assert len(losses) == 1
    assert losses.isfinite().all()
    assert not torch.equal(model({"text": features})["text"], before)


def test_the_cosine_schedule_rises_for_a_twentieth_and_falls_to_0():
    rates = [learning_rate(e / 10, 40, 0.5, "cosine") for e in range(401)]
    assert rates[:21] == pytest.approx([0.5 * i / 20 for i in range(21)])
    assert rates[21:] == pytest.approx(
        [0.25 * (1 + math.cos(math.pi * i / 380)) for i in range(1, 381)]
    )


def test_an_epoch_takes_rows_once_without_the_partial_batch_and_images_with_a_text_that_changes():
    batches = list(inputs._epoch_batches(100, None, 32, 0, 5))
    assert [len(rows) for rows in batches] == [32, 32, 32]
    assert len(set(torch.cat(batches).tolist())) == 96
    images = torch.tensor([0, 0, 0, 1, 2, 2, 3, 4, 4, 4, 4])
    epochs = [list(inputs._epoch_batches(11, images, 2, 0, epoch)) for epoch in range(30)]
    assert all(len(set(images[torch.cat(batches)].tolist())) == 4 for batches in epochs)
    assert {row for batches in epochs for row in torch.cat(batches).tolist()} == set(range(11))
    again = list(inputs._epoch_batches(11, images, 2, 0, 3))
    assert all(torch.equal(a, b) for a, b in zip(again, epochs[3], strict=True))
    steps = [rows for rows, _ in epoch_steps(11, TrainSettings(batch_size=2), 3, (), images)]
    assert all(torch.equal(a, b) for a, b in zip(steps, epochs[3], strict=True))


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model" / "model.safetensors")


def assert_same_run(a: Path, b: Path) -> None:
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    one, two = ([entry | {"seconds": 0} for entry in read_log(run / "log.jsonl")] for run in (a, b))
    assert one == two


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["dsch", "tdsrdh"])
def test_a_killed_training_resumes_to_the_same_weights(tmp_path, loss):
    features = write_features(tmp_path / "f.npz")
    config = feature_config(tmp_path / "c.yaml", features, loss, epochs=40, checkpoint_every=3)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run_command("train", config, "--out", whole) == 0
    command = [sys.executable, "-m", "channelhash.cli.main", "train", config, "--out", killed]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    log = killed / "log.jsonl"
    while process.poll() is None and not (log.exists() and len(log.read_text().splitlines()) >= 5):
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (killed / "model").exists()
    assert run_command("train", config, "--out", killed, "--resume") == 0
    assert_same_run(whole, killed)


def training_set(model, records, settings):
    sources = {
        m: partial(memory_batches, prepare_inputs(model, records, m), settings)
        for m in model.modalities
    }
    return TrainingSet(sources, torch.from_numpy(records.labels))


def small_training(records, settings, **model):
    """A model of features and what it is trained on."""
    torch.manual_seed(3)
    model = MODELS["features"].create(records, 12, hidden=[16], **model)
    return model, training_set(model, records, settings)


def test_an_averaged_training_resumes_to_the_same_weights_and_keeps_the_average(tmp_path, records):
    """The average is that of the weights after each step, in the last epoch's checkpoint too."""
    more = {"weight_decay": 0.1, "average": 0.7, "checkpoint_every": 2}
    settings = TrainSettings(epochs=4, batch_size=80, learning_rate=1e-2, schedule="cosine", **more)
    seen, validated = [], []

    def run(folder, progress=no_progress):
        model, data = small_training(records, settings)

        def validate():
            validated.append(model.branch("text").head[0].weight.clone())
            return {"validation": {"image->text": float(len(validated))}}

        train(model, Watched(model, seen), data, settings, folder, validate, progress)
        return model

    whole = run(tmp_path / "whole")
    weights = seen[1:]  # before each step but the first: after each but the last
    last = torch.load(tmp_path / "whole" / "checkpoints" / "last.pt", weights_only=True)
    weights.append(last["model"]["branches.text.head.0.weight"])
    shares = [0.7 ** (len(weights) - 1 - step) for step in range(len(weights))]
    expected = sum(share * values for share, values in zip(shares, weights, strict=True)) / sum(
        shares
    )
    final = whole.branch("text").head[0].weight
    torch.testing.assert_close(final, expected)
    assert not torch.allclose(final, weights[-1])
    assert torch.equal(validated[-1], final)
    best = load_file(tmp_path / "whole" / "checkpoints" / "best" / "model.safetensors")
    assert torch.equal(best["branches.text.head.0.weight"], final)
    resumed = interrupted(run, tmp_path / "cut")
    assert all(
        torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True)
    )


def interrupted(run, folder):
    """Return what a training gives that ended after three epochs and was started again."""
    with pytest.raises(InterruptedError):
        run(folder, interrupt_at(3, InterruptedError))
    return run(folder)


class Watched(DSCHLoss):
    """DSCH that keeps the weights of every step."""

    def __init__(self, model, seen):
        super().__init__(12)
        self.model, self.seen = [model], seen

    def compute(self, batch):
        self.seen.append(self.model[0].branch("text").head[0].weight.detach().clone())
        return super().compute(batch)


def test_the_best_epoch_is_kept_where_it_is_asked_for(tmp_path, capsys, refuse_run):
    features = write_features(tmp_path / "f.npz")
    config = feature_config(
        tmp_path / "c.yaml", features, epochs=4, learning_rate=1.0, validate_every=1, keep="best"
    )
    result = run_json(capsys, "train", config, "--out", tmp_path / "run")
    log = [entry["validation"] for entry in read_log(tmp_path / "run" / "log.jsonl")]
    assert result["validation"] == max(log, key=selection_score) != log[-1]
    best = load_file(tmp_path / "run" / "checkpoints" / "best" / "model.safetensors")
    final = weights(tmp_path / "run")
    assert all(torch.equal(final[name], best[name]) for name in final)
    never = "--set=train.validate_every=0"
    says = "train.keep is best, but nothing is validated"
    refuse_run(config, tmp_path / "other", never, says=says)


@pytest.mark.parametrize(("name", "rates", "terms"), [
    ("greedyhash", {}, {}), ("hyp2", {"proxies": 0.02}, {}), ("dnph", {}, {"contrastive": 0.1}),
])  # fmt: skip
def test_what_a_loss_trains_is_kept_and_resumed(tmp_path, records, name, rates, terms):
    """Proxies and classifiers move with the model, and an interrupted training goes on with them
    bit by bit.
    """
    often = {"checkpoint_every": 2, "validate_every": 0}
    settings = TrainSettings(epochs=4, batch_size=120, learning_rate=1e-3, rates=rates, **often)

    def run(folder, progress=no_progress):
        model, data = small_training(records, settings)
        loss = make_loss(name, 12, records.labels.shape[1], **terms)
        start = [p.detach().clone() for p in loss.parameters()]
        train(model, loss, data, settings, folder, progress=progress)
        assert not any(
            torch.equal(p, before) for p, before in zip(loss.parameters(), start, strict=True)
        )
        return [*model.parameters(), *loss.parameters()]

    whole, resumed = run(tmp_path / "whole"), interrupted(run, tmp_path / "cut")
    assert all(torch.equal(a, b) for a, b in zip(whole, resumed, strict=True))


def test_a_run_folder_has_what_the_design_names(tmp_path):
    run = train_run(feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz")))
    run_command("evaluate", run)
    names = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    assert {"config.yaml", "log.jsonl", "splits.json", "metrics.json", "environment.json"} <= names
    assert {"checkpoints/last.pt", "model/model.safetensors"} <= names
    assert {"codes/test-query.parquet", "codes/test-retrieval.parquet"} <= names
    assert any(name.startswith("tensorboard/events") for name in names)
    assert not [name for name in names if name.endswith(".tmp")]
    log = read_log(run / "log.jsonl")
    assert [entry["epoch"] for entry in log] == list(range(6))
    assert [("validation" in entry) for entry in log] == [False, True, False, True, False, True]


class BreaksAt(DSCHLoss):
    """DSCH until the given step, then NaN."""

    def __init__(self, step: int) -> None:
        super().__init__(12)
        self.left = step

    def compute(self, batch):
        self.left -= 1
        return super().compute(batch) * (math.nan if self.left < 0 else 1.0)


def test_a_loss_that_is_nan_at_once_is_named(tmp_path, records):
    settings = TrainSettings(epochs=1, batch_size=60)
    model, data = small_training(records, settings)
    with pytest.raises(JobError, match=r"the loss is nan; nothing was learned .* look at BreaksAt"):
        train(model, BreaksAt(0), data, settings, tmp_path)


def test_a_loss_that_breaks_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path, records):
    # 4 steps an epoch
    settings = TrainSettings(epochs=9, batch_size=60, learning_rate=1e-3, checkpoint_every=1)
    model, data = small_training(records, settings)
    with pytest.raises(JobError) as caught:
        train(model, BreaksAt(10), data, settings, tmp_path)
    checkpoint = tmp_path / "checkpoints" / "last.pt"
    assert str(caught.value).startswith(
        "epoch 2, step 2: the loss is nan; lower train.learning_rate (now 0.001)"
    )
    assert str(checkpoint) in str(caught.value)
    state = torch.load(checkpoint, weights_only=True)
    assert state["epochs_done"] == 2
    assert all(values.isfinite().all() for values in state["model"].values())


def test_a_damaged_checkpoint_is_named(tmp_path, refuse_run):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=2)
    run = train_run(config)
    checkpoint = run / "checkpoints" / "last.pt"
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    shutil.rmtree(run / "model")
    refuse_run(config, run, "--resume", says=f"{checkpoint}: damaged or of another model")


def test_a_run_killed_before_its_configuration_was_written_starts_again(tmp_path):
    """The process dies inside the very first write: the folder holds the lock file and a temporary
    file.
    """
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), epochs=1)
    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", f".config.yaml.{'0' * 32}.tmp"):
        (run / name).write_text("")
    assert run_command("train", config, "--out", run) == 0
    assert not list(run.glob(".*.tmp"))


def test_a_run_that_failed_before_any_work_leaves_its_folder_to_the_next(tmp_path, refuse_run):
    """The mended command is the same with another --set: it may not be told of a run that never
    was.
    """
    features, run = write_features(tmp_path / "f.npz"), tmp_path / "run"
    wrong = feature_config(tmp_path / "wrong.yaml", tmp_path / "missing.npz", epochs=1)
    refuse_run(wrong, run, says="missing.npz")
    # as far as a run comes before its model is made
    (run / "splits.json").write_text("of other rows")
    refuse_run(wrong, run, says="missing.npz")
    config = feature_config(tmp_path / "c.yaml", features, epochs=1)
    assert run_command("train", config, "--out", run) == 0
    assert str(features) in (run / "config.yaml").read_text()
    assert json.loads((run / "splits.json").read_text())
    for work in ("log.jsonl", "checkpoints", "codes", "model"):
        begun = tmp_path / work
        (begun / work).mkdir(parents=True)
        shutil.copy(run / "config.yaml", begun)
        refuse_run(config, begun, says="already holds a run; add --resume")


def test_a_folder_in_use_or_of_another_run_is_refused(tmp_path, refuse_run):
    import fcntl

    features = write_features(tmp_path / "f.npz")
    config = feature_config(tmp_path / "c.yaml", features, epochs=2)
    run = train_run(config)
    other = feature_config(tmp_path / "d.yaml", features, epochs=3)
    refuse_run(other, run, "--resume", says="another configuration (epochs: 3)")
    with open(run / ".lock", "w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        refuse_run(config, run, "--resume", says="another process is working")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("keep me")
    refuse_run(config, tmp_path / "mine", says="is not empty and not a run's folder")
    assert (tmp_path / "mine" / "letter.txt").read_text() == "keep me"


def make_steps(records, loss=None, **settings):
    checked = TrainSettings(**{"batch_size": 40, "learning_rate": 1e-3, "device": "cpu"} | settings)
    model, data = small_training(records, checked, dropout=0.0)
    return model, Steps(model, loss or DSCHLoss(12), data, checked)


def test_accumulated_gradients_are_the_mean_of_their_batches(records):
    model, steps = make_steps(records, accumulate=4)
    batches = list(steps.batches(0))
    assert len(batches) == 6
    losses = [steps.value(batch) for batch in batches[:4]]
    expected = torch.autograd.grad(sum(losses) / 4, list(model.parameters()))
    seen = []
    steps.optimizer.step = lambda: seen.append([p.grad.clone() for p in model.parameters()])
    values = steps.run(batches)
    assert len(seen) == 2  # four batches and two
    torch.testing.assert_close(seen[0], [*expected])
    torch.testing.assert_close(values[:4], torch.stack(losses).detach())


def test_a_loss_without_proxies_has_no_rate_for_them(records):
    _, steps = make_steps(records, rates={"proxies": 0.05})
    assert len(steps.optimizer.param_groups) == 1


@pytest.mark.parametrize(
    ("part", "rate", "says"),
    [("proxy", 0.1, "train.rates.proxy.*'proxies'"), ("proxies", -0.1, "train.rates.proxies")],
)
def test_a_rate_of_an_unknown_part_or_below_0_is_refused(part, rate, says):
    check_refusal(says, read_settings, TrainSettings, {"rates": {part: rate}}, "train")


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(
    "rates",
    [
        {"backbone": 1e-5},
        {"backbone": 1e-5, "head": 0.01, "proxies": 0.05},
        {"head": 0.0},
        {"proxies": 0.0},
        {},
    ],
)
def test_backbone_head_and_proxies_have_rates_of_their_own(records, rates, weight_decay):
    """Against an optimiser for each part, at its rate of a falling schedule."""
    torch.manual_seed(1)
    loss = HyP2Loss(12, records.labels.shape[1])
    widths = {name: rows.shape[1] for name, rows in records.items.items()}
    branches = {}
    for name, width in widths.items():
        prepare = partial(feature_rows, modality=name, width=width)
        branches[name] = Branch(
            prepare, nn.Linear(width, 8), nn.Linear(8, 12), pretrained=not branches
        )
    model = HashModel("mine", 12, {}, branches)
    schedule = {"learning_rate": 1e-3, "schedule": "cosine", "epochs": 2}
    settings = TrainSettings(
        rates=rates, batch_size=40, weight_decay=weight_decay, device="cpu", **schedule
    )
    steps = Steps(model, loss, training_set(model, records, settings), settings)
    other, literal_loss = copy.deepcopy(model), copy.deepcopy(loss)
    first, second = (other.branch(name) for name in widths)
    heads = [*first.head.parameters(), *second.parameters()]
    parts = {
        "backbone": list(first.encoder.parameters()),
        "head": heads,
        "proxies": list(literal_loss.parameters()),
    }
    optimizers = {
        part: torch.optim.AdamW(trained, weight_decay=weight_decay)
        for part, trained in parts.items()
    }
    for batch in steps.batches(0):
        literal_loss(other(batch.inputs), batch.labels).backward()
        for part, optimizer in optimizers.items():
            optimizer.param_groups[0]["lr"] = learning_rate(
                batch.time, 2, rates.get(part, 1e-3), "cosine"
            )
            optimizer.step()
            optimizer.zero_grad()
    steps.run(steps.batches(0))
    torch.testing.assert_close([*model.parameters()], [*other.parameters()])
    torch.testing.assert_close(loss.proxies, literal_loss.proxies)
    assert steps.rate == learning_rate(5 / 6, 2, rates.get("head", 1e-3), "cosine")


@pytest.mark.parametrize("longest", [1e-4, 1e4])
def test_a_gradient_that_is_too_long_is_shortened(records, longest):
    torch.manual_seed(1)
    loss = HyP2Loss(12, records.labels.shape[1])
    model, steps = make_steps(records, loss, clip_gradient=longest)
    trained = [*model.parameters(), *loss.parameters()]
    batch = next(steps.batches(0))
    expected = torch.autograd.grad(steps.value(batch), trained)
    length = sum(float(values.square().sum()) for values in expected) ** 0.5
    assert 1e-4 < length < 1e4
    seen = []
    steps.optimizer.step = lambda: seen.extend(values.grad.clone() for values in trained)
    steps.run([batch])
    for ours, literal in zip(seen, expected, strict=True):
        torch.testing.assert_close(ours, literal * min(1.0, longest / length), rtol=1e-4, atol=1e-9)


def test_a_training_stops_when_validation_no_longer_improves(tmp_path, records):
    scores = iter([0.1, 0.3, 0.2, 0.3, 0.25, 0.9])
    settings = TrainSettings(
        epochs=20, batch_size=60, validate_every=2, checkpoint_every=50, patience=3, device="cpu"
    )
    model, data = small_training(records, settings)

    def validate():
        value = next(scores)
        return {
            "validation": {"image->text": value, "text->image": value, "image->image": 1 - value}
        }

    entries = train(model, DSCHLoss(12), data, settings, tmp_path, validate)
    assert len(entries) == 10  # the second validation is not improved by the next three
    assert torch.load(tmp_path / "checkpoints" / "last.pt", weights_only=True)["epochs_done"] == 10
    assert train(model, DSCHLoss(12), data, settings, tmp_path, validate) == entries


def test_bfloat16_outputs_come_to_the_loss_in_float32(records):
    full, steps32 = make_steps(records, precision="float32")
    half, steps16 = make_steps(records, precision="bfloat16")
    batch = next(iter(steps32.batches(0)))
    outputs32 = steps32.forward_pass(batch.inputs, None)
    outputs16 = steps16.forward_pass(batch.inputs, None)
    for name in full.modalities:
        assert outputs16[name].dtype == torch.float32
        assert not torch.equal(outputs16[name], outputs32[name])
        torch.testing.assert_close(outputs16[name], outputs32[name], atol=0.1, rtol=0.05)
    assert all(parameter.dtype == torch.float32 for parameter in half.parameters())
    assert steps16.run([batch]).isfinite().all()


@pytest.mark.slow
def test_a_compiled_model_trains_as_the_plain_one(records):
    losses = []
    for compiled in (False, True):
        _, steps = make_steps(records, compile=compiled)
        losses.append(torch.cat([steps.run(steps.batches(epoch)) for epoch in range(2)]))
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
])  # fmt: skip
def test_exhausted_memory_says_what_to_lower(tmp_path, records, monkeypatch, error):
    monkeypatch.setattr(Steps, "run", Mock(side_effect=error))
    settings = TrainSettings(epochs=2, batch_size=60, device="cpu")
    model, data = small_training(records, settings)
    with pytest.raises(JobError, match=r"out of memory with train\.batch_size 60; lower it"):
        train(model, DSCHLoss(12), data, settings, tmp_path)


@pytest.mark.parametrize("train_settings", [{}, {"augment": "progressive"}, {"features": "online"}])
def test_a_dry_run_measures_and_writes_nothing(tmp_path, train_settings, monkeypatch):
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache"))
    items = write_pictures(tmp_path)
    config = picture_config(
        tmp_path / "c.yaml", items, clip_model(tmp_path), "tdsrdh", **train_settings
    )
    began = time.perf_counter()
    plan = plan_run(read_config(config))
    elapsed = time.perf_counter() - began
    assert plan["steps"] == 3 * 2 * 3  # epochs, streams, batches
    assert plan["parameters"]["trainable"] == 24 * 32 + 32 + 32 * 12 + 12
    assert plan["parameters"]["frozen"] > 1_500_000
    mode = plan["features"]
    assert mode == train_settings.get("features", "bank" if train_settings else "cached")
    seconds = plan["seconds"]
    assert 0 < seconds["step"] < elapsed
    assert seconds["total"] == pytest.approx(
        seconds["features"] + seconds["step"] * plan["steps"], rel=0.05, abs=0.01
    )
    assert (seconds["features"] > 0) == (mode != "online")
    assert seconds["total"] == pytest.approx(seconds["features"] + seconds["training"], abs=2e-4)
    assert plan["peak_mb"] > 100
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "run").exists()
