"""Items to encode: a table, features, or simply a folder of images."""

from pathlib import Path

import numpy as np

from channelhash.data.features import load_features
from channelhash.data.images import image_problem
from channelhash.data.records import Records
from channelhash.data.table import has_labels, load_table
from channelhash.errors import InputError
from channelhash.utils.array_files import ENDINGS
from channelhash.utils.image_files import HEIF_ENDINGS

IMAGE_ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", *HEIF_ENDINGS}


def load_any(path: Path, root: Path | None = None, skip_bad: bool = False) -> Records:
    """Read records from a folder of images, a file of features, or a table.

    A table needs no labels here: items to encode are often new.

    Args:
        path: file or folder to read.
        root: folder that the image paths of a table are relative to.
        skip_bad: leave out bad rows or images and list them.

    Raises:
        InputError: nothing is there, or it cannot be read as such records.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_dir():
        return load_folder(path, skip_bad)
    if path.suffix.lower() in ENDINGS:
        return load_features(path, skip_bad=skip_bad)
    return load_table(path, root, label_columns=None if has_labels(path) else [], skip_bad=skip_bad)


def load_folder(root: Path, skip_bad: bool = False) -> Records:
    """Read every image below ``root``, at any depth, without texts or labels; an id is a path relative to ``root``.

    Raises:
        InputError: there are no images, or one cannot be decoded.
    """
    paths = images_below(root)
    bad = {path: problem for path in paths if (problem := image_problem(path))}
    if bad and not skip_bad:
        raise InputError(f"{next(iter(bad.values()))}; mend it, or leave such pictures out with --skip-bad")
    good = tuple(path for path in paths if path not in bad)
    if not good:
        raise InputError(f"{root}: no pictures in this folder or below it")
    return Records(
        tuple(path.relative_to(root).as_posix() for path in good),
        {"image": good},
        np.zeros((len(good), 0), dtype=bool),
        (),
        {"unreadable picture": len(bad)} if bad else {},
        tuple(bad.values()),
        found=len(paths),
    )


def first_images(root: Path, count: int) -> list[Path]:
    """Return the first ``count`` image files below ``root``, in the order of their paths.

    Raises:
        InputError: there are no images.
    """
    paths = images_below(root)[:count]
    if not paths:
        raise InputError(f"{root}: no pictures in this folder or below it")
    return paths


def images_below(root: Path) -> list[Path]:
    """Return the image files below ``root``, at any depth, in the order of their paths.

    Hidden files and folders are left out (macOS writes ``._photo.jpg`` beside ``photo.jpg``).
    """
    return sorted(
        path
        for path in root.rglob("*")
        if path.suffix.lower() in IMAGE_ENDINGS
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )
