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

from channelhash.copies.detail import FINE_SIDE, Floats, read_now, shrink, turn_by
from channelhash.utils.image_files import decode, open_image
from channelhash.utils.machine import usable_cores
from channelhash.utils.progress import Progress, no_progress

#: Side of a small copy: large enough for shapes, small enough that compression does not show.
SIDE = 16
#: Side of the grey copy in which the background is looked for.
_PAGE_SIDE = 128
#: Share of an image with one level of grey from which it is a page; photographs mostly have less.
_BACKGROUND = 0.4
#: Levels of grey on both sides that belong to the background, too, as compression changes some.
_SHADES = 8
#: Version of small copies and of their comparison: those of another are read and compared again.
_VERSION = 2
#: Small copies in memory, some 100 MB.
_CACHED = 1 << 16
#: Images that are read between two writes to the database, so that a killed run loses few.
_AT_ONCE = 256

#: What is packed after the cells of a small copy: `is_page` and `sharpness`.
_REST = struct.Struct("<?f")


class SmallCopy(NamedTuple):
    """A small copy of an image file.

    Attributes:
        path: of the file.
        grey: ``(16, 16)`` uint8.
        colour: ``(16, 16, 3)`` uint8, red, green and blue.
        is_page: whether much of it is background, so that its detail counts.
        sharpness: variance of the Laplacian of a larger grey copy.
        turn: how it was turned since it was read, see `turn_by`.
    """

    path: str
    grey: NDArray[np.uint8]
    colour: NDArray[np.uint8]
    is_page: bool
    sharpness: float = 0.0
    turn: int = 0

    def turned(self, turn: int) -> "SmallCopy":
        """Return the copy of the image in one of its eight positions."""
        return self._replace(
            grey=turn_by(self.grey, turn), colour=turn_by(self.colour, turn), turn=turn
        )

    def pack(self) -> bytes:
        """Return what `unpack` reads."""
        rest = _REST.pack(self.is_page, self.sharpness)
        return self.grey.tobytes() + self.colour.tobytes() + rest

    @classmethod
    def unpack(cls, path: str, content: bytes) -> "SmallCopy":
        """Return the copy of a file that was packed."""
        values = np.frombuffer(content, np.uint8, 4 * SIDE**2)
        grey = values[: SIDE**2].reshape(SIDE, SIDE)
        colour = values[SIDE**2 :].reshape(SIDE, SIDE, 3)
        return cls(path, grey, colour, *_REST.unpack(content[-_REST.size :]))


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
    grey = shrink(larger, _PAGE_SIDE).convert("L")
    shades = np.ones(2 * _SHADES + 1)
    background = np.convolve(grey.histogram(), shades).max() / _PAGE_SIDE**2
    return SmallCopy(
        path,
        np.asarray(shrink(grey, SIDE)),
        np.asarray(shrink(larger, SIDE)),
        bool(background >= _BACKGROUND),
        _sharpness_of(np.asarray(larger.convert("L"), dtype=np.float32)),
    )


def _sharpness_of(grey: Floats) -> float:
    """Return the variance of the Laplacian of a grey copy."""
    around = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]
    return float((4 * grey[1:-1, 1:-1] - around).var())
