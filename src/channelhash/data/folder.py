"""Items to encode: a folder of images, a table, or a file of features."""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from channelhash.data.features import load_features
from channelhash.data.images import IMAGE_ENDINGS, image_problem
from channelhash.data.records import DataItem, Problems, Records, records_from_rows
from channelhash.data.table import load_table, read_rows, usual_columns
from channelhash.data.vectors import content_of
from channelhash.errors import InputError, argument
from channelhash.utils.image_files import RAW_ENDINGS, heif_problem, raw_problem

#: The store that belongs to a folder of photographs.
STORE_FOLDER = ".channelhash"
#: The file of a store that says which photographs its items are.
SOURCE_FILE = "source.json"
#: Why a folder is left out that another program fills with copies of photographs, or with deleted
#: ones.
_OF_OTHERS = "thumbnails or a bin of another program"
#: Why a file or folder is left out whose name begins with a dot.
_HIDDEN = "hidden"
#: Why any other file is left out.
_NOT_A_PICTURE = "not a picture"
#: Endings of videos.
_VIDEOS = ".3gp .avi .flv .m2ts .m4v .mkv .mov .mp4 .mpeg .mpg .mts .ogv .webm .wmv"
#: Endings of images in formats that are not read.
_OTHER_IMAGES = (
    ".ai .bpg .dcm .dds .emf .eps .exr .fits .hdr .ico .j2k .jp2 .jpx .jxl .jxr .psb .psd .qoi "
    ".svg .tga .wmf .xcf"
)
#: Ending of a file that is not read -> why; empty where that is not worth a line.
_PROBLEMS = {
    **{ending: f"{ending}: videos are not read" for ending in _VIDEOS.split()},
    **{
        ending: f"{ending}: pictures of this format are not read"
        for ending in _OTHER_IMAGES.split()
    },
    ".xmp": "",  # describes an image, see `channelhash.indexing.metadata`
}
#: Endings of the images that are read.
READ_ENDINGS = IMAGE_ENDINGS | RAW_ENDINGS
_HEIF_ENDINGS = (".heic", ".heif", ".hif")
#: Endings of the images that cameras write beside raw originals; a drawing of the same name is
#: not one of these.
_CAMERA_ENDINGS = (".jpg", ".jpeg", ".jpe", ".jfif", *_HEIF_ENDINGS)
#: What Google's cameras add to the name of a photograph, of its JPEG and of its raw original.
_PART_OF_PAIR = re.compile(r"\.raw-\d+(\.mp)?\.(cover|original)$")
#: Folders of iPhoto and Aperture that hold no originals.
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
#: Bins and thumbnails of Synology, QNAP, Windows, Linux, macOS and Capture One, in lower case.
_BINS = {
    "@eadir",
    "@recycle",
    "@recently-snapshot",
    "#recycle",
    "#snapshot",
    "$recycle.bin",
    "recycler",
    "system volume information",
    "lost+found",
    "__macosx",
    "captureone",
}
#: Ending of a library of Apple's programs -> folders in it that hold no originals.
_IN_LIBRARIES = {
    "photoslibrary": ("resources", "database", "private", "scopes"),
    **dict.fromkeys(("photolibrary", "migratedphotolibrary", "aplibrary"), _DERIVED),
}
#: An address, which has lost a slash as a path.
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,2}(.+)", re.DOTALL)


