"""Images are decoded to what people see, and resized as the models' own transforms do it; contact
sheets of them.
"""

import io
import struct
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageCms, ImageOps, ImageSequence

from channelhash.data.images import Resize, image_problem, square
from channelhash.explanation.occlusion import reduce_image
from channelhash.indexing.metadata import read_header
from channelhash.utils import image_files
from channelhash.utils.contact_sheet import SheetCell, write_contact_sheet
from channelhash.utils.image_files import (
    ImageError,
    decode,
    heif_problem,
    open_image,
)
from channelhash.utils.seeds import generator
from channelhash.utils.torchvision_compat import torchvision
from picture_runs import as_written
from refusals import check_refusal


def stripes():
    image = Image.new("RGB", (100, 20))
    colours = [(200, 60, 50), (60, 150, 70), (50, 80, 170), (220, 170, 120), (128, 128, 128)]
    for number, colour in enumerate(colours):
        image.paste(colour, (20 * number, 0, 20 * number + 20, 20))
    return image


def greys():
    return Image.fromarray(generator(0, "greys").integers(0, 256, (20, 30), dtype=np.uint8))


def reopened(image, file_format, **options):
    file = io.BytesIO()
    image.save(file, file_format, **options)
    file.seek(0)
    return open_image(file)


def difference(one, other):
    return np.abs(np.asarray(one, dtype=int) - np.asarray(other, dtype=int)).max()


def profile(space, gamma, primaries=()):
    """A minimal ICC profile: a gamma, and primaries as XYZ under D50."""

    def fixed(values):
        return b"".join(struct.pack(">i", round(value * 65536)) for value in values)

    white = fixed((0.9642, 1, 0.8249))
    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256)) + b"\0\0"
    tags = {b"desc": b"desc\0\0\0\0\0\0\0\1" + bytes(80), b"wtpt": b"XYZ \0\0\0\0" + white}
    colours = zip((b"r", b"g", b"b"), primaries, strict=False)
    tags |= {name + b"XYZ": b"XYZ \0\0\0\0" + fixed(values) for name, values in colours}
    tags |= {name + b"TRC": curve for name in ((b"r", b"g", b"b") if primaries else (b"k",))}
    table, data, start = struct.pack(">I", len(tags)), b"", 132 + 12 * len(tags)
    for name, value in tags.items():
        table += name + struct.pack(">II", start + len(data), len(value))
        data += value
    head = (
        struct.pack(">I", start + len(data))
        + bytes(4)
        + bytes([2, 0x40, 0, 0])
        + b"mntr"
        + space
        + b"XYZ "
    )
    head += struct.pack(">6H", 2020, 1, 1, 0, 0, 0) + b"acsp" + bytes(28) + white
    return head + bytes(128 - len(head)) + table + data


PROFILES = {
    "Display P3": profile(
        b"RGB ", 2.2, ((0.5151, 0.2412, -0.0011), (0.292, 0.6922, 0.0419), (0.1571, 0.0666, 0.7841))
    ),
    "Adobe RGB": profile(
        b"RGB ", 2.2, ((0.6097, 0.3111, 0.0195), (0.2053, 0.6257, 0.0609), (0.1492, 0.0632, 0.7446))
    ),
}


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "TIFF", "WEBP"])
def test_colours_are_those_of_the_profile(name, file_format):
    there = ImageCms.ImageCmsProfile(io.BytesIO(PROFILES[name]))
    wide = ImageCms.profileToProfile(stripes(), ImageCms.createProfile("sRGB"), there)
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}.get(
        file_format, {}
    )
    seen = decode(reopened(wide, file_format, icc_profile=PROFILES[name], **options))
    assert difference(wide, stripes()) > 15
    assert difference(seen, stripes()) <= 6
    assert decode(seen) is seen


def test_a_grey_gamma_is_that_of_the_profile():
    seen = decode(reopened(greys(), "PNG", icc_profile=profile(b"GRAY", 1.8)))
    linear = (np.asarray(greys()) / 255) ** 1.8
    expected = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    assert difference(seen.getchannel(1), 255 * expected) <= 2


@pytest.mark.parametrize(
    "junk", [b"junk", PROFILES["Adobe RGB"][:200], profile(b"GRAY", 1.0), b"\0" * (5 << 20)]
)
def test_a_profile_that_does_not_fit_counts_as_none(junk):
    image = stripes()
    image.info["icc_profile"] = junk
    assert difference(decode(image), stripes()) == 0


