"""The steps of a training, in the order of this file.

`Steps.batches` draws the rows of each step and reads their inputs. `Steps.run` computes outputs and
loss of each batch, adds up the gradients of a step, and updates what is trained.
"""

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
from channelhash.losses.base import HashLoss, LossShard
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
        time: epochs trained before this batch, with the finished share of the current one.
    """

    inputs: dict[str, Tensor]
    rows: Tensor
    labels: Tensor
    anchor: str | None
    time: float


class _ForwardPass(nn.Module):
    """The model's outputs of a batch: the one call that `torch.compile` and DDP wrap."""

    def __init__(self, model: HashModel, precision: Precision) -> None:
        super().__init__()
        self.model = model
        self.precision = precision

    def forward(self, inputs: dict[str, Tensor], anchor: str | None) -> dict[str, Tensor]:
        """Return ``(n, k)`` float32 by modality; with an ``anchor`` the others are constants."""
        device = next(iter(inputs.values())).device
        with autocast(device, self.precision):
            if anchor is None:
                outputs = self.model(inputs)
            else:
                others = {name: values for name, values in inputs.items() if name != anchor}
                with torch.no_grad():
                    outputs = self.model(others)
                outputs |= self.model({anchor: inputs[anchor]})
        return {name: outputs[name].float() for name in inputs}


class Steps:
    """A model, its loss and its optimiser: Adam (``protocol.md`` § 6), with ``weight_decay`` AdamW.

    Args:
        model: the model that is trained, on its device.
        loss: is moved to that device.
        data: the training rows.
        settings: section ``train`` of a configuration.
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
        self.forward_pass: nn.Module = _ForwardPass(model, settings.precision)
        if settings.compile:
            self.forward_pass.compile()
        if distributed.world_size() > 1:
            # While one modality is the anchor, the parameters of the other have no gradient.
            self.forward_pass = DistributedDataParallel(
                self.forward_pass,
                find_unused_parameters=bool(self.anchors),
                broadcast_buffers=False,
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
        n = len(self.labels)
        drawn = inputs.epoch_steps(n, self.settings, epoch, self.anchors, self.data.images)
        steps = list(drawn)
        local_rows = [distributed.rows_of_rank(rows) for rows, _ in steps]
        sources = self.data.sources
        streams = zip(*(source(epoch, local_rows) for source in sources.values()), strict=True)
        for number, (rows, anchor) in enumerate(steps):
            values = [value.to(self.device, non_blocking=True) for value in next(streams)]
            placed = dict(zip(sources, values, strict=True))
            time = epoch + number / len(steps)
            yield _TrainingBatch(placed, rows, self.labels[rows], anchor, time)

    def run(self, batches: Iterable[_TrainingBatch]) -> Tensor:
        """Train on ``batches``, ``train.accumulate`` of them a step.

        Returns:
            The loss of each batch, ``(batches,)`` on the device.
        """
        remaining = iter(batches)
        losses: list[Tensor] = []
        while group := list(islice(remaining, self.settings.accumulate)):
            self._set_rates(group[0].time)
            losses += self._add_gradients(group)
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

    def _add_gradients(self, group: list[_TrainingBatch]) -> list[Tensor]:
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
        """Return the context of a backward pass: ranks exchange their gradients once, after the
        last batch of a step.
        """
        if is_last or not isinstance(self.forward_pass, DistributedDataParallel):
            return nullcontext()
        return self.forward_pass.no_sync()

    def value(self, batch: _TrainingBatch) -> Tensor:
        """Return this rank's shard of the loss over the rows of all ranks; the shards add up."""
        outputs = distributed.gather_outputs(self.forward_pass(batch.inputs, batch.anchor))
        shard = LossShard(distributed.rank(), distributed.world_size())
        return cast(
            Tensor,
            self.loss(outputs, batch.labels, anchor=batch.anchor, rows=batch.rows, shard=shard),
        )

    def _update(self) -> None:
        """Take a step of the optimiser along the gradients that were added up."""
        distributed.sum_gradients(self.loss)
        if self.settings.clip_gradient:
            groups = self.optimizer.param_groups
            trained = chain.from_iterable(group["params"] for group in groups)
            nn.utils.clip_grad_norm_(trained, self.settings.clip_gradient)
        self.optimizer.step()
        if self.average:
            self.average.update()

    @property
    def rate(self) -> float:
        """The learning rate of the last step; that of the heads, where parts have their own."""
        head = self.settings.rates.get("head", self.settings.learning_rate)
        return float(self.optimizer.param_groups[self.rates.index(head)]["lr"])

    def save(self, path: Path, epochs_done: int) -> None:
        """Write a checkpoint: what is trained in model and loss, the state of the optimiser, the
        number of finished epochs, and the average of the weights, if any.

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
        """Restore a checkpoint of `save`; return the number of finished epochs."""
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
    >>> by_rate = _parameters_by_rate(model, nn.Linear(2, 5), settings)
    >>> {rate: len(parameters) for rate, parameters in by_rate.items()}
    {1e-05: 2, 0.001: 4}
    """
    part_of = dict.fromkeys(model.parameters(), "head")
    for branch in map(model.branch, model.modalities):
        if branch.pretrained:
            part_of.update(dict.fromkeys(branch.encoder.parameters(), "backbone"))
    part_of.update(dict.fromkeys(loss.parameters(), "proxies"))
    rates = {str(part): rate for part, rate in settings.rates.items()}
    by_rate: dict[float, list[nn.Parameter]] = {}
    for parameter, part in part_of.items():
        if parameter.requires_grad:
            by_rate.setdefault(rates.get(part, settings.learning_rate), []).append(parameter)
    return by_rate
