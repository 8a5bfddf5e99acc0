"""Opening and closing the database of a store, so that damage between two openings is noticed.

Who has the store open holds a shared lock on `.in-use`. Who gets it alone is the first or the last: the first checks
the database, the last seals it.
"""

import os
import sqlite3
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from channelhash.errors import InputError, JobError
from channelhash.search.local.connection import connect, damaged, one_line_errors, what_to_do
from channelhash.search.local.database_check import Finding, check_database
from channelhash.search.local.folder import Facts, StoreFolder
from channelhash.search.local.seal import Seal, read_seal, renew_seal, write_seal
from channelhash.search.local.tables import read_state
from channelhash.utils.exhausted import check_exhausted
from channelhash.utils.file_locks import lock_alone, lock_shared, unlock
from channelhash.utils.files import locked, remove_leftovers
from channelhash.utils.held_file import HeldFile

#: How an SQLite file begins.
MAGIC = b"SQLite format 3\0"


class Guard:
    """A hold on a store's database: checked when it is taken, sealed by the last who lets go.

    * Sealed: the file's digest is compared, about 0.6 s a gigabyte.
    * Not sealed, and nobody has it open: a process was killed. All is checked, see `check_database`, and the
      database is sealed.
    * Not sealed, and others have it open: they have checked it.
    * It can only be read: it is checked in the same way, and neither locked nor sealed. Reading ends when somebody else
      has changed the file.

    Args:
        folder: of the store, which is there.
        facts: what its description says.

    Attributes:
        read_only: whether the store can only be read.

    Raises:
        InputError: the database is damaged, or lacks what was written to it.
        JobError: the disk is full.
    """

    def __init__(self, folder: StoreFolder, facts: Facts) -> None:
        self._folder, self._facts = folder, facts
        self.read_only = not folder.writable
        self._path = str(folder.database)
        self._pid = os.getpid()
        self._bound: int | None = None
        self._changed: int | None = None
        try:
            self._file = HeldFile(folder.database)
        except OSError as error:
            check_exhausted(error, folder.database)
            raise InputError(f"{folder.database}: cannot be read ({error.strerror}); restore it") from None
        self._in_use = -1
        try:
            if not self.read_only:
                self._in_use = open_lock(folder)
            with one_line_errors(str(folder.database)):
                self._check_magic()
                self._look() if self.read_only else self._enter()
        except OSError as error:
            self.release()
            check_exhausted(error, folder.path)
            raise InputError(f"{folder.path}: cannot be opened ({error.strerror}: {error.filename})") from None
        except BaseException:
            self.release()
            raise

    def check_there(self) -> None:
        """Raise an error if the open database is not the store's any more; costs two microseconds.

        Raises:
            JobError: it was removed or replaced, so what is written would be lost and what is read be of the past.
            InputError: this is a forked process, in which SQLite's locks do not hold; or nobody with a guard has
                written to the file since it was sealed, and yet it is another.
        """
        changed = self._file.changed(self._path)
        if changed is None:
            raise JobError(f"{self._folder.path}: the store was removed or replaced while it was open; open it again")
        if os.getpid() != self._pid:
            raise InputError(f"{self._folder.path}: was opened before this process was forked; open it in each process")
        if changed != self._changed:
            if self.read_only:
                raise JobError(f"{self._folder.path}: was written to while it was open; open it again")
            self._check_change()
            self._changed = changed

    def before_write(self, version: int) -> None:
        """Say durably that the database is written to, before the first commit.

        Args:
            version: the database's now.
        """
        if self._bound is None:
            seal = read_seal(self._folder.seal)
            if seal is None or seal.closed:
                write_seal(self._folder.seal, Seal(version, self._facts))
            self._bound = version

    def written(self, version: int) -> None:
        """Raise the seal's lower bound after a commit; costs no wait for the disk."""
        if self._bound is not None and version > self._bound:
            with suppress(OSError):  # then the lower bound stays as low
                renew_seal(self._folder.seal, Seal(version, self._facts))
                self._bound = version

    def seal(self, connection: sqlite3.Connection) -> None:
        """Seal the database if somebody has written to it and nobody else has it open."""
        seal = read_seal(self._folder.seal)
        if self.read_only or os.getpid() != self._pid or self._file.changed(self._path) is None:
            return
        if (seal is None or not seal.closed) and alone(self._in_use):
            seal_database(self._folder, self._facts, connection, self._file)

    def release(self) -> None:
        """Let go; all connections to the database are closed."""
        if os.getpid() == self._pid:
            self._file.close()
            if self._in_use >= 0:
                os.close(self._in_use)
            self._in_use = -1

    def abandon(self) -> None:
        """Close what a forked process inherited of its parent's hold, which the parent keeps.

        The file stays open: closing it would end the SQLite locks that this process may have by then.
        """
        if self._in_use >= 0:
            os.close(self._in_use)
        self._in_use = -1

    def _check_magic(self) -> None:
        # Beside an empty file SQLite throws the log away, with what is in there.
        if self._file.read(len(MAGIC)) != MAGIC:
            raise damaged(str(self._folder.database), "it does not begin as an SQLite file")

    def _look(self) -> None:
        """Check a store that can only be read."""
        self._changed = self._file.changed(self._path)
        seal = self._read_seal()
        if seal and seal.closed and self._is_as_sealed(seal):
            return
        with closing(connect(self._folder.database, read_only=True)) as connection:
            self._check_database(connection, seal)

    def _read_seal(self) -> Seal | None:
        seal = read_seal(self._folder.seal)
        if seal and seal.facts != self._facts:
            raise self._folder.damaged("is another store's, or items.seal is")
        return seal

    def _enter(self) -> None:
        while True:
            with locked(self._folder.gate):
                lock_shared(self._in_use)
                seal = self._read_seal()
                if (seal is None or not seal.closed) and alone(self._in_use):
                    self._check_all(seal)
                    lock_shared(self._in_use)
                    return
                lock_shared(self._in_use)  # who tries to be alone gives up the shared lock
                seal = read_seal(self._folder.seal)
            closed = seal is not None and seal.closed
            self._changed = self._file.changed(self._path) if closed else None
            if seal is None or not closed or self._is_as_sealed(seal):
                if seal is not None:
                    with closing(connect(self._folder.database)) as connection:
                        _check_bound(self._folder, connection, seal)
                return
            unlock(self._in_use)

    def _check_change(self) -> None:
        seal = read_seal(self._folder.seal)
        if seal and seal.closed:
            self._is_as_sealed(seal)

    def _is_as_sealed(self, seal: Seal) -> bool:
        """Return whether the database is as a closed seal says, or raise an error if that seal still holds."""
        if not seal_differs(self._folder, seal, self._file):
            return True
        if read_seal(self._folder.seal) == seal:
            raise InputError(
                f"{self._folder.database}: is damaged, or another program has changed it; "
                + what_to_do(self._folder.path)
            )
        return False

    def _check_all(self, seal: Seal | None) -> None:
        remove_leftovers(self._folder.seal)
        connection = connect(self._folder.database)
        try:
            self._check_database(connection, seal)
            seal_database(self._folder, self._facts, connection, self._file)
        finally:
            connection.close()

    def _check_database(self, connection: sqlite3.Connection, seal: Seal | None) -> None:
        if seal is not None:
            _check_bound(self._folder, connection, seal)
        if findings := list(islice(check_database(connection, self._facts), 2)):
            raise _damaged(self._folder, findings)
        connection.text_factory = str


