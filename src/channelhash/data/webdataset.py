"""Items of WebDataset shards: neighbouring files of a tar file that share a name.

``0001.jpg``, ``0001.txt`` and ``0001.json`` are the image, the text and the other fields of item
``0001``. Labels are ``labels`` of the JSON (a list, or names separated by ``;``) or the content of
``.cls``; the text may instead be ``text`` or ``caption`` of the JSON. A name ends at its first dot,
as WebDataset has it: ``a.left.png`` is the field ``left.png`` of item ``a``, and no image. Hidden
files are left out, among them what macOS adds.
"""

import json
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from channelhash.data.cells import join_captions, split_labels, text_of
from channelhash.data.images import IMAGE_ENDINGS
from channelhash.data.records import DataItem
from channelhash.utils.addresses import open_address
from channelhash.utils.decode import decode_text, one_line, reading

#: Errors of an item whose text is not UTF-8, whose JSON is none or too deep, or that is a link to
#: nothing.
BAD_SAMPLE = (ValueError, RecursionError, KeyError)
#: Bytes of a remote file that are requested at once: tar files are read in order.
_REQUEST = 8 << 20


class Sample(NamedTuple):
    """An item of a shard.

    Attributes:
        tar: the open shard.
        key: the name that the item's files share.
        members: ending -> file of the item.
    """

    tar: tarfile.TarFile
    key: str
    members: dict[str, tarfile.TarInfo]

    def item(self, modalities: Sequence[str]) -> DataItem | str:
        """Return the item, or what is wrong with it."""
        try:
            text_of(self.key)
            values = {modality: self.value(modality) for modality in modalities}
            labels = self.labels()
        except BAD_SAMPLE as error:
            return f"its name, text or JSON cannot be read ({one_line(error)})"
        missing = [modality for modality, value in values.items() if not value]
        if missing:
            return f"no {' and no '.join(missing)}{self.hint()}"
        return DataItem(self.key, values, labels)

    def value(self, modality: str) -> bytes | str | None:
        """Return the bytes of the image, or the text; empty if there is none.

        Raises:
            ValueError: the text is not UTF-8, or the fields are not JSON.
        """
        if modality == "image":
            ending = next(filter(IMAGE_ENDINGS.__contains__, self.members), None)
            return self._content(ending) if ending else None
        if ".txt" in self.members:
            return join_captions(decode_text(self._content(".txt"))).strip()
        fields = self._json()
        captions = (join_captions(fields.get(key)).strip() for key in ("text", "caption"))
        return next(filter(None, captions), "")

    def labels(self) -> list[str]:
        """Return the label names; errors as in `value`."""
        if ".cls" in self.members:
            return split_labels(decode_text(self._content(".cls")))
        return split_labels(self._json().get("labels"))

    def hint(self) -> str:
        """Return a hint if the name of an image has a dot before its ending, else nothing."""
        for ending, member in self.members.items():
            if "." in ending[1:] and PurePosixPath(ending).suffix in IMAGE_ENDINGS:
                return (
                    f" (a name ends at its first dot: {member.name} is {ending} of an item; rename "
                    "it)"
                )
        return ""

    def _json(self) -> dict[str, Any]:
        content = self._content(".json") if ".json" in self.members else b"{}"
        fields = json.loads(decode_text(content))
        return fields if isinstance(fields, dict) else {}

    def _content(self, ending: str) -> bytes:
        member = self.members[ending]
        file = self.tar.extractfile(member)
        if file is None:
            raise ValueError(f"{member.name} is a link to no file")
        return file.read()


@contextmanager
def open_samples(address: str) -> Iterator[Iterator[Sample]]:
    """Open a shard and return its items in order."""
    with (
        open_address(address, _REQUEST) as stream,
        reading(address, "not a readable tar file, perhaps truncated or compressed"),
        tarfile.open(fileobj=stream, mode="r:") as tar,
    ):
        yield _samples(tar)


def _samples(tar: tarfile.TarFile) -> Iterator[Sample]:
    files = (
        (*_split_name(member.name), member)
        for member in tar
        if (member.isfile() or member.islnk() or member.issym()) and not _is_hidden(member.name)
    )
    for key, members in groupby(files, key=lambda file: file[0]):
        yield Sample(tar, key, {ending: member for _, ending, member in members})


def _split_name(name: str) -> tuple[str, str]:
    """Return the key of an item and the ending of its file."""
    folder, slash, last = name.rpartition("/")
    stem, _, ending = last.partition(".")
    return f"{folder}{slash}{stem}".removeprefix("./"), f".{ending.lower()}"


def _is_hidden(name: str) -> bool:
    """Return whether a file, or a folder on the way to it, is hidden or macOS's own."""
    return any(
        part == "__MACOSX" or (part.startswith(".") and part not in (".", ".."))
        for part in name.split("/")
    )
