"""What has changed in a source since a store's codes were made, and what became of it."""

import hashlib
import os
import unicodedata
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL

from channelhash.errors import InputError
from channelhash.models.description import fit_facts, read_description
from channelhash.photos.source import Source, Unread
from channelhash.search.items import Value
from channelhash.search.store import Listed, Store
from channelhash.utils.files import content_hash
from channelhash.utils.progress import Progress

#: Metadata key of an item's state, which identifies what it was encoded from: size, times (of the last modification and
#: of the last change of the inode, which no editor can set back) and SHA-256 of its image file, or the hash of its text
#: or features. It is written with the codes: a killed job leaves no item without it.
STATE = "encoded_from"

_LOOK = 1000  # items between two calls of a progress callback, and items updated at once


@dataclass(frozen=True)
class Indexed:
    """Counts of the items of a source after indexing.

    Attributes:
        added: items new to the store.
        replaced: items that had changed and were encoded again.
        unchanged: items that were left alone.
        pruned: items removed from the store because their image is gone.
        problems: a line for each item that was left out.
        items: items in the store now.
        seconds: time of the whole.
        rate: items added and replaced a second, by the time of encoding and writing them.
        moved: items whose image was moved or renamed in its folder: they keep their codes under the new id.
        skipped: of a folder, reason -> number of files left out for it, besides those of ``problems``.

    >>> Indexed(added=3, items=3).replaced
    0
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    pruned: int = 0
    problems: tuple[str, ...] = ()
    items: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    moved: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


def find_changes(store: Store, source: Source, progress: Progress) -> tuple[list[int], set[int], list[Listed]]:
    """Compare a source with what is stored, by one pass over the store and a look at each file.

    Where only an image's times are new, or its folder was moved, or copied together with the store that lies in it, the
    store is updated here.
    """
    copied = source.folder is not None and Path(store.address).resolve().is_relative_to(source.folder.resolve())
    ids = source.records.ids
    rows = {name: row for row, name in enumerate(ids)}
    images = {values.get("image") for values in source.metadata} if source.folder is not None else set()
    todo, stored, missing = list[int](), set[int](), list[Listed]()
    touched: list[tuple[str, dict[str, Value]]] = []
    for item in store.listed():
        row = rows.get(item.id)
        if row is None:
            if source.folder is not None and _is_gone(item, source.folder, source.unread, images):
                missing.append(item)
            continue
        stored.add(row)
        news = _news(item, source, row, copied)
        if news is None:
            todo.append(row)
        elif news:
            touched.append((item.id, news))
        if len(stored) % _LOOK == 0:
            progress(len(stored), len(ids))
    for start in range(0, len(touched), _LOOK):
        some = touched[start : start + _LOOK]
        store.update([name for name, _ in some], [news for _, news in some])
    todo = sorted([*todo, *(row for row in range(len(ids)) if row not in stored)])
    if ids:
        progress(len(ids), len(ids))
    return todo, stored, missing


def _is_gone(item: Listed, folder: Path, unread: Sequence[str], images: Collection[Value]) -> bool:
    """Return whether an item's image lay in a folder and is no longer one of its ``images``.

    What lies where nothing can be read now stays, and so does an item with an id of its own whose file is there.
    """
    image = item.metadata.get("image")
    if not isinstance(image, str) or not _lies_in(image, folder) or image in images:
        return False
    name = Path(image).relative_to(folder).as_posix()
    if any(f"{name}/".startswith(f"{path}/") for path in unread):
        return False
    return unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", item.id) or not os.path.lexists(image)


def _lies_in(image: Value, folder: Path) -> bool:
    """Return whether the path of an item's image is below a folder.

    >>> _lies_in("/photos/a.jpg", Path("/photos")), _lies_in(None, Path("/photos"))
    (True, False)
    """
    return isinstance(image, str) and image.startswith(f"{str(folder).rstrip(os.sep)}{os.sep}")


def modalities_of(source: Source, row: int) -> set[str]:
    """Return the modalities of which a row is to have codes: an image without caption has none of ``text``."""
    modalities = set(source.records.items)
    return modalities | {"text"} if source.captions and source.captions[row] else modalities


def _news(item: Listed, source: Source, row: int, copied: bool) -> dict[str, Value] | None:
    """Return the metadata to update of an item whose codes are still right, or None if it is to be encoded again.

    A store that lies in the source's folder may have been ``copied`` with it: the same content at an item's old path is
    then that of the original.
    """
    metadata = source.metadata[row]
    differing = {key: value for key, value in metadata.items() if item.metadata.get(key) != value}
    old = str(item.metadata.get(STATE, ""))
    state = _current_state(source, row, old)
    if "image" in differing and not (copied and state):
        _check_same_image(item, source, row)
    if (differing and set(differing) != {"image"}) or not modalities_of(source, row) <= set(item.modalities):
        return None
    if state is None:
        return None
    return differing | ({STATE: state} if state != old else {})


def _check_same_image(item: Listed, source: Source, row: int) -> None:
    """Refuse an id that belongs to an image of another folder: both folders may hold a ``1.jpg``."""
    old, new = item.metadata.get("image"), source.metadata[row].get("image")
    if source.folder is not None and isinstance(old, str) and Path(old).exists():
        raise InputError(f"{new}: the id {item.id!r} is already that of {old}; index the folder that holds both")


def _current_state(source: Source, row: int, old: str) -> str | None:
    """Return the `STATE` of a row if its content is still that of ``old``, else None."""
    if not reads_files(source):
        state = state_of_values(source, row)
        return state if state == old else None
    path = str(source.metadata[row]["image"])
    try:
        if old.startswith(f"{_size_and_times(path)} "):
            return old
        state = state_of_file(Path(path))
    except OSError:
        return None  # encoding it says what is wrong
    return state if content_of(state) == content_of(old) else None


def content_of(state: str) -> tuple[str, str]:
    """Return size and SHA-256 of a state.

    >>> content_of("12 1563099630000000000 1563099631000000000 0123")
    ('12', '0123')
    """
    return state.partition(" ")[0], state.rpartition(" ")[2]


def state_of_file(path: Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED SHA256"`` of an image file; `OSError` if it cannot be read.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     state_of_file(Path(file.name)).startswith("0 ")
    True
    """
    before = _size_and_times(path)  # a change in between is seen the next time
    with open(path, "rb") as file:
        return f"{before} {hashlib.file_digest(file, 'sha256').hexdigest()}"


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


