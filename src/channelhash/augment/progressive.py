"""Progressive augmentation by the paper's two tables: plan the operations of each sample in each epoch, and apply them.

Every draw is a function of (seed, epoch, sample): the same whatever the batch, the number of workers or devices, or
how often a run was resumed (``protocol.md`` § 3).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from channelhash.augment.operations import OPERATIONS, PARTNERED, PLACED, SEEDED
from channelhash.utils.seeds import generator

_Level = Literal["none", "easy", "medium", "hard"]

#: Epochs that the table of mixtures is written for.
TABLE_EPOCHS = 200

#: first epoch of a range -> share of each level, table "Progressive image augmentation mixtures".
_MIXTURES: dict[int, dict[_Level, float]] = {
    0: {"none": 1.00, "easy": 0.00, "medium": 0.00, "hard": 0.00},
    20: {"none": 0.25, "easy": 0.75, "medium": 0.00, "hard": 0.00},
    40: {"none": 0.25, "easy": 0.50, "medium": 0.25, "hard": 0.00},
    60: {"none": 0.25, "easy": 0.25, "medium": 0.50, "hard": 0.00},
    80: {"none": 0.25, "easy": 0.25, "medium": 0.25, "hard": 0.25},
    100: {"none": 0.25, "easy": 0.00, "medium": 0.25, "hard": 0.50},
    150: {"none": 0.25, "easy": 0.00, "medium": 0.00, "hard": 0.75},
}


@dataclass(frozen=True)
class Augmentation:
    """One row of the table.

    Attributes:
        name: key of `operations.OPERATIONS`.
        parameters: parameter -> a range (lowest, highest), drawn uniformly, ``ratio`` in the logarithm; or values of
            another number than two, drawn with equal probability.
        probability: of applying the augmentation once it is picked.

    >>> _GROUPS["medium"][1].rows[0]
    Augmentation(name='rotate', parameters={'angle': (-45, 45)}, probability=1.0)
    """

    name: str
    parameters: Mapping[str, tuple[float, ...]]
    probability: float = 1.0

    @property
    def choices(self) -> dict[str, tuple[float, ...]]:
        """Parameters that are drawn among values."""
        return {name: values for name, values in self.parameters.items() if len(values) != 2}


def _row(name: str, probability: float = 1.0, **parameters: tuple[float, ...]) -> Augmentation:
    return Augmentation(name, parameters, probability)


@dataclass(frozen=True)
class _Group:
    """Rows of which a random number is active at once.

    Attributes:
        least: lower bound of that number.
        most: upper bound of that number.
        rows: augmentations, picked without replacement.
        weight: probability of the group among the groups that exclude one another; None for a group that is always on.

    >>> [(group.least, group.most, len(group.rows), group.weight) for group in _GROUPS["hard"]]
    [(1, 1, 1, None), (1, 3, 8, 0.8), (1, 1, 2, 0.2)]
    """

    least: int
    most: int
    rows: tuple[Augmentation, ...]
    weight: float | None = None


_FLIP_OR_NOT = _Group(1, 1, (_row("flip_horizontally", 0.5),))
_EASY = (
    _row("flip_horizontally"),
    _row("rotate", angle=(-90, -45, 45, 90)),
    _row("grayscale"),
    _row("crop", scale=(0.5, 1.0), ratio=(1, 1)),
)
_MEDIUM = (
    _row("rotate", angle=(-45, 45)),
    _row("grayscale"),
    _row("crop", scale=(0.35, 1.1), ratio=(0.9, 1.1)),
    _row("erase", scale=(0.02, 0.05), ratio=(1 / 3, 3)),
    _row("color_jitter", brightness=(0.8, 1.2), contrast=(0.8, 1.2), saturation=(0.8, 1.2), hue=(-0.1, 0.1)),
    _row("uniform_noise", blending=(0.0, 0.5)),
)
_HARD = (
    _row("rotate", angle=(-90, 90)),
    _row("grayscale"),
    _row("crop", scale=(0.2, 1.1), ratio=(3 / 4, 4 / 3)),
    _row("erase", scale=(0.05, 0.15), ratio=(1 / 4, 4)),
    _row("color_jitter", brightness=(0.5, 1.5), contrast=(0.5, 1.5), saturation=(0.5, 1.5), hue=(-0.25, 0.25)),
    _row("flip_vertically"),
    _row("elastic", alpha=(50,), sigma=(5,)),
    _row("uniform_noise", blending=(0.0, 0.9)),
)
_PARTNERED = (_row("blend", blending=(0.0, 0.45)), _row("picture_in_picture", scale=(0.05, 0.25)))
#: Table "Image augmentation groups by hardness level".
_GROUPS: dict[_Level, tuple[_Group, ...]] = {
    "none": (),
    "easy": (_Group(1, 1, _EASY),),
    "medium": (_FLIP_OR_NOT, _Group(1, 2, _MEDIUM)),
    "hard": (_FLIP_OR_NOT, _Group(1, 3, _HARD, weight=0.8), _Group(1, 1, _PARTNERED, weight=0.2)),
}


def _mixture(epoch: int, n_epochs: int = TABLE_EPOCHS) -> dict[_Level, float]:
    """Return the share of each level in an epoch.

    Runs of another length change the mixture at the same fractions of their epochs; epochs past the end keep the last
    mixture.

    >>> _mixture(85)["hard"], _mixture(8, n_epochs=20)["hard"]
    (0.25, 0.25)
    """
    in_table = epoch * TABLE_EPOCHS / n_epochs
    return _MIXTURES[max(first for first in _MIXTURES if first <= in_table)]


EasyWeights = Literal["kinds", "angles"]


@dataclass(frozen=True)
class _Step:
    """One drawn operation.

    Attributes:
        name: key of `OPERATIONS`.
        parameters: arguments of the operation.
        partner: sample that the operation mixes in, or None.
    """

    name: str
    parameters: dict[str, float] = field(default_factory=dict)
    partner: int | None = None


@dataclass(frozen=True)
class Progression:
    """Settings of a progressive augmentation.

    Attributes:
        seed: of all draws.
        n_samples: training rows; partners are drawn among the others (a lone sample is its own partner).
        n_epochs: length of the training, see `tables.mixture`.
        easy_weights: ``"kinds"`` makes the four kinds of easy augmentation equally likely; with ``"angles"`` each of
            the four angles counts as a kind (rotation 4/7), as in the published code.
        level: use this level instead of a drawn one.
    """

    seed: int
    n_samples: int
    n_epochs: int = TABLE_EPOCHS
    easy_weights: EasyWeights = "kinds"
    level: _Level | None = None


def plan(progression: Progression, epoch: int, sample: int) -> tuple[_Step, ...]:
    """Draw the operations of a sample in an epoch, in their order.

    The level is drawn from the epoch's mixture; the number of augmentations is uniform in a group's range, they are
    picked without replacement and applied in random order. Of groups that exclude one another one is drawn.

    >>> [step.name for step in plan(Progression(seed=0, n_samples=10, level="hard"), epoch=190, sample=3)]
    ['flip_horizontally', 'rotate']
    >>> plan(Progression(seed=0, n_samples=10), epoch=0, sample=3)  # training begins without augmentation
    ()
    """
    random = generator(progression.seed, "augment", epoch, sample)
    shares = _mixture(epoch, progression.n_epochs)
    drawn = list(shares)[random.choice(len(shares), p=list(shares.values()))]
    level = progression.level or drawn
    steps: list[_Step] = []
    for group in _active_groups(_GROUPS[level], random):
        for row in _picked_rows(group, random, progression.easy_weights if level == "easy" else "kinds"):
            if row.probability == 1 or random.random() < row.probability:
                steps.append(_draw(row, random, sample, progression.n_samples))
    return tuple(steps)


def _active_groups(groups: tuple[_Group, ...], random: np.random.Generator) -> list[_Group]:
    always = [group for group in groups if group.weight is None]
    exclusive = [group for group in groups if group.weight is not None]
    if exclusive:
        weights = [group.weight or 0.0 for group in exclusive]
        always.append(exclusive[random.choice(len(exclusive), p=weights)])
    return always


def _picked_rows(group: _Group, random: np.random.Generator, weights: EasyWeights) -> list[Augmentation]:
    count = int(random.integers(group.least, group.most + 1))
    share = None
    if weights == "angles":
        variants = np.array([max(1, sum(map(len, row.choices.values()))) for row in group.rows])
        share = variants / variants.sum()
    return [group.rows[i] for i in random.choice(len(group.rows), size=count, replace=False, p=share)]


def _draw(row: Augmentation, random: np.random.Generator, sample: int, n_samples: int) -> _Step:
    parameters: dict[str, float] = {}
    for name, values in row.parameters.items():
        if name in row.choices:
            parameters[name] = float(values[random.integers(len(values))])
        elif name == "ratio":
            parameters[name] = float(np.exp(random.uniform(np.log(values[0]), np.log(values[1]))))
        else:
            parameters[name] = float(random.uniform(values[0], values[1]))
    if row.name in PLACED:
        parameters |= {"x": float(random.random()), "y": float(random.random())}
    if row.name in SEEDED:
        parameters["seed"] = int(random.integers(2**62))
    partner = None
    if row.name in PARTNERED:
        partner = int(random.integers(n_samples - 1)) if n_samples > 1 else 0
        partner += partner >= sample and n_samples > 1  # any sample but this one
    return _Step(row.name, parameters, partner)


def apply(image: Tensor, steps: tuple[_Step, ...], partner: Callable[[int], Tensor]) -> Tensor:
    """Apply steps to an image.

    Args:
        image: ``(3, h, w)`` floats in [0, 1].
        steps: drawn by `plan`.
        partner: returns the un-augmented image of another sample, shaped like ``image``.

    >>> image, black = torch.ones(3, 2, 2), torch.zeros(3, 2, 2)
    >>> apply(image, (_Step("blend", {"blending": 0.25}, partner=1),), lambda sample: black).unique().tolist()
    [0.75]
    """
    for step in steps:
        partners = () if step.partner is None else (partner(step.partner),)
        image = OPERATIONS[step.name](image, *partners, **step.parameters)
    return image


def augment_batch(
    images: Tensor, samples: list[int], epoch: int, progression: Progression, partner: Callable[[int], Tensor]
) -> Tensor:
    """`plan` and `apply` for each image of a batch ``(n, 3, h, w)``; arguments as there.

    >>> images = torch.rand(2, 3, 8, 8)
    >>> augment_batch(images, [0, 1], 190, Progression(seed=0, n_samples=2), images.__getitem__).shape
    torch.Size([2, 3, 8, 8])
    """
    plans = (plan(progression, epoch, sample) for sample in samples)
    return torch.stack([apply(image, steps, partner) for image, steps in zip(images, plans, strict=True)])
