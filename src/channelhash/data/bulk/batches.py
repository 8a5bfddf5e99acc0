"""Shards of a large input, and the batches of raw items in a shard."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.data.records import Records, labels_from_names
from channelhash.errors import JobError
from channelhash.utils.addresses import read_bytes
from channelhash.utils.image_files import open_image

#: Images and texts read at once: as many as a model encodes at once.
BATCH = 256
# Images fetched at once: most of that time is waiting.
_FETCHES = 8


class Shard(NamedTuple):
    """The part of an input that becomes one file of codes.

    Attributes:
        file: address of a tar or Parquet file.
        first: first row group of a Parquet file.
        last: row group after the last one.
        items: number of items, including bad ones.

    >>> Shard("items.parquet", first=0, last=2, items=16384).items
    16384
    """

    file: str
    first: int
    last: int
    items: int


class Planned(NamedTuple):
    """A shard and the label names that occur in it.

    >>> sorted(Planned(Shard("a.tar", 0, 1, 2), frozenset({"sea", "dog"})).labels)
    ['dog', 'sea']
    """

    shard: Shard
    labels: frozenset[str]


class Bad(NamedTuple):
    """The id (or place) of an item that cannot be encoded, and the reason.

    >>> Bad("photo7", "not a readable image").item
    'photo7'
    """

    item: str
    reason: str


@dataclass(frozen=True)
class RawBatch:
    """Raw items in the order of the input.

    Attributes:
        ids: ``n`` names.
        items: modality -> ``n`` raw values: bytes of image files, texts, or rows of features ``(n, d)``.
        labels: label names of each item.
        image_addresses: where the images lie; None if they are inside the input's own files.
        bad: items left out.

    >>> batch = RawBatch(["a", "b"], {"text": ["a dog", "a cat"]}, [["dog"], []], None, [])
    >>> batch.take([1]).ids, batch.records(["cat", "dog"]).labels.tolist()
    (['b'], [[False, True], [False, False]])
    """

    ids: list[str]
    items: dict[str, list[Any] | NDArray[np.float32]]
    labels: list[list[str]]
    image_addresses: list[str] | None
    bad: list[Bad]

    def take(self, rows: Sequence[int]) -> "RawBatch":
        """Return the items of ``rows``, with all of ``bad``."""
        return RawBatch(
            [self.ids[row] for row in rows],
            {
                modality: values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]
                for modality, values in self.items.items()
            },
            [self.labels[row] for row in rows],
            None if self.image_addresses is None else [self.image_addresses[row] for row in rows],
            self.bad,
        )

    def records(self, label_names: Sequence[str]) -> Records:
        """Return the items as records, with images opened but not decoded.

        Raises:
            OSError: the bytes of an image are empty or of no known format.
        """
        items: dict[str, Any] = dict(self.items)
        images = self.items.get("image")
        if isinstance(images, list):
            items["image"] = tuple(open_image(BytesIO(content)) for content in images)
        if isinstance(self.items.get("text"), list):
            items["text"] = tuple(self.items["text"])
        labels, names = labels_from_names(self.labels, label_names, "the input")
        return Records(tuple(self.ids), items, labels, names)


def fetch(addresses: Sequence[str]) -> list[bytes | str]:
    """Read files in parallel: the content of each, or a few words on why it cannot be read."""
    with ThreadPoolExecutor(_FETCHES) as threads:
        return list(threads.map(_fetched, addresses))


def _fetched(address: str) -> bytes | str:
    try:
        return read_bytes(address) or f"empty picture {address}"
    except (FileNotFoundError, IsADirectoryError):
        return f"no such picture {address}"
    except PermissionError:
        return f"no permission to read {address}"
    except OSError as error:  # the network or the disk, not the image
        raise JobError(f"{address}: cannot be read now ({error}); the same command goes on from here") from None
