"""Checks of what goes into a store: ids, codes, metadata, counts."""

import math
import os
import re
import reprlib
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, check_packed
from channelhash.errors import InputError, JobError, naming
from channelhash.search.items import DEFAULT_MODALITY, Metadata

#: Distances are counted with 16 bits, the highest number of which means that there is none.
MOST_BITS = 2**16 - 2
#: The longest name of a modality; databases make names of columns from it.
_MOST_CHARACTERS = 50
#: What errors say of a string without a UTF-8 form.
_NO_TEXT = "holds half a surrogate pair, which is no character"
#: Half a surrogate pair.
_SURROGATE = re.compile("[\ud800-\udfff]")
#: Bits of a whole number up to which an error shows it.
_SHOWN_BITS = 128


def check_ids(ids: Sequence[str], what: str = "ids") -> list[str]:
    """Return ids as a list, if they are different strings with a UTF-8 form; errors name ``what``.

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
    """Return whether a value is a string with a UTF-8 form: it holds no half of a surrogate pair.

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


def check_outputs(outputs: Any, n_bits: int | None, what: str) -> NDArray[Any]:
    """Return outputs as an array ``(n, n_bits)`` of finite numbers, of any width if it is None.

    >>> check_outputs([[0.5, -0.25]], 2, "queries").shape
    (1, 2)
    """
    rows = np.asarray(outputs)
    is_matrix = rows.ndim == 2 and rows.dtype.kind in "fiu"
    if not is_matrix or rows.shape[1] != (n_bits or rows.shape[1]):
        width = n_bits or "d"
        raise InputError(
            f"{what}: (n, {width}) numbers are expected, not {rows.shape} {rows.dtype}"
        )
    if not np.isfinite(rows).all():
        raise InputError(
            f"{what}: row {int(np.argmin(np.isfinite(rows).all(axis=1)))} is not finite"
        )
    return rows


def check_vectors(vectors: Any, what: str) -> NDArray[np.float32]:
    """Return vectors as an array ``(n, d)`` of finite numbers that are not all 0, as float32.

    >>> check_vectors([[0.5, -0.25]], "vectors").dtype
    dtype('float32')
    """
    with np.errstate(over="ignore"):  # infinite ones are refused
        rows = np.asarray(check_outputs(vectors, None, what), np.float32)
    check_outputs(rows, None, what)
    zeros = np.flatnonzero(~rows.any(axis=1))
    if len(zeros):
        raise InputError(f"{what}: row {zeros[0]} is zero, which is near nothing")
    return rows


def codes_by_modality(
    codes: PackedCodes | Mapping[str, PackedCodes], modality: str | None, n: int, n_bits: int | None
) -> tuple[dict[str, PackedCodes], int]:
    """Return modality -> codes ``(n, bytes)``, and their length in bits.

    Where ``n_bits`` is not known, every bit of the first codes counts.

    >>> codes_by_modality(np.array([[7]], np.uint8), None, n=1, n_bits=None)
    ({'image': array([[7]], dtype=uint8)}, 8)
    """
    if not isinstance(codes, Mapping):
        codes = {DEFAULT_MODALITY if modality is None else modality: codes}
    elif modality is not None:
        raise InputError(f"modality {modality!r}: the codes name their modalities; leave it out")
    if not codes:
        raise InputError("codes: give the codes of at least one modality")
    for name in codes:
        _check_modality(name)
    if n_bits is None:
        n_bits = _full_length(next(iter(codes.values())))
    checked = {name: check_codes(packed, n_bits, f"{name} codes") for name, packed in codes.items()}
    for name, packed in checked.items():
        if len(packed) != n:
            raise InputError(f"{len(packed)} {name} codes for {n} ids")
    return checked, n_bits


def _check_modality(name: object) -> None:
    if not isinstance(name, str) or not name.isidentifier() or len(name) > _MOST_CHARACTERS:
        raise InputError(f"modality {name!r}: a plain name is expected, such as image or text")


def _full_length(codes: Any) -> int:
    """Return the number of bits of packed codes in which every bit of a byte counts."""
    shape = np.asarray(codes).shape
    if len(shape) != 2 or not shape[1]:
        raise InputError(f"codes: (n, bytes) uint8 are expected, not {shape}")
    return int(8 * shape[1])


