"""The store of codes: the public methods of all stores, and those that each implements."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.codes.quantizer import QuantizedRows
from channelhash.codes.stage import Stage
from channelhash.errors import InputError, argument
from channelhash.search import browsing, checks
from channelhash.search.checks import is_text
from channelhash.search.filters import Filter, parse_filter
from channelhash.search.items import (
    DEFAULT_MODALITY,
    Answers,
    Facts,
    Item,
    Listed,
    Metadata,
    NewItems,
    by_count,
)
from channelhash.search.rank import KeyedAnswers, Ranking, check_projections
from channelhash.text.words import fold, split_words

__all__ = ["Answers", "Facts", "Item", "Listed", "NewItems", "Scope", "Store"]

#: Returns the similarities ``(n,)`` of projections ``(n, bytes)`` to one query.
Score = Callable[[QuantizedRows], NDArray[np.float32]]
#: Items that are read at a time with their codes.
_ITEMS = 1000


class Scope(NamedTuple):
    """Which codes a search looks at.

    Attributes:
        modality: modality of the codes.
        where: filter that their items must pass; None for all items.

    >>> Scope("image", None).modality
    'image'
    """

    modality: str
    where: Filter | None


class Store(ABC):
    """Codes by id and modality, with metadata. Safe to call from several threads.

    The public methods check their arguments once for all stores: a call that cannot be carried out
    raises `InputError` and changes nothing. Each store implements the abstract methods, which get
    checked arguments, see "Add a store". As a context manager, a store closes itself.

    Attributes:
        address: what `open_store` was given.

    >>> import tempfile
    >>> from channelhash.search import open_store
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, n_bits=8) as store:
    ...     years = [{"year": 2019}, {"year": 2020}]
    ...     store.add(["a", "b"], np.array([[0], [7]], np.uint8), metadata=years)
    ...     store.search(np.array([[6]], np.uint8), k=2).ids
    ...     store.search_radius(np.array([[6]], np.uint8), radius=3, where="year < 2020").ids
    [['b', 'a']]
    [['a']]
    """

    #: Whether new stores can keep projections beside their codes, see `search_projections`.
    keeps_projections: ClassVar[bool] = False

    def __init__(self, address: str, new: Facts) -> None:
        self.address = address
        #: The stage of the store if the first items are still to make it.
        self.new_stage: Stage | None = None
        self._stage: Stage | None = None
        #: The facts of the store if the first items are still to make it.
        self._new = new
        self._seen_modalities: tuple[str, ...] = ()
        self._seen_images = False
        #: Modalities of questions and items -> what their distances mean, see `search.match`.
        self.references: dict[tuple[str, str], Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, item_id: object) -> bool:
        return isinstance(item_id, str) and is_text(item_id) and item_id in self._get([item_id])

    @property
    def n_bits(self) -> int | None:
        """Code length; None while an empty store has none."""
        return self._common().n_bits or None

    @property
    def model(self) -> str:
        """Fingerprint of the model whose codes these are, empty if unknown."""
        return self._common().model

    @property
    def projected(self) -> bool:
        """Whether the store keeps projections beside its codes, see `search_projections`."""
        return self._common().projected

    @property
    def stage(self) -> Stage | None:
        """What rounds and compares projections; None if the store keeps none."""
        if not self.projected:
            return None
        if self._stage is None:
            self._stage = self._read_stage()
        return self._stage

    def successor(self) -> "Store | None":
        """Open the store that has taken the place of this one in its folder; None if none has.

        Whoever has asked goes on reading this one, as it was, until it is closed.

        Raises:
            InputError: the other store is damaged, or holds codes that cannot be compared.
        """
        return None

    def add(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
        projections: NDArray[Any] | Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Add items, or codes of another modality to stored items. On an error, none are added.

        When the call returns, the items are on the disk and every later search finds them.

        Args:
            ids: ``n`` different strings.
            codes: ``(n, ceil(n_bits / 8))`` packed codes of ``modality``, or modality -> such
                codes.
            modality: modality of the codes if they are an array; ``"image"`` by default.
            metadata: one mapping per item. Its values replace those that an item has for the same
                keys; a value of None removes a key.
            projections: for a `projected` store, the outputs ``(n, stage.n_outputs)``, the signs
                of whose first numbers are the codes, in the form of ``codes``; or uint8 rows, as
                items have them.

        Raises:
            InputError: an item has a code of this modality already (`upsert` replaces it), an id
                occurs twice, codes have another length, a value of metadata cannot be kept,
                projections are missing, unexpected or not those of the codes, or the store can only
                be read.
        """
        self._put(ids, codes, modality, metadata, projections, replace=False)

    def upsert(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
        projections: NDArray[Any] | Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Add items as `add` does, but replace codes that they have already."""
        self._put(ids, codes, modality, metadata, projections, replace=True)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items with all their codes, and return their number. Unknown ids are ignored."""
        names = checks.check_ids(ids)
        self._check_writable()
        n_deleted = self._delete(names)
        self._seen_modalities = ()
        return n_deleted

    def get(self, ids: Sequence[str], missing_ok: bool = False) -> list[Item]:
        """Return the items of these ids, in that order.

        Args:
            ids: ids of stored items.
            missing_ok: leave out unknown ids. Callers that read what a search found need this, as
                others may delete items meanwhile.

        Raises:
            InputError: an id is unknown, unless ``missing_ok``.
        """
        items = self._get([name for name in ids if is_text(name)])
        if missing_ok:
            return [items[name] for name in ids if name in items]
        for name in ids:
            if name not in items:
                raise InputError(f"{self.address}: no item has the id {name!r}")
        return [items[name] for name in ids]

    def update(self, ids: Sequence[str], metadata: Sequence[Metadata]) -> None:
        """Change the metadata of stored items as `upsert` does; their codes stay.

        Raises:
            InputError: an id is unknown, a value cannot be kept, or the store can only be read.
        """
        names = checks.check_ids(ids)
        values = checks.check_metadata(metadata, names)
        self._check_writable()
        if self.get(names):
            self._write(NewItems(names, {}, self.n_bits or 0, values, replace=True))

    def ids(self, where: str | None = None) -> list[str]:
        """Return all ids, or those that pass a filter, sorted."""
        return self._ids(self.check_filter(where))

    def codes(
        self, modality: str | None = None, where: str | None = None
    ) -> tuple[list[str], PackedCodes]:
        """Return ids, sorted, and codes ``(n, ceil(n_bits / 8))`` of the items that a search scans.

        Arguments and errors are those of `search`. It takes O(n) time and memory.
        """
        scope = self._scope(modality, where)
        if scope is None:
            return [], np.zeros((0, -(-(self.n_bits or 0) // 8)), np.uint8)
        return self._all_codes(scope)

    def search(
        self, codes: PackedCodes, k: int = 10, modality: str | None = None, where: str | None = None
    ) -> Answers:
        """Find the ``k`` items nearest to every query.

        Args:
            codes: ``(nq, ceil(n_bits / 8))`` packed codes.
            k: at least 1; all items if there are fewer.
            modality: modality to search; images if the store has any, else its only modality.
            where: filter, applied before ranking; see `channelhash.search.filters`.

        Raises:
            InputError: ``k`` is below 1, the store has no such codes, or the filter is wrong.
        """
        count = checks.check_count(k, "k", 1)
        queries = self._queries(codes)
        scope = self._scope(modality, where)
        return self._search(queries, None, count, scope) if scope else Answers.none(len(queries))

    def search_radius(
        self,
        codes: PackedCodes,
        radius: int,
        modality: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> Answers:
        """Find all items within ``radius`` bits of every query, inclusive; the first ``limit``.

        Raises:
            InputError: ``radius`` is below 0 or ``limit`` below 1; or as `search`.
        """
        bits = checks.check_count(radius, "radius", 0)
        count = None if limit is None else checks.check_count(limit, "limit", 1)
        queries = self._queries(codes)
        scope = self._scope(modality, where)
        return self._search(queries, bits, count, scope) if scope else Answers.none(len(queries))

    def search_outputs(
        self,
        outputs: NDArray[Any],
        k: int | None = 10,
        modality: str | None = None,
        where: str | None = None,
        radius: int | None = None,
    ) -> KeyedAnswers:
        """Find items by the asymmetric distance of a query's outputs and their codes: the surer the
        model was of the bits that differ, the farther. Ties are broken by distance, then by id.

        It orders the ``4 · max(k, 100)`` nearest codes. Within a radius it orders by distance, and
        equal distances by asymmetric distance. A store that has no codes at hand orders as `search`
        does.

        Args:
            outputs: ``(nq, n_bits)`` real-valued outputs of the model, whose signs are the queries'
                codes.
            k: at least 1; None, only with a radius, for all items within it.
            modality: as in `search`.
            where: as in `search`.
            radius: in bits, inclusive; any distance if left out.

        Raises:
            InputError: outputs are not finite or of another length; or as `search` and
                `search_radius`.
        """
        if radius is not None:
            checks.check_count(radius, "radius", 0)
        if radius is None or k is not None:
            checks.check_count(k or 0, "k", 1)
        rows = self._outputs(outputs)
        scope = self._scope(modality, where)
        return self._by_outputs(rows, k, radius, scope) if scope else KeyedAnswers.none(len(rows))

    def search_projections(
        self,
        outputs: NDArray[Any],
        k: int = 10,
        modality: str | None = None,
        where: str | None = None,
        first: int | None = None,
        asked: str = "",
    ) -> KeyedAnswers:
        """Find items in two stages: the nearest codes, then the best of them by the similarity of
        their projections. Ties are broken by distance, then by id.

        Args:
            outputs: ``(nq, stage.n_outputs)`` real-valued outputs of the model; the signs of the
                first ``n_bits`` are the queries' codes.
            k: at least 1; all items if there are fewer.
            modality: as in `search`.
            where: as in `search`.
            first: number of items to score, at least ``k``: those that `search_outputs` finds. By
                default, all items if no more than 5,000 are searched, so that the answer is exact;
                else 500.
            asked: modality of the queries, if it is known: similarities of texts and images are
                corrected where the stage has a bank, see `channelhash.codes.hubs`.

        Raises:
            InputError: the store keeps no projections, outputs are not finite or of another length;
                or as `search`.

        O(first · projection_bytes) beside the time of `search`.
        """
        stage = self.stage
        if stage is None:
            raise InputError(
                f"{self.address}: keeps no projections; search its codes, or make a store that "
                "keeps them"
            )
        count = checks.check_count(k, "k", 1)
        scored = None if first is None else max(count, checks.check_count(first, "first", 1))
        rows = checks.check_outputs(outputs, stage.n_outputs, "queries")
        scope = self._scope(modality, where)
        if scope is None:
            return KeyedAnswers.none(len(rows))
        score = partial(stage.scores, scope.modality, asked=asked)
        scores = [partial(score, row) for row in rows]
        return self._scored(rows[:, : stage.n_bits], scores, count, scored, scope)

    def search_words(
        self,
        text: str,
        k: int = 10,
        where: str | None = None,
        without: Sequence[str] = (),
        coverage: float = 0.0,
    ) -> Ranking:
        """Find the ``k`` items that have most of a text's words in their id, text, labels, file
        name or date.

        Words are compared as `text.words.fold` writes them: case, accents and invisible characters
        do not matter. An item's score is the sum of ln(1 + n / m) over the words of ``text`` that
        it has, each of which m of n items have.

        Args:
            text: words, without operators.
            k: at least 1; fewer items are found if fewer have any of the words.
            where: filter, applied before ranking; see `channelhash.search.filters`.
            without: phrases; items that have all words of one are left out.
            coverage: in [0, 1]: the least share of the score of an item with all words. A word that
                no item has counts as if one had it.

        Returns:
            Ids and scores, best first; equal scores in the order in which items were added.

        Raises:
            InputError: the store has no index of words, ``k`` is below 1, a text is not Unicode, or
                the filter is wrong.
        """
        count = checks.check_count(k, "k", 1)
        if not all(map(is_text, (text, *without))):
            raise InputError("words: hold half a character (a lone surrogate), which no text has")
        if not self.has_words:
            raise InputError(
                f"{self.address}: has no index of words; search its codes "
                f"({argument('by')} image or text)"
            )
        return self._search_words(text, without, count, self.check_filter(where), coverage)

    def value_counts(self, key: str) -> dict[str, int]:
        """Count the items by the string that they have for a metadata key, most frequent first,
        then by name.
        """
        if key not in self._keys():
            return {}
        values = (item.metadata.get(key) for item in self.listed())
        return by_count(Counter(value for value in values if isinstance(value, str)))

    def date_filter(self, test: str) -> str:
        """Return the filter of items whose date passes a test, see `browsing.date_filter`."""
        return browsing.date_filter([key for key in browsing.DATES if key in self._keys()], test)

    def check_filter(self, where: str | None) -> Filter | None:
        """Return the tree of a filter; raise `InputError` if it is wrong."""
        return None if where is None else parse_filter(where, self._keys())

    @property
    def has_codes(self) -> bool:
        """Whether any item has a code."""
        return bool(self._known_modalities(None))

    @property
    def has_images(self) -> bool:
        """Whether the store knows, or has known, the image files of some items."""
        if not self._seen_images:
            self._seen_images = "image" in self._keys()
        return self._seen_images

    def choose_modality(self, modality: str | None = None) -> str:
        """Return the modality that `search` uses in a store with items."""
        return checks.choose_modality(modality, self._known_modalities(modality), self.address)

    def info(self) -> dict[str, Any]:
        """Return facts about the store as JSON-able values.

        They are ``address``, ``items``, ``n_bits``, ``model``, ``projections`` (whether it keeps
        them), ``codes`` (modality -> number of codes), ``distinct_codes`` (modality -> number, if
        known at once), ``bytes`` (on the disk, if known) and ``bytes_an_item`` (of a ``code``, of a
        ``projection``, and of an item on the ``disk``).
        """
        n_items = len(self)
        n_bits = self.n_bits
        facts = self._facts()
        sizes = {"code": -(-n_bits // 8)} if n_bits else {}
        if n_bits and self.projected:
            sizes["projection"] = self._common().projection_bytes
        if n_items and facts.get("bytes"):
            sizes["disk"] = round(facts["bytes"] / n_items)
        known = {"address": self.address, "items": n_items, "n_bits": n_bits, "model": self.model}
        return {**known, "projections": self.projected, **facts, "bytes_an_item": sizes}

    def _put(
        self, ids: Any, codes: Any, modality: Any, metadata: Any, projections: Any, replace: bool
    ) -> None:
        names = checks.check_ids(ids)
        values = checks.check_metadata(metadata, names)
        self._check_writable()
        by_modality, n_bits = checks.codes_by_modality(codes, modality, len(names), self.n_bits)
        if projections is not None:
            stage = self.stage
            if stage is None:
                raise InputError(f"{self.address}: keeps no projections")
            projections = check_projections(projections, by_modality, stage)
        elif self.projected:
            raise InputError(f"{self.address}: keeps projections; give those of the codes")
        self._write(NewItems(names, by_modality, n_bits, values, replace, projections))

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(
                f"{self.address}: can only be read; add items to a store that you may write to"
            )

    def _queries(self, codes: PackedCodes) -> PackedCodes:
        if self.n_bits is None:
            return np.asarray(codes)
        return checks.check_codes(codes, self.n_bits, "queries")

    def _outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        if self.n_bits is None:
            return np.asarray(outputs)
        return checks.check_outputs(outputs, self.n_bits, "queries")

    def _scope(self, modality: str | None, where: str | None) -> Scope | None:
        """Return which codes are searched; None if the store has no codes."""
        tree = self.check_filter(where)
        known = self._known_modalities(modality)
        if not known:
            return None
        return Scope(checks.choose_modality(modality, known, self.address), tree)

    def _known_modalities(self, modality: str | None) -> tuple[str, ...]:
        """Return the modalities. As that may take a request, they are asked for again only if the
        one to be searched is not known.
        """
        if (modality or DEFAULT_MODALITY) not in self._seen_modalities:
            self._seen_modalities = self.modalities
        return self._seen_modalities

    # Each store implements these methods, or overrides them to do more.

    @abstractmethod
    def _common(self) -> Facts:
        """Return what all codes have in common, or will have in a new store."""

    @property
    @abstractmethod
    def modalities(self) -> tuple[str, ...]:
        """The modalities of the codes, in alphabetical order."""

    @property
    def folder(self) -> Path | None:
        """The store's folder, beside which other files may be kept; None without one."""
        return None

    @property
    def model_folder(self) -> Path | None:
        """The folder of the model that made the codes; None if unknown."""
        return None

    @property
    def writable(self) -> bool:
        """Whether items can be added and deleted."""
        return True

    @property
    def has_words(self) -> bool:
        """Whether items can be found by their words, see `search_words`."""
        return False

    def word_counts(self) -> dict[str, int]:
        """Return word -> number of items that have it; empty if the store does not know."""
        return {}

    def quote(self, item: Item, question: str) -> str:
        """Return the lines of the text in an item's image that hold words of a question: the first
        line for each word.
        """
        lines = str(item.metadata.get("ocr") or "").split("\n")
        words_of_lines = [split_words(fold(line)) for line in lines]
        places = set[int]()
        for word in split_words(fold(question)):
            holding = (place for place, words in enumerate(words_of_lines) if word in words)
            places.update(islice(holding, 1))
        return " ".join(lines[place] for place in sorted(places))

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    @abstractmethod
    def label_counts(self) -> dict[str, int]:
        """Count the items by their labels, most frequent first, then by name."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; the store cannot be used afterwards."""

    def make(self) -> None:
        """Create a new store of known code length now, if it can exist without items."""
        return

    @property
    def version(self) -> int:
        """A number that changes when items are added or deleted, as far as the store knows."""
        return len(self)

    @abstractmethod
    def _keys(self) -> Collection[str]:
        """Return the metadata keys of the items."""

    @abstractmethod
    def _ids(self, where: Filter | None) -> list[str]:
        """Return the ids of the items that pass a filter, or of all, sorted."""

    @abstractmethod
    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        """Return id -> item, for those of ``ids`` that the store has."""

    def listed(self) -> Iterator[Listed]:
        """Yield every item without its codes, in any order. Those that are written meanwhile may
        be missing.
        """
        for item in self._read(self._ids(None)):
            yield Listed(item.id, tuple(sorted(item.codes)), item.metadata)

    def _read(self, ids: list[str]) -> Iterator[Item]:
        for start in range(0, len(ids), _ITEMS):
            yield from self._get(ids[start : start + _ITEMS]).values()

    @abstractmethod
    def _write(self, new: NewItems) -> None:
        """Write the codes and metadata of all items to the disk, or of none."""

    @abstractmethod
    def _delete(self, ids: list[str]) -> int:
        """Remove items, and return their number. Unknown ids are ignored."""

    @abstractmethod
    def _search(
        self, queries: PackedCodes, radius: int | None, limit: int | None, scope: Scope
    ) -> Answers:
        """Find the first ``limit`` items within ``radius`` bits of every query; None means all."""

    def _by_outputs(
        self, outputs: NDArray[Any], k: int | None, radius: int | None, scope: Scope
    ) -> KeyedAnswers:
        """Do what `search_outputs` does; by default, items are ordered as `search` orders them."""
        answers = self._search(pack(binarize(outputs)), radius, k, scope)
        return KeyedAnswers(
            *answers, [distances.astype(np.float64) for distances in answers.distances]
        )

    def _search_words(
        self, text: str, without: Sequence[str], k: int, where: Filter | None, least: float
    ) -> Ranking:
        """Do what `search_words` does. Only called if `has_words`."""
        raise NotImplementedError

    def _scored(
        self,
        outputs: NDArray[Any],
        scores: Sequence[Score],
        k: int,
        first: int | None,
        scope: Scope,
    ) -> KeyedAnswers:
        """Do what `search_projections` does for queries, of each of which are given the ``n_bits``
        outputs of its code, and a function from projections ``(n, bytes)`` to similarities
        ``(n,)``. Only called if `projected`.
        """
        raise NotImplementedError

    def _read_stage(self) -> Stage:
        """Return the stage that the store has or will be made with. Only called if `projected`."""
        raise NotImplementedError

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """Return the facts of `info` that it does not know itself."""

    def _all_codes(self, scope: Scope) -> tuple[list[str], PackedCodes]:
        """Return ids, sorted, and codes; see `codes`."""
        items = [
            item for item in self._read(self._ids(scope.where)) if scope.modality in item.codes
        ]
        items.sort(key=lambda item: item.id)
        codes = np.array([item.codes[scope.modality] for item in items], dtype=np.uint8)
        return [item.id for item in items], codes.reshape(len(items), -(-(self.n_bits or 0) // 8))

    def count(self, modality: str) -> int | None:
        """Return the number of codes of a modality; None if that is not known at once."""
        return None

    def sample(self, n: int, modality: str) -> tuple[list[str], PackedCodes]:
        """Return ids and codes of ``n`` random codes of a modality, or of all if there are fewer.

        They are the same at each call. Only called if `count` is known.
        """
        raise NotImplementedError
