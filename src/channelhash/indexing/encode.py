"""Encode items into a store, batch by batch; items that have not changed are left alone."""

import os
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL
from numpy.typing import NDArray

from channelhash.codes import binarize, pack, unit_rows
from channelhash.data.folder import Exclusions
from channelhash.data.images import image_problem
from channelhash.errors import InputError, JobError
from channelhash.indexing.metadata import (
    are_tags_current,
    former_tags,
    is_of_version,
    read_header,
)
from channelhash.indexing.ocr import is_long, open_reader, read_text
from channelhash.indexing.source import Source, Unread
from channelhash.models.description import Model
from channelhash.search.browsing import DATES
from channelhash.search.items import Metadata, Value
from channelhash.search.store import Listed, Store
from channelhash.search.transfer import upsert_items
from channelhash.utils.hashes import content_hash, file_hash
from channelhash.utils.machine import usable_cores
from channelhash.utils.progress import Progress, StageProgress, no_stage_progress

#: Metadata key of an item's state, which identifies what it was encoded from: size, times (of the
#: last modification and of the last change of the inode, which no editor can set back) and SHA-256
#: of its image file, or the hash of its text or features. It is written with the codes: a killed
#: job leaves no item without it.
_STATE = "encoded_from"

_BATCH = 256  # items encoded and written at once
_LOOK = 1000  # items between two calls of a progress callback
_AT_ONCE = 1000  # items updated at once, or renamed in two transactions, the new ones first: a killed job has both

_Header = dict[str, Value]
_NOTHING: _Header = {}  # one for all items that stay as they are
_Outputs = NDArray[np.float32]
#: What a model takes of an image file, None for other rows; the metadata of a row's origin, and a
#: line for what of these cannot be read.
_Reading = tuple[Any, _Header, list[str]]


