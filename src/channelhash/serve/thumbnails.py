"""Small JPEG copies of the images of stored items."""

import io
from functools import lru_cache
from pathlib import Path
from typing import IO

from fastapi import HTTPException
from PIL import Image

from channelhash.utils.image_files import STORED_FORMATS, open_image, upright

#: Largest long side of a thumbnail in pixels.
MAX_SIDE = 1280
_KEPT = 640  # of what is kept: copies of uploads, and thumbnails in memory
_CACHED = 1024
_QUALITY = 85


class Thumbnails:
    """Draw thumbnails, and keep the last thousand of up to 640 pixels in memory (about 20 kB each at the page's size).

    Args:
        max_pixels: images with more pixels are not decoded.
    """

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._cached = lru_cache(maxsize=_CACHED)(self._draw)

    def jpeg(self, path: Path, size: int) -> bytes:
        """Return an image upright, its long side at most ``size`` pixels; drawn again when the file changes.

        Raises:
            HTTPException: 404, the file is missing, not an image, damaged or too large.
        """
        try:
            changed = path.stat().st_mtime_ns
            return self._cached(path, size, changed) if size <= _KEPT else self._draw(path, size, changed)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            raise HTTPException(404, "the picture of this item is not there any more, or cannot be read") from None

    def draw_upload(self, content: bytes) -> bytes:
        """Return the copy of an upload to keep, 640 pixels; `uploads.open_upload` has checked the upload.

        >>> file = io.BytesIO()
        >>> Image.new("RGB", (1000, 500)).save(file, "PNG")
        >>> open_image(io.BytesIO(Thumbnails(max_pixels=10**6).draw_upload(file.getvalue()))).size
        (640, 320)
        """
        return self._thumbnail(io.BytesIO(content), _KEPT)

    def _draw(self, path: Path, size: int, _changed: int) -> bytes:
        with open(path, "rb") as file:
            return self._thumbnail(file, size)

    def _thumbnail(self, file: IO[bytes], size: int) -> bytes:
        with open_image(file, STORED_FORMATS) as opened:
            if opened.width * opened.height > self._max_pixels:
                raise ValueError("too many pixels")
            opened.draft("RGB", (2 * size, 2 * size))
            image = upright(opened)
            if "A" in image.getbands() or "transparency" in image.info:  # JPEG has no transparency
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
            image = image.convert("RGB")
        image.thumbnail((size, size))
        out = io.BytesIO()
        image.save(out, format="JPEG", quality=_QUALITY, optimize=True)
        return out.getvalue()
