"""Read image files, and find those that cannot be used."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from channelhash.errors import InputError
from channelhash.utils.image_files import decode, open_image

if TYPE_CHECKING:
    from torch import Tensor

#: An image file, or an opened image.
ImageInput = Path | str | Image.Image

_UPRIGHT = "turn it as its EXIF orientation says (ImageOps.exif_transpose)"
_COLOURS = (
    "convert('RGB'), after values of more than 8 bits are scaled to 255, transparent pixels are drawn on white and a "
    "colour profile is converted to sRGB"
)
_REDUCED = "if it is a file, picture.draft('RGB', (2 * short_side, 2 * short_side))"
_SQUARE_STEPS = (
    "open the picture with Pillow; if it is a file, picture.draft('RGB', (2 * size, 2 * size)), by which a large JPEG "
    "is decoded to a nearby smaller size",
    _UPRIGHT,
    "side = min(width, height), left = (width - side) / 2, top = (height - side) / 2, not rounded",
    f"{_COLOURS}, then resize((size, size), `filter`, box=(left, top, left + side, top + side)) with Pillow, whose "
    "filters are antialiased",
)
_RESIZE_STEPS = {
    "shortest": (
        "open the picture with Pillow",
        _UPRIGHT,
        _COLOURS,
        "the short side becomes short_side, the long one int(short_side * long / short): resize with Pillow's `filter`",
        "cut out size x size pixels from left = round((width - size) / 2), top = round((height - size) / 2), rounding "
        "halves to even",
    ),
    "squash": (
        "open the picture with Pillow",
        _UPRIGHT,
        _COLOURS,
        "resize((size, size), `filter`) with Pillow",
    ),
    "longest": (
        "open the picture with Pillow",
        _UPRIGHT,
        _COLOURS,
        "ImageOps.pad(picture, (size, size), `filter`, color=(fill, fill, fill)) with Pillow",
    ),
}


def image_problem(path: Path, whole: bool = True) -> str | None:
    """Return what is wrong with an image file, in a few words that name it, or None.

    Args:
        path: the file.
        whole: decode the whole file, a JPEG file at the smallest size; otherwise only check that it is not empty.

    >>> image_problem(Path("lost.jpg"))
    'no such picture lost.jpg'
    """
    try:
        is_empty = path.stat().st_size == 0
    except OSError as error:
        absent = isinstance(error, FileNotFoundError | NotADirectoryError)
        return f"no such picture {path}" if absent else f"unreadable picture {path} ({error.strerror})"
    if not path.is_file():
        return f"no such picture {path}"
    if is_empty:
        return f"empty picture {path}"
    if not whole:
        return None
    try:
        with open_image(path) as image:
            decode(image, 1)  # still reads to the end, in half the time
    except OSError as error:
        return f"unreadable picture {path} ({error})"
    return None


def locate_image(folder: Path, name: str) -> Path:
    """Return the file that a list names, if need be with ``\\`` as ``/`` or its ending in other case.

    It is ``folder / name`` where there is none.

    >>> locate_image(Path("photos"), "a.jpg").name
    'a.jpg'
    """
    slashed = folder / name.replace("\\", "/")
    endings = (slashed.suffix.lower(), slashed.suffix.upper())
    others = (slashed, *(slashed.with_suffix(ending) for ending in endings if slashed.name))
    return next((path for path in (folder / name, *others) if path.is_file()), folder / name)


def visible_folders(root: Path, depth: int = 4) -> dict[Path, list[str]]:
    """Return ``root`` and the folders below it, nearest first, each with its files' names in order.

    Hidden files and folders are left out, and ``__MACOSX``, which macOS adds to archives.
    """
    folders: dict[Path, list[str]] = {}
    level = [root] if root.is_dir() else []
    for _ in range(depth + 1):
        below: list[Path] = []
        for folder in level:
            try:
                entries = sorted(os.scandir(folder), key=attrgetter("name"))
            except OSError as error:
                raise InputError(f"{folder}: cannot be read ({error.strerror})") from None
            visible = [entry for entry in entries if not entry.name.startswith(".")]
            folders[folder] = [entry.name for entry in visible if entry.is_file()]
            below += [Path(entry.path) for entry in visible if entry.is_dir() and entry.name != "__MACOSX"]
        level = below
    return folders


@dataclass(frozen=True)
class Resize:
    """Resize images as a pre-trained model expects them (``protocol.md`` § 3), by Pillow's antialiased filters.

    Attributes:
        size: side in pixels.
        short_side: with mode ``"shortest"``, the short side before the centre crop; None is ``size``.
        filter: interpolation.
        mode: resize the short side and crop the centre; squash to a square; or resize the long side and pad.
        fill: grey value of the padding.
        reduced: decode a large JPEG file to a nearby smaller size, at least twice that of the result; of 12 million
            pixels in a third of the time.

    >>> Resize(4, short_side=6)([Image.new("RGB", (30, 20))]).shape
    torch.Size([1, 3, 4, 4])
    """

    size: int
    short_side: int | None = None
    filter: Literal["bilinear", "bicubic"] = "bilinear"
    mode: Literal["shortest", "squash", "longest"] = "shortest"
    fill: int = 0
    reduced: bool = False

    def __call__(self, images: Sequence[ImageInput]) -> "Tensor":
        """Return images as ``(n, 3, size, size)`` uint8; errors as in `load_pixels`."""
        return _tensor(self.pixels(images))

    def pixels(self, images: Sequence[ImageInput]) -> NDArray[np.uint8]:
        """Return the same as an array, without PyTorch."""
        return _read(images, self.size, self._resized)

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        fields = {key: value for key, value in asdict(self).items() if key not in ("mode", "reduced")}
        first, *steps = _RESIZE_STEPS[self.mode]
        if self.reduced:
            fields["reduced"] = True
            steps = [_REDUCED, *steps]
        return _recipe(self.mode, [first, *steps], **fields | {"short_side": self.short_side or self.size})

    def _resized(self, opened: Image.Image) -> Image.Image:
        size, short = self.size, self.short_side or self.size
        image = decode(opened, 2 * short if self.reduced else None)
        method = Image.Resampling[self.filter.upper()]
        if self.mode == "squash":
            return image.resize((size, size), method)
        if self.mode == "longest":
            return ImageOps.pad(image, (size, size), method, color=(self.fill,) * 3)
        width, height = image.size
        # The long side is cut to whole pixels and the crop rounded to even, as in torchvision, which published features
        # of pre-trained models were made with.
        if width <= height:
            wide, high = short, int(short * height / width)
        else:
            wide, high = int(short * width / height), short
        left, top = round((wide - size) / 2), round((high - size) / 2)
        return image.resize((wide, high), method).crop((left, top, left + size, top + size))


@dataclass(frozen=True)
class Square:
    """`load_pixels` at one size.

    >>> Square(2)([Image.new("RGB", (6, 4), "white")]).unique().tolist()
    [255]
    """

    size: int

    def __call__(self, images: Sequence[ImageInput]) -> "Tensor":
        """Return images as ``(n, 3, size, size)`` uint8; errors as in `load_pixels`."""
        return load_pixels(images, self.size)

    def pixels(self, images: Sequence[ImageInput]) -> NDArray[np.uint8]:
        """Return the same as an array, without PyTorch."""
        return _read(images, self.size, lambda opened: _square(opened, self.size))

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        return _recipe("square", _SQUARE_STEPS, size=self.size, filter="bilinear")


def load_pixels(images: Sequence[ImageInput], size: int) -> "Tensor":
    """Read images as RGB squares: short side resized to ``size`` (bilinear, antialiased), then centre-cropped.

    Args:
        images: files or opened images.
        size: side in pixels.

    Returns:
        ``(n, 3, size, size)`` uint8.

    Raises:
        InputError: a file is missing or cannot be decoded; the message names it.

    >>> load_pixels([Image.new("RGB", (40, 30)), Image.new("L", (20, 20))], 8).shape
    torch.Size([2, 3, 8, 8])
    """
    return _tensor(Square(size).pixels(images))


def resize_of(recipe: Mapping[str, Any]) -> Resize | Square:
    """Return what prepares images as a recipe says.

    Raises:
        KeyError, TypeError, ValueError: it is no recipe of ``Resize`` or ``Square``.

    >>> resize_of(Square(8).recipe()), resize_of(Resize(8, 9, "bicubic").recipe())
    (Square(size=8), Resize(size=8, short_side=9, filter='bicubic', mode='shortest', fill=0, reduced=False))
    """
    if recipe["resize"] == "square":
        return Square(recipe["size"])
    if recipe["resize"] not in _RESIZE_STEPS:
        raise ValueError(f"resize is {recipe['resize']!r}, not one of {', '.join(_RESIZE_STEPS)} and square")
    return Resize(
        recipe["size"],
        recipe["short_side"],
        recipe["filter"],
        recipe["resize"],
        recipe["fill"],
        recipe.get("reduced", False),
    )


def _tensor(pixels: NDArray[np.uint8]) -> "Tensor":
    import torch  # seconds to load, which files that are only checked do not need

    return torch.from_numpy(pixels)


def _read(images: Sequence[ImageInput], size: int, resize: Callable[[Image.Image], Image.Image]) -> NDArray[np.uint8]:
    if isinstance(images, np.ndarray):
        raise InputError(f"this model encodes pictures; these are features {images.shape}")
    batch = np.empty((len(images), size, size, 3), dtype=np.uint8)
    for i, image in enumerate(images):
        if isinstance(image, Image.Image):
            batch[i] = np.asarray(resize(image))
            continue
        try:
            with open_image(image) as opened:
                batch[i] = np.asarray(resize(opened))
        except FileNotFoundError:
            raise InputError(f"{image}: no such picture") from None
        except OSError as error:
            raise InputError(f"{image}: not a readable picture ({error})") from None
    return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))


def _recipe(resize: str, steps: Sequence[str], **fields: Any) -> dict[str, Any]:
    steps = [*steps, "values 0 to 255 as they are, channels R, G, B before rows before columns"]
    return dict(kind="pixels", resize=resize, steps=steps) | fields


def _square(image: Image.Image, size: int) -> Image.Image:
    image = decode(image, 2 * size)
    width, height = image.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    return image.resize((size, size), Image.Resampling.BILINEAR, box=(left, top, left + side, top + side))
