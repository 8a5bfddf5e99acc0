"""Check a store's database, so that damage between two openings is noticed.

Who closes the store last seals it: its description then holds the digest of the database. Whoever opens it compares.
"""

import json
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Any, NamedTuple
from zlib import crc32

from channelhash.errors import InputError, JobError
from channelhash.search.local.folder import Facts, StoreFolder, parse_manifest, read_manifest
from channelhash.search.local.tables import (
    code_checksum,
    connect,
    create_tables,
    damaged,
    digest,
    item_checksum,
    one_line_errors,
    read_description,
    read_state,
    read_totals,
    sums,
    what_to_do,
)
from channelhash.search.local.words import check_words, has_fts5, has_words
from channelhash.utils.files import check_exhausted, locked, write_text

_DATABASE = "items.sqlite"

_CHUNK = 1 << 20
# Device and inode of the databases that guards of this process hold. While SQLite has a file open, this module opens it
# nowhere else: POSIX ends all locks of a process on a file that it closes any descriptor of.
_held: Counter[tuple[int, int]] = Counter()


class Guard:
    """The hold of an open store on its database, which is checked when this begins and sealed when it ends.

    * Sealed, and not written to since: its digest is compared, about 1 s a gigabyte.
    * Not sealed, and nobody else has it open: a process was killed. All is checked, see `check_database`, and the
      database is sealed.
    * Not sealed, and others have it open: they have checked it.
    * It can only be read: it is checked in the same way, and not sealed. Reading ends when somebody else has changed
      the file.

    Args:
        folder: of the store, which is there.
        facts: what its codes have in common.

    Attributes:
        read_only: whether the store can only be read.

    Raises:
        InputError: the database is damaged, or lacks what was written to it.
    """

    def __init__(self, folder: StoreFolder, facts: Facts) -> None:
        self._folder, self._facts = folder, facts
        self.read_only = not folder.writable
        self._path = str(folder.database)
        try:
            status = os.stat(self._path)
            self._file, self._changed = (status.st_dev, status.st_ino), status.st_mtime_ns
            if status.st_size == 0:  # beside an empty file SQLite throws the log away, with what is in there
                raise damaged(self._path, "it is empty")
            with one_line_errors(self._path):
                self._look() if self.read_only else self._enter()
            _held[self._file] += 1
        except OSError as error:
            check_exhausted(error, folder.path)
            raise InputError(f"{folder.path}: cannot be opened ({error.strerror}: {error.filename})") from None

    def check_there(self) -> None:
        """Raise an error if the open database is not the store's any more; costs two microseconds.

        Raises:
            JobError: it was removed or replaced, so what is written would be lost and what is read be of the past.
            InputError: nobody has written to the file since it was sealed, and yet it is another.
        """
        file, changed = self._status()
        if file != self._file:
            raise JobError(f"{self._folder.path}: the store was removed or replaced while it was open; open it again")
        if changed != self._changed:
            if self.read_only:
                raise JobError(f"{self._folder.path}: was written to while it was open; open it again")
            with closing(connect(self._folder.database)) as connection:  # one that has no page in memory
                self._compare(connection)
            self._changed = changed

    def note(self, writes: int) -> None:
        """Note durably enough for a kill, not for a power cut, how often the database was written to; 20 us."""
        with suppress(OSError):
            descriptor = os.open(self._folder.writes, os.O_WRONLY | os.O_CREAT, 0o666)
            os.write(descriptor, b"%020d\n" % writes)
            os.close(descriptor)

    def seal(self, writes: int) -> None:
        """Seal the database if it was written to and nobody has it open any more; else the next opening checks it.

        Args:
            writes: how often it was written to.
        """
        _held[self._file] -= 1
        manifest = read_manifest(self._folder)
        is_sealed = manifest is not None and manifest.digest and manifest.writes == writes
        if is_sealed or self.read_only or self._status()[0] != self._file:
            return
        with (
            suppress(OSError, JobError, sqlite3.DatabaseError),
            locked(self._folder.gate),
            closing(connect(self._folder.database, alone=True)) as connection,
        ):
            _seal_database(self._folder, connection)

    def _status(self) -> tuple[tuple[int, int] | None, int]:
        try:
            status = os.stat(self._path)
        except OSError:
            return None, 0
        return (status.st_dev, status.st_ino), status.st_mtime_ns

    def _look(self) -> None:
        with closing(connect(self._folder.database, read_only=True)) as connection:
            if not self._compare(connection):
                self._check_all(connection)

    def _enter(self) -> None:
        with locked(self._folder.gate):
            has_log = any(path.stat().st_size for path in self._folder.path.glob(f"{_DATABASE}-wal"))
            file_digest = "" if _held[self._file] or has_log else _digest_of_file(self._path)
            with closing(connect(self._folder.database)) as connection:
                if self._compare(connection, file_digest):
                    return
            try:
                connection = connect(self._folder.database, alone=True)
            except sqlite3.OperationalError as error:
                if "locked" in str(error):  # others have it open, and have checked it
                    return
                raise
            with closing(connection):
                self._check_all(connection)
                _seal_database(self._folder, connection)

    def _compare(self, connection: sqlite3.Connection, file_digest: str = "") -> bool:
        findings, is_sealed = compare_with_manifest(self._folder, connection, file_digest)
        self._refuse(findings)
        return is_sealed

    def _check_all(self, connection: sqlite3.Connection) -> None:
        self._refuse(list(islice(check_database(connection, self._facts), 2)))

    def _refuse(self, findings: list["Finding"]) -> None:
        if findings:
            more = ", and more" if len(findings) > 1 else ""
            path = self._folder.path
            raise InputError(f"{path}: is damaged ({findings[0]}{more}); {what_to_do(path)}")


