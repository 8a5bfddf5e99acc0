"""Items to encode: a table, features, or simply a folder of images, perhaps with captions in a file
of their own.

Captions are a table, lines ``name#0<TAB>caption``, or JSON.
"""

import csv
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from channelhash.data.features import load_features
from channelhash.data.images import IMAGE_ENDINGS, image_problem
from channelhash.data.records import Problems, Records, records_from_rows
from channelhash.data.table import captions_of, csv_rows, load_table, read_rows, text_of
from channelhash.errors import InputError
from channelhash.utils.array_files import ENDINGS
from channelhash.utils.decode import read_text, reading, split_lines
from channelhash.utils.image_files import RAW_ENDINGS, heif_problem, raw_problem

#: The store that belongs to a folder of photographs.
STORE_FOLDER = ".channelhash"
#: Why something is left out that other programs made of the photographs, or keep for a while after
#: they were deleted.
_OF_OTHERS = "thumbnails or a bin of another program"
_HIDDEN = "hidden"
#: Why any other file is left out.
_NOT_A_PICTURE = "not a picture"
_ENDINGS = {
    "videos are not read": ".3gp .avi .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .webm .wmv",
    "pictures of this format are not read": ".ai .bpg .dcm .dds .emf .eps .exr .fits .hdr .ico .j2k .jp2 .jpx .jxl "
    ".jxr .psb .psd .qoi .svg .tga .wmf .xcf",
}
_PROBLEMS = {ending: problem for problem, endings in _ENDINGS.items() for ending in endings.split()}

_READ = IMAGE_ENDINGS | RAW_ENDINGS
#: Endings of the pictures that cameras write beside raw originals; a drawing of the same name is
#: not one of these.
_CAMERA_ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", ".heic", ".heif", ".hif")
#: What Google's cameras add to the name of a photograph, of its JPEG and of its raw original.
_PART_OF_PAIR = re.compile(r"\.raw-\d+(\.mp)?\.(cover|original)$")
# Folders of iPhoto and Aperture that hold no originals.
_DERIVED = (
    "thumbnails",
    "previews",
    "resources",
    "data",
    "data.noindex",
    "database",
    "apdb",
    "faces",
)
# In lower case: of Synology, QNAP, Windows, Linux, macOS and Capture One.
_BINS = frozenset(
    (
        *(
            "@eadir",
            "@recycle",
            "@recently-snapshot",
            "#recycle",
            "#snapshot",
            "$recycle.bin",
            "recycler",
        ),
        *("system volume information", "lost+found", "__macosx", "captureone"),
    )
)
# Ending of a library of Apple's programs -> folders in it.
_IN_LIBRARIES = {
    "photoslibrary": ("resources", "database", "private", "scopes"),
    **dict.fromkeys(("photolibrary", "migratedphotolibrary", "aplibrary"), _DERIVED),
}


def _is_of_others(folder: str, name: str) -> bool:
    """Return whether a folder in another one belongs to a program that keeps copies there.

    >>> _is_of_others("2019", "@eaDir"), _is_of_others("My.photoslibrary", "Resources"), _is_of_others("2019", "faces")
    (True, True, False)
    """
    name = name.lower()
    ending = folder.lower().rpartition(".")[2]
    return name in _BINS or name.endswith(".lrdata") or name in _IN_LIBRARIES.get(ending, ())


def load_any(path: Path, root: Path | None = None, skip_bad: bool = False) -> Records:
    """Read records from a folder of images, a file of features, or a table.

    A table needs no labels here: items to encode are often new.
    """
    if not path.exists():
        raise no_such(path)
    if path.is_dir():
        return _load_folder(path, skip_bad)
    if path.suffix.lower() in ENDINGS:
        return load_features(path, skip_bad=skip_bad)
    has_labels = "labels" in read_rows(path, [])[0]
    return load_table(path, root, label_columns=None if has_labels else [], skip_bad=skip_bad)


_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(.+)", re.DOTALL)


