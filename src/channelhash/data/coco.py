"""COCO-style annotations: ``instances_*.json`` for labels, ``captions_*.json`` for texts."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from channelhash.data.images import image_problem
from channelhash.data.records import Items, Records, labels_from_names
from channelhash.errors import InputError

Entries = list[dict[str, Any]]

#: What an entry of each list must have, and of which types.
_ID = (int, str)
_IMAGES: Mapping[str, tuple[type, ...]] = {"id": _ID, "file_name": (str,)}
_CATEGORIES: Mapping[str, tuple[type, ...]] = {"id": _ID, "name": (str,)}
_INSTANCES: Mapping[str, tuple[type, ...]] = {"image_id": _ID, "category_id": _ID}
_CAPTIONS: Mapping[str, tuple[type, ...]] = {"image_id": _ID, "caption": (str,)}


def load_coco(
    instances: Path,
    captions: Path | None = None,
    root: Path | None = None,
    all_captions: bool = False,
    skip_bad: bool = False,
) -> Records:
    """Read COCO-style JSON files; the labels of a picture are the names of the categories in it.

    A picture without annotation is kept: it is similar to nothing (`describe` counts such pictures).

    Args:
        instances: JSON with ``images``, ``annotations`` (``image_id``, ``category_id``) and ``categories``.
        captions: JSON with ``annotations`` (``image_id``, ``caption``); a collection of pictures alone if None.
        root: folder of the pictures; the folder of ``instances`` if None.
        all_captions: the text is all captions of a picture, not only the first.
        skip_bad: leave out pictures that are missing or have no caption, and annotations of unknown pictures;
            count and list them.

    Raises:
        InputError: a file is missing or not such JSON, or an entry has not the keys that it should; an id occurs twice;
            an annotation names an image or category that is not there; a picture is missing or empty or has no caption.
    """
    described = _read(instances, {"images": _IMAGES, "annotations": _INSTANCES, "categories": _CATEGORIES})
    captioned = _read(captions, {"annotations": _CAPTIONS})["annotations"] if captions is not None else []
    folder = instances.parent if root is None else root
    removed: dict[str, int] = {}
    problems: list[str] = []

    def bad(reason: str, line: str) -> None:
        if not skip_bad:
            raise InputError(f"{line}; mend it, or leave such entries out with --skip-bad")
        removed[reason] = removed.get(reason, 0) + 1
        problems.append(line)

    files: dict[Any, str] = {}
    for image in described["images"]:
        if image["id"] in files:
            bad("duplicate id", f"{instances}: the image id {image['id']} occurs twice")
        else:
            files[image["id"]] = image["file_name"]
    categories: dict[Any, str] = {}
    for category in described["categories"]:
        if category["id"] in categories:
            raise InputError(f"{instances}: the category id {category['id']} occurs twice; mend it")
        categories[category["id"]] = category["name"]
    labels: dict[Any, set[str]] = {image: set() for image in files}
    for annotation in described["annotations"]:
        image, category = annotation["image_id"], annotation["category_id"]
        if image not in files:
            bad("label of a missing image", f"{instances}: an annotation is for image {image}, which is not listed")
        elif category not in categories:
            bad("unknown category", f"{instances}: image {image} has the unknown category {category}")
        else:
            labels[image].add(categories[category])
    texts: dict[Any, list[str]] = {image: [] for image in files}
    for annotation in captioned:
        if annotation["image_id"] not in files:
            line = f"{captions}: a caption is for image {annotation['image_id']}, which {instances.name} does not list"
            bad("caption of a missing image", line)
        elif caption := annotation["caption"].strip():
            texts[annotation["image_id"]].append(caption)

    kept = []
    for image, file_name in files.items():
        problem = image_problem(folder / file_name, decode=False)
        if problem:
            reason = "unreadable picture" if (folder / file_name).is_file() else "missing picture"
            bad(reason, f"{instances}: image {image}: {problem}")
        elif captions is not None and not texts[image]:
            bad("empty text", f"{captions}: image {image} has no caption")
        else:
            kept.append(image)
    if not kept:
        first = f"; the first problem is {problems[0]}" if problems else ""
        raise InputError(f"{instances}: no usable image is left of {len(files)}{first}")
    matrix, names = labels_from_names(
        [sorted(labels[image]) for image in kept], sorted(set(categories.values())), str(instances)
    )
    items: dict[str, Items] = {"image": tuple(folder / files[image] for image in kept)}
    if captions is not None:
        items["text"] = tuple(" ".join(texts[image] if all_captions else texts[image][:1]) for image in kept)
    return Records(
        tuple(str(image) for image in kept),
        items,
        matrix,
        names,
        removed,
        tuple(problems),
        found=len(described["images"]),
    )


def _read(path: Path, lists: Mapping[str, Mapping[str, tuple[type, ...]]]) -> dict[str, Entries]:
    """The lists of a file, each entry with the keys and types that it must have."""
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder, not a JSON file' if path.is_dir() else 'no such file'}")
    try:
        document = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON, perhaps truncated ({error})") from None
    for name, keys in lists.items():
        if not isinstance(document, dict) or not isinstance(document.get(name), list):
            raise InputError(f"{path}: has no list {name!r}; it is not a COCO annotation file of this kind")
        for place, entry in enumerate(document[name]):
            for key, types in keys.items():
                if not isinstance(entry, dict) or not isinstance(entry.get(key), types):
                    expected = " or ".join({int: "a number", str: "a text"}[kind] for kind in types)
                    given = repr(entry.get(key)) if isinstance(entry, dict) and key in entry else "not there"
                    raise InputError(f"{path}: {name}[{place}]: {key!r} is {given}, expected {expected}")
    return {name: document[name] for name in lists}
