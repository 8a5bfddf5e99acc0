"""Read the items to index: a folder of images, a table with all its columns, features, or the data
of a configuration.
"""

import importlib.util
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from glob import iglob
from itertools import product
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np

from channelhash.data.captions import find_captions
from channelhash.data.collection import Collection
from channelhash.data.folder import SOURCE_FILE, compose, find_images, load_any
from channelhash.data.records import Features, Records
from channelhash.data.table import TABLE_ENDINGS
from channelhash.data.vectors import content_of
from channelhash.errors import InputError, argument
from channelhash.indexing.columns import add_columns
from channelhash.models.description import Model
from channelhash.search.items import Value
from channelhash.utils.files import write_text
from channelhash.utils.hashes import dump_checked, load_checked

#: Normal forms in which paths are compared: with links as they are, and with links followed.
_NORMAL_FORMS: tuple[Callable[[str], str], ...] = (os.path.abspath, os.path.realpath)


class Unread(NamedTuple):
    """An image that could not be read.

    Attributes:
        problem: what is wrong with it.
        state: of its file at that time, see `changes.reading_state`; empty if unknown.

    >>> Unread("empty picture a.jpg", "").problem
    'empty picture a.jpg'
    """

    problem: str
    state: str


@dataclass(frozen=True)
class PhotoSource:
    """A folder of images, and how to read it.

    Attributes:
        folder: the images, at any depth.
        captions: file of their captions, see `find_captions`.
        exclude: patterns of the files to leave out.
        unread: the images that could not be read the last time, by id.
        ocr: whether to read the text in images if the extra ``ocr`` is installed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as photos:
    ...     store = Path(photos, ".channelhash")
    ...     store.mkdir()
    ...     PhotoSource(Path(photos), exclude=("*.png",)).write(store)
    ...     PhotoSource.read(store).exclude
    ('*.png',)
    """

    folder: Path
    captions: Path | None = None
    exclude: tuple[str, ...] = ()
    unread: Mapping[str, Unread] = field(default_factory=dict)
    ocr: bool = True

    @classmethod
    def read(cls, store: Path) -> "PhotoSource | None":
        """Return what `write` wrote beside a store, or None if it was never called."""
        file = store / SOURCE_FILE
        try:
            values = load_checked(file.read_text(encoding="utf-8"))
            home = store.resolve()
            captions = values["captions"]
            unread = values["unread"].items()
            return cls(
                Path(os.path.normpath(home / values["folder"])),
                None if captions is None else Path(os.path.normpath(home / captions)),
                tuple(map(str, values["exclude"])),
                {name: Unread(problem, state) for name, (problem, state) in unread},
                bool(values.get("ocr", True)),
            )
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(
                f"{file}: is damaged; remove it, and name folder, captions and exclusions anew: "
                f"`channelhash index add {store} PHOTOS`"
            ) from None

    def write(self, store: Path) -> None:
        """Write beside a store how its folder is read.

        If the store lies in the folder of its images, paths are relative to the store, so that both
        can be moved together.
        """
        home = store.resolve()
        folder = self.folder.resolve()
        inside = home.is_relative_to(folder)

        def stored_path(path: Path) -> str:
            absolute = path.resolve()
            if inside and absolute.is_relative_to(folder):
                return os.path.relpath(absolute, home)
            return str(absolute)

        values = {
            "folder": stored_path(self.folder),
            "captions": None if self.captions is None else stored_path(self.captions),
            "exclude": list(self.exclude),
            "unread": {name: list(image) for name, image in self.unread.items() if image.state},
            "ocr": self.ocr,
        }
        write_text(store / SOURCE_FILE, dump_checked(values))


