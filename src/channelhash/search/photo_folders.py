"""A plain folder of photographs stands for the store that was made of it."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from channelhash.data.folder import STORE_FOLDER
from channelhash.errors import InputError
from channelhash.utils.files import cache_folder

# What the first bytes of a store's, a model's and a run's files hold: other programs, too, write a config.json.
_STORE = {"store.json": rb'"channelhash store', "items.sqlite": rb"CREATE TABLE removed \(serial"}
_MODEL = rb'(?s)(?=.*"name":)(?=.*"n_bits":)(?=.*"architecture":)'
_RUN = rb"(?ms)\A(?=.*^data:)(?=.*^model:)(?=.*^loss:)(?=.*^train:)"  # in any order
_ENOUGH = 65536


def is_store(folder: Path) -> bool:
    """Return whether a folder holds a store, perhaps one whose first items are yet to come, or one that is damaged."""
    return _is_model(folder / "model") or any(_holds(folder / name, mark) for name, mark in _STORE.items())


def _is_model(folder: Path) -> bool:
    """Return whether a folder holds a saved model."""
    return _holds(folder / "config.json", _MODEL)


def is_run(folder: Path) -> bool:
    """Return whether a folder holds a run."""
    return _holds(folder / "config.yaml", _RUN)


def _is_plain_folder(path: Path) -> bool:
    """Return whether a path is a folder and neither a store nor a run nor a saved model.

    >>> _is_plain_folder(Path(os.sep)), _is_plain_folder(Path("lost.store"))
    (True, False)
    """
    return path.is_dir() and not (is_store(path) or _is_model(path) or is_run(path))


def _holds(file: Path, mark: bytes) -> bool:
    """Return whether a file begins with what only this package writes."""
    try:
        with open(file, "rb") as opened:
            return re.search(mark, opened.read(_ENOUGH)) is not None
    except OSError:
        return False


def holds_files(address: str) -> bool:
    """Return whether an address is that of a plain folder with files in it, hidden ones left out."""
    path = Path(address)
    return "://" not in address and _is_plain_folder(path) and any(path.glob("[!.]*"))


def find_store(folder: Path) -> Path | None:
    """Return the store that was made of a plain folder: in it, or in the user's cache; None if there is none."""
    return next((place for place in _places(folder) if is_store(place)), None)


def find_or_keep(path: Path) -> Path:
    """Return the store of a plain folder that has one, and every other path as it is."""
    return (find_store(path) if _is_plain_folder(path) else None) or path


def choose_place(folder: Path) -> Path:
    """Return where a new store belongs: in the photographs' folder, or in the user's cache if that is read-only.

    Raises:
        InputError: neither can be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as photos:
    ...     choose_place(Path(photos)).name
    '.channelhash'
    """
    for place in _places(folder):
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
    where = f"{place}: no store can be made here or in {folder} ({reason})"
    raise InputError(f"{where}; name one: `channelhash index create STORE {folder}`")


def _places(folder: Path) -> Iterator[Path]:
    """Yield where the store of a plain folder may be: in it, or in the cache of a user who has one."""
    yield folder / STORE_FOLDER
    where = os.path.realpath(folder)
    with suppress(InputError):
        yield cache_folder() / f"{Path(where).name}-{hashlib.sha256(os.fsencode(where)).hexdigest()[:16]}"
