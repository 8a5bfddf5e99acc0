"""Small JPEG versions of the pictures of stored items."""

import io
from functools import lru_cache
from pathlib import Path
from typing import IO

from fastapi import HTTPException
from PIL import Image, ImageOps

from channelhash.serve.uploads import FORMATS

#: Longest side in pixels that can be asked for.
LARGEST = 640
_KEPT = 1024
_QUALITY = 85


class Thumbnails:
    """Draws thumbnails and keeps the last thousand of them in memory (some 20 kB each at the page's size).

    Args:
        pixels: pictures with more pixels are not decoded.
    """

    def __init__(self, pixels: int) -> None:
        self._pixels = pixels
        self._kept = lru_cache(maxsize=_KEPT)(self._draw)

    def jpeg(self, path: Path, size: int) -> bytes:
        """The picture with its long side at most ``size`` pixels, upright; again from the file where that changed.

        Raises:
            HTTPException: 404, the file is not there, no picture, damaged or too large.
        """
        try:
            return self._kept(path, size, path.stat().st_mtime_ns)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            raise HTTPException(404, "the picture of this item is not there any more, or cannot be read") from None

    def drawn(self, content: bytes) -> bytes:
        """The copy of an upload that is kept: its largest thumbnail. It was looked at by `uploads.open_picture`."""
        return self._thumbnail(io.BytesIO(content), LARGEST)

    def _draw(self, path: Path, size: int, _changed: int) -> bytes:
        with open(path, "rb") as file:
            return self._thumbnail(file, size)

    def _thumbnail(self, file: IO[bytes], size: int) -> bytes:
        with Image.open(file, formats=FORMATS) as opened:
            if opened.width * opened.height > self._pixels:
                raise ValueError("too many pixels")
            opened.draft("RGB", (2 * size, 2 * size))
            picture = ImageOps.exif_transpose(opened)
            if "A" in picture.getbands() or "transparency" in picture.info:  # JPEG has no transparency
                picture = picture.convert("RGBA")
                picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
            picture = picture.convert("RGB")
        picture.thumbnail((size, size))
        out = io.BytesIO()
        picture.save(out, format="JPEG", quality=_QUALITY, optimize=True)
        return out.getvalue()
