"""What is drawn, and that it is the same in any batch."""

import colorsys
import math
from collections import Counter
from itertools import chain, permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import binomtest, chisquare, kstest

from channelhash.augment import progressive as op
from channelhash.augment.progressive import (
    _GROUPS,
    _OPERATIONS,
    Progression,
    _Augmentation,
    _mixture,
)
from channelhash.utils.torchvision_compat import torchvision

N = 4000
LEVELS = ["easy", "medium", "hard"]


def noise(seed, *shape) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def plans(level=None, epoch=0, **options):
    return [Progression(7, N, level=level, **options).plan(epoch, sample) for sample in range(N)]


def names(steps) -> list[str]:
    return [step.name for step in steps]


def angles_of(steps) -> list[float]:
    return [step.parameters["angle"] for step in steps if step.name == "rotate"]


@pytest.mark.parametrize("epoch", [0, 25, 45, 65, 85, 120, 180])
def test_level_shares_are_those_of_the_epoch(epoch):
    """A plan's level shows in what it draws: only easy has exact multiples of 45°, only hard has
    partners.
    """
    shares = _mixture(epoch)
    drawn = plans(epoch=epoch)
    steps = list(chain.from_iterable(drawn))
    angles = angles_of(steps)
    # every plan of a level has at least one step besides a flip that may not happen
    for level, count, share in (
        ("none", sum(not plan for plan in drawn), 1),
        ("easy", sum(angle % 45 == 0 for angle in angles), 0.25),
        ("hard", sum(step.partner is not None for step in steps), 0.2),
    ):
        assert binomtest(count, N, shares[level] * share).pvalue > 1e-4


def test_easy_picks_one_of_four_kinds_alike_or_rotates_four_sevenths_as_in_the_published_code():
    steps = list(chain.from_iterable(plans("easy")))
    counts = Counter(names(steps))
    assert len(steps) == N
    assert set(counts) == {"flip_horizontally", "rotate", "grayscale", "crop"}
    assert chisquare(list(counts.values())).pvalue > 1e-4
    angles = Counter(angles_of(steps))
    assert set(angles) == {-90, -45, 45, 90}
    assert chisquare(list(angles.values())).pvalue > 1e-4
    rotations = sum(names(steps) == ["rotate"] for steps in plans("easy", easy_weights="angles"))
    assert binomtest(rotations, N, 4 / 7).pvalue > 1e-4


@pytest.mark.parametrize(("level", "most"), [("medium", 2), ("hard", 3)])
def test_counts_are_uniform_without_replacement_in_random_order_and_half_are_flipped(level, most):
    kinds = {row.name for row in _GROUPS[level][1].rows}
    drawn = plans(level)
    flipped = sum("flip_horizontally" in names(steps) for steps in drawn)
    assert binomtest(flipped, N, 0.5).pvalue > 1e-4
    picked = [[name for name in names(steps) if name in kinds] for steps in drawn]
    picked = [chosen for chosen in picked if chosen]
    assert all(len(set(chosen)) == len(chosen) for chosen in picked)
    sizes = Counter(len(chosen) for chosen in picked)
    assert set(sizes) == set(range(1, most + 1))
    assert chisquare(list(sizes.values())).pvalue > 1e-4
    first = Counter(chosen[0] for chosen in picked)
    assert set(first) == kinds
    assert chisquare(list(first.values())).pvalue > 1e-4
    both = [chosen for chosen in picked if {"rotate", "grayscale"} <= set(chosen)]
    earlier = sum(chosen.index("rotate") < chosen.index("grayscale") for chosen in both)
    assert binomtest(earlier, len(both), 0.5).pvalue > 1e-4


def test_hard_picks_the_upper_group_with_80_percent():
    lower = [steps for steps in plans("hard") if any(s.partner is not None for s in steps)]
    assert binomtest(len(lower), N, 0.2).pvalue > 1e-4
    assert all(len([s for s in steps if s.name != "flip_horizontally"]) == 1 for steps in lower)
    kinds = Counter(s.name for steps in lower for s in steps if s.partner is not None)
    assert binomtest(kinds["blend"], len(lower), 0.5).pvalue > 1e-4