@dataclass(frozen=True)
class Source:
    """Items to index.

    Attributes:
        records: the items.
        metadata: of each item: ``text``, ``image`` (an absolute path), ``labels`` and the other
            columns of a table.
        photos: for a folder of images, the folder and how it is read.
        captions: for a folder, the captions of each image, perhaps none; None without a file of
            captions.
        unread: for a folder, paths in it that cannot be read now. Whether their images still exist
            is unknown.
        ocr: whether to read the text in images, also in those stored without it. By default only
            the text of new images in a folder is read, if the extra ``ocr`` is installed.
        unmatched: for a folder, a line for each exclusion that excludes nothing.
        with_raw: for a folder, the ids of images whose raw original is left out.
        numbered: the file, if the ids are the numbers of its rows.

    >>> records = Records(("a",), {"text": ("a dog",)}, np.zeros((1, 0), dtype=bool), ())
    >>> Source(records, [{"text": "a dog"}]).folder is None
    True
    """

    records: Records
    metadata: list[dict[str, Value]]
    photos: PhotoSource | None = None
    captions: list[tuple[str, ...]] | None = None
    unread: tuple[str, ...] = ()
    ocr: bool | None = None
    unmatched: tuple[str, ...] = ()
    with_raw: frozenset[str] = frozenset()
    numbered: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The folder of the images, if the source is one."""
        return self.photos.folder if self.photos else None

    @property
    def reads_files(self) -> bool:
        """Whether image files are encoded."""
        return "image" in self.records.items and not isinstance(
            self.records.items["image"], Features
        )

    @property
    def has_only_rows(self) -> bool:
        """Whether all values are rows of features."""
        return all(isinstance(values, Features) for values in self.records.items.values())

    @cached_property
    def reads_text(self) -> bool:
        """Whether the text in image files is read."""
        by_default = (
            self.photos is not None
            and self.photos.ocr
            and importlib.util.find_spec("rapidocr") is not None
        )
        return self.reads_files and (by_default if self.ocr is None else self.ocr)

    def modalities_of(self, row: int) -> set[str]:
        """Return the modalities of a row's codes. An image with a caption gets one of ``text``."""
        modalities = set(self.records.items)
        return modalities | {"text"} if self.captions and self.captions[row] else modalities

    def read_raw_of(self, damaged: Set[str]) -> "Source | None":
        """Read the source again, with the raw originals of ``damaged`` images; return None if there
        are none.
        """
        if self.photos is None or self.with_raw.isdisjoint(damaged):
            return None
        photos = self.photos
        again = Source.read(photos.folder, None, photos.exclude, photos.captions, damaged)
        items = {name: again.records.items[name] for name in self.records.items}
        problems = dict.fromkeys((*again.records.problems, *self.records.problems))
        return replace(
            again,
            records=replace(again.records, items=items, problems=tuple(problems)),
            photos=photos,
            captions=again.captions if self.captions is not None else None,
            ocr=self.ocr,
            unmatched=self.unmatched,
        )

    def with_modalities(self, modalities: Sequence[str]) -> "Source":
        """Return the source with only the given modalities, in the given order."""
        items = self.records.items
        encoded = {modality: items[modality] for modality in modalities if modality in items}
        if not encoded:
            raise InputError(
                f"the items have {' and '.join(items)}s, this model encodes "
                f"{' and '.join(modalities)}s; there is nothing to encode"
            )
        captions = self.captions if "text" in modalities else None
        return replace(self, records=replace(self.records, items=encoded), captions=captions)

    def encodable(self, model: Model) -> "Source":
        """Return the source with the modalities that the model encodes, in the model's order."""
        encoded = self.with_modalities(model.modalities)
        for modality, values in encoded.records.items.items():
            if isinstance(values, Features) and not model.takes_rows(modality):
                raise InputError(
                    f"the items are features, but the model {model.name!r} reads pictures and "
                    "texts; give those"
                )
        return encoded

    @classmethod
    def read(
        cls,
        path: Path,
        root: Path | None = None,
        exclude: Sequence[str] = (),
        captions: Path | None = None,
        damaged: Set[str] = frozenset(),
    ) -> "Source":
        """Read the items to index; leave out bad rows of a table and list them in
        ``records.problems``.

        In a folder, the raw originals of ``damaged`` images, given by their ids, are read as well.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = Path(folder, "items.csv")
        ...     _ = table.write_text("id,text,year\\na,a dog,2019\\n")
        ...     Source.read(table).metadata
        [{'text': 'a dog', 'year': 2019}]
        """
        is_table = path.suffix.lower() in TABLE_ENDINGS and content_of(path) == "table"
        if root is not None and not is_table:
            raise InputError(f"{argument('root')}: goes with a table, {path} is none; leave it out")
        if path.is_dir():
            return _read_folder(path, exclude, captions, damaged)
        if exclude or captions is not None:
            option = "exclude" if exclude else "captions"
            raise InputError(
                f"{argument(option)}: goes with a folder, {path} is none; leave it out"
            )
        records = _load_records(path, root)
        if is_table:
            return cls(*add_columns(path, records, _metadata(records)))
        return cls(records, _metadata(records))


def _load_records(path: Path, root: Path | None) -> Records:
    if path.suffix.lower() not in (".yaml", ".yml"):
        return load_any(path, root, skip_bad=True)
    # losses and models, which plain folders do without
    from channelhash.config import read_config

    return Collection.load(read_config(path).sources).records


