"""Inputs too large for memory, at any address: read in shards that are always cut in the same way.

A new kind is one new file and one line in `KINDS`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from channelhash.data.bulk import parquet, tar
from channelhash.data.bulk.batches import BATCH, Bad, Planned, RawBatch, Shard, fetch
from channelhash.data.images import IMAGE_ENDINGS
from channelhash.errors import InputError
from channelhash.utils.addresses import File, Place, list_files, open_address, whole_file

_LISTING = pa.schema({"address": pa.string()})


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


def _plan_images(
    files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place
) -> Iterator[Planned]:
    """Yield a shard for every ``shard_items`` images and write them to ``listing``. Images alone have no labels."""
    remaining = iter(files)
    with whole_file(listing) as temporary, pq.ParquetWriter(temporary, _LISTING) as writer:
        number = 0
        while part := [file.address for file in islice(remaining, shard_items)]:
            writer.write_table(pa.table({"address": part}, _LISTING), row_group_size=len(part))
            yield Planned(Shard(str(listing), number, number + 1, len(part)), frozenset())
            number += 1


def _read_images(shard: Shard, root: str, modalities: Sequence[str]) -> Iterator[RawBatch]:
    """Yield the images of a shard; an id is the path relative to ``root``."""
    with open_address(shard.file) as stream, pq.ParquetFile(stream) as listing:
        for batch in listing.iter_batches(BATCH, row_groups=range(shard.first, shard.last)):
            addresses = batch.column("address").to_pylist()
            ids = [address.removeprefix(root).lstrip("/") for address in addresses]
            contents = fetch(addresses)
            bad = [Bad(name, content) for name, content in zip(ids, contents, strict=True) if isinstance(content, str)]
            everything = RawBatch(ids, {"image": contents}, [[] for _ in ids], addresses, bad)
            yield everything.take([row for row, content in enumerate(contents) if isinstance(content, bytes)])


KINDS = {
    "parquet": Kind((".parquet",), parquet.modalities, parquet.plan, parquet.read),
    "tar": Kind((".tar",), tar.modalities, tar.plan, tar.read),
    "pictures": Kind(IMAGE_ENDINGS, lambda file: ("image",), _plan_images, _read_images),
}


def input_files(address: str) -> Iterator[tuple[str, File]]:
    """Yield (kind, file) for each file of an input, always in the same order; skip files of no kind.

    Raises:
        InputError: the input has no such files, or files of several kinds.
    """
    first: tuple[str, File] | None = None
    for file in list_files(address):
        ending = PurePosixPath(file.address).suffix.lower()
        kind = next((name for name, kind in KINDS.items() if ending in kind.endings), None)
        if kind is None:
            continue
        first = first or (kind, file)
        if kind != first[0]:
            ending = PurePosixPath(first[1].address).suffix
            raise InputError(f"{address}: holds {first[1].address} and {file.address}; name one kind, as by *{ending}")
        yield kind, file
    if first is None:
        endings = ", ".join(ending for kind in KINDS.values() for ending in sorted(kind.endings))
        raise InputError(f"{address}: no files to encode; they end in {endings}")
