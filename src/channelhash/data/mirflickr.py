"""MIRFLICKR-25k, the official archives as they are (Huiskes and Lew 2008; layout in ``protocol.md`` § 1)."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from channelhash.data.records import Items, Problems, Records, labels_from_names
from channelhash.errors import InputError
from channelhash.utils.typed_settings import unknown

_IMAGE = re.compile(r"im(\d+)\.jpg$")
_VERSIONED = "mirflickr25k_annotations_v080"
_NAMES = ("annotations", f"annotations/{_VERSIONED}", _VERSIONED, "mirflickr25k_annotations")
_IMAGE_FOLDERS = (".", "mirflickr", "mirflickr25k", "pictures/mirflickr", "pictures")
_LABEL_FOLDERS = (*_NAMES, ".", *(f"../{name}" for name in _NAMES))


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

    A sample is usable with at least one label, one tag, and one tag that occurs ``min_tag_count`` times in the
    collection; of the official 25,000 that leaves 20,015. Tags with ``=`` (machine tags) are dropped before counting;
    rare tags stay in the text of a usable sample.

    Args:
        root: folder with ``im1.jpg …`` and ``meta/tags``, or one that holds it as ``mirflickr/`` or ``pictures/``.
        annotations: folder with the label files of annotations v080; None looks for ``annotations`` or
            ``mirflickr25k_annotations_v080``, in or beside ``root``.
        min_tag_count: how often one of a sample's tags must occur.
        top_tags: instead, one of a sample's tags must be among this many most frequent ones (the paper's text says
            20, which leaves another number of samples).
        raw_tags: read ``meta/tags_raw``, the tags as typed.
        label_names: keep these labels instead of all 24; a sample with none of them has no label.
        skip_bad: count and list bad lines of label files, and labels and tags of missing images.

    Raises:
        InputError: a folder or file is missing, or a line of a label file is not the number of an image.
    """
    image_folder = _folder(root, _IMAGE_FOLDERS, "im*.jpg", "pictures im1.jpg …")
    images = {int(match[1]): path for path in image_folder.iterdir() if (match := _IMAGE.fullmatch(path.name))}
    tag_folder = image_folder / "meta" / ("tags_raw" if raw_tags else "tags")
    if not tag_folder.is_dir():
        raise InputError(f"{tag_folder}: no such folder; unpack mirflickr25k.zip with its meta folder")
    label_folder = annotations or _folder(root, _LABEL_FOLDERS, "*_r1.txt", "label files (annotations v080)")
    problems = Problems(skip_bad)
    labels = _read_labels(label_folder, images.keys(), label_names, problems)
    tags = {number: _read_tags(tag_folder, number, problems) for number in sorted(images)}
    _check_tag_files(tag_folder, images.keys(), problems)
    frequent, rare = _frequent_tags(tags.values(), min_tag_count, top_tags)
    rows: dict[int, list[str]] = {}  # number -> its labels
    for number, words in tags.items():
        names = [name for name, numbers in labels.items() if number in numbers]
        if words and names and not frequent.isdisjoint(words):
            rows[number] = names
        else:
            reason = rare if words and names else "no label" if words else "no tag"
            problems.removed[reason] = problems.removed.get(reason, 0) + 1
    if not rows:
        raise InputError(f"{root}: no usable sample is left of {len(images)}: {problems.removed}")
    matrix, columns = labels_from_names(list(rows.values()), list(labels), str(label_folder))
    items: dict[str, Items] = {"image": tuple(images[n] for n in rows), "text": tuple(" ".join(tags[n]) for n in rows)}
    ids = tuple(f"im{number}" for number in rows)
    return Records(ids, items, matrix, columns, problems.removed, tuple(problems.lines), found=len(images))


def _folder(root: Path, candidates: Sequence[str], pattern: str, content: str) -> Path:
    for candidate in candidates:
        folder = root / candidate
        if folder.is_dir() and next(folder.glob(pattern), None):
            return folder
    raise InputError(f"{root}: no {content} here or in {', '.join(c for c in candidates if c != '.')}")


def _read_labels(
    folder: Path, images: Collection[int], label_names: list[str] | None, problems: Problems
) -> dict[str, set[int]]:
    """Return label name -> numbers of images, for ``label_names`` or all labels.

    ``README*`` and the ``*_r1.txt`` files of relevant labels are not read.
    """
    labels: dict[str, set[int]] = {}
    for path in sorted(folder.glob("*.txt")):
        if path.name.lower().startswith("readme") or path.stem.endswith("_r1"):
            continue
        numbers = labels.setdefault(path.stem, set())
        for place, line in enumerate(_decode(path, problems).splitlines(), start=1):
            text = line.strip()
            if text.isdecimal() and int(text) in images:
                numbers.add(int(text))
            elif text:
                what = (
                    f"picture {text} is not there" if text.isdecimal() else f"{text!r} is not the number of a picture"
                )
                problems.add(f"{path}, line {place}: {what}", "mend it, or skip such lines with --skip-bad")
    if not labels:
        raise InputError(f"{folder}: no label files")
    for name in label_names or []:
        if name not in labels:
            raise InputError(f"{folder}: {unknown(f'label {name!r}', name, sorted(labels))}")
    return {name: labels[name] for name in label_names or sorted(labels)}


def _read_tags(folder: Path, number: int, problems: Problems) -> list[str]:
    """Return the tags of an image in the file's order, each once, without machine tags."""
    path = folder / f"tags{number}.txt"
    if not path.exists():
        problems.add(f"{path}: no such tag file", "unpack the archive again, or use --skip-bad")
        return []
    lines = (line.strip() for line in _decode(path, problems).splitlines())
    return list(dict.fromkeys(line for line in lines if line and "=" not in line))


def _check_tag_files(folder: Path, images: Collection[int], problems: Problems) -> None:
    """List tag files without an image: a part of the archive is missing."""
    matches = (re.fullmatch(r"tags(\d+)\.txt", path.name) for path in folder.iterdir())
    missing = sorted({int(match[1]) for match in matches if match} - set(images))
    if missing:
        problems.lines.append(
            f"{folder.parents[1]}: {len(missing)} tag files have no picture, the first is tags{missing[0]}.txt; "
            "unpack mirflickr25k.zip again"
        )


def _frequent_tags(tags: Iterable[list[str]], min_tag_count: int, top_tags: int | None) -> tuple[set[str], str]:
    """Return the frequent tags, and why a sample without any of them is removed."""
    counts = Counter(tag for words in tags for tag in words)
    if top_tags is None:
        frequent = {tag for tag, count in counts.items() if count >= min_tag_count}
        return frequent, f"no tag that occurs {min_tag_count} times"
    by_count = sorted(counts, key=lambda tag: (-counts[tag], tag))
    return set(by_count[:top_tags]), f"none of the {top_tags} most frequent tags"


def _decode(path: Path, problems: Problems) -> str:
    """Decode UTF-8, or Latin-1 where a file is not UTF-8 (some tag files are not), and list such files."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        problems.lines.append(f"{path}: not UTF-8, read as Latin-1")
        return data.decode("latin-1")