def no_such(path: object) -> InputError:
    """Return what to raise where a path leads to nothing.

    >>> print(no_such("photos"), no_such("photos.store"), sep="\\n")
    photos: no such folder; check the name
    photos.store: no such folder or file; check the name
    """
    if address := _ADDRESS.match(str(path)):  # as a path, it has lost a slash
        return InputError(
            f"{address[1]}://{address[2]}: an address, but a folder or file of this machine is "
            "read here; download it (`channelhash encode --data` reads addresses, shard by shard)"
        )
    return InputError(
        f"{path}: no such folder{' or file' if Path(str(path)).suffix else ''}; check the name"
    )


def _load_folder(root: Path, skip_bad: bool = False) -> Records:
    """Read every image below ``root``, at any depth, without texts or labels; an id is a path
    relative to ``root``.
    """
    listing = find_images(root)
    damaged = {
        name
        for name, file in zip(listing.ids, listing.names, strict=True)
        if file in listing.with_raw and image_problem(root / file)
    }
    if damaged:
        listing = find_images(root, damaged=damaged)
    expected = (_NOT_A_PICTURE, _OF_OTHERS, _HIDDEN)
    removed = {reason: count for reason, count in listing.skipped.items() if reason not in expected}
    problems = Problems(skip_bad, [*listing.problems], removed)
    rows = []
    for name, path in zip(listing.ids, (root / name for name in listing.names), strict=True):
        if problem := image_problem(path):
            problems.add(
                problem, "mend it, or leave such pictures out with --skip-bad", "unreadable picture"
            )
        else:
            rows.append((name, {"image": path}, ()))
    return records_from_rows(rows, (), str(root), problems, len(listing.names))


def images_below(root: Path) -> list[Path]:
    """Return the image files below ``root``, at any depth, in the order of their paths; errors as
    in `find_images`.
    """
    return [root / name for name in find_images(root).names]


class _Files(NamedTuple):
    """The files of a folder.

    Attributes:
        names: paths of the images, relative to the folder with ``/``, sorted.
        skipped: reason -> number of files and folders that are left out for it.
        problems: a line for each folder or file that cannot be read.
        unread: these, by their paths like ``names``: what lies there is unknown, not gone.
        unmatched: the patterns of exclusions that leave nothing out.
        with_raw: the images beside which a raw original is left out, like ``names``.
    """

    names: list[str]
    skipped: dict[str, int]
    problems: tuple[str, ...]
    unread: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    with_raw: frozenset[str] = frozenset()

    @property
    def ids(self) -> tuple[str, ...]:
        """The names, composed (NFC) whichever form the system gives.

        Of two files whose names differ only in their form, each keeps its own.

        >>> _Files(["cafe\u0301.jpg"], {}, ()).ids == ("caf\u00e9.jpg",)
        True
        """
        composed = [compose(name) for name in self.names]
        counts = Counter(composed)
        return tuple(
            new if counts[new] == 1 else name
            for name, new in zip(self.names, composed, strict=True)
        )


def compose(text: str) -> str:
    """Return a text in the composed form of Unicode (NFC), which ids have.

    >>> compose("cafe\u0301") == "caf\u00e9"
    True
    """
    return unicodedata.normalize("NFC", text)


class Exclusions:
    """Patterns of the paths to leave out of a folder, and which of them have matched.

    A pattern without ``/`` matches names at any depth, another one paths from the top. ``*`` and
    ``?`` match within a name, ``**`` across folders, ``[ab]`` one of the characters, or what is
    called so; a ``/`` at the end matches folders only. Accents are the same in either form of
    Unicode.

    >>> exclusions = Exclusions(["*.gif", "raw/", "2019/**/draft-?.jpg"])
    >>> exclusions.match("a/b.gif", False), exclusions.match("raw", False)
    (True, False)
    >>> exclusions.match("a/raw", True), exclusions.match("a/2019/draft-1.jpg", False)
    (True, False)
    >>> exclusions.match("2019/draft-1.jpg", False), exclusions.match("2019/a/b/draft-2.jpg", False)
    (True, True)
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._compiled = {pattern: _compile(pattern) for pattern in patterns}
        self.matched = set[str]()

    def match(self, path: str, is_folder: bool) -> bool:
        """Return whether a relative path with ``/`` matches; what lies in a folder that does is for
        the caller to leave out.
        """
        composed = path if path.isascii() else compose(path)
        found = [
            pattern
            for pattern, expression in self._compiled.items()
            if (is_folder or not pattern.endswith("/")) and expression.fullmatch(composed)
        ]
        self.matched.update(found)
        return bool(found)

    def match_below(self, path: str) -> bool:
        """Return whether a file's path matches, or a folder that it lies in."""
        folders = [path[: place.start()] for place in re.finditer("/", path)]
        return self.match(path, False) or any(self.match(folder, True) for folder in folders)


