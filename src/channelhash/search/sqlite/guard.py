"""Check a store's database, so that damage between two openings is noticed.

The last process to close the store seals it: it writes the digest of the database into the store's
description. The next one to open the store compares the two.
"""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext, suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from zlib import crc32

from channelhash.errors import InputError, JobError
from channelhash.search.items import Facts
from channelhash.search.sqlite import folder as disk
from channelhash.search.sqlite.words import WordIndex
from channelhash.utils.decode import check_exhausted
from channelhash.utils.files import write_text
from channelhash.utils.locks import locked

_DATABASE = "items.sqlite"
#: Bytes of a database that are read at a time.
_CHUNK = 1 << 20
#: Device and inode -> how many guards of this process hold that database. While SQLite has a file
#: open, this module must not open it: when a process closes any descriptor of a file, POSIX ends
#: all its locks on that file.
_holds: Counter[tuple[int, int]] = Counter()


class Guard:
    """The hold of an open store on its database. The database is checked when the hold begins, and
    sealed when it ends.

    * If it is sealed and was not written to since, its digest is compared: about 1 s a gigabyte.
    * If it is not sealed and nobody else has it open, a process was killed. Everything is checked,
      see `check_database`, and the database is sealed.
    * If it is not sealed and others have it open, they have checked it.
    * If it can only be read, it is checked in the same way but not sealed. The holder asks before
      and after each read whether it `is_stale`, and opens it again if so.

    Attributes:
        read_only: whether the store can only be read.
    """

    def __init__(self, folder: disk.StoreFolder, facts: Facts) -> None:
        self._folder = folder
        self._facts = facts
        self.read_only = not folder.writable
        self._seen: tuple[object, ...] | None = folder.look() if self.read_only else ()
        try:
            status = os.stat(folder.database)
            self._file = status.st_dev, status.st_ino
            gate = nullcontext() if self.read_only else locked(folder.gate)
            with disk.one_line_errors(str(folder.database)), gate:
                self._check()
            self._changed = self._status()[1]  # the check may have moved the log into the file
            _holds[self._file] += 1
        except OSError as error:
            check_exhausted(error, folder.path)
            raise InputError(
                f"{folder.path}: cannot be opened ({error.strerror}: {error.filename})"
            ) from None

    def _check(self) -> None:
        finding, is_sealed = compare_with_manifest(self._folder)
        findings = [finding] if finding else []
        if not findings and not is_sealed:
            findings = self._check_rows()
        if findings:
            more = ", and more" if len(findings) > 1 else ""
            raise disk.damaged(str(self._folder.database), f"{findings[0]}{more}")

    def _check_rows(self) -> list["Finding"]:
        """Return the first damage, and seal the database if there is none."""
        try:
            connection = disk.connect(
                self._folder.database, read_only=self.read_only, alone=not self.read_only
            )
        except sqlite3.OperationalError as error:
            if "locked" in str(error):  # others have it open, and have checked it
                return []
            raise
        with closing(connection):
            findings = list(islice(check_database(connection, self._facts), 2))
        if not findings and not self.read_only:
            _seal_database(self._folder)
        return findings

    def is_stale(self) -> bool:
        """Return whether a database that can only be read must be opened again, as others have
        changed it.
        """
        if not self.read_only or self._seen == self._folder.look():
            return False
        return not self._folder.kept or self._status()[0] == self._file

    def keeps_reading(self) -> bool:
        """Let the open database be read from now on even if it is not the store's any more. Return
        whether another is in its place.
        """
        self._folder.kept = True
        return self._status()[0] not in (None, self._file)

    def check_presence(self, writes: bool) -> None:
        """Raise an error if the open database is not the store's any more, unless it is kept to be
        read. Takes 2 µs.
        """
        if self.read_only:
            return
        file, changed = self._status()
        if file != self._file:
            if self._folder.kept and not writes:
                return
            raise JobError(
                f"{self._folder.path}: the store was removed or replaced while it was open; open "
                "it again"
            )
        if changed == self._changed:
            return
        # A new connection would wait for a minute to write to an empty file.
        if not os.stat(self._folder.database).st_size:
            raise disk.damaged(str(self._folder.database), "is empty")
        if self._is_sealed(_read_database(self._folder)[0]):
            raise disk.damaged(str(self._folder.database), "another program has written to it")
        self._changed = changed

    def note(self, writes: int) -> None:
        """Note how often the database was written to. The note outlives a killed process, not a
        power cut. Takes 20 µs.
        """
        with suppress(OSError):
            descriptor = os.open(self._folder.writes, os.O_WRONLY | os.O_CREAT, 0o666)
            os.write(descriptor, b"%020d\n" % writes)
            os.close(descriptor)

    def seal(self, writes: int | None) -> None:
        """End the hold, and seal the database if nobody has it open any more. Without a seal, the
        next opening checks it.

        Args:
            writes: how often the database was written to; None if it cannot be read, and then it is
                not sealed.
        """
        if self._seen is None:
            return
        _holds[self._file] -= 1
        self._seen = None
        if (
            writes is None
            or self.read_only
            or self._status()[0] != self._file
            or self._is_sealed(writes)
        ):
            return
        with suppress(OSError, sqlite3.DatabaseError), locked(self._folder.gate):
            # This moves the log into the file.
            disk.connect(self._folder.database, alone=True).close()
            _seal_database(self._folder)

    def _is_sealed(self, writes: int) -> bool:
        manifest = self._folder.manifest()
        return manifest is not None and bool(manifest.digest) and manifest.writes == writes

    def _status(self) -> tuple[tuple[int, int] | None, int]:
        try:
            status = os.stat(self._folder.database)
        except OSError:
            return None, 0
        return (status.st_dev, status.st_ino), status.st_mtime_ns


