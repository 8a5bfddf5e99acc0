"""Read image files, one by one or in worker processes, and find those that cannot be used."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from channelhash.errors import InputError
from channelhash.utils.image_files import decode, open_image
from channelhash.utils.machine import hold_interrupts

if TYPE_CHECKING:
    from torch import Tensor

_ENDINGS = (
    ".jpg .jpeg .jpe .jif .jfif .pjpeg .pjp .mpo .png .webp .bmp .gif .tif .tiff .avif .ppm .pgm "
    ".pbm .pnm .heic .heif .hif"
)
#: Endings of the files that are read, in small letters.
IMAGE_ENDINGS = frozenset(_ENDINGS.split())

#: Mode of resizing -> the steps of its recipe after those of colours.
_STEPS = {
    "square": (
        "side = min(width, height), left = (width - side) / 2, top = (height - side) / 2, not "
        "rounded",
        "resize((size, size), `filter`, box=(left, top, left + side, top + side)) with Pillow, "
        "whose filters are antialiased",
    ),
    "shortest": (
        "the short side becomes short_side, the long one int(short_side * long / short): resize "
        "with Pillow's `filter`",
        "cut out size x size pixels from left = round((width - size) / 2), top = round((height - "
        "size) / 2), rounding halves to even",
    ),
    "squash": ("resize((size, size), `filter`) with Pillow",),
    "longest": (
        "ImageOps.pad(picture, (size, size), `filter`, color=(fill, fill, fill)) with Pillow",
    ),
}


def image_problem(path: Path, full: bool = True) -> str | None:
    """Return what is wrong with an image file, in a few words that name it, or None.

    >>> image_problem(Path("lost.jpg"))
    'no such picture lost.jpg'
    """
    try:
        if path.stat().st_size == 0 and path.is_file():
            return f"empty picture {path}"
        if not path.is_file():
            return f"no such picture {path}"
        if full:
            with open_image(path) as image:
                decode(image, 1)  # still reads to the end, in half the time
    except (FileNotFoundError, NotADirectoryError):
        return f"no such picture {path}"
    except OSError as error:
        return f"unreadable picture {path} ({error.strerror or error})"
    return None


def locate_image(folder: Path, name: str) -> Path:
    """Return the file that a list names, also with ``\\`` for ``/`` or its ending in other case.

    If there is none, return ``folder / name``.

    >>> locate_image(Path("photos"), "a.jpg").name
    'a.jpg'
    """
    slashed = folder / name.replace("\\", "/")
    endings = (slashed.suffix.lower(), slashed.suffix.upper())
    candidates = (slashed, *(slashed.with_suffix(ending) for ending in endings if slashed.name))
    return next((path for path in (folder / name, *candidates) if path.is_file()), folder / name)


class Prepare:
    """Makes inputs of raw items: an array by `arrays`, or a tensor by a call."""

    def arrays(self, items: Any) -> NDArray[Any]:
        """Return the inputs of items, row by row."""
        raise NotImplementedError

    def __call__(self, items: Any) -> "Tensor":
        """Return the same as a tensor."""
        import torch  # takes seconds to load

        return torch.from_numpy(self.arrays(items))


@dataclass(frozen=True)
class Resize(Prepare):
    """Resize images as a model expects them, by Pillow's antialiased filters (``protocol.md`` § 3).

    Attributes:
        size: side in pixels.
        short_side: with mode ``"shortest"``, the short side before the centre crop; None is
            ``size``.
        filter: interpolation.
        mode: resize the short side and crop the centre; squash to a square; resize the long side
            and pad; or resize the square in the centre, which is cut out first and not to whole
            pixels.
        fill: grey value of the padding.
        reduced: decode a large JPEG file to a nearby smaller size, at least twice that of the
            result; 12 million pixels take a third of the time.

    >>> Resize(4, short_side=6)([Image.new("RGB", (30, 20))]).shape
    torch.Size([1, 3, 4, 4])
    """

    size: int
    short_side: int | None = None
    filter: Literal["bilinear", "bicubic"] = "bilinear"
    mode: Literal["shortest", "squash", "longest", "square"] = "shortest"
    fill: int = 0
    reduced: bool = False

    def arrays(self, items: Sequence[Path | str | Image.Image]) -> NDArray[np.uint8]:
        """Return images as ``(n, 3, size, size)`` uint8; `InputError` if one cannot be read."""
        if isinstance(items, np.ndarray):
            raise InputError(f"this model encodes pictures; these are features {items.shape}")
        batch = np.empty((len(items), self.size, self.size, 3), dtype=np.uint8)
        for i, image in enumerate(items):
            try:
                with (
                    nullcontext(image)
                    if isinstance(image, Image.Image)
                    else open_image(image) as opened
                ):
                    batch[i] = np.asarray(self._resized(opened))
            except FileNotFoundError:
                raise InputError(f"{image}: no such picture") from None
            except OSError as error:
                if isinstance(image, Image.Image):  # whose file only the caller knows
                    raise
                raise InputError(f"{image}: not a readable picture ({error})") from None
        return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        steps = [
            "open the picture with Pillow",
            "turn it as its EXIF orientation says (ImageOps.exif_transpose)",
            "convert('RGB'), after values of more than 8 bits are scaled to 255, transparent "
            "pixels are drawn on white and a colour profile is converted to sRGB",
            *_STEPS[self.mode],
            "values 0 to 255 as they are, channels R, G, B before rows before columns",
        ]
        if self.reduced:
            draft = "picture.draft('RGB', (2 * short_side, 2 * short_side))"
            steps.insert(1, f"if it is a file, {draft}, by which a large JPEG is decoded smaller")
        fields = {
            key: value
            for key, value in asdict(self).items()
            if key != "mode" and (key != "reduced" or value)
        }
        fields["short_side"] = self.short_side or self.size
        return dict(kind="pixels", resize=self.mode, steps=steps) | fields

    def _resized(self, opened: Image.Image) -> Image.Image:
        size = self.size
        short = self.short_side or size
        image = decode(opened, 2 * short if self.reduced else None)
        method = Image.Resampling[self.filter.upper()]
        if self.mode == "squash":
            return image.resize((size, size), method)
        if self.mode == "longest":
            return ImageOps.pad(image, (size, size), method, color=(self.fill,) * 3)
        width, height = image.size
        side = min(width, height)
        if self.mode == "square":
            left = (width - side) / 2
            top = (height - side) / 2
            return image.resize((size, size), method, box=(left, top, left + side, top + side))
        # The long side is cut to whole pixels and the crop rounded to even, as in torchvision,
        # which published features of pre-trained models were made with.
        wide, high = (int(short * length / side) for length in (width, height))
        left = round((wide - size) / 2)
        top = round((high - size) / 2)
        return image.resize((wide, high), method).crop((left, top, left + size, top + size))


def square(size: int) -> Resize:
    """Read images as squares of the centre, large JPEG files decoded to a smaller size.

    >>> square(2)([Image.new("RGB", (6, 4), "white")]).unique().tolist()
    [255]
    """
    return Resize(size, mode="square", reduced=True)


def resize_of(recipe: Mapping[str, Any]) -> Resize:
    """Return the preparation of images that a recipe describes.

    >>> resize_of(square(8).recipe()).mode
    'square'
    >>> resize_of(Resize(8, 9, "bicubic").recipe()) == Resize(8, 9, "bicubic")
    True
    """
    mode = recipe["resize"]
    if mode not in _STEPS:
        raise ValueError(f"resize is {mode!r}, not one of {', '.join(_STEPS)}")
    if mode == "square":  # older recipes say the size alone
        return square(recipe["size"])
    fields = {key: recipe[key] for key in ("size", "short_side", "filter", "fill")}
    return Resize(**fields, mode=mode, reduced=recipe.get("reduced", False))


class ImageFiles:
    """A data set, as PyTorch takes it, of images prepared for a model: row number -> ``(3, s, s)``
    uint8.
    """

    def __init__(self, paths: Sequence[Path], prepare: Callable[[Any], "Tensor"]) -> None:
        self.paths = list(paths)
        self.prepare = prepare

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> "Tensor":
        return self.prepare([self.paths[row]])[0]


def image_batches(
    images: Any, batches: Iterable[Sequence[Any]], workers: int
) -> "Iterator[Tensor]":
    """Yield the images of each batch, in order, ``(b, 3, s, s)``.

    ``batches`` are the keys of each batch for the data set ``images``, drawn as they are needed.
    Without ``workers`` this process reads the files.
    """
    import torch

    loader = torch.utils.data.DataLoader(
        images,
        batch_sampler=batches,  # type: ignore[arg-type]  # its stub wants integers as keys
        num_workers=workers,
        pin_memory=torch.cuda.is_available(),
        # Without it, the loader draws from the generator that dropout draws from.
        generator=torch.Generator(),
    )
    with hold_interrupts():
        loaded = iter(loader)
    yield from loaded
