"""Items to encode: a table, features, or simply a folder of pictures."""

from pathlib import Path

import numpy as np

from channelhash.data.features import load_features
from channelhash.data.images import image_problem
from channelhash.data.records import Records
from channelhash.data.table import has_labels, load_table
from channelhash.errors import InputError
from channelhash.utils.array_files import ENDINGS

IMAGE_ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}


def load_any(path: Path, root: Path | None = None, skip_bad: bool = False) -> Records:
    """Records of whatever ``path`` is: a folder of pictures, a file of features, or a table.

    A table needs no labels here: what is encoded is often new.

    Args:
        path: what to read.
        root: for a table, the folder of its pictures.
        skip_bad: leave bad rows or pictures out and list them.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_dir():
        return load_folder(path, skip_bad)
    if path.suffix.lower() in ENDINGS:
        return load_features(path, skip_bad=skip_bad)
    return load_table(path, root, label_columns=None if has_labels(path) else [], skip_bad=skip_bad)


def load_folder(root: Path, skip_bad: bool = False) -> Records:
    """Every picture below ``root``, at any depth; its id is its path relative to ``root``. No texts, no labels.

    Raises:
        InputError: there are no pictures, or one cannot be decoded.
    """
    pictures = images_below(root)
    bad = {path: problem for path in pictures if (problem := image_problem(path))}
    if bad and not skip_bad:
        raise InputError(f"{next(iter(bad.values()))}; mend it, or leave such pictures out with --skip-bad")
    kept = tuple(path for path in pictures if path not in bad)
    if not kept:
        raise InputError(f"{root}: no pictures in this folder or below it")
    return Records(
        tuple(path.relative_to(root).as_posix() for path in kept),
        {"image": kept},
        np.zeros((len(kept), 0), dtype=bool),
        (),
        {"unreadable picture": len(bad)} if bad else {},
        tuple(bad.values()),
        found=len(pictures),
    )


def first_images(root: Path, count: int) -> list[Path]:
    """The first ``count`` picture files below ``root``, in the order of their paths."""
    pictures = images_below(root)[:count]
    if not pictures:
        raise InputError(f"{root}: no pictures in this folder or below it")
    return pictures


def images_below(root: Path) -> list[Path]:
    """The picture files below ``root``, at any depth, in the order of their paths; hidden files and folders are left
    out (macOS writes ``._photo.jpg`` beside ``photo.jpg``)."""
    return sorted(
        path
        for path in root.rglob("*")
        if path.suffix.lower() in IMAGE_ENDINGS
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
    )
