"""Read the items of a store: a folder of images, a table with all its columns, features, or a
configuration's data.
"""

import importlib.util
import math
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from glob import iglob
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from channelhash.data.collection import Collection
from channelhash.data.folder import compose, find_captions, find_images, load_any
from channelhash.data.records import Features, Records
from channelhash.data.table import TABLE_ENDINGS, Row, read_rows, text_of
from channelhash.errors import InputError
from channelhash.models.description import Model
from channelhash.search.checks import key_problem
from channelhash.search.items import Value
from channelhash.search.sqlite.folder import StoreFolder
from channelhash.utils.files import write_text
from channelhash.utils.hashes import dump_checked, load_checked

#: What makes one path of those that lead to a file: by their names, and by the links in them.
_NORMAL_FORMS: tuple[Callable[[str], str], ...] = (os.path.abspath, os.path.realpath)
#: Columns of a table that `load_table` reads; all others become metadata.
_READ = ("id", "image", "text", "labels")
#: A number as JSON writes it: ``007``, ``+5``, ``1_000`` and ``0x10`` are texts.
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(?P<fraction>(\.\d+)?([eE][-+]?\d+)?)", re.ASCII)
_INTEGERS = range(-(2**63), 2**63)
_MOST_DIGITS = 20


class Unread(NamedTuple):
    """An image that could not be read: what is wrong with it, and what its file was then, empty if
    unknown.

    >>> Unread("empty picture a.jpg", "").problem
    'empty picture a.jpg'
    """

    problem: str
    state: str


@dataclass(frozen=True)
class PhotoSource:
    """A folder of photographs and how it is read.

    Attributes:
        folder: the photographs, at any depth.
        captions: file of their captions, see `find_captions`.
        exclude: patterns of the files that are left out.
        unread: by their ids, the images that could not be read the last time.
        ocr: whether the text in them is read where that can be done.

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
        """Return what `write` kept with a store, or None if it was never called."""
        file = StoreFolder(store).source
        try:
            values = load_checked(file.read_text(encoding="utf-8"))
            home = store.resolve()
            captions = values["captions"]
            return cls(
                Path(os.path.normpath(home / values["folder"])),
                None if captions is None else Path(os.path.normpath(home / captions)),
                tuple(map(str, values["exclude"])),
                {
                    name: Unread(problem, state)
                    for name, (problem, state) in values["unread"].items()
                },
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
        """Keep with a store what it was made of.

        Paths are relative to a store that lies in its photographs' folder, so that both can be
        moved together.
        """
        home = store.resolve()
        folder = self.folder.resolve()
        inside = home.is_relative_to(folder)

        def stored_path(path: Path) -> str:
            absolute = path.resolve()
            return (
                os.path.relpath(absolute, home)
                if inside and absolute.is_relative_to(folder)
                else str(absolute)
            )

        values = {
            "folder": stored_path(self.folder),
            "captions": None if self.captions is None else stored_path(self.captions),
            "exclude": list(self.exclude),
            "unread": {name: list(each) for name, each in self.unread.items() if each.state},
            "ocr": self.ocr,
        }
        write_text(StoreFolder(store).source, dump_checked(values))


@dataclass(frozen=True)
class Source:
    """Items to index.

    Attributes:
        records: the items.
        metadata: for each item, as far as known: ``text``, ``image`` (an absolute path), ``labels``
            and the other columns of a table.
        photos: what was read, if it is a folder of images.
        captions: of a folder, the captions of each image, if a file of them was given; an image may
            have none.
        unread: of a folder, paths in it that cannot be read now: what lies there is unknown, not
            gone.
        ocr: whether the text in images is read, then also in those that were stored without; by
            default only that of new images in a folder, where the extra ``ocr`` is installed.
        unmatched: of a folder, a line for each exclusion that leaves nothing out.
        with_raw: of a folder, the ids of images beside which a raw original is left out.

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
    def reads_text(self) -> bool:
        """Whether the text in image files is read."""
        by_default = (
            self.photos is not None
            and self.photos.ocr
            and importlib.util.find_spec("rapidocr") is not None
        )
        return self.reads_files and (by_default if self.ocr is None else self.ocr)

    def modalities_of(self, row: int) -> set[str]:
        """Return the modalities of which a row is to have codes: an image without caption has none
        of ``text``.
        """
        modalities = set(self.records.items)
        return modalities | {"text"} if self.captions and self.captions[row] else modalities

    def read_beside(self, damaged: Set[str]) -> "Source | None":
        """Return the source read again, with the raw originals beside ``damaged`` images; None
        where there are none.
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
        """Return the source with what a model of these modalities encodes, in their order."""
        items = self.records.items
        if not (
            encoded := {modality: items[modality] for modality in modalities if modality in items}
        ):
            available, encodes = " and ".join(items), " and ".join(modalities)
            raise InputError(
                f"the items have {available}s, this model encodes {encodes}s; there is nothing to "
                "encode"
            )
        captions = self.captions if "text" in modalities else None
        return replace(self, records=replace(self.records, items=encoded), captions=captions)

    def encodable(self, model: Model) -> "Source":
        """Return the source with the modalities that the model encodes, in the model's order."""
        encoded = self.with_modalities(model.modalities)
        arrays = [
            modality
            for modality, values in encoded.records.items.items()
            if isinstance(values, Features)
        ]
        if not all(map(model.takes_rows, arrays)):
            line = (
                f"the items are features, but the model {model.name!r} reads pictures and texts; "
                "give those"
            )
            raise InputError(line)
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
        """Return the items to index; bad rows of a table are left out and listed in
        ``records.problems``.

        Of a folder, raw originals beside a ``damaged`` image, by its id, are read, too.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = Path(folder, "items.csv")
        ...     _ = table.write_text("id,text,year\\na,a dog,2019\\n")
        ...     Source.read(table).metadata
        [{'text': 'a dog', 'year': 2019}]
        """
        is_table = path.suffix.lower() in TABLE_ENDINGS and not path.is_dir()
        if root is not None and not is_table:
            raise InputError(f"--root: goes with a table, {path} is none; leave it out")
        if path.is_dir():
            return _folder(path, exclude, captions, damaged)
        if exclude or captions is not None:
            line = (
                f"--{'exclude' if exclude else 'captions'}: goes with a folder, {path} is none; "
                "leave it out"
            )
            raise InputError(line)
        if path.suffix.lower() in (".yaml", ".yml"):
            # losses and models, which plain folders do without
            from channelhash.config import read_config

            records = Collection.load(read_config(path).sources).records
        else:
            records = load_any(path, root, skip_bad=True)
        return (
            cls(*_with_further_columns(path, records))
            if is_table
            else cls(records, _metadata(records))
        )