@pytest.mark.parametrize("level", LEVELS)
def test_parameters_are_uniform_in_their_ranges(level):
    drawn: dict[tuple[str, str], list[float]] = {}
    for steps in plans(level):
        for step in steps:
            for name, value in step.parameters.items():
                drawn.setdefault((step.name, name), []).append(value)
    for row in chain.from_iterable(group.rows for group in _GROUPS[level]):
        for name in row.parameters.keys() - set(row.choices):
            values = np.array([*row.parameters[name], *drawn[row.name, name]])
            low, high, *values = np.log(values) if name == "ratio" else values
            if low < high:
                assert kstest(values, "uniform", (low, high - low)).pvalue > 1e-4


def test_partners_are_the_other_samples_alike():
    partners = Counter()
    for sample, seed in product(range(5), range(800)):
        steps = Progression(seed, 5, level="hard").plan(0, sample)
        partners.update((sample, step.partner) for step in steps if step.partner is not None)
    assert set(partners) == set(permutations(range(5), 2))
    assert chisquare(list(partners.values())).pvalue > 1e-4


def test_a_draw_depends_on_seed_epoch_and_sample_alone():
    keys = list(product((0, 1), repeat=3))

    def draw(seed, epoch, sample):
        return Progression(seed, N, level="hard").plan(epoch, sample)

    draws = {key: draw(*key) for key in keys}
    assert len({repr(steps) for steps in draws.values()}) == 8
    assert {key: draw(*key) for key in reversed(keys)} == draws


def test_augmenting_leaves_the_global_generator_alone():
    images = torch.rand(40, 3, 12, 12)
    before = torch.get_rng_state()
    for row in range(40):
        Progression(3, 40).augment(images.__getitem__, 190, row)
    assert torch.equal(torch.get_rng_state(), before)


@settings(max_examples=40)
@given(st.integers(8, 40), st.integers(8, 40), st.integers(0, 10**6), st.sampled_from(LEVELS))
def test_shape_and_range_are_kept(height, width, sample, level):
    image, partner = noise(sample, 2, 3, height, width)
    progression = Progression(0, 10**6 + 1, level=level)
    result = progression.augment(lambda row: image if row == sample else partner, 0, sample)
    assert result.shape == image.shape
    assert result.dtype == image.dtype
    assert result.min() >= 0
    assert result.max() <= 1 + 1e-6


AUGMENTATIONS = """
easy 1-1
  flip_horizontally
  rotate angle -90 -45 45 90
  grayscale
  crop scale 0.5..1 ratio 1..1 x 0..1 y 0..1
medium 1-1
  flip_horizontally p 0.5
medium 1-2
  rotate angle -45..45
  grayscale
  crop scale 0.35..1.1 ratio 0.9..1.1 x 0..1 y 0..1
  erase scale 0.02..0.05 ratio 0.333..3 x 0..1 y 0..1
  color_jitter brightness 0.8..1.2 contrast 0.8..1.2 saturation 0.8..1.2 hue -0.1..0.1
  uniform_noise blending 0..0.5
hard 1-1
  flip_horizontally p 0.5
hard 1-3 80%
  rotate angle -90..90
  grayscale
  crop scale 0.2..1.1 ratio 0.75..1.33 x 0..1 y 0..1
  erase scale 0.05..0.15 ratio 0.25..4 x 0..1 y 0..1
  color_jitter brightness 0.5..1.5 contrast 0.5..1.5 saturation 0.5..1.5 hue -0.25..0.25
  flip_vertically
  elastic alpha 50 sigma 5
  uniform_noise blending 0..0.9
hard 1-1 20%
  blend blending 0..0.45
  picture_in_picture scale 0.05..0.25 x 0..1 y 0..1
"""


def written(row: _Augmentation) -> str:
    parts = [row.name]
    for name, values in row.parameters.items():
        sign, form = (" ", "g") if name in row.choices else ("..", ".3g")
        parts.append(f"{name} {sign.join(format(value, form) for value in values)}")
    return " ".join(parts + [f"p {row.probability:g}"] * (row.probability != 1))


def test_augmentations_are_the_papers():
    lines = []
    used = set()
    for level in _GROUPS:
        for group in _GROUPS[level]:
            share = f" {group.weight:.0%}" if group.weight else ""
            lines.append(f"{level} 1-{group.most}{share}")
            lines += ["  " + written(row) for row in group.rows]
            used.update(names(group.rows))
    assert lines == AUGMENTATIONS.strip().split("\n")
    assert used == set(_OPERATIONS)


