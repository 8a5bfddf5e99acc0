"""An embedded store's folder: ``store.json`` says what its codes have in common, beside it lie the other files."""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from channelhash.errors import InputError
from channelhash.search.validation import check_opened_as
from channelhash.utils.checked_json import dump_checked, load_checked
from channelhash.utils.exhausted import check_exhausted
from channelhash.utils.files import write_text

_FORMAT = "channelhash store 3"

# Windows knows no other than the process's own user.
_EFFECTIVE = os.access in os.supports_effective_ids


@dataclass(frozen=True)
class StoreFolder:
    """Where the files of a store are.

    Attributes:
        path: the folder.
        mapped: whether the codes of a snapshot are searched where they are, see `manifest.read_checked`.

    >>> StoreFolder(Path("photos.store")).database.name
    'items.sqlite'
    """

    path: Path
    mapped: bool = False

    @property
    def description(self) -> Path:
        """Says what the codes have in common; written once, when the database is there."""
        return self.path / "store.json"

    @property
    def database(self) -> Path:
        """The record of truth."""
        return self.path / "items.sqlite"

    @property
    def seal(self) -> Path:
        """What the database was when it was last closed, see `seal.Seal`."""
        return self.path / "items.seal"

    @property
    def in_use(self) -> Path:
        """Held, shared, by everyone who has the store open; alone by who checks, seals or repairs it."""
        return self.path / ".in-use"

    @property
    def gate(self) -> Path:
        """Held while a process finds out how it opens the database, so that only one checks it."""
        return self.path / ".gate"

    @property
    def lock(self) -> Path:
        """Held while the store or a snapshot is made."""
        return self.path / ".lock"

    @property
    def model(self) -> Path:
        """The model that made the codes, if somebody has put it there with ``save_pretrained``."""
        return self.path / "model"

    @property
    def source(self) -> Path:
        """Says which photographs the items are, if they are those of a folder."""
        return self.path / "source.json"

    @property
    def run(self) -> Path:
        """Says how far an indexing run is, see `indexing_run`."""
        return self.path / ".indexing.json"

    @property
    def run_lock(self) -> Path:
        """Held by the indexing run that writes `run`."""
        return self.path / ".indexing"

    @property
    def writable(self) -> bool:
        """Whether the files can be written to, or are yet to be made."""
        needed = (self.path, self.database, self.in_use)
        return all(os.access(path, os.W_OK, effective_ids=_EFFECTIVE) for path in needed if path.exists())

    def check_own(self) -> None:
        """Raise `InputError` if the folder holds something else than a store."""
        if self.path.is_file():
            raise InputError(f"{self.path}: is a file, neither a store's folder nor a Parquet file of codes")
        if self.path.is_dir() and not self.description.exists():
            if self.seal.exists():
                raise self.damaged("is missing")
            # A process that was killed while it made the store leaves a database without a description.
            prefixes = (self.database.name, self.model.name, self.source.name, ".")
            foreign = sorted(entry.name for entry in self.path.iterdir() if not entry.name.startswith(prefixes))
            if foreign:
                raise InputError(
                    f"{self.path}: holds {foreign[0]}, but no store; if these are pictures to search, make one of them "
                    f"with `channelhash search {self.path} WORDS`, otherwise choose a new folder"
                )

    def damaged(self, what: str) -> InputError:
        """Return what to raise where the description is not whole."""
        return InputError(
            f"{self.description}: {what}; restore it, or try `channelhash index repair {self.path}`, or remove the"
            " folder and add the items again"
        )

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
    """What all codes of a store have in common.

    Attributes:
        n_bits: their length.
        model: fingerprint of their model, empty if unknown.
        projected: whether each has a projection beside it.
        stem: the language whose words are stemmed in the index of words, see `words.make_words`; none if empty.

    >>> Facts(n_bits=64, model="a1b2").projected
    False
    """

    n_bits: int
    model: str
    projected: bool = False
    stem: str = ""

    @property
    def projection_size(self) -> int | None:
        """Bytes of a projection; None where there are none."""
        return self.n_bits if self.projected else None


def write_facts(folder: StoreFolder, facts: Facts) -> None:
    """Write the description of a store."""
    write_text(folder.description, dump_checked({"format": _FORMAT, **facts._asdict()}))


def read_facts(folder: StoreFolder) -> Facts:
    """Read what `write_facts` wrote.

    Raises:
        InputError: the description is damaged or of another format, or the database is missing.
    """
    try:
        text = folder.description.read_text(encoding="utf-8")
        described = json.loads(text)
        if described["format"] == _FORMAT or "checksum" in described:
            described = load_checked(text)
        written_as = described.pop("format")
        facts = Facts(**described) if written_as == _FORMAT else Facts(1, "")
        whole = type(facts.n_bits) is int and facts.n_bits > 0 and isinstance(facts.projected, bool)
        whole = whole and isinstance(facts.model, str) and isinstance(facts.stem, str)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        whole, written_as = False, _FORMAT
    except OSError as error:
        check_exhausted(error, folder.description)
        raise folder.damaged(f"cannot be read ({error.strerror})") from None
    if written_as != _FORMAT:
        raise InputError(
            f"{folder.description}: written as {written_as!r}, this version reads {_FORMAT!r}; remove the folder and"
            " add the items again"
        )
    if not whole:
        raise folder.damaged("is damaged")
    if not folder.database.exists():
        raise InputError(f"{folder.database}: is missing; restore it, or remove the folder and add the items again")
    return facts


def check_opened(address: str, facts: Facts, expected: Facts) -> None:
    """Raise `InputError` unless a store may be opened as what is expected: any length of 0, any model that is empty.

    >>> check_opened("photos.store", Facts(64, "a1b2"), Facts(0, "a1b2"))
    """
    check_opened_as(address, facts[:2], expected.n_bits or None, expected.model)
    if expected.projected and not facts.projected:
        raise InputError(f"{address}: keeps no projections beside its codes; choose another store")
    if expected.stem and facts.stem != expected.stem:
        raise InputError(f"{address}: does not stem {expected.stem.title()} words; choose another store")
