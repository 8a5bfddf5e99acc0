"""Progressive augmentation by the paper's two tables: plan the operations of each sample in each
epoch, and apply them.

Every draw is a function of (seed, epoch, sample): the same whatever the batch, the number of
workers or devices, or how often a run was resumed (``protocol.md`` § 3). Images are ``(3, h, w)``
float tensors in [0, 1] on any device; parameters are relative to their size, so that they can be
drawn before an image is read.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from channelhash.utils.seeds import generator
from channelhash.utils.torchvision_compat import InterpolationMode, functional as F

_BILINEAR = InterpolationMode.BILINEAR


def _rotate(image: Tensor, angle: float) -> Tensor:
    """Rotate by ``angle`` degrees counter-clockwise about the centre; uncovered corners are black.

    >>> _rotate(torch.eye(2).expand(3, 2, 2), 90)[0].round().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    turned: Tensor = F.rotate(image, angle, interpolation=_BILINEAR, fill=[0.0])
    return turned.clamp(0, 1)


def _grayscale(image: Tensor) -> Tensor:
    """Convert to luma (ITU-R BT.601) in all three channels.

    >>> red = torch.tensor([1.0, 0.0, 0.0])[:, None, None]
    >>> [round(value, 2) for value in _grayscale(red).flatten().tolist()]
    [0.3, 0.3, 0.3]
    """
    return cast(Tensor, F.rgb_to_grayscale(image, num_output_channels=3))


def _crop(image: Tensor, scale: float, ratio: float, x: float, y: float) -> Tensor:
    """Cut out a window and resize it to the size of the image.

    >>> left = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(3, 4, 4)
    >>> _crop(left, scale=0.25, ratio=1, x=0, y=0).max().item()
    0.0
    """
    full_height, full_width = image.shape[-2:]
    height, width = _window(image, scale, ratio)
    if height > full_height or width > full_width:
        height = full_height
        width = full_width
    top, left = _corner(image, height, width, x, y)
    cut: Tensor = F.resized_crop(
        image, top, left, height, width, [full_height, full_width], _BILINEAR, antialias=True
    )
    return cut.clamp(0, 1)


def _erase(image: Tensor, scale: float, ratio: float, x: float, y: float) -> Tensor:
    """Black out a window; arguments as in `_crop`, but a side longer than the image's is cut, so
    that a narrow image does not vanish.

    >>> _erase(torch.ones(3, 4, 4), scale=0.25, ratio=1, x=0, y=0)[0].sum().item()
    12.0
    """
    height, width = _window(image, scale, ratio)
    height = min(height, image.shape[-2])
    width = min(width, image.shape[-1])
    top, left = _corner(image, height, width, x, y)
    result = image.clone()
    result[:, top : top + height, left : left + width] = 0
    return result


def _color_jitter(
    image: Tensor, brightness: float, contrast: float, saturation: float, hue: float
) -> Tensor:
    """Change brightness, contrast and saturation by factors, and hue by a share of the colour
    circle.

    >>> grey = torch.full((3, 2, 2), 0.5)
    >>> _color_jitter(grey, brightness=0.5, contrast=1, saturation=1, hue=0).unique().tolist()
    [0.25]
    """
    image = F.adjust_brightness(image, brightness)
    image = F.adjust_contrast(image, contrast)
    image = F.adjust_saturation(image, saturation)
    changed: Tensor = F.adjust_hue(image, hue)
    return changed.clamp(0, 1)


def _uniform_noise(image: Tensor, blending: float, seed: int) -> Tensor:
    """Compute (1 − b) · x + b · u with u uniform in [0, 1].

    >>> _uniform_noise(torch.ones(3, 2, 2), blending=0.5, seed=0).min().item() >= 0.5
    True
    """
    noise = torch.rand(image.shape, generator=torch.Generator().manual_seed(seed)).to(image)
    return (1 - blending) * image + blending * noise