def _compile(pattern: str) -> re.Pattern[str]:
    if not pattern.strip("/") or pattern.startswith("!"):
        raise InputError(
            f"--exclude {pattern!r}: is no pattern of paths to leave out, such as '*.gif' or 'raw/'"
        )
    from fsspec.utils import glob_translate  # takes longer than all else that a folder needs

    body = compose(pattern.strip("/"))
    anywhere = "" if "/" in pattern.rstrip("/") else "**/"
    literal = ("(?:.*/)?" if anywhere else "") + re.escape(body)
    return re.compile(f"{glob_translate(anywhere + body)}|{literal}", re.DOTALL)


def find_images(root: Path, exclude: Sequence[str] = (), damaged: Collection[str] = ()) -> _Files:
    """Find the image files below ``root``, at any depth, by one listing of each folder.

    A raw original beside its JPEG is left out unless that is one of the ``damaged``, by their ids.

    Left out are hidden files and folders (macOS writes ``._photo.jpg`` beside ``photo.jpg``), links
    to folders, and what other programs keep beside photographs: thumbnails and bins.
    """
    exclusions = Exclusions(exclude)
    names = list[str]()
    skipped = Counter[str]()
    problems = dict[str, str]()
    with_raw = set[str]()
    where = Path(os.path.abspath(root))
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(where / folder))
        except OSError as error:
            if not folder:
                raise InputError(f"{root}: cannot be read ({error.strerror})") from None
            problems[folder.rstrip("/")] = f"cannot be read ({error.strerror})"
            continue
        siblings = list[str]()
        for entry in entries:
            name = folder + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            reason = _no_image(entry, is_folder)
            if exclude and not _is_linked_folder(entry) and exclusions.match(name, is_folder):
                skipped["excluded"] += 1
            elif is_folder and _is_of_others((where / folder).name, entry.name):
                skipped[_OF_OTHERS] += 1
            elif reason is not None:
                skipped[reason] += bool(reason)
            elif is_folder:
                folders.append(f"{name}/")
            elif problem := _no_file(entry, name):
                problems[name] = problem
            else:
                siblings.append(name)
        twins = _raw_twins(siblings, damaged)
        skipped["raw beside its JPEG"] += len(twins)
        with_raw.update(*twins.values())
        names += [name for name in siblings if name not in twins]
    if not names and not problems:
        reasons = "".join(
            f"; left out: {count:,} × {reason}" for reason, count in skipped.items() if count
        )
        raise InputError(f"{root}: no pictures in this folder or below it{reasons}")
    return _Files(
        sorted(names, key=lambda name: name.split("/")),
        {reason: count for reason, count in sorted(skipped.items()) if count},
        tuple(f"{root / _shown(name)}: {problem}" for name, problem in sorted(problems.items())),
        tuple(problems),
        tuple(pattern for pattern in exclude if pattern not in exclusions.matched),
        frozenset(with_raw),
    )


