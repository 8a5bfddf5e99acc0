"""Fit a model to the training rows of a collection: the loop of the paper (``protocol.md`` § 6),
and its steps.

A step: outputs of a batch, the loss over its pairs, the update. Then the average of the weights,
and checkpoints.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from channelhash.codes import CodeSet
from channelhash.config import TrainSettings
from channelhash.data.collection import Collection
from channelhash.data.records import Records
from channelhash.data.splits import Rows, Splits
from channelhash.errors import InputError, JobError
from channelhash.losses.base import HashLoss, Shard
from channelhash.models import HashModel
from channelhash.models.backbones import (
    Precision,
    autocast,
    load_weights,
    memory_advice,
    read_weights,
)
from channelhash.models.heads import fit_scales, rotate_outputs
from channelhash.training import distributed, inputs
from channelhash.training.validation import Entry, read_log, recorder, selection_score, validator
from channelhash.utils.files import atomic_path, one_line
from channelhash.utils.progress import Progress, StageProgress, no_progress, note
from channelhash.utils.seeds import derive_seed


class _Average(nn.Module):
    """The exponential moving average of trained weights, without the bias of its start (as in
    Adam)::

        a_t = Σ_{s ≤ t} d^(t − s) w_s / Σ_{s ≤ t} d^(t − s)

    Buffers, such as running statistics, are not averaged. Memory: one more copy of the trained
    weights.

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> average = _Average(layer, decay=0.5)
    >>> for weight in (1.0, 4.0):
    ...     _ = nn.init.constant_(layer.weight, weight)
    ...     average.update()
    >>> with average.in_place():
    ...     layer.weight.item()
    3.0
    >>> layer.weight.item()
    4.0
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        super().__init__()
        self.decay, self.steps = decay, nn.Buffer(torch.tensor(0))
        self.trained = [
            parameter.data for parameter in model.parameters() if parameter.requires_grad
        ]
        self.values = nn.ParameterList(
            nn.Parameter(values.clone(), False) for values in self.trained
        )

    def update(self) -> None:
        """Take in the weights as they are after a step."""
        self.steps.add_(1)
        share = (1 - self.decay) / (1 - self.decay ** self.steps.item())
        torch._foreach_lerp_(list(self.values), self.trained, share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model its average for a while."""
        self.swap()
        try:
            yield
        finally:
            self.swap()

    def swap(self) -> None:
        """Give the model its average, and keep the model's weights in its place."""
        for values, trained in zip(self.values, self.trained, strict=True):
            copy = trained.clone()
            trained.copy_(values)
            values.copy_(copy)


#: Share of a training over which the cosine schedule rises from 0.
_WARM_UP = 0.05


def _learning_rate(
    epoch: float, epochs: int, initial: float, schedule: Literal["paper", "cosine"] = "paper"
) -> float:
    """Return the learning rate after ``epoch`` epochs.

    ``paper`` (``protocol.md`` § 6): constant within an epoch; constant, then a cosine to a tenth,
    then constant. The paper's 200 epochs turn at 75 and 150; other lengths turn at the same
    fractions, 3/8 and 3/4.

    ``cosine``: from step to step; a rise from 0 over the first 5 % of the training, then half a
    cosine to 0.

    >>> [round(_learning_rate(e, 200, 1e-5) * 1e6, 2) for e in (0, 74, 75, 112, 149, 150, 199)]
    [10.0, 10.0, 10.0, 5.59, 1.0, 1.0, 1.0]
    >>> [round(_learning_rate(e, 20, 1.0, "cosine"), 2) for e in (0, 0.5, 1, 10.5, 20)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if schedule == "cosine":
        progress = epoch / epochs
        if progress < _WARM_UP:
            return initial * progress / _WARM_UP
        return initial * (1 + math.cos(math.pi * (progress - _WARM_UP) / (1 - _WARM_UP))) / 2
    start, end = 75 / 200, 150 / 200
    progress = min(max(math.floor(epoch) / epochs, start), end)
    return initial * (0.1 + 0.9 * (1 + math.cos(math.pi * (progress - start) / (end - start))) / 2)


class _TrainingBatch(NamedTuple):
    """One batch of a step.

    Attributes:
        inputs: modality -> this rank's inputs, on the device.
        rows: row numbers of the global batch among the training rows.
        labels: of those rows.
        anchor: the modality that is trained; None trains all.
        time: epochs of the training before this batch, with the finished share of the current one.
    """

    inputs: dict[str, Tensor]
    rows: Tensor
    labels: Tensor
    anchor: str | None
    time: float


class _ForwardPass(nn.Module):
    """The model's outputs of a batch by modality: the one call that `torch.compile` and DDP wrap."""

    def __init__(self, model: HashModel, precision: Precision) -> None:
        super().__init__()
        self.model, self.precision = model, precision

    def forward(self, inputs: dict[str, Tensor], anchor: str | None) -> dict[str, Tensor]:
        """Return ``(n, k)`` float32 by modality; with an ``anchor`` the other modality is a
        constant.
        """
        device = next(iter(inputs.values())).device
        with autocast(device, self.precision):
            if anchor is None:
                outputs = self.model(inputs)
            else:
                with torch.no_grad():
                    outputs = self.model(
                        {name: values for name, values in inputs.items() if name != anchor}
                    )
                outputs |= self.model({anchor: inputs[anchor]})
        return {name: outputs[name].float() for name in inputs}


class Steps:
    """A model, its loss and its optimiser (Adam as in ``protocol.md`` § 6; AdamW with
    ``weight_decay``).
    """

    def __init__(
        self, model: HashModel, loss: HashLoss, data: inputs.TrainingSet, settings: TrainSettings
    ) -> None:
        self.model, self.data, self.settings, self.device = model, data, settings, model.device
        self.loss, self.labels = loss.to(self.device), data.targets.to(self.device)
        self.anchors = model.modalities if loss.trains_anchor else ()
        self.outputs: nn.Module = _ForwardPass(model, settings.precision)
        if settings.compile:
            self.outputs.compile()
        if distributed.world_size() > 1:
            # One stream's parameters have no gradient while the other is the anchor.
            self.outputs = DistributedDataParallel(
                self.outputs, find_unused_parameters=bool(self.anchors), broadcast_buffers=False
            )
        by_rate = _parameters_by_rate(model, loss, settings)
        self.rates = list(by_rate)
        groups = [{"params": parameters, "lr": rate} for rate, parameters in by_rate.items()]
        # Without a decay it is Adam, to the last bit.
        self.optimizer = torch.optim.AdamW(
            groups, weight_decay=settings.weight_decay, eps=1e-8, fused=True
        )
        self.average = _Average(model, settings.average) if settings.average else None

    def batches(self, epoch: int) -> Iterator[_TrainingBatch]:
        """Yield this rank's batches of an epoch, on the device."""
        sources = self.data.sources
        steps = list(
            inputs.epoch_steps(
                len(self.labels), self.settings, epoch, self.anchors, self.data.images
            )
        )
        local_rows = [_rows_of_rank(rows) for rows, _ in steps]
        streams = [source(epoch, local_rows) for source in sources.values()]
        for number, ((rows, anchor), values) in enumerate(
            zip(steps, zip(*streams, strict=True), strict=True)
        ):
            placed = [value.to(self.device, non_blocking=True) for value in values]
            elapsed = epoch + number / len(steps)
            yield _TrainingBatch(
                dict(zip(sources, placed, strict=True)), rows, self.labels[rows], anchor, elapsed
            )

    def run(self, batches: Iterable[_TrainingBatch]) -> Tensor:
        """Train on ``batches`` and return the loss of each, ``(batches,)`` on the device."""
        remaining, losses, settings = iter(batches), [], self.settings
        while group := list(islice(remaining, settings.accumulate)):
            for parameters, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                parameters["lr"] = _learning_rate(
                    group[0].time, settings.epochs, rate, settings.schedule
                )
            self.optimizer.zero_grad(set_to_none=True)
            for number, batch in enumerate(group, start=1):
                # Ranks exchange their gradients once, after the last batch of a step.
                waits = isinstance(self.outputs, DistributedDataParallel) and number < len(group)
                with self.outputs.no_sync() if waits else nullcontext():  # type: ignore[operator]
                    value = self.value(batch)
                    (value / len(group)).backward()  # type: ignore[no-untyped-call]
                losses.append(value.detach())
            _sum_gradients(self.loss)
            if settings.clip_gradient:
                trained = [
                    values for group in self.optimizer.param_groups for values in group["params"]
                ]
                nn.utils.clip_grad_norm_(trained, settings.clip_gradient)
            self.optimizer.step()
            if self.average:
                self.average.update()
        total = torch.stack(losses)
        if distributed.world_size() > 1:
            dist.all_reduce(total)
        return total

    def value(self, batch: _TrainingBatch) -> Tensor:
        """Return this rank's shard of the loss over the rows of all ranks: the shards add up to it."""
        outputs = _gather_outputs(self.outputs(batch.inputs, batch.anchor))
        shard = Shard(distributed.rank(), distributed.world_size())
        return cast(
            Tensor,
            self.loss(outputs, batch.labels, anchor=batch.anchor, rows=batch.rows, shard=shard),
        )

    @property
    def rate(self) -> float:
        """The learning rate of the last step: the heads', where parts have rates of their own."""
        head = self.settings.rates.get("head", self.settings.learning_rate)
        return float(self.optimizer.param_groups[self.rates.index(head)]["lr"])

    def save(self, path: Path, epochs_done: int) -> None:
        """Write what is trained (in the model and in the loss), optimiser state, the number of
        finished epochs, and the average of the weights, if any.

        A frozen backbone is named with the hash of its weights, not stored. There is no generator
        state: every draw is a function of (seed, epoch), see `channelhash.utils.seeds`.
        """
        state = {
            "model": self.model.trained_state(),
            "backbones": self.model.backbones(),
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "epochs_done": epochs_done,
        }
        if self.average:
            state["average"] = self.average.state_dict()
        with atomic_path(path) as temporary:
            torch.save(state, temporary)

    def load(self, path: Path) -> int:
        """Go on from what `save` wrote; return the number of finished epochs."""
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if state["backbones"] != self.model.backbones():
                raise ValueError(f"made on {state['backbones']}")
            load_weights(self.model.trained_state(), state["model"], "it")
            self.loss.load_state_dict(state["loss"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.average:
                self.average.load_state_dict(state["average"])
            return int(state["epochs_done"])
        except Exception as error:
            # torch, pickle and zip each have their own types for a damaged file
            message = (
                f"{path}: damaged or of another model ({one_line(error)}); remove it to train "
                "from the start"
            )
            raise InputError(message) from None


def _parameters_by_rate(
    model: HashModel, loss: nn.Module, settings: TrainSettings
) -> dict[float, list[nn.Parameter]]:
    """Group what is trained by its highest learning rate: that of its part in ``train.rates``, or
    the common one.

    >>> from channelhash.models import Branch
    >>> branch = Branch(torch.tensor, nn.Linear(3, 3), nn.Linear(3, 2), pretrained=True)
    >>> model = HashModel("mine", 2, {}, {"text": branch})
    >>> settings = TrainSettings(learning_rate=1e-3, rates={"backbone": 1e-5})
    >>> {rate: len(trained) for rate, trained in _parameters_by_rate(model, nn.Linear(2, 5), settings).items()}
    {1e-05: 2, 0.001: 4}
    """
    pretrained = [
        branch.encoder for branch in map(model.branch, model.modalities) if branch.pretrained
    ]
    backbone = {id(values) for encoder in pretrained for values in encoder.parameters()}
    rates = {str(part): rate for part, rate in settings.rates.items()}
    parts = [
        ("backbone" if id(values) in backbone else "head", values) for values in model.parameters()
    ]
    by_rate: dict[float, list[nn.Parameter]] = {}
    for part, values in [*parts, *(("proxies", values) for values in loss.parameters())]:
        if values.requires_grad:
            by_rate.setdefault(rates.get(part, settings.learning_rate), []).append(values)
    return by_rate


def _rows_of_rank(rows: Tensor) -> Tensor:
    """Return this rank's consecutive rows of a global batch.

    >>> _rows_of_rank(torch.arange(4)).tolist()
    [0, 1, 2, 3]
    """
    size = distributed.world_size()
    if len(rows) % size:
        raise InputError(
            f"train.batch_size is {len(rows)}: {size} processes cannot share it evenly"
        )
    return rows.chunk(size)[distributed.rank()]


def _gather_outputs(outputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the outputs of all ranks, ``(n / world, k)`` each, as one ``(n, k)`` with gradients,
    ordered by rank.

    What is computed from them is this rank's part of a sum over ranks; the gradient is that of the
    whole sum.

    >>> _gather_outputs({"image": torch.zeros(2, 8)})["image"].shape
    torch.Size([2, 8])
    """
    if distributed.world_size() == 1:
        return outputs
    together = _Gather.apply(torch.stack(list(outputs.values())))  # type: ignore[no-untyped-call]
    return dict(zip(outputs, together.unbind(), strict=True))


def _sum_gradients(module: nn.Module) -> None:
    """Sum the gradients of a module outside DDP over ranks, of which each has its part."""
    if distributed.world_size() > 1:
        for parameter in module.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)


class _Gather(torch.autograd.Function):
    """``(m, n / world, k)`` of each rank -> ``(m, n, k)``, all modalities in one exchange.

    DDP averages the parameters' gradients over ranks, but the loss is a sum over them, hence the
    factor.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        parts = [torch.empty_like(values) for _ in range(distributed.world_size())]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient)
        return (
            gradient.chunk(distributed.world_size(), dim=1)[distributed.rank()]
            * distributed.world_size()
        )


def train(
    model: HashModel,
    loss: HashLoss,
    data: inputs.TrainingSet,
    settings: TrainSettings,
    folder: Path,
    validate: Callable[[], Entry] | None = None,
    progress: Progress = no_progress,
) -> list[Entry]:
    """Train ``model`` in place, and write ``log.jsonl``, ``checkpoints/`` and events of TensorBoard
    into ``folder``.

    It goes on from ``checkpoints/last.pt``, on a CPU to the bits of an uninterrupted training:
    draws are functions of (seed, epoch). Of several processes (`distributed`) each takes its shard
    of a batch, the first validates and writes.
    """
    steps = Steps(model.train(), loss, data, settings)
    last, best = (folder / "checkpoints" / name for name in ("last.pt", "best"))
    start = steps.load(last) if last.exists() else 0
    log, first = read_log(folder / "log.jsonl")[:start], distributed.rank() == 0
    advice = memory_advice(_ADVICE.format(settings.batch_size))
    with recorder(folder, start) if first else nullcontext() as record, advice:
        for epoch in range(start, settings.epochs):
            if _waited_long_enough(log, settings.patience):
                break
            began, done = time.perf_counter(), epoch + 1
            torch.manual_seed(
                derive_seed(
                    settings.seed, "dropout", epoch, *(() if first else (distributed.rank(),))
                )
            )
            losses = steps.run(steps.batches(epoch))
            _check_finite(losses, epoch, steps.rate, last)
            entry: Entry = {
                "epoch": epoch,
                "loss": losses.mean().item(),
                "learning_rate": steps.rate,
            }
            due = settings.validate_every and (
                done % settings.validate_every == 0 or done == settings.epochs
            )
            if validate and due:
                with steps.average.in_place() if steps.average else nullcontext():
                    entry |= distributed.from_first(validate() if first else None)
                    if first and selection_score(entry["validation"]) > max(
                        _scores(log), default=-math.inf
                    ):
                        model.save_pretrained(best)
            entry["seconds"] = round(time.perf_counter() - began, 3)
            log.append(entry)
            ends = done == settings.epochs or _waited_long_enough(log, settings.patience)
            if record:
                record(log)
                if ends or done % settings.checkpoint_every == 0:
                    steps.save(last, done)
            note(progress, f"loss {entry['loss']:.4g}")
            progress(done, settings.epochs)
    if settings.keep == "best":
        distributed.wait_for_all()  # the first process has written it
        file = best / "model.safetensors"
        load_weights(model.trained_state(), read_weights(file), str(file))
    elif steps.average:
        steps.average.swap()
    model.eval()
    return log


_ADVICE = (
    "with train.batch_size {}; lower it (train.accumulate keeps the samples of a step), or give "
    "more processes"
)


def _check_finite(losses: Tensor, epoch: int, rate: float, checkpoint: Path) -> None:
    if not losses.isfinite().all():
        step = int((~losses.isfinite()).nonzero()[0])
        advice = f"lower train.learning_rate (now {rate:g})"
        if epoch == step == 0:
            advice = "nothing was learned yet, so look at the loss and at its inputs"
        raise JobError(
            f"epoch {epoch}, step {step}: the loss is {losses[step].item()}; {advice}; "
            f"{f'the last good checkpoint is {checkpoint}' if checkpoint.exists() else 'there is no checkpoint yet'}"
        )


def _waited_long_enough(log: list[Entry], patience: int) -> bool:
    """Return whether none of the last ``patience`` validations is better than the best before them."""
    scores = _scores(log)
    return 0 < patience < len(scores) and max(scores[-patience:]) <= max(scores[:-patience])


def _scores(log: list[Entry]) -> list[float]:
    return [selection_score(entry["validation"]) for entry in log if "validation" in entry]


class Trainee(NamedTuple):
    """A model with what it is trained and validated on.

    Attributes:
        model: the model that is trained. Unless its inputs come ``online`` it is ``feature_model``,
            so that the memory of the backbone is free again.
        feature_model: the same model without frozen backbones, which takes features; see
            `HashModel.on_features`.
        features: all rows of the collection, as ``feature_model`` takes them.
        sources: inputs of the training rows, as ``model`` takes them.
        settings: how it is trained.
        images: ``(n,)`` which image each training row shows, for ``train.captions: one``.
        stored: codes that old items of the retrieval set keep, whatever the model makes of them
            now.
    """

    model: HashModel
    feature_model: HashModel
    features: Records
    sources: dict[str, inputs.Source]
    settings: TrainSettings
    images: Tensor | None = None
    stored: CodeSet | None = None

    @classmethod
    def prepare(
        cls,
        model: HashModel,
        collection: Collection,
        rows: Rows,
        settings: TrainSettings,
        progress: StageProgress,
    ) -> "Trainee":
        """Bring a model to its device, and compute or read the features that it is trained and
        validated on.

        The scales of an ``aligned`` one are fitted to the training ``rows``, at most 20,000; an
        extension keeps them.
        """
        train_records = collection.records.take(rows)
        images = training_images(train_records, settings)
        model.to(distributed.local_device(settings.device))
        mode = inputs.feature_mode(model, settings)
        features = inputs.collection_features(model, collection, settings, progress)
        sources = inputs.training_sources(
            model, train_records, features.take(rows), mode, settings, progress
        )
        feature_model = model.on_features()
        trained = model if mode == "online" else feature_model
        trainee = cls(trained, feature_model, features, sources, settings, images)
        if feature_model.name == "aligned" and not feature_model.extends:
            evenly_spaced = rows[:: math.ceil(len(rows) / 20_000)]
            fit_scales(feature_model, trainee._inputs(features.take(evenly_spaced)))
        return trainee

    def fit(
        self, loss: HashLoss, targets: Tensor, splits: Splits, folder: Path, progress: StageProgress
    ) -> HashModel:
        """Train the model, validate it on V_q and V_r (without labels on V_q alone), and return it."""
        settings = self.settings
        validate = validator(
            self.feature_model, self.features, self.stored, splits, settings, progress
        )
        if settings.keep == "best" and not (validate and settings.validate_every):
            raise InputError(
                "train.keep is best, but nothing is validated; give validation rows, or keep the "
                "last"
            )
        data = inputs.TrainingSet(self.sources, targets, self.images)
        train(self.model, loss, data, settings, folder, validate, progress("train"))
        # of a model ``aligned``: they are to be codes
        if n_leading := self.feature_model.architecture.get("nested"):
            records = self.features.take(splits.train)
            images = _images_of_rows(records)
            rotate_outputs(
                self.feature_model, self._inputs(records), images, n_leading, settings.seed
            )
        return self.model

    def _inputs(self, records: Records) -> dict[str, Tensor]:
        model = self.feature_model
        return {
            modality: inputs.prepare_inputs(model, records, modality)
            for modality in model.modalities
        }


def training_images(train: Records, settings: TrainSettings) -> Tensor | None:
    """Return `_images_of_rows` for ``captions: one``, else None."""
    images = _images_of_rows(train) if settings.captions == "one" else None
    n = len(train) if images is None else int(images.max()) + 1
    if settings.batch_size > n:
        raise InputError(
            f"train.batch_size is {settings.batch_size}, but there are {n} training rows; choose 1 "
            f"… {n}"
        )
    return images


def _images_of_rows(records: Records) -> Tensor:
    """Return ``(n,)`` which of the images 0 … m − 1 each row shows, by `Records.pair_ids`.

    >>> _images_of_rows(Records(("b", "a", "b"), {"text": ("", "", "")}, np.zeros((3, 0), dtype=bool), ())).tolist()
    [1, 0, 1]
    """
    return torch.from_numpy(
        np.unique(np.asarray(records.pair_ids, dtype=str), return_inverse=True)[1]
    )
