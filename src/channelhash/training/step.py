"""Optimiser steps: outputs of a batch, the loss over its pairs, the update."""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from channelhash.config import TrainSettings
from channelhash.losses.functional import Labels
from channelhash.models.backbones import Precision, autocast
from channelhash.models.hash_model import HashModel
from channelhash.training.batches import epoch_batches
from channelhash.training.distributed import gather_outputs, own_rows, rank, sum_gradients, sum_over_ranks, world_size
from channelhash.training.mixup import labels_by_modality
from channelhash.training.sources import Source

#: Inputs by modality, rows of the global batch and their labels, and the modality that is trained (None: both).
Batch = tuple[dict[str, Tensor], Tensor, Labels, str | None]


class Outputs(nn.Module):
    """Outputs of a batch by modality: the one call that `torch.compile` and DDP wrap."""

    def __init__(self, model: HashModel, precision: Precision) -> None:
        super().__init__()
        self.model, self.precision = model, precision

    def forward(self, inputs: dict[str, Tensor], anchor: str | None) -> dict[str, Tensor]:
        """``(n, k)`` float32 each; with an ``anchor`` the other modality is a constant."""
        device = next(iter(inputs.values())).device
        with autocast(device, self.precision):
            if anchor is None:
                outputs = self.model(inputs)
            else:
                with torch.no_grad():
                    outputs = self.model({name: values for name, values in inputs.items() if name != anchor})
                outputs |= self.model({anchor: inputs[anchor]})
        return {name: outputs[name].float() for name in inputs}


class Steps:
    """A model, its loss and its optimiser (Adam as in ``protocol.md`` § 6).

    Args:
        model: on ``device``.
        loss: called as ``loss(outputs, labels)``, with ``anchor=modality`` if its ``forward`` takes one, with
            ``share=(rank, ranks)`` if it takes that: then each process computes its part of the pairs, and with
            ``rows=`` numbers of the batch's training rows if it takes those. Labels come by modality where images are
            blended (see `mixing`). Parameters that a loss has (proxies, a classifier) are trained like the model's.
        labels: ``(n, c)`` bool of all training rows.
        settings: see `TrainSettings`.
        device: where to train.
    """

    def __init__(
        self, model: HashModel, loss: nn.Module, labels: Tensor, settings: TrainSettings, device: torch.device
    ) -> None:
        self.loss, self.labels, self.settings, self.device = loss.to(device), labels.to(device), settings, device
        self.anchors = model.modalities if takes_anchor(loss) else ()
        self.shares = world_size() > 1 and _takes(loss, "share")
        self.told_rows = _takes(loss, "rows")
        outputs = Outputs(model, settings.precision)
        if settings.compile:
            outputs.compile()
        self.outputs: nn.Module = outputs
        if world_size() > 1:
            # One stream's parameters have no gradient while the other is the anchor.
            self.outputs = DistributedDataParallel(
                outputs, find_unused_parameters=bool(self.anchors), broadcast_buffers=False
            )
        trained = [p for p in (*model.parameters(), *loss.parameters()) if p.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=settings.learning_rate, eps=1e-8, betas=(0.9, 0.999), fused=True)

    def batches(self, sources: Mapping[str, Source], epoch: int) -> Iterator[Batch]:
        """This rank's batches of an epoch, on the device."""
        steps = list(epoch_steps(len(self.labels), self.settings, epoch, self.anchors))
        own = [own_rows(rows) for rows, _ in steps]
        streams = [source.batches(epoch, own) for source in sources.values()]
        for (rows, anchor), values in zip(steps, zip(*streams, strict=True), strict=True):
            inputs = [value.to(self.device, non_blocking=True) for value in values]
            labels = labels_by_modality(sources, self.labels, epoch, rows)
            yield dict(zip(sources, inputs, strict=True)), rows, labels, anchor

    def run(self, batches: Iterable[Batch]) -> Tensor:
        """Train on ``batches``; gives the loss of each, ``(batches,)`` on the device."""
        remaining, losses = iter(batches), []
        while group := list(islice(remaining, self.settings.accumulate)):
            self.optimizer.zero_grad(set_to_none=True)
            for number, batch in enumerate(group):
                with self._exchange(last=number == len(group) - 1):
                    value = self.value(batch)
                    (value / len(group)).backward()  # type: ignore[no-untyped-call]
                losses.append(value.detach())
            sum_gradients(self.loss)
            self.optimizer.step()
        return sum_over_ranks(torch.stack(losses))

    def value(self, batch: Batch) -> Tensor:
        """This rank's part of the loss over the rows of all ranks: the parts add up to it."""
        inputs, rows, labels, anchor = batch
        outputs = gather_outputs(self.outputs(inputs, anchor))
        how: dict[str, Any] = {} if anchor is None else {"anchor": anchor}
        if self.shares:
            how["share"] = (rank(), world_size())
        if self.told_rows:
            how["rows"] = rows
        value: Tensor = self.loss(outputs, labels, **how)
        return value if self.shares else value / world_size()

    def _exchange(self, last: bool) -> "nullcontext[None]":
        """Gradients are exchanged with the last batch of a step alone."""
        if isinstance(self.outputs, DistributedDataParallel) and not last:
            return self.outputs.no_sync()  # type: ignore[return-value]
        return nullcontext()


def epoch_steps(
    n: int, settings: TrainSettings, epoch: int, anchors: tuple[str, ...]
) -> Iterator[tuple[Tensor, str | None]]:
    """The (rows, anchor) of every batch of an epoch. Without anchors: one pass. With: a full pass for each in turn,
    or both for each batch."""
    if not anchors:
        for rows in epoch_batches(n, settings.batch_size, settings.seed, epoch):
            yield rows, None
    elif settings.alternate == "epoch":
        for anchor in anchors:
            for rows in epoch_batches(n, settings.batch_size, settings.seed, epoch, anchor):
                yield rows, anchor
    else:
        for rows in epoch_batches(n, settings.batch_size, settings.seed, epoch):
            for anchor in anchors:
                yield rows, anchor


def takes_anchor(loss: nn.Module) -> bool:
    """Whether a loss trains one modality at a time, given as ``anchor``."""
    return _takes(loss, "anchor")


def _takes(loss: nn.Module, name: str) -> bool:
    return name in inspect.signature(loss.forward).parameters
