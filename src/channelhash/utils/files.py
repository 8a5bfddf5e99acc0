"""Files: written in one step, so that a reader sees the old file or the new one and never a part;
read so that whatever a decoder raises for damaged content becomes one line.
"""

import codecs
import errno
import hashlib
import importlib
import json
import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from channelhash.errors import InputError, JobError, NoSpaceError

if sys.platform != "win32":
    import fcntl

#: What the system says of a disk or a quota that is full, and of a file that may not grow.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Likewise libraries that write by themselves: PyArrow, safetensors and FAISS, then PyTorch, SQLite
#: and NumPy.
_FULL_WORDS = re.compile(
    "|".join(map(os.strerror, _FULL))
    + r"|failed writing file|unexpected pos|disk is full|requested and \d+ written"
)
#: Byte-order mark, which programs on Windows write at the beginning of a text.
_MARK = "\ufeff"
#: Names of temporary files and folders, and of the locks beside them.
_TEMPORARY = re.compile(r"(\..+\.[0-9a-f]{32}\.tmp)(\.lock)?", re.DOTALL)
#: Whether folders can be opened, and open files be renamed and removed. On Windows neither can.
_POSIX = hasattr(os, "O_DIRECTORY")
# Seconds in which Windows' other readers of a file let go of it, and between two attempts.
_PATIENCE = 2.0
_PAUSE = 0.02
# The byte that is locked on Windows, far beyond the end of any file: nobody can read or write what
# is locked there.
_FAR = 1 << 30
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_KEY = "checksum"


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target``, which is renamed to it when the block ends without
    an error.

    The content is flushed to the disk before the rename, so after a power cut ``target`` is the
    complete old file or the complete new one. If the block raises, the temporary file is removed
    and ``target`` stays as it is.

    Raises:
        NoSpaceError: there is none for the file.
    """
    with _hold(target, is_folder=False) as temporary:
        yield temporary
        sync(temporary)
        _replace(temporary, target)


def temporary_folder(target: Path) -> AbstractContextManager[Path]:
    """Yield a new folder beside ``target``, which the block renames to it; otherwise the folder
    goes.
    """
    return _hold(target, is_folder=True)


@contextmanager
def space_for(target: Path) -> Iterator[None]:
    """Name ``target`` if the block finds the disk full.

    >>> with space_for(Path("codes.parquet")):
    ...     raise OSError(errno.ENOSPC, "No space left on device")
    Traceback (most recent call last):
    channelhash.errors.NoSpaceError: codes.parquet: No space left on device; make room
    """
    try:
        yield
    except (InputError, JobError):
        raise
    except Exception as error:  # libraries that write by themselves have errors of their own
        if getattr(error, "errno", None) not in _FULL and not _FULL_WORDS.search(str(error)):
            raise
        reason = getattr(error, "strerror", None) or os.strerror(errno.ENOSPC)
        raise NoSpaceError(f"{target}: {reason}; make room") from error


@contextmanager
def _hold(target: Path, is_folder: bool) -> Iterator[Path]:
    """Yield a new temporary file or folder, and lock a file beside it, so that nobody takes it for
    a leftover.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep_once(target.parent)
    with space_for(target), ExitStack() as stack:
        while True:
            temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
            lock = _lock_of(temporary)
            stack.callback(lock.unlink, missing_ok=True)
            handle = stack.enter_context(open(lock, "xb"))
            with suppress(OSError):  # not every file system has locks
                _lock(handle.fileno())
            if lock.exists():  # nobody has swept it away before it was locked
                break
        stack.callback(_remove, temporary)
        temporary.mkdir() if is_folder else temporary.touch(exist_ok=False)
        yield temporary


def _lock_of(temporary: Path) -> Path:
    return temporary.with_name(f"{temporary.name}.lock")  # a folder could not be locked on Windows


def sweep(folder: Path) -> None:
    """Remove, anywhere below a folder, the temporary files and folders that killed processes left.

    Those of living processes are locked and stay, and so do all where the file system has no locks.
    """
    for parent, _, _ in os.walk(folder):
        _sweep(Path(parent))


def _sweep(folder: Path) -> None:
    with suppress(OSError):  # a folder that may be written to, not read
        for entry in folder.iterdir():
            if match := _TEMPORARY.fullmatch(entry.name):
                _remove_dead(entry.with_name(match[1]))


# Before the first file that this process writes into a folder.
_sweep_once = cache(_sweep)