def _is_linked_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a link to a folder, which is not followed anyway."""
    try:
        return entry.is_symlink() and entry.is_dir()
    except OSError:
        return False


def _raw_twins(names: Sequence[str], damaged: Collection[str] = ()) -> dict[str, list[str]]:
    """Return raw original -> the pictures of a camera that lie beside it under the same name, in
    any case, and are not damaged.

    >>> _raw_twins(["1.CR2", "1.jpg", "2.dng", "2.DNG.jpg", "3.nef", "4.dng", "4.png"])
    {'1.CR2': ['1.jpg'], '2.dng': ['2.DNG.jpg']}
    >>> _raw_twins(["P.RAW-01.COVER.jpg", "P.RAW-02.ORIGINAL.dng"])
    {'P.RAW-02.ORIGINAL.dng': ['P.RAW-01.COVER.jpg']}
    >>> _raw_twins(["1.dng", "1.jpg"], damaged=["1.jpg"])
    {}
    """
    pictures: dict[str, list[str]] = {}
    raw = list[tuple[str, str, str]]()
    for name in names:
        stem, ending = os.path.splitext(name.casefold())
        if ending in RAW_ENDINGS:
            raw.append((name, stem, ending))
        elif ending in _CAMERA_ENDINGS and unicodedata.normalize("NFC", name) not in damaged:
            pictures.setdefault(_PART_OF_PAIR.sub("", stem), []).append(name)
    twins = {}
    for name, stem, ending in raw:
        beside = pictures.get(_PART_OF_PAIR.sub("", stem), []) + pictures.get(stem + ending, [])
        if beside:
            twins[name] = beside
    return twins


def _shown(name: str) -> str:
    """Return a name that can be printed: bytes that are not UTF-8, which are half surrogate pairs
    in it, as �.
    """
    return os.fsencode(name).decode(errors="replace")


def _no_image(entry: os.DirEntry[str], is_folder: bool) -> str | None:
    """Return why a file or folder is left out, by its name, or nothing where that is not worth a
    line; else None.
    """
    ending = os.path.splitext(entry.name)[1].lower()
    if entry.name.startswith("."):
        return _HIDDEN if (is_folder or ending in _READ) and entry.name != STORE_FOLDER else ""
    needs = (
        heif_problem
        if ending in (".heic", ".heif", ".hif")
        else raw_problem
        if ending in RAW_ENDINGS
        else str
    )
    if not is_folder and (problem := needs()):
        return problem
    if is_folder or ending in _READ:
        return None
    if ending == ".xmp":  # describes an image, see `channelhash.indexing.metadata`
        return ""
    return f"{ending}: {_PROBLEMS[ending]}" if ending in _PROBLEMS else _NOT_A_PICTURE


def _no_file(entry: os.DirEntry[str], name: str) -> str:
    """Return why the image of a name is no file that can be read; empty for a file."""
    try:
        # perhaps too long for the system; only such paths are looked at twice
        if len(entry.path) > 1000:
            entry.stat()
        if not entry.is_file():
            kind = (
                "a link to nothing or to a folder"
                if entry.is_symlink()
                else "a pipe, a socket or a device"
            )
            return f"is {kind}, no picture"
    except OSError as error:  # links that lead to each other, or a path that is too long
        return f"cannot be read ({error.strerror})"
    return "" if _shown(name) == name else "the name is not UTF-8; rename it"


#: Columns or keys that may hold the image's file and the caption, in any case; the first that is
#: there counts. An id is a path in many tables, and COCO's number of an image.
_FILE_COLUMNS = (
    *("image", "file", "file_name", "filename", "image_name", "image_path", "path", "filepath"),
    *("image_id", "id"),
)
_CAPTION_COLUMNS = (
    "text",
    "caption",
    "captions",
    "description",
    "comment",
    "sentence",
    "sentences",
    "raw",
)

_NUMBERED = re.compile(r"(?P<name>.+?)((#\w+)?#\d+)?")

# Place for messages, name of an image's file, its caption or captions.
_Pairs = Iterator[tuple[str, Any, Any]]


def find_captions(path: Path, names: Sequence[str]) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the captions in a file of each image, and a line if some are of images that are not
    there.

    A caption's file is an image's path, or the end of one path only: ``1.jpg`` is ``2019/1.jpg``.
    Letters with accents may be written in either form of Unicode. Where none is the same, letters
    are compared without their case, ``\\`` counts as ``/``, and a file without ending is any image.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "c.json").write_text('{"1.jpg": "sea"}')
    ...     find_captions(Path(folder, "c.json"), ["2019/1.jpg", "2.jpg"])
    ([('sea',), ()], [])
    """
    captions = _read_captions(path)
    rows = {name: row for row, name in enumerate(names)}
    composed = [unicodedata.normalize("NFC", name) for name in names]
    by_stem: dict[str, list[int]] = {}
    for row, name in enumerate(composed):
        by_stem.setdefault(_stem(name.rpartition("/")[2]), []).append(row)
    matched: list[list[str]] = [[] for _ in names]
    strays: list[str] = []
    for name, texts in captions.items():
        full_name = unicodedata.normalize("NFC", name).replace("\\", "/")
        alike = [rows[name]] if name in rows else _rows_alike(full_name, composed, by_stem)
        if len(alike) == 1:
            matched[alike[0]] += texts
        else:
            strays.append(name)
    lines = []
    if strays:
        count = sum(len(captions[name]) for name in strays)
        lines = [
            (
                f"{path}: pictures that are not there: {len(strays)}, with {count} captions, such "
                f"as {strays[0]}"
            )
        ]
    return [tuple(texts) for texts in matched], lines


