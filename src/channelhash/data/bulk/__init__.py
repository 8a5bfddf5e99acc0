"""Inputs too large for memory, at any address: read in shards that are always cut in the same way.

A new kind is one new file and one line in `KINDS`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from channelhash.data.bulk import images, parquet, tar
from channelhash.data.bulk.batches import Planned, RawBatch, Shard
from channelhash.data.images import IMAGE_ENDINGS
from channelhash.errors import InputError
from channelhash.utils.addresses import File, Place, list_files


class Kind(NamedTuple):
    """Functions that read one kind of input.

    Attributes:
        endings: file endings of the kind.
        modalities: (address of the first file) -> modalities of its items.
        plan: (files, modalities, items a shard, path for a listing) -> shards, in order.
        read: (shard, folder that names are relative to, modalities) -> at least one batch; every item of the shard is
            in a batch or among the bad.
    """

    endings: Collection[str]
    modalities: Callable[[str], tuple[str, ...]]
    plan: Callable[[Iterable[File], Sequence[str], int, Place], Iterator[Planned]]
    read: Callable[[Shard, str, Sequence[str]], Iterator[RawBatch]]


KINDS = {
    "parquet": Kind((".parquet",), parquet.modalities, parquet.plan, parquet.read),
    "tar": Kind((".tar",), tar.modalities, tar.plan, tar.read),
    "pictures": Kind(IMAGE_ENDINGS, images.modalities, images.plan, images.read),
}


def input_files(address: str) -> Iterator[tuple[str, File]]:
    """Yield (kind, file) for each file of an input, always in the same order; skip files of no kind.

    Raises:
        InputError: the input has no such files, or files of several kinds.
    """
    first: tuple[str, File] | None = None
    for file in list_files(address):
        kind = _kind(file.address)
        if kind is None:
            continue
        first = first or (kind, file)
        if kind != first[0]:
            ending = PurePosixPath(first[1].address).suffix
            raise InputError(
                f"{address}: holds {first[1].address} and {file.address}; name one kind, such as {address}/*{ending}"
            )
        yield kind, file
    if first is None:
        endings = ", ".join(ending for kind in KINDS.values() for ending in sorted(kind.endings))
        raise InputError(f"{address}: no files to encode; they end in {endings}")


def _kind(address: str) -> str | None:
    ending = PurePosixPath(address).suffix.lower()
    return next((name for name, kind in KINDS.items() if ending in kind.endings), None)
