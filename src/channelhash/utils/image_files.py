"""Open image files and read from their headers size and date; nothing else in the package opens an image."""

import os
import re
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import IO, Any

from PIL import ExifTags, Image, UnidentifiedImageError

from channelhash.errors import InputError

#: Formats that are decoded for somebody else; Pillow has others that start programs or are rarely tested.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
#: Formats of stored images: also those that telephones and research write.
STORED_FORMATS = (*FORMATS, "AVIF", "HEIF", "PPM")
#: Formats whose files `PIL.Image.Image.draft` decodes to a fraction of their size.
REDUCIBLE = ("JPEG", "MPO")
#: What to do where the extra ``heif`` is missing.
HEIF_REMEDY = "HEIC needs pillow-heif: pip install 'channelhash[heif]'"
#: The variable that says how many million pixels a stored image may have.
LIMIT_VARIABLE = "CHANNELHASH_MAX_PIXELS"
#: Version of what happens to pixels before they are resized: 2 turns images upright. Models made since then carry it in
#: their fingerprint.
PREPROCESSING = 2

#: What Pillow and its plugins raise for files that are no images, or damaged ones.
DECODER_ERRORS = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_MOST_MILLIONS = 179  # where Pillow refuses, too

# Damaged blocks count as none, and large images are bounded here; Pillow would tell of each on the way.
warnings.filterwarnings("ignore", module=r"PIL\.")
_DATE_TAGS = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized, ExifTags.Base.DateTime)
_XMP_DATES = ("exif:DateTimeOriginal", "photoshop:DateCreated", "exif:DateTimeDigitized", "xmp:CreateDate")
_XMP_DATE = re.compile(rf"({'|'.join(_XMP_DATES)})(?:\s*=\s*[\"']|>)\s*([^\"'<]+)")
# Year, month and day, then perhaps hour, minute and perhaps second, each but the year of one or two digits.
_DATE = re.compile(r"\s*(\d{4})[^\d]?(\d\d?)[^\d]?(\d\d?)(?:[T\s]+(\d\d?)[^\d]?(\d\d?)(?:[^\d]?(\d\d?))?)?", re.ASCII)
_FIRST_PHOTOGRAPH = 1826


class ImageError(OSError):
    """An image file cannot be read; the message says why in a few words."""


def open_image(file: Path | str | IO[bytes], formats: Sequence[str] = STORED_FORMATS) -> Image.Image:
    """Open an image without decoding it; `image_decoding.decode` decodes it.

    Args:
        file: path, or the file opened in binary mode.
        formats: the only formats to read, by Pillow's names.

    Raises:
        OSError: there is no such file.
        ImageError: it is no image that can be read here.

    >>> import io
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 3)).save(file, "PNG")
    >>> open_image(file).size
    (4, 3)
    """
    with decoder_errors():
        try:
            return _open(file, [name for name in formats if name != "HEIF"])
        except UnidentifiedImageError:
            start = _start(file)
            if "HEIF" not in formats or start[4:8] != b"ftyp" or start[8:12] not in _HEIF_BRANDS:
                raise
            if not reads_heif():
                raise ImageError(HEIF_REMEDY) from None
            return _open(file, ["HEIF"])


@contextmanager
def decoder_errors() -> Iterator[None]:
    """Raise as `ImageError` what decoders raise; errors of the file system stay as they are."""
    try:
        yield
    except DECODER_ERRORS as error:
        if isinstance(error, ImageError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise ImageError(_reason(error)) from error


def max_pixels() -> float:
    """Return the most pixels of an image that are decoded: 179 million, or as the environment says.

    Raises:
        InputError: the environment's value is no number.
    """
    value = os.environ.get(LIMIT_VARIABLE) or str(_MOST_MILLIONS)
    try:
        return float(value) * 1e6
    except ValueError:
        raise InputError(f"{LIMIT_VARIABLE}={value}: expected a number of million pixels, such as 500") from None


@cache
def reads_heif() -> bool:
    """Return whether HEIC files can be read, that is, whether the extra ``heif`` is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


def turn_of(image: Image.Image) -> int:
    """Return the EXIF orientation of an opened image, from 1 (upright) to 8.

    >>> turn_of(Image.new("RGB", (4, 3)))
    1
    """
    turn = _exif(image).get(ExifTags.Base.Orientation)
    return turn if turn in range(1, 9) else 1


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of an opened image once it is upright, without decoding it.

    >>> upright_size(Image.new("RGB", (4, 3)))
    (4, 3)
    """
    width, height = image.size
    return (height, width) if turn_of(image) >= 5 else (width, height)


def date_taken(image: Image.Image) -> str | None:
    """Return when an opened image was taken, as ``"2019-07-14 10:20:30"``, or None.

    The first usable one counts of EXIF's ``DateTimeOriginal``, ``DateTimeDigitized`` and ``DateTime``, then of the same
    in XMP.

    >>> date_taken(Image.new("RGB", (4, 3))) is None
    True
    """
    exif = _exif(image)
    try:
        inner = exif.get_ifd(ExifTags.IFD.Exif)
    except DECODER_ERRORS:
        inner = {}
    written = [block.get(tag) for tag in _DATE_TAGS for block in (inner, exif)]
    xmp = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp") or ""
    found = dict(_XMP_DATE.findall(xmp.decode(errors="replace") if isinstance(xmp, bytes) else str(xmp)))
    written += [found.get(name) for name in _XMP_DATES]
    return next((date for date in map(parse_date, written) if date), None)


def parse_date(written: object) -> str | None:
    """Return a camera's date as ``"2019-07-14 10:20:30"``; None for zeros, spaces and dates that cannot be.

    Any separators do, and seconds or the whole time may be missing. Time zones and fractions of seconds are left out, a
    time that cannot be, too. Hour 24 is how some telephones write the first hour of a day.

    >>> parse_date("2019:07:14 10:20"), parse_date("2019-07-14T24:20:30.5+02:00"), parse_date("0000:00:00 00:00:00")
    ('2019-07-14 10:20:00', '2019-07-14 00:20:30', None)
    """
    text = written.decode(errors="replace") if isinstance(written, bytes) else str(written)
    if not (found := _DATE.match(text)):
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups())
    try:
        date = datetime(year, month, day)
    except ValueError:
        return None
    if hour <= 24 and minute < 60 and second <= 60:
        date = date.replace(hour=hour % 24, minute=minute, second=min(second, 59))
    return str(date) if year >= _FIRST_PHOTOGRAPH else None


def _exif(image: Image.Image) -> Any:
    """Return the EXIF block; an empty mapping for a corrupt one."""
    try:
        return image.getexif()
    except DECODER_ERRORS:
        empty: Mapping[int, Any] = {}
        return empty


def _open(file: Path | str | IO[bytes], formats: Sequence[str]) -> Image.Image:
    try:
        return Image.open(file, formats=tuple(formats))
    except Image.DecompressionBombError:  # without opening it again, its size is not known
        return _open_large(file, formats)


def _open_large(file: Path | str | IO[bytes], formats: Sequence[str]) -> Image.Image:
    """Open an image by its plugin alone: `Image.open` refuses by size also what is decoded to a fraction of it."""
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
    """Return on one line why a file cannot be read; some messages of Pillow's name a place in memory, or an attack."""
    if isinstance(error, UnidentifiedImageError):
        return "of no known format"
    if isinstance(error, Image.DecompressionBombError):
        return "too many pixels for its format"
    if isinstance(error, MemoryError):
        return "not enough memory to decode it"
    return " ".join(str(error).split())[:200] or "damaged, perhaps cut off"
