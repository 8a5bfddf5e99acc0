"""What is drawn, and that it is the same in any batch."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare, kstest

from channelhash.augment.progressive import _GROUPS, Progression, _mixture, apply, augment_batch, plan

N = 4000


def plans(level=None, epoch=0, **options):
    return [plan(Progression(7, N, level=level, **options), epoch, sample) for sample in range(N)]


def names(steps) -> list[str]:
    return [step.name for step in steps]


@pytest.mark.parametrize("epoch", [0, 25, 45, 65, 85, 120, 180])
def test_a_quarter_stays_unaltered_from_epoch_20_on(epoch):
    unaltered = sum(not steps for steps in plans(epoch=epoch))
    if epoch < 20:
        assert unaltered == N
    else:  # every other plan has at least one step besides a flip that may not happen
        assert binomtest(unaltered, N, 0.25).pvalue > 1e-4


@pytest.mark.parametrize("epoch", [25, 45, 65, 85, 120, 180])
def test_level_shares_are_those_of_the_epoch(epoch):
    """A plan's level shows in what it draws: only easy has exact multiples of 45°, only hard has partners."""
    shares = _mixture(epoch)
    drawn = plans(epoch=epoch)
    fixed = sum(s.name == "rotate" and s.parameters["angle"] % 45 == 0 for steps in drawn for s in steps)
    assert binomtest(fixed, N, shares["easy"] / 4).pvalue > 1e-4 if shares["easy"] else fixed == 0
    mixed = sum(s.partner is not None for steps in drawn for s in steps)
    assert binomtest(mixed, N, shares["hard"] * 0.2).pvalue > 1e-4 if shares["hard"] else mixed == 0


def test_easy_picks_one_of_four_kinds_alike():
    counts = Counter(name for steps in plans("easy") for name in names(steps))
    assert sum(counts.values()) == N
    assert set(counts) == {"flip_horizontally", "rotate", "grayscale", "crop"}
    assert chisquare(list(counts.values())).pvalue > 1e-4
    angles = Counter(s.parameters["angle"] for steps in plans("easy") for s in steps if s.name == "rotate")
    assert set(angles) == {-90, -45, 45, 90}
    assert chisquare(list(angles.values())).pvalue > 1e-4


def test_easy_as_in_the_published_code_gives_rotation_four_sevenths():
    rotations = sum(names(steps) == ["rotate"] for steps in plans("easy", easy_weights="angles"))
    assert binomtest(rotations, N, 4 / 7).pvalue > 1e-4


@pytest.mark.parametrize(("level", "most"), [("medium", 2), ("hard", 3)])
def test_counts_are_uniform_without_replacement_in_random_order(level, most):
    group = _GROUPS[level][1]
    kinds = {row.name for row in group.rows}
    picked = [[name for name in names(steps) if name in kinds] for steps in plans(level)]
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


@pytest.mark.parametrize("level", ["medium", "hard"])
def test_half_are_flipped_besides(level):
    flipped = sum("flip_horizontally" in names(steps) for steps in plans(level))
    assert binomtest(flipped, N, 0.5).pvalue > 1e-4


def test_hard_picks_the_upper_group_with_80_percent():
    drawn = plans("hard")
    lower = [steps for steps in drawn if any(s.partner is not None for s in steps)]
    assert binomtest(len(lower), N, 0.2).pvalue > 1e-4
    assert all(len([s for s in steps if s.name != "flip_horizontally"]) == 1 for steps in lower)
    kinds = Counter(s.name for steps in lower for s in steps if s.partner is not None)
    assert binomtest(kinds["blend"], len(lower), 0.5).pvalue > 1e-4


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
def test_parameters_are_uniform_in_their_ranges(level):
    drawn: dict[tuple[str, str], list[float]] = {}
    for steps in plans(level):
        for step in steps:
            for name, value in step.parameters.items():
                drawn.setdefault((step.name, name), []).append(value)
    for group in _GROUPS[level]:
        for row in group.rows:
            ranges = {name: values for name, values in row.parameters.items() if name not in row.choices}
            if row.name in ("crop", "erase", "picture_in_picture"):
                ranges |= {"x": (0, 1), "y": (0, 1)}
            for name, (low, high) in ranges.items():
                values = np.array(drawn[row.name, name])
                if name == "ratio":
                    values, low, high = np.log(values), math.log(low), math.log(high)
                if low < high:
                    assert kstest(values, "uniform", (low, high - low)).pvalue > 1e-4


def test_partners_are_the_other_samples_alike():
    drawn = [
        (sample, plan(Progression(seed, 5, level="hard"), 0, sample)) for sample in range(5) for seed in range(800)
    ]
    partners = Counter((sample, s.partner) for sample, steps in drawn for s in steps if s.partner is not None)
    assert set(partners) == {(a, b) for a in range(5) for b in range(5) if a != b}
    assert chisquare(list(partners.values())).pvalue > 1e-4


def test_a_draw_depends_on_seed_epoch_and_sample_alone():
    keys = [(seed, epoch, sample) for seed in (0, 1) for epoch in (0, 1) for sample in (0, 1)]

    def draw(seed, epoch, sample):
        return plan(Progression(seed, N, level="hard"), epoch, sample)

    draws = {key: draw(*key) for key in keys}
    assert len({repr(steps) for steps in draws.values()}) == 8
    assert {key: draw(*key) for key in reversed(keys)} == draws


def test_augmenting_leaves_the_global_generator_alone():
    images = torch.rand(40, 3, 12, 12)
    before = torch.get_rng_state()
    augment_batch(images, list(range(40)), 190, Progression(3, 40), images.__getitem__)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_batch_is_drawn_with_the_asked_length_and_weights():
    images = torch.rand(60, 3, 12, 12)

    def expected(**options):
        progression = Progression(3, 60, 40, **options)
        return torch.stack([apply(images[i], plan(progression, 5, i), images.__getitem__) for i in range(60)])

    for options in ({}, {"easy_weights": "angles"}):
        got = augment_batch(images, list(range(60)), 5, Progression(3, 60, 40, **options), images.__getitem__)
        torch.testing.assert_close(got, expected(**options), rtol=0, atol=0)
    assert not torch.equal(expected(), expected(easy_weights="angles"))


PICTURES = st.tuples(st.integers(8, 40), st.integers(8, 40), st.integers(0, 10**6))


@settings(max_examples=40)
@given(PICTURES, st.sampled_from(["easy", "medium", "hard"]), st.integers(0, 10**6))
def test_shape_and_range_are_kept(picture, level, sample):
    height, width, seed = picture
    image, partner = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(seed))
    steps = plan(Progression(0, 10**6 + 1, level=level), 0, sample)
    result = apply(image, steps, lambda other: partner)
    assert result.shape == image.shape
    assert result.dtype == image.dtype
    assert result.min() >= 0
    assert result.max() <= 1 + 1e-6
