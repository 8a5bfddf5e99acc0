"""Small copies of image files, by which `channelhash.copies.comparison` tells copies of an image,
and the database that keeps them between runs.
"""

import json
import sqlite3
import struct
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.copies.detail import FINE_SIDE, Box, Floats, read_now, shrink, turn_by
from channelhash.utils.image_files import decode, open_image
from channelhash.utils.machine import usable_cores
from channelhash.utils.progress import Progress, no_progress

#: Side of a small copy: large enough for shapes, small enough that compression does not show.
SIDE = 16
#: Side of the larger grey copy, by which images are aligned: a tenth that is cut off is 3 cells.
_FINE_SIDE = 2 * SIDE
#: Side of the grey copy in which the background is looked for.
_PAGE_SIDE = 128
#: Share of an image with one level of grey from which it is a page; photographs mostly have less.
_BACKGROUND = 0.4
#: Levels of grey on both sides that belong to the background, too, as compression changes some.
_SHADES = 8
#: Share of a row or column beside the frame's level from which it belongs to what is framed: half,
#: so that of a rotated image little is lost.
_FRAMED = 0.5
#: The least side of what is framed, in cells of the larger grey copy.
_LEAST_FRAMED = 16
#: Version of small copies and of their comparison: those of another are read and compared again.
_VERSION = 3
#: Small copies in memory, some 100 MB.
_CACHED = 1 << 15
#: Images that are read between two writes to the database, so that a killed run loses few.
_AT_ONCE = 256

#: Cells of a small copy: `grey`, `colour` and `fine`.
_CELLS = 4 * SIDE**2 + _FINE_SIDE**2
#: What is packed after the cells: `is_page`, `sharpness` and `box`.
_REST = struct.Struct("<?f4H")


class SmallCopy(NamedTuple):
    """A small copy of an image file.

    Attributes:
        path: of the file.
        grey: ``(16, 16)`` uint8.
        colour: ``(16, 16, 3)`` uint8, red, green and blue.
        is_page: whether much of it is background, so that its detail counts.
        sharpness: variance of the Laplacian of a larger grey copy.
        turn: how it was turned since it was read, see `turn_by`.
        fine: ``(32, 32)`` uint8, grey; empty in copies that are not read from files.
        box: left, top, right and bottom of what it shows, in 256ths of the image.
        framed: the copy of what lies in a border or on a page of one level of grey, if anything.
    """

    path: str
    grey: NDArray[np.uint8]
    colour: NDArray[np.uint8]
    is_page: bool
    sharpness: float = 0.0
    turn: int = 0
    fine: NDArray[np.uint8] = np.zeros((0, 0), np.uint8)
    box: Box = (0, 0, FINE_SIDE, FINE_SIDE)
    framed: "SmallCopy | None" = None

    def turned(self, turn: int) -> "SmallCopy":
        """Return the copy of the image in one of its eight positions."""
        return self._replace(
            grey=turn_by(self.grey, turn), colour=turn_by(self.colour, turn), turn=turn
        )

    @property
    def views(self) -> list["SmallCopy"]:
        """The copy and that of what is framed in it, without those of pages."""
        views = [self, self.framed] if self.framed else [self]
        return [view for view in views if view.fine.size and not view.is_page]

    def pack(self) -> bytes:
        """Return what `unpack` reads."""
        rest = _REST.pack(self.is_page, self.sharpness, *self.box)
        cells = self.grey.tobytes() + self.colour.tobytes() + self.fine.tobytes()
        return cells + rest + (self.framed.pack() if self.framed else b"")

    @classmethod
    def unpack(cls, path: str, content: bytes) -> "SmallCopy":
        """Return the copy of a file that was packed."""
        values = np.frombuffer(content, np.uint8, _CELLS)
        grey, colour, fine = np.split(values, [SIDE**2, 4 * SIDE**2])
        is_page, sharpness, left, top, right, bottom = _REST.unpack_from(content, _CELLS)
        framed = content[_CELLS + _REST.size :]
        return cls(
            path,
            grey.reshape(SIDE, SIDE),
            colour.reshape(SIDE, SIDE, 3),
            is_page,
            sharpness,
            fine=fine.reshape(_FINE_SIDE, _FINE_SIDE),
            box=(left, top, right, bottom),
            framed=cls.unpack(path, framed) if framed else None,
        )


