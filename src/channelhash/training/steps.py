"""The steps of a training: the outputs of a batch, the loss over its pairs, the update."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from channelhash.config import TrainSettings
from channelhash.errors import InputError
from channelhash.losses.base import HashLoss, Shard
from channelhash.models import HashModel
from channelhash.models.backbones import Precision, autocast, load_weights
from channelhash.training import distributed, inputs
from channelhash.training.averages import Average
from channelhash.training.schedule import learning_rate
from channelhash.utils.decode import one_line
from channelhash.utils.files import atomic_path


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
    """The model's outputs of a batch by modality: the one call that `torch.compile` and DDP
    wrap.
    """

    def __init__(self, model: HashModel, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self.precision = precision

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
        self.model = model
        self.data = data
        self.settings = settings
        self.device = model.device
        self.loss = loss.to(self.device)
        self.labels = data.targets.to(self.device)
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
        self.average = Average(model, settings.average) if settings.average else None

    def batches(self, epoch: int) -> Iterator[_TrainingBatch]:
        """Yield this rank's batches of an epoch, on the device."""
        steps = list(
            inputs.epoch_steps(
                len(self.labels), self.settings, epoch, self.anchors, self.data.images
            )
        )
        local_rows = [_rows_of_rank(rows) for rows, _ in steps]
        sources = self.data.sources
        streams = zip(*(source(epoch, local_rows) for source in sources.values()), strict=True)
        for number, (rows, anchor) in enumerate(steps):
            values = [value.to(self.device, non_blocking=True) for value in next(streams)]
            placed = dict(zip(sources, values, strict=True))
            time = epoch + number / len(steps)
            yield _TrainingBatch(placed, rows, self.labels[rows], anchor, time)

    def run(self, batches: Iterable[_TrainingBatch]) -> Tensor:
        """Train on ``batches`` and return the loss of each, ``(batches,)`` on the device."""
        remaining = iter(batches)
        losses: list[Tensor] = []
        while group := list(islice(remaining, self.settings.accumulate)):
            self._set_rates(group[0].time)
            losses += self._accumulate(group)
            self._update()
        total = torch.stack(losses)
        if distributed.world_size() > 1:
            dist.all_reduce(total)
        return total

    def _set_rates(self, time: float) -> None:
        """Set the learning rate of each group of parameters at a time in epochs."""
        settings = self.settings
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = learning_rate(time, settings.epochs, rate, settings.schedule)

    def _accumulate(self, group: list[_TrainingBatch]) -> list[Tensor]:
        """Add up the gradients of the batches of one step; return the loss of each."""
        self.optimizer.zero_grad(set_to_none=True)
        losses = []
        for number, batch in enumerate(group, start=1):
            with self._exchange(is_last=number == len(group)):
                value = self.value(batch)
                (value / len(group)).backward()  # type: ignore[no-untyped-call]
            losses.append(value.detach())
        return losses

    def _exchange(self, is_last: bool) -> AbstractContextManager[object]:
        """Return what a backward pass runs in: ranks exchange their gradients once, after the last
        batch of a step.
        """
        if is_last or not isinstance(self.outputs, DistributedDataParallel):
            return nullcontext()
        return self.outputs.no_sync()

    def _update(self) -> None:
        """Take a step of the optimiser by the gradients that were added up."""
        _sum_gradients(self.loss)
        if self.settings.clip_gradient:
            groups = self.optimizer.param_groups
            trained = chain.from_iterable(group["params"] for group in groups)
            nn.utils.clip_grad_norm_(trained, self.settings.clip_gradient)
        self.optimizer.step()
        if self.average:
            self.average.update()

    def value(self, batch: _TrainingBatch) -> Tensor:
        """Return this rank's shard of the loss over the rows of all ranks: the shards add up to
        it.
        """
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
    backbone: set[int] = set()
    for branch in map(model.branch, model.modalities):
        if branch.pretrained:
            backbone |= {id(values) for values in branch.encoder.parameters()}
    parts = [
        ("backbone" if id(values) in backbone else "head", values) for values in model.parameters()
    ]
    parts += [("proxies", values) for values in loss.parameters()]
    rates = {str(part): rate for part, rate in settings.rates.items()}
    by_rate: dict[float, list[nn.Parameter]] = {}
    for part, values in parts:
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
