"""What each store implements; `search.store` checks the arguments before."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.search.filters import Filter
from channelhash.search.items import Answers, IndexingRun, Item, Listed, Metadata
from channelhash.search.rank import Ranking, Scored, Surest, sure_distances

# Items read at a time where codes come with them.
_ITEMS = 1000


class Backend(ABC):
    """The methods of a store that it alone can implement. They get checked arguments: see "Add a store".

    Attributes:
        address: what `open_store` was given.

    >>> Backend.writable.__doc__
    'Whether items can be added and deleted.'
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._seen_modalities: tuple[str, ...] = ()

    @property
    @abstractmethod
    def n_bits(self) -> int | None:
        """Code length k; None while the store is empty and was made without one."""

    @property
    @abstractmethod
    def model(self) -> str:
        """Fingerprint of the model whose codes these are, empty if unknown."""

    @property
    @abstractmethod
    def modalities(self) -> tuple[str, ...]:
        """The modalities that any item has a code of, in alphabetical order."""

    @property
    def model_folder(self) -> Path | None:
        """Where `load_model` finds that model, if the store knows."""
        return None

    @property
    def writable(self) -> bool:
        """Whether items can be added and deleted."""
        return True

    @property
    def has_words(self) -> bool:
        """Whether items can be found by their words, see `search_words`."""
        return False

    @property
    def projected(self) -> bool:
        """Whether items have projections beside their codes, see `search_projections`."""
        return False

    def indexing_run(self) -> IndexingRun | None:
        """Return the indexing run that is going on in the store; None if there is none, or it is not known."""
        return None

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    @abstractmethod
    def label_counts(self) -> dict[str, int]:
        """Count the items that have each label in ``labels`` of their metadata, most frequent first, then by name."""

    @abstractmethod
    def close(self) -> None:
        """Give files and connections back; the store cannot be used afterwards."""

    def make(self) -> None:
        """Make a new store of known code length now, if that means anything; otherwise its first items do."""
        return

    @property
    def version(self) -> int:
        """A number that another one follows when items are added or deleted, as far as the store knows."""
        return len(self)

    def metadata(self, keys: Sequence[str]) -> Iterator[tuple[str, Metadata]]:
        """Yield the id of every item and what its metadata have of some keys, mostly in the order of adding.

        The keys are names without quotes. Of items that are written meanwhile, any may come.
        """
        for item in self._listed():
            yield item.id, {key: item.metadata[key] for key in keys if key in item.metadata}

    @abstractmethod
    def _keys(self) -> Collection[str]:
        """Return the metadata keys of the items."""

    @abstractmethod
    def _ids(self, where: Filter | None) -> list[str]:
        """Return the ids of the items that pass a filter, or of all, sorted."""

    @abstractmethod
    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        """Return id -> item, for those of ``ids`` that the store has."""

    def _listed(self) -> Iterator[Listed]:
        """Yield what `listed` does; a store that can read many items at once does better."""
        ids = self._ids(None)
        for start in range(0, len(ids), _ITEMS):
            for item in self._get(ids[start : start + _ITEMS]).values():
                yield Listed(item.id, tuple(sorted(item.codes)), item.metadata)

    @abstractmethod
    def _write(
        self,
        ids: list[str],
        codes: dict[str, PackedCodes],
        n_bits: int,
        metadata: list[Metadata] | None,
        replace: bool,
        projections: dict[str, NDArray[np.int8]] | None = None,
    ) -> None:
        """Write codes ``(n, ceil(n_bits / 8))`` by modality and metadata of ``n`` items, all or none, to the disk.

        Without any modality, the items are there and only metadata change. Only a `projected` store gets projections,
        ``(n, n_bits)`` of each of these codes.

        New metadata are added to an item's, replace those of equal keys, and remove the keys whose value is None.

        Raises:
            InputError: not ``replace``, and an item has a code of one of these modalities; the message says "already".
        """

    @abstractmethod
    def _delete(self, ids: list[str]) -> int:
        """Remove items, pass over unknown ids, and return how many were removed."""

    @abstractmethod
    def _nearest(self, queries: PackedCodes, k: int, modality: str, where: Filter | None) -> Answers:
        """Find the ``k`` items nearest to every query, or all where there are fewer."""

    @abstractmethod
    def _within(
        self, queries: PackedCodes, radius: int, limit: int | None, modality: str, where: Filter | None
    ) -> Answers:
        """Find all items within ``radius`` bits of every query; at most the first ``limit`` of them."""

    def _surest(
        self,
        outputs: NDArray[Any],
        k: int | None,
        first: int | None,
        radius: int | None,
        modality: str,
        where: Filter | None,
    ) -> Surest:
        """Do what `search_surest` does, of the ``first`` items; a store that has their codes at hand does better."""
        queries, found = pack(binarize(outputs)), Surest([], [], [])
        if radius is None:
            answers = self._nearest(queries, first or 1, modality, where)
        else:
            answers = self._within(queries, radius, first, modality, where)
        for row, ids, distances in zip(outputs, *answers, strict=True):
            items = self._get(ids)  # without those that were deleted meanwhile
            there = [place for place, name in enumerate(ids) if name in items and modality in items[name].codes]
            codes = [items[ids[place]].codes[modality] for place in there]
            keys = sure_distances(row, np.array(codes, np.uint8).reshape(-1, queries.shape[1]), distances[there])
            order = np.argsort(keys, kind="stable")[:k].tolist()
            found.ids.append([ids[there[place]] for place in order])
            found.distances.append(distances[there][order])
            found.keys.append(keys[order])
        return found

    def _search_words(self, text: str, without: Sequence[str], k: int, where: Filter | None, least: float) -> Ranking:
        """Do what `search_words` does; only a store that `has_words` is asked."""
        raise NotImplementedError

    def _scored(self, outputs: NDArray[Any], k: int, first: int | None, modality: str, where: Filter | None) -> Scored:
        """Do what `search_projections` does; only a `projected` store is asked."""
        raise NotImplementedError

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """Return what `info` says beside address, items, n_bits and model."""

    def _all_codes(self, modality: str, where: Filter | None) -> tuple[list[str], PackedCodes]:
        """Return ids, sorted, and codes of the items that have one of ``modality`` and pass a filter; see `codes`."""
        names, parts = self._ids(where), []
        for start in range(0, len(names), _ITEMS):
            parts += [item for item in self._get(names[start : start + _ITEMS]).values() if modality in item.codes]
        parts.sort(key=lambda item: item.id)
        codes = np.array([item.codes[modality] for item in parts], dtype=np.uint8)
        return [item.id for item in parts], codes.reshape(len(parts), -(-(self.n_bits or 0) // 8))

    def count(self, modality: str) -> int | None:
        """Return the number of codes of a modality; None where that is not known at once, and there is no `sample`."""
        return None

    def sample(self, n: int, modality: str) -> tuple[list[str], PackedCodes]:
        """Return ids and codes of ``n`` random items that have a code of a modality, or of all: always the same ones.

        Only a store with a `count` is asked.
        """
        raise NotImplementedError
