"""The store of codes: what every store can do, and what each implements for itself."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
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
)
from channelhash.search.rank import KeyedAnswers, Ranking, check_projections
from channelhash.text.words import fold, split_words

__all__ = ["Answers", "Facts", "Item", "Listed", "NewItems", "Scope", "Store"]

# Items read at a time where codes come with them.
_ITEMS = 1000


class Scope(NamedTuple):
    """Which codes a search looks at.

    Attributes:
        modality: their modality.
        where: filter that their items pass, None for all.

    >>> Scope("image", None).modality
    'image'
    """

    modality: str
    where: Filter | None


class Store(ABC):
    """Codes by id and modality, with metadata. Safe to call from several threads.

    The public methods check their arguments, once for all stores: a call that cannot be carried out
    raises `InputError` and changes nothing. A store implements the abstract methods, which get
    checked arguments: see "Add a store".

    A store is a context manager, which closes it.

    Attributes:
        address: what `open_store` was given.

    >>> import tempfile
    >>> from channelhash.search import open_store
    >>> with tempfile.TemporaryDirectory() as folder, open_store(folder, n_bits=8) as store:
    ...     store.add(["a", "b"], np.array([[0], [7]], np.uint8), metadata=[{"year": 2019}, {"year": 2020}])
    ...     store.search(np.array([[6]], np.uint8), k=2).ids
    ...     store.search_radius(np.array([[6]], np.uint8), radius=3, where="year < 2020").ids
    [['b', 'a']]
    [['a']]
    """

    #: Whether a new store can keep projections beside its codes, see `search_projections`.
    keeps_projections: ClassVar[bool] = False

    def __init__(self, address: str, new: Facts) -> None:
        self.address = address
        #: What the codes of a store that is still to be made are to have in common.
        self._new = new
        self._seen_modalities: tuple[str, ...] = ()
        self._seen_images = False
        # Modalities of questions and of items -> what `search.match` has found out about their
        # distances.
        self.references: dict[tuple[str, str], Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, item_id: object) -> bool:
        return isinstance(item_id, str) and is_text(item_id) and item_id in self._get([item_id])

    @property
    def n_bits(self) -> int | None:
        """Code length k; None while the store is empty and was made without one."""
        return self._common().n_bits or None

    @property
    def model(self) -> str:
        """Fingerprint of the model whose codes these are, empty if unknown."""
        return self._common().model

    @property
    def projected(self) -> bool:
        """Whether items have projections beside their codes, see `search_projections`."""
        return self._common().projected

    def add(
        self,
        ids: Sequence[str],
        codes: PackedCodes | Mapping[str, PackedCodes],
        modality: str | None = None,
        metadata: Sequence[Metadata] | None = None,
        projections: NDArray[Any] | Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Add items, or a further modality's codes to stored items: all of them or, on an error,
        none.

        When the call returns, the items are on the disk and every later search finds them.

        Args:
            ids: ``n`` different strings.
            codes: ``(n, ceil(n_bits / 8))`` packed codes of ``modality``, or modality -> such
                codes.
            modality: the codes' modality, where ``codes`` is an array; ``"image"`` if left out.
            metadata: one mapping an item. Keys given here replace an item's former values, others
                stay.
            projections: for a `projected` store, the ``(n, n_bits)`` outputs of which the codes are
                the signs, in the form of ``codes``. They are kept as
                `channelhash.search.rank._quantize` says.

        Raises:
            InputError: an item has a code of this modality already (`upsert` replaces it), an id
                occurs twice, codes have another length, a value of metadata cannot be kept,
                projections are missing, not kept by this store or not those of the codes, or the
                store can only be read.
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
        """Add items as `add` does, but replace codes that are there already."""
        self._put(ids, codes, modality, metadata, projections, replace=True)

    def delete(self, ids: Sequence[str]) -> int:
        """Remove items with all their codes, pass over unknown ids, and return how many were
        removed.
        """
        names = checks.check_ids(ids)
        self._check_writable()
        n_deleted = self._delete(names)
        self._seen_modalities = ()
        return n_deleted

    def get(self, ids: Sequence[str], missing_ok: bool = False) -> list[Item]:
        """Return the items of these ids, in that order.

        Args:
            ids: ids of stored items.
            missing_ok: leave out unknown ids. Whoever has found ids needs it, as others may delete
                items before they are read.

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
        """Add to the metadata of stored items as `upsert` does, and leave their codes as they are.

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
        """Return the ids, sorted, and the ``(n, ceil(n_bits / 8))`` codes of the items that a
        search would look at.

        Arguments and errors as in `search`; a store without codes has none to return. O(n) time and
        memory.
        """
        scope = self._scope(modality, where)
        return (
            self._all_codes(scope)
            if scope
            else ([], np.zeros((0, -(-(self.n_bits or 0) // 8)), np.uint8))
        )

    def search(
        self, codes: PackedCodes, k: int = 10, modality: str | None = None, where: str | None = None
    ) -> Answers:
        """Find the ``k`` items nearest to every query among those that have a code of ``modality``
        and pass ``where``.

        Args:
            codes: ``(nq, ceil(n_bits / 8))`` packed codes.
            k: at least 1; all items where there are fewer.
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
        """Find all items within ``radius`` bits of every query, inclusive; at most the first
        ``limit`` of them.

        Raises:
            InputError: ``radius`` is below 0 or ``limit`` below 1; or as `search`.
        """
        bits = checks.check_count(radius, "radius", 0)
        count = None if limit is None else checks.check_count(limit, "limit", 1)
        queries = self._queries(codes)
        scope = self._scope(modality, where)
        return self._search(queries, bits, count, scope) if scope else Answers.none(len(queries))

    def search_surest(
        self,
        outputs: NDArray[Any],
        k: int | None = 10,
        modality: str | None = None,
        where: str | None = None,
        radius: int | None = None,
    ) -> KeyedAnswers:
        """Find items by distance, equal distances by how sure the model was of the bits that
        differ, then by id.

        What is looked at are the ``max(k, 500)`` items that `search` finds, or `search_radius`. A
        store that does not have their codes at hand orders equal distances as these do.

        Args:
            outputs: ``(nq, n_bits)`` real-valued outputs of the model, whose signs are the queries'
                codes.
            k: at least 1; None, only with a radius, for all within it.
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
        none = KeyedAnswers(*Answers.none(len(rows)), [np.zeros(0) for _ in rows])
        return self._surest(rows, k, radius, scope) if scope else none

    def search_projections(
        self,
        outputs: NDArray[Any],
        k: int = 10,
        modality: str | None = None,
        where: str | None = None,
        first: int | None = None,
    ) -> KeyedAnswers:
        """Find items in two stages: the nearest codes by distance, then the best of them by the
        cosine of projections.

        Args:
            outputs: ``(nq, n_bits)`` real-valued outputs of the model, whose signs are the queries'
                codes.
            k: at least 1; all items where there are fewer.
            modality: as in `search`.
            where: as in `search`.
            first: number of nearest items to score, at least ``k`` of them. By default 500; and
                all, so that the answer is exact, where no more than 5,000 items have such a code
                and pass ``where``.

        Raises:
            InputError: the store keeps no projections, outputs are not finite or of another length;
                or as `search`.

        O(first · n_bits) beside the time of `search`.
        """
        if not self.projected:
            raise InputError(
                f"{self.address}: keeps no projections; search its codes, or make a store that "
                "keeps them"
            )
        count = checks.check_count(k, "k", 1)
        scored = None if first is None else max(count, checks.check_count(first, "first", 1))
        rows = self._outputs(outputs)
        scope = self._scope(modality, where)
        none = KeyedAnswers(*Answers.none(len(rows)), [np.zeros(0, np.float32) for _ in rows])
        return self._scored(rows, count, scored, scope) if scope else none

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

        Words are compared as `text.words.fold` writes them: case, accents and characters that
        nobody sees do not matter. An item's score is the sum of ln(1 + n / m) over the words of
        ``text`` that it has, each of which m of n items have.

        Args:
            text: words; no operators.
            k: at least 1; fewer where fewer items have any of the words.
            where: filter, applied before ranking; see `channelhash.search.filters`.
            without: phrases; items that have all words of one are not returned.
            coverage: in [0, 1]: an item's score is at least this share of what an item with all
                words would have. A word that no item has counts as if one had it.

        Returns:
            Ids and scores, best first; equal scores in the order in which the items were added.

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
        """Count the items that have each string as their value of a metadata key, most frequent
        first, then by name.
        """
        values = (item.metadata.get(key) for item in self.listed()) if key in self._keys() else ()
        counts = Counter(value for value in values if isinstance(value, str))
        return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))

    def date_filter(self, test: str) -> str:
        """Return the filter of items whose date passes a test, empty if none has a date; see
        `browsing.date_filter`.
        """
        return browsing.date_filter([key for key in browsing.DATES if key in self._keys()], test)

    def check_filter(self, where: str | None) -> Filter | None:
        """Return the tree of a filter; raise `InputError` if it is wrong."""
        return None if where is None else parse_filter(where, self._keys())

    @property
    def has_codes(self) -> bool:
        """Whether there is anything to search."""
        return bool(self._known_modalities(None))

    @property
    def has_images(self) -> bool:
        """Whether it knows, or has known, the image files of some items."""
        if not self._seen_images:
            self._seen_images = "image" in self._keys()
        return self._seen_images

    def choose_modality(self, modality: str | None = None) -> str:
        """Return the modality that a search of a store with items goes through; arguments and
        errors as in `search`.
        """
        return checks.choose_modality(modality, self._known_modalities(modality), self.address)

    def info(self) -> dict[str, Any]:
        """Return JSON-able facts.

        They are ``address``, ``items``, ``n_bits``, ``model``, ``projections`` (whether it keeps
        them), ``codes`` (modality -> number of codes), ``distinct_codes`` (modality -> number,
        where cheap to know), ``bytes`` (on disk, where known) and ``bytes_an_item`` (of a ``code``,
        of a ``projection``, and of an item on the ``disk``).
        """
        n_items = len(self)
        n_bits = self.n_bits
        facts = self._facts()
        sizes = {"code": -(-n_bits // 8)} if n_bits else {}
        if n_bits and self.projected:
            sizes["projection"] = n_bits
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
        beside = (
            None if projections is None else check_projections(projections, by_modality, n_bits)
        )
        if self.projected != (beside is not None):
            problem = (
                "keeps projections; give those of the codes"
                if self.projected
                else "keeps no projections"
            )
            raise InputError(f"{self.address}: {problem}")
        self._write(NewItems(names, by_modality, n_bits, values, replace, beside))

    def _check_writable(self) -> None:
        if not self.writable:
            raise InputError(
                f"{self.address}: can only be read; add items to a store that you may write to"
            )

    def _queries(self, codes: PackedCodes) -> PackedCodes:
        return (
            np.asarray(codes)
            if self.n_bits is None
            else checks.check_codes(codes, self.n_bits, "queries")
        )

    def _outputs(self, outputs: NDArray[Any]) -> NDArray[Any]:
        return (
            np.asarray(outputs)
            if self.n_bits is None
            else checks.check_outputs(outputs, self.n_bits, "queries")
        )

    def _scope(self, modality: str | None, where: str | None) -> Scope | None:
        """Return which codes are searched; None if the store has no codes."""
        tree, seen = self.check_filter(where), self._known_modalities(modality)
        return Scope(checks.choose_modality(modality, seen, self.address), tree) if seen else None

    def _known_modalities(self, modality: str | None) -> tuple[str, ...]:
        """Return the modalities, asked anew only where the one to be searched was not there: it
        takes a request.
        """
        if (modality or DEFAULT_MODALITY) not in self._seen_modalities:
            self._seen_modalities = self.modalities
        return self._seen_modalities

    # What each store implements, or does better.

    @abstractmethod
    def _common(self) -> Facts:
        """Return what all codes have in common; while the store is not there, what its first ones
        are to have.
        """

    @property
    @abstractmethod
    def modalities(self) -> tuple[str, ...]:
        """The modalities that any item has a code of, in alphabetical order."""

    @property
    def folder(self) -> Path | None:
        """The folder that the store is kept in, beside which others may keep files; None elsewhere."""
        return None

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

    def word_counts(self) -> dict[str, int]:
        """Return word -> the number of items that have it; nothing where a database does not
        say.
        """
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
        """Count the items that have each label in ``labels`` of their metadata, most frequent
        first, then by name.
        """

    @abstractmethod
    def close(self) -> None:
        """Give files and connections back; the store cannot be used afterwards."""

    def make(self) -> None:
        """Make a new store of known code length now, if that means anything; otherwise its first
        items do.
        """
        return

    @property
    def version(self) -> int:
        """A number that another one follows when items are added or deleted, as far as the store
        knows.
        """
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
        """Yield every item without its codes, in any order; of items that are written meanwhile it
        may yield any.
        """
        for item in self._read(self._ids(None)):
            yield Listed(item.id, tuple(sorted(item.codes)), item.metadata)

    def _read(self, ids: list[str]) -> Iterator[Item]:
        for start in range(0, len(ids), _ITEMS):
            yield from self._get(ids[start : start + _ITEMS]).values()

    @abstractmethod
    def _write(self, new: NewItems) -> None:
        """Write codes and metadata of items, all or none, to the disk."""

    @abstractmethod
    def _delete(self, ids: list[str]) -> int:
        """Remove items, pass over unknown ids, and return how many were removed."""

    @abstractmethod
    def _search(
        self, queries: PackedCodes, radius: int | None, limit: int | None, scope: Scope
    ) -> Answers:
        """Find all items within ``radius`` bits of every query, or at any distance; the first
        ``limit`` of them.
        """

    def _surest(
        self, outputs: NDArray[Any], k: int | None, radius: int | None, scope: Scope
    ) -> KeyedAnswers:
        """Do what `search_surest` does; without codes at hand, by distance alone."""
        answers = self._search(pack(binarize(outputs)), radius, k, scope)
        return KeyedAnswers(
            *answers, [distances.astype(np.float64) for distances in answers.distances]
        )

    def _search_words(
        self, text: str, without: Sequence[str], k: int, where: Filter | None, least: float
    ) -> Ranking:
        """Do what `search_words` does; only a store that `has_words` is asked."""
        raise NotImplementedError

    def _scored(
        self, outputs: NDArray[Any], k: int, first: int | None, scope: Scope
    ) -> KeyedAnswers:
        """Do what `search_projections` does; only a `projected` store is asked."""
        raise NotImplementedError

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """Return what `info` says beside address, items, n_bits and model."""

    def _all_codes(self, scope: Scope) -> tuple[list[str], PackedCodes]:
        """Return ids, sorted, and codes; see `codes`."""
        items = [
            item for item in self._read(self._ids(scope.where)) if scope.modality in item.codes
        ]
        items.sort(key=lambda item: item.id)
        codes = np.array([item.codes[scope.modality] for item in items], dtype=np.uint8)
        return [item.id for item in items], codes.reshape(len(items), -(-(self.n_bits or 0) // 8))

    def count(self, modality: str) -> int | None:
        """Return the number of codes of a modality; None where that is not known at once, and there
        is no `sample`.
        """
        return None

    def sample(self, n: int, modality: str) -> tuple[list[str], PackedCodes]:
        """Return ids and codes of ``n`` random items that have a code of a modality, or of all:
        always the same ones.

        Only a store with a `count` is asked.
        """
        raise NotImplementedError
