"""Progressive augmentation: what happens to which sample in which epoch, and doing it.

Every draw is a function of (seed, epoch, sample): the same whatever the batch, the number of workers or devices, or
how often a run was resumed (``protocol.md`` § 3).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from channelhash.augment.operations import OPERATIONS, PARTNERED, PLACED, SEEDED
from channelhash.augment.tables import GROUPS, TABLE_EPOCHS, Augmentation, Group, Level, mixture
from channelhash.utils.seeds import generator

EasyWeights = Literal["kinds", "angles"]


@dataclass(frozen=True)
class Step:
    """One drawn operation.

    Attributes:
        name: key of `OPERATIONS`.
        parameters: its arguments.
        partner: the other sample that it mixes in, or None.
    """

    name: str
    parameters: dict[str, float] = field(default_factory=dict)
    partner: int | None = None


def plan(
    seed: int,
    epoch: int,
    sample: int,
    n_samples: int,
    n_epochs: int = TABLE_EPOCHS,
    easy_weights: EasyWeights = "kinds",
    level: Level | None = None,
) -> tuple[Step, ...]:
    """The operations of one sample in one epoch, in their order.

    The level is drawn from the epoch's mixture; the number of augmentations is uniform in a group's range, they are
    picked without replacement and applied in random order. Of groups that exclude one another one is drawn.

    Args:
        seed: of the augmentation.
        epoch: 0 … ``n_epochs`` − 1.
        sample: 0 … ``n_samples`` − 1.
        n_samples: training rows; partners are drawn among the others (a lone sample is its own).
        n_epochs: length of the training, see `tables.mixture`.
        easy_weights: the four kinds of easy augmentation are equally likely, or as in the published code each of the
            four angles counts as a kind (rotation 4/7).
        level: this level instead of a drawn one.
    """
    random = generator(seed, "augment", epoch, sample)
    shares = mixture(epoch, n_epochs)
    drawn = list(shares)[random.choice(len(shares), p=list(shares.values()))]
    steps: list[Step] = []
    for group in _active_groups(GROUPS[level or drawn], random):
        for row in _picked_rows(group, random, easy_weights if (level or drawn) == "easy" else "kinds"):
            if row.probability == 1 or random.random() < row.probability:
                steps.append(_draw(row, random, sample, n_samples))
    return tuple(steps)


def _active_groups(groups: tuple[Group, ...], random: np.random.Generator) -> list[Group]:
    always = [group for group in groups if group.weight is None]
    exclusive = [group for group in groups if group.weight is not None]
    if exclusive:
        weights = [group.weight or 0.0 for group in exclusive]
        always.append(exclusive[random.choice(len(exclusive), p=weights)])
    return always


def _picked_rows(group: Group, random: np.random.Generator, weights: EasyWeights) -> list[Augmentation]:
    count = int(random.integers(group.least, group.most + 1))
    share = None
    if weights == "angles":
        variants = np.array([max(1, sum(len(values) for _, values in row.choices)) for row in group.rows])
        share = variants / variants.sum()
    return [group.rows[i] for i in random.choice(len(group.rows), size=count, replace=False, p=share)]


def _draw(row: Augmentation, random: np.random.Generator, sample: int, n_samples: int) -> Step:
    parameters: dict[str, float] = {name: float(random.uniform(low, high)) for name, low, high in row.ranges}
    for name, values in row.choices:
        parameters[name] = float(values[random.integers(len(values))])
    for name, low, high in row.log_ranges:
        parameters[name] = float(np.exp(random.uniform(np.log(low), np.log(high))))
    if row.name in PLACED:
        parameters |= {"x": float(random.random()), "y": float(random.random())}
    if row.name in SEEDED:
        parameters["seed"] = int(random.integers(2**62))
    partner = None
    if row.name in PARTNERED:
        partner = int(random.integers(n_samples - 1)) if n_samples > 1 else 0
        partner += partner >= sample and n_samples > 1  # any sample but this one
    return Step(row.name, parameters, partner)


def apply(image: Tensor, steps: tuple[Step, ...], partner: Callable[[int], Tensor]) -> Tensor:
    """A picture after its steps.

    Args:
        image: ``(3, h, w)`` floats in [0, 1].
        steps: made by `plan`.
        partner: gives the un-augmented picture of another sample, shaped like ``image``.
    """
    for step in steps:
        others = () if step.partner is None else (partner(step.partner),)
        image = OPERATIONS[step.name](image, *others, **step.parameters)
    return image


def augment_batch(
    images: Tensor,
    samples: list[int],
    epoch: int,
    seed: int,
    n_samples: int,
    partner: Callable[[int], Tensor],
    n_epochs: int = TABLE_EPOCHS,
    easy_weights: EasyWeights = "kinds",
) -> Tensor:
    """`plan` and `apply` for each picture of a batch; arguments as there, ``images`` ``(n, 3, h, w)``."""
    return torch.stack(
        [
            apply(image, plan(seed, epoch, sample, n_samples, n_epochs, easy_weights), partner)
            for image, sample in zip(images, samples, strict=True)
        ]
    )
