"""What every store of codes can do, whatever keeps them. A new store is one file and one line in `STORES`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes

#: What is known of an item beside its codes. Answers show ``text``, ``image`` (a picture's path) and ``labels``.
Value = str | int | float | bool | list[str] | None
Metadata = Mapping[str, Value]


class Answers(NamedTuple):
    """What queries found, nearest first, equal distances by id.

    Attributes:
        ids: of each query, the items.
        distances: of each query, the number of bits in which each item differs from it.
    """

    ids: list[list[str]]
    distances: list[NDArray[np.int64]]


@dataclass(frozen=True)
class Item:
    """One item as it is stored.

    Attributes:
        id: any string.
        codes: modality -> packed code ``(ceil(n_bits / 8),)`` uint8.
        metadata: what is known of it.
    """

    id: str
    codes: dict[str, PackedCodes]
    metadata: dict[str, Value] = field(default_factory=dict)


class Store(Protocol):
    """Codes by id and modality, with metadata. Safe to call from several threads.

    Every call that cannot be carried out raises `InputError` and changes nothing: codes of another width, an id that
    occurs twice in one call, an unknown modality or filter key, writing to a store that can only be read.
    """

    @property
    def address(self) -> str:
        """What `open_store` was given."""
        ...

    @property
    def n_bits(self) -> int | None:
        """Code length k; None as long as the store is empty and was made without one."""
        ...

    @property
    def model(self) -> str:
        """Fingerprint of the model whose codes these are, empty if unknown."""
        ...

    @property
    def model_folder(self) -> Path | None:
        """Where `load_model` finds that model, if the store knows."""
        ...

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities that any item has a code of, in alphabetical order."""
        ...

    @property
    def writable(self) -> bool:
        """Whether items can be added and deleted."""
        ...

    def __len__(self) -> int:
        """Number of items."""
        ...

    def __contains__(self, item_id: object) -> bool: ...

    def add(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """Add items, or a further modality's codes to items that are there. All of them or, on an error, none.

        When the call returns, the items are on the disk and every later search finds them.

        Args:
            ids: ``n`` different strings.
            codes: ``(n, ceil(n_bits / 8))`` packed codes of ``modality``, or modality -> such codes.
            modality: whose codes these are, where ``codes`` is an array; ``"image"`` if left out.
            metadata: one mapping an item. Keys given here replace an item's former values, others stay.

        Raises:
            InputError: an id has a code of this modality already (`upsert` replaces it).
        """
        ...

    def upsert(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """As `add`, but codes that are there already are replaced."""
        ...

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items with all their codes; unknown ids are passed over. Returns how many were there."""
        ...

    def get(self, ids: Sequence[str]) -> list[Item]:
        """The items of these ids, in that order.

        Raises:
            InputError: an id is unknown.
        """
        ...

    def ids(self, where: str | None = None) -> list[str]:
        """All ids, or those that pass a filter, sorted."""
        ...

    def search(self, codes: PackedCodes, k: int = 10, modality: str | None = None, where: str | None = None) -> Answers:
        """The ``k`` items nearest to every query among those that have a code of ``modality`` and pass ``where``.

        Args:
            codes: ``(nq, ceil(n_bits / 8))`` packed codes.
            k: at least 1; all items where there are fewer.
            modality: whose codes are searched; images if there are any, else the only other one.
            where: filter, applied before ranking; see `filters`.
        """
        ...

    def search_radius(
        self,
        codes: PackedCodes,
        radius: int,
        modality: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> Answers:
        """All items within ``radius`` bits of every query, inclusive; at most the first ``limit`` of them."""
        ...

    def label_counts(self) -> dict[str, int]:
        """Label -> number of items that have it in their metadata's ``labels``, most frequent first, then by name."""
        ...

    def info(self) -> dict[str, Any]:
        """JSON-able facts: ``address``, ``items``, ``n_bits``, ``model``, ``codes`` (modality -> number of codes),
        ``distinct_codes`` (modality -> number, where cheap to know), ``bytes`` (on disk, where known)."""
        ...

    def close(self) -> None:
        """Give files and connections back; the store cannot be used afterwards."""
        ...