def _elastic(image: Tensor, alpha: float, sigma: float, seed: int) -> Tensor:
    """Move pixels along a smooth random field (Simard et al. 2003).

    The field is uniform in [-1, 1], blurred with ``sigma`` pixels and scaled by ``alpha`` / 2
    pixels, as in torchvision's elastic transform, whose defaults the table has. Pixels from outside
    are black.

    >>> _elastic(torch.ones(3, 8, 8), alpha=50, sigma=5, seed=0).shape
    torch.Size([3, 8, 8])
    """
    height, width = image.shape[-2:]
    field = 2 * torch.rand((2, 1, height, width), generator=torch.Generator().manual_seed(seed)) - 1
    # mirrored at the border
    across, down = (min(int(8 * sigma) + 1 | 1, 2 * side - 1) for side in (width, height))
    # One axis after the other: the blur of the full square kernel at a fraction of its cost.
    field = F.gaussian_blur(
        F.gaussian_blur(field, [across, 1], [sigma, sigma]), [1, down], [sigma, sigma]
    )[:, 0]
    shift = torch.stack([field[0] * alpha / width, field[1] * alpha / height], dim=-1)
    moved: Tensor = F.elastic(
        image, shift[None].to(image.device), interpolation=_BILINEAR, fill=[0.0]
    )
    return moved.clamp(0, 1)


def _blend(image: Tensor, partner: Tensor, blending: float) -> Tensor:
    """Compute (1 − b) · x + b · partner over the full frame.

    >>> _blend(torch.ones(3, 1, 1), torch.zeros(3, 1, 1), blending=0.25).flatten().tolist()
    [0.75, 0.75, 0.75]
    """
    return (1 - blending) * image + blending * partner


def _picture_in_picture(image: Tensor, partner: Tensor, scale: float, x: float, y: float) -> Tensor:
    """Lay the partner, its sides scaled by ``scale``, over the image at (x, y) as in `_crop`.

    >>> black, white = torch.zeros(3, 4, 4), torch.ones(3, 4, 4)
    >>> _picture_in_picture(black, white, scale=0.5, x=1, y=1)[0].tolist()[3]
    [0.0, 0.0, 1.0, 1.0]
    """
    height, width = (max(1, round(scale * side)) for side in image.shape[-2:])
    small = F.resize(partner, [height, width], _BILINEAR, antialias=True).clamp(0, 1)
    top, left = _corner(image, height, width, x, y)
    result = image.clone()
    result[:, top : top + height, left : left + width] = small
    return result


def _window(image: Tensor, scale: float, ratio: float) -> tuple[int, int]:
    """Return (height, width) in pixels of a window of ``scale`` of the area, at least 1; may exceed
    the image.
    """
    area = scale * image.shape[-2] * image.shape[-1]
    return max(1, round(math.sqrt(area / ratio))), max(1, round(math.sqrt(area * ratio)))


def _corner(image: Tensor, height: int, width: int, x: float, y: float) -> tuple[int, int]:
    """Return (top, left) in pixels of a window at (x, y)."""
    return round(y * (image.shape[-2] - height)), round(x * (image.shape[-1] - width))


_FUNCTIONS = (
    _rotate,
    _grayscale,
    _crop,
    _erase,
    _color_jitter,
    _uniform_noise,
    _elastic,
    _blend,
    _picture_in_picture,
)
#: name in the table -> operation.
_OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "flip_horizontally": F.horizontal_flip,
    "flip_vertically": F.vertical_flip,
    **{operation.__name__.removeprefix("_"): operation for operation in _FUNCTIONS},
}
#: Operations with draws in addition to those of their rows: a seed, a partner.
_SEEDED = frozenset({"uniform_noise", "elastic"})
_WITH_PARTNER = frozenset({"blend", "picture_in_picture"})


_Level = Literal["none", "easy", "medium", "hard"]

#: Epochs that the table of mixtures is written for.
_TABLE_EPOCHS = 200

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


class _Augmentation(NamedTuple):
    """One row of the table.

    Attributes:
        name: key of `_OPERATIONS`.
        parameters: parameter -> a range (lowest, highest), drawn uniformly, ``ratio`` in the
            logarithm; or values of another number than two, drawn with equal probability.
        probability: of applying the augmentation once it is picked.

    >>> _GROUPS["medium"][1].rows[0]
    _Augmentation(name='rotate', parameters={'angle': (-45, 45)}, probability=1.0)
    """

    name: str
    parameters: Mapping[str, tuple[float, ...]]
    probability: float = 1.0

    @property
    def choices(self) -> dict[str, tuple[float, ...]]:
        """Parameters that are drawn among values."""
        return {name: values for name, values in self.parameters.items() if len(values) != 2}


