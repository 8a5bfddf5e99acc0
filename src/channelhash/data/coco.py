"""COCO-style annotations: ``instances_*.json`` for labels, ``captions_*.json`` for texts."""

import json
from pathlib import Path
from typing import Any

from channelhash.data.pictures import picture_problem
from channelhash.data.records import Records, labels_from_names
from channelhash.errors import InputError


def load_coco(
    instances: Path,
    captions: Path,
    root: Path | None = None,
    all_captions: bool = False,
    skip_bad: bool = False,
) -> Records:
    """Read COCO-style JSON files; the labels of a picture are the names of the categories in it.

    Args:
        instances: JSON with ``images``, ``annotations`` (``image_id``, ``category_id``) and ``categories``.
        captions: JSON with ``annotations`` (``image_id``, ``caption``).
        root: folder of the pictures; the folder of ``instances`` if None.
        all_captions: the text is all captions of a picture, not only the first.
        skip_bad: leave out pictures that are missing or have no caption, and annotations of unknown pictures;
            count and list them.

    Raises:
        InputError: a file is missing or not such JSON; an id occurs twice; an annotation names an image or category
            that is not there; a picture is missing or has no caption.
    """
    described = _read(instances, ("images", "annotations", "categories"))
    captioned = _read(captions, ("annotations",))
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
    categories = {category["id"]: str(category["name"]) for category in described["categories"]}
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
    for annotation in captioned["annotations"]:
        if annotation["image_id"] not in files:
            line = f"{captions}: a caption is for image {annotation['image_id']}, which {instances.name} does not list"
            bad("caption of a missing image", line)
        elif str(annotation["caption"]).strip():
            texts[annotation["image_id"]].append(str(annotation["caption"]).strip())

    kept = []
    for image, file_name in files.items():
        problem = picture_problem(folder / file_name, decode=False)
        if problem:
            bad("missing picture", f"{instances}: image {image}: {problem}")
        elif not texts[image]:
            bad("empty text", f"{captions}: image {image} has no caption")
        else:
            kept.append(image)
    if not kept:
        raise InputError(f"{instances}: no usable image is left of {len(files)}")
    matrix, names = labels_from_names(
        [sorted(labels[image]) for image in kept], sorted(set(categories.values())), str(instances)
    )
    return Records(
        tuple(str(image) for image in kept),
        {
            "image": tuple(folder / files[image] for image in kept),
            "text": tuple(" ".join(texts[image] if all_captions else texts[image][:1]) for image in kept),
        },
        matrix,
        names,
        removed,
        tuple(problems),
        found=len(described["images"]),
    )


def _read(path: Path, keys: tuple[str, ...]) -> dict[str, list[dict[str, Any]]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    for key in keys:
        if not isinstance(document, dict) or not isinstance(document.get(key), list):
            raise InputError(f"{path}: has no list {key!r}; it is not a COCO annotation file of this kind")
    checked: dict[str, list[dict[str, Any]]] = document
    return checked