def _is_of_others(folder: str, name: str) -> bool:
    """Return whether a folder in another one belongs to a program that keeps copies there.

    >>> _is_of_others("2019", "@eaDir"), _is_of_others("My.photoslibrary", "Resources")
    (True, True)
    >>> _is_of_others("2019", "faces")
    False
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
    if content_of(path) != "table":
        return load_features(path, skip_bad=skip_bad)
    columns = read_rows(path, []).columns
    has_text = len(usual_columns("text", columns)) == 1
    has_labels = len(usual_columns("labels", columns)) == 1
    return load_table(
        path,
        root,
        text_column="text" if has_text else None,
        label_columns=None if has_labels else [],
        skip_bad=skip_bad,
    )


def no_such(path: object) -> InputError:
    """Return the error for a path that leads to nothing.

    >>> print(no_such("photos"), no_such("photos.store"), sep="\\n")
    photos: no such folder; check the name
    photos.store: no such folder or file; check the name
    """
    address = _ADDRESS.match(str(path))
    if address:
        return InputError(
            f"{address[1]}://{address[2]}: an address, but a folder or file of this machine is "
            "read here; download it (`channelhash encode --data` reads addresses, shard by shard)"
        )
    kind = "folder or file" if Path(str(path)).suffix else "folder"
    return InputError(f"{path}: no such {kind}; check the name")


def _load_folder(root: Path, skip_bad: bool = False) -> Records:
    """Read every image below ``root``, at any depth, without texts or labels.

    An id is a path relative to ``root``.
    """
    listing = find_images(root)
    damaged = {
        name
        for name, file in zip(listing.ids, listing.names, strict=True)
        if file in listing.with_raw and image_problem(root / file)
    }
    if damaged:
        listing = find_images(root, damaged=damaged)
    removed = {
        reason: count
        for reason, count in listing.skipped.items()
        if reason not in (_NOT_A_PICTURE, _OF_OTHERS, _HIDDEN)
    }
    problems = Problems(skip_bad, [*listing.problems], removed)
    items = []
    for name, file in zip(listing.ids, listing.names, strict=True):
        problem = image_problem(root / file)
        if problem:
            remedy = f"mend it, or leave such pictures out with {argument('skip_bad')}"
            problems.add(problem, remedy, "unreadable picture")
        else:
            items.append(DataItem(name, {"image": root / file}, ()))
    return records_from_rows(items, (), str(root), problems, len(listing.names))


def images_below(root: Path) -> list[Path]:
    """Return the image files below ``root``, at any depth, in the order of their paths.

    Raises:
        InputError: as in `find_images`.
    """
    return [root / name for name in find_images(root).names]


class _Files(NamedTuple):
    """The files of a folder.

    Attributes:
        names: paths of the images, relative to the folder with ``/``, sorted.
        skipped: reason -> number of files and folders that are left out for it.
        problems: a line for each folder or file that cannot be read.
        unread: paths of these, like ``names``: what lies there is unknown, not gone.
        unmatched: patterns of exclusions that leave nothing out.
        with_raw: images beside which a raw original is left out, like ``names``.
    """

    names: list[str]
    skipped: dict[str, int]
    problems: tuple[str, ...]
    unread: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    with_raw: frozenset[str] = frozenset()

    @property
    def ids(self) -> tuple[str, ...]:
        """The names in the composed form of Unicode (NFC).

        Two files whose names differ only in their form keep their names.

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

    A pattern without ``/`` matches names at any depth, one with ``/`` paths from the top. ``*`` and
    ``?`` match within a name, ``**`` across folders, ``[ab]`` one of the characters, or a file
    called ``[ab]``. A pattern that ends in ``/`` matches folders only. Accents match in either form
    of Unicode.

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
        """Return whether a relative path with ``/`` matches.

        The caller leaves out what lies in a folder that matches.
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
            f"{argument('exclude')} {pattern!r}: is no pattern of paths to leave out, such as "
            "'*.gif' or 'raw/'"
        )
    from fsspec.utils import glob_translate  # takes longer than all else that a folder needs

    body = compose(pattern.strip("/"))
    anywhere = "" if "/" in pattern.rstrip("/") else "**/"
    literal = ("(?:.*/)?" if anywhere else "") + re.escape(body)
    return re.compile(f"{glob_translate(anywhere + body)}|{literal}", re.DOTALL)


def find_images(root: Path, exclude: Sequence[str] = (), damaged: Collection[str] = ()) -> _Files:
    """Find the image files below ``root``, at any depth, by one listing of each folder.

    A raw original beside its JPEG is left out unless the id of the JPEG is among the ``damaged``
    ones.

    Left out are hidden files and folders (macOS writes ``._photo.jpg`` beside ``photo.jpg``), links
    to folders, and what other programs keep beside photographs: thumbnails and bins.

    Raises:
        InputError: there are no images, the folder cannot be read, or a pattern is none.
    """
    walk = _Walk(root, exclude, damaged)
    folders = [""]
    while folders:
        folders += walk.list_folder(folders.pop())
    skipped = +walk.skipped
    if not walk.names and not walk.problems:
        reasons = "".join(f"; left out: {count:,} × {reason}" for reason, count in skipped.items())
        raise InputError(f"{root}: no pictures in this folder or below it{reasons}")
    problems = [
        f"{root / _printable(name)}: {problem}" for name, problem in sorted(walk.problems.items())
    ]
    return _Files(
        sorted(walk.names, key=lambda name: name.split("/")),
        dict(sorted(skipped.items())),
        tuple(problems),
        tuple(walk.problems),
        tuple(pattern for pattern in exclude if pattern not in walk.exclusions.matched),
        frozenset(walk.with_raw),
    )


class _Walk:
    """Sorts the entries of one folder after another into images and what is left out.

    The attributes that it fills are those of `_Files`, in the order of the file system.
    """

    def __init__(self, root: Path, exclude: Sequence[str], damaged: Collection[str]) -> None:
        self.root = root
        self.absolute = Path(os.path.abspath(root))
        self.exclusions = Exclusions(exclude)
        self.has_exclusions = bool(exclude)
        self.damaged = damaged
        self.names = list[str]()
        self.skipped = Counter[str]()
        self.problems = dict[str, str]()
        self.with_raw = set[str]()

    def list_folder(self, folder: str) -> list[str]:
        """Read a folder, given relative to the root with ``/`` at its end, and return its
        folders.
        """
        place = self.absolute / folder
        folders = list[str]()
        images = list[str]()
        for entry in self._scan(place, folder):
            name = folder + entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder:
                reason = _reason_of_folder(place.name, entry.name)
            else:
                reason = _reason_of_file(entry.name)
            if self.has_exclusions and self._excludes(entry, name, is_folder):
                reason = "excluded"
            if reason is not None:
                self.skipped[reason] += bool(reason)
            elif is_folder:
                folders.append(f"{name}/")
            else:
                problem = _file_problem(entry, name)
                if problem:
                    self.problems[name] = problem
                else:
                    images.append(name)
        self._add_images(images)
        return folders

    def _scan(self, place: Path, folder: str) -> list[os.DirEntry[str]]:
        """Return the entries of a folder; none, and a problem, if it cannot be read."""
        try:
            return list(os.scandir(place))
        except OSError as error:
            problem = f"cannot be read ({error.strerror})"
            if not folder:
                raise InputError(f"{self.root}: {problem}") from None
            self.problems[folder.rstrip("/")] = problem
            return []

    def _excludes(self, entry: os.DirEntry[str], name: str, is_folder: bool) -> bool:
        try:
            # A link to a folder is not followed anyway.
            if entry.is_symlink() and entry.is_dir():
                return False
        except OSError:
            pass
        return self.exclusions.match(name, is_folder)

    def _add_images(self, images: Sequence[str]) -> None:
        """Add the images of a folder, without raw originals beside their JPEG."""
        twins = _raw_twins(images, self.damaged)
        self.skipped["raw beside its JPEG"] += len(twins)
        self.with_raw.update(*twins.values())
        self.names += [name for name in images if name not in twins]


def _reason_of_folder(parent: str, name: str) -> str | None:
    """Return why a folder in another one is left out: empty where that is not worth a line, None
    for a folder to read.
    """
    if _is_of_others(parent, name):
        return _OF_OTHERS
    if name == STORE_FOLDER:
        return ""
    return _HIDDEN if name.startswith(".") else None


def _reason_of_file(name: str) -> str | None:
    """Return why a file is left out, by its name: empty where that is not worth a line, None for an
    image.
    """
    ending = os.path.splitext(name)[1].lower()
    if name.startswith("."):
        return _HIDDEN if ending in READ_ENDINGS else ""
    if ending in _HEIF_ENDINGS:
        return heif_problem() or None
    if ending in RAW_ENDINGS:
        return raw_problem() or None
    if ending in IMAGE_ENDINGS:
        return None
    return _PROBLEMS.get(ending, _NOT_A_PICTURE)


def _raw_twins(names: Sequence[str], damaged: Collection[str] = ()) -> dict[str, list[str]]:
    """Return raw original -> the images of a camera that lie beside it under the same name, in any
    case, and are not damaged.

    >>> _raw_twins(["1.CR2", "1.jpg", "2.dng", "2.DNG.jpg", "3.nef", "4.dng", "4.png"])
    {'1.CR2': ['1.jpg'], '2.dng': ['2.DNG.jpg']}
    >>> _raw_twins(["P.RAW-01.COVER.jpg", "P.RAW-02.ORIGINAL.dng"])
    {'P.RAW-02.ORIGINAL.dng': ['P.RAW-01.COVER.jpg']}
    >>> _raw_twins(["1.dng", "1.jpg"], damaged=["1.jpg"])
    {}
    """
    raw = dict[str, tuple[str, str]]()
    images = defaultdict[str, list[str]](list)
    for name in names:
        stem, ending = os.path.splitext(name.casefold())
        if ending in RAW_ENDINGS:
            raw[name] = (_PART_OF_PAIR.sub("", stem), stem + ending)
        elif ending in _CAMERA_ENDINGS:
            images[_PART_OF_PAIR.sub("", stem)].append(name)
    twins = {}
    for name, (shared, whole) in raw.items():
        beside = images[shared] + images[whole]
        good = [image for image in beside if compose(image) not in damaged]
        if good:
            twins[name] = good
    return twins


def _printable(name: str) -> str:
    """Return a name that can be printed: bytes that are not UTF-8, which are half surrogate pairs
    in it, as �.
    """
    return os.fsencode(name).decode(errors="replace")


def _file_problem(entry: os.DirEntry[str], name: str) -> str:
    """Return why an image is no file that can be read; empty for a file."""
    try:
        if len(entry.path) > 1000:
            entry.stat()  # raises where the path is too long for the system
        if entry.is_file():
            return "" if _printable(name) == name else "the name is not UTF-8; rename it"
        if entry.is_symlink():
            return "is a link to nothing or to a folder, no picture"
    except OSError as error:  # links that lead to each other, or a path that is too long
        return f"cannot be read ({error.strerror})"
    return "is a pipe, a socket or a device, no picture"
