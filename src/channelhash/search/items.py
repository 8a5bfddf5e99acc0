"""The items of a store, what its searches answer, the checks of all stores' arguments, and an order
to browse in.

In the catalogue of a store, an item's folder is what its id, a path, has before the last ``/``. Its
date stands in its metadata: ``date``, else ``taken``, which is what EXIF says, else the time of its
file counts.
"""

import math
import os
import re
import reprlib
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.errors import InputError, JobError, naming
from channelhash.utils.seeds import generator

#: A value of an item's metadata.
Value = str | int | float | bool | list[str] | None
Metadata = Mapping[str, Value]

DEFAULT_MODALITY = "image"

#: Distances are counted with 16 bits, the highest number of which means that there is none.
MOST_BITS = 2**16 - 2


class NoStoreError(InputError):
    """There is no store at an address, and nothing says what a new one would be."""


_NO_TEXT = "holds half a surrogate pair, which is no character"
_SURROGATE = re.compile("[\ud800-\udfff]")
# Bits of a whole number that an error shows.
_SHOWN_BITS = 128


def check_ids(ids: Sequence[str], what: str = "ids") -> list[str]:
    """Check ids, and return them as a list of different strings that have a UTF-8 form; errors name
    ``what``.

    >>> check_ids(("a", "b"))
    ['a', 'b']
    """
    if isinstance(ids, str):
        raise InputError(f"{what}: expected a sequence of strings, not one string {ids!r}")
    names = list(ids)
    first: dict[str, int] = {}
    for row, name in enumerate(names):
        if not isinstance(name, str):
            raise InputError(f"{what}: {name!r} (row {row}) is no string")
        if not is_text(name):
            raise InputError(f"{what}: {name!r} (row {row}) {_NO_TEXT}")
        if first.setdefault(name, row) < row:
            raise InputError(f"{what}: {name!r} (row {row}) occurs twice; an item is given once")
    return names


def is_text(value: object) -> bool:
    """Return whether a value is a string that has a UTF-8 form: without half a surrogate pair.

    >>> is_text("a"), is_text(3)
    (True, False)
    """
    return isinstance(value, str) and not _SURROGATE.search(value)


def check_codes(codes: Any, n_bits: int, what: str) -> PackedCodes:
    """Check packed codes: ``(n, ceil(n_bits / 8))`` uint8 with zero padding.

    >>> check_codes(np.array([[7]], np.uint8), 8, "queries").shape
    (1, 1)
    """
    packed = np.asarray(codes)
    if n_bits > MOST_BITS:
        raise InputError(
            f"{what}: codes of {n_bits} bits cannot be searched, only those of up to {MOST_BITS}"
        )
    with naming(what, ValueError):
        check_packed(packed, n_bits)
    return packed


def check_outputs(outputs: Any, n_bits: int, what: str) -> NDArray[Any]:
    """Return outputs as an array ``(n, n_bits)`` of finite numbers.

    >>> check_outputs([[0.5, -0.25]], 2, "queries").shape
    (1, 2)
    """
    rows = np.asarray(outputs)
    if rows.ndim != 2 or rows.shape[1] != n_bits or rows.dtype.kind not in "fiu":
        raise InputError(
            f"{what}: (n, {n_bits}) numbers are expected, not {rows.shape} {rows.dtype}"
        )
    if not np.isfinite(rows).all():
        raise InputError(
            f"{what}: row {int(np.argmin(np.isfinite(rows).all(axis=1)))} is not finite"
        )
    return rows


def codes_by_modality(
    codes: PackedCodes | Mapping[str, PackedCodes], modality: str | None, n: int, n_bits: int | None
) -> tuple[dict[str, PackedCodes], int]:
    """Return modality -> codes ``(n, b)``, and their length; eight bits a byte where ``n_bits`` is
    not known.

    >>> codes_by_modality(np.array([[7]], np.uint8), None, n=1, n_bits=None)
    ({'image': array([[7]], dtype=uint8)}, 8)
    """
    if isinstance(codes, Mapping) and modality is not None:
        raise InputError(f"modality {modality!r}: the codes name their modalities; leave it out")
    only = DEFAULT_MODALITY if modality is None else modality
    codes_of = dict(codes) if isinstance(codes, Mapping) else {only: codes}
    if not codes_of:
        raise InputError("codes: give the codes of at least one modality")
    for name in codes_of:
        if not isinstance(name, str) or not name.isidentifier() or len(name) > 50:
            raise InputError(f"modality {name!r}: a plain name is expected, such as image or text")
    if n_bits is None:
        first = np.asarray(next(iter(codes_of.values())))
        if first.ndim != 2 or not first.shape[1]:
            raise InputError(f"codes: (n, bytes) uint8 are expected, not {first.shape}")
        n_bits = 8 * first.shape[1]
    checked = {
        name: check_codes(packed, n_bits, f"{name} codes") for name, packed in codes_of.items()
    }
    for name, packed in checked.items():
        if len(packed) != n:
            raise InputError(f"{len(packed)} {name} codes for {n} ids")
    return checked, n_bits


