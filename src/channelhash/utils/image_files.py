"""Open image files, turn images upright, and read when they were taken; nothing else in the package opens an image."""

import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import IO, Any

from PIL import ExifTags, Image, UnidentifiedImageError

#: Formats that are decoded for somebody else; Pillow has others that start programs or are rarely tested.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
#: Formats of stored images: also those that telephones write.
STORED_FORMATS = (*FORMATS, "AVIF", "HEIF")
#: Endings of files that only the extra ``heif`` reads.
HEIF_ENDINGS = (".heic", ".heif", ".hif")
#: What to do where that extra is missing.
HEIF_REMEDY = "HEIC needs pillow-heif: pip install 'channelhash[heif]'"
#: Version of what happens to pixels before they are resized: 2 turns images upright. Models made since then carry it in
#: their fingerprint.
PREPROCESSING = 2

# Such a block counts as none; Pillow would tell of each on the way.
warnings.filterwarnings("ignore", "Corrupt EXIF data")

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Where an orientation may be written; a turned image has none any more.
_ORIENTED = ("exif", "Raw profile type exif", "xmp", "XML:com.adobe.xmp")


def open_image(file: Path | str | IO[bytes], formats: Sequence[str] | None = None) -> Image.Image:
    """Open an image without decoding it; `upright` decodes it.

    Args:
        file: path, or the file opened in binary mode.
        formats: the only formats to read, by Pillow's names; None reads all.

    Raises:
        OSError: there is no such file, or it is no image that can be read here.

    >>> import io
    >>> file = io.BytesIO()
    >>> Image.new("RGB", (4, 3)).save(file, "PNG")
    >>> open_image(file).size
    (4, 3)
    """
    known = None if formats is None else [name for name in formats if name != "HEIF"]
    try:
        return Image.open(file, formats=known)
    except UnidentifiedImageError:
        if (formats is not None and "HEIF" not in formats) or not reads_heif():
            raise
        return Image.open(file, formats=tuple(formats) if formats else None)


@cache
def reads_heif() -> bool:
    """Return whether HEIC files can be read, that is, whether the extra ``heif`` is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


def upright(image: Image.Image) -> Image.Image:
    """Decode an image and turn it as its EXIF orientation says; the image itself where there is nothing to turn.

    `Image.draft` has to come before. A corrupt EXIF block counts as none.

    Raises:
        OSError, SyntaxError, ValueError: the image cannot be decoded.

    >>> lying = Image.new("RGB", (4, 3))
    >>> lying.getexif()[ExifTags.Base.Orientation] = 6
    >>> lying.info["exif"] = lying.getexif().tobytes()
    >>> upright(lying).size, upright(upright(lying)).size
    ((3, 4), (3, 4))
    """
    image.load()
    turn = _TURNS.get(_exif(image).get(ExifTags.Base.Orientation, 1))
    if turn is None:
        return image
    turned = image.transpose(turn)
    turned.info = {key: value for key, value in turned.info.items() if key not in _ORIENTED}
    return turned


def upright_size(image: Image.Image) -> tuple[int, int]:
    """Return width and height of an opened image as `upright` turns it, without decoding it.

    >>> upright_size(Image.new("RGB", (4, 3)))
    (4, 3)
    """
    width, height = image.size
    return (height, width) if _exif(image).get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8) else (width, height)


def date_taken(image: Image.Image) -> str | None:
    """Return when an opened image was taken (EXIF ``DateTimeOriginal``), as ``"2019-07-14 10:20:30"``, or None.

    >>> date_taken(Image.new("RGB", (4, 3))) is None
    True
    """
    try:
        written = _exif(image).get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal)
        return str(datetime.strptime(str(written)[:19], "%Y:%m:%d %H:%M:%S"))
    except Exception:  # as in `_exif`
        return None


def _exif(image: Image.Image) -> Any:
    """Return the EXIF block; an empty mapping for a corrupt one."""
    try:
        return image.getexif()
    except Exception:  # damaged bytes raise whatever the parser stumbles over
        empty: Mapping[int, Any] = {}
        return empty
