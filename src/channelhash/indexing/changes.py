"""Compare a source with its store, and find what to encode, update, rename or remove."""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import PIL

from channelhash.errors import InputError
from channelhash.indexing.metadata import (
    are_tags_current,
    cleared_tags,
    has_read_whole,
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

#: Metadata key of an item's state, which identifies what it was encoded from: the size, times and
#: SHA-256 of its image file, or the hash of its text or features. The times are those of the last
#: modification and of the last change of the inode, which no editor can set back. The state is
#: written with the codes, so that a killed job leaves no item without it.
STATE = "encoded_from"

#: Items between two calls of a progress callback: comparing an item takes microseconds.
_LOOK = 1000
#: Items updated or renamed in one transaction. New names are written before old ones are deleted,
#: so that a killed job loses no item.
_AT_ONCE = 1000

#: Metadata that an item's file, path and sidecar give.
Header = dict[str, Value]
_Key = TypeVar("_Key", str, int)


@dataclass
class Changes:
    """The differences between a source and its store.

    Attributes:
        rows: rows of the source to encode, in order.
        stored: rows whose ids the store has.
        cleared_tags: for each stored row to encode, see `metadata.cleared_tags`.
        missing: items whose image is no longer in the folder.
        problems: a line for each source of tags that cannot be read, of items not to encode.
        textless: number of items stored while the text in images could not be read.
    """

    rows: list[int] = field(default_factory=list)
    stored: set[int] = field(default_factory=set)
    cleared_tags: dict[int, Header] = field(default_factory=dict)
    missing: list[Listed] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    textless: int = 0


def find_changes(store: Store, source: Source, progress: Progress) -> Changes:
    """Compare a source with what is stored, in one pass over the store and a look at each file.

    The store is updated here if only the times or tags of an image are new, or if its folder was
    moved, or copied together with the store in it.
    """
    is_copied = _lies_in_source(store, source)
    ids = source.records.ids
    row_of = {name: row for row, name in enumerate(ids)}
    images = {values.get("image") for values in source.metadata}
    changes = Changes()
    updates = dict[str, Header]()
    for item in store.listed():
        row = row_of.get(item.id)
        if row is not None:
            updates |= _compare_stored(item, source, row, is_copied, changes)
            if len(changes.stored) % _LOOK == 0:
                progress(len(changes.stored), len(ids))
        elif _has_lost_image(item, source, images):
            changes.missing.append(item)
    _write_updates(store, updates)
    changes.rows = sorted({*range(len(ids))} - changes.stored | changes.cleared_tags.keys())
    if ids:
        progress(len(ids), len(ids))
    return changes


def _compare_stored(
    item: Listed, source: Source, row: int, is_copied: bool, changes: Changes
) -> dict[str, Header]:
    """Note in ``changes`` whether a row is to be encoded again; return its metadata to update, by
    the id of its item.
    """
    changes.stored.add(row)
    updates, lines = _metadata_updates(item, source, row, is_copied)
    if updates is None or "text" in updates:  # encoding it reports its unreadable tags
        changes.cleared_tags[row] = cleared_tags(item.metadata)
        return {}
    changes.problems += lines
    changes.textless += source.reads_text and "ocr" not in item.metadata
    return {item.id: updates} if updates else {}


def _write_updates(store: Store, updates: Mapping[str, Header]) -> None:
    for names in _parts([*updates]):
        store.update(names, [updates[name] for name in names])


def _lies_in_source(store: Store, source: Source) -> bool:
    """Return whether a store lies in the folder of its source, so that both may be copied
    together.
    """
    if source.folder is None or store.folder is None:
        return False
    return store.folder.resolve().is_relative_to(source.folder.resolve())


def _parts(keys: Sequence[_Key]) -> Iterator[Sequence[_Key]]:
    for start in range(0, len(keys), _AT_ONCE):
        yield keys[start : start + _AT_ONCE]


def _has_lost_image(item: Listed, source: Source, images: Collection[Value]) -> bool:
    """Return whether an item's image lay in the source's folder and is no longer among its
    ``images``.

    An image in a folder that cannot be read now is not lost. Neither is an existing file whose item
    has another id than the file's path.
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
    """Return the metadata to update of an item, or None if its codes are out of date; and a line
    for each source of tags that cannot be read. Another caption makes codes out of date as well.
    """
    if source.reads_text and _lacks_text(item.metadata, bool(source.ocr)):
        return None, []
    updates = _updates_by_source(item, source, row, is_copied)
    if updates is None or not source.reads_files:
        return updates, []
    path = Path(str(source.metadata[row]["image"]))
    if not updates and are_tags_current(path, item.metadata):
        return updates, []
    state = str(updates.get(STATE, _state_of(item)))
    try:
        tags, lines = _tag_updates(item, source, row, state)
    except OSError:  # an image that cannot be read any more keeps its tags
        return updates, []
    return updates | tags, lines


def _updates_by_source(item: Listed, source: Source, row: int, is_copied: bool) -> Header | None:
    """Return the path and the state to update of an item, or None if its content, its caption or a
    column has changed.

    If a store was copied together with its folder, an item's old path leads to the original.
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
    """Refuse an image whose id belongs to another: two folders may both hold a ``1.jpg``."""
    present = item.metadata.get("image")
    if source.folder is not None and isinstance(present, str) and Path(present).exists():
        raise InputError(
            f"{image}: the id {item.id!r} is already that of {present}; index the folder that "
            "holds both"
        )


def _lacks_text(metadata: Metadata, is_asked: bool) -> bool:
    """Return whether to read the text in an image: if it was never read and ``is_asked``, or if the
    image is long and an earlier version read little of it.
    """
    if "ocr" not in metadata:
        return is_asked
    width = metadata.get("width")
    height = metadata.get("height")
    if has_read_whole(metadata) or not isinstance(width, int) or not isinstance(height, int):
        return False
    return is_long(width, height)


def _tag_updates(item: Listed, source: Source, row: int, state: str) -> tuple[Header, list[str]]:
    """Read the tags and the date of a row's image again. Return those that differ from the item's,
    and a line for each source of tags that cannot be read.
    """
    path = Path(str(source.metadata[row]["image"]))
    header, lines = read_header(path, int(state.split()[1]))
    tags = cleared_tags(item.metadata) | describe_row(source, row, {**header, STATE: state})
    return _differing(tags, item), lines


def _differing(metadata: Metadata, item: Listed) -> Header:
    """Return the metadata that an item does not have."""
    return {key: value for key, value in metadata.items() if item.metadata.get(key) != value}


def describe_row(source: Source, row: int, header: Header) -> Header:
    """Return the metadata of a row: those of its file, overruled by those of the source."""
    columns = source.metadata[row]
    # A date that the source gives replaces all dates of the file.
    dates = dict.fromkeys(DATES) if any(map(columns.get, DATES)) else {}
    return {**header, **dates, **columns, STATE: header[STATE]}


def rename_moved(store: Store, source: Source, changes: Changes) -> dict[int, bool]:
    """Give items whose file is gone the ids of new files with the same content. Return row of the
    file -> whether its caption is new, so that it is to be encoded again.

    An item keeps its codes and metadata, except for those that its path gave.
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
    missing_by_size = _by_size(changes.missing)
    moved = dict[int, tuple[Listed, Header]]()
    if not missing_by_size:
        return moved
    for row in changes.rows:
        if row in changes.stored:
            continue
        path = Path(str(source.metadata[row]["image"]))
        with suppress(OSError):  # encoding it says what is wrong
            candidates = missing_by_size.get(str(path.stat().st_size), [])
            state = file_state(path) if candidates else ""
            same = next((item for item in candidates if _is_moved(item, state, source, row)), None)
            if same is None:
                continue
            updates, lines = _tag_updates(same, source, row, state)
            if "text" not in updates:  # otherwise encoding it reports them
                changes.problems += lines
            candidates.remove(same)
            moved[row] = (same, updates)
    return moved


def _by_size(items: Sequence[Listed]) -> Mapping[str, list[Listed]]:
    by_size = defaultdict[str, list[Listed]](list)
    for item in items:
        size, _ = _content_of(_state_of(item))
        by_size[size].append(item)
    return by_size


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
    """Return the size and the SHA-256 in a state."""
    return state.partition(" ")[0], state.rpartition(" ")[2]


def file_state(path: Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED SHA256"`` of an image file."""
    # The times come first: a change in between is noticed the next time.
    return f"{_size_and_times(path)} {file_hash(path)}"


def values_state(source: Source, row: int) -> str:
    """Return a hash of a row's texts and features."""
    values = [items[row] for items in source.records.items.values()]
    return content_hash(
        *(
            value.tobytes() if isinstance(value, np.ndarray) else str(value).encode()
            for value in values
        )
    )


def _size_and_times(path: str | Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED"`` of a file. The last one is the time of its inode, if the
    system has inodes.
    """
    stat = os.stat(path)
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def reading_state(path: Path) -> str:
    """Return all that decides whether an image can be read: its file and path, and the version of
    Pillow.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "1.jpg")
    ...     file.touch()
    ...     reading_state(file).startswith("0 ")
    True
    """
    return f"{_size_and_times(path)} Pillow {PIL.__version__} {path}"
