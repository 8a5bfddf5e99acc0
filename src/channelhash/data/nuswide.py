"""NUS-WIDE, read from the official lists (Chua et al. 2009; layout in ``protocol.md`` § 1)."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.data.images import locate_image, visible_folders
from channelhash.data.mirflickr import decode_text
from channelhash.data.records import Items, Problems, Records
from channelhash.errors import InputError

# Each archive may have been unpacked into a folder of its name, or contain that folder itself.
_IMAGE_LISTS = ("ImageList/Imagelist.txt", "ImageList/ImageList/Imagelist.txt")
_LABEL_FOLDERS = ("Groundtruth/AllLabels", "Groundtruth/Groundtruth/AllLabels", "AllLabels")
_TAG_FILES = ("NUS_WID_Tags/All_Tags.txt", "NUS_WID_Tags/NUS_WID_Tags/All_Tags.txt", "All_Tags.txt")

#: Where the file of the image-list entry ``folder\\0001_<id>.jpg`` may lie, tried in this order.
IMAGE_LAYOUTS = (
    "Flickr/{folder}/{name}",
    "images/{folder}/{name}",
    "{folder}/{name}",
    "Flickr/{name}",
    "images/{name}",
    "images/{id}.jpg",
    "Flickr/{id}.jpg",
)

_LABELS = re.compile(r"labels_(.+)\.txt", re.IGNORECASE)


def load_nuswide(
    root: Path,
    n_labels: int = 21,
    label_names: list[str] | None = None,
    require_pictures: bool = True,
    skip_bad: bool = False,
) -> Records:
    """Read image list, ground truth and tags, and keep the samples with one of the most frequent labels.

    Of the official 269,648 the 21 most frequent of the 81 labels leave 195,834. A row, not an id, is a sample: six
    ids occur twice in the official list. Both rows keep the id, so that splits hold them together
    (`splits.draw_splits`), and both get the id's tags.

    Args:
        root: folder with ``ImageList``, ``Groundtruth`` and ``NUS_WID_Tags``; images in ``Flickr`` or ``images``, in
            one of `IMAGE_LAYOUTS`.
        n_labels: number of most frequent labels to keep, ties by name.
        label_names: keep these labels instead.
        require_pictures: treat a sample without an image as bad; False reads texts alone.
        skip_bad: leave out samples without an image, count and list them; list bad lines of the tag file.

    Raises:
        InputError: a file is missing, a label file has another length than the image list or a line that is not 0
            or 1, a tag line has an unknown id, an image is missing.
    """
    names, ids = _read_image_list(_find(root, _IMAGE_LISTS))
    problems = Problems(skip_bad)
    problems.lines += [
        f"id {name} occurs {count} times in the image list: its rows stay on one side of query and retrieval"
        for name, count in Counter(ids).items()
        if count > 1
    ]
    chosen, labels = _read_labels(_find(root, _LABEL_FOLDERS), len(names), n_labels, label_names)
    tags = _read_tags(_find(root, _TAG_FILES), set(ids), problems)
    labelled = labels.any(axis=1)
    if not labelled.all():
        problems.removed[f"none of the {len(chosen)} labels"] = int((~labelled).sum())
    rows = np.flatnonzero(labelled).tolist()
    images: dict[int, Path] = {}
    if require_pictures:
        remedy = f"looked for {', '.join(IMAGE_LAYOUTS)}; add it, or use --skip-bad or require_pictures=false"
        for row in rows:
            if path := _find_image(root, names[row], ids[row]):
                images[row] = path
            else:
                problems.add(f"{root}: no picture of {names[row]}", remedy, "missing picture")
        rows = list(images)
    if not rows:
        raise InputError(f"{root}: no usable sample is left of {len(names)}: {problems.removed}")
    items: dict[str, Items] = {"image": tuple(images.values())} if require_pictures else {}
    items["text"] = tuple(" ".join(tags.get(ids[row], ())) for row in rows)
    sample_ids, lines = tuple(ids[row] for row in rows), tuple(problems.lines)
    return Records(sample_ids, items, labels[rows], tuple(chosen), problems.removed, lines, found=len(names))


def _find_image(root: Path, listed: str, name: str) -> Path | None:
    """Return the file of an image-list entry in any of the recognised layouts, or None."""
    folder, _, file_name = listed.replace("\\", "/").rpartition("/")
    layouts = (layout.format(folder=folder, name=file_name, id=name) for layout in IMAGE_LAYOUTS)
    return next((path for layout in layouts if (path := locate_image(root, layout)).is_file()), None)


def count_images(root: Path) -> tuple[int, int]:
    """Return (images found, entries of the image list): what a person has put there so far."""
    names, ids = _read_image_list(_find(root, _IMAGE_LISTS))
    return sum(_find_image(root, name, id_) is not None for name, id_ in zip(names, ids, strict=True)), len(names)


def _read_image_list(path: Path) -> tuple[list[str], list[str]]:
    """Return (entries, ids) in the list's order; an entry is ``folder\\0001_<id>.jpg``."""
    names = [line.strip() for line in decode_text(path).splitlines() if line.strip()]
    ids = []
    for place, name in enumerate(names, start=1):
        number = name.replace("\\", "/").rpartition("/")[2].partition(".")[0].rpartition("_")[2]
        if not number.isdecimal():
            raise InputError(f"{path}, line {place}: {name!r} does not end in _<id>.jpg")
        ids.append(number)
    if not names:
        raise InputError(f"{path}: the image list is empty")
    return names, ids


