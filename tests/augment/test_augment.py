"""The tables, the draws and the operations of progressive augmentation."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, chisquare

from channelhash.augment import operations as op
from channelhash.augment.progressive import Step, apply, augment_batch, plan
from channelhash.augment.tables import GROUPS, LEVELS, MIXTURES, mixture

N = 4000


def plans(level=None, epoch=0, **options):
    return [plan(7, epoch, sample, N, level=level, **options) for sample in range(N)]


def names(steps) -> list[str]:
    return [step.name for step in steps]


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
        for epoch in (first, last):
            assert [mixture(epoch)[level] for level in LEVELS] == shares
    assert all(sum(shares.values()) == 1 for shares in MIXTURES.values())
    assert [mixture(e, 20)["none"] for e in (0, 1, 2, 19)] == [1, 1, 0.25, 0.25]


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
    shares = mixture(epoch)
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
    group = GROUPS[level][1]
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
def test_parameters_fill_their_ranges(level):
    drawn: dict[tuple[str, str], list[float]] = {}
    for steps in plans(level):
        for step in steps:
            for name, value in step.parameters.items():
                drawn.setdefault((step.name, name), []).append(value)
    for group in GROUPS[level]:
        for row in group.rows:
            for name, low, high in (*row.ranges, *row.log_ranges):
                values = drawn[row.name, name]
                assert low <= min(values) <= max(values) <= high + 1e-12
                if high > low:
                    assert min(values) < low + 0.05 * (high - low)
                    assert max(values) > high - 0.05 * (high - low)


def test_partners_are_other_samples():
    partners = [(i, s.partner) for i, steps in enumerate(plans("hard")) for s in steps if s.partner is not None]
    assert all(partner != i and 0 <= partner < N for i, partner in partners)
    assert len({partner for _, partner in partners}) > 300


def test_a_draw_depends_on_seed_epoch_and_sample_alone():
    assert plan(0, 90, 5, N) == plan(0, 90, 5, N)
    draws = [plan(seed, epoch, sample, N, level="hard") for seed in (0, 1) for epoch in (0, 1) for sample in (0, 1)]
    assert len({repr(steps) for steps in draws}) == 8


def test_a_picture_is_augmented_the_same_in_any_batch():
    images = torch.rand(6, 3, 24, 20, generator=torch.Generator().manual_seed(0))

    def augmented(order):
        return augment_batch(images[order], order, 190, 3, 6, lambda other: images[other])

    whole = augmented(list(range(6)))
    torch.testing.assert_close(augmented([4, 2, 0]), whole[[4, 2, 0]], rtol=0, atol=0)


PICTURES = st.tuples(st.integers(8, 40), st.integers(8, 40), st.integers(0, 10**6))


@settings(deadline=None, max_examples=40)
@given(PICTURES, st.sampled_from(["easy", "medium", "hard"]), st.integers(0, 10**6))
def test_shape_and_range_are_kept(picture, level, sample):
    height, width, seed = picture
    image, partner = torch.rand(2, 3, height, width, generator=torch.Generator().manual_seed(seed))
    steps = plan(0, 0, sample, 10**6 + 1, level=level)
    result = apply(image, steps, lambda other: partner)
    assert result.shape == image.shape
    assert result.dtype == image.dtype
    assert result.min() >= 0
    assert result.max() <= 1 + 1e-6


IMAGE = torch.rand(3, 20, 20, generator=torch.Generator().manual_seed(1))
OTHER = torch.rand(3, 20, 20, generator=torch.Generator().manual_seed(2))


def test_operations_on_a_case_done_by_hand():
    close = lambda a, b: torch.testing.assert_close(a, b, atol=1e-5, rtol=0)  # noqa: E731
    close(op.flip_horizontally(IMAGE)[:, :, 0], IMAGE[:, :, -1])
    close(op.flip_vertically(IMAGE)[:, 0], IMAGE[:, -1])
    close(op.rotate(IMAGE, 90), torch.rot90(IMAGE, 1, (1, 2)))
    close(op.rotate(IMAGE, 0), IMAGE)
    assert (op.rotate(torch.ones(3, 20, 20), 45)[:, 0, 0] == 0).all()  # what opens is black
    luma = 0.299 * IMAGE[0] + 0.587 * IMAGE[1] + 0.114 * IMAGE[2]
    torch.testing.assert_close(op.grayscale(IMAGE)[1], luma, atol=2e-3, rtol=0)
    close(op.crop(IMAGE, 1.0, 1.0, 0.3, 0.9), IMAGE)
    close(op.crop(IMAGE, 1.1, 1.0, 0.3, 0.9), IMAGE)  # exceeds the picture: the whole of it
    quarter = torch.zeros(3, 20, 20)
    quarter[:, 10:, :10] = 1
    assert (op.crop(quarter, 0.25, 1.0, 0.0, 1.0)[:, 2:-2, 2:-2] > 0.99).all()
    close(op.uniform_noise(IMAGE, 0.0, 1), IMAGE)
    noisy = op.uniform_noise(IMAGE, 0.25, 1)
    noise = (noisy - 0.75 * IMAGE) / 0.25
    assert 0 <= noise.min() < 0.05
    assert 0.95 < noise.max() <= 1 + 1e-5
    close(op.blend(IMAGE, OTHER, 0.0), IMAGE)
    close(op.blend(IMAGE, OTHER, 0.3), 0.7 * IMAGE + 0.3 * OTHER)
    close(op.color_jitter(IMAGE, 1, 1, 1, 0), IMAGE)
    close(op.color_jitter(IMAGE, 0.5, 1, 1, 0), 0.5 * IMAGE)
    close(op.color_jitter(IMAGE, 1, 1, 0, 0), op.grayscale(IMAGE))
    close(op.elastic(IMAGE, 0.0, 5, 1), IMAGE)
    assert (op.elastic(IMAGE, 50.0, 5, 1) - IMAGE).abs().max() > 0.01


@given(st.floats(0.02, 0.15), st.floats(0.25, 4), st.floats(0, 1), st.floats(0, 1))
def test_erasing_blackens_the_area_it_says(scale, ratio, x, y):
    image = torch.ones(3, 100, 100)
    erased = (op.erase(image, scale, ratio, x, y) == 0).all(0)
    rows, columns = erased.any(1).sum().item(), erased.any(0).sum().item()
    assert erased.sum().item() == rows * columns  # one rectangle
    assert erased.float().mean().item() == pytest.approx(scale, rel=0.12)
    assert columns / rows == pytest.approx(ratio, rel=0.25)


@given(st.floats(0.05, 0.25), st.floats(0, 1), st.floats(0, 1))
def test_picture_in_picture_has_the_side_fraction(scale, x, y):
    result = op.picture_in_picture(torch.zeros(3, 200, 200), torch.ones(3, 200, 200), scale, x, y)[0] > 0.5
    side = round(scale * 200)
    assert result.sum().item() == side * side
    assert result.any(0).nonzero()[0].item() == round(x * (200 - side))
    assert result.any(1).nonzero()[0].item() == round(y * (200 - side))


def test_partners_come_un_augmented():
    asked = []
    apply(IMAGE, (Step("blend", {"blending": 0.2}, 4),), lambda other: asked.append(other) or OTHER)
    assert asked == [4]
