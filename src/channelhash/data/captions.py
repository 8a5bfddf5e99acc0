"""Captions of images in a file of their own: a table, lines ``name#0<TAB>caption``, or JSON."""

import csv
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from channelhash.data.cells import captions_of, text_of
from channelhash.data.folder import READ_ENDINGS, compose
from channelhash.data.table import USUAL_NAMES, csv_rows, read_rows, separator_of
from channelhash.errors import InputError
from channelhash.utils.decode import read_text, reading, split_lines

#: Columns or keys that may hold the image's file, in any case; the first that is there counts. An
#: id is a path in many tables, and COCO's number of an image.
_FILE_COLUMNS = (*USUAL_NAMES["image"], "image_id", "id")
#: Columns or keys that may hold the caption, likewise; the last is Karpathy's.
_CAPTION_COLUMNS = (*USUAL_NAMES["text"], "raw")
#: A name as Flickr8k and Flickr30k write it, with the number of the caption.
_NUMBERED = re.compile(r"(?P<name>.+?)((#\w+)?#\d+)?")


class _CaptionEntry(NamedTuple):
    """An entry of a file: its place for messages, the image's file, and its caption or captions."""

    place: str
    file: Any
    captions: Any


class _Keys(NamedTuple):
    """The columns, or keys, of the image's file and of the caption; None where there is none."""

    file: str | None
    caption: str | None


