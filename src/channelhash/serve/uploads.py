"""Uploaded images: the header is checked before the image is decoded, and the decoding before it is used."""

import io
from collections.abc import Sequence
from typing import Annotated

from fastapi import File, HTTPException, UploadFile
from PIL import Image

from channelhash.utils.image_decoding import decode
from channelhash.utils.image_files import FORMATS, open_image

UploadedImage = Annotated[
    UploadFile,
    # OpenAPI 3.1 says "contentMediaType", but generators of clients look for what 3.0 said.
    File(description="A picture: JPEG, PNG, WebP, GIF, BMP or TIFF.", json_schema_extra={"format": "binary"}),
]


def open_upload(content: bytes, max_pixels: float, max_side: int, formats: Sequence[str] = FORMATS) -> Image.Image:
    """Open an uploaded image that is sure to decode; the model decodes it, as it does with files.

    Args:
        content: the upload.
        max_pixels: largest width times height; read from the header, so that a small file of a large image is refused
            without decoding it.
        max_side: longest width and height; models may work along the short side.
        formats: formats that are read.

    Raises:
        HTTPException: 422, it is empty, not an image or damaged; 413, it is too large.

    >>> file = io.BytesIO()
    >>> Image.new("RGB", (40, 30)).save(file, "PNG")
    >>> open_upload(file.getvalue(), max_pixels=10_000, max_side=100).size
    (40, 30)
    """
    if not content:
        raise HTTPException(422, "image: the upload is empty")
    checked = _opened(content, formats)
    width, height = checked.size
    if width * height > max_pixels:
        raise HTTPException(
            413, f"image: {width} x {height} pixels are more than {max_pixels / 1e6:g} million, this server's limit"
        )
    if max(width, height) > max_side:
        raise HTTPException(413, f"image: {width} x {height} pixels; a side may have {max_side}, this server's limit")
    try:
        with checked:
            decode(checked, 1)  # a JPEG file is still read to its end, in half the time
    except OSError as error:
        raise HTTPException(422, f"image: damaged, perhaps cut off ({error})") from None
    return _opened(content, formats)


def _opened(content: bytes, formats: Sequence[str]) -> Image.Image:
    try:
        return open_image(io.BytesIO(content), formats)
    except OSError as error:
        raise HTTPException(422, f"image: not a picture ({error}); {', '.join(formats)} are read") from None
