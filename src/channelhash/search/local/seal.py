"""The seal of a store: what its database was when it was last closed, or a lower bound of it while it is open.

`items.seal` is derived and may be removed; then the next opening checks the whole database. Without one, a log that was
cut off or removed would go unnoticed: SQLite takes what is left for all there ever was.
"""

from pathlib import Path
from typing import Any, NamedTuple

from channelhash.errors import JobError
from channelhash.search.local.folder import Facts
from channelhash.utils.checked_json import dump_checked, load_checked
from channelhash.utils.exhausted import check_exhausted
from channelhash.utils.files import atomic_path, sync_folder

_FORMAT = "channelhash seal 1"
# Bytes of a seal without its model's name.
_LENGTH = 500


class Seal(NamedTuple):
    """What is known of a database without looking into it.

    Attributes:
        version: its `State.version`, or, while it is open, one that it had at least.
        facts: a copy of the store's description.
        n_bytes, sha256: size and digest of the file; 0 and empty while it is open.

    >>> Seal(3, Facts(64, "a1b2"), 4096, "0f").closed
    True
    """

    version: int
    facts: Facts
    n_bytes: int = 0
    sha256: str = ""

    @property
    def closed(self) -> bool:
        """Whether nobody has written since the digest was taken."""
        return bool(self.sha256)


def read_seal(path: Path) -> Seal | None:
    """Read a seal.

    Returns:
        The seal; None if there is none, or a damaged one.
    """
    try:
        values = load_checked(path.read_text(encoding="utf-8"))
        if values.pop("format") != _FORMAT:
            return None
        facts = Facts(*(values[name] for name in Facts._fields))
        return Seal(values["version"], facts, values["n_bytes"], values["sha256"])
    except (FileNotFoundError, ValueError, KeyError):
        return None
    except OSError as error:
        check_exhausted(error, path)
        raise


def write_seal(path: Path, seal: Seal) -> None:
    """Replace a seal in one step, and wait until it is on the disk.

    Raises:
        JobError: the disk is full, or cannot be written.
    """
    try:
        with atomic_path(path) as temporary:
            temporary.write_bytes(_line(seal))
        sync_folder(path.parent)
    except OSError as error:
        raise JobError(f"{path}: cannot be written ({error.strerror}); make room on the disk") from None


def renew_seal(path: Path, seal: Seal) -> None:
    """Write over a seal without waiting for the disk, 20 microseconds.

    A power cut may leave half of it, which counts as none.

    Raises:
        OSError: it is gone, or cannot be written.
    """
    with open(path, "r+b", buffering=0) as file:
        file.write(_line(seal))


def _line(seal: Seal) -> bytes:
    """Return a seal as one line of JSON, as long as every other of its store, so that one can lie over another."""
    values: dict[str, Any] = {"format": _FORMAT, "version": seal.version, **seal.facts._asdict()}
    line = dump_checked({**values, "n_bytes": seal.n_bytes, "sha256": seal.sha256}).encode()
    return line[:-1].ljust(len(seal.facts.model) * 6 + _LENGTH) + b"\n"
