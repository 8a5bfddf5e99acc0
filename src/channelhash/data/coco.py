"""COCO-style annotations: ``instances_*.json`` for labels, ``captions_*.json`` for texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from channelhash.data.images import image_problem
from channelhash.data.records import Items, Problems, Records, labels_from_names
from channelhash.errors import InputError
from channelhash.utils.reading import read_json

Entries = list[dict[str, Any]]

#: Keys that an entry of each list must have, with their types.
_ID = (int, str)
_IMAGES: Mapping[str, tuple[type, ...]] = {"id": _ID, "file_name": (str,)}
_CATEGORIES: Mapping[str, tuple[type, ...]] = {"id": _ID, "name": (str,)}
_INSTANCES: Mapping[str, tuple[type, ...]] = {"image_id": _ID, "category_id": _ID}
_CAPTIONS: Mapping[str, tuple[type, ...]] = {"image_id": _ID, "caption": (str,)}

_REMEDY = "mend it, or leave such entries out with --skip-bad"


def load_coco(
    instances: Path,
    captions: Path | None = None,
    root: Path | None = None,
    all_captions: bool = False,
    skip_bad: bool = False,
) -> Records:
    """Read COCO-style JSON files; the labels of an image are the names of the categories in it.

    An image without annotations is kept: it is similar to nothing (`describe` counts such images).

    Args:
        instances: JSON with ``images``, ``annotations`` (``image_id``, ``category_id``) and ``categories``.
        captions: JSON with ``annotations`` (``image_id``, ``caption``); None for a collection of images alone.
        root: folder of the images; the folder of ``instances`` if None.
        all_captions: take all captions of an image as its text, not only the first.
        skip_bad: leave out images that are missing or have no caption, and annotations of unknown images; count and
            list them.

    Raises:
        InputError: a file is missing or not such JSON, or an entry lacks a key; an id occurs twice; an annotation names
            an unknown image or category; an image is missing or empty or has no caption.
    """
    document = _read(instances, {"images": _IMAGES, "annotations": _INSTANCES, "categories": _CATEGORIES})
    folder = instances.parent if root is None else root
    problems = Problems(skip_bad)
    files = _files(document["images"], instances, problems)
    categories = _categories(document["categories"], instances)
    labels = _labels(document["annotations"], files, categories, instances, problems)
    texts = _texts(captions, files, instances, problems) if captions is not None else None
    usable = []
    for image, file_name in files.items():
        if problem := image_problem(folder / file_name, whole=False):
            reason = "unreadable picture" if (folder / file_name).is_file() else "missing picture"
            problems.add(f"{instances}: image {image}: {problem}", _REMEDY, reason)
        elif texts is not None and not texts[image]:
            problems.add(f"{captions}: image {image} has no caption", _REMEDY, "empty text")
        else:
            usable.append(image)
    if not usable:
        first = f"; the first problem is {problems.lines[0]}" if problems.lines else ""
        raise InputError(f"{instances}: no usable image is left of {len(files)}{first}")
    names = [sorted(labels[image]) for image in usable]
    matrix, columns = labels_from_names(names, sorted(set(categories.values())), str(instances))
    items: dict[str, Items] = {"image": tuple(folder / files[image] for image in usable)}
    if texts is not None:
        items["text"] = tuple(" ".join(texts[image] if all_captions else texts[image][:1]) for image in usable)
    found = len(document["images"])
    return Records(tuple(map(str, usable)), items, matrix, columns, problems.removed, tuple(problems.lines), found)


def _files(images: Entries, instances: Path, problems: Problems) -> dict[Any, str]:
    """Return image id -> file name."""
    files: dict[Any, str] = {}
    for image in images:
        if image["id"] in files:
            problems.add(f"{instances}: the image id {image['id']} occurs twice", _REMEDY, "duplicate id")
        else:
            files[image["id"]] = image["file_name"]
    return files


def _categories(entries: Entries, instances: Path) -> dict[Any, str]:
    """Return category id -> name."""
    categories: dict[Any, str] = {}
    for category in entries:
        if category["id"] in categories:
            raise InputError(f"{instances}: the category id {category['id']} occurs twice; mend it")
        categories[category["id"]] = category["name"]
    return categories


def _labels(
    annotations: Entries, files: dict[Any, str], categories: dict[Any, str], instances: Path, problems: Problems
) -> dict[Any, set[str]]:
    """Return image id -> names of its categories."""
    labels: dict[Any, set[str]] = {image: set() for image in files}
    for annotation in annotations:
        image, category = annotation["image_id"], annotation["category_id"]
        if image not in files:
            line = f"{instances}: an annotation is for image {image}, which is not listed"
            problems.add(line, _REMEDY, "label of a missing image")
        elif category not in categories:
            line = f"{instances}: image {image} has the unknown category {category}"
            problems.add(line, _REMEDY, "unknown category")
        else:
            labels[image].add(categories[category])
    return labels


def _texts(captions: Path, files: dict[Any, str], instances: Path, problems: Problems) -> dict[Any, list[str]]:
    """Return image id -> captions that are not empty."""
    texts: dict[Any, list[str]] = {image: [] for image in files}
    for annotation in _read(captions, {"annotations": _CAPTIONS})["annotations"]:
        image = annotation["image_id"]
        if image not in files:
            line = f"{captions}: a caption is for image {image}, which {instances.name} does not list"
            problems.add(line, _REMEDY, "caption of a missing image")
        elif caption := annotation["caption"].strip():
            texts[image].append(caption)
    return texts


def _read(path: Path, lists: Mapping[str, Mapping[str, tuple[type, ...]]]) -> dict[str, Entries]:
    """Read lists of a file and check the keys and types of every entry."""
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder, not a JSON file' if path.is_dir() else 'no such file'}")
    document = read_json(path, "not JSON, perhaps truncated")
    for name, keys in lists.items():
        if not isinstance(document.get(name), list):
            raise InputError(f"{path}: has no list {name!r}; it is not a COCO annotation file of this kind")
        for place, entry in enumerate(document[name]):
            for key, types in keys.items():
                if not isinstance(entry, dict) or not isinstance(entry.get(key), types):
                    expected = " or ".join({int: "a number", str: "a text"}[kind] for kind in types)
                    value = repr(entry.get(key)) if isinstance(entry, dict) and key in entry else "not there"
                    raise InputError(f"{path}: {name}[{place}]: {key!r} is {value}, expected {expected}")
    return {name: document[name] for name in lists}