def _read_folder(
    root: Path, exclude: Sequence[str], captions: Path | None, damaged: Set[str]
) -> Source:
    if isinstance(exclude, str):
        raise InputError(f"exclude={exclude!r}: expected a list of patterns; put it in []")
    patterns = {_from_top(root, pattern): pattern for pattern in exclude}
    listing = find_images(root, list(patterns), damaged)
    top = Path(os.path.abspath(root))
    images = [top / name for name in listing.names]
    metadata: list[dict[str, Value]] = [{"image": str(image)} for image in images]
    texts = None
    problems = listing.problems
    if captions is not None:
        texts, lines = find_captions(captions, listing.names)
        problems = (*problems, *lines)
        _add_captions(metadata, texts)
    labels = np.zeros((len(images), 0), dtype=bool)
    named = zip(listing.ids, listing.names, strict=True)
    return Source(
        Records(listing.ids, {"image": tuple(images)}, labels, (), listing.skipped, problems),
        metadata,
        PhotoSource(top, captions, tuple(patterns)),
        texts,
        listing.unread,
        unmatched=tuple(_unmatched_line(root, patterns[each]) for each in listing.unmatched),
        with_raw=frozenset(name for name, file in named if file in listing.with_raw),
    )


def _add_captions(metadata: list[dict[str, Value]], captions: list[tuple[str, ...]]) -> None:
    for values, texts in zip(metadata, captions, strict=True):
        if texts:
            values["text"] = "\n".join(texts)


def _unmatched_line(root: Path, pattern: str) -> str:
    return (
        f"nothing by exclude {pattern!r}: {root} has no such file or folder; give a path in it, "
        "or a pattern such as '*.gif'"
    )


def _from_top(root: Path, pattern: str) -> str:
    """Return a pattern as one of paths from the top of a folder. A path in it may be absolute, lead
    through links, or start at the top, in the current folder or in the home folder.

    Patterns of names, and paths that are not in the folder, are returned unchanged.
    """
    written = pattern.replace(os.sep, "/").rstrip("/")
    parts = set(written.split("/"))
    if pattern.startswith(("**/", "!")):
        return pattern
    if parts.isdisjoint((".", "..")):
        is_name = len(parts) == 1 and not os.path.islink(root / written)
        if is_name or _holds(root, written.strip("/")):
            return pattern
    below = _paths_below(root, written)
    if not below:
        return pattern
    chosen = next((path for path in below if _holds(root, path)), below[0])
    return f"/{chosen}{'/' * pattern.endswith('/')}"


def _paths_below(root: Path, written: str) -> list[str]:
    """Return the paths from the top of a folder that a path may mean. Those from the current folder
    come first, and those with links as they are before those with links followed.
    """
    tops = [PurePath(compose(find(str(root)))) for find in _NORMAL_FORMS]
    named = os.path.expanduser(written)
    # Files may have names in either form of Unicode, by which links are followed.
    forms = dict.fromkeys((named, compose(named), unicodedata.normalize("NFD", named)))
    below = list[str]()
    for start, form, find in product((os.getcwd(), root), forms, _NORMAL_FORMS):
        place = PurePath(compose(find(os.path.join(start, form))))
        inside = (top for top in tops if top in place.parents)
        below += [place.relative_to(top).as_posix() for top in inside]
    return below


def _holds(root: Path, path: str) -> bool:
    """Return whether a path or pattern from the top, in either form of Unicode, matches a file or a
    folder. A link to a folder does not count, since its content lies elsewhere.
    """
    for form in (path, unicodedata.normalize("NFD", path)):
        matches = iglob(form, root_dir=root, recursive=True, include_hidden=True)
        for found in (root / name for name in (form, *matches)):
            if os.path.lexists(found) and not (found.is_symlink() and found.is_dir()):
                return True
    return False


def _metadata(records: Records) -> list[dict[str, Value]]:
    """Return the metadata that the records hold."""
    columns: dict[str, Sequence[Value]] = {}
    texts = records.display_values("text")
    if texts is not None:
        columns["text"] = texts
    images = records.display_values("image")
    if images is not None:
        columns["image"] = list(map(os.path.abspath, images))
    if records.label_names:
        names = np.array(records.label_names)
        columns["labels"] = [names[labels].tolist() for labels in records.labels]
    metadata: list[dict[str, Value]] = [{} for _ in records.ids]
    for name, values in columns.items():
        for row, value in enumerate(values):
            metadata[row][name] = value
    return metadata
