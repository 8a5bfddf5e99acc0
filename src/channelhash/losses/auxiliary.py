"""Terms that go beside any loss that takes no anchor; each is off unless a configuration asks for it."""

import inspect
from collections.abc import Callable
from typing import Annotated, cast

from pydantic import Field
from torch import Tensor, nn

from channelhash.losses.bit_balance import balance_term
from channelhash.losses.contrastive import contrastive_term
from channelhash.losses.cross_batch_memory import ChannelLoss, Memory
from channelhash.losses.functional import Labels, Outputs
from channelhash.losses.talr import TALRLoss
from channelhash.losses.tiled_pairs import WHOLE, Share

Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LossWithTerms(nn.Module):
    """A loss and weighted terms beside it: L + w_c · contrastive + w_b · balance + w_AP · (1 − AP_r) + memory.

    The arguments beside ``loss`` and ``n_bits`` are keys of the section ``loss`` of any configuration.

    Args:
        loss: called as ``loss(outputs, labels)``, with ``share`` if its ``forward`` takes one.
        n_bits: code length k.
        contrastive: weight w_c ≥ 0 of `contrastive.contrastive_term`.
        temperature: its temperature T > 0.
        balance: weight w_b ≥ 0 of `bit_balance.balance_term`.
        average_precision: weight w_AP ≥ 0 of `talr.TALRLoss`.
        memory: M ≥ 0; the loss's channels also hold for pairs with the last M samples of earlier batches, see
            `cross_batch_memory.Memory`. This term has no weight, as the pairs of batch and memory are pairs like the
            others.

    Raises:
        ValueError: see `term_problem`, or a setting is out of its range.
    """

    def __init__(
        self,
        loss: nn.Module,
        n_bits: int,
        contrastive: Weight = 0.0,
        temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.07,
        balance: Weight = 0.0,
        average_precision: Weight = 0.0,
        memory: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        super().__init__()
        if found := term_problem(type(loss), contrastive, balance, average_precision, memory):
            raise ValueError(found)
        if min(contrastive, balance, average_precision, memory) < 0 or temperature <= 0:
            raise ValueError("weights and the size of the memory are 0 or more, the temperature is above 0")
        self.loss, self.n_bits = loss, n_bits
        self.contrastive, self.temperature = contrastive, temperature
        self.balance, self.average_precision = balance, average_precision
        self.talr = TALRLoss(n_bits)
        self.memory = Memory(memory) if memory else None
        self._shares = "share" in inspect.signature(loss.forward).parameters

    @property
    def bounds(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """The loss's own channels; `AttributeError` where it has none."""
        return self._channels().bounds

    def forward(self, outputs: Outputs, labels: Labels, share: Share = WHOLE) -> Tensor:
        """The loss of one batch, or a share of it, a scalar.

        In training mode the batch is then in memory: the next call is of another batch.

        Args:
            outputs: modality -> ``(n, k)`` real-valued codes.
            labels: ``(n, c)`` bool or 0/1; by modality (`functional.Labels`) where the loss takes that and the
                terms are the balance alone.
            share: which part of the loss; parts add up in value and in gradient. A loss that knows no shares is
                computed by all, and each takes its fraction; the pairs with the memory are dealt out; the other terms
                are in the first part.
        """
        number, parts = share
        value: Tensor = self.loss(outputs, labels, share=share) if self._shares else self.loss(outputs, labels) / parts
        of_samples = cast(Tensor, labels)  # the terms that need it refuse labels by modality themselves
        if number == 0:
            if self.contrastive:
                value = value + self.contrastive * contrastive_term(outputs, of_samples, self.temperature)
            if self.balance:
                value = value + self.balance * balance_term(outputs)
            if self.average_precision:
                value = value + self.average_precision * self.talr(outputs, of_samples)
        if self.memory is not None:
            value = value + self.memory.error(outputs, of_samples, self._channels(), share)
            if self.training:
                self.memory.keep(outputs, of_samples)
        return value

    def _channels(self) -> ChannelLoss:
        return cast(ChannelLoss, self.loss)


def channels_of(loss: nn.Module) -> ChannelLoss | None:
    """The loss that says which channel a similarity asks for: this one, or the one that has terms beside it here. None
    if that has no channels."""
    own = loss.loss if isinstance(loss, LossWithTerms) else loss
    return cast(ChannelLoss, own) if hasattr(own, "bounds") else None


def term_problem(
    kind: type[nn.Module],
    contrastive: float = 0.0,
    balance: float = 0.0,
    average_precision: float = 0.0,
    memory: int = 0,
    **_: object,
) -> str:
    """Why these terms do not go beside losses of this kind, as ``"key: reason"``; empty if they do."""
    weights = {
        "contrastive": contrastive,
        "balance": balance,
        "average_precision": average_precision,
        "memory": memory,
    }
    on = [key for key, weight in weights.items() if weight]
    if on and "anchor" in inspect.signature(kind.forward).parameters:
        return f"{on[0]}: this loss trains one modality at a time, terms beside a loss train all; set it to 0"
    if memory and not hasattr(kind, "bounds"):
        return (
            "memory: this loss has no channels for pairs of batch and memory; take dsch, sch, bsch or rsch, or set it "
            "to 0"
        )
    return ""
