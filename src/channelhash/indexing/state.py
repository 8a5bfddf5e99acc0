"""Find the items of a source that have changed since a store's codes were made."""

import hashlib
from collections.abc import Set
from pathlib import Path

import numpy as np

from channelhash.errors import InputError
from channelhash.indexing.source import Source
from channelhash.search.store import Item, Store
from channelhash.utils.files import content_hash
from channelhash.utils.progress import Progress

#: Metadata key of an item's state, which identifies what it was encoded from: size, modification time and SHA-256 of
#: its image file, or the hash of its text or features. It is written with the codes: a killed job leaves no item
#: without it.
STATE = "encoded_from"

_LOOK = 1000  # items compared with the store at once


def changed_rows(store: Store, source: Source, stored_ids: Set[str], progress: Progress) -> list[int]:
    """Return the rows to encode; where only an image's modification time is new, the store is updated here."""
    ids, modalities, todo = source.records.ids, set(source.records.items), []
    for start in range(0, len(ids), _LOOK):
        rows = range(start, min(start + _LOOK, len(ids)))
        stored = {item.id: item for item in store.get([ids[row] for row in rows if ids[row] in stored_ids])}
        touched: list[tuple[Item, str]] = []
        for row in rows:
            item = stored.get(ids[row])
            if item is None:
                todo.append(row)
                continue
            _check_same_image(item, source, row)
            state = _current_state(source, row, str(item.metadata.get(STATE, "")))
            same = all(item.metadata.get(key) == value for key, value in source.metadata[row].items())
            if state is None or not same or not modalities <= set(item.codes):
                todo.append(row)
            elif state != item.metadata[STATE]:
                touched.append((item, state))
        for coded in {tuple(item.codes) for item, _ in touched}:
            group = [(item, state) for item, state in touched if tuple(item.codes) == coded]
            store.upsert(
                [item.id for item, _ in group],
                {modality: np.stack([item.codes[modality] for item, _ in group]) for modality in coded},
                metadata=[{STATE: state} for _, state in group],
            )
        progress(rows.stop, len(ids))
    return todo


def _check_same_image(item: Item, source: Source, row: int) -> None:
    """Refuse an id that belongs to an image of another folder: both folders may hold a ``1.jpg``."""
    old, new = item.metadata.get("image"), source.metadata[row].get("image")
    if source.folder is not None and isinstance(old, str) and old != new and Path(old).exists():
        raise InputError(f"{new}: the id {item.id!r} is already that of {old}; index the folder that holds both")


def _current_state(source: Source, row: int, old: str) -> str | None:
    """Return the `STATE` of a row if its content is still that of ``old``, else None."""
    if not reads_files(source):
        state = state_of_values(source, row)
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
    """Return ``"SIZE TIME SHA256"`` of an image file; `OSError` if it cannot be read.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     state_of_file(Path(file.name)).startswith("0 ")
    True
    """
    stat = path.stat()  # before the content: a change in between is seen the next time
    with open(path, "rb") as file:
        return f"{stat.st_size} {stat.st_mtime_ns} {hashlib.file_digest(file, 'sha256').hexdigest()}"


def state_of_values(source: Source, row: int) -> str:
    """Return a hash of a row's texts and features.

    >>> from channelhash.data.records import Records
    >>> records = Records(("a", "b"), {"text": ("dog", "dog")}, np.zeros((2, 0), dtype=bool), ())
    >>> source = Source(records, [{}, {}])
    >>> state_of_values(source, 0) == state_of_values(source, 1)
    True
    """
    values = [items[row] for items in source.records.items.values()]
    return content_hash(*(v.tobytes() if isinstance(v, np.ndarray) else str(v).encode() for v in values))


def reads_files(source: Source) -> bool:
    """Return whether image files are encoded.

    >>> from channelhash.data.records import Records
    >>> reads_files(Source(Records(("a",), {"image": (Path("a.jpg"),)}, np.zeros((1, 0), dtype=bool), ()), [{}]))
    True
    """
    return "image" in source.records.items and not isinstance(source.records.items["image"], np.ndarray)