def _folder(root: Path, exclude: Sequence[str], captions: Path | None, damaged: Set[str]) -> Source:
    if isinstance(exclude, str):
        raise InputError(f"exclude={exclude!r}: expected a list of patterns; put it in []")
    patterns = {_from_top(root, pattern): pattern for pattern in exclude}
    listing = find_images(root, list(patterns), damaged)
    where = os.path.abspath(root)
    names, ids = listing.names, listing.ids
    texts, lines = (None, []) if captions is None else find_captions(captions, names)
    metadata: list[dict[str, Value]] = [{"image": os.path.join(where, name)} for name in names]
    for values, several in zip(metadata, texts or (), strict=False):
        if several:
            values["text"] = "\n".join(several)
    images = tuple(Path(str(values["image"])) for values in metadata)
    labels = np.zeros((len(names), 0), dtype=bool)
    problems = (*listing.problems, *lines)
    records = Records(ids, {"image": images}, labels, (), listing.skipped, problems)
    photos = PhotoSource(Path(where), captions, tuple(patterns))
    unmatched = tuple(_say_unmatched(root, patterns[each]) for each in listing.unmatched)
    with_raw = {name for name, file in zip(ids, names, strict=True) if file in listing.with_raw}
    return Source(
        records,
        metadata,
        photos,
        texts,
        listing.unread,
        unmatched=unmatched,
        with_raw=frozenset(with_raw),
    )


def _say_unmatched(root: Path, pattern: str) -> str:
    return (
        f"nothing by --exclude {pattern!r}: {root} has no such file or folder; give a path in it, "
        "or a pattern such as '*.gif'"
    )


def _from_top(root: Path, pattern: str) -> str:
    """Return a pattern of paths from the top of a folder, whichever way people write a path in it:
    from the top, from the current folder, absolute, from their home, or through links.

    A pattern of names is returned as it is, and so is a path that is nowhere in the folder.
    """
    written = pattern.replace(os.sep, "/").rstrip("/")
    parts = set(written.split("/"))
    is_plain = parts.isdisjoint((".", ".."))
    is_name = is_plain and len(parts) == 1 and not os.path.islink(root / written)
    if is_name or pattern.startswith(("**/", "!")):
        return pattern
    if is_plain and _holds(root, written.strip("/")):
        return pattern
    below = _paths_below(root, written)
    if not below:
        return pattern
    chosen = next((path for path in below if _holds(root, path)), below[0])
    return f"/{chosen}{'/' if pattern.endswith('/') else ''}"