def find_captions(path: Path, names: Sequence[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the captions of each image in a file, and a line if some are of images that are not
    there.

    A caption's file is an image's path, or the end of one path only: ``1.jpg`` is ``2019/1.jpg``.
    Letters with accents may be written in either form of Unicode. If no path is the same, case does
    not count, ``\\`` counts as ``/``, and a name without ending stands for an image with any.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "c.json").write_text('{"1.jpg": "sea"}')
    ...     find_captions(Path(folder, "c.json"), ["2019/1.jpg", "2.jpg"])
    ([('sea',), ()], [])
    """
    captions = read_captions(path)
    images = _ImageNames(names)
    matched: list[list[str]] = [[] for _ in names]
    strays: list[str] = []
    for file, texts in captions.items():
        rows = images.rows_of(file)
        if len(rows) == 1:
            matched[rows[0]] += texts
        else:
            strays.append(file)
    lines = []
    if strays:
        count = sum(len(captions[file]) for file in strays)
        lines.append(
            f"{path}: pictures that are not there: {len(strays)}, with {count} captions, such as "
            f"{strays[0]}"
        )
    return list(map(tuple, matched)), lines


def read_captions(path: Path) -> dict[str, list[str]]:
    """Read image file -> its captions, in the order of the file; empty captions are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tokens = Path(folder, "tokens.txt")
    ...     _ = tokens.write_text("a.jpg#0\\tA dog .\\na.jpg#1\\tIt runs .\\n")
    ...     read_captions(tokens)
    {'a.jpg': ['A dog .', 'It runs .']}
    """
    captions = defaultdict[str, list[str]](list)
    for entry in _entries(path):
        try:
            name = text_of(entry.file).strip().removeprefix("./")
            texts = list(filter(None, map(str.strip, _texts(entry.captions))))
        except ValueError as error:
            raise InputError(f"{entry.place}: {error}; mend it") from None
        if name and texts:
            captions[name] += texts
    if not captions:
        raise InputError(f"{path}: holds no captions")
    return dict(captions)


class _ImageNames:
    """Images, found by the names that a file of captions has for them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._rows = {name: row for row, name in enumerate(names)}
        self._composed = list(map(compose, names))
        self._by_stem = defaultdict[str, list[int]](list)
        for row, name in enumerate(self._composed):
            self._by_stem[_last_stem(name)].append(row)

    def rows_of(self, file: str) -> list[int]:
        """Return the rows whose path is ``file`` or ends in it, by the strictest comparison that
        finds any.
        """
        if file in self._rows:
            return [self._rows[file]]
        file = compose(file).replace("\\", "/")
        forms: list[Callable[[str], str]] = [str, str.casefold]
        if _stem(file) == file.casefold():  # no ending
            forms.append(_stem)
        for form in forms:
            rows = self._rows_alike(file, form)
            if rows:
                return rows
        return []

    def _rows_alike(self, file: str, form: Callable[[str], str]) -> list[int]:
        target = form(file)
        rows = self._by_stem.get(_last_stem(file), [])
        paths = {row: form(self._composed[row]) for row in rows}
        alike = [row for row, path in paths.items() if _ends_alike(target, path)]
        return [row for row in alike if paths[row] == target] or alike


def _stem(name: str) -> str:
    """Return a path without the ending of an image, in lower case."""
    stem, ending = os.path.splitext(name.casefold())
    return stem if ending in READ_ENDINGS else name.casefold()


def _last_stem(name: str) -> str:
    return _stem(name.rpartition("/")[2])


def _ends_alike(first: str, second: str) -> bool:
    """Return whether one path is the end of the other."""
    return f"/{first}".endswith(f"/{second}") or f"/{second}".endswith(f"/{first}")


def _entries(path: Path) -> Iterator[_CaptionEntry]:
    """Yield the entries of a file in its order."""
    if path.is_dir():
        raise InputError(f"{path}: is a folder, not a file of captions")
    if not path.exists():
        raise InputError(f"{path}: no such file of captions")
    ending = path.suffix.lower()
    if ending in (".jsonl", ".parquet"):
        return _of_rows(path)
    text = read_text(path)
    if ending == ".json":
        return _of_json(path, text)
    header = text.lstrip().partition("\n")[0]
    separator = separator_of(header, "\t,|;")
    columns = next(csv.reader([header], delimiter=separator), [])
    if ending in (".csv", ".tsv") or all(_find_keys(columns)):
        return _of_table(path, text, separator)
    return _of_lines(path, text)


def _of_table(path: Path, text: str, separator: str) -> Iterator[_CaptionEntry]:
    # Captions hold quotation marks; only commas and semicolons come with cells that are quoted
    # because of them.
    rows = csv_rows(path, text, separator, quoted=separator != "|")
    columns = next((cells for _, cells in rows if cells), [])
    file, caption = map(columns.index, _columns(path, columns))
    for line, cells in rows:
        if not cells:
            continue
        whole = _join_cells(cells, len(columns), caption, separator)
        place = f"{path}, line {line}"
        if len(whole) != len(columns):
            raise InputError(
                f"{place}: has {len(whole)} cells, but the header has {len(columns)}; mend the row"
            )
        yield _CaptionEntry(place, whole[file], whole[caption])


def _join_cells(cells: list[str], n_columns: int, caption: int, separator: str) -> list[str]:
    """Return the cells of a row, in which a caption without quotes may hold separators."""
    if len(cells) > n_columns == caption + 1:
        return [*cells[:caption], separator.join(cells[caption:])]
    if separator == "|" and len(cells) == 2 < n_columns:
        # In one row of Flickr30k "4|" lacks its bar.
        return [cells[0], *cells[1].split(maxsplit=1)]
    return cells


def _of_rows(path: Path) -> Iterator[_CaptionEntry]:
    file, caption = _columns(path, read_rows(path, []).columns)
    for row in read_rows(path, [file, caption]).rows:
        place = f"{path}, {row.place}"
        if row.problem:
            raise InputError(f"{place}: {row.problem}; mend the row")
        yield _CaptionEntry(place, row.cells[file], row.cells[caption])


def _columns(path: Path, columns: Sequence[str]) -> tuple[str, str]:
    """Return the columns of the image's file and of the caption."""
    file, caption = _find_keys(columns)
    if file is not None and caption is not None:
        return file, caption
    lacks = "caption; name one text or caption"
    if file is None:
        lacks = "picture; name one image or file"
    raise InputError(f"{path}: has no column for the {lacks} (it has {', '.join(columns)})")


def _find_keys(columns: Sequence[str]) -> _Keys:
    return _Keys(_find_key(columns, _FILE_COLUMNS), _find_key(columns, _CAPTION_COLUMNS))


def _find_key(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first of ``names`` that is a column, as it is written there."""
    lower = {column.strip().lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def _of_lines(path: Path, text: str) -> Iterator[_CaptionEntry]:
    for number, line in enumerate(split_lines(text), start=1):
        name, tab, caption = line.partition("\t")
        if line.strip() and not tab:
            raise InputError(
                f"{path}, line {number}: has no tab; a table begins with a line such as "
                "image,caption"
            )
        numbered = _NUMBERED.fullmatch(name.strip())
        yield _CaptionEntry(f"{path}, line {number}", numbered["name"] if numbered else "", caption)


def _of_json(path: Path, text: str) -> Iterator[_CaptionEntry]:
    with reading(path, "not JSON", "a file of one JSON object a line ends in .jsonl"):
        content = json.loads(text)
    entries = _json_entries(content)
    names = _coco_names(path, content)
    # Nothing but a list holds entries: None is refused below.
    for number, entry in enumerate(entries if isinstance(entries, list) else [None], start=1):
        file, caption = _find_keys(list(entry) if isinstance(entry, dict) else [])
        if file is None or caption is None or not isinstance(entry[file], str | int):
            raise InputError(
                f"{path}: no JSON of captions: COCO's, Karpathy's, {{name: caption}}, or a list of "
                "pairs"
            )
        name = names.get(entry[file], entry[file])
        if file == "filename" and "filepath" in entry:
            # Karpathy's splits of COCO have the folder there.
            name = f"{entry['filepath']}/{name}"
        yield _CaptionEntry(f"{path}, entry {number}", name, entry[caption])


def _json_entries(content: Any) -> Any:
    """Return what should be the list of entries in COCO's JSON, Karpathy's, one of names and
    captions, or a plain list.
    """
    if not isinstance(content, dict):
        return content
    for key in ("annotations", "images"):
        if key in content:
            return content[key]
    return [{"image": name, "caption": captions} for name, captions in content.items()]


def _coco_names(path: Path, content: Any) -> dict[Any, str]:
    """Return the files of the images that COCO's captions name by their numbers."""
    if not isinstance(content, dict) or "annotations" not in content:
        return {}
    with reading(path, "no image of COCO's list", "it needs id and file_name"):
        return {image["id"]: image["file_name"] for image in content["images"]}


def _texts(value: Any) -> Iterator[str]:
    """Yield the captions in a cell or under a key: a text, a list of texts, also a printed one, or
    a list of ``{raw: text}``.
    """
    if isinstance(value, list):
        for part in value:
            yield from _texts(part)
        return
    key = _find_key(list(value), _CAPTION_COLUMNS) if isinstance(value, dict) else None
    yield from captions_of(value) if key is None else _texts(value[key])
