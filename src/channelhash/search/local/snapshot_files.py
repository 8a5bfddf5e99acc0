"""The files of a snapshot: codes of each modality as they are searched, beside a manifest that tells damage from them.

A snapshot's folder is named after the SHA-256 of its ``manifest.json``, which holds size and SHA-256 of every other
file. What names the folder thus names each byte in it. Nothing of a snapshot is used before it is checked.
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from channelhash.errors import InputError
from channelhash.search.local.sorted_codes import SortedCodes
from channelhash.utils.exhausted import check_exhausted
from channelhash.utils.manifest import Files, find_damaged, find_lost, list_files, parse_files, read_checked
from channelhash.utils.npy_files import array_from_npy

#: What the names of snapshots begin with.
PREFIX = "snapshot-"

_FORMAT = "channelhash snapshot 1"
_MANIFEST = "manifest.json"


class DamagedSnapshotError(Exception):
    """A snapshot is missing, or not as it was written; it can be made again."""


class Snapshot(Mapping[str, SortedCodes]):
    """A snapshot, modality -> codes. Its manifest is whole and its files are all there; they are read when asked for.

    Args:
        path: its folder.
        n_bits: code length.
        serial: the last code that may be in it.
        counts: modality -> number of codes.
        files: all files but the manifest.

    Attributes:
        mapped: whether codes stay in their files, see `manifest.read_checked`.
    """

    mapped = False

    def __init__(self, path: Path, n_bits: int, serial: int, counts: dict[str, int], files: Files) -> None:
        self.path = path
        self.n_bits = n_bits
        self.serial = serial
        self.counts = counts
        self.files = files
        self._read: dict[str, SortedCodes] = {}

    def __getitem__(self, modality: str) -> SortedCodes:
        """Return the codes of a modality, as `load`."""
        if modality not in self._read:
            self._read[modality] = self.load(modality)
        return self._read[modality]

    def __contains__(self, modality: object) -> bool:
        return modality in self.counts

    def __iter__(self) -> Iterator[str]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    def load(self, modality: str) -> SortedCodes:
        """Read the codes of a modality, into memory unless `mapped`.

        The very bytes that are checked are those that are searched, unless somebody writes to a mapped file.

        Raises:
            DamagedSnapshotError: a file is not as it was written.
        """
        beginning = f"{modality}/"
        names = [name for name in self.files if name.startswith(beginning)]
        try:
            contents = read_checked(self.path, names, self.files, self.mapped)
            arrays = {
                name.removeprefix(beginning).removesuffix(".npy"): array_from_npy(content)
                for name, content in zip(names, contents, strict=True)
            }
            codes = SortedCodes.from_arrays(arrays)
        except OSError as error:
            check_exhausted(error, self.path)
            raise DamagedSnapshotError(f"{self.path}: {error}") from None
        except ValueError as error:
            raise DamagedSnapshotError(f"{self.path}: {error}") from None
        if (codes.index.n_bits, len(codes)) != (self.n_bits, self.counts[modality]):
            raise DamagedSnapshotError(f"{self.path}: {len(codes)} {modality} codes of {codes.index.n_bits} bits")
        return codes


def write_snapshot(store: Path, codes: Mapping[str, SortedCodes], n_bits: int, serial: int) -> str:
    """Write a snapshot into a store's folder, and return its name; it is on the disk when this returns.

    Raises:
        OSError: it cannot be written; nothing of it is left.
        InputError: a modality has no plain name, which becomes a folder's.
    """
    temporary = store / f"{PREFIX}{uuid.uuid4().hex}.tmp"
    if odd := [modality for modality in codes if not modality.isidentifier()]:
        raise InputError(f"{store}: holds codes of {odd[0]!r}, which is no modality; this store is damaged")
    try:
        for modality, sorted_codes in codes.items():
            for name, values in sorted_codes.arrays().items():
                path = temporary / modality / f"{name}.npy"
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "wb") as file:
                    np.save(file, values)
                    file.flush()
                    os.fsync(file.fileno())
        manifest = {
            "format": _FORMAT,
            "id": uuid.uuid4().hex,  # one that is made again has another name
            "n_bits": n_bits,
            "serial": serial,
            "codes": {modality: len(sorted_codes) for modality, sorted_codes in codes.items()},
            "files": {name: facts._asdict() for name, facts in list_files(temporary).items()},
        }
        content = json.dumps(manifest, indent=1).encode()
        temporary.mkdir(exist_ok=True)
        with open(temporary / _MANIFEST, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        name = f"{PREFIX}{hashlib.sha256(content).hexdigest()}"
        temporary.rename(store / name)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return name


def open_snapshot(path: Path) -> Snapshot:
    """Open a snapshot: check its manifest, and that its files are there, which is quick.

    Raises:
        DamagedSnapshotError: it is missing, damaged, or of another format.
    """
    try:
        snapshot = _read_manifest(path)
    except OSError as error:
        check_exhausted(error, path)
        raise DamagedSnapshotError(f"{path}: {error}") from None
    except ValueError as error:
        raise DamagedSnapshotError(f"{path}: {error}") from None
    if lost := find_lost(path, snapshot.files):
        raise DamagedSnapshotError(f"{path}: {lost[0]}")
    return snapshot


def damaged_files(path: Path) -> list[str]:
    """Return a line for each file of a snapshot that is damaged; all of them are read."""
    try:
        snapshot = _read_manifest(path)
    except FileNotFoundError:
        return [f"{path.name}: is missing" if not path.is_dir() else f"{path.name}/{_MANIFEST}: is missing"]
    except OSError as error:
        check_exhausted(error, path)
        return [f"{path.name}/{_MANIFEST}: {error}"]
    except ValueError as error:
        return [f"{path.name}/{_MANIFEST}: {error}"]
    return [f"{path.name}/{line}" for line in find_damaged(path, snapshot.files)]


def remove_others(store: Path, name: str) -> None:
    """Remove all snapshots but one, also those that killed processes left; the caller holds the store's lock."""
    for folder in store.glob(f"{PREFIX}*"):
        if folder.name != name:
            shutil.rmtree(folder, ignore_errors=True)


def _read_manifest(path: Path) -> Snapshot:
    """Return what the manifest says.

    Raises:
        ValueError: it has changed since it was written, or was not written by this version.
        OSError: it cannot be read.
    """
    if not (path / _MANIFEST).is_file():
        raise FileNotFoundError(f"{_MANIFEST} is missing")
    content = (path / _MANIFEST).read_bytes()
    if path.name != f"{PREFIX}{hashlib.sha256(content).hexdigest()}":
        raise ValueError("has changed since it was written")
    try:
        manifest = json.loads(content)
        if manifest["format"] != _FORMAT:
            raise ValueError(f"written as {manifest['format']!r}")
        counts = {str(modality): int(count) for modality, count in manifest["codes"].items()}
        return Snapshot(path, int(manifest["n_bits"]), int(manifest["serial"]), counts, parse_files(manifest["files"]))
    except (AttributeError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"is no manifest ({error})") from None
