"""Terms that are added to any loss that trains all modalities; each is off unless a configuration turns it on."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from channelhash.losses.base import Batch, ChannelLoss, HashLoss
from channelhash.losses.contrastive import ContrastiveLoss
from channelhash.losses.talr import TALRLoss

_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Terms:
    """The terms of `LossWithTerms`: further keys of the section ``loss`` of any configuration.

    Attributes:
        contrastive: weight w_c ≥ 0 of `ContrastiveLoss.compute_by_labels`.
        pairs: weight w_p ≥ 0 of `ContrastiveLoss`.
        temperature: temperature T > 0 of the two.
        average_precision: weight w_AP ≥ 0 of `talr.TALRLoss`.

    Raises:
        ValueError: a setting is out of its range.

    >>> Terms(pairs=0.5, average_precision=8).active
    ['pairs', 'average_precision']
    """

    contrastive: _Weight = 0.0
    pairs: _Weight = 0.0
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.07
    average_precision: _Weight = 0.0

    def __post_init__(self) -> None:
        weights = (self.contrastive, self.pairs, self.average_precision)
        if not (all(weight >= 0 for weight in weights) and self.temperature > 0):
            raise ValueError("weights are 0 or more, the temperature is above 0")

    @property
    def active(self) -> list[str]:
        """Names of the terms that are on."""
        return [name for name in ("contrastive", "pairs", "average_precision") if getattr(self, name)]

    def problem(self, loss: type[HashLoss]) -> str:
        """Return why these terms do not go with losses of this class, as ``"key: reason"``; empty if they do.

        >>> from channelhash.losses import TDSRDHLoss
        >>> Terms(pairs=0.5).problem(TDSRDHLoss)[:45]
        'pairs: this loss trains one modality at a tim'
        """
        if self.active and loss.trains_anchor:
            return f"{self.active[0]}: this loss trains one modality at a time, the term trains all; set it to 0"
        if self.active and loss.needs_teacher:
            return f"{self.active[0]}: terms read labels, which a teacher's codes are not; set it to 0"
        return ""


class LossWithTerms(HashLoss):
    """A loss and weighted terms beside it: contrastive, pairs, average precision.

    Of the shards of this loss, the first has the terms.

    Args:
        loss: a loss that trains all modalities.
        n_bits: code length k.
        terms: the terms and their weights.

    Raises:
        ValueError: see `Terms.problem`.

    >>> import torch
    >>> from channelhash.losses import DSCHLoss
    >>> outputs, labels = {"image": torch.ones(2, 4), "text": torch.ones(2, 4)}, torch.ones(2, 1)
    >>> loss, more = DSCHLoss(4), LossWithTerms(DSCHLoss(4), 4, Terms(average_precision=2.0))
    >>> (more(outputs, labels) - loss(outputs, labels)).item() == 2 * TALRLoss(4)(outputs, labels).item()
    True
    """

    sharded = True

    def __init__(self, loss: HashLoss, n_bits: int, terms: Terms) -> None:
        super().__init__()
        if problem := terms.problem(type(loss)):
            raise ValueError(problem)
        self.loss, self.n_bits, self.terms = loss, n_bits, terms
        self.contrastive, self.talr = ContrastiveLoss(terms.temperature), TALRLoss(n_bits)

    @property
    def channels(self) -> ChannelLoss | None:
        """The channels of the loss that the terms are beside."""
        return self.loss.channels

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        terms, value = self.terms, self.loss.compute_shard(batch)
        if batch.shard.number == 0:
            if terms.contrastive:
                value = value + terms.contrastive * self.contrastive.compute_by_labels(batch)
            if terms.pairs:
                value = value + terms.pairs * self.contrastive.compute(batch)
            if terms.average_precision:
                value = value + terms.average_precision * self.talr.compute(batch)
        return value
