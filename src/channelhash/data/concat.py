"""Collections made of others: rows chosen by their labels, and several collections as one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.data.records import Items, Records
from channelhash.data.splits import Splits
from channelhash.errors import InputError


def choose_by_labels(
    records: Records, only: Sequence[str] | None = None, without: Sequence[str] | None = None
) -> Records:
    """The rows that have one of the labels ``only``, less those that have one of ``without``.

    The columns of labels in ``without``, which no row has any more, go as well.

    Raises:
        InputError: there is no such label, or no row is left.
    """
    if only is None and without is None:
        return records
    named = {"data.only_labels": only, "data.without_labels": without}
    columns = {key: _columns(records, names or (), key) for key, names in named.items()}
    wanted: NDArray[np.bool_] = np.ones(len(records), dtype=bool)
    if only is not None:
        wanted = np.asarray(records.labels[:, columns["data.only_labels"]].any(axis=1))
    out = columns["data.without_labels"]
    wanted = wanted & ~records.labels[:, out].any(axis=1)
    if not wanted.any():
        raise InputError("data.only_labels and data.without_labels leave no row of the collection; choose other labels")
    kept = [column for column in range(len(records.label_names)) if column not in out]
    chosen = records.take(np.flatnonzero(wanted))
    return replace(
        chosen,
        labels=chosen.labels[:, kept],
        label_names=tuple(records.label_names[column] for column in kept),
        removed={**records.removed, "labels not chosen": int((~wanted).sum())},
    )


def _columns(records: Records, names: Sequence[str], key: str) -> list[int]:
    for name in names:
        if name not in records.label_names:
            raise InputError(f"{key}: the collection has no label {name!r}; it has {', '.join(records.label_names)}")
    return [records.label_names.index(name) for name in names]


def join_records(parts: Sequence[Records]) -> Records:
    """Several collections as one, row after row.

    Labels are joined by name, those of the first collection first; a row has none of the labels that its collection
    does not know. Modalities are those of the first collection.

    Args:
        parts: at least one.

    Raises:
        InputError: a collection lacks a modality of the first, or has another kind of it; or two have the same id.
    """
    return reduce(_joined, parts)


def _joined(first: Records, second: Records) -> Records:
    if common := set(first.ids) & set(second.ids):
        raise InputError(f"{len(common)} ids are in both collections, such as {min(common)!r}; ids tell items apart")
    names = (*first.label_names, *(name for name in second.label_names if name not in first.label_names))
    display = {
        modality: (*values, *second.display[modality])
        for modality, values in first.display.items()
        if modality in second.display
    }
    return Records(
        (*first.ids, *second.ids),
        {modality: _items(modality, values, second.items) for modality, values in first.items.items()},
        np.concatenate([labels_as(part.labels, part.label_names, names) for part in (first, second)]),
        names,
        {
            key: first.removed.get(key, 0) + second.removed.get(key, 0)
            for key in dict.fromkeys((*first.removed, *second.removed))
        },
        (*first.problems, *second.problems),
        (len(first) if first.found is None else first.found) + (len(second) if second.found is None else second.found),
        display,
    )


def labels_as(labels: NDArray[np.bool_], names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.bool_]:
    """Label sets ``(n, len(names))`` over the columns ``wanted``, among which all of ``names`` are."""
    place = {name: column for column, name in enumerate(wanted)}
    moved = np.zeros((len(labels), len(wanted)), dtype=bool)
    moved[:, [place[name] for name in names]] = labels
    return moved


def _items(modality: str, first: Items, others: Mapping[str, Items]) -> Items:
    if modality not in others:
        raise InputError(f"the new items have no {modality}s, the old ones have; give both modalities")
    second = others[modality]
    if not isinstance(first, np.ndarray) and not isinstance(second, np.ndarray):
        return cast(Items, (*first, *second))  # paths with paths, strings with strings: a modality is one or the other
    kinds = [values.shape[1] if isinstance(values, np.ndarray) else 0 for values in (first, second)]
    if kinds[0] != kinds[1]:
        old, new = (f"features of width {width}" if width else "raw items" for width in kinds)
        raise InputError(f"the new {modality}s are {new}, the old ones {old}; give the same kind")
    joined: NDArray[Any] = np.concatenate([first, second])
    return joined


def join_splits(first: Splits, second: Splits, n_first: int) -> Splits:
    """The partitions of `join_records` of two collections, of which the first has ``n_first`` rows."""
    return Splits(
        **{name: np.concatenate([rows, getattr(second, name) + n_first]) for name, rows in vars(first).items()}
    )
