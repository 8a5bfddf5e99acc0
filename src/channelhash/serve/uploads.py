"""Pictures from strangers: looked at before they are decoded, decoded before they are believed."""

import io

from fastapi import HTTPException
from PIL import Image

#: Formats that are decoded; Pillow knows others that start programs or are rarely tested.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


def open_picture(content: bytes, pixels: int) -> Image.Image:
    """An uploaded picture that is sure to decode, not decoded yet: the model does that, as it does with files.

    Args:
        content: the upload.
        pixels: largest width times height; read from the header, so that a small file that unfolds into a large
            picture is refused without unfolding it.

    Raises:
        HTTPException: 422, it is empty, no picture or a damaged one; 413, it is too large.
    """
    if not content:
        raise HTTPException(422, "image: the upload is empty")
    checked = _opened(content)
    width, height = checked.size
    if width * height > pixels:
        raise HTTPException(
            413, f"image: {width} x {height} pixels are more than {pixels / 1e6:g} million, this server's limit"
        )
    try:
        with checked:
            checked.draft("RGB", (1, 1))  # a JPEG file is still read to its end, in half the time
            checked.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise HTTPException(422, f"image: damaged, perhaps cut off ({_line(error)})") from None
    return _opened(content)


def _opened(content: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content), formats=FORMATS)
    except Image.DecompressionBombError:
        raise HTTPException(413, "image: far too many pixels for this server") from None
    except (OSError, SyntaxError, ValueError):
        raise HTTPException(422, f"image: not a picture; {', '.join(FORMATS)} are read") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
