"""Find the items of a source that have changed since a store's codes were made."""

import hashlib
import os
import unicodedata
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import PIL

from channelhash._version import __version__
from channelhash.data.images import image_problem
from channelhash.errors import InputError
from channelhash.indexing.source import Source
from channelhash.search.items import Value
from channelhash.search.photo_folders import find_or_keep, is_store
from channelhash.search.store import Listed, Store
from channelhash.utils.files import content_hash, dump_checked, load_checked, write_text
from channelhash.utils.image_files import reads_heif
from channelhash.utils.progress import Progress

#: Metadata key of an item's state, which identifies what it was encoded from: size, times (of the last modification and
#: of the last change of the inode, which no editor can set back) and SHA-256 of its image file, or the hash of its text
#: or features. It is written with the codes: a killed job leaves no item without it.
STATE = "encoded_from"

_LOOK = 1000  # items between two calls of a progress callback, and items updated at once

#: Id -> (the file as it was, what was wrong with it, with `PATH` for its path, which a move of the folder changes).
Unreadable = dict[str, tuple[str, str]]
PATH = "\0"


class Changes(NamedTuple):
    """Rows of a source as compared with a store.

    Attributes:
        todo: rows to encode, in order.
        stored: rows whose id the store has.
        gone: stored items of the source's folder that are no longer among its images.
        attempts: row of ``todo`` -> its file as it is before it is read, see `unreadable.attempt`.
        unreadable: items that could not be read the last time, and whose files have not changed since.
        problems: a line for each file that the system does not let be looked at, or not any more.

    >>> Changes([1, 2], {0, 2}, []).is_empty
    False
    """

    todo: list[int]
    stored: set[int]
    gone: list[Listed]
    attempts: dict[int, str] = {}  # noqa: RUF012 - never written to
    unreadable: Unreadable = {}  # noqa: RUF012
    problems: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the store is as the source is, apart from what cannot be read."""
        return not self.todo and not self.gone


def find_changes(store: Store, source: Source, progress: Progress) -> Changes:
    """Compare a source with what is stored, by one pass over the store and a look at each file.

    Where only an image's times are new, or its folder was moved, or copied together with the store that lies in it, the
    store is updated here.
    """
    copied = source.folder is not None and Path(store.address).resolve().is_relative_to(source.folder.resolve())
    ids = source.records.ids
    rows = {name: row for row, name in enumerate(ids)}
    images = {values.get("image") for values in source.metadata} if source.folder is not None else set()
    changes = Changes([], set(), [])
    touched: list[tuple[str, dict[str, Value]]] = []
    for item in store.listed():
        row = rows.get(item.id)
        if row is None:
            if source.folder is not None and _is_gone(item, source.folder, source.unread, images):
                changes.gone.append(item)
            continue
        changes.stored.add(row)
        news = _news(item, source, row, copied)
        if news is None:
            changes.todo.append(row)
        elif news:
            touched.append((item.id, news))
        if len(changes.stored) % _LOOK == 0:
            progress(len(changes.stored), len(ids))
    for start in range(0, len(touched), _LOOK):
        some = touched[start : start + _LOOK]
        store.update([name for name, _ in some], [news for _, news in some])
    changes.todo.extend(row for row in range(len(ids)) if row not in changes.stored)
    changes.todo.sort()
    if ids:
        progress(len(ids), len(ids))
    return _without_unreadable(changes, store, source) if reads_files(source) else changes


def _without_unreadable(changes: Changes, store: Store, source: Source) -> Changes:
    """Take files out of what is to be encoded that cannot be read, as is known from the last time or at a look."""
    earlier, known, attempts, problems = read_unreadable(store), Unreadable(), dict[int, str](), []
    for row in changes.todo:
        name, path = source.records.ids[row], Path(str(source.metadata[row]["image"]))
        try:
            current = attempt(path)
        except OSError:
            if problem := image_problem(path, whole=False):
                problems.append(problem)
                continue
            current = ""  # it is there again
        if name in earlier and earlier[name][0] == current:
            known[name] = earlier[name]
            problems.append(earlier[name][1].replace(PATH, str(path)))
        else:
            attempts[row] = current
    return changes._replace(todo=list(attempts), attempts=attempts, unreadable=known, problems=tuple(problems))


def _is_gone(item: Listed, folder: Path, unread: Sequence[str], images: Collection[Value]) -> bool:
    """Return whether an item's image lay in a folder and is no longer one of its ``images``.

    What lies where nothing can be read now stays, and so does an item with an id of its own whose file is there.
    """
    image = item.metadata.get("image")
    if not isinstance(image, str) or not lies_in(image, folder) or image in images:
        return False
    name = Path(image).relative_to(folder).as_posix()
    if any(f"{name}/".startswith(f"{path}/") for path in unread):
        return False
    return unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", item.id) or not os.path.lexists(image)


def lies_in(image: Value, folder: Path) -> bool:
    """Return whether the path of an item's image is below a folder.

    >>> lies_in("/photos/a.jpg", Path("/photos")), lies_in(None, Path("/photos"))
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
        if old.startswith(f"{size_and_times(path)} "):
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
    before = size_and_times(path)  # a change in between is seen the next time
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


def size_and_times(path: str | Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED"`` of a file: the last time is that of its inode, where the system has one.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     len(size_and_times(file.name).split())
    3
    """
    stat = os.stat(path)
    return f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"


def attempt(path: Path) -> str:
    """Return what a file is like before it is read; `OSError` if it cannot be looked at."""
    return f"{size_and_times(path)} {os.access(path, os.R_OK)}"


def read_unreadable(store: Store) -> Unreadable:
    """Return the items that could not be read the last time; nothing if another version of the decoders tried."""
    folder = _folder(store)
    try:
        values = load_checked((folder / _NAME).read_text(encoding="utf-8")) if folder else {}
        same = values.get("decoders") == _decoders()
        return {name: (was, problem) for name, (was, problem) in values["items"].items()} if same else {}
    except (OSError, ValueError, TypeError, AttributeError):  # it only saves time
        return {}


def write_unreadable(store: Store, items: Unreadable) -> None:
    """Keep with a store which items could not be read; stores that are no folder keep nothing."""
    folder = _folder(store)
    if folder and items != read_unreadable(store):
        write_text(folder / _NAME, dump_checked({"decoders": _decoders(), "items": items}))


_NAME = "unreadable.json"


def _folder(store: Store) -> Path | None:
    folder = None if "://" in store.address else find_or_keep(Path(store.address))
    return folder if folder and is_store(folder) else None


def _decoders() -> list[object]:
    return [__version__, PIL.__version__, reads_heif()]
