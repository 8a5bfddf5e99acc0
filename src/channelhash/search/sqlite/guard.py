"""Check a store's database, so that damage between two openings is noticed.

Who closes the store last seals it: its description then holds the digest of the database. Whoever
opens it compares.
"""

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
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

_CHUNK = 1 << 20
# Device and inode of the databases that guards of this process hold. While SQLite has a file open,
# this module opens it nowhere else: POSIX ends all locks of a process on a file that it closes any
# descriptor of.
_holds: Counter[tuple[int, int]] = Counter()


class Guard:
    """The hold of an open store on its database, which is checked when this begins and sealed when
    it ends.

    * Sealed, and not written to since: its digest is compared, about 1 s a gigabyte.
    * Not sealed, and nobody else has it open: a process was killed. All is checked, see
      `check_database`, and the database is sealed.
    * Not sealed, and others have it open: they have checked it.
    * It can only be read: it is checked in the same way, and not sealed. Who holds it asks before
      and after reading whether it `is_stale`, and then opens it again.

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
            self._changed = self._status()[1]  # the check may have put the log into the file
            _holds[self._file] += 1
        except OSError as error:
            check_exhausted(error, folder.path)
            raise InputError(
                f"{folder.path}: cannot be opened ({error.strerror}: {error.filename})"
            ) from None

    def _check(self) -> None:
        findings, is_sealed = compare_with_manifest(self._folder)
        if not findings and not is_sealed:
            try:
                connection = disk.connect(
                    self._folder.database, read_only=self.read_only, alone=not self.read_only
                )
            except sqlite3.OperationalError as error:
                if "locked" in str(error):  # others have it open, and have checked it
                    return
                raise
            with closing(connection):
                findings = list(islice(check_database(connection, self._facts), 2))
            if not findings and not self.read_only:
                _seal_database(self._folder)
        if findings:
            more = ", and more" if len(findings) > 1 else ""
            raise disk.damaged(str(self._folder.database), f"{findings[0]}{more}")

    def is_stale(self) -> bool:
        """Return whether a database that can only be read was written to, replaced or let go."""
        return self.read_only and self._seen != self._folder.look()

    def check_presence(self) -> None:
        """Raise an error if the open database is not the store's any more; costs two
        microseconds.
        """
        if self.read_only:
            return
        file, changed = self._status()
        if file != self._file:
            raise JobError(
                f"{self._folder.path}: the store was removed or replaced while it was open; open "
                "it again"
            )
        if changed == self._changed:
            return
        # which a new connection would wait for a minute to write to
        if not os.stat(self._folder.database).st_size:
            raise disk.damaged(str(self._folder.database), "is empty")
        if self._is_sealed(_read_database(self._folder)[0]):
            raise disk.damaged(str(self._folder.database), "another program has written to it")
        self._changed = changed

    def note(self, writes: int) -> None:
        """Note durably enough for a kill, not for a power cut, how often the database was written
        to; 20 us.
        """
        with suppress(OSError):
            descriptor = os.open(self._folder.writes, os.O_WRONLY | os.O_CREAT, 0o666)
            os.write(descriptor, b"%020d\n" % writes)
            os.close(descriptor)

    def seal(self, writes: int | None) -> None:
        """Seal the database, written to so often, if nobody has it open any more; else the next
        opening checks it.

        None of a database that cannot be read, which is let go.
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
            # puts what is in the log into the file
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
    """Note in a store's description what its database is, which nobody has open; if not, the next
    opening checks it.
    """
    digest = _digest(folder)
    writes, manifest = _read_database(folder)
    if manifest and digest:
        with suppress(OSError, JobError):
            write_text(
                folder.description, manifest._replace(writes=writes, digest=digest).to_json()
            )


def _read_database(folder: disk.StoreFolder) -> tuple[int, disk.Manifest | None]:
    """Return how often a database was written to, and its description, over a connection with no
    page in memory.
    """
    with closing(disk.connect(folder.database, read_only=not folder.writable)) as connection:
        return disk.State.read(connection).writes, disk.Manifest.read(connection, folder.database)


def _digest(folder: disk.StoreFolder) -> str:
    """Return length and CRC-32 of a database; nothing if it has a log, or this process has it
    open.
    """
    status = os.stat(folder.database)
    if _holds[status.st_dev, status.st_ino] or any(
        log.stat().st_size for log in folder.path.glob(f"{_DATABASE}-wal")
    ):
        return ""
    size = checksum = 0
    with open(folder.database, "rb") as file:
        while chunk := file.read(_CHUNK):
            size = size + len(chunk)
            checksum = crc32(chunk, checksum)
    return f"{size} {checksum:08x}"


