"""The store in a collection of Milvus, and filters as Milvus writes them: https://milvus.io/docs/boolean.md."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
from channelhash.search import filters
from channelhash.search.items import Metadata, check_opened_as
from channelhash.search.milvus import collection as milvus
from channelhash.search.store import Answers, Item, Store, merge_item
from channelhash.utils.processes import tell_of_fork

#: A condition -> ids of the items that pass it.
_Matching = Callable[[filters.Condition], Iterable[str]]

_EXACT = 2**53
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _to_milvus(tree: filters.Filter, key_sets: Collection[str], matching: _Matching) -> str:
    """Translate a filter into a Milvus expression over the fields ``id``, ``labels``, ``keys`` and ``metadata``.

    Args:
        tree: the filter.
        key_sets: the different values of the field ``keys`` in the collection: metadata keys as a JSON list.
        matching: what compares items here, where not every Milvus can.

    >>> from channelhash.search.filters import parse_filter
    >>> _to_milvus(parse_filter("year > 2000", ["year"]), set(), lambda condition: [])
    '(metadata["year"] > 2000)'
    """
    if isinstance(tree, filters.Condition):
        return f"({_condition(tree, key_sets, matching)})"
    word = " and " if isinstance(tree, filters.And) else " or "
    return f"({word.join(_to_milvus(part, key_sets, matching) for part in tree.parts)})"


def _listed(texts: Iterable[str]) -> str:
    """Return strings as a list in an expression.

    >>> print(_listed(["a", "b"]))
    ["a", "b"]
    """
    return f"[{', '.join(map(milvus.quote, texts))}]"


def _condition(condition: filters.Condition, key_sets: Collection[str], matching: _Matching) -> str:
    key, test, negated = condition.key, condition.test, condition.negated
    if key == "label":
        return f"not ({_label(test, matching)})" if negated else _label(test, matching)
    if isinstance(test, filters.Known):
        having = [text for text in sorted(key_sets) if key in json.loads(text)]
        if key == "id" or not having:
            return milvus.ALL if negated != (key == "id") else milvus.NONE
        return f"keys {'not in' if negated else 'in'} {_listed(having)}"
    if _is_for_us(test):
        return _among(matching(condition))
    return _value(f'metadata["{key}"]' if key != "id" else key, test, negated)


def _is_for_us(test: filters.Test) -> bool:
    """Return whether items are compared here.

    Before 2.4 Milvus finds strings by their beginning alone, and what it makes of ``_`` and of backslashes differs. It
    compares whole numbers with others as floats, which tell them apart up to 2⁵³.
    """
    if isinstance(test, filters.Like):
        return True
    return any(not isinstance(value, str) and abs(value) >= _EXACT for value in filters.literals_of(test))


def _label(test: filters.Test, matching: _Matching) -> str:
    """Require that any label satisfies ``test``."""
    match test:
        case filters.Compare(operator="=", value=str(value)):
            return f"array_contains(labels, {milvus.quote(value)})"
        case filters.Among(values=values):
            return " or ".join(f"array_contains(labels, {milvus.quote(str(value))})" for value in values)
        case filters.Known():
            return 'labels[0] >= ""'
    return _among(matching(filters.Condition("label", test)))


def _among(ids: Iterable[str]) -> str:
    found = _listed(ids)
    return f"id in {found}" if found != "[]" else milvus.NONE


def _value(path: str, test: filters.Test, negated: bool) -> str:
    """Require that a value that is there and of the literal's kind satisfies ``test``, or does not.

    Milvus lets an absent value pass ``!=``, ``not in`` and ``not``, but never ``<``, ``>`` or ``==``; so what is
    negated is said with those, which at the same time asks for the kind.
    """

    def compare(operator: str, value: filters.Literal) -> str:
        if isinstance(value, bool):
            return f"{path} == {'true' if value == (operator == '=') else 'false'}"
        literal = milvus.quote(value) if isinstance(value, str) else repr(value)
        if operator == "!=":
            return f"({path} < {literal} or {path} > {literal})"
        return f"{path} {'==' if operator == '=' else operator} {literal}"

    match test:
        case filters.Compare(operator=operator, value=value):
            return compare(_OPPOSITE[operator] if negated else operator, value)
        case filters.Among(values=values):
            return (" and " if negated else " or ").join(compare("!=" if negated else "=", value) for value in values)
        case filters.Between(low=low, high=high) if negated:
            return f"{compare('<', low)} or {compare('>', high)}"
        case filters.Between(low=low, high=high):
            return f"{compare('>=', low)} and {compare('<=', high)}"
    raise AssertionError(test)


# True of one row of each item.
_ITEMS = "first == true"
# Ids in one expression.
_IDS = 1000
# Answers of one request, over all its queries: some MB.
_ANSWERS_A_REQUEST = 200_000


class MilvusStore(Store):
    """A `Store` in one collection of Milvus. `collection` says how an item is kept.

    Every call reads what all earlier calls have written (consistency level "Strong"). What differs from the store in a
    folder, because Milvus has no transactions over several requests:

    * a call of `add`, `upsert` or `delete` with more than 1000 items (or 8 MB) is several requests. What is wrong with
      the input is found before the first of them, but where the server fails between two, the former ones stay; the
      error says so, and `upsert` or `delete` with the same items completes it;
    * two processes that add the same id, or metadata of the same item, at the same time may both succeed; the last one
      stays;
    * where more than ``k`` items tie at the last distance, Milvus chooses which of them it returns; what is returned is
      in order of distance and id.

    ``k``, and the items of one answer of `search_radius`, are at most 16,384 where the collection has more.

    Args:
        address: of a collection, beginning with ``milvus+``, which the first `add` makes.
        n_bits: code length of a new collection; must be that of one that is there.
        model: fingerprint of the model whose codes go in.

    Raises:
        InputError: the address has another form, nothing answers, or the collection is no store, or one of another code
            length or model.
    """

    def __init__(self, address: str, n_bits: int | None, model: str) -> None:
        super().__init__(address)
        parsed = milvus.parse_address(address)
        self._collection = milvus.MilvusCollection(parsed, milvus.connect(parsed))
        self._n_bits = n_bits
        self._model = model
        self._is_there = False
        self._key_sets: set[str] = set()  # read by `_keys`, which every call with a filter begins with
        self._lock = threading.RLock()
        self._look()
        tell_of_fork(self)

    @property
    def n_bits(self) -> int | None:
        self._look()
        return self._n_bits

    @property
    def model(self) -> str:
        self._look()
        return self._model

    @property
    def modalities(self) -> tuple[str, ...]:
        return tuple(sorted(self._different("modality")))

    def __len__(self) -> int:
        return self._collection.count(_ITEMS) if self._look() else 0

    def label_counts(self) -> dict[str, int]:
        """Read the labels of all items: Milvus does not count by value."""
        if not self._look():
            return {}
        counts = Counter(
            label for row in self._collection.walk(_ITEMS, ["key", "labels"]) for label in set(row["labels"])
        )
        return dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))

    def after_fork(self) -> None:
        """Let a forked child refuse at once: another thread may have held the lock."""
        self._lock = threading.RLock()

    def close(self) -> None:
        """Close the connection."""
        self._collection.close()

    def _keys(self) -> Collection[str]:
        self._key_sets = self._different("keys")
        return {key for text in self._key_sets for key in json.loads(text)}

    def _ids(self, where: filters.Filter | None) -> list[str]:
        if not self._look():
            return []
        chosen = f"{_ITEMS} and {self._expression(where)}"
        return sorted(milvus.id_of(row["key"]) for row in self._collection.walk(chosen, ["key"]))

    def _get(self, ids: list[str]) -> Mapping[str, Item]:
        return milvus.to_items(self._rows(ids, ["id", "modality", "keys", "labels", "metadata", "code"]))

    def _write(
        self,
        ids: list[str],
        codes: dict[str, PackedCodes],
        n_bits: int,
        metadata: list[Metadata] | None,
        replace: bool,
        projections: dict[str, NDArray[np.int8]] | None = None,
    ) -> None:
        with self._lock:
            former = self._get(ids)
            for name, item in former.items() if not replace else ():
                for modality in sorted(codes.keys() & item.codes.keys()):
                    raise InputError(f"{self.address}: {name!r} has a code for {modality} already; use upsert")
            rows = []
            for number, name in enumerate(ids):
                new_codes = {modality: packed[number] for modality, packed in codes.items()}
                new_metadata = metadata[number] if metadata else {}
                rows.append(milvus.to_rows(merge_item(former.get(name), name, new_codes, new_metadata)))
            if not self._look():
                self._collection.create(n_bits, self._model)
                self._look()
            self._collection.upsert(rows)

    def _delete(self, ids: list[str]) -> int:
        with self._lock:
            there = sorted({row["id"] for row in self._rows(ids, ["id"])})
            for start in range(0, len(there), _IDS):
                self._collection.delete(f"id in {_listed(there[start : start + _IDS])}")
        return len(there)

    def _nearest(self, queries: PackedCodes, k: int, modality: str, where: filters.Filter | None) -> Answers:
        return self._search(queries, self._check_count(k, "k"), modality, where, {})

    def _within(
        self, queries: PackedCodes, radius: int, limit: int | None, modality: str, where: filters.Filter | None
    ) -> Answers:
        count = milvus.MAX_ANSWERS if limit is None else self._check_count(limit, "limit")
        # Milvus returns what is nearer than its "radius".
        params = {"radius": min(radius, self.n_bits or radius) + 1}
        answers = self._search(queries, count, modality, where, params)
        full = [row for row, ids in enumerate(answers.ids) if limit is None and len(ids) >= milvus.MAX_ANSWERS]
        if full:
            most = f"{milvus.MAX_ANSWERS:,} items or more within {radius} bits"
            raise InputError(f"{self.address}: query {full[0]} has {most}; set a limit")
        return answers

    def _facts(self) -> dict[str, Any]:
        codes = {name: self._collection.count(f"modality == {milvus.quote(name)}") for name in self.modalities}
        return {"codes": codes, "index": "BIN_FLAT", "bytes": None}

    def _search(
        self, queries: PackedCodes, count: int, modality: str, where: filters.Filter | None, radius: dict[str, int]
    ) -> Answers:
        chosen = f"modality == {milvus.quote(modality)} and {self._expression(where)}"
        answers = Answers([], [])
        step = max(1, _ANSWERS_A_REQUEST // count)
        for start in range(0, len(queries), step):
            batch = queries[start : start + step]
            for pairs in self._collection.nearest(batch, count, chosen, radius):
                answers.ids.append([milvus.id_of(key) for _, key in pairs])
                answers.distances.append(np.array([distance for distance, _ in pairs], dtype=np.int64))
        return answers

    def _expression(self, where: filters.Filter | None) -> str:
        """Translate a filter into a Milvus expression."""

        def matching(condition: filters.Condition) -> Iterator[str]:
            for row in self._collection.walk(_ITEMS, ["key", "labels", "metadata"]):
                name = milvus.id_of(row["key"])
                if filters.passes(condition, name, {**row["metadata"], "labels": row["labels"]}):
                    yield name

        return milvus.ALL if where is None else _to_milvus(where, self._key_sets, matching)

    def _different(self, field: str) -> set[str]:
        """Return the values of a field, by asking for rows with others than are known until there are none."""
        known: set[str] = set()
        unseen = milvus.ALL
        while self._look() and (rows := self._collection.rows(unseen, [field])):
            known |= {row[field] for row in rows}
            unseen = f"{field} not in {_listed(sorted(known))}"
        return known

    def _rows(self, ids: Sequence[str], fields: Sequence[str]) -> Iterator[milvus.Row]:
        """Yield all rows of those of ``ids`` that the collection has."""
        names = list(filter(milvus.is_storable, ids)) if self._look() else []
        for start in range(0, len(names), _IDS):
            yield from self._collection.walk(f"id in {_listed(names[start : start + _IDS])}", ["key", *fields])

    def _look(self) -> bool:
        """Return whether the collection is there; if so, read what it says of itself."""
        if self._is_there:
            return True
        with self._lock:
            facts = self._collection.description()
            if facts is None:
                return False
            check_opened_as(self.address, facts, self._n_bits, self._model)
            self._collection.load()
            self._n_bits, self._model = facts
            self._is_there = True
        return True

    def _check_count(self, count: int, what: str) -> int:
        if count > milvus.MAX_ANSWERS and len(self) > milvus.MAX_ANSWERS:
            raise InputError(f"{self.address}: {what} is {count:,}; Milvus returns at most {milvus.MAX_ANSWERS:,}")
        return min(count, milvus.MAX_ANSWERS)
