"""MIRFLICKR-25k, the official archives as they are (Huiskes and Lew 2008; layout in ``protocol.md`` § 1)."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from channelhash.data.images import visible_folders
from channelhash.data.records import Items, Problems, Records, labels_from_names
from channelhash.errors import InputError
from channelhash.utils.typed_settings import unknown

_IMAGE = re.compile(r"im(\d+)\.jpe?g", re.IGNORECASE)
_TAGS = re.compile(r"tags(\d+)\.txt", re.IGNORECASE)
_LABELS = re.compile(r"(?!readme)(.*[^\d])\.txt", re.IGNORECASE)  # not tags1.txt, nor sky_r1.txt of "relevant" labels


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
        root: folder with ``im1.jpg …`` and ``meta/tags``, or one that holds it at some depth; hidden files and what
            macOS adds to archives are left out, and capitals do not matter.
        annotations: folder with the label files of annotations v080 (the ``*_r1.txt`` files of relevant labels are not
            needed); None looks below ``root``, and in folders beside it with "annotations" in their names.
        min_tag_count: how often one of a sample's tags must occur.
        top_tags: instead, one of a sample's tags must be among this many most frequent ones (the paper's text says
            20, which leaves another number of samples).
        raw_tags: read ``meta/tags_raw``, the tags as typed.
        label_names: keep these labels instead of all 24; a sample with none of them has no label.
        skip_bad: count and list bad lines of label files, and labels and tags of missing images.

    Raises:
        InputError: a folder or file is missing, or a line of a label file is not the number of an image.
    """
    folders = visible_folders(root)
    image_folder, images = _numbered(folders, _IMAGE)
    if not images:
        raise InputError(f"{root}: no pictures im1.jpg … here or in a folder below; unpack mirflickr25k.zip there")
    name = "tags_raw" if raw_tags else "tags"
    tag_folders = {path: files for path, files in folders.items() if path.name.lower() == name}
    tag_folder, tag_files = _numbered(tag_folders, _TAGS)
    if not tag_files:
        missing = image_folder / "meta" / name
        raise InputError(f"{missing}: no such folder; unpack mirflickr25k.zip with its meta folder")
    label_files = _label_files(root, folders, annotations)
    problems = Problems(skip_bad)
    labels = _read_labels(label_files, images.keys(), label_names, problems)
    expected = {number: tag_folder / f"tags{number}.txt" for number in sorted(images)}
    tags = {number: _read_tags(tag_files.get(number, path), problems) for number, path in expected.items()}
    if strays := sorted(tag_files.keys() - images.keys()):  # a part of the archive is missing
        line = f"{image_folder}: {len(strays)} tag files have no picture, the first is tags{strays[0]}.txt"
        problems.lines.append(f"{line}; unpack mirflickr25k.zip again")
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
    matrix, columns = labels_from_names(list(rows.values()), list(labels), str(label_files[0].parent))
    items: dict[str, Items] = {"image": tuple(images[n] for n in rows), "text": tuple(" ".join(tags[n]) for n in rows)}
    ids = tuple(f"im{number}" for number in rows)
    return Records(ids, items, matrix, columns, problems.removed, tuple(problems.lines), found=len(images))


def _numbered(folders: Mapping[Path, Sequence[str]], form: re.Pattern[str]) -> tuple[Path, dict[int, Path]]:
    """Return the first folder that has files of this form, and these by their numbers; no files if there is none."""
    for folder, names in folders.items():
        if files := {int(match[1]): folder / name for name in names if (match := form.fullmatch(name))}:
            return folder, files
    return Path(), {}


def _label_files(root: Path, folders: Mapping[Path, Sequence[str]], annotations: Path | None) -> list[Path]:
    """Return the files of the potential labels: the first folder's whose text files begin with a number."""
    if annotations is not None:
        folders = visible_folders(annotations)
    else:
        beside = sorted(path for path in root.resolve().parent.iterdir() if "annotation" in path.name.lower())
        folders = {**folders, **{path: names for place in beside for path, names in visible_folders(place).items()}}
    for folder, names in folders.items():
        files = [folder / name for name in names if _LABELS.fullmatch(name)]
        if any(re.match(rb"\s*\d+\s", path.read_bytes()) for path in files):
            return files
    where = annotations or root
    if any(name.lower().endswith("_r1.txt") for names in folders.values() for name in names):
        raise InputError(f"{where}: has only *_r1.txt files, of relevant labels; add sky.txt …, of potential ones")
    raise InputError(f"{where}: no label files (annotations v080) here, below, or in annotations beside it")


def _read_labels(
    files: Sequence[Path], images: Collection[int], label_names: list[str] | None, problems: Problems
) -> dict[str, set[int]]:
    """Return label name -> numbers of images, for ``label_names`` or all labels."""
    labels: dict[str, set[int]] = {}
    for path in files:
        numbers = labels.setdefault(path.stem.lower(), set())
        for place, line in enumerate(decode_text(path, problems).splitlines(), start=1):
            text = line.strip()
            if text.isdecimal() and int(text) in images:
                numbers.add(int(text))
            elif text:
                shown = f"picture {text}" if text.isdecimal() else repr(text)
                reason = f"{shown} is {'not there' if text.isdecimal() else 'not the number of a picture'}"
                problems.add(f"{path}, line {place}: {reason}", "mend it, or skip such lines with --skip-bad")
    for name in label_names or []:
        if name not in labels:
            raise InputError(f"{files[0].parent}: {unknown(f'label {name!r}', name, sorted(labels))}")
    return {name: labels[name] for name in label_names or sorted(labels)}


def _read_tags(path: Path, problems: Problems) -> list[str]:
    """Return the tags of an image in the file's order, each once, without machine tags."""
    if not path.exists():
        problems.add(f"{path}: no such tag file", "unpack the archive again, or use --skip-bad")
        return []
    lines = (line.strip() for line in decode_text(path, problems).splitlines())
    return list(dict.fromkeys(line for line in lines if line and "=" not in line))


def _frequent_tags(tags: Iterable[list[str]], min_tag_count: int, top_tags: int | None) -> tuple[set[str], str]:
    """Return the frequent tags, and why a sample without any of them is removed."""
    counts = Counter(tag for words in tags for tag in words)
    if top_tags is None:
        frequent = {tag for tag, count in counts.items() if count >= min_tag_count}
        return frequent, f"no tag that occurs {min_tag_count} times"
    by_count = sorted(counts, key=lambda tag: (-counts[tag], tag))
    return set(by_count[:top_tags]), f"none of the {top_tags} most frequent tags"


def decode_text(path: Path, problems: Problems | None = None) -> str:
    """Decode UTF-8, or Latin-1 where a file is not UTF-8 (some tag files are not), and list it then."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if problems is not None:
            problems.lines.append(f"{path}: not UTF-8, read as Latin-1")
        return data.decode("latin-1")
