"""Items to encode: a table, features, or simply a folder of images."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from channelhash.data.features import load_features
from channelhash.data.image_endings import NOT_A_PICTURE, ending_problem
from channelhash.data.images import image_problem
from channelhash.data.records import Records
from channelhash.data.table import has_labels, load_table
from channelhash.errors import InputError
from channelhash.utils.array_files import ENDINGS
from channelhash.utils.path_patterns import match_any


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
    found = find_images(root)
    paths = [root / name for name in found.names]
    bad = {path: problem for path in paths if (problem := image_problem(path))}
    if bad and not skip_bad:
        raise InputError(f"{next(iter(bad.values()))}; mend it, or leave such pictures out with --skip-bad")
    good = tuple(path for path in paths if path not in bad)
    if not good:
        raise InputError(f"{root}: no picture of {len(paths)} can be read; the first problem is {bad[paths[0]]}")
    return Records(
        tuple(path.relative_to(root).as_posix() for path in good),
        {"image": good},
        np.zeros((len(good), 0), dtype=bool),
        (),
        {reason: count for reason, count in found.skipped.items() if reason != NOT_A_PICTURE}
        | ({"unreadable picture": len(bad)} if bad else {}),
        (*found.problems, *bad.values()),
        found=len(paths),
    )


def first_images(root: Path, count: int) -> list[Path]:
    """Return the first ``count`` image files below ``root``, in the order of their paths.

    Raises:
        InputError: there are no images.
    """
    return images_below(root)[:count]


def images_below(root: Path) -> list[Path]:
    """Return the image files below ``root``, at any depth, in the order of their paths; errors as in `find_images`."""
    return [root / name for name in find_images(root).names]


class Found(NamedTuple):
    """The files of a folder.

    Attributes:
        names: paths of the images, relative to the folder with ``/``, sorted.
        skipped: reason -> number of files and folders that are left out for it; hidden ones are not counted.
        problems: a line for each folder or name that cannot be read.
    """

    names: list[str]
    skipped: dict[str, int]
    problems: tuple[str, ...]


def find_images(root: Path, exclude: Sequence[str] = ()) -> Found:
    """Find the image files below ``root``, at any depth, by one listing of each folder.

    Hidden files and folders are left out (macOS writes ``._photo.jpg`` beside ``photo.jpg``), links to folders too.

    Args:
        root: the folder.
        exclude: patterns of paths to leave out, see `path_patterns.match_any`.

    Raises:
        InputError: there are no images, the folder cannot be read, or a pattern is wrong.
    """
    left_out, names, skipped, problems = match_any(exclude), list[str](), Counter[str](), list[str]()
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(root / folder))
        except OSError as error:
            if not folder:
                raise InputError(f"{root}: cannot be read ({error.strerror})") from None
            problems.append(f"{root / folder}: cannot be read ({error.strerror})")
            continue
        for entry in entries:
            name, is_folder = folder + entry.name, entry.is_dir(follow_symlinks=False)
            if entry.name.startswith("."):
                continue
            if exclude and left_out(name, is_folder):
                skipped["excluded"] += 1
            elif is_folder:
                folders.append(f"{name}/")
            elif reason := _no_image(entry):
                skipped[reason] += 1
            elif not _is_utf8(name):
                shown = root / os.fsencode(name).decode(errors="replace")
                problems.append(f"{shown}: the name is not UTF-8; rename it")
            else:
                names.append(name)
    if not names:
        reasons = "".join(f"; left out: {count:,} × {reason}" for reason, count in skipped.items())
        raise InputError(f"{root}: no pictures in this folder or below it{reasons}")
    return Found(
        sorted(names, key=lambda name: name.split("/")), dict(sorted(skipped.items())), tuple(sorted(problems))
    )


def _is_utf8(name: str) -> bool:
    """Return whether a name that the system gave was UTF-8; other bytes are half surrogate pairs in it."""
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def _no_image(entry: os.DirEntry[str]) -> str:
    """Return why a file is left out, by its name; empty for an image."""
    return NOT_A_PICTURE if entry.is_dir() else ending_problem(os.path.splitext(entry.name)[1].lower())