def _seal_database(folder: disk.StoreFolder) -> None:
    """Write the digest of a database that nobody has open into the store's description. If that
    fails, the next opening checks the database.
    """
    digest = _digest(folder)
    writes, manifest = _read_database(folder)
    if manifest and digest:
        with suppress(OSError, JobError):
            write_text(
                folder.description, manifest._replace(writes=writes, digest=digest).to_json()
            )


def _read_database(folder: disk.StoreFolder) -> tuple[int, disk.Manifest | None]:
    """Return how often a database was written to, and its manifest, through a new connection, which
    has no pages in memory.
    """
    with closing(disk.connect(folder.database, read_only=not folder.writable)) as connection:
        return disk.State.read(connection).writes, disk.Manifest.read(connection, folder.database)


def _digest(folder: disk.StoreFolder) -> str:
    """Return length and CRC-32 of a database; empty if it has a log or this process holds it."""
    status = os.stat(folder.database)
    logs = folder.path.glob(f"{_DATABASE}-wal")
    if _holds[status.st_dev, status.st_ino] or any(log.stat().st_size for log in logs):
        return ""
    size = 0
    checksum = 0
    with open(folder.database, "rb") as file:
        for chunk in iter(partial(file.read, _CHUNK), b""):
            size += len(chunk)
            checksum = crc32(chunk, checksum)
    return f"{size} {checksum:08x}"


def compare_with_manifest(folder: disk.StoreFolder) -> tuple["Finding | None", bool]:
    """Return how a database contradicts the store's description, and whether it is sealed."""
    # These are read before the database, as others write meanwhile.
    manifest = folder.manifest()
    noted = folder.noted_writes()
    # Beside an empty file SQLite throws the log away, with what is in it.
    if not os.stat(folder.database).st_size:
        return Finding(_DATABASE, "is empty"), False
    digest = _digest(folder)
    writes, about = _read_database(folder)
    if about is None:
        return Finding(_DATABASE, "the description of the store is damaged"), False
    manifest = manifest or about._replace(writes=0, digest="")
    if manifest.store != about.store:
        return Finding(_DATABASE, "is another store's, or store.json is"), False
    lost = max(manifest.writes, noted) - writes
    if lost > 0:
        what = f"lacks the last {lost:,} or more writes: its log was cut, or an old copy put back"
        return Finding(_DATABASE, what), False
    if not (digest and manifest.digest and manifest.writes == writes):
        return None, False
    if digest != manifest.digest:
        return Finding(_DATABASE, "is not as it was when the store was closed"), False
    return None, True


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
    """Yield the damage in a database as it is now, whatever others write meanwhile."""
    connection.text_factory = readable_text
    connection.execute("BEGIN")
    try:
        tables = (
            _check_items(connection),
            _check_codes(connection, facts),
            _check_state(connection),
        )
        for check in (_check_trees(connection), _check_definitions(connection), *tables):
            try:
                yield from check
            # Damaged values may be of any type.
            except (sqlite3.DatabaseError, AttributeError, TypeError, ValueError) as error:
                yield Finding(_DATABASE, " ".join(str(error).split()))
    finally:
        connection.execute("ROLLBACK")
    yield from _check_words(connection)


def readable_text(text: bytes) -> str:
    """Decode a text of a database. A damaged one may not be UTF-8; its checksum fails anyway."""
    return text.decode(errors="replace")


