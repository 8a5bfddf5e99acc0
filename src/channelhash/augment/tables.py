"""The paper's two augmentation tables as data: mixtures of hardness levels by epoch, and what each level does."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["none", "easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = ("none", "easy", "medium", "hard")

#: Epochs that the table of mixtures is written for.
TABLE_EPOCHS = 200

#: first epoch of a range -> share of each level, table "Progressive image augmentation mixtures".
MIXTURES: dict[int, dict[Level, float]] = {
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
        ranges: parameter -> (lowest, highest), drawn uniformly.
        choices: parameter -> values, drawn with equal probability.
        log_ranges: parameter -> (lowest, highest), drawn uniformly in the logarithm (aspect ratios).
        probability: of applying the augmentation once it is picked.

    >>> GROUPS["medium"][1].rows[0]
    Augmentation(name='rotate', ranges=(('angle', -45, 45),), choices=(), log_ranges=(), probability=1.0)
    """

    name: str
    ranges: tuple[tuple[str, float, float], ...] = ()
    choices: tuple[tuple[str, tuple[float, ...]], ...] = ()
    log_ranges: tuple[tuple[str, float, float], ...] = ()
    probability: float = 1.0


@dataclass(frozen=True)
class Group:
    """Rows of which a random number is active at once.

    Attributes:
        least: lower bound of that number.
        most: upper bound of that number.
        rows: augmentations, picked without replacement.
        weight: probability of the group among the groups that exclude one another; None for a group that is always on.

    >>> [(group.least, group.most, len(group.rows), group.weight) for group in GROUPS["hard"]]
    [(1, 1, 1, None), (1, 3, 8, 0.8), (1, 1, 2, 0.2)]
    """

    least: int
    most: int
    rows: tuple[Augmentation, ...]
    weight: float | None = None


_FLIP_OR_NOT = Group(1, 1, (Augmentation("flip_horizontally", probability=0.5),))

#: Table "Image augmentation groups by hardness level".
GROUPS: dict[Level, tuple[Group, ...]] = {
    "none": (),
    "easy": (
        Group(
            1,
            1,
            (
                Augmentation("flip_horizontally"),
                Augmentation("rotate", choices=(("angle", (-90, -45, 45, 90)),)),
                Augmentation("grayscale"),
                Augmentation("crop", (("scale", 0.5, 1.0),), log_ranges=(("ratio", 1, 1),)),
            ),
        ),
    ),
    "medium": (
        _FLIP_OR_NOT,
        Group(
            1,
            2,
            (
                Augmentation("rotate", (("angle", -45, 45),)),
                Augmentation("grayscale"),
                Augmentation("crop", (("scale", 0.35, 1.1),), log_ranges=(("ratio", 0.9, 1.1),)),
                Augmentation("erase", (("scale", 0.02, 0.05),), log_ranges=(("ratio", 1 / 3, 3),)),
                Augmentation(
                    "color_jitter",
                    (
                        ("brightness", 0.8, 1.2),
                        ("contrast", 0.8, 1.2),
                        ("saturation", 0.8, 1.2),
                        ("hue", -0.1, 0.1),
                    ),
                ),
                Augmentation("uniform_noise", (("blending", 0.0, 0.5),)),
            ),
        ),
    ),
    "hard": (
        _FLIP_OR_NOT,
        Group(
            1,
            3,
            (
                Augmentation("rotate", (("angle", -90, 90),)),
                Augmentation("grayscale"),
                Augmentation("crop", (("scale", 0.2, 1.1),), log_ranges=(("ratio", 3 / 4, 4 / 3),)),
                Augmentation("erase", (("scale", 0.05, 0.15),), log_ranges=(("ratio", 1 / 4, 4),)),
                Augmentation(
                    "color_jitter",
                    (
                        ("brightness", 0.5, 1.5),
                        ("contrast", 0.5, 1.5),
                        ("saturation", 0.5, 1.5),
                        ("hue", -0.25, 0.25),
                    ),
                ),
                Augmentation("flip_vertically"),
                Augmentation("elastic", choices=(("alpha", (50,)), ("sigma", (5,)))),
                Augmentation("uniform_noise", (("blending", 0.0, 0.9),)),
            ),
            weight=0.8,
        ),
        Group(
            1,
            1,
            (
                Augmentation("blend", (("blending", 0.0, 0.45),)),
                Augmentation("picture_in_picture", (("scale", 0.05, 0.25),)),
            ),
            weight=0.2,
        ),
    ),
}


def mixture(epoch: int, n_epochs: int = TABLE_EPOCHS) -> dict[Level, float]:
    """Return the share of each level in an epoch.

    Runs of another length change the mixture at the same fractions of their epochs; epochs past the end keep the last
    mixture.

    >>> mixture(85)["hard"], mixture(8, n_epochs=20)["hard"]
    (0.25, 0.25)
    """
    in_table = epoch * TABLE_EPOCHS / n_epochs
    return MIXTURES[max(first for first in MIXTURES if first <= in_table)]
