"""Decode an image to what people see: upright, in sRGB with 8 bits a channel, on white.

* **More than 8 bits.** Grey values of 16 or 32 bits, whole or not, lie between 0 and the smallest of 1, 255, 4095 and
  65535 that holds them all. Where there are values below 0, above 65535, or where the largest is between 1 and 16, they
  lie between the least and the largest. Values that are not finite are black.
* **Colours.** Numbers are converted by the colour profile of the file. A profile that is broken, too large, or of other
  channels than the image's counts as none, and one that differs from sRGB by at most 3 of 255 as sRGB.
* **Transparency.** Transparent pixels show white.
* **Several frames.** The first frame is seen, or of an animation or a file of pages, where the first has one colour
  only, the first of frames 1, 2, 4, 8 and 16 that has more.
"""

import io
from contextlib import suppress
from functools import cache, lru_cache
from math import ceil, sqrt

import numpy as np
from PIL import Image, ImageCms, ImageFile

from channelhash.utils.image_files import LIMIT_VARIABLE, ImageError, decoder_errors, max_pixels, turn_of

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Largest values of grey images, and the largest value up to which these are thought to be stretched.
_LARGEST, _STRETCHED = (1, 255, 4095, 65535), 16
# Channels of a profile and of an image that go together -> the mode in which the image is converted.
_CHANNELS = {("RGB ", "RGB"): "RGB", ("RGB ", "L"): "RGB", ("GRAY", "L"): "L", ("CMYK", "CMYK"): "CMYK"}
_PROFILE_BYTES = 4 << 20
_SAME = 3
# A JPEG file with more pixels is decoded to half, a quarter or an eighth of its sides.
_WHOLE = 89_000_000
# Frames of an animation that are looked at, as long as they have fewer pixels than that together; an image of one
# colour has values that differ less.
_FRAMES, _FRAME_PIXELS, _ONE_COLOUR = (1, 2, 4, 8, 16), 40_000_000, 16


def decode(image: Image.Image, side: int | None = None) -> Image.Image:
    """Decode an image to what people see: upright, in sRGB with 8 bits a channel, on white, mode ``RGB``.

    Args:
        image: opened image; the result is the same object where there is nothing to convert.
        side: a JPEG file may be decoded to a nearby smaller size, whose sides are at least this long. None decodes all
            pixels, unless there are more than 89 million.

    Raises:
        ImageError: the image is damaged or too large.

    >>> decode(Image.new("RGBA", (2, 1))).getpixel((0, 0))
    (255, 255, 255)
    """
    with decoder_errors():
        _reduce(image, side)
        _check_size(image)
        first = _decode_frame(image)
        if not getattr(image, "is_animated", False) or image.tell() or not _has_one_colour(first):
            return first
        first = first.copy()  # another frame takes the place of this one
        seen = _later_frame(image) or first
        with suppress(ImageError), decoder_errors():
            image.seek(0)
        return seen


def _reduce(image: Image.Image, side: int | None) -> None:
    if side is None:
        fraction = ceil(sqrt(image.width * image.height / _WHOLE))
        if fraction <= 1:
            return
        side = max(1, min(image.size) >> (fraction - 1).bit_length())
    image.draft("RGB", (side, side))


def _check_size(image: Image.Image) -> None:
    """Refuse a file that takes too much memory; an image without a file is in memory already."""
    limit = max_pixels()
    if isinstance(image, ImageFile.ImageFile) and image.width * image.height > limit:
        how = f"more than {limit / 1e6:g} million; {LIMIT_VARIABLE}=500 allows 500 million"
        raise ImageError(f"{image.width} x {image.height} pixels are {how}")


def _later_frame(image: Image.Image) -> Image.Image | None:
    """Return the first of some later frames that has several colours; none from where the file is damaged."""
    with suppress(ImageError), decoder_errors():
        for number in _FRAMES:
            if number * image.width * image.height > _FRAME_PIXELS:
                break
            image.seek(number)
            frame = _decode_frame(image)
            if not _has_one_colour(frame):
                return frame.copy()
    return None


def _has_one_colour(image: Image.Image) -> bool:
    return all(high - low < _ONE_COLOUR for low, high in image.getextrema())  # type: ignore[misc]


def _decode_frame(image: Image.Image) -> Image.Image:
    image.load()
    seen = _convert_colours(_draw_on_white(_scale_to_8_bits(image)), image.info.get("icc_profile"))
    turn = _TURNS.get(turn_of(image))
    if turn is not None:
        seen = seen.transpose(turn)
    if seen is not image:
        seen.info = {}  # what the file says of colours and orientation is true no more
    return seen


def _scale_to_8_bits(image: Image.Image) -> Image.Image:
    """Return an image of grey values with more than 8 bits as one with 8; another as it is."""
    if image.mode not in ("I", "F") and not image.mode.startswith("I;16"):
        return image
    values = np.array(image, dtype=np.float32)
    known = values[np.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    largest = next((float(largest) for largest in _LARGEST if high <= largest), None)
    if low < 0 or largest is None or 1 < high < _STRETCHED:
        largest = high
    else:
        low = 0
    with np.errstate(all="ignore"):
        scaled = (values - low) / max(largest - low, 1e-30)
    scaled = np.nan_to_num(scaled, copy=False, posinf=0, neginf=0)
    return Image.fromarray((255 * scaled + 0.5).astype(np.uint8))


def _draw_on_white(image: Image.Image) -> Image.Image:
    """Return an image without transparency, in mode L, RGB or CMYK; the image itself where it is so already."""
    if image.mode in ("RGBa", "La"):
        image = image.convert(image.mode.upper())
    is_grey = image.mode in ("1", "L", "LA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if image.mode == "LAB":
        return ImageCms.applyTransform(image, _from_lab())  # type: ignore[return-value]
    mode = "L" if is_grey else "CMYK" if image.mode == "CMYK" else "RGB"
    return image if image.mode == mode else image.convert(mode)


def _convert_colours(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Convert an image of mode L, RGB or CMYK to sRGB."""
    transform = _to_srgb(profile, image.mode) if profile else None
    if transform is None:
        return image if image.mode == "RGB" else image.convert("RGB")
    if image.mode != transform.input_mode:
        image = image.convert(transform.input_mode)
    return ImageCms.applyTransform(image, transform)  # type: ignore[return-value]


@lru_cache(32)
def _to_srgb(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return how images of a mode and profile become sRGB; None if there is nothing to convert, or no way to."""
    if len(profile) > _PROFILE_BYTES:
        return None
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        input_mode = _CHANNELS.get((source.profile.xcolor_space, mode))
        if input_mode is None:
            return None
        transform = _make_transform(source, input_mode)
    except (ImageCms.PyCMSError, OSError):
        return None
    if input_mode != "CMYK":
        levels = np.linspace(0, 255, 9).round().astype(np.uint8)
        cube = np.stack(np.meshgrid(levels, levels, levels), axis=-1).reshape(-1, 9, 3)
        sample = Image.fromarray(cube).convert(input_mode)
        converted = np.asarray(ImageCms.applyTransform(sample, transform), dtype=int)
        if np.abs(converted - np.asarray(sample.convert("RGB"))).max() <= _SAME:
            return None
    return transform


@cache
def _from_lab() -> ImageCms.ImageCmsTransform:
    return _make_transform(ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")), "LAB")


def _make_transform(source: ImageCms.ImageCmsProfile, mode: str) -> ImageCms.ImageCmsTransform:
    intent, flags = ImageCms.Intent.RELATIVE_COLORIMETRIC, ImageCms.Flags.BLACKPOINTCOMPENSATION
    return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB", intent, flags)
