"""Image files: opened, measured and decoded to what people see, as nothing else in the package
does.

* **More than 8 bits.** Grey values of 16 or 32 bits, whole or not, lie between 0 and the smallest
  of 1, 255, 4095 and 65535 that holds them all. Where there are values below 0, above 65535, or
  where the largest is between 1 and 16, they lie between the least and the largest. Values that are
  not finite are black.
* **Colours.** Numbers are converted by the colour profile of the file. A profile that is broken,
  too large, or of other channels than the image's counts as none, and one that differs from sRGB by
  at most 3 of 255 as sRGB.
* **Transparency.** Transparent pixels show white.
* **Raw photographs.** A file with one of `RAW_ENDINGS` is seen by the preview in it, which its
  camera developed.
* **Several frames.** The first frame is seen, or of an animation or a file of pages, where the
  first has one colour only, the first of frames 1, 2, 4, 8 and 16 that has more.
"""

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from importlib.util import find_spec
from math import ceil, sqrt
from pathlib import Path
from typing import IO

import numpy as np
from PIL import ExifTags, Image, ImageCms, ImageFile, UnidentifiedImageError

from channelhash.errors import InputError

#: Formats of stored images; Pillow has others that start programs or are rarely tested.
STORED_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "HEIF", "PPM")
#: Endings of the raw photographs that LibRaw reads.
_RAW = (
    "3fr arw cr2 cr3 crw dcr dng erf fff gpr iiq k25 kdc mef mos mrw "
    "nef nrw orf pef raf raw rw2 rwl sr2 srf srw x3f"
)
#: Endings of raw photographs, in small letters.
RAW_ENDINGS = frozenset(f".{name}" for name in _RAW.split(" "))
#: The variable that says how many million pixels a stored image may have.
_LIMIT_VARIABLE = "CHANNELHASH_MAX_PIXELS"
#: Version of what happens to pixels before they are resized: 2 turns images upright. Models made
#: since then carry it in their fingerprint.
PREPROCESSING = 2

#: TIFF's tag for XMP.
_XMP = 700
#: Tags that previews lack and headers of raw photographs have.
_HEADER_TAGS = (
    ExifTags.Base.Make,
    ExifTags.Base.Model,
    ExifTags.Base.Orientation,
    ExifTags.Base.DateTime,
)
#: What follows ``ftyp`` at the beginning of HEIC files.
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
#: Million pixels of a stored image, at most, where the variable is not set; Pillow's own bound.
_MOST_MILLIONS = 179

# Damaged blocks count as none, and large images are bounded here; Pillow would tell of each on the
# way.
warnings.filterwarnings("ignore", module=r"PIL\.")


class ImageError(OSError):
    """An image file cannot be read; the message says why in a few words."""


def open_image(
    file: Path | str | IO[bytes], formats: Sequence[str] = STORED_FORMATS
) -> Image.Image:
    """Open an image without decoding it; `decode` decodes it.

    >>> import io
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 3)).save(file, "PNG")
    >>> open_image(file).size
    (4, 3)
    """
    with _decoder_errors():
        if isinstance(file, Path | str) and os.path.splitext(file)[1].lower() in RAW_ENDINGS:
            return _open_raw(file)
        try:
            return _open(file, [name for name in formats if name != "HEIF"])
        except UnidentifiedImageError:
            start = _start(file)
            if "HEIF" not in formats or start[4:8] != b"ftyp" or start[8:12] not in _HEIF_BRANDS:
                raise
            _check_readable(heif_problem())
            return _open(file, ["HEIF"])


def _check_readable(problem: str) -> None:
    if problem:
        raise ImageError(problem)


@contextmanager
def _decoder_errors() -> Iterator[None]:
    """Raise as `ImageError` what decoders raise; errors of the file system stay as they are."""
    try:
        yield
    except Exception as error:  # Pillow's plugins raise errors of every type
        if isinstance(error, ImageError | InputError) or getattr(error, "errno", None) is not None:
            raise
        raise ImageError(_reason(error)) from error


@cache
def heif_problem() -> str:
    """Return what to do so that HEIC files can be read; empty where the extra ``heif`` is
    installed.
    """
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return "HEIC needs pillow-heif: pip install 'channelhash[heif]'"
    register_heif_opener()
    return ""


