"""The store of codes: what every store can do, and what each implements."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
from channelhash.search.filters import Filter, parse_filter
from channelhash.search.fusion import Ranking
from channelhash.search.validation import (
    DEFAULT_MODALITY,
    Metadata,
    Value,
    check_codes,
    check_count,
    check_ids,
    check_metadata,
    choose_modality,
    codes_by_modality,
    is_text,
)

# Items read at a time where codes come with them.
_ITEMS = 1000


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

    >>> Item("a", {"image": np.array([7], np.uint8)}, {"year": 2020}).metadata["year"]
    2020
    """

    id: str
    codes: dict[str, PackedCodes]
    metadata: dict[str, Value] = field(default_factory=dict)


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


def merge_item(former: Item | None, item_id: str, codes: Mapping[str, PackedCodes], metadata: Metadata) -> Item:
    """Return an item with further codes and metadata; keys whose value is None go.

    >>> merge_item(Item("a", {}, {"year": 2020, "text": "sea"}), "a", {}, {"text": None, "sharp": True}).metadata
    {'year': 2020, 'sharp': True}
    """
    values = {**(former.metadata if former else {}), **metadata}
    values = {key: value for key, value in values.items() if value is not None}
    return Item(item_id, {**(former.codes if former else {}), **codes}, values)


