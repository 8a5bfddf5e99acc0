"""Each operation against the same thing done by hand, pixel by pixel, or by a library."""

import colorsys
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from channelhash.augment import operations as op
from channelhash.utils.torchvision_compat import torchvision

IMAGE = torch.rand(3, 20, 20, generator=torch.Generator().manual_seed(1))
OTHER = torch.rand(3, 20, 20, generator=torch.Generator().manual_seed(2))
PLACE = st.floats(0, 1)


def close(got, expected, atol=1e-5):
    torch.testing.assert_close(got, torch.as_tensor(expected, dtype=torch.float32), atol=atol, rtol=0)


def test_flips_mirror_left_and_right_or_top_and_bottom():
    close(op.flip_horizontally(IMAGE)[:, :, 0], IMAGE[:, :, -1])
    close(op.flip_horizontally(op.flip_horizontally(IMAGE)), IMAGE)
    close(op.flip_vertically(IMAGE)[:, 0], IMAGE[:, -1])
    close(op.flip_vertically(op.flip_vertically(IMAGE)), IMAGE)


def test_rotation_by_right_angles_is_rot90():
    close(op.rotate(IMAGE, 0), IMAGE)
    close(op.rotate(IMAGE, 90), torch.rot90(IMAGE, 1, (1, 2)))
    close(op.rotate(IMAGE, -90), torch.rot90(IMAGE, -1, (1, 2)))


@pytest.mark.parametrize("angle", [-77.0, -45.0, 12.5, 45.0])
def test_rotation_is_bilinear_about_the_centre_and_black_outside(angle):
    height, width = 17, 24
    image = torch.rand(3, height, width, generator=torch.Generator().manual_seed(3))
    got, pixels = op.rotate(image, angle).numpy(), image.numpy()
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    inside = outside = 0
    for i in range(height):
        for j in range(width):
            down, right = i - (height - 1) / 2, j - (width - 1) / 2
            y, x = (height - 1) / 2 + sin * right + cos * down, (width - 1) / 2 + cos * right - sin * down
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
    assert outside > 20


def test_grayscale_is_luma_in_three_channels():
    luma = 0.299 * IMAGE[0] + 0.587 * IMAGE[1] + 0.114 * IMAGE[2]
    close(op.grayscale(IMAGE), torch.stack([luma] * 3), atol=2e-4)


@given(st.floats(0.05, 1), st.floats(0.75, 4 / 3), PLACE, PLACE)
def test_a_crop_is_a_slice_resized(scale, ratio, x, y):
    height, width = 20, 30
    image = torch.rand(3, height, width, generator=torch.Generator().manual_seed(4))
    h, w = round(math.sqrt(scale * 600 / ratio)), round(math.sqrt(scale * 600 * ratio))
    if h > height or w > width:
        h, w = height, width
    top, left = round(y * (height - h)), round(x * (width - w))
    expected = image[:, top : top + h, left : left + w].numpy()
    rows, columns = (np.arange(height) + 0.5) * h / height - 0.5, (np.arange(width) + 0.5) * w / width - 0.5
    expected = np.apply_along_axis(lambda line: np.interp(rows, range(h), line), 1, expected)
    expected = np.apply_along_axis(lambda line: np.interp(columns, range(w), line), 2, expected)
    close(op.crop(image, scale, ratio, x, y), expected)


def test_a_crop_larger_than_the_picture_is_the_whole_of_it():
    for scale, ratio in ((1.0, 1.0), (1.1, 1.0), (0.9, 4 / 3), (0.9, 3 / 4)):
        close(op.crop(IMAGE, scale, ratio, 0.3, 0.9), IMAGE)


