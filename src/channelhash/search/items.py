"""The items of a store, and the answers of its searches.

For browsing, an id is a path: an item's folder is what comes before the last ``/``. Its date is in
its metadata: ``date``, else ``taken`` (from EXIF), else the time of its file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.codes.quantizer import QuantizedRows
from channelhash.codes.stage import Stage
from channelhash.errors import InputError

#: A value of an item's metadata.
Value = str | int | float | bool | list[str] | None
#: Key -> value.
Metadata = Mapping[str, Value]
#: The modality of codes that are given without one, and the one that is searched first.
DEFAULT_MODALITY = "image"


class NoStoreError(InputError):
    """There is no store at an address, and the code length of a new one is not given."""


class Facts(NamedTuple):
    """What all codes of a store have in common.

    Attributes:
        n_bits: the code length.
        model: fingerprint of the model that made the codes, empty if unknown.
        projection_bytes: bytes of the projection beside each code; 0 without one.
        stage: fingerprint of the stage that compares projections (`channelhash.codes.stage`).

    >>> Facts(n_bits=64, model="a1b2").projected
    False
    """

    n_bits: int
    model: str
    projection_bytes: int = 0
    stage: str = ""

    @classmethod
    def of(cls, n_bits: int, model: str, stage: Stage | None) -> Self:
        """Return the facts of a store that keeps projections by a stage, or none."""
        if stage is None:
            return cls(n_bits, model)
        return cls(n_bits, model, stage.n_bytes, stage.fingerprint)

    @property
    def projected(self) -> bool:
        """Whether each code has a projection beside it."""
        return self.projection_bytes > 0

    def check(self, address: str, expected: "Facts") -> None:
        """Raise `InputError` unless these facts are as expected; 0 and an empty model mean any.

        >>> Facts(64, "a1b2").check("photos.store", Facts(0, "a1b2"))
        """
        if expected.n_bits and expected.n_bits != self.n_bits:
            lengths = f"{self.n_bits} bits, not {expected.n_bits}"
            raise InputError(f"{address}: holds codes of {lengths}; choose another store")
        if expected.model and expected.model != self.model:
            whose = "another" if self.model else "an unknown"
            raise InputError(
                f"{address}: holds codes of {whose} model, which cannot be compared; choose "
                "another store"
            )
        if expected.projected and not self.projected:
            remedy = "choose another store, or search codes alone"
            raise InputError(f"{address}: keeps no projections beside its codes; {remedy}")
        if expected.projected and expected.stage != self.stage:
            raise InputError(
                f"{address}: keeps other projections beside its codes; choose another store"
            )


class Answers(NamedTuple):
    """The items that queries found, nearest first, equal distances by id.

    Attributes:
        ids: for each query, the items' ids.
        distances: for each query, the number of bits in which each item's code differs from the
            query's.

    >>> Answers([["a", "b"]], [np.array([0, 3])]).ids
    [['a', 'b']]
    """

    ids: list[list[str]]
    distances: list[NDArray[np.int64]]

    @classmethod
    def none(cls, n_queries: int) -> Self:
        """Return the answers of a store without items."""
        return cls(
            [[] for _ in range(n_queries)], [np.zeros(0, np.int64) for _ in range(n_queries)]
        )


@dataclass(frozen=True)
class Item:
    """One stored item.

    Attributes:
        id: any string.
        codes: modality -> packed code ``(ceil(n_bits / 8),)`` uint8.
        metadata: key -> value. Hits show ``text``, ``image`` (an image's path) and ``labels``.
        projections: modality -> bytes ``(projection_bytes,)`` uint8 of a vector, if the store
            keeps them, see `channelhash.codes.stage`.

    >>> Item("a", {"image": np.array([7], np.uint8)}, {"year": 2020}).metadata["year"]
    2020
    """

    id: str
    codes: dict[str, PackedCodes]
    metadata: dict[str, Value] = field(default_factory=dict)
    projections: dict[str, QuantizedRows] = field(default_factory=dict)


class Listed(NamedTuple):
    """An item as a store lists it, without reading its codes.

    Attributes:
        id: the item's id.
        modalities: the modalities of its codes.
        metadata: key -> value.

    >>> Listed("a", ("image",), {"year": 2020}).modalities
    ('image',)
    """

    id: str
    modalities: tuple[str, ...]
    metadata: dict[str, Value]


@dataclass(frozen=True)
class NewItems:
    """The checked items that a call of `add`, `upsert` or `update` writes.

    Attributes:
        ids: ``n`` ids.
        codes: modality -> ``(n, ceil(n_bits / 8))``; empty if only the metadata of stored items
            changes.
        n_bits: the code length.
        metadata: for each item, values that are added or replace those of the same keys; None
            removes a key.
        replace: whether the items may have such codes already, which are replaced.
        projections: modality -> ``(n, projection_bytes)``, for all codes; only for a `projected`
            store.

    >>> NewItems(["a"], {"image": np.array([[7]], np.uint8)}, n_bits=8).replace
    False
    """

    ids: list[str]
    codes: dict[str, PackedCodes]
    n_bits: int
    metadata: list[Metadata] | None = None
    replace: bool = False
    projections: dict[str, QuantizedRows] | None = None

    def merge(self, stored: Mapping[str, Item], address: str) -> list[Item]:
        """Return the items as they will be after the call.

        Args:
            stored: id -> item, of those that the store has already.
            address: the store's address, which errors name.

        Raises:
            InputError: a code may not be replaced.

        >>> stored = {"a": Item("a", {}, {"year": 2020, "text": "sea"})}
        >>> new = NewItems(["a"], {}, 8, [{"text": None, "sharp": True}])
        >>> new.merge(stored, "photos.store")[0].metadata
        {'year': 2020, 'sharp': True}
        """
        items = []
        for row, name in enumerate(self.ids):
            item = stored.get(name) or Item(name, {})
            known = sorted(self.codes.keys() & item.codes.keys())
            if known and not self.replace:
                raise InputError(
                    f"{address}: {name!r} has a code for {known[0]} already; use upsert"
                )
            codes = item.codes | {modality: packed[row] for modality, packed in self.codes.items()}
            merged = {**item.metadata, **(self.metadata[row] if self.metadata else {})}
            metadata: dict[str, Value] = {
                key: value for key, value in merged.items() if value is not None
            }
            items.append(Item(name, codes, metadata))
        return items


def by_count(counts: Mapping[str, int]) -> dict[str, int]:
    """Sort counts: most frequent first, then by name.

    >>> by_count({"sea": 1, "dog": 2, "cat": 1})
    {'dog': 2, 'cat': 1, 'sea': 1}
    """
    return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


#: The orders of browsing.
Order = Literal["newest", "oldest", "name", "random"]