def _remove_dead(temporary: Path) -> None:
    lock = _lock_of(temporary)
    with suppress(OSError):
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(lock, flags, 0o666), "r+b") as handle:
            _lock(handle.fileno(), wait=False)
            _remove(temporary)
        lock.unlink()


def _remove(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        temporary.unlink(missing_ok=True)


def _replace(source: Path, target: Path) -> None:
    """Rename a file to a name that may be taken. Windows waits for others to close that file."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            os.replace(source, target)
        except PermissionError:
            if _POSIX or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
        else:
            return


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    if not _POSIX and path.is_dir():  # Windows has no such call, and logs names itself
        return
    # Windows flushes only what may be written
    handle = os.open(path, os.O_RDONLY if _POSIX else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(target: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to ``target`` in one step (see `atomic_path`).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_text(Path(folder, "sub", "a.txt"), "a dog")
    ...     Path(folder, "sub", "a.txt").read_text(encoding="utf-8")
    'a dog'
    """
    with atomic_path(target) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")  # the same bytes on every system


def content_hash(*parts: bytes | memoryview) -> str:
    """Return the SHA-256 of ``parts`` as 64 hex digits; each part is preceded by its length, so
    that no lists collide.

    >>> content_hash(b"ab", b"c") == content_hash(b"a", b"bc")
    False
    """
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock(descriptor: int, wait: bool = True) -> None:
    """Lock an open file alone, or raise BlockingIOError; the system releases the lock when the
    process ends.
    """
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return
    windows: Any = importlib.import_module("msvcrt")
    while True:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            windows.locking(descriptor, windows.LK_NBLCK, 1)
        except PermissionError:
            if not wait:
                raise BlockingIOError(errno.EAGAIN, "locked by another process") from None
            time.sleep(_PAUSE)  # Ctrl-C would not interrupt a call that waits
        else:
            return


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock file; the lock is released when the process ends, in whatever way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as handle:
        _lock(handle.fileno(), wait)
        holder = os.getpid()
        try:
            yield
        finally:
            # A child that was forked meanwhile has the file open too, and is not the holder.
            if sys.platform != "win32" and os.getpid() == holder:
                fcntl.flock(handle.fileno(), fcntl.LOCK_UN)


@contextmanager
def locked_folder(folder: Path, activity: str, name: str = ".lock") -> Iterator[None]:
    """Hold a folder by a file in it; ``activity`` says what another process that holds it is
    doing.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / name, wait=False))
        except BlockingIOError:
            raise InputError(
                f"{folder}: another process is {activity}; wait for it to end"
            ) from None
        yield


def cache_folder() -> Path:
    """Return the folder of files that can be computed again: ``$CHANNELHASH_CACHE``, or one in the
    user's cache folder.

    That is ``$XDG_CACHE_HOME`` where it is set, else ``~/.cache``, ``~/Library/Caches`` (macOS) or
    ``%LOCALAPPDATA%``.
    """
    if chosen := os.environ.get("CHANNELHASH_CACHE"):
        return Path(chosen)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base, "channelhash")
    try:
        home = Path.home()
    except RuntimeError:
        raise InputError(
            "this user has no home folder; name a folder for caches in CHANNELHASH_CACHE"
        ) from None
    if sys.platform == "win32":
        return Path(
            os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local", "channelhash", "Cache"
        )
    return home / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "channelhash"


def dump_checked(values: dict[str, Any]) -> str:
    """Return JSON values as one line of text with their checksum.

    >>> dump_checked({"n_bits": 64})
    '{"n_bits": 64, "checksum": "5bc9206a79d29562"}\\n'
    """
    return json.dumps({**values, _KEY: _checksum(values)}) + "\n"


def load_checked(text: str) -> dict[str, Any]:
    """Return what `dump_checked` wrote, without the checksum; ValueError if it is damaged.

    >>> load_checked(dump_checked({"n_bits": 64}))
    {'n_bits': 64}
    """
    values = json.loads(text)
    if not isinstance(values, dict) or values.pop(_KEY, None) != _checksum(values):
        raise ValueError("the checksum is wrong")
    return values


def _checksum(values: dict[str, Any]) -> str:
    return content_hash(json.dumps(values, sort_keys=True).encode())[:16]


def check_exhausted(error: OSError, name: object) -> None:
    """Raise `JobError` if the system lacked file handles or memory: then a file is not damaged.

    >>> check_exhausted(OSError(errno.EMFILE, "Too many open files"), "items.sqlite")
    Traceback (most recent call last):
    channelhash.errors.JobError: items.sqlite: not now (Too many open files); close others, or raise the limit
    """
    if error.errno in _EXHAUSTED:
        raise JobError(
            f"{name}: not now ({os.strerror(error.errno)}); close others, or raise the limit"
        ) from None


#: Levels of YAML that any thread's stack holds; a configuration has less than a hundred keys.
_DEEP = 500

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EIO, *_EXHAUSTED}


@contextmanager
def reading(place: object, problem: str, remedy: str = "") -> Iterator[None]:
    """Raise what goes wrong inside the block as `InputError`: ``PLACE: PROBLEM (reason); REMEDY``.

    Decoders (JSON, YAML, Arrow, zip, torch …) have many types of errors for damaged content, and
    values of a wrong type raise more of them further on. The block holds nothing but decoding and
    the checks of its result.

    >>> with reading("a.json", "not a list of numbers", "write it again"):
    ...     sum(json.loads('["1"]'))
    Traceback (most recent call last):
    channelhash.errors.InputError: a.json: not a list of numbers (unsupported operand type(s) for +: 'int' and 'str'); \
write it again
    """
    try:
        yield
    except (InputError, JobError, MemoryError):  # no damage of the content, and said elsewhere
        raise
    except Exception as error:
        if (
            isinstance(error, FileNotFoundError | PermissionError)
            or getattr(error, "errno", None) in _DISK
        ):
            raise
        raise InputError(
            f"{place}: {problem} ({one_line(error)})" + (f"; {remedy}" if remedy else "")
        ) from error


def one_line(error: Exception) -> str:
    """Return what an error says in one line of at most 500 characters, or its type if it says
    nothing.

    >>> one_line(ValueError("of two\\n lines")), one_line(EOFError())
    ('of two lines', 'EOFError')
    """
    text = f"it lacks {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
    return f"{text[:500]}…" if len(text) > 500 else text or type(error).__name__


def decode_text(content: bytes) -> str:
    """Return a text in UTF-8, or in UTF-16 that begins with its byte-order mark, as Excel and
    Windows write; without the mark. UnicodeDecodeError for other content.

    >>> decode_text(b"\\xef\\xbb\\xbfa dog"), decode_text("a dog".encode("utf-16"))
    ('a dog', 'a dog')
    """
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if is_wide else "utf-8").lstrip(_MARK)


def split_lines(text: str) -> list[str]:
    """Return the lines of a text; nothing but a line feed ends one, as other separators of Unicode
    may stand in a caption.

    >>> split_lines("a\\u2028b\\r\\nc\\n")
    ['a\\u2028b', 'c']
    """
    lines = re.split(r"\r?\n", text)
    return lines if lines[-1] else lines[:-1]


def read_text(path: Path) -> str:
    """Return a text file's content; the encodings are those of `decode_text`."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    try:
        return decode_text(content)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{path}, line {line}: not UTF-8 text; save the file as UTF-8") from None


def read_json(path: Path, problem: str, remedy: str = "") -> dict[str, Any]:
    """Return the JSON object in a file; errors as in `reading`."""
    with reading(path, problem, remedy):
        content = json.loads(decode_text(path.read_bytes()))
        if not isinstance(content, dict):
            raise ValueError(f"a JSON object is expected, not {type(content).__name__}")
        return content


def _parse_yaml(text: str) -> Any:
    """Return the plain values that YAML says, by libyaml where it is built, which takes a tenth of
    the time.

    >>> _parse_yaml("train: {epochs: 3}")
    {'train': {'epochs': 3}}
    """
    # libyaml ends the process where lists are nested too deep. Every level takes one of these
    # characters.
    deep = sum(text.count(character) for character in "[{-?:") > _DEEP
    loader = (yaml.SafeLoader if deep else getattr(yaml, "CSafeLoader", yaml.SafeLoader))(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def read_yaml_sections(path: Path, expected: str) -> dict[str, dict[str, Any]]:
    """Return the sections of a YAML file: names to keys with values."""
    with reading(path, "not readable YAML"):
        sections = _parse_yaml(decode_text(path.read_bytes()))
    if not isinstance(sections, dict) or not all(
        isinstance(section, dict) for section in sections.values()
    ):
        raise InputError(f"{path}: {expected}")
    for name, section in sections.items():
        for key in (name, *section):
            if not isinstance(key, str):
                raise InputError(f"{path}: in section {name!r}: {key!r} is no key; a key is a text")
    return sections
