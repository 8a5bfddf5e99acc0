"""Reading picture files, and whether they can be used."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from channelhash.errors import InputError

_SQUARE_STEPS = (
    "open the picture with Pillow; if it is a file, picture.draft('RGB', (2 * size, 2 * size)), by which a large JPEG "
    "is decoded to a nearby smaller size",
    "side = min(width, height), left = (width - side) / 2, top = (height - side) / 2, not rounded",
    "convert('RGB'), then resize((size, size), `filter`, box=(left, top, left + side, top + side)) with Pillow, whose "
    "filters are antialiased",
)
_RESIZE_STEPS = {
    "shortest": (
        "open the picture with Pillow, convert('RGB')",
        "the short side becomes short_side, the long one int(short_side * long / short): resize with Pillow's `filter`",
        "cut out size x size pixels from left = round((width - size) / 2), top = round((height - size) / 2), rounding "
        "halves to even",
    ),
    "squash": (
        "open the picture with Pillow, convert('RGB')",
        "resize((size, size), `filter`) with Pillow",
    ),
    "longest": (
        "open the picture with Pillow, convert('RGB')",
        "ImageOps.pad(picture, (size, size), `filter`, color=(fill, fill, fill)) with Pillow",
    ),
}


def image_problem(path: Path, decode: bool = True) -> str | None:
    """What is wrong with a picture file in a few words that name it, or None.

    Args:
        path: the file.
        decode: decode all of it, a JPEG file at the smallest size; otherwise only look whether it has content.
    """
    if not path.is_file():
        return f"no such picture {path}"
    if path.stat().st_size == 0:
        return f"empty picture {path}"
    if not decode:
        return None
    try:
        with Image.open(path) as picture:
            picture.draft("RGB", (1, 1))  # still reads to the end, in half the time
            picture.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        return f"unreadable picture {path} ({error})"
    return None


@dataclass(frozen=True)
class Resize:
    """How a pre-trained model wants its pictures resized (``protocol.md`` § 3); always Pillow's antialiased filters.

    Attributes:
        size: side in pixels.
        short_side: with mode ``"shortest"``, the short side before the centre crop; None is ``size``.
        filter: interpolation.
        mode: resize the short side and crop the centre; squash to a square; or resize the long side and pad.
        fill: grey value of the padding.
    """

    size: int
    short_side: int | None = None
    filter: Literal["bilinear", "bicubic"] = "bilinear"
    mode: Literal["shortest", "squash", "longest"] = "shortest"
    fill: int = 0

    def __call__(self, pictures: Sequence[Path | str | Image.Image]) -> Tensor:
        """Pictures as ``(n, 3, size, size)`` uint8; errors as in `load_pixels`."""
        return _read(pictures, self.size, self._resized)

    def recipe(self) -> dict[str, Any]:
        """How to do the same without this package, JSON-able."""
        fields = {key: value for key, value in asdict(self).items() if key != "mode"}
        return _recipe(self.mode, _RESIZE_STEPS[self.mode], **fields | {"short_side": self.short_side or self.size})

    def _resized(self, opened: Image.Image) -> Image.Image:
        picture, size = opened.convert("RGB"), self.size
        method = Image.Resampling[self.filter.upper()]
        if self.mode == "squash":
            return picture.resize((size, size), method)
        if self.mode == "longest":
            return ImageOps.pad(picture, (size, size), method, color=(self.fill,) * 3)
        short = self.short_side or size
        width, height = picture.size
        # The long side is cut to whole pixels and the crop rounded to even, as torchvision does: features of
        # pre-trained models are published with it.
        if width <= height:
            wide, high = short, int(short * height / width)
        else:
            wide, high = int(short * width / height), short
        left, top = round((wide - size) / 2), round((high - size) / 2)
        return picture.resize((wide, high), method).crop((left, top, left + size, top + size))


@dataclass(frozen=True)
class Square:
    """`load_pixels` at one size."""

    size: int

    def __call__(self, pictures: Sequence[Path | str | Image.Image]) -> Tensor:
        """Pictures as ``(n, 3, size, size)`` uint8; errors as in `load_pixels`."""
        return load_pixels(pictures, self.size)

    def recipe(self) -> dict[str, Any]:
        """How to do the same without this package, JSON-able."""
        return _recipe("square", _SQUARE_STEPS, size=self.size, filter="bilinear")


def load_pixels(pictures: Sequence[Path | str | Image.Image], size: int) -> Tensor:
    """Pictures as RGB, short side resized to ``size`` (bilinear, antialiased), centre-cropped to a square.

    Args:
        pictures: files or opened pictures.
        size: side in pixels.

    Returns:
        ``(n, 3, size, size)`` uint8.

    Raises:
        InputError: a file is missing or cannot be decoded; the message names it.
    """
    return _read(pictures, size, lambda opened: _square(opened, size))


def _read(
    pictures: Sequence[Path | str | Image.Image], size: int, resize: Callable[[Image.Image], Image.Image]
) -> Tensor:
    batch = np.empty((len(pictures), size, size, 3), dtype=np.uint8)
    for i, picture in enumerate(pictures):
        if isinstance(picture, Image.Image):
            batch[i] = np.asarray(resize(picture))
            continue
        try:
            with Image.open(picture) as opened:
                batch[i] = np.asarray(resize(opened))
        except FileNotFoundError:
            raise InputError(f"{picture}: no such picture") from None
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise InputError(f"{picture}: not a readable picture ({error})") from None
    return torch.from_numpy(batch).permute(0, 3, 1, 2).contiguous()


def _recipe(resize: str, steps: Sequence[str], **fields: Any) -> dict[str, Any]:
    steps = [*steps, "values 0 to 255 as they are, channels R, G, B before rows before columns"]
    return dict(kind="pixels", resize=resize, steps=steps) | fields


def _square(picture: Image.Image, size: int) -> Image.Image:
    picture.draft("RGB", (2 * size, 2 * size))  # JPEG decodes straight to a nearby smaller size
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return picture.convert("RGB").resize(
        (size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side)
    )