def _seal_database(folder: StoreFolder, connection: sqlite3.Connection) -> None:
    """Note in a store's description what its database is, which nobody else has open."""
    manifest = parse_manifest(read_description(connection))
    if manifest is None:
        raise sqlite3.DatabaseError("the description of the store is damaged")
    sealed = manifest._replace(writes=read_state(connection).writes, digest=digest(connection))
    write_text(folder.description, sealed.to_json())


def _digest_of_file(path: str) -> str:
    """Return what `tables.digest` does of a database without a log, in half the time."""
    size = checksum = 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            size, checksum = size + len(chunk), crc32(chunk, checksum)
    return f"{size} {checksum:08x}"


def compare_with_manifest(
    folder: StoreFolder, connection: sqlite3.Connection, file_digest: str = ""
) -> tuple[list["Finding"], bool]:
    """Compare a database with what the store's description says of it.

    Args:
        folder: of the store.
        connection: to its database.
        file_digest: the digest of the database, if it is known.

    Returns:
        What is wrong, and whether the database is sealed and as it was then.
    """
    manifest, noted = read_manifest(folder), noted_writes(folder)  # before the database: others write meanwhile
    connection.execute("BEGIN")
    try:
        state = read_state(connection)
        about = parse_manifest(read_description(connection))
        if about is None or not isinstance(state.writes, int):
            return [Finding(_DATABASE, "the description of the store is damaged")], False
        if manifest is not None and manifest.store != about.store:
            return [Finding(_DATABASE, "is another store's, or store.json is")], False
        least = max(manifest.writes if manifest else 0, noted)
        if state.writes < least:
            what = f"lacks the last {least - state.writes:,} or more writes: its log was cut, or an old copy put back"
            return [Finding(_DATABASE, what)], False
        if manifest is None or not manifest.digest or manifest.writes != state.writes:
            return [], False
        if (file_digest or digest(connection)) != manifest.digest:
            return [Finding(_DATABASE, "is not as it was when the store was closed")], False
        return [], True
    finally:
        connection.execute("ROLLBACK")


def noted_writes(folder: StoreFolder) -> int:
    """Return how often the database was written to at least, see `Guard.note`; 0 if that is not known."""
    try:
        return int(folder.writes.read_bytes())
    except (OSError, ValueError):
        return 0


class Finding(NamedTuple):
    """Damage.

    Attributes:
        where: a file, or an item's id.
        what: what is wrong there.

    >>> str(Finding("items.sqlite", "a page is zero"))
    'items.sqlite: a page is zero'
    """

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def check_database(connection: sqlite3.Connection, facts: Facts | None) -> Iterator[Finding]:
    """Check a database as it is when this begins, whatever others write meanwhile.

    Args:
        connection: the caller uses it for nothing else; texts come as bytes from now on.
        facts: what the store's description says, if that is known.
    """
    connection.text_factory = bytes  # a damaged text may not be UTF-8
    connection.execute("BEGIN")
    try:
        parts: list[Callable[[], Iterator[Finding]]] = [
            lambda: _check_trees(connection),
            lambda: _check_definitions(connection, facts.stem if facts else ""),
            lambda: _check_items(connection),
            lambda: _check_codes(connection, facts),
            lambda: _check_state(connection),
        ]
        for part in parts:
            try:
                yield from part()
            except (sqlite3.DatabaseError, TypeError, ValueError) as error:  # types are as odd as damage makes them
                yield Finding(_DATABASE, " ".join(str(error).split()))
    finally:
        connection.execute("ROLLBACK")
    yield from _check_words(connection)


