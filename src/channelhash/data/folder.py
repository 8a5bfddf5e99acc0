"""Items to encode: a table, features, or simply a folder of images."""

import os
import unicodedata
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from channelhash.data.features import load_features
from channelhash.data.images import IMAGE_ENDINGS, NOT_A_PICTURE, ending_problem, image_problem
from channelhash.data.records import Records
from channelhash.data.table import has_labels, load_table
from channelhash.errors import InputError
from channelhash.utils.addresses import match_any
from channelhash.utils.array_files import ENDINGS

#: The store that belongs to a folder of photographs.
STORE_FOLDER = ".channelhash"
#: Why something is left out that other programs made of the photographs, or keep for a while after they were deleted.
_OF_OTHERS = "thumbnails or a bin of another program"
_HIDDEN = "hidden"

# Paths longer than this may be too long for the system; only these are looked at twice.
_LONG = 1000
# Folders of iPhoto and Aperture that hold no originals.
_DERIVED = ("thumbnails", "previews", "resources", "data", "data.noindex", "database", "apdb", "faces")
# In lower case: of Synology, QNAP, Windows, Linux, macOS, Lightroom, Capture One, and in libraries of Apple's programs.
_OTHERS = match_any(
    [
        "@eadir/",
        "@recycle/",
        "@recently-snapshot/",
        "#recycle/",
        "#snapshot/",
        "$recycle.bin/",
        "recycler/",
        "system volume information/",
        "lost+found/",
        "__macosx/",
        "*.lrdata/",
        "captureone/",
        *(f"**/*.photoslibrary/{part}/" for part in ("resources", "database", "private", "scopes")),
        *(f"**/*.{kind}library/{part}/" for kind in ("photo", "migratedphoto", "ap") for part in _DERIVED),
    ]
)


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
        raise no_such(path)
    if path.is_dir():
        return _load_folder(path, skip_bad)
    if path.suffix.lower() in ENDINGS:
        return load_features(path, skip_bad=skip_bad)
    return load_table(path, root, label_columns=None if has_labels(path) else [], skip_bad=skip_bad)


def no_such(path: object) -> InputError:
    """Return what to raise where a path leads to nothing.

    >>> no_such("photos")
    InputError('photos: no such folder or file; check the name')
    """
    return InputError(f"{path}: no such folder or file; check the name")


def _load_folder(root: Path, skip_bad: bool = False) -> Records:
    """Read every image below ``root``, at any depth, without texts or labels; an id is a path relative to ``root``.

    Raises:
        InputError: there are no images, or one cannot be decoded.
    """
    found = find_images(root)
    paths = [root / name for name in found.names]
    bad = {row: problem for row, path in enumerate(paths) if (problem := image_problem(path))}
    problems = (*found.problems, *bad.values())
    if bad and not skip_bad:
        raise InputError(f"{next(iter(bad.values()))}; mend it, or leave such pictures out with --skip-bad")
    if len(bad) == len(paths):
        raise InputError(f"{root}: no picture of {len(paths)} can be read; the first problem is {problems[0]}")
    expected = (NOT_A_PICTURE, _OF_OTHERS, _HIDDEN)
    removed = {reason: count for reason, count in found.skipped.items() if reason not in expected}
    if bad:
        removed["unreadable picture"] = len(bad)
    labels = np.zeros((len(paths), 0), dtype=bool)
    items = {"image": tuple(paths)}
    records = Records(tuple(item_ids(found.names)), items, labels, (), removed, problems, found=len(paths))
    return records.take([row for row in range(len(paths)) if row not in bad]) if bad else records


def images_below(root: Path) -> list[Path]:
    """Return the image files below ``root``, at any depth, in the order of their paths; errors as in `find_images`."""
    return [root / name for name in find_images(root).names]


