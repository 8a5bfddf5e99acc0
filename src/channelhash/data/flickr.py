"""Photographs of Flickr with hashtags: MIRFLICKR-25k (Huiskes and Lew 2008) and NUS-WIDE (Chua et
al. 2009).

Both are read from the official archives as they are (layouts in ``protocol.md`` § 1).
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from channelhash.data.images import locate_image
from channelhash.data.records import DataItem, Labels, Problems, Records, records_from_rows
from channelhash.errors import InputError, argument
from channelhash.utils.decode import decode_text, split_lines
from channelhash.utils.typed_settings import unknown

#: Names of images and tag files, with their number.
_IMAGE = re.compile(r"im(\d+)\.jpe?g", re.IGNORECASE)
_TAGS = re.compile(r"tags(\d+)\.txt", re.IGNORECASE)
#: Names of label files: not tags1.txt, nor sky_r1.txt of "relevant" labels.
_LABELS = re.compile(r"(?!readme)(.*[^\d])\.txt", re.IGNORECASE)


def load_mirflickr(
    root: Path,
    annotations: Path | None = None,
    min_tag_count: int = 20,
    top_tags: int | None = None,
    raw_tags: bool = False,
    label_names: list[str] | None = None,
    skip_bad: bool = False,
) -> Records:
    """Read images, hashtags and the 24 potential labels, and keep the usable samples.

    A sample is usable with at least one label, one tag, and one tag that occurs ``min_tag_count``
    times in the collection; of the official 25,000 that leaves 20,015. Tags with ``=`` (machine
    tags) are dropped before counting; rare tags stay in the text of a usable sample.

    Args:
        root: folder with ``im1.jpg …`` and ``meta/tags``, or one that holds it at some depth.
            Capitals do not matter; hidden files and what macOS adds to archives are left out.
        annotations: folder with the label files of annotations v080, without the ``*_r1.txt``
            files of relevant labels; None looks below ``root``, and in folders beside it with
            "annotations" in their names.
        min_tag_count: how often one of a sample's tags must occur.
        top_tags: instead, one of a sample's tags must be among this many most frequent ones (the
            paper's text says 20, which leaves another number of samples).
        raw_tags: read ``meta/tags_raw``, the tags as typed.
        label_names: keep these labels instead of all 24; a sample with none of them has no label.
        skip_bad: count and list bad lines of label files, and labels and tags of missing images.

    Raises:
        InputError: a folder or file is missing, or a line of a label file is not the number of an
            image.
    """
    folders = _visible_folders(root)
    image_folder, images = _numbered(folders, _IMAGE)
    if not images:
        raise InputError(
            f"{root}: no pictures im1.jpg … here or in a folder below; unpack mirflickr25k.zip "
            "there"
        )
    tag_folder, tag_files = _tag_files(folders, image_folder, "tags_raw" if raw_tags else "tags")
    problems = Problems(skip_bad)
    label_files = _label_files(root, folders, annotations)
    labels = _read_labels(label_files, images.keys(), label_names, problems)
    tags = {
        number: _read_tags(tag_files.get(number, tag_folder / f"tags{number}.txt"), problems)
        for number in sorted(images)
    }
    problems.lines += _stray_tags(image_folder, tag_files.keys() - images.keys())
    frequent = _frequent_tags(tags.values(), min_tag_count, top_tags)
    items = []
    for number, words in tags.items():
        names = [name for name, numbers in labels.items() if number in numbers]
        if names and not frequent.isdisjoint(words):
            values = {"image": images[number], "text": " ".join(words)}
            items.append(DataItem(f"im{number}", values, names))
        else:
            problems.count(_reason_to_remove(words, names, min_tag_count, top_tags))
    return records_from_rows(items, list(labels), str(root), problems, len(images))


def _numbered(
    folders: Mapping[Path, Sequence[str]], form: re.Pattern[str]
) -> tuple[Path, dict[int, Path]]:
    """Return the first folder that has files of this form, and its files by their numbers.

    There are no files if no folder has any.
    """
    for folder, names in folders.items():
        matches = filter(None, map(form.fullmatch, names))
        files = {int(match[1]): folder / match[0] for match in matches}
        if files:
            return folder, files
    return Path(), {}


def _tag_files(
    folders: Mapping[Path, Sequence[str]], image_folder: Path, name: str
) -> tuple[Path, dict[int, Path]]:
    """Return the folder of the tags, and its files by their numbers."""
    named = {path: files for path, files in folders.items() if path.name.lower() == name}
    folder, files = _numbered(named, _TAGS)
    if not files:
        missing = image_folder / "meta" / name
        raise InputError(f"{missing}: no such folder; unpack mirflickr25k.zip with its meta folder")
    return folder, files


def _stray_tags(image_folder: Path, numbers: Collection[int]) -> list[str]:
    if not numbers:
        return []
    return [
        f"{image_folder}: {len(numbers)} tag files have no picture, the first is "
        f"tags{min(numbers)}.txt; unpack mirflickr25k.zip again"
    ]


def _reason_to_remove(
    tags: Collection[str], labels: Collection[str], min_tag_count: int, top_tags: int | None
) -> str:
    """Return why a sample with these tags and labels is not usable."""
    if not tags:
        return "no tag"
    if not labels:
        return "no label"
    if top_tags is None:
        return f"no tag that occurs {min_tag_count} times"
    return f"none of the {top_tags} most frequent tags"


def _label_files(
    root: Path, folders: Mapping[Path, Sequence[str]], annotations: Path | None
) -> list[Path]:
    """Return the files of the potential labels, of which at least one begins with a number."""
    searched = _folders_of_labels(root, folders, annotations)
    for folder, names in searched.items():
        files = [folder / name for name in names if _LABELS.fullmatch(name)]
        if any(re.match(rb"\s*\d+\s", path.read_bytes()) for path in files):
            return files
    where = annotations or root
    if any(name.lower().endswith("_r1.txt") for name in chain(*searched.values())):
        raise InputError(
            f"{where}: has only *_r1.txt files, of relevant labels; add sky.txt …, of potential "
            "ones"
        )
    raise InputError(
        f"{where}: no label files (annotations v080) here, below, or in annotations beside it"
    )


def _folders_of_labels(
    root: Path, folders: Mapping[Path, Sequence[str]], annotations: Path | None
) -> dict[Path, Sequence[str]]:
    if annotations is not None:
        return {**_visible_folders(annotations)}
    searched = dict(folders)
    for beside in sorted(root.resolve().parent.iterdir()):
        if "annotation" in beside.name.lower():
            searched |= _visible_folders(beside)
    return searched


def _read_labels(
    files: Sequence[Path],
    images: Collection[int],
    label_names: list[str] | None,
    problems: Problems,
) -> dict[str, set[int]]:
    """Return label name -> numbers of images, for ``label_names`` or all labels."""
    labels = defaultdict[str, set[int]](set)
    for path in files:
        labels[path.stem.lower()] |= _read_numbers(path, images, problems)
    chosen = label_names or sorted(labels)
    for name in chosen:
        if name not in labels:
            problem = unknown(f"label {name!r}", name, sorted(labels))
            raise InputError(f"{files[0].parent}: {problem}")
    return {name: labels[name] for name in chosen}


def _read_numbers(path: Path, images: Collection[int], problems: Problems) -> set[int]:
    """Return the numbers of the images in a label file."""
    numbers = set()
    for place, text in enumerate(_read_lines(path, problems), start=1):
        if text.isdecimal() and int(text) in images:
            numbers.add(int(text))
        elif text:
            wrong = f"{text!r} is not the number of a picture"
            if text.isdecimal():
                wrong = f"picture {text} is not there"
            line = f"{path}, line {place}: {wrong}"
            problems.add(line, f"mend it, or skip such lines with {argument('skip_bad')}")
    return numbers


def _read_tags(path: Path, problems: Problems) -> list[str]:
    """Return the tags of an image in the file's order, each once, without machine tags."""
    if not path.exists():
        problems.add(
            f"{path}: no such tag file", f"unpack the archive again, or use {argument('skip_bad')}"
        )
        return []
    return list(
        dict.fromkeys(line for line in _read_lines(path, problems) if line and "=" not in line)
    )