def compare_with_manifest(folder: disk.StoreFolder) -> tuple[list["Finding"], bool]:
    """Compare a database with what the store's description says of it."""
    # before the database: others write meanwhile
    manifest, noted = (folder.manifest(), folder.noted_writes())
    # beside an empty file SQLite throws the log away, with what is in there
    if not os.stat(folder.database).st_size:
        return [Finding(_DATABASE, "is empty")], False
    digest = _digest(folder)
    writes, about = _read_database(folder)
    if about is None:
        return [Finding(_DATABASE, "the description of the store is damaged")], False
    if manifest is not None and manifest.store != about.store:
        return [Finding(_DATABASE, "is another store's, or store.json is")], False
    least = max(manifest.writes if manifest else 0, noted)
    if writes < least:
        what = (
            f"lacks the last {least - writes:,} or more writes: its log was cut, or an old copy "
            "put back"
        )
        return [Finding(_DATABASE, what)], False
    sealed = manifest.digest if manifest is not None and manifest.writes == writes else ""
    if digest and sealed and digest != sealed:
        return [Finding(_DATABASE, "is not as it was when the store was closed")], False
    return [], bool(digest and sealed)


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
    """Check a database as it is when this begins, whatever others write meanwhile."""
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
            # Types are as odd as damage makes them.
            except (sqlite3.DatabaseError, AttributeError, TypeError, ValueError) as error:
                yield Finding(_DATABASE, " ".join(str(error).split()))
    finally:
        connection.execute("ROLLBACK")
    yield from _check_words(connection)


def readable_text(text: bytes) -> str:
    """Return a text of a database that may be damaged, and then no UTF-8; it has not its checksum
    then.
    """
    return text.decode(errors="replace")


def is_whole_code(row: tuple[Any, ...], facts: Facts | None) -> bool:
    """Return whether a row is as it was written."""
    serial, number, modality, code, projection, checksum, name = row
    if not isinstance(code, bytes):
        return False
    if facts and (len(code) != -(-facts.n_bits // 8) or code[-1] & ((1 << -facts.n_bits % 8) - 1)):
        return False
    size = facts.n_bits if facts and facts.projected else None
    if facts and (len(projection) if isinstance(projection, bytes) else projection) != size:
        return False
    return bool(disk.code_checksum(name, number, serial, modality, code, projection) == checksum)


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
    """Check the items, and the tables of labels and of keys, which are made from them."""
    keys: set[str] = set()
    labels = 0
    for row in connection.execute("SELECT number, id, metadata, checksum FROM items NOT INDEXED"):
        if disk.item_checksum(*row[:3]) != row[3]:
            yield Finding(str(row[1]), f"the item is damaged (row {row[0]})")
        elif row[2] != "{}":
            values = json.loads(row[2])
            keys.update(values)
            labels += sum(_of_label(row[0], label) for label in set(values.get("labels") or ()))
    missing = keys - {name for (name,) in connection.execute("SELECT name FROM keys")}
    if missing:
        yield Finding(_DATABASE, f"the table of metadata's keys lacks {', '.join(sorted(missing))}")
    if labels != sum(
        _of_label(*row) for row in connection.execute("SELECT item, label FROM labels")
    ):
        yield Finding(_DATABASE, "the table of labels does not agree with the items' metadata")


def _of_label(number: int, label: str) -> int:
    return crc32(b"%d %s" % (number, label.encode()))


def _check_codes(connection: sqlite3.Connection, facts: Facts | None) -> Iterator[Finding]:
    rows = connection.execute(
        "SELECT serial, item, modality, code, projection, codes.checksum, id"
        " FROM codes NOT INDEXED LEFT JOIN items ON number = item"
    )
    for row in rows:
        if row[6] is None:
            yield Finding(_DATABASE, f"the {row[2]} code {row[0]} belongs to no item")
        elif not is_whole_code(row, facts):
            yield Finding(str(row[6]), f"the {row[2]} code is damaged (row {row[0]})")


def _check_state(connection: sqlite3.Connection) -> Iterator[Finding]:
    last = disk.State.read(connection).last_serial
    sql = (
        "SELECT EXISTS (SELECT 1 FROM codes WHERE serial > ?) OR EXISTS (SELECT 1 FROM removed "
        "WHERE serial > ?) OR EXISTS (SELECT 1 FROM removed JOIN codes USING (serial))"
    )
    if connection.execute(sql, (last, last)).fetchone()[0]:
        yield Finding(_DATABASE, "the serials of codes contradict each other")


def _check_words(connection: sqlite3.Connection) -> Iterator[Finding]:
    """Check the index of words. SQLite does that only for who may write, so that writers wait
    meanwhile.
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
