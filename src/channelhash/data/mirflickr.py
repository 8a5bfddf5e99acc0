"""MIRFLICKR-25k, the official archives as they are (Huiskes and Lew 2008; layout in ``protocol.md`` § 1)."""

import re
from collections import Counter
from pathlib import Path

from channelhash.data.records import Records, labels_from_names
from channelhash.errors import InputError
from channelhash.utils.typed_settings import unknown

_PICTURE = re.compile(r"im(\d+)\.jpg$")


def load_mirflickr(
    root: Path,
    annotations: Path | None = None,
    min_tag_count: int = 20,
    top_tags: int | None = None,
    raw_tags: bool = False,
    label_names: list[str] | None = None,
    skip_bad: bool = False,
) -> Records:
    """Read pictures, hashtags and the 24 potential labels, and keep the usable samples.

    A sample is usable with at least one label, one tag, and one tag that occurs ``min_tag_count`` times in the
    collection; of the official 25,000 that leaves 20,015. Tags with ``=`` (machine tags) are dropped before counting;
    rare tags stay in the text of a sample that is kept.

    Args:
        root: folder with ``im1.jpg …`` and ``meta/tags``, or one that holds it as ``mirflickr/`` or ``pictures/``.
        annotations: folder with the label files of annotations v080; None looks for ``annotations`` or
            ``mirflickr25k_annotations_v080``, in or beside ``root``.
        min_tag_count: how often one of a sample's tags has to occur.
        top_tags: instead, one of a sample's tags has to be among so many most frequent ones (the paper's text says 20,
            which leaves another number of samples).
        raw_tags: read ``meta/tags_raw``, the tags as typed.
        label_names: keep these labels instead of all 24; a sample with none of them has no label.
        skip_bad: count and list bad lines of label files, and labels and tags of missing pictures.

    Raises:
        InputError: a folder or file is missing, a line of a label file is not the number of a picture.
    """
    pictures_folder = _folder(
        root, [".", "mirflickr", "mirflickr25k", "pictures/mirflickr", "pictures"], "im*.jpg", "pictures im1.jpg …"
    )
    pictures = {int(match[1]): path for path in pictures_folder.iterdir() if (match := _PICTURE.fullmatch(path.name))}
    tags_folder = pictures_folder / "meta" / ("tags_raw" if raw_tags else "tags")
    if not tags_folder.is_dir():
        raise InputError(f"{tags_folder}: no such folder; unpack mirflickr25k.zip with its meta folder")
    versioned = "mirflickr25k_annotations_v080"
    names = ["annotations", f"annotations/{versioned}", versioned, "mirflickr25k_annotations"]
    label_folder = annotations or _folder(
        root, [*names, ".", *[f"../{name}" for name in names]], "*_r1.txt", "label files (annotations v080)"
    )
    problems: list[str] = []
    labels = _read_labels(label_folder, set(pictures), skip_bad, problems)
    for name in label_names or []:
        if name not in labels:
            raise InputError(f"{label_folder}: {unknown(f'label {name!r}', name, sorted(labels))}")
    labels = {name: labels[name] for name in label_names or sorted(labels)}
    numbers = sorted(pictures)
    tags = {number: _read_tags(tags_folder, number, skip_bad, problems) for number in numbers}

    missing = sorted(set(_numbers_of_tag_files(tags_folder)) - set(pictures))
    if missing:
        problems.append(
            f"{pictures_folder}: {len(missing)} tag files have no picture, the first is tags{missing[0]}.txt; "
            "unpack mirflickr25k.zip again"
        )

    counts = Counter(tag for words in tags.values() for tag in set(words))
    if top_tags is None:
        known = {tag for tag, count in counts.items() if count >= min_tag_count}
        rare = f"no tag that occurs {min_tag_count} times"
    else:
        known = {tag for tag, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:top_tags]}
        rare = f"none of the {top_tags} most frequent tags"
    carried: dict[int, list[str]] = {number: [] for number in numbers}
    for name, marked in labels.items():
        for number in marked:
            carried[number].append(name)
    removed: Counter[str] = Counter()
    kept = []
    for number in numbers:
        if not tags[number]:
            removed["no tag"] += 1
        elif not carried[number]:
            removed["no label"] += 1
        elif known.isdisjoint(tags[number]):
            removed[rare] += 1
        else:
            kept.append(number)
    if not kept:
        raise InputError(f"{root}: no usable sample is left of {len(numbers)}: {dict(removed)}")
    matrix, columns = labels_from_names([carried[number] for number in kept], list(labels), str(label_folder))
    return Records(
        tuple(f"im{number}" for number in kept),
        {
            "image": tuple(pictures[number] for number in kept),
            "text": tuple(" ".join(tags[number]) for number in kept),
        },
        matrix,
        columns,
        dict(removed),
        tuple(problems),
        found=len(numbers),
    )


def _folder(root: Path, candidates: list[str], pattern: str, what: str) -> Path:
    for candidate in candidates:
        folder = root / candidate
        if folder.is_dir() and next(folder.glob(pattern), None):
            return folder
    raise InputError(f"{root}: no {what} here or in {', '.join(c for c in candidates if c != '.')}")


def _read_labels(folder: Path, known: set[int], skip_bad: bool, problems: list[str]) -> dict[str, list[int]]:
    """Label name -> numbers of pictures; ``README*`` and the ``*_r1.txt`` files of relevant labels are not read."""
    labels: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.txt")):
        if path.name.lower().startswith("readme") or path.stem.endswith("_r1"):
            continue
        numbers = labels.setdefault(path.stem, [])
        for place, line in enumerate(_decode(path, problems).splitlines(), start=1):
            text = line.strip()
            if text.isdecimal() and int(text) in known:
                numbers.append(int(text))
            elif text:
                what = (
                    f"picture {text} is not there" if text.isdecimal() else f"{text!r} is not the number of a picture"
                )
                if not skip_bad:
                    raise InputError(f"{path}, line {place}: {what}; mend it, or skip such lines with --skip-bad")
                problems.append(f"{path}, line {place}: {what}")
    if not labels:
        raise InputError(f"{folder}: no label files")
    return labels


def _read_tags(folder: Path, number: int, skip_bad: bool, problems: list[str]) -> list[str]:
    """The tags of a picture in the file's order, each once, without machine tags."""
    path = folder / f"tags{number}.txt"
    if not path.exists():
        if not skip_bad:
            raise InputError(f"{path}: no such tag file; unpack the archive again, or use --skip-bad")
        problems.append(f"{path}: no such tag file")
        return []
    lines = (line.strip() for line in _decode(path, problems).splitlines())
    return list(dict.fromkeys(line for line in lines if line and "=" not in line))


def _numbers_of_tag_files(folder: Path) -> list[int]:
    return [int(match[1]) for path in folder.iterdir() if (match := re.fullmatch(r"tags(\d+)\.txt", path.name))]


def _decode(path: Path, problems: list[str]) -> str:
    """UTF-8, or Latin-1 where a file is not UTF-8 (some tag files are not), which is listed."""
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        problems.append(f"{path}: not UTF-8, read as Latin-1")
        return data.decode("latin-1")