def _frequent_tags(tags: Iterable[list[str]], min_tag_count: int, top_tags: int | None) -> set[str]:
    counts = Counter(chain.from_iterable(tags))
    if top_tags is None:
        return {tag for tag, count in counts.items() if count >= min_tag_count}
    return set(sorted(counts, key=lambda tag: (-counts[tag], tag))[:top_tags])


def _visible_folders(root: Path) -> dict[Path, list[str]]:
    """Return ``root`` and the folders to four levels below it, nearest first, each with the sorted
    names of its files.

    Hidden files and folders are left out, and ``__MACOSX``, which macOS adds to archives.
    """
    folders: dict[Path, list[str]] = {}

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename}: cannot be read ({error.strerror})")

    for place, below, names in os.walk(
        root, onerror=refuse if root.is_dir() else None, followlinks=True
    ):
        folder = Path(place)
        folders[folder] = sorted(name for name in names if not name.startswith("."))
        is_last = len(folder.relative_to(root).parts) == 4
        below[:] = sorted(
            name for name in below if not is_last and name[0] != "." and name != "__MACOSX"
        )
    return dict(sorted(folders.items(), key=lambda entry: len(entry[0].parts)))


def _read_lines(path: Path, problems: Problems | None = None) -> list[str]:
    """Read the lines of a file, without blanks around them.

    A file that is no Unicode text, as some tag files are, is read as Latin-1 and listed.
    """
    data = path.read_bytes()
    try:
        text = decode_text(data)
    except UnicodeDecodeError:
        if problems is not None:
            problems.lines.append(f"{path}: not UTF-8, read as Latin-1")
        text = data.decode("latin-1")
    return [line.strip() for line in split_lines(text)]


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