def _read_captions(path: Path) -> dict[str, list[str]]:
    """Read image file -> its captions, in the order of the file; empty captions are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tokens = Path(folder, "tokens.txt")
    ...     _ = tokens.write_text("a.jpg#0\\tA dog .\\na.jpg#1\\tIt runs .\\n")
    ...     _read_captions(tokens)
    {'a.jpg': ['A dog .', 'It runs .']}
    """
    captions: dict[str, list[str]] = {}
    for place, file, cell in _pairs(path):
        try:
            name = text_of(file).strip().removeprefix("./")
            texts = [text.strip() for text in _texts(cell) if text.strip()]
        except ValueError as error:
            raise InputError(f"{place}: {error}; mend it") from None
        if name and texts:
            captions.setdefault(name, []).extend(texts)
    if not captions:
        raise InputError(f"{path}: holds no captions")
    return captions


def _rows_alike(name: str, names: Sequence[str], by_stem: dict[str, list[int]]) -> list[int]:
    """Return the rows whose path is ``name`` or ends so, by the strictest comparison that any
    passes.
    """
    has_ending = _stem(name) != name.casefold()
    for form in (str, str.casefold) if has_ending else (str, str.casefold, _stem):
        target = form(name)
        forms = {row: form(names[row]) for row in by_stem.get(_stem(name.rpartition("/")[2]), [])}
        if alike := [row for row, other in forms.items() if _ends_alike(target, other)]:
            return [row for row in alike if forms[row] == target] or alike
    return []


def _stem(name: str) -> str:
    """Return a path without the ending of an image, in lower case."""
    stem, ending = os.path.splitext(name.casefold())
    return stem if ending in _READ else name.casefold()


def _ends_alike(first: str, second: str) -> bool:
    """Return whether one path is the end of the other."""
    return f"/{first}".endswith(f"/{second}") or f"/{second}".endswith(f"/{first}")


def _pairs(path: Path) -> _Pairs:
    """Yield the pairs of a file in its order."""
    ending = path.suffix.lower()
    if path.is_dir() or not path.exists():
        raise InputError(
            f"{path}: {'is a folder, not a file' if path.is_dir() else 'no such file'} of captions"
        )
    if ending in (".jsonl", ".parquet"):
        return _of_rows(path)
    text = read_text(path)
    if ending == ".json":
        return _of_json(path, text)
    header = text.lstrip().partition("\n")[0]
    separator = max("\t,|;", key=header.count)
    columns = next(csv.reader([header], delimiter=separator), [])
    if ending in (".csv", ".tsv") or (
        _column(columns, _FILE_COLUMNS) and _column(columns, _CAPTION_COLUMNS)
    ):
        return _of_table(path, text, separator)
    return _of_lines(path, text)


