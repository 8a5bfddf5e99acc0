"""An embedded store's folder: ``store.json`` says what its codes have in common, beside it lie the other files."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from channelhash.errors import InputError
from channelhash.utils.files import write_text

_FORMAT = "channelhash store 1"


@dataclass(frozen=True)
class StoreFolder:
    """Where the files of a store are.

    >>> StoreFolder(Path("photos.store")).database.name
    'items.sqlite'
    """

    path: Path

    @property
    def description(self) -> Path:
        """Says what the codes have in common; written once, when the database is there."""
        return self.path / "store.json"

    @property
    def database(self) -> Path:
        """The record of truth."""
        return self.path / "items.sqlite"

    @property
    def lock(self) -> Path:
        """Held while the store or a snapshot is made."""
        return self.path / ".lock"

    @property
    def model(self) -> Path:
        """The model that made the codes, if somebody has put it there with ``save_pretrained``."""
        return self.path / "model"

    def check_own(self) -> None:
        """Raise `InputError` if the folder holds something else than a store."""
        if self.path.is_file():
            raise InputError(f"{self.path}: is a file, neither a store's folder nor a Parquet file of codes")
        if self.path.is_dir() and not self.description.exists():
            # A process that was killed while it made the store leaves a database without a description.
            prefixes = (self.database.name, self.model.name, ".")
            foreign = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith(prefixes))
            if foreign:
                raise InputError(f"{self.path}: holds {foreign[0]}, but no store; choose a new folder")

    def n_bytes(self) -> int:
        """Add up the sizes of all files but the model's. Other processes may remove some meanwhile."""
        total = 0
        for folder, folders, names in os.walk(self.path):
            if Path(folder) == self.path and self.model.name in folders:
                folders.remove(self.model.name)
            for name in names:
                with suppress(FileNotFoundError):
                    total += (Path(folder) / name).stat().st_size
        return total


class Facts(NamedTuple):
    """What all codes of a store have in common: their length, and the fingerprint of their model, empty if unknown.

    >>> Facts(n_bits=64, model="a1b2").n_bits
    64
    """

    n_bits: int
    model: str


def write_facts(folder: StoreFolder, facts: Facts) -> None:
    """Write the description of a new store."""
    described = {"format": _FORMAT, "n_bits": facts.n_bits, "model": facts.model}
    write_text(folder.description, json.dumps(described) + "\n")


def read_facts(folder: StoreFolder) -> Facts:
    """Read what `write_facts` wrote.

    Raises:
        InputError: the description is damaged or of another format, or the database is missing.
    """
    path = folder.description
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
        written_as, n_bits, model = described["format"], described["n_bits"], described["model"]
        whole = isinstance(n_bits, int) and n_bits > 0 and isinstance(model, str)
    except (ValueError, KeyError, TypeError):
        whole, written_as = False, _FORMAT
    if written_as != _FORMAT:
        raise InputError(f"{path}: written as {written_as!r}, this version reads {_FORMAT!r}; add the items again")
    if not whole:
        raise InputError(f"{path}: is damaged; restore it, or remove the folder and add the items again")
    if not folder.database.exists():
        raise InputError(f"{folder.database}: is missing; restore it, or remove the folder and add the items again")
    return Facts(n_bits, model)
