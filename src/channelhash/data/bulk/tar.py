"""WebDataset shards as inputs: tar files in which neighbouring files with one name form an item.

``0001.jpg``, ``0001.txt`` and ``0001.json`` are the image, the text and the other fields of item ``0001``. Labels are
``labels`` of the JSON (a list, or names separated by ``;``) or the content of ``.cls``; the text may instead be
``text`` or ``caption`` of the JSON. A name ends at its first dot, as WebDataset has it: ``a.left.png`` is the field
``left.png`` of item ``a``, and no image. Hidden files are left out, among them what macOS adds.
"""

import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, islice
from pathlib import PurePosixPath
from typing import Any

from channelhash.data.bulk.batches import BATCH, Bad, Planned, RawBatch, Shard
from channelhash.data.images import IMAGE_ENDINGS
from channelhash.data.table import split_labels
from channelhash.errors import InputError
from channelhash.utils.addresses import File, Place, open_address
from channelhash.utils.files import one_line, reading
from channelhash.utils.plain_values import text_of

# A tar file is read in order, in requests of this many bytes where it is remote.
_AHEAD = 8 << 20

_Members = dict[str, tarfile.TarInfo]

# What is raised for an item whose text is not UTF-8, whose JSON is none or too deep, or that is a link to nothing.
_BAD = (ValueError, RecursionError, KeyError)


def plan(files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place) -> Iterator[Planned]:
    """Yield a shard for each tar file, whatever its size: a tar file can only be read from its beginning.

    Only headers and the members with labels are read.
    """
    for file in files:
        items, labels = 0, set()
        with _opened(file.address) as tar:
            for _, members in _samples(tar):
                items += 1
                with suppress(*_BAD):  # `read` reports the bad item
                    labels |= set(_labels(tar, members))
        if items:
            yield Planned(Shard(file.address, 0, 0, items), frozenset(labels))


def read(shard: Shard, root: str, modalities: Sequence[str]) -> Iterator[RawBatch]:
    """Yield the items of a tar file; an id is the name that an item's files share."""
    with _opened(shard.file) as tar:
        samples = _samples(tar)
        while part := list(islice(samples, BATCH)):
            batch = RawBatch([], {modality: [] for modality in modalities}, [], None, [])
            for key, members in part:
                try:
                    text_of(key)
                    values = {modality: _value(tar, members, modality) for modality in modalities}
                    labels = _labels(tar, members)
                    missing = [modality for modality, value in values.items() if not value]
                    problem = f"no {' and no '.join(missing)}{_dotted_name(members)}" if missing else ""
                except _BAD as error:
                    problem = f"its name, text or JSON cannot be read ({one_line(error)})"
                if problem:
                    batch.bad.append(Bad(key.encode(errors="replace").decode(), f"{problem} in {shard.file}"))
                    continue
                batch.ids.append(key)
                batch.labels.append(labels)
                for modality, value in values.items():
                    batch.items[modality].append(value)  # type: ignore[union-attr]  # lists, made above
            yield batch


def modalities(file: str) -> tuple[str, ...]:
    """Return the modalities of the first item of a tar file that has any."""
    hint = ""
    with _opened(file) as tar:
        for _, members in _samples(tar):
            with suppress(*_BAD):
                if found := tuple(modality for modality in ("image", "text") if _value(tar, members, modality)):
                    return found
            hint = hint or _dotted_name(members)
    raise InputError(f"{file}: holds no item with an image or a text that can be read{hint}")


@contextmanager
def _opened(address: str) -> Iterator[tarfile.TarFile]:
    with (
        open_address(address, _AHEAD) as stream,
        reading(address, "not a readable tar file, perhaps truncated or compressed"),
        tarfile.open(fileobj=stream, mode="r:") as tar,
    ):
        yield tar


def _samples(tar: tarfile.TarFile) -> Iterator[tuple[str, _Members]]:
    """Yield (key, members by ending) of each item; the key ends at the first dot of the file name."""
    files = (
        (*_parted(member.name), member)
        for member in tar
        if (member.isfile() or member.islnk() or member.issym()) and not _hidden(member.name)
    )
    for key, members in groupby(files, key=lambda part: part[0]):
        yield key, {ending: member for _, ending, member in members}


def _hidden(name: str) -> bool:
    """Return whether a file, or a folder on the way to it, is hidden or macOS's own."""
    return any(part == "__MACOSX" or (part.startswith(".") and part not in (".", "..")) for part in name.split("/"))


def _dotted_name(members: _Members) -> str:
    """Return a hint if an item has the image only by a name with dots, which ends too early; else nothing."""
    for ending, member in members.items():
        if "." in ending[1:] and PurePosixPath(ending).suffix in IMAGE_ENDINGS:
            return f" (a name ends at its first dot: {member.name} is {ending} of an item; rename it)"
    return ""


def _parted(name: str) -> tuple[str, str]:
    folder, slash, last = name.rpartition("/")
    stem, _, ending = last.partition(".")
    return f"{folder}{slash}{stem}".removeprefix("./"), f".{ending.lower()}"


def _value(tar: tarfile.TarFile, members: _Members, modality: str) -> bytes | str | None:
    """Return the bytes of the image, or the text; empty if there is none. ValueError if not UTF-8 or not JSON."""
    if modality == "image":
        return next((_content(tar, member) for ending, member in members.items() if ending in IMAGE_ENDINGS), None)
    if ".txt" in members:
        return text_of(_content(tar, members[".txt"]).decode()).strip()
    fields = _fields(tar, members)
    return text_of(fields.get("text")).strip() or text_of(fields.get("caption")).strip()


def _labels(tar: tarfile.TarFile, members: _Members) -> list[str]:
    if ".cls" in members:
        return split_labels(_content(tar, members[".cls"]).decode())
    return split_labels(_fields(tar, members).get("labels"))


def _fields(tar: tarfile.TarFile, members: _Members) -> dict[str, Any]:
    """Return the JSON fields of an item, or none."""
    if ".json" not in members:
        return {}
    fields = json.loads(_content(tar, members[".json"]))
    return fields if isinstance(fields, dict) else {}


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    if file is None:
        raise ValueError(f"{member.name} is a link to no file")
    return file.read()
