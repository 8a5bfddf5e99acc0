"""The items of a store, what its searches answer, the checks of all stores' arguments, and an order
to browse in.

In the catalogue of a store, an item's folder is what its id, a path, has before the last ``/``. Its
date stands in its metadata: ``date``, else ``taken``, which is what EXIF says, else the time of its
file counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError

#: A value of an item's metadata.
Value = str | int | float | bool | list[str] | None
Metadata = Mapping[str, Value]
DEFAULT_MODALITY = "image"


class NoStoreError(InputError):
    """There is no store at an address, and nothing says what a new one would be."""


class Facts(NamedTuple):
    """What all codes of a store have in common.

    Attributes:
        n_bits: their length.
        model: fingerprint of their model, empty if unknown.
        projected: whether each has a projection beside it.

    >>> Facts(n_bits=64, model="a1b2").projected
    False
    """

    n_bits: int
    model: str
    projected: bool = False

    def check(self, address: str, expected: "Facts") -> None:
        """Raise `InputError` unless these are what is expected, where 0 is any length and an empty
        model is any.

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


class Answers(NamedTuple):
    """The items that queries found, nearest first, equal distances by id.

    Attributes:
        ids: of each query, the items' ids.
        distances: of each query, the number of bits in which each item's code differs from the
            query's.

    >>> Answers([["a", "b"]], [np.array([0, 3])]).ids
    [['a', 'b']]
    """

    ids: list[list[str]]
    distances: list[NDArray[np.int64]]

    @classmethod
    def none(cls, n_queries: int) -> Self:
        """Return what queries to a store without items find."""
        return cls(
            [[] for _ in range(n_queries)], [np.zeros(0, np.int64) for _ in range(n_queries)]
        )


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


@dataclass(frozen=True)
class NewItems:
    """What a call of `add`, `upsert` or `update` writes, checked.

    Attributes:
        ids: ``n`` of them.
        codes: modality -> ``(n, ceil(n_bits / 8))``; without any, the items are there and only
            metadata change.
        n_bits: the code length.
        metadata: of each item; added to its former ones, in place of those of equal keys; a value
            of None takes its key away.
        replace: the items may have such codes already, which are replaced.
        projections: modality -> ``(n, n_bits)``, of each of the codes; only for a `projected`
            store.

    >>> NewItems(["a"], {"image": np.array([[7]], np.uint8)}, n_bits=8).replace
    False
    """

    ids: list[str]
    codes: dict[str, PackedCodes]
    n_bits: int
    metadata: list[Metadata] | None = None
    replace: bool = False
    projections: dict[str, NDArray[np.int8]] | None = None

    def merge(self, former: Mapping[str, Item], address: str) -> list[Item]:
        """Return the items as they will be, given those that the store has; an error where one may
        not be replaced.

        >>> former = {"a": Item("a", {}, {"year": 2020, "text": "sea"})}
        >>> NewItems(["a"], {}, 8, [{"text": None, "sharp": True}]).merge(former, "photos.store")[0].metadata
        {'year': 2020, 'sharp': True}
        """
        items = []
        for row, name in enumerate(self.ids):
            item = former.get(name) or Item(name, {})
            for modality in () if self.replace else sorted(self.codes.keys() & item.codes.keys()):
                raise InputError(
                    f"{address}: {name!r} has a code for {modality} already; use upsert"
                )
            codes = item.codes | {modality: packed[row] for modality, packed in self.codes.items()}
            values = {**item.metadata, **(self.metadata[row] if self.metadata else {})}
            items.append(
                Item(
                    name, codes, {key: value for key, value in values.items() if value is not None}
                )
            )
        return items


Order = Literal["newest", "oldest", "name", "random"]
