"""The paper's two tables, transcribed a second time."""

from channelhash.augment.operations import OPERATIONS
from channelhash.augment.progressive import _GROUPS, Augmentation, _mixture

AUGMENTATIONS = """
easy 1-1
  flip_horizontally
  rotate angle -90 -45 45 90
  grayscale
  crop scale 0.5..1 ratio 1..1
medium 1-1
  flip_horizontally p 0.5
medium 1-2
  rotate angle -45..45
  grayscale
  crop scale 0.35..1.1 ratio 0.9..1.1
  erase scale 0.02..0.05 ratio 0.333..3
  color_jitter brightness 0.8..1.2 contrast 0.8..1.2 saturation 0.8..1.2 hue -0.1..0.1
  uniform_noise blending 0..0.5
hard 1-1
  flip_horizontally p 0.5
hard 1-3 80%
  rotate angle -90..90
  grayscale
  crop scale 0.2..1.1 ratio 0.75..1.33
  erase scale 0.05..0.15 ratio 0.25..4
  color_jitter brightness 0.5..1.5 contrast 0.5..1.5 saturation 0.5..1.5 hue -0.25..0.25
  flip_vertically
  elastic alpha 50 sigma 5
  uniform_noise blending 0..0.9
hard 1-1 20%
  blend blending 0..0.45
  picture_in_picture scale 0.05..0.25
"""


def written(row: Augmentation) -> str:
    parts = [row.name]
    parts += [
        f"{name} {' '.join(f'{value:g}' for value in values)}"
        if name in row.choices
        else f"{name} {values[0]:.3g}..{values[1]:.3g}"
        for name, values in row.parameters.items()
    ]
    return " ".join(parts + [f"p {row.probability:g}"] * (row.probability != 1))


def test_augmentations_are_the_papers():
    lines = []
    for level in _GROUPS:
        for group in _GROUPS[level]:
            lines.append(f"{level} {group.least}-{group.most}" + (f" {group.weight:.0%}" if group.weight else ""))
            lines += ["  " + written(row) for row in group.rows]
    assert lines == AUGMENTATIONS.strip().split("\n")
    assert {row.name for groups in _GROUPS.values() for group in groups for row in group.rows} == set(OPERATIONS)


def test_mixtures_are_the_papers():
    expected = [  # first epoch, last epoch, none, easy, medium, hard
        (0, 19, 1.00, 0.00, 0.00, 0.00),
        (20, 39, 0.25, 0.75, 0.00, 0.00),
        (40, 59, 0.25, 0.50, 0.25, 0.00),
        (60, 79, 0.25, 0.25, 0.50, 0.00),
        (80, 99, 0.25, 0.25, 0.25, 0.25),
        (100, 149, 0.25, 0.00, 0.25, 0.50),
        (150, 199, 0.25, 0.00, 0.00, 0.75),
    ]
    for first, last, *shares in expected:
        for epoch in range(first, last + 1):
            assert [_mixture(epoch)[level] for level in _GROUPS] == shares


def test_mixtures_scale_with_the_number_of_epochs():
    for n_epochs in (1, 7, *range(10, 401, 10)):
        assert all(_mixture(epoch, n_epochs) == _mixture(epoch * 200 // n_epochs) for epoch in range(n_epochs))
    assert [_mixture(epoch, 30)["none"] for epoch in (2, 3)] == [1, 0.25]
    assert _mixture(200) == _mixture(10**6) == _mixture(31, 30) == _mixture(199)