@cache
def raw_problem() -> str:
    """Return what to do so that raw photographs can be read; empty where the extra ``raw`` is
    installed.
    """
    return "" if find_spec("rawpy") else "raw needs rawpy: pip install 'channelhash[raw]'"


def _open_raw(path: Path | str) -> Image.Image:
    """Open the preview in a raw photograph, with what LibRaw and the header of the file say of it
    as EXIF and XMP.
    """
    os.stat(path)  # or LibRaw would say that there is no such file
    _check_readable(raw_problem())
    import rawpy

    try:
        with rawpy.imread(str(path)) as raw:
            preview = raw.extract_thumb()  # its other properties would decode the whole photograph
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError):
        raise ImageError("no preview in it; develop it, and keep the JPEG beside it") from None
    except rawpy.LibRawError as error:
        raise ImageError(f"LibRaw: {os.fsdecode(error.args[0])}") from None
    pixels = preview.data
    image = (
        _open(io.BytesIO(pixels), ["JPEG"])
        if isinstance(pixels, bytes)
        else Image.fromarray(pixels)
    )
    image.format = "RAW"
    with suppress(Exception), open(path, "rb") as file:  # what is damaged counts as none
        _copy_header(file, image)
    return image


def _copy_header(file: IO[bytes], image: Image.Image) -> None:
    """Add what the header of a raw photograph says to the preview's EXIF and XMP."""
    exif = image.getexif()
    header = Image.Exif()
    inner = exif.get_ifd(ExifTags.IFD.Exif)
    gps = exif.get_ifd(ExifTags.IFD.GPSInfo)
    # LibRaw's own, which garbles north and south
    if str(exif.get(ExifTags.Base.Software)).startswith("dcraw"):
        gps.clear()
    header.load_from_fp(file)  # most raw files are TIFF files, too
    exif.update({tag: header[tag] for tag in _HEADER_TAGS if tag in header and tag not in exif})
    inner.update(header.get_ifd(ExifTags.IFD.Exif))
    gps.update(header.get_ifd(ExifTags.IFD.GPSInfo))
    image.info |= {"xmp": header[_XMP]} if _XMP in header else {}


