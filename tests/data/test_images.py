"""Pictures resized as the pre-trained models' own transforms do it."""

from typing import Any

import pytest
import torch
from tests.utils.test_image_files import photograph

from channelhash.data.images import Resize
from channelhash.utils.torchvision_compat import torchvision

SIZES = [(500, 375), (375, 500), (333, 251), (240, 240), (97, 410), (224, 600)]


@pytest.mark.parametrize("size", SIZES)
def test_imagenet_pictures_are_those_of_torchvision(size: tuple[int, int]) -> None:
    preset = torchvision.models.ResNet152_Weights.IMAGENET1K_V2.transforms()
    mean, std = (torch.tensor(values)[:, None, None] for values in (preset.mean, preset.std))
    theirs = preset(photograph(*size)) * std + mean
    ours = Resize(224, short_side=232)([photograph(*size)])[0].float() / 255
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("filter_", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_clip_pictures_are_those_of_open_clip(size: tuple[int, int], filter_: Any, mode: Any) -> None:
    from open_clip.transform import image_transform

    how = {"interpolation": filter_, "resize_mode": mode, "fill_color": 9}
    transform = image_transform(64, is_train=False, mean=(0, 0, 0), std=(1, 1, 1), **how)
    ours = Resize(64, filter=filter_, mode=mode, fill=9)([photograph(*size)])[0].float() / 255
    torch.testing.assert_close(ours, transform(photograph(*size)), atol=1e-6, rtol=0)


def test_a_large_photograph_is_decoded_smaller_and_looks_the_same(tmp_path: Any) -> None:
    path = tmp_path / "large.jpg"
    photograph(1600, 1200).save(path, quality=90)
    whole, reduced = (Resize(64, filter="bicubic", reduced=reduced)([path]).float() for reduced in (False, True))
    assert 0 < (whole - reduced).abs().mean() < 1
    assert "picture.draft" in " ".join(Resize(64, reduced=True).recipe()["steps"])
    assert "reduced" not in Resize(64).recipe()