def _row(name: str, probability: float = 1.0, /, **parameters: tuple[float, ...]) -> _Augmentation:
    return _Augmentation(name, parameters, probability)


class _Group(NamedTuple):
    """Rows of which a random number is active at once.

    Attributes:
        most: upper bound of that number; at least one is.
        rows: augmentations, picked without replacement.
        weight: probability of the group among the groups that exclude one another; None for a group
            that is always on.

    >>> [(group.most, len(group.rows), group.weight) for group in _GROUPS["hard"]]
    [(1, 1, None), (3, 8, 0.8), (1, 2, 0.2)]
    """

    most: int
    rows: tuple[_Augmentation, ...]
    weight: float | None = None


#: Where a window lies among the places that it may have.
_PLACE: dict[str, tuple[float, ...]] = {"x": (0, 1), "y": (0, 1)}
_FLIP_OR_NOT = _Group(1, (_row("flip_horizontally", 0.5),))
_EASY = (
    _row("flip_horizontally"),
    _row("rotate", angle=(-90, -45, 45, 90)),
    _row("grayscale"),
    _row("crop", scale=(0.5, 1.0), ratio=(1, 1), **_PLACE),
)
_MEDIUM = (
    _row("rotate", angle=(-45, 45)),
    _row("grayscale"),
    _row("crop", scale=(0.35, 1.1), ratio=(0.9, 1.1), **_PLACE),
    _row("erase", scale=(0.02, 0.05), ratio=(1 / 3, 3), **_PLACE),
    _row(
        "color_jitter",
        brightness=(0.8, 1.2),
        contrast=(0.8, 1.2),
        saturation=(0.8, 1.2),
        hue=(-0.1, 0.1),
    ),
    _row("uniform_noise", blending=(0.0, 0.5)),
)
_HARD = (
    _row("rotate", angle=(-90, 90)),
    _row("grayscale"),
    _row("crop", scale=(0.2, 1.1), ratio=(3 / 4, 4 / 3), **_PLACE),
    _row("erase", scale=(0.05, 0.15), ratio=(1 / 4, 4), **_PLACE),
    _row(
        "color_jitter",
        brightness=(0.5, 1.5),
        contrast=(0.5, 1.5),
        saturation=(0.5, 1.5),
        hue=(-0.25, 0.25),
    ),
    _row("flip_vertically"),
    _row("elastic", alpha=(50,), sigma=(5,)),
    _row("uniform_noise", blending=(0.0, 0.9)),
)
_PARTNERED = (
    _row("blend", blending=(0.0, 0.45)),
    _row("picture_in_picture", scale=(0.05, 0.25), **_PLACE),
)
#: Table "Image augmentation groups by hardness level".
_GROUPS: dict[_Level, tuple[_Group, ...]] = {
    "none": (),
    "easy": (_Group(1, _EASY),),
    "medium": (_FLIP_OR_NOT, _Group(2, _MEDIUM)),
    "hard": (_FLIP_OR_NOT, _Group(3, _HARD, weight=0.8), _Group(1, _PARTNERED, weight=0.2)),
}


def _mixture(epoch: int, n_epochs: int = _TABLE_EPOCHS) -> dict[_Level, float]:
    """Return the share of each level in an epoch.

    Runs of another length change the mixture at the same fractions of their epochs; epochs past the
    end keep the last mixture.

    >>> _mixture(85)["hard"], _mixture(8, n_epochs=20)["hard"]
    (0.25, 0.25)
    """
    return _MIXTURES[max(first for first in _MIXTURES if first <= epoch * _TABLE_EPOCHS / n_epochs)]


_EasyWeights = Literal["kinds", "angles"]


class _Step(NamedTuple):
    """One drawn operation.

    Attributes:
        name: key of `_OPERATIONS`.
        parameters: arguments of the operation.
        partner: sample that the operation mixes in, or None.
    """

    name: str
    parameters: dict[str, float]
    partner: int | None