_LABEL_COLUMN = re.compile(r"labels_(.+)\.txt", re.IGNORECASE)


def load_nuswide(
    root: Path,
    n_labels: int = 21,
    label_names: list[str] | None = None,
    require_pictures: bool = True,
    skip_bad: bool = False,
) -> Records:
    """Read image list, ground truth and tags, and keep the samples with one of the most frequent
    labels.

    Of the official 269,648 the 21 most frequent of the 81 labels leave 195,834. A row, not an id,
    is a sample: six ids occur twice in the official list. Both rows keep the id, so that splits
    hold them together (`splits.draw_splits`), and both get the id's tags.

    Args:
        root: folder with ``ImageList``, ``Groundtruth`` and ``NUS_WID_Tags``; images in ``Flickr``
            or ``images``, in one of `IMAGE_LAYOUTS`.
        n_labels: number of most frequent labels to keep, ties by name.
        label_names: keep these labels instead.
        require_pictures: treat a sample without an image as bad; False reads texts alone.
        skip_bad: leave out samples without an image, count and list them; list bad lines of the tag
            file.

    Raises:
        InputError: a file is missing, a label file has another length than the image list or a line
            that is not 0 or 1, a tag line has an unknown id, an image is missing.
    """
    names, ids = _read_image_list(root)
    problems = Problems(skip_bad)
    for name, count in Counter(ids).items():
        if count > 1:
            stay = "its rows stay on one side of query and retrieval"
            problems.lines.append(f"id {name} occurs {count} times in the image list: {stay}")
    chosen, labels = _read_columns(
        _find(root, "Groundtruth/AllLabels"), len(names), n_labels, label_names
    )
    tags = _tags_by_id(_find(root, "NUS_WID_Tags/All_Tags.txt"), set(ids), problems)
    labelled = labels.any(axis=1)
    if not labelled.all():
        problems.removed[f"none of the {len(chosen)} labels"] = int((~labelled).sum())
    remedy = (
        f"looked for {', '.join(IMAGE_LAYOUTS)}; add it, or use {argument('skip_bad')} or "
        "require_pictures=false"
    )
    items = []
    for row in np.flatnonzero(labelled).tolist():
        values: dict[str, Path | str] = {}
        if require_pictures:
            path = _find_image(root, names[row], ids[row])
            if path is None:
                problems.add(f"{root}: no picture of {names[row]}", remedy, "missing picture")
                continue
            values["image"] = path
        values["text"] = " ".join(tags.get(ids[row], ()))
        row_labels = [chosen[column] for column in np.flatnonzero(labels[row])]
        items.append(DataItem(ids[row], values, row_labels))
    return records_from_rows(items, chosen, str(root), problems, len(names))