def _of_table(path: Path, text: str, separator: str) -> _Pairs:
    # Captions hold quotation marks; only commas and semicolons come with cells that are quoted
    # because of them.
    rows = csv_rows(
        path, text, separator, csv.QUOTE_NONE if separator == "|" else csv.QUOTE_MINIMAL
    )
    columns = next((cells for _, cells in rows if cells), [])
    file, caption = (columns.index(column) for column in _columns(path, columns))
    for line, cells in rows:
        # separators in a caption without quotes
        if caption == len(columns) - 1 and len(cells) > len(columns):
            cells[caption:] = [separator.join(cells[caption:])]
        # in one row of Flickr30k "4|" lacks its bar
        if separator == "|" and len(cells) == 2 < len(columns):
            cells[1:] = cells[1].split(maxsplit=1)
        place = f"{path}, line {line}"
        if cells and len(cells) != len(columns):
            raise InputError(
                f"{place}: has {len(cells)} cells, but the header has {len(columns)}; mend the row"
            )
        if cells:
            yield place, cells[file], cells[caption]


def _of_rows(path: Path) -> _Pairs:
    file, caption = _columns(path, read_rows(path, [])[0])
    for row in read_rows(path, [file, caption])[1]:
        if row.problem:
            raise InputError(f"{path}, {row.place}: {row.problem[1]}; mend the row")
        yield f"{path}, {row.place}", row.cells[file], row.cells[caption]


def _columns(path: Path, columns: Sequence[str]) -> tuple[str, str]:
    """Return the columns of the image's file and of the caption."""
    file, caption = _column(columns, _FILE_COLUMNS), _column(columns, _CAPTION_COLUMNS)
    if file is None or caption is None:
        noun, names = ("picture", _FILE_COLUMNS) if file is None else ("caption", _CAPTION_COLUMNS)
        listed = ", ".join(columns)
        raise InputError(
            f"{path}: has no column for the {noun}; name one {' or '.join(names[:2])} (it has "
            f"{listed})"
        )
    return file, caption


def _column(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the first of ``names`` that is a column, as it is written there."""
    lower = {column.strip().lower(): column for column in reversed(columns)}
    return next((lower[name] for name in names if name in lower), None)


def _of_lines(path: Path, text: str) -> _Pairs:
    for number, line in enumerate(split_lines(text), start=1):
        name, tab, caption = line.partition("\t")
        if line.strip() and not tab:
            raise InputError(
                f"{path}, line {number}: has no tab; a table begins with a line such as "
                "image,caption"
            )
        numbered = _NUMBERED.fullmatch(name.strip())
        yield f"{path}, line {number}", numbered["name"] if numbered else "", caption


def _of_json(path: Path, text: str) -> _Pairs:
    with reading(path, "not JSON", "a file of one JSON object a line ends in .jsonl"):
        content = json.loads(text)
    entries = content
    names = dict[Any, str]()
    # COCO, which names images by their numbers
    if isinstance(content, dict) and "annotations" in content:
        entries = content["annotations"]
        with reading(path, "no image of COCO's list", "it needs id and file_name"):
            names = {image["id"]: image["file_name"] for image in content["images"]}
    elif isinstance(content, dict):
        entries = content.get(
            "images", [{"image": name, "caption": value} for name, value in content.items()]
        )
    for place, entry in enumerate(entries if isinstance(entries, list) else [None]):
        keys = list(entry) if isinstance(entry, dict) else []
        file, caption = _column(keys, _FILE_COLUMNS), _column(keys, _CAPTION_COLUMNS)
        if file is None or caption is None or not isinstance(entry[file], str | int):
            raise InputError(
                f"{path}: no JSON of captions: COCO's, Karpathy's, {{name: caption}}, or a list of "
                "pairs"
            )
        name = names.get(entry[file], entry[file])
        # Karpathy's splits of COCO have the folder there
        if file == "filename" and "filepath" in entry:
            name = f"{entry['filepath']}/{name}"
        yield f"{path}, entry {place + 1}", name, entry[caption]


def _texts(value: Any) -> Iterator[str]:
    """Yield the captions in a cell or under a key: a text, a list of texts, also in print, or of
    ``{raw: text}``.
    """
    if isinstance(value, list):
        for part in value:
            yield from _texts(part)
    elif isinstance(value, dict) and (key := _column(list(value), _CAPTION_COLUMNS)):
        yield from _texts(value[key])
    else:
        yield from captions_of(value)
