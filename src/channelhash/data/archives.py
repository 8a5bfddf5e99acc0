"""Unpack archives without trusting them."""

import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from channelhash.errors import InputError
from channelhash.utils.files import temporary_folder
from channelhash.utils.reading import reading

#: MIRFLICKR-25k has about 76,000 members and 3 GB; NUS-WIDE's tag archive expands to about 1 GB.
MOST_MEMBERS = 500_000
MOST_BYTES = 40 * 2**30
#: Text compresses well, but not like this.
MOST_RATIO = 200
_SMALL = 2**20  # members below this size are not judged by their ratio


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    packed: int
    plain: bool  # a regular file; False for links and devices
    folder: bool
    entry: Any


def unpack(archive: Path, target: Path) -> None:
    """Unpack a ``.zip``, ``.tar``, ``.tar.gz`` or ``.tgz`` into the new folder ``target``, in one step.

    All members are checked before any is written, and a temporary folder takes the name ``target`` last, so that
    ``target`` is complete or does not exist.

    Raises:
        InputError: the archive is damaged; a member's path is absolute or leads outside; a member is a link or a
            device; there are too many members or bytes, or a member expands suspiciously.
    """
    with (
        reading(archive, "damaged archive", "remove it and download again"),
        temporary_folder(target) as temporary,
        _opened(archive) as (members, read),
    ):
        checked = list(members)
        _check(archive, checked)
        for member in checked:
            path = temporary / PurePosixPath(member.name)
            if member.folder:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with read(member) as source, open(path, "xb") as sink:
                _copy(archive, member, source, sink)
        temporary.replace(target)


def _check(archive: Path, members: list[_Member]) -> None:
    if len(members) > MOST_MEMBERS:
        raise InputError(f"{archive}: {len(members)} members, more than {MOST_MEMBERS} are not unpacked")
    total = sum(member.size for member in members)
    if total > MOST_BYTES:
        raise InputError(f"{archive}: {total} bytes unpacked, more than {MOST_BYTES} are not unpacked")
    for member in members:
        path = PurePosixPath(member.name)
        outside = path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name
        if outside or not member.name.strip("/"):
            raise InputError(f"{archive}: the member {member.name!r} leads outside the folder; nothing was unpacked")
        if not member.plain and not member.folder:
            raise InputError(f"{archive}: the member {member.name!r} is a link or a device; nothing was unpacked")
        if member.size > _SMALL and member.size > MOST_RATIO * max(1, member.packed):
            raise InputError(f"{archive}: the member {member.name!r} expands more than {MOST_RATIO} times")


def _copy(archive: Path, member: _Member, source: IO[bytes], sink: IO[bytes]) -> None:
    """Copy at most the announced size: a header may lie."""
    remaining = member.size
    while chunk := source.read(min(2**20, remaining + 1)):
        remaining -= len(chunk)
        if remaining < 0:
            raise InputError(f"{archive}: the member {member.name!r} is larger than its header says")
        sink.write(chunk)


@contextmanager
def _opened(archive: Path) -> Iterator[tuple[Iterator[_Member], Any]]:
    """Yield (members, function that opens one) of either kind of archive."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            yield (_zip_member(info) for info in packed.infolist()), lambda member: packed.open(member.entry)
    elif tarfile.is_tarfile(archive):
        size = archive.stat().st_size  # a tar has no packed sizes: all of it bounds each member's
        with tarfile.open(archive) as packed_tar:
            members = (_Member(i.name, i.size, size, i.isreg(), i.isdir(), i) for i in packed_tar.getmembers())
            yield members, lambda member: packed_tar.extractfile(member.entry)
    else:
        raise InputError(f"{archive}: not a zip or tar archive, or damaged; remove it and download again")


def _zip_member(info: zipfile.ZipInfo) -> _Member:
    kind = info.external_attr >> 28  # the file type of Unix modes; 0 where there is none, 8 a regular file
    return _Member(info.filename, info.file_size, info.compress_size, kind in (0, 8), info.is_dir(), info)