def open_lock(folder: StoreFolder) -> int:
    """Open the file that is locked by who has the store open, and return its descriptor."""
    return os.open(folder.in_use, os.O_RDWR | os.O_CREAT, 0o666)


def alone(descriptor: int) -> bool:
    """Lock a file for oneself if nobody else holds it. If somebody does, one's own shared lock is lost too."""
    try:
        lock_alone(descriptor, wait=False)
    except BlockingIOError:
        return False
    return True


def seal_differs(folder: StoreFolder, seal: Seal, file: HeldFile) -> bool:
    """Return whether a sealed database is not what was sealed."""
    return _log_size(folder) > 0 or file.sha256() != (seal.n_bytes, seal.sha256)


def seal_database(folder: StoreFolder, facts: Facts, connection: sqlite3.Connection, file: HeldFile) -> None:
    """Seal a database that nobody else has open, unless a foreign program writes to it.

    Raises:
        JobError: the disk is full.
    """
    (busy, *_), *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    if busy:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _log_size(folder) == 0:
            seal = Seal(read_state(connection).version, facts, *file.sha256())
            write_seal(folder.seal, seal)
    finally:
        connection.execute("ROLLBACK")


def _check_bound(folder: StoreFolder, connection: sqlite3.Connection, seal: Seal) -> None:
    version = read_state(connection).version
    if version < seal.version:
        raise InputError(
            f"{folder.database}: lacks the last {seal.version - version:,} or more writes (its log was cut or removed,"
            f" or an old copy put back); {what_to_do(folder.path)}"
        )


def _damaged(folder: StoreFolder, findings: list[Finding]) -> InputError:
    more = ", and more" if len(findings) > 1 else ""
    return InputError(f"{folder.path}: is damaged ({findings[0]}{more}); {what_to_do(folder.path)}")


def _log_size(folder: StoreFolder) -> int:
    try:
        return os.stat(Path(f"{folder.database}-wal")).st_size
    except FileNotFoundError:
        return 0
