"""The items of a store, and what its searches answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.search.validation import Metadata, Value


class Answers(NamedTuple):
    """The items that queries found, nearest first, equal distances by id.

    Attributes:
        ids: of each query, the items' ids.
        distances: of each query, the number of bits in which each item's code differs from the query's.

    >>> Answers([["a", "b"]], [np.array([0, 3])]).ids
    [['a', 'b']]
    """

    ids: list[list[str]]
    distances: list[NDArray[np.int64]]


@dataclass(frozen=True)
class Item:
    """One stored item.

    Attributes:
        id: any string.
        codes: modality -> packed code ``(ceil(n_bits / 8),)`` uint8.
        metadata: key -> value. Answers show ``text``, ``image`` (an image's path) and ``labels``.
        projections: modality -> projection ``(n_bits,)`` int8, if the store keeps them.

    >>> Item("a", {"image": np.array([7], np.uint8)}, {"year": 2020}).metadata["year"]
    2020
    """

    id: str
    codes: dict[str, PackedCodes]
    metadata: dict[str, Value] = field(default_factory=dict)
    projections: dict[str, NDArray[np.int8]] = field(default_factory=dict)


class Listed(NamedTuple):
    """What a store lists of an item without reading its codes.

    Attributes:
        id: the item's id.
        modalities: the modalities of which it has codes.
        metadata: key -> value.

    >>> Listed("a", ("image",), {"year": 2020}).modalities
    ('image',)
    """

    id: str
    modalities: tuple[str, ...]
    metadata: dict[str, Value]


class IndexingRun(NamedTuple):
    """An indexing run that is going on.

    Attributes:
        stage: ``"look"``, while it compares files with the store, or ``"encode"``.
        done: items of the stage that are done.
        total: items of the stage.

    >>> IndexingRun("encode", done=256, total=1000).total
    1000
    """

    stage: str
    done: int
    total: int


def merge_item(former: Item | None, item_id: str, codes: Mapping[str, PackedCodes], metadata: Metadata) -> Item:
    """Return an item with further codes and metadata; keys whose value is None go.

    >>> merge_item(Item("a", {}, {"year": 2020, "text": "sea"}), "a", {}, {"text": None, "sharp": True}).metadata
    {'year': 2020, 'sharp': True}
    """
    values = {**(former.metadata if former else {}), **metadata}
    values = {key: value for key, value in values.items() if value is not None}
    return Item(item_id, {**(former.codes if former else {}), **codes}, values)


def no_answers(n_queries: int) -> Answers:
    """Return what queries to a store without items find.

    >>> no_answers(2).ids
    [[], []]
    """
    return Answers([[] for _ in range(n_queries)], [np.zeros(0, np.int64) for _ in range(n_queries)])


def bytes_an_item(n_bits: int | None, projected: bool, n_bytes: int | None, n_items: int) -> dict[str, int]:
    """Return the size of a code, of a projection, and on the disk of an item with all that belongs to it, if known.

    >>> bytes_an_item(256, projected=True, n_bytes=1_000_000, n_items=1000)
    {'code': 32, 'projection': 256, 'disk': 1000}
    """
    sizes = {"code": -(-n_bits // 8)} if n_bits else {}
    if n_bits and projected:
        sizes["projection"] = n_bits
    if n_bytes and n_items:
        sizes["disk"] = round(n_bytes / n_items)
    return sizes