class _Found(NamedTuple):
    """The files of a folder.

    Attributes:
        names: paths of the images, relative to the folder with ``/``, sorted.
        skipped: reason -> number of files and folders that are left out for it.
        problems: a line for each folder or file that cannot be read.
        unread: these, by their paths like ``names``: what lies there is unknown, not gone.
    """

    names: list[str]
    skipped: dict[str, int]
    problems: tuple[str, ...]
    unread: tuple[str, ...] = ()


def find_images(root: Path, exclude: Sequence[str] = ()) -> _Found:
    """Find the image files below ``root``, at any depth, by one listing of each folder.

    Left out are hidden files and folders (macOS writes ``._photo.jpg`` beside ``photo.jpg``), links to folders, and
    what other programs keep beside photographs: thumbnails and bins.

    Args:
        root: the folder.
        exclude: patterns of paths to leave out, see `path_patterns.match_any`.

    Raises:
        InputError: there are no images and nothing that cannot be read, the folder itself cannot be read, or a pattern
            is wrong.
    """
    left_out, names, skipped, problems = match_any(exclude), list[str](), Counter[str](), dict[str, str]()
    where, folders = Path(os.path.abspath(root)), [""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(where / folder))
        except OSError as error:
            if not folder:
                raise InputError(f"{root}: cannot be read ({error.strerror})") from None
            problems[folder.rstrip("/")] = f"cannot be read ({error.strerror})"
            continue
        for entry in entries:
            name, is_folder = folder + entry.name, entry.is_dir(follow_symlinks=False)
            reason = _no_image(entry, is_folder)
            if exclude and left_out(name, is_folder):
                skipped["excluded"] += 1
            elif is_folder and _OTHERS(f"{where.name}/{name}".lower(), True):
                skipped[_OF_OTHERS] += 1
            elif reason is not None:
                skipped[reason] += bool(reason)
            elif is_folder:
                folders.append(f"{name}/")
            elif problem := _no_file(entry, name):
                problems[name] = problem
            else:
                names.append(name)
    if not names and not problems:
        reasons = "".join(f"; left out: {count:,} × {reason}" for reason, count in skipped.items() if count)
        raise InputError(f"{root}: no pictures in this folder or below it{reasons}")
    return _Found(
        sorted(names, key=lambda name: name.split("/")),
        {reason: count for reason, count in sorted(skipped.items()) if count},
        tuple(f"{root / _shown(name)}: {problem}" for name, problem in sorted(problems.items())),
        tuple(problems),
    )


def item_ids(names: Sequence[str]) -> list[str]:
    """Return the ids of files: their names, composed (NFC) whichever form the system gives.

    Of two files whose names differ only in their form, each keeps its own.

    >>> item_ids(["cafe\u0301.jpg"]) == ["caf\u00e9.jpg"]
    True
    """
    composed = [unicodedata.normalize("NFC", name) for name in names]
    counts = Counter(composed)
    return [new if counts[new] == 1 else name for name, new in zip(names, composed, strict=True)]


def _shown(name: str) -> str:
    """Return a name that can be printed: bytes that are not UTF-8, which are half surrogate pairs in it, as �."""
    return os.fsencode(name).decode(errors="replace")


def _no_image(entry: os.DirEntry[str], is_folder: bool) -> str | None:
    """Return why a file or folder is left out, by its name, or nothing where that is not worth a line; else None."""
    ending = os.path.splitext(entry.name)[1].lower()
    if entry.name.startswith("."):
        return _HIDDEN if (is_folder or ending in IMAGE_ENDINGS) and entry.name != STORE_FOLDER else ""
    return None if is_folder else ending_problem(ending) or None


def _no_file(entry: os.DirEntry[str], name: str) -> str:
    """Return why the image of a name is no file that can be read; empty for a file."""
    try:
        if len(entry.path) > _LONG:
            entry.stat()
        if not entry.is_file():
            kind = "a link to nothing or to a folder" if entry.is_symlink() else "a pipe, a socket or a device"
            return f"is {kind}, no picture"
    except OSError as error:  # links that lead to each other, or a path that is too long
        return f"cannot be read ({error.strerror})"
    return "" if _shown(name) == name else "the name is not UTF-8; rename it"
