"""Recognise images that were moved or renamed by their content, so that they keep their codes."""

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from channelhash.indexing.source import Source
from channelhash.indexing.state import STATE, content_of, modalities_of, state_of_file
from channelhash.search.store import Listed, Store

_AT_ONCE = 1000  # items renamed in two transactions, the new ones first: a killed job has both


def keep_moved(store: Store, source: Source, new: Sequence[int], gone: Sequence[Listed]) -> set[int]:
    """Give items whose file is gone the ids of new files with the same content; return the rows of these.

    An item takes its codes and metadata along. Only new files of a size that a lost one had are read.

    Args:
        store: the store.
        source: images of a folder.
        new: rows whose ids the store lacks.
        gone: stored items of the folder whose ids the source lacks.
    """
    lost: dict[str, list[Listed]] = defaultdict(list)
    for item in gone:
        lost[str(item.metadata.get(STATE, "")).partition(" ")[0]].append(item)
    pairs: list[tuple[Listed, int, str]] = []
    for row in new if lost else ():
        path = Path(source.records.items["image"][row])
        try:
            candidates = lost.get(str(path.stat().st_size), [])
            state = state_of_file(path) if candidates else ""
        except OSError:
            continue  # encoding it says what is wrong
        for item in candidates:
            if _is_moved(item, state, source, row):
                candidates.remove(item)
                pairs.append((item, row, state))
                break
    for start in range(0, len(pairs), _AT_ONCE):
        _rename(store, source, pairs[start : start + _AT_ONCE])
    return {row for _, row, _ in pairs}


def _is_moved(item: Listed, state: str, source: Source, row: int) -> bool:
    """Return whether an item was encoded from the content of a row, and its own file is gone."""
    text = source.metadata[row].get("text")
    return (
        content_of(str(item.metadata.get(STATE, ""))) == content_of(state)
        and modalities_of(source, row) <= set(item.modalities)
        and text in (None, item.metadata.get("text"))
        and not os.path.lexists(str(item.metadata["image"]))
    )


def _rename(store: Store, source: Source, pairs: Sequence[tuple[Listed, int, str]]) -> None:
    items = store.get([item.id for item, _, _ in pairs])
    whole = [(item, row, state) for item, (_, row, state) in zip(items, pairs, strict=True)]
    for coded in sorted({tuple(item.codes) for item in items}):
        group = [each for each in whole if tuple(each[0].codes) == coded]
        store.upsert(
            [source.records.ids[row] for _, row, _ in group],
            {modality: np.stack([item.codes[modality] for item, _, _ in group]) for modality in coded},
            metadata=[{**item.metadata, **source.metadata[row], STATE: state} for item, row, state in group],
            projections={modality: np.stack([item.projections[modality] for item, _, _ in group]) for modality in coded}
            if store.projected
            else None,
        )
    store.delete([item.id for item in items])