def test_mixtures_are_the_papers_and_scale_with_the_number_of_epochs():
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
    for n_epochs in (1, 7, *range(10, 401, 10)):
        assert all(
            _mixture(epoch, n_epochs) == _mixture(epoch * 200 // n_epochs)
            for epoch in range(n_epochs)
        )
    assert [_mixture(epoch, 30)["none"] for epoch in (2, 3)] == [1, 0.25]
    assert _mixture(200) == _mixture(10**6) == _mixture(31, 30) == _mixture(199)


IMAGE = noise(1, 3, 20, 20)
OTHER = noise(2, 3, 20, 20)
PLACE = st.floats(0, 1)


def close(got, expected, atol=1e-5):
    torch.testing.assert_close(
        got, torch.as_tensor(expected, dtype=torch.float32), atol=atol, rtol=0
    )


def test_flips_mirror_grayscale_is_luma_and_a_blend_a_weighted_mean():
    close(_OPERATIONS["flip_horizontally"](IMAGE), IMAGE.numpy()[:, :, ::-1].copy())
    close(_OPERATIONS["flip_vertically"](IMAGE), IMAGE.numpy()[:, ::-1].copy())
    luma = 0.299 * IMAGE[0] + 0.587 * IMAGE[1] + 0.114 * IMAGE[2]
    close(op._grayscale(IMAGE), torch.stack([luma] * 3), atol=2e-4)
    close(op._blend(IMAGE, OTHER, 0.0), IMAGE)
    close(op._blend(IMAGE, OTHER, 0.3), 0.7 * IMAGE + 0.3 * OTHER)


@pytest.mark.parametrize("angle", [-90.0, -77.0, -45.0, 0.0, 12.5, 45.0, 90.0])
def test_rotation_is_bilinear_about_the_centre_and_black_outside(angle):
    height, width = 17, 24
    image = noise(3, 3, height, width)
    got, pixels = op._rotate(image, angle).numpy(), image.numpy()
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    inside = outside = 0
    for i, j in np.ndindex(height, width):
        down, right = i - (height - 1) / 2, j - (width - 1) / 2
        y = (height - 1) / 2 + sin * right + cos * down
        x = (width - 1) / 2 + cos * right - sin * down
        top, left = math.floor(y), math.floor(x)
        if 0 <= top < height - 1 and 0 <= left < width - 1:
            window = pixels[:, top : top + 2, left : left + 2]
            expected = [1 - (y - top), y - top] @ window @ [1 - (x - left), x - left]
            np.testing.assert_allclose(got[:, i, j], expected, atol=1e-5)
            inside += 1
        elif not (-1 <= y <= height and -1 <= x <= width):
            assert (got[:, i, j] == 0).all()
            outside += 1
    assert inside > 50
    assert outside > 20 or not angle


@given(st.floats(0.05, 1.1), st.floats(0.75, 4 / 3), PLACE, PLACE)
def test_a_crop_is_a_slice_resized_or_the_whole_where_it_is_larger(scale, ratio, x, y):
    height, width = 20, 30
    image = noise(4, 3, height, width)
    h, w = round(math.sqrt(scale * 600 / ratio)), round(math.sqrt(scale * 600 * ratio))
    if h > height or w > width:
        h, w = height, width
    top, left = round(y * (height - h)), round(x * (width - w))
    expected = image[:, top : top + h, left : left + w].numpy()
    rows = (np.arange(height) + 0.5) * h / height - 0.5
    columns = (np.arange(width) + 0.5) * w / width - 0.5
    expected = np.apply_along_axis(lambda line: np.interp(rows, range(h), line), 1, expected)
    expected = np.apply_along_axis(lambda line: np.interp(columns, range(w), line), 2, expected)
    close(op._crop(image, scale, ratio, x, y), expected)


@given(st.floats(0.02, 0.15), st.floats(0.25, 4), PLACE, PLACE)
def test_erasing_blackens_the_area_it_says_and_nothing_else(scale, ratio, x, y):
    image = noise(5, 3, 100, 100) + 0.01
    result = op._erase(image, scale, ratio, x, y)
    erased = (result == 0).all(0)
    rows, columns = erased.any(1).sum().item(), erased.any(0).sum().item()
    assert erased.sum().item() == rows * columns  # one rectangle
    assert rows * columns / 100**2 == pytest.approx(scale, rel=0.12)
    assert columns / rows == pytest.approx(ratio, rel=0.25)
    assert torch.equal(result[:, ~erased], image[:, ~erased])
    assert image.min() > 0  # the picture given is not written to


def test_erasing_never_takes_the_whole_of_a_narrow_picture():
    assert op._erase(torch.ones(3, 40, 160), 0.15, 0.25, 0.5, 0.5).mean() > 0.8
    assert op._erase(torch.ones(3, 160, 40), 0.15, 4.0, 0.5, 0.5).mean() > 0.8


@pytest.mark.parametrize("hue", [-0.25, -0.1, 0.0, 0.2])
def test_color_jitter_changes_one_thing_after_another(hue):
    brightness, contrast, saturation = 1.3, 0.6, 1.4
    luma = np.array([0.299, 0.587, 0.114])
    pixels = np.clip(brightness * IMAGE.permute(1, 2, 0).double().numpy(), 0, 1)
    pixels = np.clip(contrast * pixels + (1 - contrast) * (pixels @ luma).mean(), 0, 1)
    pixels = np.clip(saturation * pixels + (1 - saturation) * (pixels @ luma)[..., None], 0, 1)
    for pixel in pixels.reshape(-1, 3):
        h, s, v = colorsys.rgb_to_hsv(*pixel)
        pixel[:] = colorsys.hsv_to_rgb((h + hue) % 1, s, v)
    jittered = op._color_jitter(IMAGE, brightness, contrast, saturation, hue)
    close(jittered, pixels.transpose(2, 0, 1), atol=2e-3)


def test_noise_is_a_blend_with_uniform_values():
    close(op._uniform_noise(IMAGE, 0.0, 1), IMAGE)
    noise = (op._uniform_noise(IMAGE, 0.25, 1) - 0.75 * IMAGE) / 0.25
    assert -1e-5 < noise.min() < 0.05
    assert 0.95 < noise.max() < 1 + 1e-5
    assert noise.mean() == pytest.approx(0.5, abs=0.05)
    close(op._uniform_noise(OTHER, 1.0, 1), noise)  # the seed alone decides
    assert not torch.equal(op._uniform_noise(IMAGE, 0.25, 1), op._uniform_noise(IMAGE, 0.25, 2))


@pytest.mark.parametrize("side", [21, 64])
def test_elastic_is_torchvisions_with_a_seed_of_its_own(side):
    image = noise(6, 3, side, side)
    with torch.random.fork_rng():
        torch.manual_seed(11)
        expected = torchvision.transforms.v2.ElasticTransform(alpha=50.0, sigma=5.0)(image)
    got = op._elastic(image, 50.0, 5.0, 11)
    close(got, expected, atol=1e-4)
    assert (got - image).abs().max() > 0.1
    close(op._elastic(image, 0.0, 5.0, 11), image)


@given(st.integers(2, 12), st.integers(2, 12))
@settings(max_examples=20)
def test_elastic_works_on_pictures_smaller_than_its_blur(height, width):
    assert op._elastic(torch.ones(3, height, width), 50, 5, 1).shape == (3, height, width)


@given(st.floats(0.05, 0.25), PLACE, PLACE)
def test_picture_in_picture_has_the_side_fraction(scale, x, y):
    black, white = torch.zeros(3, 200, 120), torch.ones(3, 200, 120)
    result = op._picture_in_picture(black, white, scale, x, y)[0] > 0.5
    height, width = round(scale * 200), round(scale * 120)
    assert result.sum().item() == height * width
    assert result.any(0).nonzero()[0].item() == round(x * (120 - width))
    assert result.any(1).nonzero()[0].item() == round(y * (200 - height))


def test_picture_in_picture_shows_the_whole_partner_upright():
    rows, columns = torch.meshgrid(*[torch.linspace(0, 1, 80)] * 2, indexing="ij")
    partner = torch.stack([rows, columns, rows])
    result = op._picture_in_picture(torch.zeros(3, 80, 80), partner, 0.25, 0.0, 0.0)
    steps = (torch.arange(20) * 4 + 1.5) / 79  # centres of the 4 x 4 pixels that make one
    close(result[0, 2:18, 10], steps[2:18], atol=1e-3)
    close(result[1, 10, 2:18], steps[2:18], atol=1e-3)