def check_metadata(
    metadata: Sequence[Metadata] | None, ids: Sequence[str]
) -> list[Metadata] | None:
    """Check that metadata is one mapping per item, with values that a store can keep.

    Return it with labels in composed form (NFC), in which a letter and its accent are one
    character: filters find a label however it is written.

    >>> check_metadata([{"year": 2020}], ["a"])
    [{'year': 2020}]
    """
    if metadata is None:
        return None
    if len(metadata) != len(ids):
        raise InputError(f"{len(metadata)} mappings of metadata for {len(ids)} ids")
    checked_keys = set[Any]()
    composed = list[Metadata]()
    for name, values in zip(ids, metadata, strict=True):
        if not isinstance(values, Mapping):
            raise InputError(f"metadata of {name!r}: a mapping is expected, not {values!r}")
        for key, value in values.items():
            problem = None if key in checked_keys else key_problem(key)
            if problem is None:
                problem = _value_problem(key, value)
            if problem is not None:
                raise InputError(f"metadata of {name!r}: {problem}")
            checked_keys.add(key)
        composed.append(_compose_labels(values))
    return composed


def _compose_labels(metadata: Metadata) -> Metadata:
    labels = metadata.get("labels")
    if not isinstance(labels, list):
        return metadata
    return {**metadata, "labels": [unicodedata.normalize("NFC", label) for label in labels]}


def key_problem(key: Any) -> str | None:
    """Return why a name cannot be a key of metadata, or None.

    >>> key_problem("label")
    "'label' means something else in filters; choose another key"
    """
    if not isinstance(key, str) or not key or not key.isprintable() or '"' in key or "\\" in key:
        return f'{key!r} is no key: a name without ", \\ and control characters'
    if key in ("id", "label"):
        return f"{key!r} means something else in filters; choose another key"
    return None


def check_count(value: int, what: str, least: int) -> int:
    """Return a value as an int, if it is a whole number of at least ``least``.

    >>> check_count(3, "k", 1)
    3
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{what} is {value!r}; a whole number of at least {least} is expected")
    return int(value)


def check_process(address: str, process: int) -> None:
    """Raise `JobError` unless this process opened a store.

    Neither connections nor locks work in a forked process.

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
    """Return the modality to search: the one that is named, else images, else the only one.

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


def _value_problem(key: str, value: Any) -> str | None:
    """Return why a value cannot be kept, or None."""
    if key in ("text", "image") and not isinstance(value, str | None):
        return f"{key} is a string, not {_shown(value)}"
    if key == "labels" and not isinstance(value, list | None):
        return f"labels are a list of strings, not {_shown(value)}"
    if isinstance(value, str):
        return _string_problem(key, value)
    if isinstance(value, list):
        problems = (_entry_problem(key, entry) for entry in value)
        return next(filter(None, problems), None)
    if isinstance(value, int | float):
        return _number_problem(key, value)
    if value is None:
        return None
    kind = type(value).__name__
    return f"{key}: expected a string, number, Boolean or list of strings, not {kind}"


def _entry_problem(key: str, entry: object) -> str | None:
    if isinstance(entry, str):
        return _string_problem(key, entry)
    return f"{key}: a list holds strings, not {_shown(entry)}"


def _string_problem(key: str, text: str) -> str | None:
    if not is_text(text):
        return f"{key}: {_NO_TEXT}"
    if "\0" in text:
        return f"{key}: holds a NUL, at which filters would end; take it out"
    return None


def _number_problem(key: str, number: float) -> str | None:
    if isinstance(number, int):
        is_long = not -(2**63) <= number < 2**63
        return f"{key}: {_shown(number)} has more than 64 bits" if is_long else None
    if not math.isfinite(number):
        return f"{key} is {number}; leave it out where it is not known"
    return None


def _shown(value: Any) -> str:
    """Return a value as an error shows it; a long or deep one is abridged."""
    if isinstance(value, int) and value.bit_length() > _SHOWN_BITS:
        return "a whole number"  # Python writes no more than 4,300 digits
    try:
        return reprlib.repr(value)
    except ValueError:  # such a number within
        return f"a {type(value).__name__}"


def check_words(text: str) -> str:
    """Return a text, or raise `ValueError` if it is nothing but space.

    >>> check_words("a dog")
    'a dog'
    """
    if not text.strip():
        raise ValueError("is empty; give some words")
    return text
