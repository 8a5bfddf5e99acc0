"""Images: uploads, which are checked before they are decoded, and JPEG copies of stored images."""

import asyncio
import io
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import IO

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import HTTPException, UploadFile
from fastapi.responses import FileResponse, JSONResponse
from PIL import Image
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from channelhash.utils.image_files import ImageError, decode, jpeg, open_image

#: Formats of uploads: not all that telephones and research write, which stored images may have.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
#: Formats whose files `PIL.Image.Image.draft` decodes to a fraction of their size.
_REDUCIBLE = ("JPEG", "MPO")
#: Pixels of an uploaded image beyond which only two are decoded at one time.
_LARGE_IMAGE = 4_000_000
#: Side of a thumbnail as large as its image.
_WHOLE = 1 << 16
#: A part of a file: from one byte to another, or its last bytes.
_PART = re.compile("([0-9]+)-([0-9]*)|-([0-9]+)")
#: Digits that no file's size has.
_DIGITS = 18
#: Longest side of kept copies: of uploads, and of thumbnails in memory.
_CACHED_SIDE = 640
#: Thumbnails in memory, about 20 kB each at the page's size.
_CACHED = 1024


def open_upload(
    content: bytes, max_pixels: float, max_side: int, formats: tuple[str, ...] = _FORMATS
) -> Image.Image:
    """Open an uploaded image once it is sure to decode. The model decodes it, as it does files.

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
        line = (
            f"image: {width} x {height} pixels are more than {max_pixels / 1e6:g} million, this "
            "server's limit"
        )
        raise HTTPException(413, line)
    if max(width, height) > max_side:
        raise HTTPException(
            413,
            f"image: {width} x {height} pixels; a side may have {max_side}, this server's limit",
        )
    try:
        with checked:
            decode(checked, 1)  # a JPEG file is still read to its end, in half the time
    except OSError as error:
        raise HTTPException(422, f"image: damaged, perhaps cut off ({error})") from None
    return _opened(content, formats)


def _opened(content: bytes, formats: tuple[str, ...]) -> Image.Image:
    try:
        return open_image(io.BytesIO(content), formats)
    except OSError as error:
        raise HTTPException(
            422, f"image: not a picture ({error}); {', '.join(formats)} are read"
        ) from None


class Uploads:
    """Open uploaded images, only a few at one time, as they are kept in memory.

    Attributes:
        bodies: places for large bodies.
        forms: forms that are read at one time.
    """

    def __init__(self, max_pixels: int, max_side: int) -> None:
        self.bodies = asyncio.Semaphore(8)
        self.forms = CapacityLimiter(2)
        self._decoding = CapacityLimiter(2)
        self._large = asyncio.Semaphore(2)
        self._limits = (max_pixels, max_side)

    @asynccontextmanager
    async def open(self, upload: UploadFile) -> AsyncIterator[tuple[Image.Image, bytes]]:
        """Yield an uploaded image, checked by `open_upload`, and its file's content; meanwhile
        there is room to decode it.
        """
        content = await upload.read()
        image = await run_sync(open_upload, content, *self._limits, limiter=self._decoding)
        is_large = image.width * image.height > _LARGE_IMAGE
        async with self._large if is_large else nullcontext():
            yield image, content


class FileParts(FileResponse):
    """A file, or the parts of it that a request names (RFC 9110, 14).

    Starlette refuses a header with another unit than bytes or without a range; it is to be ignored.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file or its parts as Starlette does, once the header Range is checked."""
        assert self.stat_result is not None
        size = self.stat_result.st_size
        headers = Headers(scope=scope)
        parts = None
        # A client that has parts of an older file gets the whole of this one.
        if headers.get("if-range") in (None, self.headers["etag"], self.headers["last-modified"]):
            parts = _parts_of(headers.get("range", ""), size)
        if parts == []:
            line = f"the file has {size:,} bytes, none of those that the header Range names"
            answer = JSONResponse({"error": line}, 416, {"Content-Range": f"bytes */{size}"})
            await answer(scope, receive, send)
            return
        others = [pair for pair in scope["headers"] if pair[0] != b"range"]
        if parts is not None:
            others.append((b"range", f"bytes={','.join(parts)}".encode()))
        await super().__call__({**scope, "headers": others}, receive, send)


def _parts_of(header: str, size: int) -> list[str] | None:
    """Return the parts of a file of ``size`` bytes that a header Range names, as far as there are
    such bytes; None if the header is to be ignored.

    >>> _parts_of("bytes=0-9, 90-200, 500-", 100), _parts_of("items=0-9", 100)
    (['0-9', '90-99'], None)
    """
    unit, _, ranges = header.partition("=")
    pieces = list(filter(None, (piece.strip(" \t") for piece in ranges.split(","))))
    places = [_read_part(piece, size) for piece in pieces]
    if unit.strip().lower() != "bytes" or not places or None in places:
        return None
    return [f"{part.start}-{part.stop - 1}" for part in places if part]


def _read_part(piece: str, size: int) -> range | None:
    """Return the places that a part of a header Range names, without those behind the file's end;
    None if it makes no sense.

    >>> [_read_part(piece, 100) for piece in ("90-200", "-10", "500-", "9-0")]
    [range(90, 100), range(90, 100), range(500, 100), None]
    """
    match = _PART.fullmatch(piece)
    if match is None:
        return None
    first, last, suffix = match.groups()
    start = _place(first) if first else max(size - _place(suffix), 0)
    end = _place(last) if last else size - 1
    if last and end < start:
        return None
    return range(start, min(end + 1, size))


def _place(digits: str) -> int:
    """Return a number of bytes; for one with more digits than files have, a large one."""
    return int(digits) if len(digits) < _DIGITS else 10**_DIGITS


class Thumbnails:
    """Draw thumbnails, and keep the last small ones in memory."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels = max_pixels
        self._large = Lock()
        self._cached = lru_cache(maxsize=_CACHED)(self._draw)

    def jpeg(self, path: Path, size: int = _WHOLE) -> tuple[bytes, float]:
        """Return an image upright, its long side at most ``size`` pixels, and the time of its
        file's last change.
        """
        try:
            status = path.stat()
            # An editor may put the time of the content back, but not that of the last change.
            changed = max(status.st_mtime_ns, status.st_ctime_ns)
            draw = self._cached if size <= _CACHED_SIDE else self._draw
            return draw(path, size, changed), changed / 1e9
        except ImageError as error:
            raise HTTPException(404, f"the picture of this item cannot be read: {error}") from None
        except OSError:
            raise HTTPException(
                404, "the picture of this item is not there any more, or cannot be read"
            ) from None

    def draw_upload(self, content: bytes) -> bytes:
        """Return the copy of an upload to keep, 640 pixels; `open_upload` has checked the upload.

        >>> file = io.BytesIO()
        >>> Image.new("RGB", (1000, 500)).save(file, "PNG")
        >>> open_image(io.BytesIO(Thumbnails(max_pixels=10**6).draw_upload(file.getvalue()))).size
        (640, 320)
        """
        return self._draw(io.BytesIO(content), _CACHED_SIDE)

    def _draw(self, file: Path | IO[bytes], size: int, _changed: int = 0) -> bytes:
        with open_image(file) as opened:
            is_large = (
                opened.format not in _REDUCIBLE and opened.width * opened.height > self._max_pixels
            )
            with self._large if is_large else nullcontext():
                return jpeg(decode(opened, 2 * size), size)
