"""COCO-style annotations: ``instances_*.json`` for labels, ``captions_*.json`` for texts."""

from collections import defaultdict
from pathlib import Path
from typing import Any

from channelhash.data.images import image_problem, locate_image
from channelhash.data.records import Problems, Records, records_from_rows
from channelhash.data.table import captions_of
from channelhash.errors import InputError
from channelhash.utils.decode import read_json

_Entries = list[dict[str, Any]]

_REMEDY = "mend it, or leave such entries out with --skip-bad"


def load_coco(
    instances: Path | list[Path],
    captions: Path | list[Path] | None = None,
    root: Path | None = None,
    skip_bad: bool = False,
) -> Records:
    """Read COCO-style JSON files; the labels of an image are the names of the categories in it.

    An image without annotations is kept: it is similar to nothing (`describe` counts such images).
    Several files, such as those of train2014 and val2014, are one collection, in their order.

    Args:
        instances: JSON with ``images``, ``annotations`` (``image_id``, ``category_id``) and
            ``categories``; one file or a list.
        captions: JSON with ``annotations`` (``image_id``, ``caption``), likewise; None for images
            alone.
        root: folder of the images; the folder of ``instances`` if None. Images of
            ``instances_val2014.json`` may be in a folder ``val2014`` there, or beside the folder of
            the annotations.
        skip_bad: leave out images that are missing or have no caption, and annotations of unknown
            images; count and list them.

    Raises:
        InputError: a file is missing or not such JSON, or an entry lacks a key; an id occurs twice;
            an annotation names an unknown image or category, or a category has two names; an image
            is missing or empty or has no caption.
    """
    files, caption_files = _listed(instances), _listed(captions)
    if not files:
        raise InputError("data.instances: lists no file; name at least one")
    problems = Problems(skip_bad)
    # id -> its file, and the file of instances that lists it
    images: dict[Any, tuple[Path, Path]] = {}
    categories: dict[Any, str] = {}
    labels = defaultdict[Any, list[str]](list)
    n_found = 0
    for file in files:
        document = _read(
            file,
            images=("id", "file_name"),
            annotations=("image_id", "category_id"),
            categories=("id", "name"),
        )
        n_found += len(document["images"])
        folder = _image_folder(root or file.parent, file, document["images"])
        for image in document["images"]:
            if image["id"] in images:
                problems.add(
                    f"{file}: the image id {image['id']} occurs twice", _REMEDY, "duplicate id"
                )
            else:
                images[image["id"]] = (locate_image(folder, image["file_name"]), file)
        for category in document["categories"]:
            number, name = category["id"], category["name"]
            if categories.setdefault(number, name) != name:
                raise InputError(
                    f"{file}: category {number} is {name!r}, elsewhere {categories[number]!r}; "
                    "mend it"
                )
        for annotation in document["annotations"]:
            image, category = annotation["image_id"], annotation["category_id"]
            if image not in images or images[image][1] != file:
                line = f"{file}: an annotation is for image {image}, which is not listed"
                problems.add(line, _REMEDY, "label of a missing image")
            elif category not in categories:
                line = f"{file}: image {image} has the unknown category {category}"
                problems.add(line, _REMEDY, "unknown category")
            else:
                labels[image].append(categories[category])
    texts = defaultdict[Any, list[str]](list)
    for file in caption_files:
        for annotation in _read(file, annotations=("image_id", "caption"))["annotations"]:
            image = annotation["image_id"]
            several = map(str.strip, captions_of(annotation["caption"]))
            if image not in images:
                listed = " and ".join(instances.name for instances in files)
                line = f"{file}: a caption is for image {image}, which {listed} does not list"
                problems.add(line, _REMEDY, "caption of a missing image")
            else:
                texts[image] += filter(None, several)
    rows = []
    where = " and ".join(map(str, caption_files))
    for image, (path, source) in images.items():
        if problem := image_problem(path, full=False):
            reason = "unreadable picture" if path.is_file() else "missing picture"
            problems.add(f"{source}: image {image}: {problem}", _REMEDY, reason)
        elif caption_files and not texts[image]:
            problems.add(f"{where}: image {image} has no caption", _REMEDY, "empty text")
        else:
            values = {"image": path, "text": texts[image][0]} if caption_files else {"image": path}
            rows.append((str(image), values, labels[image]))
    return records_from_rows(
        rows, sorted(set(categories.values())), str(files[0]), problems, n_found
    )


def _listed(files: Path | list[Path] | None) -> list[Path]:
    return [files] if isinstance(files, Path) else files or []


def _image_folder(root: Path, instances: Path, images: _Entries) -> Path:
    """Return where the images of a file are: in ``root``, or in the folder of its part, such as
    ``val2014``.
    """
    part = instances.stem.rpartition("_")[2]
    folders = (
        root,
        root / part,
        root / "images" / part,
        root.parent / part,
        root.parent / "images" / part,
    )
    names = (image["file_name"] for image in images[:1])
    return next(
        (folder for name in names for folder in folders if locate_image(folder, name).is_file()),
        root,
    )


def _read(path: Path, **lists: tuple[str, ...]) -> dict[str, _Entries]:
    """Read lists of a file and check that every entry has these keys: those that end in ``id``, and
    texts.
    """
    if not path.is_file():
        raise InputError(
            f"{path}: {'is a folder, not a JSON file' if path.is_dir() else 'no such file'}"
        )
    document = read_json(path, "not JSON, perhaps truncated")
    for name, keys in lists.items():
        if not isinstance(document.get(name), list):
            raise InputError(
                f"{path}: has no list {name!r}; it is not a COCO annotation file of this kind"
            )
        for place, entry in enumerate(document[name]):
            values = entry if isinstance(entry, dict) else {}
            for key in keys:
                if not isinstance(values.get(key), int | str if key.endswith("id") else str):
                    expected = "a number or a text" if key.endswith("id") else "a text"
                    value = repr(values[key]) if key in values else "not there"
                    raise InputError(
                        f"{path}: {name}[{place}]: {key!r} is {value}, expected {expected}"
                    )
    return {name: document[name] for name in lists}