def _paths_below(root: Path, written: str) -> list[str]:
    """Return the paths from the top of a folder that a path may mean: one from the current folder
    first, and by its names before its links.
    """
    tops = [PurePath(compose(find(str(root)))) for find in _NORMAL_FORMS]
    named = os.path.expanduser(written)
    # Links are followed by the names that files have, which may be in either form of Unicode.
    forms = dict.fromkeys((named, compose(named), unicodedata.normalize("NFD", named)))
    below = list[str]()
    for path in (os.path.join(start, form) for start in (os.getcwd(), root) for form in forms):
        for find in _NORMAL_FORMS:
            place = PurePath(compose(find(path)))
            inside = (top for top in tops if top in place.parents)
            below += [place.relative_to(top).as_posix() for top in inside]
    return below


def _holds(root: Path, path: str) -> bool:
    """Return whether a path or pattern from the top is that of a file or folder, in either form of
    Unicode, and not of a link to a folder only, which leads to another one.
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
    if (texts := records.display_values("text")) is not None:
        columns["text"] = texts
    if (images := records.display_values("image")) is not None:
        columns["image"] = list(map(os.path.abspath, images))
    if len(names := np.array(records.label_names)):
        columns["labels"] = [names[labels].tolist() for labels in records.labels]
    return [{name: values[row] for name, values in columns.items()} for row in range(len(records))]


def _with_further_columns(path: Path, records: Records) -> tuple[Records, list[dict[str, Value]]]:
    """Return the items of a table and their metadata, the values of its further columns, too.

    A row with a value that no store can hold is left out and listed in ``problems``; so is a column
    without a usable name, and one of which no value can be held.
    """
    columns, _ = read_rows(path, [])
    named = [
        (n, name, key_problem(name.strip()))
        for n, name in enumerate(columns, start=1)
        if name not in _READ
    ]
    problems = [
        f"{path}: column {place} is left out: {problem}" for place, _, problem in named if problem
    ]
    further = [column for _, column, problem in named if not problem]
    rows = _rows_of(path, further, records)
    metadata = _metadata(records)
    wrong: dict[int, str] = {}
    for column in further:
        cells = [row.cells[column] for row in rows]
        values, reasons = dict[int, Value](), dict[int, str]()
        for row, cell in enumerate(
            _numbers(cells) if path.suffix.lower() in (".csv", ".tsv") else cells
        ):
            try:
                values[row] = _value(cell)
            except ValueError as error:
                reasons[row] = str(error)
        if reasons and all(value is None for value in values.values()):
            first = min(reasons)
            problems.append(
                f"{path}: the column {column!r} is left out: its {rows[first].place} "
                f"{reasons[first]}"
            )
            continue
        for row, value in values.items():
            metadata[row][column] = value
        wrong |= {
            row: f"the column {column!r} {reason}"
            for row, reason in reasons.items()
            if row not in wrong
        }
    problems += [
        f"{path}, {rows[row].place} (id {records.ids[row]}): {wrong[row]}" for row in sorted(wrong)
    ]
    removed = records.removed | ({"value that cannot be stored": len(wrong)} if wrong else {})
    good = [row for row in range(len(rows)) if row not in wrong]
    records = replace(records.take(good), removed=removed, problems=(*records.problems, *problems))
    return records, [metadata[row] for row in good]


def _rows_of(path: Path, columns: Sequence[str], records: Records) -> list[Row]:
    """Return the row of each item: the first of its id that was not left out."""
    place = re.compile(re.escape(f"{path}, ") + r"((?:line|row) \d+)")
    left_out = {match[1] for line in records.problems if (match := place.match(line))}
    rows: dict[str, Row] = {}
    for row in read_rows(path, ["id", *columns])[1]:
        if row.place not in left_out:
            rows.setdefault(text_of(row.cells["id"]), row)
    return [rows[name] for name in records.ids]


def _numbers(cells: Sequence[str]) -> Sequence[str | int | float]:
    """Return the numbers of a column of texts, if it holds nothing else, so that filters compare
    them as such.
    """
    numbers = [_number(cell) if cell else "" for cell in cells]
    return cells if None in numbers else [number for number in numbers if number is not None]


def _number(cell: str) -> int | float | str | None:
    """Return the number that a text is, None if it is none; one of more digits than 64 bits hold
    stays a text.
    """
    if (form := _NUMBER.fullmatch(cell)) is None:
        return None
    if form["fraction"]:
        return float(cell) if math.isfinite(float(cell)) else None
    return int(cell) if len(cell) <= _MOST_DIGITS else cell


def _value(cell: Any) -> Value:
    """Return a plain value as a store keeps it; ValueError where it cannot."""
    if cell is None or cell == "" or (isinstance(cell, float) and not math.isfinite(cell)):
        return None
    if isinstance(cell, list):
        return [text_of(part) for part in cell if part is not None]
    if isinstance(cell, bool | float) or (isinstance(cell, int) and cell in _INTEGERS):
        return cell
    return text_of(cell)
