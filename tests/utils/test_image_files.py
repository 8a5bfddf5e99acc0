"""Images are opened in one place, and models see them as people do, resized as the models' own transforms do it."""

import ast
import io

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageOps

from channelhash.data.images import Resize, image_problem, square
from channelhash.explanation.occlusion import reduce_image
from channelhash.photos.metadata import read_header
from channelhash.utils import image_files
from channelhash.utils.image_files import decode, heif_problem, open_image
from channelhash.utils.seeds import generator
from channelhash.utils.torchvision_compat import torchvision
from pages import ROOT


def photograph(width=90, height=60):
    coarse = generator(0, "photograph").integers(0, 256, (6, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def as_written(image, orientation, file_format="JPEG"):
    """The file of a camera that was held so that ``image`` has to be turned to be seen upright."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = "2019:07:14 10:20:30"
    file = io.BytesIO()
    image.save(file, file_format, exif=exif, **{"lossless": True} if file_format == "WEBP" else {"quality": 95})
    file.seek(0)
    return file


def test_no_image_is_opened_elsewhere():
    found = {
        path.name
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "Image.open"
    }
    assert found == {"image_files.py"}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_image_is_turned_as_pillow_turns_it(orientation, file_format):
    file = as_written(photograph(), orientation, file_format)
    turned = decode(open_image(file))
    np.testing.assert_array_equal(np.asarray(turned), np.asarray(ImageOps.exif_transpose(Image.open(file))))
    assert turned.size == ((90, 60) if orientation < 5 else (60, 90))
    np.testing.assert_array_equal(np.asarray(decode(turned)), np.asarray(turned))


@pytest.mark.parametrize("prepare", [square(32), Resize(32), Resize(32, mode="squash"), Resize(32, mode="longest")])
def test_models_see_a_photograph_of_a_telephone_upright(prepare, tmp_path):
    seen = photograph(360, 240)
    lying = tmp_path / "lying.jpg"
    lying.write_bytes(as_written(seen.transpose(Image.Transpose.ROTATE_90), 6).getvalue())
    expected = prepare([seen]).float()
    for given in (lying, open_image(lying)):
        assert (prepare([given]).float() - expected).abs().mean() < 2
    not_turned = Image.open(lying).convert("RGB")
    not_turned.info.clear()
    assert (prepare([not_turned]).float() - expected).abs().mean() > 30
    with open_image(lying) as opened:
        assert reduce_image(opened).size == seen.size


def test_a_corrupt_exif_block_is_none(tmp_path):
    content = as_written(photograph(), 6).getvalue()
    start = content.index(b"Exif\0\0") + 6
    for junk in (b"\xff" * 40, b"MM\0*\xff\xff\xff\xff" + b"\0" * 32, b"II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 15):
        path = tmp_path / "corrupt.jpg"
        path.write_bytes(content[:start] + junk + content[start + len(junk) :])
        assert image_problem(path) is None
        assert square(8)([path]).shape == (1, 3, 8, 8)
        assert read_header(path, 0)[0]["taken"] is None


@pytest.mark.skipif(bool(heif_problem()), reason="needs the extra heif")
def test_heic_is_read_upright(tmp_path):
    import pillow_heif

    path = tmp_path / "photo.heic"
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    seen = photograph()
    pillow_heif.from_pillow(seen.transpose(Image.Transpose.ROTATE_90)).save(path, exif=exif.tobytes(), quality=95)
    assert (square(32)([path]).float() - square(32)([seen]).float()).abs().mean() < 4
    assert sorted(open_image(io.BytesIO(path.read_bytes()), ("JPEG", "HEIF")).size) == [60, 90]


def test_a_heic_file_without_the_extra_says_what_to_install(tmp_path, monkeypatch):
    path = tmp_path / "photo.heic"
    path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(40))
    monkeypatch.setattr(image_files, "heif_problem", lambda: "pip install 'channelhash[heif]'")
    assert "pip install 'channelhash[heif]'" in str(image_problem(path))


SIZES = [(500, 375), (375, 500), (333, 251), (240, 240), (97, 410), (224, 600)]


@pytest.mark.parametrize("size", SIZES)
def test_imagenet_pictures_are_those_of_torchvision(size):
    preset = torchvision.models.ResNet152_Weights.IMAGENET1K_V2.transforms()
    mean, std = (torch.tensor(values)[:, None, None] for values in (preset.mean, preset.std))
    theirs = preset(photograph(*size)) * std + mean
    ours = Resize(224, short_side=232)([photograph(*size)])[0].float() / 255
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("filter_", ["bilinear", "bicubic"])
@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_clip_pictures_are_those_of_open_clip(size, filter_, mode):
    from open_clip.transform import image_transform

    how = {"interpolation": filter_, "resize_mode": mode, "fill_color": 9}
    transform = image_transform(64, is_train=False, mean=(0, 0, 0), std=(1, 1, 1), **how)
    ours = Resize(64, filter=filter_, mode=mode, fill=9)([photograph(*size)])[0].float() / 255
    torch.testing.assert_close(ours, transform(photograph(*size)), atol=1e-6, rtol=0)


def test_a_large_photograph_is_decoded_smaller_and_looks_the_same(tmp_path):
    path = tmp_path / "large.jpg"
    photograph(1600, 1200).save(path, quality=90)
    whole, reduced = (Resize(64, filter="bicubic", reduced=reduced)([path]).float() for reduced in (False, True))
    assert 0 < (whole - reduced).abs().mean() < 1
    assert "picture.draft" in " ".join(Resize(64, reduced=True).recipe()["steps"])
    assert "reduced" not in Resize(64).recipe()