def is_whole_item(row: tuple[Any, ...]) -> bool:
    """Return whether a row ``(number, id, metadata, checksum)`` is as it was written; texts are bytes."""
    number, name, metadata, checksum = row
    return bool(item_checksum(number, name, metadata) == checksum != -1)


def is_whole_code(row: tuple[Any, ...], facts: Facts | None) -> bool:
    """Return whether a row is as it was written; texts are bytes.

    Args:
        row: ``(serial, item, modality, code, projection, checksum, id)``.
        facts: of the store, as far as they are known.
    """
    serial, number, modality, code, projection, checksum, name = row
    if not isinstance(code, bytes):
        return False
    if facts and (len(code) != -(-facts.n_bits // 8) or code[-1] & ((1 << -facts.n_bits % 8) - 1)):
        return False
    if facts and (len(projection) if isinstance(projection, bytes) else projection) != facts.projection_size:
        return False
    return bool(code_checksum(name, number, serial, modality, code, projection) == checksum != -1)


def _check_trees(connection: sqlite3.Connection) -> Iterator[Finding]:
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != b"ok":
            yield Finding(_DATABASE, " ".join(line.decode(errors="replace").split()))


def _check_definitions(connection: sqlite3.Connection, stem: str) -> Iterator[Finding]:
    with closing(connect(None)) as expected:
        expected.text_factory = bytes
        create_tables(expected, stem, "")
        sql = "SELECT type, name, coalesce(sql, '') FROM sqlite_master"
        for kind, name, _ in sorted(set(expected.execute(sql)) - set(connection.execute(sql))):
            yield Finding(_DATABASE, f"the {_text(kind)} {_text(name)} is not defined as it should be")


def _check_items(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Check the items, and the tables of labels and of keys, which are made from them."""
    keys: set[str] = set()
    labels = 0
    for row in connection.execute("SELECT number, id, metadata, checksum FROM items NOT INDEXED"):
        if not is_whole_item(row):
            yield Finding(_text(row[1]), f"the item is damaged (row {row[0]})")
            continue
        if row[2] != b"{}":
            values = json.loads(row[2])
            keys.update(values)
            labels += sum(_of_label(row[0], label.encode()) for label in set(_labels(values)))
    missing = keys - {_text(name) for (name,) in connection.execute("SELECT name FROM keys")}
    if missing:
        yield Finding(_DATABASE, f"the table of metadata's keys lacks {', '.join(sorted(missing))}")
    if labels != sum(
        _of_label(number, label) for number, label in connection.execute("SELECT item, label FROM labels")
    ):
        yield Finding(_DATABASE, "the table of labels does not agree with the items' metadata")


def _check_codes(connection: sqlite3.Connection, facts: Facts | None) -> Iterator[Finding]:
    rows = connection.execute(
        "SELECT serial, item, modality, code, projection, codes.checksum, id"
        " FROM codes NOT INDEXED LEFT JOIN items ON number = item"
    )
    for row in rows:
        if row[6] is None:
            yield Finding(_DATABASE, f"the {_text(row[2])} code {row[0]} belongs to no item")
        elif not is_whole_code(row, facts):
            yield Finding(_text(row[6]), f"the {_text(row[2])} code is damaged (row {row[0]})")


def _check_state(connection: sqlite3.Connection) -> Iterator[Finding]:
    state = read_state(connection)
    (last,) = connection.execute(
        "SELECT max(coalesce((SELECT max(serial) FROM codes), 0), coalesce((SELECT max(serial) FROM removed), 0))"
    ).fetchone()
    (twice,) = connection.execute("SELECT count(*) FROM removed JOIN codes USING (serial)").fetchone()
    if not 0 <= state.snapshot_serial <= state.last_serial or last > state.last_serial or twice or state.version < 0:
        yield Finding(_DATABASE, "the serials of codes contradict each other")
    added = sums(connection)
    for name, expected, found in zip(added._fields, read_totals(connection), added, strict=True):
        if expected != found:
            yield Finding(_DATABASE, f"the table {name} is not as it was written: rows are missing or changed")


def _check_words(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Check the index of words. SQLite does that only for who may write, so that writers wait meanwhile."""
    if not has_words(connection) or not has_fts5(connection):
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            check_words(connection)
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        if not re.search("locked|readonly", str(error)):
            yield Finding(_DATABASE, f"the index of words does not agree with the items ({error})")


def _of_label(number: int, label: bytes) -> int:
    return crc32(label, crc32(b"%d " % number))


def _labels(values: dict[str, Any]) -> list[str]:
    labels = values.get("labels")
    return labels if isinstance(labels, list) else []


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