class CodeRow(NamedTuple):
    """A row of ``codes``. If it is damaged, its values may be of any type.

    Attributes:
        serial: of the code.
        item: number of its item.
        modality: of the code.
        code: packed.
        projection: of the code, if the store keeps them.
        checksum: see `folder.code_checksum`.

    >>> CodeRow(1, 1, "image", bytes([7]), None, 0).modality
    'image'
    """

    serial: Any
    item: Any
    modality: Any
    code: Any
    projection: Any
    checksum: Any


def is_whole_code(row: CodeRow, name: str, facts: Facts | None) -> bool:
    """Return whether the code of an item is as it was written, and as the store's facts say."""
    if not isinstance(row.code, bytes) or (facts and not _fits(row, facts)):
        return False
    checksum = disk.code_checksum(
        name, row.item, row.serial, row.modality, row.code, row.projection
    )
    return bool(checksum == row.checksum)


def _fits(row: CodeRow, facts: Facts) -> bool:
    """Return whether code and projection have the length that a store's facts say."""
    n_bits = facts.n_bits
    if len(row.code) != -(-n_bits // 8) or row.code[-1] & ((1 << -n_bits % 8) - 1):
        return False
    if not facts.projected:
        return row.projection is None
    return isinstance(row.projection, bytes) and len(row.projection) == facts.projection_bytes


def _check_trees(connection: sqlite3.Connection) -> Iterator[Finding]:
    for (line,) in connection.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield Finding(_DATABASE, " ".join(line.split()))


def _check_definitions(connection: sqlite3.Connection) -> Iterator[Finding]:
    with closing(disk.connect(None)) as expected:
        disk.create_tables(expected, "")
        sql = "SELECT type, name, coalesce(sql, '') FROM sqlite_master"
        for kind, name, _ in sorted(set(expected.execute(sql)) - set(connection.execute(sql))):
            yield Finding(_DATABASE, f"the {kind} {name} is not defined as it should be")


def _check_items(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Check the items and the tables of labels and keys, which repeat parts of the metadata."""
    keys: set[str] = set()
    labels = 0
    sql = "SELECT number, id, metadata, checksum FROM items NOT INDEXED"
    for number, name, metadata, checksum in connection.execute(sql):
        if disk.item_checksum(number, name, metadata) != checksum:
            yield Finding(str(name), f"the item is damaged (row {number})")
        elif metadata != "{}":
            values = json.loads(metadata)
            keys.update(values)
            labels += _sum_labels((number, label) for label in set(values.get("labels") or ()))
    missing = keys.difference(*connection.execute("SELECT name FROM keys"))
    if missing:
        yield Finding(_DATABASE, f"the table of metadata's keys lacks {', '.join(sorted(missing))}")
    if labels != _sum_labels(connection.execute("SELECT item, label FROM labels")):
        yield Finding(_DATABASE, "the table of labels does not agree with the items' metadata")


def _sum_labels(rows: Iterable[tuple[int, str]]) -> int:
    """Return the sum of a checksum of each item's labels, which does not depend on their order."""
    return sum(crc32(b"%d %s" % (number, label.encode())) for number, label in rows)


def _check_codes(connection: sqlite3.Connection, facts: Facts | None) -> Iterator[Finding]:
    rows = connection.execute(
        "SELECT serial, item, modality, code, projection, codes.checksum, id"
        " FROM codes NOT INDEXED LEFT JOIN items ON number = item"
    )
    for *values, name in rows:
        row = CodeRow(*values)
        if name is None:
            yield Finding(_DATABASE, f"the {row.modality} code {row.serial} belongs to no item")
        elif not is_whole_code(row, name, facts):
            yield Finding(str(name), f"the {row.modality} code is damaged (row {row.serial})")


def _check_state(connection: sqlite3.Connection) -> Iterator[Finding]:
    last = disk.State.read(connection).last_serial
    sql = (
        "SELECT EXISTS (SELECT 1 FROM codes WHERE serial > ?) OR EXISTS (SELECT 1 FROM removed "
        "WHERE serial > ?) OR EXISTS (SELECT 1 FROM removed JOIN codes USING (serial))"
    )
    if connection.execute(sql, (last, last)).fetchone()[0]:
        yield Finding(_DATABASE, "the serials of codes contradict each other")


def _check_words(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Check the index of words. SQLite does so only in a transaction that may write, so writers
    wait meanwhile.
    """
    if not WordIndex(connection).usable:
        return
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            for index in ("words", "parts"):  # 6 s a million items
                connection.execute(
                    f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)"
                )
        finally:
            connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        if "locked" not in str(error) and "readonly" not in str(error):
            yield Finding(_DATABASE, f"the index of words does not agree with the items ({error})")