def _read_labels(folder: Path, n: int, n_labels: int, names: list[str] | None) -> tuple[list[str], NDArray[np.bool_]]:
    """Return the names and columns of the chosen labels."""
    listed = ((_LABELS.fullmatch(path.name), path) for path in sorted(folder.iterdir()))
    files = {match[1]: path for match, path in listed if match}
    if not files:
        raise InputError(f"{folder}: no files Labels_<name>.txt; unpack Groundtruth.zip there")
    if missing := [name for name in names or [] if name not in files]:
        raise InputError(f"{folder}: no file Labels_{missing[0]}.txt; there are labels {', '.join(files)}")
    columns = {name: _read_column(path, n) for name, path in files.items() if not names or name in names}
    by_frequency = sorted(columns, key=lambda name: (-int(columns[name].sum()), name))
    chosen = names or sorted(by_frequency[:n_labels])
    return chosen, np.stack([columns[name] for name in chosen], axis=1)


def _read_column(path: Path, n: int) -> NDArray[np.bool_]:
    """Read a label file: 0 or 1 a line, in the order of the image list."""
    lines = path.read_bytes().split()
    values = np.array(lines, dtype="S8")
    ones: NDArray[np.bool_] = values == b"1"
    wrong = ~ones & (values != b"0")
    if wrong.any():
        place = int(wrong.argmax())
        raise InputError(f"{path}, line {place + 1}: {lines[place].decode(errors='replace')!r} is not 0 or 1")
    if len(values) != n:
        raise InputError(f"{path}: has {len(values)} lines, the image list has {n}; the files are not of one release")
    return ones


def _find(root: Path, names: tuple[str, ...]) -> Path:
    """Return the first of ``names`` that is there, or what has its last name in other capitals or another folder."""
    if exact := next((root / name for name in names if (root / name).exists()), None):
        return exact
    last = Path(names[0]).name.lower()
    paths = (path for folder, files in visible_folders(root).items() for path in (folder, *map(folder.joinpath, files)))
    if alike := next((path for path in paths if path.name.lower() == last), None):
        return alike
    raise InputError(f"{root}: no {' or '.join(names)}; get it with `channelhash data download nuswide`")


def _read_tags(path: Path, ids: set[str], problems: Problems) -> dict[str, tuple[str, ...]]:
    """Return id -> its tags, each once; the tags of all its lines where an id has several."""
    tags: dict[str, tuple[str, ...]] = {}
    for place, line in enumerate(decode_text(path).splitlines(), start=1):
        name, *words = line.split() or [""]
        if name in ids:
            tags[name] = tuple(dict.fromkeys((*tags.get(name, ()), *words)))
        elif name:
            problem = f"{path}, line {place}: the id {name!r} is not in the image list"
            problems.add(problem, "skip such lines with --skip-bad")
    return tags
