"""What a large input is read as: shards, and of each of them batches of raw items."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.data.bulk.addresses import read_bytes
from channelhash.data.records import Records, labels_from_names
from channelhash.errors import JobError

#: Pictures and texts that are read at once: what a model encodes at once.
BATCH = 256
# Pictures that are fetched at once: most of the time of that is waiting.
_FETCHES = 8


class Shard(NamedTuple):
    """The part of an input that becomes one file of codes.

    Attributes:
        file: address of a tar or Parquet file.
        first: of a Parquet file, the first row group …
        last: … and the one after the last.
        items: how many there are, bad ones too.
    """

    file: str
    first: int
    last: int
    items: int


class Planned(NamedTuple):
    """A shard, and the label names that occur in it."""

    shard: Shard
    labels: frozenset[str]


class Bad(NamedTuple):
    """An item that cannot be encoded: its id (or where it is), and why."""

    item: str
    reason: str


@dataclass(frozen=True)
class RawBatch:
    """Items in the order of the input, as they stand there.

    Attributes:
        ids: ``n`` names.
        items: modality -> ``n`` raw values: the bytes of picture files, texts, or rows of features ``(n, d)``.
        labels: label names of each item.
        pictures: where the pictures lie, to show; None where they are inside the input's own files.
        bad: what was left out.
    """

    ids: list[str]
    items: dict[str, list[Any] | NDArray[np.float32]]
    labels: list[list[str]]
    pictures: list[str] | None
    bad: list[Bad]

    def take(self, rows: Sequence[int]) -> "RawBatch":
        """The items of ``rows``; ``bad`` stays."""
        return RawBatch(
            [self.ids[row] for row in rows],
            {
                modality: values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]
                for modality, values in self.items.items()
            },
            [self.labels[row] for row in rows],
            None if self.pictures is None else [self.pictures[row] for row in rows],
            self.bad,
        )

    def records(self, label_names: Sequence[str]) -> Records:
        """The items as records, pictures opened but not decoded.

        Raises:
            OSError: the bytes of a picture are none, or of no known format.
        """
        items: dict[str, Any] = dict(self.items)
        images = self.items.get("image")
        if isinstance(images, list):
            items["image"] = tuple(Image.open(BytesIO(content)) for content in images)
        if isinstance(self.items.get("text"), list):
            items["text"] = tuple(self.items["text"])
        labels, names = labels_from_names(self.labels, label_names, "the input")
        return Records(tuple(self.ids), items, labels, names)


def fetch(addresses: Sequence[str]) -> list[bytes | str]:
    """The content of each file, or in few words why it cannot be had."""
    with ThreadPoolExecutor(_FETCHES) as threads:
        return list(threads.map(_fetched, addresses))


def _fetched(address: str) -> bytes | str:
    try:
        return read_bytes(address) or f"empty picture {address}"
    except (FileNotFoundError, IsADirectoryError):
        return f"no such picture {address}"
    except PermissionError:
        return f"no permission to read {address}"
    except OSError as error:  # not the picture's fault: a network or a disk
        raise JobError(f"{address}: cannot be read now ({error}); the same command goes on from here") from None