@dataclass(frozen=True)
class Indexed:
    """Counts of the items of a source after indexing.

    Attributes:
        added: items new to the store.
        replaced: items that had changed and were encoded again.
        unchanged: items that were left alone.
        pruned: items removed from the store because their image is gone or left out.
        problems: a line for each item that was left out.
        items: items in the store now.
        seconds: time of the whole.
        rate: items added and replaced a second, by the time of encoding and writing them.
        moved: items whose image was moved or renamed in its folder: they keep their codes under the
            new id.
        skipped: of a folder, reason -> number of files left out for it, besides those of
            ``problems``.

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

    def changes(self, address: str) -> str:
        """Return what has changed in a store of pictures, if anything.

        >>> Indexed(added=3, items=3).changes("photos")
        '3 added: 3 pictures in photos (0 s)'
        """
        counts = {
            "added": self.added,
            "changed": self.replaced,
            "moved": self.moved,
            "removed": self.pruned,
        }
        changed = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        return changed and f"{changed}: {self.items:,} pictures in {address} ({self.seconds:.0f} s)"


class Batch(NamedTuple):
    """Encoded rows of a source.

    Attributes:
        rows: ``n`` row numbers.
        outputs: modality -> the model's outputs ``(n, k)``.
        metadata: what is known of each row.
        unread: the rows that could not be encoded.
        captions: of each row of images, those of the source, or else the one in its file.
        caption_outputs: ``text`` -> the model's outputs of all captions, a row each; empty if there
            are none.
        problems: a line for what else cannot be read.

    >>> Batch([0], {"text": np.zeros((1, 16), np.float32)}, [{"text": "a dog"}], {}, [], {}, []).rows
    [0]
    """

    rows: list[int]
    outputs: dict[str, _Outputs]
    metadata: list[dict[str, Value]]
    unread: Mapping[int, Unread]
    captions: Sequence[Sequence[str]]
    caption_outputs: dict[str, _Outputs]
    problems: Sequence[str]

    def parts(self) -> Iterator[tuple[list[int], dict[str, _Outputs]]]:
        """Yield places in the batch whose rows have outputs of the same modalities, and these:
        first the images that have captions, then all others.

        Several captions count as the mean of their outputs, each divided by its norm.
        """
        captioned = [
            place for place, texts in enumerate(self.captions) if texts and self.caption_outputs
        ]
        if captioned:
            ends = np.cumsum([len(self.captions[place]) for place in captioned])[:-1]
            each = np.split(unit_rows(self.caption_outputs["text"]), ends)
            text = np.stack([outputs.mean(axis=0) for outputs in each]).astype(np.float32)
            yield (
                captioned,
                {modality: rows[captioned] for modality, rows in self.outputs.items()}
                | {"text": text},
            )
        if others := sorted({*range(len(self.rows))} - {*captioned}):
            yield others, {modality: rows[others] for modality, rows in self.outputs.items()}


class _Changes(NamedTuple):
    """What a store lacks of a source.

    Attributes:
        rows: to be encoded, in order.
        stored: of each row that is stored, the keys that its file had the last time, with None.
        missing: items whose image is no longer in the folder.
        problems: a line for each tag that cannot be read.
    """

    rows: list[int]
    stored: dict[int, _Header]
    missing: list[Listed]
    problems: list[str]


def index_source(
    store: Store,
    load: Callable[[], Model],
    source: Source,
    progress: StageProgress = no_stage_progress,
    prune: bool = False,
    ready: Sequence[Batch] = (),
) -> tuple[Indexed, dict[str, Unread]]:
    """Encode the items of ``source`` and put them into ``store``; return also what could not be
    read, by its id.

    An item is left alone if the store has its codes, its metadata are the same, and it was encoded
    from the same text, features or image file: one of the same size and modification time, or else
    of the same content. An image that was moved in its folder keeps its codes; what its name,
    folder, time or sidecar say is read again. Images are encoded and written batch by batch in
    order, while the next ones are read: a job that was killed goes on where it was. The model is
    loaded where there is something to encode.
    """
    began = time.perf_counter()
    if prune and source.folder is None:
        raise InputError("--prune: goes with a folder of pictures; leave it out")
    changes = _find_changes(store, source, progress("look"))
    moved = _keep_moved(store, source, changes)
    unread = _still_unread(source, changes.rows)
    todo = [row for row in changes.rows if moved.get(row, True) and row not in unread]
    encoding = time.perf_counter()
    written = set[int]()
    for batch in _batches(load, source, todo, ready, progress("encode")):
        _write(store, source.records.ids, batch, changes.stored)
        unread |= batch.unread
        changes.problems.extend(batch.problems)
        written.update(batch.rows)
    encoding_seconds = time.perf_counter() - encoding
    replaced = len(written & changes.stored.keys())
    removals = changes.missing if prune else _excluded(source, changes.missing)
    pruned = _remove(store, removals)
    problems = [unread[row].problem for row in sorted(unread)]
    indexed = Indexed(
        added=len(written) - replaced,
        replaced=replaced,
        unchanged=len(source.records) - len(changes.rows),
        pruned=pruned,
        problems=(*source.records.problems, *problems, *changes.problems),
        items=len(store),
        seconds=time.perf_counter() - began,
        rate=len(written) / encoding_seconds if written else 0.0,
        moved=len(moved),
        skipped=source.records.removed if source.folder is not None else {},
    )
    return indexed, {source.records.ids[row]: unread[row] for row in sorted(unread)}


def _batches(
    load: Callable[[], Model],
    source: Source,
    todo: Sequence[int],
    ready: Sequence[Batch],
    advance: Progress,
) -> Iterator[Batch]:
    """Yield the batches that are ready, then those of the other rows, and say how far it is once
    each is written.
    """
    encoded = {row for batch in ready for row in (*batch.rows, *batch.unread)}
    rest = [row for row in todo if row not in encoded]
    if todo:
        advance(0, len(todo))
    done = 0
    for batch in chain(ready, encode_batches(load(), source, rest) if rest else ()):
        yield batch
        done += len(batch.rows) + len(batch.unread)
        advance(done, len(todo))


def _excluded(source: Source, items: Sequence[Listed]) -> list[Listed]:
    """Return the items whose image is left out by a pattern."""
    photos = source.photos
    if photos is None or not photos.exclude:
        return []
    exclusions = Exclusions(photos.exclude)
    names = [Path(str(item.metadata["image"])).relative_to(photos.folder) for item in items]
    return [
        item
        for item, name in zip(items, names, strict=True)
        if exclusions.match_below(name.as_posix())
    ]


def _remove(store: Store, items: Sequence[Listed]) -> int:
    """Delete the items that have not moved to another id, and return how many these are."""
    names = [item.id for item in items if item.id in store]
    return store.delete(names) if names else 0


def _write(store: Store, ids: Sequence[str], batch: Batch, former: Mapping[int, _Header]) -> None:
    """Write a batch; ``former`` are of each stored row the keys that its file had the last time,
    with None.
    """
    for places, outputs in batch.parts():
        try:
            codes = {modality: pack(binarize(rows)) for modality, rows in outputs.items()}
        except ValueError as error:
            raise JobError(
                f"{error}; the model's weights are damaged or the training broke, train again"
            ) from None
        metadata = [
            {**former.get(batch.rows[place], {}), **batch.metadata[place]} for place in places
        ]
        names = [ids[batch.rows[place]] for place in places]
        store.upsert(
            names, codes, metadata=metadata, projections=outputs if store.projected else None
        )


def encode_batches(model: Model, source: Source, todo: Sequence[int]) -> Iterator[Batch]:
    """Encode rows of a source that `Source.encodable` returned, and captions of images, batch by
    batch in order.
    """
    batches = [list(todo[start : start + _BATCH]) for start in range(0, len(todo), _BATCH)]
    takes_captions = (
        source.reads_files and "text" in model.modalities and "text" not in source.records.items
    )
    read = _read_images if source.reads_files else _read_values
    for batch_rows, readings in zip(batches, read(source, model, batches), strict=True):
        unread = {
            row: each
            for row, each in zip(batch_rows, readings, strict=True)
            if isinstance(each, Unread)
        }
        rows = [row for row in batch_rows if row not in unread]
        contents = [each for each in readings if not isinstance(each, Unread)]
        metadata = [
            _describe(source, row, header)
            for row, (_, header, _) in zip(rows, contents, strict=True)
        ]
        outputs = {}
        for name, values in source.records.take(rows).items.items() if rows else ():
            if name == "image" and source.reads_files:
                encoded = model.outputs_prepared(
                    {name: np.stack([image for image, _, _ in contents])}
                )[name]
            else:
                encoded = model.outputs(name, values)
            outputs[name] = np.asarray(encoded)
        described = zip(rows, metadata, strict=True) if takes_captions else ()
        captions = [_captions(source, row, values) for row, values in described]
        texts = list(chain.from_iterable(captions))
        caption_outputs = {"text": np.asarray(model.outputs("text", texts))} if texts else {}
        problems = [line for _, _, lines in contents for line in lines]
        yield Batch(rows, outputs, metadata, unread, captions, caption_outputs, problems)


def _describe(source: Source, row: int, header: _Header) -> _Header:
    """Return what is known of a row: what its file says, and before that what the source says."""
    columns = source.metadata[row]
    dates = dict.fromkeys(DATES) if any(map(columns.get, DATES)) else {}  # a given one stands alone
    return {**header, **dates, **columns, _STATE: header[_STATE]}


def _captions(source: Source, row: int, metadata: _Header) -> Sequence[str]:
    if source.captions and source.captions[row]:
        return source.captions[row]
    return [text] if isinstance(text := metadata.get("text"), str) else []


def _read_values(
    source: Source, model: Model, batches: Sequence[list[int]]
) -> Iterator[list[_Reading | Unread]]:
    """Yield what is known of each batch of rows of texts and features."""
    for rows in batches:
        yield [(None, {_STATE: _state_of_values(source, row)}, []) for row in rows]


def _read_images(
    source: Source, model: Model, batches: Sequence[list[int]]
) -> Iterator[list[_Reading | Unread]]:
    """Yield the images of each batch of rows; while a batch is encoded, threads read the next
    one.
    """
    # An extractor may be anyone's code: it is called by one thread.
    threads = ThreadPoolExecutor(1 if model.takes_rows("image") else usable_cores())
    reads_text = source.reads_text
    try:
        if reads_text:
            open_reader()  # once, before threads need it
        begun = (
            [
                threads.submit(
                    _read_image, model, Path(source.records.items["image"][row]), reads_text
                )
                for row in rows
            ]
            for rows in (*batches, ())
        )
        for batch, _ in pairwise(begun):  # the next one is begun, too
            yield [future.result() for future in batch]
    finally:
        threads.shutdown(cancel_futures=True)


def _read_image(model: Model, path: Path, reads_text: bool) -> _Reading | Unread:
    """Return what a model takes of an image and what its file says; an error that is not the file's
    fault is raised.
    """
    before = ""
    try:
        before = state_of_reading(path)
        state = _state_of_file(path)
        image = np.asarray(model.prepare("image", [path])[0])
        header, problems = read_header(path, int(state.split()[1]))
        text, lines = read_text(path) if reads_text else (None, [])
        return image, {**header, "ocr": text, _STATE: state}, [*problems, *lines]
    except (InputError, OSError) as error:
        if problem := image_problem(path):
            return Unread(problem, before)
        if isinstance(error, OSError) or state_of_reading(path) != before:
            return Unread(f"{path}: changed while it was read; index it again", "")
        raise


def _keep_moved(store: Store, source: Source, changes: _Changes) -> dict[int, bool]:
    """Give items whose file is gone the ids of new files with the same content; return the rows of
    these, and whether each is to be encoded again because its caption is another.

    An item takes its codes and metadata along, but for what its place said. Only new files of a
    size that a lost one had are read.
    """
    by_size: dict[str, list[Listed]] = defaultdict(list)
    for item in changes.missing:
        by_size[str(item.metadata.get(_STATE, "")).partition(" ")[0]].append(item)
    moves: list[tuple[Listed, int, _Header]] = []
    for row in changes.rows if by_size else ():
        if row in changes.stored:
            continue
        path = Path(source.records.items["image"][row])
        try:
            candidates = by_size.get(str(path.stat().st_size), [])
            state = _state_of_file(path) if candidates else ""
            former = next(
                (each for each in candidates if _is_moved(each, state, source, row)), None
            )
            if former is None:
                continue
            news = _read_again(former, source, row, state, changes.problems)
        except OSError:
            continue  # encoding it says what is wrong
        candidates.remove(former)
        moves.append((former, row, news))
    for start in range(0, len(moves), _AT_ONCE):
        _rename(store, source, moves[start : start + _AT_ONCE])
    moved = {row: "text" in news for _, row, news in moves}
    changes.stored.update({row: _NOTHING for row, is_changed in moved.items() if is_changed})
    return moved


def _is_moved(item: Listed, state: str, source: Source, row: int) -> bool:
    """Return whether an item was encoded from the content of a row, and its own file is gone."""
    text = source.metadata[row].get("text")
    return (
        _content_of(str(item.metadata.get(_STATE, ""))) == _content_of(state)
        and source.modalities_of(row) <= set(item.modalities)
        and text in (None, item.metadata.get("text"))
        and not os.path.lexists(str(item.metadata["image"]))
    )


def _rename(store: Store, source: Source, moves: Sequence[tuple[Listed, int, _Header]]) -> None:
    former = [item.id for item, _, _ in moves]
    renamed = [
        replace(item, id=source.records.ids[row], metadata={**item.metadata, **news})
        for item, (_, row, news) in zip(store.get(former), moves, strict=True)
    ]
    upsert_items(store, renamed)
    store.delete(former)


def _find_changes(store: Store, source: Source, progress: Progress) -> _Changes:
    """Compare a source with what is stored, by one pass over the store and a look at each file.

    Where only an image's times or tags are new, or its folder was moved, or copied together with
    the store that lies in it, the store is updated here.
    """
    copied = source.folder is not None and Path(store.address).resolve().is_relative_to(
        source.folder.resolve()
    )
    ids = source.records.ids
    rows = {name: row for row, name in enumerate(ids)}
    images = (
        {values.get("image") for values in source.metadata} if source.folder is not None else set()
    )
    todo = list[int]()
    stored = dict[int, _Header]()
    missing = list[Listed]()
    problems = list[str]()
    touched: list[tuple[str, dict[str, Value]]] = []
    for item in store.listed():
        if (row := rows.get(item.id)) is None:
            if source.folder is not None and _lost_image(
                item, source.folder, source.unread, images
            ):
                missing.append(item)
            continue
        news = _news(item, source, row, copied, problems)
        stored[row] = former_tags(item.metadata) if news is None else _NOTHING
        if news is None:
            todo.append(row)
        elif news:
            touched.append((item.id, news))
        if len(stored) % _LOOK == 0:
            progress(len(stored), len(ids))
    for start in range(0, len(touched), _AT_ONCE):
        part = touched[start : start + _AT_ONCE]
        store.update([name for name, _ in part], [news for _, news in part])
    todo = sorted([*todo, *(row for row in range(len(ids)) if row not in stored)])
    if ids:
        progress(len(ids), len(ids))
    return _Changes(todo, stored, missing, problems)


def _lost_image(
    item: Listed, folder: Path, unread: Sequence[str], images: Collection[Value]
) -> bool:
    """Return whether an item's image lay in a folder and is no longer one of its ``images``.

    What lies where nothing can be read now stays, and so does an item with an id of its own whose
    file is there.
    """
    image = item.metadata.get("image")
    if not isinstance(image, str) or image in images or not Path(image).is_relative_to(folder):
        return False
    name = Path(image).relative_to(folder).as_posix()
    if any(f"{name}/".startswith(f"{path}/") for path in unread):
        return False
    return unicodedata.normalize("NFC", name) == unicodedata.normalize(
        "NFC", item.id
    ) or not os.path.lexists(image)


def _news(
    item: Listed, source: Source, row: int, copied: bool, problems: list[str]
) -> dict[str, Value] | None:
    """Return the metadata to update of an item whose codes are still right, or None if it is to be
    encoded again.

    A store that lies in the source's folder may have been ``copied`` with it: the same content at
    an item's old path is then that of the original. Lines on tags that cannot be read join
    ``problems``.
    """
    metadata = source.metadata[row]
    differing = {key: value for key, value in metadata.items() if item.metadata.get(key) != value}
    old = str(item.metadata.get(_STATE, ""))
    state = _current_state(source, row, old)
    if source.reads_text and _lacks_text(item.metadata, bool(source.ocr)):
        return None
    if "image" in differing and not (copied and state):
        former = item.metadata.get("image")  # both folders may hold a ``1.jpg``
        if source.folder is not None and isinstance(former, str) and Path(former).exists():
            line = f"{metadata.get('image')}: the id {item.id!r} is already that of {former}"
            raise InputError(f"{line}; index the folder that holds both")
    lacks_codes = not source.modalities_of(row) <= set(item.modalities)
    if state is None or lacks_codes or differing.keys() - {"image"}:
        return None
    news = differing | ({_STATE: state} if state != old else {})
    if not source.reads_files:
        return news
    is_known = not news and are_tags_current(Path(str(metadata["image"])), item.metadata)
    if not is_known:
        with suppress(OSError):  # an image that cannot be read any more keeps its tags
            news |= _read_again(item, source, row, state, problems)
    return None if "text" in news else news


def _lacks_text(metadata: Metadata, asked: bool) -> bool:
    """Return whether the text in an image is to be read: one without, where that is asked for, or a
    long one of which an earlier version read little.
    """
    if "ocr" not in metadata:
        return asked
    width, height = metadata.get("width"), metadata.get("height")
    if is_of_version(metadata) or not isinstance(width, int) or not isinstance(height, int):
        return False
    return is_long(width, height)


def _read_again(
    item: Listed, source: Source, row: int, state: str, problems: list[str]
) -> dict[str, Value]:
    """Return what is new of an item whose image lies at a row now, as if it were read for the first
    time: tags, and the date that its name, folder or time says.

    Lines on tags that cannot be read join ``problems``.
    """
    path = Path(str(source.metadata[row]["image"]))
    header, lines = read_header(path, int(state.split()[1]))
    problems += lines
    tags = {**former_tags(item.metadata), **_describe(source, row, {**header, _STATE: state})}
    return {key: value for key, value in tags.items() if item.metadata.get(key) != value}


def _current_state(source: Source, row: int, old: str) -> str | None:
    """Return the `_STATE` of a row if its content is still that of ``old``, else None."""
    if not source.reads_files:
        state = _state_of_values(source, row)
        return state if state == old else None
    path = str(source.metadata[row]["image"])
    try:
        if old.startswith(f"{_size_and_times(path)} "):
            return old
        state = _state_of_file(Path(path))
    except OSError:
        return None  # encoding it says what is wrong
    return state if _content_of(state) == _content_of(old) else None


def _content_of(state: str) -> tuple[str, str]:
    """Return size and SHA-256 of a state."""
    return state.partition(" ")[0], state.rpartition(" ")[2]


def _state_of_file(path: Path) -> str:
    """Return ``"SIZE MODIFIED CHANGED SHA256"`` of an image file; `OSError` if it cannot be
    read.
    """
    return f"{_size_and_times(path)} {file_hash(path)}"  # a change in between is seen the next time


def _state_of_values(source: Source, row: int) -> str:
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


def _still_unread(source: Source, rows: Sequence[int]) -> dict[int, Unread]:
    """Return those of the rows whose image could not be read the last time and is the same file."""
    remembered = source.photos.unread if source.photos else {}
    unread = {}
    for row in rows:
        known = remembered.get(source.records.ids[row])
        with suppress(OSError):  # encoding it says what is wrong
            if known and known.state == state_of_reading(str(source.metadata[row]["image"])):
                unread[row] = known
    return unread


def state_of_reading(path: str | Path) -> str:
    """Return what may decide whether an image can be read, its file and the library's version, and
    where it lies.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "1.jpg")
    ...     file.touch()
    ...     state_of_reading(file).startswith("0 ")
    True
    """
    return f"{_size_and_times(path)} Pillow {PIL.__version__} {path}"