class Progression(NamedTuple):
    """Settings of a progressive augmentation.

    Attributes:
        seed: of all draws.
        n_samples: training rows; partners are drawn among the others (a lone sample is its own
            partner).
        n_epochs: length of the training, see `_mixture`.
        easy_weights: ``"kinds"`` makes the four kinds of easy augmentation equally likely; with
            ``"angles"`` each of the four angles counts as a kind (rotation 4/7), as in the
            published code.
        level: use this level instead of a drawn one.
    """

    seed: int
    n_samples: int
    n_epochs: int = _TABLE_EPOCHS
    easy_weights: _EasyWeights = "kinds"
    level: _Level | None = None

    def plan(self, epoch: int, sample: int) -> tuple[_Step, ...]:
        """Draw the operations of a sample in an epoch, in their order.

        The level is drawn from the epoch's mixture; the number of augmentations is uniform in a
        group's range, they are picked without replacement and applied in random order. Of groups
        that exclude one another one is drawn.

        >>> hard = Progression(seed=0, n_samples=10, level="hard")
        >>> [step.name for step in hard.plan(epoch=190, sample=3)]
        ['flip_horizontally', 'rotate']
        >>> Progression(seed=0, n_samples=10).plan(epoch=0, sample=3)  # begins without augmentation
        ()
        """
        random = generator(self.seed, "augment", epoch, sample)
        shares = _mixture(epoch, self.n_epochs)
        drawn = list(shares)[random.choice(len(shares), p=list(shares.values()))]
        level = self.level or drawn
        steps: list[_Step] = []
        for group in _active_groups(_GROUPS[level], random):
            for row in _picked_rows(
                group, random, self.easy_weights if level == "easy" else "kinds"
            ):
                if row.probability == 1 or random.random() < row.probability:
                    steps.append(_draw(row, random, sample, self.n_samples))
        return tuple(steps)

    def augment(self, images: Callable[[int], Tensor], epoch: int, sample: int) -> Tensor:
        """Return the image of a sample as it is in an epoch; ``images`` gives those of it and of
        its partners.

        >>> images = [torch.zeros(3, 8, 8), torch.ones(3, 8, 8)]
        >>> progression = Progression(seed=0, n_samples=2)
        >>> progression.augment(images.__getitem__, epoch=190, sample=0).shape
        torch.Size([3, 8, 8])
        """
        image = images(sample)
        for step in self.plan(epoch, sample):
            partners = () if step.partner is None else (images(step.partner),)
            image = _OPERATIONS[step.name](image, *partners, **step.parameters)
        return image


def _active_groups(groups: tuple[_Group, ...], random: np.random.Generator) -> list[_Group]:
    always = [group for group in groups if group.weight is None]
    exclusive = [group for group in groups if group.weight is not None]
    if exclusive:
        always.append(
            exclusive[random.choice(len(exclusive), p=[group.weight or 0.0 for group in exclusive])]
        )
    return always


def _picked_rows(
    group: _Group, random: np.random.Generator, weights: _EasyWeights
) -> list[_Augmentation]:
    count = int(random.integers(1, group.most + 1))
    share = None
    if weights == "angles":
        variants = np.array([max(1, sum(map(len, row.choices.values()))) for row in group.rows])
        share = variants / variants.sum()
    return [
        group.rows[i] for i in random.choice(len(group.rows), size=count, replace=False, p=share)
    ]


def _draw(row: _Augmentation, random: np.random.Generator, sample: int, n_samples: int) -> _Step:
    parameters: dict[str, float] = {}
    for name, values in row.parameters.items():
        if name in row.choices:
            parameters[name] = float(values[random.integers(len(values))])
        elif name == "ratio":
            parameters[name] = float(np.exp(random.uniform(np.log(values[0]), np.log(values[1]))))
        else:
            parameters[name] = float(random.uniform(values[0], values[1]))
    if row.name in _SEEDED:
        parameters["seed"] = int(random.integers(2**62))
    partner = None
    if row.name in _WITH_PARTNER:
        partner = int(random.integers(n_samples - 1)) if n_samples > 1 else 0
        partner += partner >= sample and n_samples > 1  # any sample but this one
    return _Step(row.name, parameters, partner)
