"""Which items of a source a store holds already as they are now."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from channelhash.errors import InputError
from channelhash.indexing.source import Source
from channelhash.search.store import Item, Store
from channelhash.utils.files import content_hash

#: Metadata key under which an item remembers what it was encoded from: size, time of change and SHA-256 of its
#: picture's file, or the hash of its text or features. It is written with the codes: a killed job leaves no item
#: without it.
STATE = "encoded_from"

_LOOK = 1000  # items compared with the store at once


def changed_rows(
    store: Store, source: Source, modalities: Sequence[str], before: set[str], progress: Callable[[int, int], None]
) -> list[int]:
    """The rows that have to be encoded. A picture's new time of change alone is noted in the store here."""
    ids, todo = source.records.ids, []
    for start in range(0, len(ids), _LOOK):
        rows = range(start, min(start + _LOOK, len(ids)))
        stored = {item.id: item for item in store.get([ids[row] for row in rows if ids[row] in before])}
        touched: list[tuple[Item, str]] = []
        for row in rows:
            item = stored.get(ids[row])
            if item is None:
                todo.append(row)
                continue
            _check_same_picture(item, source, row)
            state = _current_state(source, modalities, row, str(item.metadata.get(STATE, "")))
            same = all(item.metadata.get(key) == value for key, value in source.metadata[row].items())
            if state is None or not same or not set(modalities) <= set(item.codes):
                todo.append(row)
            elif state != item.metadata[STATE]:
                touched.append((item, state))
        for there in {tuple(item.codes) for item, _ in touched}:
            same_codes = [(item, state) for item, state in touched if tuple(item.codes) == there]
            store.upsert(
                [item.id for item, _ in same_codes],
                {modality: np.stack([item.codes[modality] for item, _ in same_codes]) for modality in there},
                metadata=[{STATE: state} for _, state in same_codes],
            )
        progress(rows.stop, len(ids))
    return todo


def _check_same_picture(item: Item, source: Source, row: int) -> None:
    """Two folders may both hold an ``1.jpg``; the second must not silently take the first one's place."""
    old, new = item.metadata.get("image"), source.metadata[row].get("image")
    if source.folder is not None and isinstance(old, str) and old != new and Path(old).exists():
        raise InputError(f"{new}: the id {item.id!r} is already that of {old}; index the folder that holds both")


def _current_state(source: Source, modalities: Sequence[str], row: int, old: str) -> str | None:
    """The `STATE` of a row if its content is still that of ``old``, else None."""
    if not is_file(source, modalities):
        state = state_of_values(source, modalities, row)
        return state if state == old else None
    path = Path(source.records.items["image"][row])
    try:
        stat = path.stat()
        if old.startswith(f"{stat.st_size} {stat.st_mtime_ns} "):
            return old
        state = state_of_file(path)
    except OSError:
        return None  # encoding it says what is wrong
    return state if state.split()[0::2] == old.split()[0::2] else None


def state_of_file(path: Path) -> str:
    """``"SIZE TIME SHA256"`` of a picture's file; OSError where it cannot be read."""
    stat = path.stat()  # before the content: what changes meanwhile is seen the next time
    with open(path, "rb") as file:
        return f"{stat.st_size} {stat.st_mtime_ns} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def state_of_values(source: Source, modalities: Sequence[str], row: int) -> str:
    """Hash of a row's texts and features."""
    values = [source.records.items[modality][row] for modality in modalities]
    return content_hash(*(v.tobytes() if isinstance(v, np.ndarray) else str(v).encode() for v in values))


def is_file(source: Source, modalities: Sequence[str]) -> bool:
    """Whether picture files are encoded."""
    return "image" in modalities and not isinstance(source.records.items["image"], np.ndarray)