@given(st.floats(0.02, 0.15), st.floats(0.25, 4), PLACE, PLACE)
def test_erasing_blackens_the_area_it_says_and_nothing_else(scale, ratio, x, y):
    image = torch.rand(3, 100, 100, generator=torch.Generator().manual_seed(5)) + 0.01
    result = op.erase(image, scale, ratio, x, y)
    erased = (result == 0).all(0)
    rows, columns = erased.any(1).sum().item(), erased.any(0).sum().item()
    assert erased.sum().item() == rows * columns  # one rectangle
    assert rows * columns / 100**2 == pytest.approx(scale, rel=0.12)
    assert columns / rows == pytest.approx(ratio, rel=0.25)
    assert torch.equal(result[:, ~erased], image[:, ~erased])
    assert image.min() > 0  # the picture given is not written to


def test_erasing_never_takes_the_whole_of_a_narrow_picture():
    assert op.erase(torch.ones(3, 40, 160), 0.15, 0.25, 0.5, 0.5).mean() > 0.8
    assert op.erase(torch.ones(3, 160, 40), 0.15, 4.0, 0.5, 0.5).mean() > 0.8


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
    close(op.color_jitter(IMAGE, brightness, contrast, saturation, hue), pixels.transpose(2, 0, 1), atol=2e-3)


def test_noise_is_a_blend_with_uniform_values():
    close(op.uniform_noise(IMAGE, 0.0, 1), IMAGE)
    noise = (op.uniform_noise(IMAGE, 0.25, 1) - 0.75 * IMAGE) / 0.25
    assert -1e-5 < noise.min() < 0.05
    assert 0.95 < noise.max() < 1 + 1e-5
    assert noise.mean() == pytest.approx(0.5, abs=0.05)
    close(op.uniform_noise(OTHER, 1.0, 1), noise)  # the seed alone decides
    assert not torch.equal(op.uniform_noise(IMAGE, 0.25, 1), op.uniform_noise(IMAGE, 0.25, 2))


@pytest.mark.parametrize("side", [21, 64])
def test_elastic_is_torchvisions_with_a_seed_of_its_own(side):
    image = torch.rand(3, side, side, generator=torch.Generator().manual_seed(6))
    with torch.random.fork_rng():
        torch.manual_seed(11)
        expected = torchvision.transforms.v2.ElasticTransform(alpha=50.0, sigma=5.0)(image)
    got = op.elastic(image, 50.0, 5.0, 11)
    close(got, expected, atol=1e-4)
    assert (got - image).abs().max() > 0.1
    close(op.elastic(image, 0.0, 5.0, 11), image)


@given(st.integers(2, 12), st.integers(2, 12))
@settings(max_examples=20)
def test_elastic_works_on_pictures_smaller_than_its_blur(height, width):
    assert op.elastic(torch.ones(3, height, width), 50, 5, 1).shape == (3, height, width)


def test_blend_is_a_weighted_mean():
    close(op.blend(IMAGE, OTHER, 0.0), IMAGE)
    close(op.blend(IMAGE, OTHER, 0.3), 0.7 * IMAGE + 0.3 * OTHER)


@given(st.floats(0.05, 0.25), PLACE, PLACE)
def test_picture_in_picture_has_the_side_fraction(scale, x, y):
    result = op.picture_in_picture(torch.zeros(3, 200, 120), torch.ones(3, 200, 120), scale, x, y)[0] > 0.5
    height, width = round(scale * 200), round(scale * 120)
    assert result.sum().item() == height * width
    assert result.any(0).nonzero()[0].item() == round(x * (120 - width))
    assert result.any(1).nonzero()[0].item() == round(y * (200 - height))


def test_picture_in_picture_shows_the_whole_partner_upright():
    rows, columns = torch.meshgrid(torch.linspace(0, 1, 80), torch.linspace(0, 1, 80), indexing="ij")
    result = op.picture_in_picture(torch.zeros(3, 80, 80), torch.stack([rows, columns, rows]), 0.25, 0.0, 0.0)
    steps = (torch.arange(20) * 4 + 1.5) / 79  # centres of the 4 x 4 pixels that make one
    close(result[0, 2:18, 10], steps[2:18], atol=1e-3)
    close(result[1, 10, 2:18], steps[2:18], atol=1e-3)