def _find_image(root: Path, listed: str, name: str) -> Path | None:
    """Return the file of an image-list entry in any of the recognised layouts, or None."""
    folder, _, file_name = listed.replace("\\", "/").rpartition("/")
    for layout in IMAGE_LAYOUTS:
        path = locate_image(root, layout.format(folder=folder, name=file_name, id=name))
        if path.is_file():
            return path
    return None


def count_images(root: Path) -> tuple[int, int]:
    """Return (images found, entries of the image list)."""
    names, ids = _read_image_list(root)
    found = [_find_image(root, *entry) for entry in zip(names, ids, strict=True)]
    return len(found) - found.count(None), len(found)


def _read_image_list(root: Path) -> tuple[list[str], list[str]]:
    """Return (entries, ids) in the list's order; an entry is ``folder\\0001_<id>.jpg``."""
    path = _find(root, "ImageList/Imagelist.txt")
    names = list(filter(None, _read_lines(path)))
    ids = []
    for place, name in enumerate(names, start=1):
        number = name.replace("\\", "/").rpartition("/")[2].partition(".")[0].rpartition("_")[2]
        if not number.isdecimal():
            raise InputError(f"{path}, line {place}: {name!r} does not end in _<id>.jpg")
        ids.append(number)
    if not names:
        raise InputError(f"{path}: the image list is empty")
    return names, ids


def _read_columns(
    folder: Path, n: int, n_labels: int, names: list[str] | None
) -> tuple[list[str], Labels]:
    """Return the names and columns of the chosen labels."""
    files = _label_columns(folder)
    for name in names or ():
        if name not in files:
            raise InputError(
                f"{folder}: no file Labels_{name}.txt; there are labels {', '.join(files)}"
            )
    columns = {name: _read_column(files[name], n) for name in names or files}
    by_frequency = sorted(columns, key=lambda name: (-int(columns[name].sum()), name))
    chosen = names or sorted(by_frequency[:n_labels])
    return chosen, np.stack([columns[name] for name in chosen], axis=1)


def _label_columns(folder: Path) -> dict[str, Path]:
    """Return label name -> its file."""
    matches = [(_LABEL_COLUMN.fullmatch(path.name), path) for path in sorted(folder.iterdir())]
    files = {match[1]: path for match, path in matches if match}
    if not files:
        raise InputError(f"{folder}: no files Labels_<name>.txt; unpack Groundtruth.zip there")
    return files


def _read_column(path: Path, n: int) -> Labels:
    """Read a label file: 0 or 1 a line, in the order of the image list."""
    lines = path.read_bytes().split()
    values = np.array(lines, dtype="S8")
    ones: Labels = values == b"1"
    wrong = ~ones & (values != b"0")
    if wrong.any():
        place = int(wrong.argmax())
        raise InputError(
            f"{path}, line {place + 1}: {lines[place].decode(errors='replace')!r} is not 0 or 1"
        )
    if len(values) != n:
        raise InputError(
            f"{path}: has {len(values)} lines, the image list has {n}; the files are not of one "
            "release"
        )
    return ones


def _find(root: Path, name: str) -> Path:
    """Return the file or folder of a name in the archives, or one in another folder that differs in
    capitals at most.
    """
    if (root / name).exists():
        return root / name
    # Each archive may have been unpacked into a folder of its name, or contain that folder itself.
    last = Path(name).name.lower()
    for folder, files in _visible_folders(root).items():
        for path in (folder, *map(folder.joinpath, files)):
            if path.name.lower() == last:
                return path
    raise InputError(
        f"{root}: no {name}, here or below; get it with `channelhash data download nuswide`"
    )


def _tags_by_id(path: Path, ids: set[str], problems: Problems) -> dict[str, tuple[str, ...]]:
    """Return id -> its tags, each once, of all lines with that id."""
    tags: dict[str, tuple[str, ...]] = {}
    for place, line in enumerate(_read_lines(path), start=1):
        name, *words = line.split() or [""]
        if name in ids:
            tags[name] = tuple(dict.fromkeys((*tags.get(name, ()), *words)))
        elif name:
            problem = f"{path}, line {place}: the id {name!r} is not in the image list"
            problems.add(problem, f"skip such lines with {argument('skip_bad')}")
    return tags