class KeptCopies:
    """Small copies and comparisons of them in a database, for the next run.

    >>> kept = KeptCopies(sqlite3.connect(":memory:", isolation_level=None))
    >>> kept.remember(["a"], [])
    >>> kept.packed(), kept.compared(), kept.pairs()
    ({}, set(), [])
    """

    #: Pairs of ``joined`` connect the images that are alike, among those that were ``compared``.
    _SCHEMA = """
CREATE TABLE IF NOT EXISTS copies (
    path TEXT PRIMARY KEY, state TEXT NOT NULL, copy BLOB NOT NULL, compared INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS joined (one TEXT NOT NULL, other TEXT NOT NULL);
"""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.executescript(self._SCHEMA)

    def packed(self, paths: Sequence[str] | None = None) -> dict[str, tuple[str, bytes]]:
        """Return path -> state of the file when it was read, and its packed copy; of all files, or
        of those with some paths.
        """
        sql = "SELECT path, state, copy FROM copies"
        if paths is None:
            rows = self._connection.execute(sql)
        else:
            sql += " WHERE path IN (SELECT value FROM json_each(?))"
            rows = self._connection.execute(sql, (json.dumps(paths),))
        return {path: (state, content) for path, state, content in rows}

    def write(self, copies: Iterable[tuple[SmallCopy, str]]) -> None:
        """Keep copies with the states of their files; they are not compared yet."""
        rows = [(copy.path, state, copy.pack()) for copy, state in copies]
        self._write(("INSERT OR REPLACE INTO copies VALUES (?, ?, ?, 0)", rows))

    def compared(self) -> set[str]:
        """Return the paths of the images that were compared with all others."""
        rows = self._connection.execute("SELECT path FROM copies WHERE compared")
        return {path for (path,) in rows}

    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs of paths whose images are alike; others follow from chains of these."""
        return self._connection.execute("SELECT one, other FROM joined").fetchall()

    def remember(self, paths: Collection[str], pairs: Collection[tuple[str, str]]) -> None:
        """Keep which images have been compared with all others, and which pairs that has found."""
        compare = "UPDATE copies SET compared = 1 WHERE path = ?"
        self._write(("INSERT INTO joined VALUES (?, ?)", pairs), (compare, zip(paths)))

    def forget(self, paths: Collection[str]) -> None:
        """Forget how some images compare with all others."""
        compare = "UPDATE copies SET compared = 0 WHERE path = ?"
        self._write((compare, zip(paths)), ("DELETE FROM joined WHERE one = ?", zip(paths)))

    def _write(self, *statements: tuple[str, Iterable[Sequence[str | bytes]]]) -> None:
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for sql, rows in statements:
                self._connection.executemany(sql, rows)


def read_copies(
    paths: Sequence[str], kept: KeptCopies | None = None, progress: Progress = no_progress
) -> list[SmallCopy | None]:
    """Read the small copies of image files; None for what cannot be read.

    Of files that have not changed, those that are ``kept`` or still in memory are not read again.

    >>> read_copies(["none.jpg"])
    [None]
    """
    packed = kept.packed() if kept else {}

    def read(path: str, changed: str) -> tuple[SmallCopy, str]:
        """Return the copy, and the state to keep it with unless it is kept already."""
        state = f"{changed} {_VERSION}"
        kept_state, content = packed.get(path, ("", b""))
        if kept_state == state:
            return SmallCopy.unpack(path, content), ""
        return _read_small(path, state), state

    copies: list[SmallCopy | None] = []
    with ThreadPoolExecutor(usable_cores()) as pool:
        for start in range(0, len(paths), _AT_ONCE):
            batch = list(pool.map(partial(read_now, read), paths[start : start + _AT_ONCE]))
            new = [(copy, state) for copy, state in filter(None, batch) if state]
            if kept and new:
                kept.write(new)
            copies += [each and each[0] for each in batch]
            progress(len(copies), len(paths))
    return copies


def recall_copies(paths: Sequence[str], kept: KeptCopies) -> list[SmallCopy | None]:
    """Return the small copies that are kept of image files; None for files that have changed since,
    and others.

    >>> recall_copies(["none.jpg"], KeptCopies(sqlite3.connect(":memory:")))
    [None]
    """
    packed = kept.packed(paths)

    def recall(path: str, changed: str) -> SmallCopy | None:
        state, content = packed.get(path, ("", b""))
        return SmallCopy.unpack(path, content) if state == f"{changed} {_VERSION}" else None

    return [read_now(recall, path) for path in paths]


@lru_cache(_CACHED)
def _read_small(path: str, _state: str) -> SmallCopy:
    with open_image(path) as opened:
        larger = shrink(decode(opened, FINE_SIDE), FINE_SIDE)
    copy = _shrink_to_copy(path, larger)
    box = _box_of_framed(np.asarray(shrink(larger, _PAGE_SIDE).convert("L")))
    if box is None:
        return copy
    framed = _shrink_to_copy(path, larger.crop(box))
    return copy._replace(framed=framed._replace(box=box))


def _shrink_to_copy(path: str, larger: Image.Image) -> SmallCopy:
    grey = shrink(larger, _PAGE_SIDE).convert("L")
    shades = np.ones(2 * _SHADES + 1)
    background = np.convolve(grey.histogram(), shades).max() / _PAGE_SIDE**2
    return SmallCopy(
        path,
        np.asarray(shrink(grey, SIDE)),
        np.asarray(shrink(larger, SIDE)),
        bool(background >= _BACKGROUND),
        _sharpness_of(np.asarray(larger.convert("L"), dtype=np.float32)),
        fine=np.asarray(shrink(grey, _FINE_SIDE)),
    )


def _box_of_framed(grey: NDArray[np.uint8]) -> Box | None:
    """Return where the longest runs of rows and columns lie that are not of the level of the edge;
    None if that is everywhere, or hardly anywhere.
    """
    levels = grey.astype(np.int16)
    edge = np.concatenate([levels[0], levels[-1], levels[:, 0], levels[:, -1]])
    is_other = np.abs(levels - np.median(edge)) > _SHADES
    top, bottom = _longest_run(is_other.mean(axis=1) >= _FRAMED)
    if bottom - top < _LEAST_FRAMED:
        return None
    left, right = _longest_run(is_other[top:bottom].mean(axis=0) >= _FRAMED)
    is_whole = (bottom - top) * (right - left) == levels.size
    if is_whole or right - left < _LEAST_FRAMED:
        return None
    cells = FINE_SIDE // _PAGE_SIDE
    return cells * left, cells * top, cells * right, cells * bottom


def _longest_run(flags: NDArray[np.bool_]) -> tuple[int, int]:
    """Return where the longest run of true flags starts and stops; both 0 if there is none.

    >>> _longest_run(np.array([True, False, True, True]))
    (2, 4)
    """
    changes = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    if not len(changes):
        return 0, 0
    starts = changes[::2]
    stops = changes[1::2]
    longest = (stops - starts).argmax()
    return int(starts[longest]), int(stops[longest])


def _sharpness_of(grey: Floats) -> float:
    """Return the variance of the Laplacian of a grey copy."""
    around = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]
    return float((4 * grey[1:-1, 1:-1] - around).var())
