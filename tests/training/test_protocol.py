"""The options of the training protocol: accumulation, early stopping, precision, compilation, and what goes wrong."""

import copy
import time
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from channelhash.config import TrainSettings, read_config
from channelhash.data.features import load_features
from channelhash.errors import JobError
from channelhash.losses import DSCHLoss, HyP2Loss
from channelhash.models import MODELS, Branch, HashModel
from channelhash.models.hash_model import feature_rows
from channelhash.runs.train import plan_run
from channelhash.training import trainer
from channelhash.training.inputs import TrainingSet, memory_batches, prepare_inputs
from channelhash.training.trainer import Steps, _learning_rate, train
from channelhash.utils.typed_settings import read_settings
from picture_runs import clip_model, picture_config, write_pictures
from refusals import check_refusal
from small_runs import assert_refused, feature_config, write_features


@pytest.fixture
def records(tmp_path):
    return load_features(write_features(tmp_path / "f.npz"))


def make_steps(records, loss=None, **settings):
    torch.manual_seed(0)
    model = MODELS["features"].create(records, 12, hidden=[16], dropout=0.0)
    checked = TrainSettings(**{"batch_size": 40, "learning_rate": 1e-3, "device": "cpu"} | settings)
    sources = {m: partial(memory_batches, prepare_inputs(model, records, m), checked) for m in model.modalities}
    loss = loss or DSCHLoss(12)
    return model, Steps(model, loss, torch.from_numpy(records.labels), checked), sources


def test_accumulated_gradients_are_the_mean_of_their_batches(records):
    model, steps, sources = make_steps(records, accumulate=4)
    batches = list(steps.batches(sources, 0))
    assert len(batches) == 6
    losses = [steps.value(batch) for batch in batches[:4]]
    expected = torch.autograd.grad(sum(losses) / 4, list(model.parameters()))
    seen = []
    steps.optimizer.step = lambda: seen.append([p.grad.clone() for p in model.parameters()])
    values = steps.run(batches)
    assert len(seen) == 2  # four batches and two
    torch.testing.assert_close(seen[0], [*expected])
    torch.testing.assert_close(values[:4], torch.stack(losses).detach())


def test_rates_are_of_known_parts_and_losses_without_proxies_have_none(records):
    _, steps, _ = make_steps(records, rates={"proxies": 0.05})
    assert len(steps.optimizer.param_groups) == 1
    for rates, says in (({"proxy": 0.1}, r"train.rates.proxy.*'proxies'"), ({"proxies": -0.1}, "train.rates.proxies")):
        check_refusal(says, read_settings, TrainSettings, {"rates": rates}, "train")


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(
    "rates",
    [{"backbone": 1e-5}, {"backbone": 1e-5, "head": 0.01, "proxies": 0.05}, {"head": 0.0}, {"proxies": 0.0}, {}],
)
def test_backbone_head_and_proxies_have_rates_of_their_own(records, rates, weight_decay):
    """Against an optimiser for each part, at its rate of a falling schedule."""
    torch.manual_seed(1)
    loss = HyP2Loss(12, records.labels.shape[1])
    widths = {name: rows.shape[1] for name, rows in records.items.items()}
    branches = {}
    for name, width in widths.items():
        prepare = partial(feature_rows, modality=name, width=width)
        branches[name] = Branch(prepare, nn.Linear(width, 8), nn.Linear(8, 12), pretrained=not branches)
    model, settings = HashModel("mine", 12, {}, branches), {"learning_rate": 1e-3, "schedule": "cosine", "epochs": 2}
    checked = TrainSettings(rates=rates, batch_size=40, weight_decay=weight_decay, device="cpu", **settings)
    steps = Steps(model, loss, torch.from_numpy(records.labels), checked)
    sources = {m: partial(memory_batches, prepare_inputs(model, records, m), checked) for m in model.modalities}
    other, literal_loss = copy.deepcopy(model), copy.deepcopy(loss)
    first, second = (other.branch(name) for name in widths)
    heads = [*first.head.parameters(), *second.parameters()]
    parts = {"backbone": list(first.encoder.parameters()), "head": heads, "proxies": list(literal_loss.parameters())}
    optimizers = {part: torch.optim.AdamW(trained, weight_decay=weight_decay) for part, trained in parts.items()}
    for batch in steps.batches(sources, 0):
        literal_loss(other(batch.inputs), batch.labels).backward()
        for part, optimizer in optimizers.items():
            optimizer.param_groups[0]["lr"] = _learning_rate(batch.time, 2, rates.get(part, 1e-3), "cosine")
            optimizer.step()
            optimizer.zero_grad()
    steps.run(steps.batches(sources, 0))
    torch.testing.assert_close([*model.parameters()], [*other.parameters()])
    torch.testing.assert_close(loss.proxies, literal_loss.proxies)
    assert steps.rate == _learning_rate(5 / 6, 2, rates.get("head", 1e-3), "cosine")


