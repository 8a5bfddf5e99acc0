"""A plain folder of photographs stands for the store that was made of it."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from channelhash.errors import InputError
from channelhash.utils.files import cache_folder

_NAME = ".channelhash"
# Files of which one makes a folder a store, a run or a saved model, and so no plain folder.
_OWN = ("store.json", "items.sqlite", "items.seal", "model/config.json", "config.yaml", "config.json")


def is_store(folder: Path) -> bool:
    """Return whether a folder holds a store, perhaps one whose first items are yet to come."""
    return (folder / "model" / "config.json").exists() or (folder / "store.json").exists()


def is_plain_folder(path: Path) -> bool:
    """Return whether a path is a folder and neither a store nor a run nor a saved model.

    >>> is_plain_folder(Path(os.sep)), is_plain_folder(Path("lost.store"))
    (True, False)
    """
    return path.is_dir() and not any((path / name).exists() for name in _OWN)


def holds_files(address: str) -> bool:
    """Return whether an address is that of a plain folder with files in it, hidden ones left out."""
    path = Path(address)
    return "://" not in address and is_plain_folder(path) and any(not name.startswith(".") for name in os.listdir(path))


def find_store(folder: Path) -> Path | None:
    """Return the store that was made of a plain folder: in it, or in the user's cache; None if there is none."""
    return next((place for place in (folder / _NAME, _in_cache(folder)) if is_store(place)), None)


def find_or_keep(path: Path) -> Path:
    """Return the store of a plain folder that has one, and every other path as it is."""
    return (find_store(path) if is_plain_folder(path) else None) or path


def choose_place(folder: Path) -> Path:
    """Return where a new store belongs: in the photographs' folder, or in the user's cache if that is read-only.

    Raises:
        InputError: neither can be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as photos:
    ...     choose_place(Path(photos)).name
    '.channelhash'
    """
    for place in (folder / _NAME, _in_cache(folder)):
        try:
            place.mkdir(parents=True, exist_ok=True)  # the only sure test
            if os.access(place, os.W_OK):
                return place
            reason: str | None = "Permission denied"
        except OSError as error:
            reason = error.strerror
        finally:
            with suppress(OSError):
                place.rmdir()
    raise InputError(
        f"{place}: no store can be made here or in {folder} ({reason}); "
        f"name one: `channelhash index create STORE {folder}`"
    )


def _in_cache(folder: Path) -> Path:
    where = os.path.realpath(folder)
    return cache_folder() / f"{Path(where).name}-{hashlib.sha256(os.fsencode(where)).hexdigest()[:16]}"