def test_srgb_photographs_stay_bit_for_bit():
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for options in ({}, {"icc_profile": srgb}):
        image = reopened(stripes(), "JPEG", **options)
        assert decode(image) is image
        assert difference(image, reopened(stripes(), "JPEG")) == 0


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV", "LAB", "P", "RGBA", "RGBX", "RGBa"])
def test_every_mode_of_colours_has_its_colours(mode):
    if mode == "LAB":
        lab = ImageCms.createProfile("LAB")
        image = ImageCms.profileToProfile(
            stripes(), ImageCms.createProfile("sRGB"), lab, outputMode="LAB"
        )
    else:
        image = (
            stripes()
            .convert("RGBA" if mode == "RGBa" else "RGB")
            .convert(mode, palette=Image.Palette.ADAPTIVE)
        )
    seen = decode(image)
    assert seen.mode == "RGB"
    assert difference(seen, stripes()) <= 10
    if mode in ("CMYK", "LAB"):
        assert difference(decode(reopened(image, "TIFF")), stripes()) <= 10
    if mode == "CMYK":
        assert (
            difference(decode(reopened(image, "JPEG", quality=100, subsampling=0)), stripes()) <= 12
        )


@pytest.mark.parametrize(
    ("dtype", "largest"),
    [
        (dtype, largest)
        for dtype in ("uint16", ">u2", "int32", "float32")
        for largest in (255, 4095, 65535)
    ]
    + [("float32", 1)],
)
def test_values_of_more_than_8_bits_are_scaled_to_them(dtype, largest):
    values = np.asarray(greys()) / 255 * largest
    values[0, 0] = largest
    image = Image.fromarray(values.astype(dtype))
    expected = values / largest * 255
    assert difference(decode(image), np.repeat(expected[..., None], 3, axis=-1)) <= 1
    if dtype != ">u2":
        assert difference(decode(reopened(image, "TIFF")), decode(image)) == 0


def test_other_values_lie_between_the_least_and_the_largest():
    values = np.array([[-5, 0], [5, np.nan]], np.float32)
    assert np.asarray(decode(Image.fromarray(values)))[..., 0].tolist() == [[0, 128], [255, 0]]
    assert np.asarray(decode(Image.fromarray(values[:1] * np.float32(6e37))))[..., 0].max() == 255
    over = Image.fromarray(np.linspace(0, 1.02, 52, dtype=np.float32)[None])
    assert np.asarray(decode(over))[0, ::25, 0].tolist() == [0, 125, 250]
    assert decode(Image.new("F", (2, 1))).getextrema() == ((0, 0),) * 3


