"""Files that could not be read, kept with a store: they are tried again only once they have changed."""

import os
from pathlib import Path

import PIL

from channelhash._version import __version__
from channelhash.search.photo_folders import find_or_keep, is_store
from channelhash.search.store import Store
from channelhash.utils.checked_json import dump_checked, load_checked
from channelhash.utils.files import write_text
from channelhash.utils.image_files import reads_heif

#: Id -> (the file as it was, what was wrong with it, with `PATH` for its path, which a move of the folder changes).
Unreadable = dict[str, tuple[str, str]]
PATH = "\0"


def size_and_times(path: str | Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED"`` of a file: the last time is that of its inode, where the system has one.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     len(size_and_times(file.name).split())
    3
    """
    stat = os.stat(path)
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def attempt(path: Path) -> str:
    """Return what a file is like before it is read; `OSError` if it cannot be looked at."""
    return f"{size_and_times(path)} {os.access(path, os.R_OK)}"


def read_unreadable(store: Store) -> Unreadable:
    """Return the items that could not be read the last time; nothing if another version of the decoders tried."""
    folder = _folder(store)
    try:
        values = load_checked((folder / _NAME).read_text(encoding="utf-8")) if folder else {}
        same = values.get("decoders") == _decoders()
        return {name: (was, problem) for name, (was, problem) in values["items"].items()} if same else {}
    except (OSError, ValueError, TypeError, AttributeError):  # it only saves time
        return {}


def write_unreadable(store: Store, items: Unreadable) -> None:
    """Keep with a store which items could not be read; stores that are no folder keep nothing."""
    folder = _folder(store)
    if folder and items != read_unreadable(store):
        write_text(folder / _NAME, dump_checked({"decoders": _decoders(), "items": items}))


_NAME = "unreadable.json"


def _folder(store: Store) -> Path | None:
    folder = None if "://" in store.address else find_or_keep(Path(store.address))
    return folder if folder and is_store(folder) else None


def _decoders() -> list[object]:
    return [__version__, PIL.__version__, reads_heif()]
