"""Connections to a store's SQLite file, and SQLite's errors as one line."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from channelhash.errors import InputError, JobError, NoSpaceError
from channelhash.search.local.unspaced import separate
from channelhash.utils.exhausted import check_exhausted

#: How long a call waits for another writer before it gives up.
BUSY_SECONDS = 30.0

#: How SQLite files of a store are told from others: "chst".
APPLICATION = 0x63687374

_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "cache_size = -65536",
    "cell_size_check = ON",
    "trusted_schema = ON",  # views may call `separate`
)


def connect(path: Path | None, create: bool = False, read_only: bool = False) -> sqlite3.Connection:
    """Open a database in autocommit mode.

    Args:
        path: the file; None for one in memory.
        create: make the file where there is none.
        read_only: write neither to the file nor beside it.

    >>> connect(None).execute("PRAGMA cell_size_check").fetchone()
    (1,)
    """
    name = ":memory:"
    if path is not None:
        name = f"file:{quote(str(path.absolute()))}?mode={_read_only(path) if read_only else 'rwc' if create else 'rw'}"
    connection = sqlite3.connect(name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
    try:
        for setting in _SETTINGS[read_only:]:
            connection.execute(f"PRAGMA {setting}")
        connection.create_function("separate", 1, separate, deterministic=True)  # for the view of `words`
    except BaseException:
        connection.close()
        raise
    return connection


def _read_only(path: Path) -> str:
    """Return how SQLite opens a file that it cannot write to: with its log if there is one, else without any lock."""
    has_log = any(Path(f"{path}-{log}").exists() for log in ("wal", "shm"))
    return f"ro&{'readonly_shm' if has_log else 'immutable'}=1"


@contextmanager
def one_line_errors(name: str) -> Iterator[None]:
    """Raise SQLite's errors as one line for the user.

    Args:
        name: the file.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        reason = str(error)
        if "locked" in reason or "busy" in reason:
            raise InputError(f"{name}: another process is writing to it; try again later") from None
        if "unable to open" in reason:
            raise _not_opened(name, reason) from None
        if "readonly" in reason:
            raise InputError(f"{name}: can only be read; copy the store to where it can be written to") from None
        if "full" in reason or "disk I/O" in reason:
            raise NoSpaceError(f"{name}: cannot be written ({reason}); make room on the disk") from None
        if "no such module: fts5" in reason:
            raise InputError(
                f"{name}: has an index of words, for which this Python's SQLite lacks FTS5; use another Python"
            ) from None
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
            raise
        raise damaged(name, reason) from None


def _not_opened(name: str, reason: str) -> JobError:
    """Return what to raise where SQLite could not open a file, which it does not say why."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))  # closing the file itself would end SQLite's locks
    except OSError as error:
        check_exhausted(error, name)
    return JobError(f"{name}: cannot be opened ({reason}): too many open files, or no right to its folder")


def damaged(name: str, reason: str) -> InputError:
    """Return what to raise where a database is not whole."""
    return InputError(
        f"{name}: not a store's database, or damaged or not accessible ({' '.join(reason.split())});"
        f" {what_to_do(Path(name).parent)}"
    )


def what_to_do(folder: Path) -> str:
    """Return what a person can do about a damaged store."""
    return (
        f"`channelhash index check {folder}` lists the damage, `channelhash index repair {folder}` keeps what is whole"
    )
