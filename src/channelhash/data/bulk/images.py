"""Image folders as inputs. The files are listed once, in a Parquet file with a row group for each shard."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from channelhash.data.bulk.batches import BATCH, Bad, Planned, RawBatch, Shard, fetch
from channelhash.utils.addresses import File, Place, open_address, whole_file

_SCHEMA = pa.schema({"address": pa.string()})


def plan(files: Iterable[File], modalities: Sequence[str], shard_items: int, listing: Place) -> Iterator[Planned]:
    """Yield a shard for every ``shard_items`` images and write them to ``listing``. Images alone have no labels."""
    remaining = iter(files)
    with whole_file(listing) as temporary, pq.ParquetWriter(temporary, _SCHEMA) as writer:
        number = 0
        while part := [file.address for file in islice(remaining, shard_items)]:
            writer.write_table(pa.table({"address": part}, _SCHEMA), row_group_size=len(part))
            yield Planned(Shard(str(listing), number, number + 1, len(part)), frozenset())
            number += 1


def read(shard: Shard, root: str, modalities: Sequence[str]) -> Iterator[RawBatch]:
    """Yield the images of a shard; an id is the path relative to ``root``."""
    with open_address(shard.file) as stream, pq.ParquetFile(stream) as listing:
        for batch in listing.iter_batches(BATCH, row_groups=range(shard.first, shard.last)):
            addresses = batch.column("address").to_pylist()
            contents = dict(zip(addresses, fetch(addresses), strict=True))
            good = [address for address, content in contents.items() if isinstance(content, bytes)]
            yield RawBatch(
                [_relative(address, root) for address in good],
                {"image": [contents[address] for address in good]},
                [[] for _ in good],
                good,
                [Bad(_relative(a, root), reason) for a, reason in contents.items() if isinstance(reason, str)],
            )


def modalities(file: str) -> tuple[str, ...]:
    """Return the only modality of an image file.

    >>> modalities("photo.jpg")
    ('image',)
    """
    return ("image",)


def _relative(address: str, root: str) -> str:
    return address.removeprefix(root).lstrip("/")