def _turn_of(image: Image.Image) -> int:
    """Return the EXIF orientation of an opened image, from 1 (upright) to 8.

    >>> _turn_of(Image.new("RGB", (4, 3)))
    1
    """
    try:
        turn: int = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # of a corrupt block
        return 1
    return turn if turn in range(1, 9) else 1


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of an opened image once it is upright, without decoding it.

    >>> upright_size(Image.new("RGB", (4, 3)))
    (4, 3)
    """
    width, height = image.size
    return (height, width) if _turn_of(image) >= 5 else (width, height)


def _open(file: Path | str | IO[bytes], formats: Sequence[str]) -> Image.Image:
    """Open an image; a large one by its plugin alone, as Pillow would refuse its size even if only
    a fraction of it is decoded.
    """
    with suppress(Image.DecompressionBombError):
        return Image.open(file, formats=tuple(formats))
    start = _start(file)
    for name in formats:
        factory, accept = Image.OPEN[name]
        if accept is None or accept(start) is True:
            image: Image.Image = factory(file, "")  # type: ignore[arg-type]
            return image
    raise UnidentifiedImageError


def _start(file: Path | str | IO[bytes]) -> bytes:
    if isinstance(file, Path | str):
        with open(file, "rb") as opened:
            return opened.read(16)
    file.seek(0)
    start = file.read(16)
    file.seek(0)
    return start


def _reason(error: BaseException) -> str:
    """Return on one line why a file cannot be read; some messages of Pillow's name a place in
    memory, or an attack.
    """
    if isinstance(error, UnidentifiedImageError):
        return "of no known format"
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels for its format"
    if isinstance(error, MemoryError):
        return "not enough memory to decode it"
    return " ".join(str(error).split())[:200] or "damaged, perhaps cut off"


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
#: Largest values that grey images may have, by their type.
_LARGEST = (1, 255, 4095, 65535)
#: Values up to this one are thought to be stretched from 0 to their largest.
_STRETCHED = 16
#: Channels of a profile and of an image that go together -> the mode in which the image is
#: converted.
_CHANNELS = {
    ("RGB ", "RGB"): "RGB",
    ("RGB ", "L"): "RGB",
    ("GRAY", "L"): "L",
    ("CMYK", "CMYK"): "CMYK",
}
#: A larger profile counts as none: it would take long to convert by it.
_PROFILE_BYTES = 4 << 20
#: A profile that changes values by at most this much, of 255, is taken for sRGB.
_SAME = 3
#: A JPEG file with more pixels is decoded to half, a quarter or an eighth of its sides.
_PIXELS = 89_000_000
#: Frames of an animation that are looked at when the first has one colour.
_FRAMES = (1, 2, 4, 8, 16)
#: Frames up to one are decoded only if they have fewer pixels than this together.
_FRAME_PIXELS = 40_000_000
#: Values of an image of one colour differ less than this.
_ONE_COLOUR = 16


def decode(image: Image.Image, side: int | None = None) -> Image.Image:
    """Decode an image to what people see: upright, in sRGB with 8 bits a channel, on white, mode
    ``RGB``.

    >>> decode(Image.new("RGBA", (2, 1))).getpixel((0, 0))
    (255, 255, 255)
    """
    with _decoder_errors():
        _reduce(image, side)
        _check_size(image)
        first = _decode_frame(image)
        if not getattr(image, "is_animated", False) or image.tell() or not _has_one_colour(first):
            return first
        first = first.copy()  # another frame takes the place of this one
        seen = _later_frame(image) or first
        with suppress(ImageError), _decoder_errors():
            image.seek(0)
        return seen


def jpeg(image: Image.Image, side: int) -> bytes:
    """Return a decoded image, which shrinks to a long side of at most ``side`` pixels, as a JPEG
    file.

    >>> open_image(io.BytesIO(jpeg(Image.new("RGB", (40, 30)), 20))).size
    (20, 15)
    """
    image.thumbnail((side, side))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85, optimize=True)
    return out.getvalue()


def _reduce(image: Image.Image, side: int | None) -> None:
    if side is None:
        fraction = ceil(sqrt(image.width * image.height / _PIXELS))
        if fraction <= 1:
            return
        side = max(1, min(image.size) >> (fraction - 1).bit_length())
    image.draft("RGB", (side, side))


def _check_size(image: Image.Image) -> None:
    """Refuse a file of more than 179 million pixels, or as the environment says; an image without a
    file is in memory already.
    """
    value = os.environ.get(_LIMIT_VARIABLE) or str(_MOST_MILLIONS)
    try:
        millions = float(value)
    except ValueError:
        raise InputError(
            f"{_LIMIT_VARIABLE}={value}: expected a number of million pixels, such as 500"
        ) from None
    if isinstance(image, ImageFile.ImageFile) and image.width * image.height > millions * 1e6:
        how = f"more than {millions:g} million; {_LIMIT_VARIABLE}=500 allows 500 million"
        raise ImageError(f"{image.width} x {image.height} pixels are {how}")


def _later_frame(image: Image.Image) -> Image.Image | None:
    """Return the first of some later frames that has several colours; none from where the file is
    damaged.
    """
    with suppress(ImageError), _decoder_errors():
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
    turn = _TURNS.get(_turn_of(image))
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
    """Return an image without transparency, in mode L, RGB or CMYK; the image itself if it is one
    already.
    """
    if image.mode in ("RGBa", "La"):
        image = image.convert(image.mode.upper())
    is_grey = image.mode in ("1", "L", "LA")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() != (255, 255):
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    if image.mode == "LAB":
        return ImageCms.applyTransform(image, _from_lab())  # type: ignore[return-value]
    mode = "L" if is_grey else "RGB"
    return image if image.mode in (mode, "CMYK") else image.convert(mode)


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
    """Return how images of a mode and profile become sRGB; None if there is nothing to convert, or
    no way to.
    """
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
    return ImageCms.buildTransform(
        source,
        ImageCms.createProfile("sRGB"),
        mode,
        "RGB",
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