def _size_and_times(path: str | Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED"`` of a file: the last time is that of its inode, where the system has one.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     len(_size_and_times(file.name).split())
    3
    """
    stat = os.stat(path)
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def still_unread(source: Source, rows: Sequence[int]) -> dict[int, Unread]:
    """Return those of the rows whose image could not be read the last time and is the same file."""
    remembered = source.photos.unread if source.photos else {}
    unread = {}
    for row in rows:
        known = remembered.get(source.records.ids[row])
        path = str(source.metadata[row]["image"]) if known else ""
        with suppress(OSError):  # encoding it says what is wrong
            if known and known.state == state_of_reading(path):
                unread[row] = known
    return unread


def state_of_reading(path: str | Path) -> str:
    """Return what may decide whether an image can be read, its file and the library's version, and where it lies.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     state_of_reading(file.name).startswith("0 ")
    True
    """
    return f"{_size_and_times(path)} Pillow {PIL.__version__} {path}"


def described_fit(store: Store) -> dict[str, Any]:
    """Return the description of a store's own model if its codes were fitted; else nothing."""
    file = None if store.model_folder is None else store.model_folder / "model" / "config.json"
    description = read_description(file) if file is not None and file.exists() else {}
    return description if description.get("name") == "fitted" else {}


def fit_of(store: Store) -> dict[str, str]:
    """Return the encoder of a store and how its codes were fitted, see `fit_facts`; of other stores, nothing."""
    return fit_facts(described_fit(store))