@pytest.mark.parametrize("mode", ["RGBA", "LA", "PA", "P", "RGBa", "La", "L"])
def test_transparent_pixels_are_white(mode):
    drawing = Image.new("RGBA", (8, 8))
    drawing.paste((0, 0, 0, 255), (2, 2, 6, 6))
    expected = Image.new("RGB", (8, 8), "white")
    expected.paste("black", (2, 2, 6, 6))
    if mode == "P":
        image = drawing.quantize()
    elif mode == "L":  # a grey value that is transparent
        image = reopened(
            expected.convert("L").point(lambda value: value // 2), "PNG", transparency=127
        )
    elif mode == "PA":
        image = drawing.quantize().convert("PA")
    else:
        image = drawing.convert({"La": "LA"}.get(mode, "RGBA")).convert(mode)
    assert difference(decode(image), expected) == 0


def test_one_bit_is_black_or_white():
    image = greys().convert("1")
    assert difference(decode(image).getchannel(0), np.asarray(image) * 255) == 0


@pytest.mark.parametrize("file_format", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_shows_its_first_frame_of_several_colours(file_format):
    black = Image.new("RGB", (100, 20))
    frames = [black, Image.new("RGB", (100, 20), (9, 9, 9)), stripes(), stripes().rotate(180)]
    options = {"save_all": True, "append_images": frames[1:]} | (
        {"lossless": True} if file_format == "WEBP" else {}
    )
    image = reopened(black, file_format, **options)
    assert difference(decode(image), stripes()) <= 6
    assert image.tell() == 0
    blank = reopened(black, file_format, **options | {"append_images": frames[1:2]})
    assert decode(blank).getextrema() == ((0, 0),) * 3
    first = reopened(stripes(), file_format, **options)
    assert difference(decode(first), next(ImageSequence.Iterator(first)).convert("RGB")) == 0


def test_only_listed_formats_are_opened(tmp_path):
    path = tmp_path / "holiday.jpg"
    for file_format in ("EPS", "PCX", "TGA"):
        stripes().resize((64, 64)).save(path, file_format)
        check_refusal(r"^of no known format$", open_image, path, error=ImageError)
        assert image_problem(path) == f"unreadable picture {path} (of no known format)"


@pytest.mark.parametrize(
    "error",
    [
        EOFError(),
        RuntimeError("plane\n lost"),
        struct.error("short"),
        MemoryError(),
        IndexError("3"),
        OSError(2),
    ],
)
def test_whatever_a_decoder_raises_is_one_line(error):
    broken = Image.new("RGB", (9, 9))
    broken.load = Mock(side_effect=error)
    check_refusal(r"^\S[^\n]*$", decode, broken, error=ImageError)


@pytest.mark.parametrize(
    "file_format",
    [
        "AVIF",
        pytest.param(
            "HEIF", marks=pytest.mark.skipif(bool(heif_problem()), reason="needs the extra heif")
        ),
    ],
)
def test_a_file_that_broke_off_is_named(file_format, tmp_path):
    file = io.BytesIO()
    stripes().save(file, file_format)
    content = file.getvalue()
    for start in (len(content) // 5, content.rindex(b"mdat") + 4):
        path = tmp_path / f"cut.{file_format.lower()}"
        path.write_bytes(content[:start] + bytes(len(content) - start))
        assert str(image_problem(path)).startswith(f"unreadable picture {path} (")
        check_refusal(r"cut\.\w+: not a readable picture", square(8), [path])


def test_large_pictures_are_bounded_by_their_decoded_size(monkeypatch, tmp_path):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # as if 4,800 pixels were 430 million
    monkeypatch.setattr(image_files, "_PIXELS", 2000)
    jpeg, png = tmp_path / "large.jpg", tmp_path / "large.png"
    for path in (jpeg, png):
        greys().resize((80, 60)).save(path)
    for file in (jpeg, str(jpeg), io.BytesIO(jpeg.read_bytes())):
        assert decode(open_image(file)).size == (40, 30)
    assert decode(open_image(jpeg), 5).size == (10, 8)
    assert decode(open_image(png)).size == (80, 60)
    monkeypatch.setenv(image_files._LIMIT_VARIABLE, "0.004")
    assert image_problem(jpeg) is None
    says = (
        "80 x 60 pixels are more than 0.004 million; CHANNELHASH_MAX_PIXELS=500 allows 500 million"
    )
    assert image_problem(png) == f"unreadable picture {png} ({says})"
    monkeypatch.setenv(image_files._LIMIT_VARIABLE, "many")
    check_refusal("CHANNELHASH_MAX_PIXELS=many: expected a number", square(8), [png])


def photograph(width=90, height=60):
    coarse = generator(0, "photograph").integers(0, 256, (6, 9, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_an_image_is_turned_as_pillow_turns_it(orientation, file_format):
    file = as_written(photograph(), orientation, file_format)
    turned = decode(open_image(file))
    np.testing.assert_array_equal(
        np.asarray(turned), np.asarray(ImageOps.exif_transpose(Image.open(file)))
    )
    assert turned.size == ((90, 60) if orientation < 5 else (60, 90))
    np.testing.assert_array_equal(np.asarray(decode(turned)), np.asarray(turned))


@pytest.mark.parametrize(
    "prepare", [square(32), Resize(32), Resize(32, mode="squash"), Resize(32, mode="longest")]
)
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
    for junk in (
        b"\xff" * 40,
        b"MM\0*\xff\xff\xff\xff" + b"\0" * 32,
        b"II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 15,
    ):
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
    pillow_heif.from_pillow(seen.transpose(Image.Transpose.ROTATE_90)).save(
        path, exif=exif.tobytes(), quality=95
    )
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
    whole, reduced = (
        Resize(64, filter="bicubic", reduced=reduced)([path]).float() for reduced in (False, True)
    )
    assert 0 < (whole - reduced).abs().mean() < 1
    assert "picture.draft" in " ".join(Resize(64, reduced=True).recipe()["steps"])
    assert "reduced" not in Resize(64).recipe()


def test_a_picture_that_cannot_be_read_any_more_is_drawn_as_its_caption(tmp_path):
    (tmp_path / "cut.png").write_bytes(b"\x89PNG")
    cells = [SheetCell(tmp_path / name, "a dog") for name in ("gone.png", "cut.png")]
    write_contact_sheet(
        [cells, [SheetCell(None, "a dog"), SheetCell(None, "a dog")]], tmp_path / "sheet.png"
    )
    first, second = np.split(np.asarray(Image.open(tmp_path / "sheet.png")), 2)
    np.testing.assert_array_equal(first, second)