def check_metadata(
    metadata: Sequence[Metadata] | None, ids: Sequence[str]
) -> list[Metadata] | None:
    """Check that metadata are one mapping an item, of values that a store can keep; return them
    with composed labels.

    A letter and its accent are one character (NFC) in labels, so that filters find them however
    they are written.

    >>> check_metadata([{"year": 2020}], ["a"])
    [{'year': 2020}]
    """
    if metadata is None:
        return None
    if len(metadata) != len(ids):
        raise InputError(f"{len(metadata)} mappings of metadata for {len(ids)} ids")
    keys, composed = set[Any](), list[Metadata]()
    for name, values in zip(ids, metadata, strict=True):
        if not isinstance(values, Mapping):
            raise InputError(f"metadata of {name!r}: a mapping is expected, not {values!r}")
        for key, value in values.items():
            if key not in keys and (problem := key_problem(key)):
                raise InputError(f"metadata of {name!r}: {problem}")
            keys.add(key)
            if problem := _value_problem(key, value):
                raise InputError(f"metadata of {name!r}: {key}{problem}")
        composed.append(values)
        if isinstance(labels := values.get("labels"), list):
            composed[-1] = {
                **values,
                "labels": [unicodedata.normalize("NFC", label) for label in labels],
            }
    return composed


def key_problem(key: Any) -> str | None:
    """Return why a name cannot be a key of metadata, or None.

    >>> key_problem("label")
    "'label' means something else in filters; choose another key"
    """
    if not isinstance(key, str) or not key or not key.isprintable() or '"' in key or "\\" in key:
        return f'{key!r} is no key: a name without ", \\ and control characters'
    return (
        f"{key!r} means something else in filters; choose another key"
        if key in ("id", "label")
        else None
    )


def check_count(value: int, what: str, least: int) -> int:
    """Check that a value is a whole number of at least ``least``.

    >>> check_count(3, "k", 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{what} is {value!r}; a whole number of at least {least} is expected")
    return int(value)


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


def check_process(address: str, process: int) -> None:
    """Raise `JobError` unless a store was opened by this process: in a forked one neither
    connections nor locks work.

    >>> check_process("photos.store", os.getpid())
    """
    if os.getpid() != process:
        raise JobError(
            f"{address}: was opened before this process was forked; open it in each process"
        )


def check_format(place: object, written_as: object, expected: str, remedy: str) -> None:
    """Raise `InputError` unless a store or file is written as this version reads it.

    >>> check_format("photos.store", "channelhash store 8", "channelhash store 8", "push it again")
    """
    if written_as != expected:
        raise InputError(
            f"{place}: written as {written_as!r}, this version reads {expected!r}; {remedy}"
        )


def choose_modality(modality: str | None, available: Sequence[str], address: str) -> str:
    """Return the modality to search: images if there are any, else the only one.

    >>> choose_modality(None, ["image", "text"], "photos.store")
    'image'
    """
    if modality is None:
        if DEFAULT_MODALITY not in available and len(available) > 1:
            raise InputError(f"{address}: say which modality is searched: {' or '.join(available)}")
        return DEFAULT_MODALITY if DEFAULT_MODALITY in available else available[0]
    if modality not in available:
        raise InputError(f"{address}: holds {' and '.join(available)} codes, no {modality} codes")
    return modality


def _value_problem(key: str, value: Any) -> str:
    """Return why a value cannot be kept, as the end of a line that begins with its key; empty if it
    can.
    """
    if key in ("text", "image") and not isinstance(value, str | None):
        return f" is a string, not {_shown(value)}"
    if key == "labels" and not isinstance(value, list | None):
        return f" are a list of strings, not {_shown(value)}"
    for entry in value if isinstance(value, list) else [value]:
        if isinstance(entry, str):
            if not is_text(entry):
                return f": {_NO_TEXT}"
            if "\0" in entry:
                return ": holds a NUL, at which filters would end; take it out"
        elif isinstance(value, list):
            return f": a list holds strings, not {_shown(entry)}"
        elif isinstance(entry, int):
            if not -(2**63) <= entry < 2**63:
                return f": {_shown(entry)} has more than 64 bits"
        elif isinstance(entry, float):
            if not math.isfinite(entry):
                return f" is {entry}; leave it out where it is not known"
        elif entry is not None:
            return (
                ": expected a string, number, Boolean or list of strings, not "
                f"{type(entry).__name__}"
            )
    return ""


def _shown(value: Any) -> str:
    """Return a value as an error shows it: not all of one that is long or deep."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return "a whole number"  # Python writes no more than 4,300 digits
    try:
        return reprlib.repr(value)
    except ValueError:  # such a number within
        return f"a {type(value).__name__}"


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
#: Metadata keys of a date, the first that an item has counts; then that of its file's state
#: (`photos.encode`).
DATES = ("date", "taken")
_STATE = "encoded_from"
# How a date begins; cameras without a clock write 0000-00-00.
_YEAR_AND_MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])(?!\d)")


