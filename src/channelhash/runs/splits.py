"""The splits of a run: read from a file, or drawn; without PyTorch."""

from typing import TYPE_CHECKING

from channelhash.data.collection import Collection
from channelhash.data.concat import join_records, join_splits
from channelhash.data.records import Records
from channelhash.data.settings import SplitSettings
from channelhash.data.splits import Splits, draw_splits, load_splits

if TYPE_CHECKING:
    from channelhash.config import RunConfig  # which needs PyTorch


def make_splits(split: SplitSettings, records: Records) -> Splits:
    """Return the splits that a section ``data`` asks for: read from its file, or drawn.

    >>> import numpy as np
    >>> records = Records(tuple("abcdef"), {"text": tuple("abcdef")}, np.ones((6, 1), dtype=bool), ("letter",))
    >>> make_splits(SplitSettings(queries=2, train=3), records).counts()["train"]
    3
    """
    if split.splits is not None:
        return load_splits(split.splits, records)
    return draw_splits(records, split.queries, split.train, split.validation_queries, split.seed, split.split_method)


def draw_run_splits(config: "RunConfig", collection: Collection) -> Splits:
    """Return the splits of a run; in an extension the old items keep theirs."""
    new = make_splits(config.split, collection.new)
    if config.extend is None:
        return new
    old = join_records(collection.parts[:-1])
    return join_splits(load_splits(config.extend.run / "splits.json", old), new, len(old))