class Store(ABC):
    """Codes by id and modality, with metadata. Safe to call from several threads.

    The public methods check their arguments, once for all stores: a call that cannot be carried out raises `InputError`
    and changes nothing. A store implements the abstract methods, which get checked arguments: see "Add a store".

    Attributes:
        address: what `open_store` was given.

    >>> import tempfile
    >>> from channelhash.search import open_store
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = open_store(folder.name)
    >>> store.add(["a", "b"], np.array([[0], [7]], np.uint8), metadata=[{"year": 2019}, {"year": 2020}])
    >>> store.search(np.array([[6]], np.uint8), k=2).ids
    [['b', 'a']]
    >>> store.search_radius(np.array([[6]], np.uint8), radius=3, where="year < 2020").ids
    [['a']]
    >>> store.close()
    >>> folder.cleanup()
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._seen_modalities: tuple[str, ...] = ()

    # What a store implements.

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

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    @abstractmethod
    def label_counts(self) -> dict[str, int]:
        """Count the items that have each label in ``labels`` of their metadata, most frequent first, then by name."""

    @abstractmethod
    def close(self) -> None:
        """Give files and connections back; the store cannot be used afterwards."""

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
    ) -> None:
        """Write codes ``(n, ceil(n_bits / 8))`` by modality and metadata of ``n`` items, all or none, to the disk.

        Without any modality, the items are there and only metadata change.

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

    def _search_words(self, text: str, without: Sequence[str], k: int, where: Filter | None) -> Ranking:
        """Do what `search_words` does; only a store that `has_words` is asked."""
        raise NotImplementedError

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """Return what `info` says beside address, items, n_bits and model."""

    def _codes(self, modality: str, where: Filter | None) -> tuple[list[str], PackedCodes]:
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

    # What every store does with that.

    def __contains__(self, item_id: object) -> bool:
        return isinstance(item_id, str) and is_text(item_id) and item_id in self._get([item_id])

    def add(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """Add items, or a further modality's codes to stored items: all of them or, on an error, none.

        When the call returns, the items are on the disk and every later search finds them.

        Args:
            ids: ``n`` different strings.
            codes: ``(n, ceil(n_bits / 8))`` packed codes of ``modality``, or modality -> such codes.
            modality: the codes' modality, where ``codes`` is an array; ``"image"`` if left out.
            metadata: one mapping an item. Keys given here replace an item's former values, others stay.

        Raises:
            InputError: an item has a code of this modality already (`upsert` replaces it), an id occurs twice, codes
                have another length, a value of metadata cannot be kept, or the store can only be read.
        """
        self._check_and_write(ids, codes, modality, metadata, replace=False)

    def upsert(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
    ) -> None:
        """Add items as `add` does, but replace codes that are there already."""
        self._check_and_write(ids, codes, modality, metadata, replace=True)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items with all their codes, pass over unknown ids, and return how many were removed."""
        names = check_ids(ids)
        self._check_writable()
        n_deleted = self._delete(names)
        self._seen_modalities = ()
        return n_deleted

    def get(self, ids: Sequence[str]) -> list[Item]:
        """Return the items of these ids, in that order.

        Raises:
            InputError: an id is unknown.
        """
        items = self._get([name for name in ids if is_text(name)])
        for name in ids:
            if name not in items:
                raise InputError(f"{self.address}: no item has the id {name!r}")
        return [items[name] for name in ids]

    def listed(self) -> Iterator[Listed]:
        """Yield every item without its codes, in no order; of items that are written meanwhile it may yield any."""
        return self._listed()

    def update(self, ids: Sequence[str], metadata: Sequence[Metadata]) -> None:
        """Add to the metadata of stored items as `upsert` does, and leave their codes as they are.

        Raises:
            InputError: an id is unknown, a value cannot be kept, or the store can only be read.
        """
        names = check_ids(ids)
        values = check_metadata(metadata, names)
        self._check_writable()
        if self.get(names):
            self._write(names, {}, self.n_bits or 0, values, True)

    def ids(self, where: str | None = None) -> list[str]:
        """Return all ids, or those that pass a filter, sorted."""
        return self._ids(self._filter(where))

    def codes(self, modality: str | None = None, where: str | None = None) -> tuple[list[str], PackedCodes]:
        """Return the ids, sorted, and the ``(n, ceil(n_bits / 8))`` codes of the items that a search would look at.

        Arguments and errors as in `search`; a store without codes has none to return. O(n) time and memory.

        >>> from channelhash import CodeSet
        >>> from channelhash.search.local.store import open_codes
        >>> ids, codes = open_codes(CodeSet(["b", "a"], {"image": np.array([[7], [1]], np.uint8)}, None, 8)).codes()
        >>> ids, codes.tolist()
        (['a', 'b'], [[1], [7]])
        """
        where_tree, modalities = self._filter(where), self.modalities
        if not modalities:
            return [], np.zeros((0, -(-(self.n_bits or 0) // 8)), np.uint8)
        return self._codes(choose_modality(modality, modalities, self.address), where_tree)

    def search(self, codes: PackedCodes, k: int = 10, modality: str | None = None, where: str | None = None) -> Answers:
        """Find the ``k`` items nearest to every query among those that have a code of ``modality`` and pass ``where``.

        Args:
            codes: ``(nq, ceil(n_bits / 8))`` packed codes.
            k: at least 1; all items where there are fewer.
            modality: modality to search; images if the store has any, else its only modality.
            where: filter, applied before ranking; see `channelhash.search.filters`.

        Raises:
            InputError: ``k`` is below 1, the store has no such codes, or the filter is wrong.
        """
        count = check_count(k, "k", 1)
        queries, where_tree, searched = self._checked_search(codes, modality, where)
        return self._nearest(queries, count, searched, where_tree) if searched else _no_answers(len(queries))

    def search_radius(
        self,
        codes: PackedCodes,
        radius: int,
        modality: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> Answers:
        """Find all items within ``radius`` bits of every query, inclusive; at most the first ``limit`` of them.

        Raises:
            InputError: ``radius`` is below 0 or ``limit`` below 1; or as `search`.
        """
        bits = check_count(radius, "radius", 0)
        count = None if limit is None else check_count(limit, "limit", 1)
        queries, where_tree, searched = self._checked_search(codes, modality, where)
        return self._within(queries, bits, count, searched, where_tree) if searched else _no_answers(len(queries))

    def search_words(self, text: str, k: int = 10, where: str | None = None, without: Sequence[str] = ()) -> Ranking:
        """Find the ``k`` items that have most of a text's words in their id, text, labels, file name or date.

        Upper and lower case and accents are the same. An item's score is the sum of ln(1 + n / m) over the words of
        ``text`` that it has, each of which m of n items have.

        Args:
            text: words; no operators.
            k: at least 1; fewer where fewer items have any of the words.
            where: filter, applied before ranking; see `channelhash.search.filters`.
            without: phrases; items that have all words of one are not returned.

        Returns:
            Ids and scores, best first; equal scores in the order in which the items were added.

        Raises:
            InputError: the store has no index of words, ``k`` is below 1, a text is not Unicode, or the filter is
                wrong.

        Milliseconds among a million captions, see `channelhash.search.local.word_search`.
        """
        count = check_count(k, "k", 1)
        if not all(map(is_text, (text, *without))):
            raise InputError("words: hold half a character (a lone surrogate), which no text has")
        if not self.has_words:
            raise InputError(f"{self.address}: has no index of words; search its codes (--by image or text)")
        return self._search_words(text, without, count, self._filter(where))

    def choose_modality(self, modality: str | None = None) -> str:
        """Return the modality that a search of a store with items goes through; arguments and errors as in `search`."""
        return choose_modality(modality, self.modalities, self.address)

    def info(self) -> dict[str, Any]:
        """Return JSON-able facts.

        They are ``address``, ``items``, ``n_bits``, ``model``, ``codes`` (modality -> number of codes),
        ``distinct_codes`` (modality -> number, where cheap to know) and ``bytes`` (on disk, where known).
        """
        facts = {"address": self.address, "items": len(self), "n_bits": self.n_bits, "model": self.model}
        return {**facts, **self._facts()}

    def _check_and_write(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None,
        metadata: Sequence[Metadata] | None,
        replace: bool,
    ) -> None:
        names = check_ids(ids)
        values = check_metadata(metadata, names)
        self._check_writable()
        by_modality, n_bits = codes_by_modality(codes, modality, len(names), self.n_bits)
        self._write(names, by_modality, n_bits, values, replace)

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(f"{self.address}: can only be read; add items to a store's folder")

    def _checked_search(
        self, codes: PackedCodes, modality: str | None, where: str | None
    ) -> tuple[PackedCodes, Filter | None, str]:
        """Return the queries, the filter and the modality to search, empty if the store has no codes."""
        n_bits = self.n_bits
        queries = np.asarray(codes) if n_bits is None else check_codes(codes, n_bits, "queries")
        where_tree = self._filter(where)
        if (modality or DEFAULT_MODALITY) not in self._seen_modalities:  # asked anew only then: it takes a request
            self._seen_modalities = self.modalities
        seen = self._seen_modalities
        return queries, where_tree, choose_modality(modality, seen, self.address) if seen else ""

    def _filter(self, where: str | None) -> Filter | None:
        return None if where is None else parse_filter(where, self._keys())


def _no_answers(n_queries: int) -> Answers:
    return Answers([[] for _ in range(n_queries)], [np.zeros(0, np.int64) for _ in range(n_queries)])