@dataclass(frozen=True)
class Catalogue:
    """The items of a store.

    Attributes:
        ids: ``n`` ids, in the order of the store.
        by_name: ``(n,)`` places in ``ids`` by id.
        by_date: ``(n,)`` places by date, newest first, equal dates by id; items without a date come
            last.
        n_dated: number of items with a date.
        folders: folder -> number of items in it and below it, by name.
        months: ``"2019-07"`` -> number of items, newest first; of written dates, as `date_filter`
            finds them.

    >>> catalogue = Catalogue.of([("2019/b", {"date": "2019-07-14"}), ("a", {}), ("2019/a", {"taken": "2020-01"})])
    >>> [catalogue.ids[place] for place in catalogue.places("newest")]
    ['2019/a', '2019/b', 'a']
    >>> catalogue.folders, catalogue.months
    ({'2019': 2}, {'2020-01': 1, '2019-07': 1})
    """

    ids: list[str]
    by_name: NDArray[np.int32]
    by_date: NDArray[np.int32]
    n_dated: int
    folders: dict[str, int]
    months: dict[str, int]

    @classmethod
    def of(cls, items: Iterable[tuple[str, Metadata]]) -> Self:
        """Make the catalogue of items: their ids and what is known of them.

        O(n log n) time; memory for ids and 8 bytes an item.
        """
        ids, dates = list[str](), list[str]()
        folders, months = Counter[str](), Counter[str]()
        for name, metadata in items:
            ids.append(name)
            dates.append(date_of(metadata))
            folder = name.rpartition("/")[0]
            while folder:
                folders[folder] += 1
                folder = folder.rpartition("/")[0]
            if written := _written_date(metadata):
                months[written[:7]] += 1
        by_name = sorted(range(len(ids)), key=ids.__getitem__)
        by_date = sorted(by_name, key=dates.__getitem__, reverse=True)  # stable, also in reverse
        orders = np.array([by_name, by_date], np.int32)
        by_month = dict(sorted(months.items(), reverse=True))
        return cls(
            ids,
            orders[0],
            orders[1],
            sum(map(bool, dates)),
            dict(sorted(folders.items())),
            by_month,
        )

    def places(
        self, order: Order, seed: int = 0, among: Collection[str] | None = None
    ) -> NDArray[np.int32]:
        """Return places in ``ids``, each once; those of the ids ``among`` if given. O(n log n) at
        most.

        A random order is drawn from ``seed``; items that are added to the store leave the others in
        their order.
        """
        if order == "random":
            drawn = generator(seed, "browse").random(len(self.ids))
            places: NDArray[np.int32] = np.argsort(drawn, kind="stable").astype(np.int32)
        elif order == "oldest":
            places = np.concatenate(
                [self.by_date[: self.n_dated][::-1], self.by_date[self.n_dated :]]
            )
        else:
            places = self.by_name if order == "name" else self.by_date
        if among is None:
            return places
        mask = np.fromiter((name in among for name in self.ids), bool, len(self.ids))
        selected: NDArray[np.int32] = places[mask[places]]
        return selected


# What is written as a date that can be compared: 2019, 2019-07 or 2019-07-14 10:20:30. "2019-1-4"
# and "07/14/2019" come before or after others by their letters alone, and zeros are what programs
# write for none.
_COMPARABLE = (
    "({0} LIKE '____-0_%' OR {0} LIKE '____-1_%' OR {0} LIKE '____') "
    "AND NOT {0} LIKE '____-1-%' AND {0} BETWEEN '0001' AND '9999'"
)


def date_filter(keys: Iterable[str], test: str) -> str:
    """Return the filter that passes items whose written date passes a test of ``{0}``, if it can be
    compared at all; empty without keys of dates.

    >>> date_filter(["taken"], "{0} >= '2019-07' AND {0} < '2019-08'")[:49]
    "(taken >= '2019-07' AND taken < '2019-08' AND (ta"
    """
    alternatives = []
    before = ""
    for key in keys:
        alternatives.append(f"({before}{test} AND {_COMPARABLE})".format(key))
        before = f"{key} IS NULL AND "
    return f"({' OR '.join(alternatives)})" if len(alternatives) > 1 else "".join(alternatives)


def date_of(metadata: Metadata) -> str:
    """Return an item's date as it is written, ``"2019-07-14 10:20:30"`` or a beginning of that;
    else its file's time.

    >>> date_of({"date": "2019-07", "taken": "2020-01-01"}), date_of({"date": "in July"})
    ('2019-07', '')
    """
    if written := _written_date(metadata):
        return written
    parts = str(metadata.get(_STATE) or "").split()
    return (file_date(int(parts[1])) if len(parts) == 4 and parts[1].isdecimal() else None) or ""


def file_date(changed_ns: int) -> str | None:
    """Return a file's time as a date, in the time zone of this machine, as cameras write theirs.

    A time before 1970 or at its beginning, which programs write for none, is no date, nor is one
    after the year 9999.

    >>> file_date(1_563_099_630_000_000_000)[:4], file_date(0)
    ('2019', None)
    """
    try:
        return str(datetime.fromtimestamp(changed_ns // 10**9)) if changed_ns > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def _written_date(metadata: Metadata) -> str:
    value = next((metadata[key] for key in DATES if metadata.get(key) is not None), "")
    return value if isinstance(value, str) and _YEAR_AND_MONTH.match(value) else ""