@pytest.mark.parametrize("longest", [1e-4, 1e4])
def test_a_gradient_that_is_too_long_is_shortened(records, longest):
    torch.manual_seed(1)
    loss = HyP2Loss(12, records.labels.shape[1])
    model, steps, sources = make_steps(records, loss, clip_gradient=longest)
    trained = [*model.parameters(), *loss.parameters()]
    batch = next(steps.batches(sources, 0))
    expected = torch.autograd.grad(steps.value(batch), trained)
    length = sum(float(values.square().sum()) for values in expected) ** 0.5
    assert 1e-4 < length < 1e4
    seen = []
    steps.optimizer.step = lambda: seen.extend(values.grad.clone() for values in trained)
    steps.run([batch])
    for ours, literal in zip(seen, expected, strict=True):
        torch.testing.assert_close(ours, literal * min(1.0, longest / length), rtol=1e-4, atol=1e-9)


def test_a_training_stops_when_validation_no_longer_improves(tmp_path, records):
    model, _, sources = make_steps(records)
    scores = iter([0.1, 0.3, 0.2, 0.3, 0.25, 0.9])
    settings = TrainSettings(epochs=20, batch_size=60, validate_every=2, checkpoint_every=50, patience=3, device="cpu")

    def validate():
        value = next(scores)
        return {"validation": {"image->text": value, "text->image": value, "image->image": 1 - value}}

    labels = torch.from_numpy(records.labels)
    entries = train(model, DSCHLoss(12), TrainingSet(sources, labels), settings, tmp_path, validate)
    assert len(entries) == 10  # the second validation is not improved by the next three
    assert torch.load(tmp_path / "checkpoints" / "last.pt", weights_only=True)["epochs_done"] == 10
    assert train(model, DSCHLoss(12), TrainingSet(sources, labels), settings, tmp_path, validate) == entries


def test_bfloat16_outputs_come_to_the_loss_in_float32(records):
    full, steps32, sources = make_steps(records, precision="float32")
    half, steps16, _ = make_steps(records, precision="bfloat16")
    batch = next(iter(steps32.batches(sources, 0)))
    outputs32, outputs16 = steps32.outputs(batch[0], None), steps16.outputs(batch[0], None)
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
        _, steps, sources = make_steps(records, compile=compiled)
        losses.append(torch.cat([steps.run(steps.batches(sources, epoch)) for epoch in range(2)]))
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("error", [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
])  # fmt: skip
def test_exhausted_memory_says_what_to_lower(tmp_path, records, monkeypatch, error):
    model, _, sources = make_steps(records)
    monkeypatch.setattr(trainer.Steps, "run", Mock(side_effect=error))
    settings = TrainSettings(epochs=2, batch_size=60, device="cpu")
    with pytest.raises(JobError, match=r"out of memory with train\.batch_size 60; lower it"):
        train(model, DSCHLoss(12), TrainingSet(sources, torch.from_numpy(records.labels)), settings, tmp_path)


@pytest.mark.parametrize("train_settings", [{}, {"augment": "progressive"}, {"features": "online"}])
def test_a_dry_run_measures_and_writes_nothing(tmp_path, train_settings, monkeypatch):
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache"))
    items = write_pictures(tmp_path)
    config = picture_config(tmp_path / "c.yaml", items, clip_model(tmp_path), "tdsrdh", **train_settings)
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
    assert seconds["total"] == pytest.approx(seconds["features"] + seconds["step"] * plan["steps"], rel=0.05, abs=0.01)
    assert (seconds["features"] > 0) == (mode != "online")
    assert seconds["total"] == pytest.approx(seconds["features"] + seconds["training"], abs=2e-4)
    assert plan["peak_mb"] > 100
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("device", ["cuda:99", "gpu"])
def test_a_device_that_is_not_there_is_refused(tmp_path, capsys, device):
    config = feature_config(tmp_path / "c.yaml", write_features(tmp_path / "f.npz"), device=device)
    assert_refused(capsys, "train", config, "--out", tmp_path / "run", says=f"device '{device}' is not there")
