"""Compare a source with its store: what is to be encoded, updated, renamed or removed."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import PIL

from channelhash.errors import InputError
from channelhash.indexing.metadata import (
    are_tags_current,
    former_tags,
    is_of_version,
    read_header,
)
from channelhash.indexing.ocr import is_long
from channelhash.indexing.source import Source
from channelhash.search.browsing import DATES
from channelhash.search.items import Metadata, Value
from channelhash.search.store import Listed, Store
from channelhash.search.transfer import upsert_items
from channelhash.utils.hashes import content_hash, file_hash
from channelhash.utils.progress import Progress

#: Metadata key of an item's state, which identifies what it was encoded from: size, times (of the
#: last modification and of the last change of the inode, which no editor can set back) and SHA-256
#: of its image file, or the hash of its text or features. It is written with the codes: a killed
#: job leaves no item without it.
STATE = "encoded_from"

#: Items between two calls of a progress callback: a look at an item takes microseconds.
_LOOK = 1000
#: Items updated or renamed in one transaction. New names are written before old ones are deleted,
#: so that a killed job loses no item.
_AT_ONCE = 1000

Header = dict[str, Value]
_Key = TypeVar("_Key", str, int)


@dataclass
class Changes:
    """The differences between a source and its store.

    Attributes:
        rows: rows of the source to encode, in order.
        stored: rows that the store has under their ids.
        former_tags: for each stored row to encode, the tags that its file had the last time, with
            None.
        missing: items whose image is no longer in the folder.
        problems: a line for each tag that cannot be read.
    """

    rows: list[int]
    stored: set[int]
    former_tags: dict[int, Header]
    missing: list[Listed]
    problems: list[str]


def find_changes(store: Store, source: Source, progress: Progress) -> Changes:
    """Compare a source with what is stored, by one pass over the store and a look at each file.

    Where only an image's times or tags are new, or its folder was moved, or copied together with
    the store that lies in it, the store is updated here.
    """
    is_copied = _lies_in_source(store, source)
    ids = source.records.ids
    row_of = {name: row for row, name in enumerate(ids)}
    images = {values.get("image") for values in source.metadata}
    changes = Changes([], set(), {}, [], [])
    updates = dict[str, Header]()
    for item in store.listed():
        row = row_of.get(item.id)
        if row is None:
            if _has_lost_image(item, source, images):
                changes.missing.append(item)
            continue
        metadata, lines = _metadata_updates(item, source, row, is_copied)
        changes.problems += lines
        changes.stored.add(row)
        if metadata is None:
            changes.former_tags[row] = former_tags(item.metadata)
        elif metadata:
            updates[item.id] = metadata
        if len(changes.stored) % _LOOK == 0:
            progress(len(changes.stored), len(ids))
    _update(store, updates)
    unknown = [row for row in range(len(ids)) if row not in changes.stored]
    changes.rows = sorted([*unknown, *changes.former_tags])
    if ids:
        progress(len(ids), len(ids))
    return changes


def _update(store: Store, updates: Mapping[str, Header]) -> None:
    for names in _parts([*updates]):
        store.update(names, [updates[name] for name in names])


def _lies_in_source(store: Store, source: Source) -> bool:
    """Return whether a store lies in the folder of its source, with which it may have been
    copied.
    """
    if source.folder is None or store.folder is None:
        return False
    return store.folder.resolve().is_relative_to(source.folder.resolve())


def _parts(keys: Sequence[_Key]) -> Iterator[Sequence[_Key]]:
    for start in range(0, len(keys), _AT_ONCE):
        yield keys[start : start + _AT_ONCE]


def _has_lost_image(item: Listed, source: Source, images: Collection[Value]) -> bool:
    """Return whether an item's image lay in the source's folder and is no longer one of its
    ``images``.

    An image in a folder that cannot be read now is not lost. Neither is one whose item has an id of
    its own and whose file is there.
    """
    image = item.metadata.get("image")
    if source.folder is None or not isinstance(image, str) or image in images:
        return False
    if not Path(image).is_relative_to(source.folder):
        return False
    name = Path(image).relative_to(source.folder).as_posix()
    if any(f"{name}/".startswith(f"{path}/") for path in source.unread):
        return False
    has_own_id = unicodedata.normalize("NFC", name) != unicodedata.normalize("NFC", item.id)
    return not (has_own_id and os.path.lexists(image))


def _metadata_updates(
    item: Listed, source: Source, row: int, is_copied: bool
) -> tuple[Header | None, list[str]]:
    """Return the metadata to update of an item whose codes are still right, or None if it is to be
    encoded again; and a line for each tag that cannot be read.
    """
    if source.reads_text and _lacks_text(item.metadata, bool(source.ocr)):
        return None, []
    updates = _updates_by_source(item, source, row, is_copied)
    if updates is None or not source.reads_files:
        return updates, []
    path = Path(str(source.metadata[row]["image"]))
    if not updates and are_tags_current(path, item.metadata):
        return updates, []
    lines = list[str]()
    with suppress(OSError):  # an image that cannot be read any more keeps its tags
        state = str(updates.get(STATE, _state_of(item)))
        tags, lines = _read_tags_again(item, source, row, state)
        updates |= tags
    return (None if "text" in updates else updates), lines


def _updates_by_source(item: Listed, source: Source, row: int, is_copied: bool) -> Header | None:
    """Return the path and the state to update of an item, or None if its content, its caption or a
    column is another.

    Where a store was copied together with its folder, the content at an item's old path is that of
    the original.
    """
    metadata = source.metadata[row]
    updates = _differing(metadata, item)
    old = _state_of(item)
    state = _current_state(source, row, old)
    if "image" in updates and not (is_copied and state):
        _check_id_is_free(item, source, metadata["image"])
    has_codes = source.modalities_of(row) <= set(item.modalities)
    if state is None or not has_codes or updates.keys() - {"image"}:
        return None
    return updates if state == old else {**updates, STATE: state}


def _check_id_is_free(item: Listed, source: Source, image: Value) -> None:
    """Refuse an image whose id another one has: two folders may both hold a ``1.jpg``."""
    present = item.metadata.get("image")
    if source.folder is not None and isinstance(present, str) and Path(present).exists():
        raise InputError(
            f"{image}: the id {item.id!r} is already that of {present}; index the folder that "
            "holds both"
        )


def _lacks_text(metadata: Metadata, is_asked: bool) -> bool:
    """Return whether the text in an image is to be read: of one without, where that is asked for,
    and of a long one of which an earlier version read little.
    """
    if "ocr" not in metadata:
        return is_asked
    width = metadata.get("width")
    height = metadata.get("height")
    if is_of_version(metadata) or not isinstance(width, int) or not isinstance(height, int):
        return False
    return is_long(width, height)


def _read_tags_again(
    item: Listed, source: Source, row: int, state: str
) -> tuple[Header, list[str]]:
    """Return the tags and the date of a row's image where they differ from the item's; and a line
    for each tag that cannot be read.
    """
    path = Path(str(source.metadata[row]["image"]))
    header, lines = read_header(path, int(state.split()[1]))
    tags = former_tags(item.metadata) | describe_row(source, row, {**header, STATE: state})
    return _differing(tags, item), lines


def _differing(metadata: Metadata, item: Listed) -> Header:
    """Return the metadata that an item does not have."""
    return {key: value for key, value in metadata.items() if item.metadata.get(key) != value}


def describe_row(source: Source, row: int, header: Header) -> Header:
    """Return the metadata of a row: what its file says, overruled by what the source says."""
    columns = source.metadata[row]
    dates = dict.fromkeys(DATES) if any(map(columns.get, DATES)) else {}  # a given one stands alone
    return {**header, **dates, **columns, STATE: header[STATE]}


def rename_moved(store: Store, source: Source, changes: Changes) -> dict[int, bool]:
    """Give items whose file is gone the ids of new files with the same content; return the rows of
    these files, and whether each has another caption and is to be encoded again.

    An item takes its codes and metadata along, except for what its place said.
    """
    moved = _find_moved(source, changes)
    for rows in _parts([*moved]):
        names = [moved[row][0].id for row in rows]
        renamed = [
            replace(item, id=source.records.ids[row], metadata={**item.metadata, **moved[row][1]})
            for item, row in zip(store.get(names), rows, strict=True)
        ]
        upsert_items(store, renamed)
        store.delete(names)
    has_new_caption = {row: "text" in updates for row, (_, updates) in moved.items()}
    changes.stored.update(row for row, is_new in has_new_caption.items() if is_new)
    return has_new_caption


def _find_moved(source: Source, changes: Changes) -> dict[int, tuple[Listed, Header]]:
    """Return the new rows whose image is that of a missing item, each with this item and the
    metadata to update.

    Only new files of a size that a missing one had are read.
    """
    missing_by_size = defaultdict[str, list[Listed]](list)
    for item in changes.missing:
        size, _ = _content_of(_state_of(item))
        missing_by_size[size].append(item)
    moved = dict[int, tuple[Listed, Header]]()
    for row in changes.rows if missing_by_size else ():
        if row in changes.stored:
            continue
        path = Path(str(source.metadata[row]["image"]))
        with suppress(OSError):  # encoding it says what is wrong
            candidates = missing_by_size.get(str(path.stat().st_size), [])
            state = file_state(path) if candidates else ""
            same = next((item for item in candidates if _is_moved(item, state, source, row)), None)
            if same is not None:
                tags, lines = _read_tags_again(same, source, row, state)
                changes.problems += lines
                candidates.remove(same)
                moved[row] = (same, tags)
    return moved


def _is_moved(item: Listed, state: str, source: Source, row: int) -> bool:
    """Return whether an item was encoded from the content of a row, and its own file is gone."""
    text = source.metadata[row].get("text")
    return (
        _content_of(_state_of(item)) == _content_of(state)
        and source.modalities_of(row) <= set(item.modalities)
        and text in (None, item.metadata.get("text"))
        and not os.path.lexists(str(item.metadata["image"]))
    )


def _current_state(source: Source, row: int, old: str) -> str | None:
    """Return the `STATE` of a row if its content is still that of ``old``, else None."""
    if not source.reads_files:
        state = values_state(source, row)
        return state if state == old else None
    path = str(source.metadata[row]["image"])
    try:
        if old.startswith(f"{_size_and_times(path)} "):
            return old
        state = file_state(Path(path))
    except OSError:
        return None  # encoding it says what is wrong
    return state if _content_of(state) == _content_of(old) else None


def _state_of(item: Listed) -> str:
    """Return the `STATE` of an item, empty for items that were not indexed."""
    return str(item.metadata.get(STATE, ""))


def _content_of(state: str) -> tuple[str, str]:
    """Return size and SHA-256 of a state."""
    return state.partition(" ")[0], state.rpartition(" ")[2]


def file_state(path: Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED SHA256"`` of an image file; `OSError` if it cannot be
    read.
    """
    return f"{_size_and_times(path)} {file_hash(path)}"  # a change in between is seen the next time


def values_state(source: Source, row: int) -> str:
    """Return a hash of a row's texts and features."""
    values = [items[row] for items in source.records.items.values()]
    return content_hash(
        *(v.tobytes() if isinstance(v, np.ndarray) else str(v).encode() for v in values)
    )


def _size_and_times(path: str | Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED"`` of a file: the last time is that of its inode, where the
    system has one.
    """
    stat = os.stat(path)
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def reading_state(path: Path) -> str:
    """Return what may decide whether an image can be read: its file and path, and the version of
    the library.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "1.jpg")
    ...     file.touch()
    ...     reading_state(file).startswith("0 ")
    True
    """
    return f"{_size_and_times(path)} Pillow {PIL.__version__} {path}"
