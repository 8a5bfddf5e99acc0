"""COCO-style annotations: ``instances_*.json`` for labels, ``captions_*.json`` for texts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from channelhash.data.cells import captions_of
from channelhash.data.images import image_problem, locate_image
from channelhash.data.records import DataItem, Problems, Records, records_from_rows
from channelhash.errors import InputError, argument
from channelhash.utils.decode import read_json

_JsonObjects = list[dict[str, Any]]


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
    files = _as_list(instances)
    if not files:
        raise InputError("data.instances: lists no file; name at least one")
    caption_files = _as_list(captions)
    reader = _CocoReader(Problems(skip_bad))
    for file in files:
        reader.read_instances(file, root or file.parent)
    for file in caption_files:
        reader.read_captions(file, " and ".join(listed.name for listed in files))
    items = list(reader.usable(caption_files))
    names = sorted(set(reader.categories.values()))
    return records_from_rows(items, names, str(files[0]), reader.problems, reader.n_found)


@dataclass
class _AnnotatedImage:
    """An image and what the annotations say of it; ``source`` is the file that lists it."""

    path: Path
    source: Path
    labels: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)


class _CocoReader:
    """Reads the images of a collection from one file after another.

    Attributes:
        images: id -> image.
        categories: number of a category -> its name.
        n_found: number of images that the files list.
    """

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.images: dict[Any, _AnnotatedImage] = {}
        self.categories: dict[Any, str] = {}
        self.n_found = 0

    def read_instances(self, file: Path, root: Path) -> None:
        """Read images, categories and labels."""
        document = _read(
            file,
            images=("id", "file_name"),
            annotations=("image_id", "category_id"),
            categories=("id", "name"),
        )
        self.n_found += len(document["images"])
        folder = _image_folder(root, file, document["images"])
        for entry in document["images"]:
            name = entry["id"]
            if name in self.images:
                self._report(f"{file}: the image id {name} occurs twice", "duplicate id")
            else:
                self.images[name] = _AnnotatedImage(locate_image(folder, entry["file_name"]), file)
        for category in document["categories"]:
            number = category["id"]
            known = self.categories.setdefault(number, category["name"])
            if known != category["name"]:
                raise InputError(
                    f"{file}: category {number} is {category['name']!r}, elsewhere {known!r}; mend "
                    "it"
                )
        for annotation in document["annotations"]:
            self._add_label(file, annotation["image_id"], annotation["category_id"])

    def _add_label(self, file: Path, name: Any, category: Any) -> None:
        image = self.images.get(name)
        if image is None or image.source != file:
            line = f"{file}: an annotation is for image {name}, which is not listed"
            self._report(line, "label of a missing image")
        elif category not in self.categories:
            line = f"{file}: image {name} has the unknown category {category}"
            self._report(line, "unknown category")
        else:
            image.labels.append(self.categories[category])

    def read_captions(self, file: Path, listed: str) -> None:
        """Read the texts of the images that the files ``listed`` list."""
        for annotation in _read(file, annotations=("image_id", "caption"))["annotations"]:
            name = annotation["image_id"]
            texts = captions_of(annotation["caption"])
            if name in self.images:
                self.images[name].texts += filter(None, map(str.strip, texts))
            else:
                line = f"{file}: a caption is for image {name}, which {listed} does not list"
                self._report(line, "caption of a missing image")

    def usable(self, caption_files: Sequence[Path]) -> Iterator[DataItem]:
        """Yield the images that can be read and, if there are captions, have one; report the
        others.
        """
        where = " and ".join(map(str, caption_files))
        for name, image in self.images.items():
            values: dict[str, Path | str] = {"image": image.path}
            if caption_files:
                values["text"] = next(iter(image.texts), "")
            problem = image_problem(image.path, full=False)
            if problem:
                reason = "unreadable picture" if image.path.is_file() else "missing picture"
                self._report(f"{image.source}: image {name}: {problem}", reason)
            elif values.get("text") == "":
                self._report(f"{where}: image {name} has no caption", "empty text")
            else:
                yield DataItem(str(name), values, image.labels)

    def _report(self, line: str, reason: str) -> None:
        self.problems.add(
            line, f"mend it, or leave such entries out with {argument('skip_bad')}", reason
        )


def _as_list(files: Path | list[Path] | None) -> list[Path]:
    return [files] if isinstance(files, Path) else files or []


def _image_folder(root: Path, instances: Path, images: _JsonObjects) -> Path:
    """Return the folder with the images of a file: ``root``, or that of a part such as
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
    for folder in folders:
        if images and locate_image(folder, images[0]["file_name"]).is_file():
            return folder
    return root


def _read(path: Path, **lists: tuple[str, ...]) -> dict[str, _JsonObjects]:
    """Read lists of a file and check that every entry has these keys.

    The value of a key that ends in ``id`` is a number or a text, that of another key a text.
    """
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a JSON file")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    document = read_json(path, "not JSON, perhaps truncated")
    for name, keys in lists.items():
        entries = document.get(name)
        if not isinstance(entries, list):
            raise InputError(
                f"{path}: has no list {name!r}; it is not a COCO annotation file of this kind"
            )
        for place, entry in enumerate(entries):
            problem = _entry_problem(entry, keys)
            if problem:
                raise InputError(f"{path}: {name}[{place}]: {problem}")
    return document


def _entry_problem(entry: Any, keys: Sequence[str]) -> str:
    """Return which key of an entry is missing or of another type; empty if none is."""
    values = entry if isinstance(entry, dict) else {}
    for key in keys:
        is_id = key.endswith("id")
        if not isinstance(values.get(key), int | str if is_id else str):
            expected = "a number or a text" if is_id else "a text"
            value = repr(values[key]) if key in values else "not there"
            return f"{key!r} is {value}, expected {expected}"
    return ""
