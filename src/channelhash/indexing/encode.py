"""Encode new and changed items into a store, batch by batch."""

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import binarize, pack
from channelhash.codes.stage import unit_parts
from channelhash.data.folder import Exclusions
from channelhash.data.images import image_problem
from channelhash.errors import InputError, JobError, argument
from channelhash.indexing.changes import (
    STATE,
    Changes,
    Header,
    describe_row,
    file_state,
    find_changes,
    reading_state,
    rename_moved,
    values_state,
)
from channelhash.indexing.metadata import read_header
from channelhash.indexing.ocr import open_reader, read_text
from channelhash.indexing.source import Source, Unread
from channelhash.models.description import Model
from channelhash.search.store import Listed, Store
from channelhash.utils.machine import usable_cores
from channelhash.utils.progress import Progress, StageProgress, no_stage_progress

#: Items encoded and written at once. A killed job loses them, memory holds their images, and a
#: server finds them once they are written; more are no quicker.
_BATCH = 32
#: The same of rows of features, which take milliseconds.
_ROWS = 8192

ModelOutputs = dict[str, NDArray[np.float32]]


class _ReadRow(NamedTuple):
    """A row as it was read.

    Attributes:
        image: the model's input for an image file; None for other rows.
        header: the metadata of its file, and its state.
        problems: a line for each part of these that cannot be read.
    """

    image: Any
    header: Header
    problems: Sequence[str] = ()


@dataclass(frozen=True)
class Indexed:
    """Counts of the items of a source after indexing.

    Attributes:
        added: items new to the store.
        replaced: changed items that were encoded again.
        unchanged: items that were up to date.
        pruned: items removed from the store because their image is gone or excluded.
        problems: a line for each item that was left out.
        known: those of ``problems`` about images that could not be read the last time either.
        items: items in the store now.
        seconds: time of the whole.
        rate: items added and replaced per second of encoding and writing.
        moved: items whose image was moved or renamed in its folder. They keep their codes under the
            new id.
        skipped: for a folder, reason -> number of files left out for it, besides those in
            ``problems``.
        remarks: lines on what else to know of the store, and what to do.

    >>> Indexed(added=3, items=3).replaced
    0
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    pruned: int = 0
    problems: tuple[str, ...] = ()
    known: tuple[str, ...] = ()
    items: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    moved: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def __add__(self, rest: "Indexed") -> "Indexed":
        """Return the counts of a source that was read again, with more items."""
        return replace(
            rest,
            added=self.added + rest.added,
            replaced=self.replaced + rest.replaced,
            unchanged=self.unchanged,
            pruned=self.pruned + rest.pruned,
            problems=tuple(dict.fromkeys((*self.problems, *rest.problems))),
            seconds=self.seconds + rest.seconds,
            rate=self.rate or rest.rate,
            moved=self.moved + rest.moved,
        )

    def changes(self, address: str) -> str:
        """Describe what has changed in a store of images; empty if nothing has.

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


class EncodedBatch(NamedTuple):
    """Encoded rows of a source.

    Attributes:
        rows: ``n`` row numbers.
        outputs: modality -> the model's outputs ``(n, k)``.
        metadata: of each row.
        unread: the rows that could not be encoded.
        captions: of each row of images: those of the source, or else the one in its file.
        caption_outputs: ``text`` -> the model's outputs, a row for each caption; empty without
            captions.
        problems: a line for each other thing that cannot be read.

    >>> outputs = {"text": np.zeros((1, 16), np.float32)}
    >>> EncodedBatch([0], outputs, [{"text": "a dog"}], {}, [], {}, []).rows
    [0]
    """

    rows: list[int]
    outputs: ModelOutputs
    metadata: list[Header]
    unread: Mapping[int, Unread]
    captions: Sequence[Sequence[str]]
    caption_outputs: ModelOutputs
    problems: Sequence[str]

    def parts(self, n_bits: int) -> Iterator[tuple[list[int], ModelOutputs]]:
        """Yield the positions, and the outputs, of rows with the same modalities: first the images
        with captions, then all others.

        Several captions count as the mean of their normalized outputs.
        """
        captioned = list[int]()
        if self.caption_outputs:
            captioned = [place for place, texts in enumerate(self.captions) if texts]
            counts = [len(self.captions[place]) for place in captioned]
            text = mean_by_image(unit_parts(self.caption_outputs["text"], n_bits), counts)
            yield captioned, self._outputs_at(captioned) | {"text": text.astype(np.float32)}
        others = sorted(set(range(len(self.rows))).difference(captioned))
        if others:
            yield others, self._outputs_at(others)

    def _outputs_at(self, places: list[int]) -> ModelOutputs:
        return {modality: rows[places] for modality, rows in self.outputs.items()}


def mean_by_image(rows: NDArray[Any], counts: Sequence[int]) -> NDArray[Any]:
    """Return the mean ``(len(counts), k)`` of each image's captions, of which it has ``counts``.

    >>> mean_by_image(np.array([[1.0], [3.0], [7.0]]), [2, 1]).tolist()
    [[2.0], [7.0]]
    """
    by_image = np.split(rows, np.cumsum(counts)[:-1])
    return np.stack([several.mean(axis=0) for several in by_image])


def index_source(
    store: Store,
    load: Callable[[], Model],
    source: Source,
    progress: StageProgress = no_stage_progress,
    prune: bool = False,
    encoded: Sequence[EncodedBatch] = (),
) -> tuple[Indexed, dict[str, Unread]]:
    """Encode the items of ``source`` into ``store``. Return counts, and the images that could not
    be read, by id.

    An item is unchanged if the store has its codes, its metadata are the same, and it was encoded
    from the same text, features or image file. An image file is the same if its size and times, or
    else its content, are the same. An image that was moved in its folder keeps its codes, while its
    tags and date are read again. Images are encoded and written batch by batch in order, while the
    next ones are read, so that a killed job can go on. The model is loaded only if there is
    something to encode. Batches that are already ``encoded`` are written first.
    """
    began = time.perf_counter()
    _check_prune(source, prune)
    changes = find_changes(store, source, progress("looking"))
    _check_numbered(source, changes)
    moved = rename_moved(store, source, changes)
    unread = _still_unread(source, changes.rows)
    known = tuple(map(attrgetter("problem"), unread.values()))
    todo = [row for row in changes.rows if moved.get(row, True) and row not in unread]
    encoding = time.perf_counter()
    written = set[int]()
    for batch in _batches(load, source, todo, encoded, progress("indexing")):
        _write(store, source.records.ids, batch, changes.cleared_tags)
        unread |= batch.unread
        changes.problems += batch.problems
        written.update(batch.rows)
    encoding_seconds = time.perf_counter() - encoding
    replaced = len(written & changes.stored)
    pruned = _remove(store, changes.missing if prune else _excluded(source, changes.missing))
    unread_by_id = {source.records.ids[row]: unread[row] for row in sorted(unread)}
    lines = [image.problem for image in unread_by_id.values()]
    indexed = Indexed(
        added=len(written) - replaced,
        replaced=replaced,
        unchanged=len(source.records) - len(changes.rows),
        pruned=pruned,
        problems=(*source.records.problems, *lines, *changes.problems),
        known=known,
        items=len(store),
        seconds=time.perf_counter() - began,
        rate=len(written) / encoding_seconds if written else 0.0,
        moved=len(moved),
        skipped=_skipped(source),
        remarks=_say_textless(store, changes.textless),
    )
    return indexed, unread_by_id


def _say_textless(store: Store, count: int) -> tuple[str, ...]:
    """Return the line on images that were stored before the text in them could be read."""
    if not count:
        return ()
    command = f"channelhash index add {shlex.quote(store.address)}"
    said = f"pictures stored without the text in them: {count:,}"
    return (f"{said}; {command} --ocr reads it, --no-ocr leaves it",)


def _check_numbered(source: Source, changes: Changes) -> None:
    """Refuse vectors without ids that would replace others of the same row numbers."""
    replaced = changes.stored.intersection(changes.rows)
    if source.numbered is not None and replaced:
        raise InputError(
            f"{source.numbered}: has no ids, and row numbers are those of {len(replaced):,} items "
            f"with other vectors; give a text file of ids with {argument('ids')}"
        )


def _skipped(source: Source) -> dict[str, int]:
    return source.records.removed if source.folder is not None else {}


def _check_prune(source: Source, prune: bool) -> None:
    if prune and source.folder is None:
        raise InputError(f"{argument('prune')}: goes with a folder of pictures; leave it out")


def _still_unread(source: Source, rows: Sequence[int]) -> dict[int, Unread]:
    """Return the rows whose image could not be read the last time, and has not changed."""
    remembered = source.photos.unread if source.photos else {}
    unread = {}
    for row in rows:
        known = remembered.get(source.records.ids[row])
        with suppress(OSError):  # encoding it says what is wrong
            if known and known.state == reading_state(Path(str(source.metadata[row]["image"]))):
                unread[row] = known
    return unread


def _batches(
    load: Callable[[], Model],
    source: Source,
    todo: Sequence[int],
    encoded: Sequence[EncodedBatch],
    advance: Progress,
) -> Iterator[EncodedBatch]:
    """Yield the encoded batches, then encode the other rows; report progress after each batch."""
    rest = set(todo)
    for batch in encoded:
        rest -= {*batch.rows, *batch.unread}
    if todo:
        advance(0, len(todo))
    done = 0
    rest_batches = encode_batches(load(), source, sorted(rest)) if rest else ()
    for batch in chain(encoded, rest_batches):
        yield batch
        done += len(batch.rows) + len(batch.unread)
        advance(done, len(todo))


def _excluded(source: Source, items: Sequence[Listed]) -> list[Listed]:
    """Return the items whose image is excluded by a pattern."""
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
    """Delete the items that have not moved to another id, and return their number."""
    names = [item.id for item in items if item.id in store]
    return store.delete(names) if names else 0


def _write(
    store: Store, ids: Sequence[str], batch: EncodedBatch, cleared_tags: Mapping[int, Header]
) -> None:
    """Write a batch, and clear the tags of its rows that its files no longer have."""
    n_bits = store.n_bits or 0
    for places, outputs in batch.parts(n_bits):
        try:
            codes = {
                modality: pack(binarize(rows[:, :n_bits])) for modality, rows in outputs.items()
            }
        except ValueError as error:
            raise JobError(
                f"{error}; the model's weights are damaged or the training broke, train again"
            ) from None
        rows = [batch.rows[place] for place in places]
        metadata = [
            {**cleared_tags.get(row, {}), **batch.metadata[place]}
            for row, place in zip(rows, places, strict=True)
        ]
        store.upsert(
            [ids[row] for row in rows],
            codes,
            metadata=metadata,
            projections=outputs if store.projected else None,
        )


def encode_batches(model: Model, source: Source, todo: Sequence[int]) -> Iterator[EncodedBatch]:
    """Encode rows of a source, and captions of images, batch by batch in order. The source comes
    from `Source.encodable`.
    """
    size = _ROWS if source.has_only_rows else _BATCH
    batches = [list(todo[start : start + size]) for start in range(0, len(todo), size)]
    read = _read_images if source.reads_files else _read_values
    for rows, readings in zip(batches, read(source, model, batches), strict=True):
        yield _encode_batch(model, source, dict(zip(rows, readings, strict=True)))


def _encode_batch(
    model: Model, source: Source, readings: Mapping[int, _ReadRow | Unread]
) -> EncodedBatch:
    unread = dict[int, Unread]()
    readable = dict[int, _ReadRow]()
    problems = list[str]()
    for row, reading in readings.items():
        if isinstance(reading, Unread):
            unread[row] = reading
        else:
            readable[row] = reading
            problems += reading.problems
    metadata = [describe_row(source, row, reading.header) for row, reading in readable.items()]
    captions = list[Sequence[str]]()
    if _takes_captions(model, source):
        described = zip(readable, metadata, strict=True)
        captions = [_captions(source, row, values) for row, values in described]
    texts = [*chain.from_iterable(captions)]
    caption_outputs = {"text": np.asarray(model.outputs("text", texts))} if texts else {}
    outputs = _encode_rows(model, source, readable) if readable else {}
    return EncodedBatch([*readable], outputs, metadata, unread, captions, caption_outputs, problems)


def _encode_rows(model: Model, source: Source, readings: Mapping[int, _ReadRow]) -> ModelOutputs:
    outputs = {}
    for name, values in source.records.take([*readings]).items.items():
        if name == "image" and source.reads_files:
            images = np.stack([reading.image for reading in readings.values()])
            encoded = model.outputs_prepared({name: images})[name]
        else:
            encoded = model.outputs(name, values)
        outputs[name] = np.asarray(encoded)
    return outputs


def _takes_captions(model: Model, source: Source) -> bool:
    """Return whether a model encodes captions of images: the source has no texts of its own."""
    has_texts = "text" in source.records.items
    return source.reads_files and "text" in model.modalities and not has_texts


def _captions(source: Source, row: int, metadata: Header) -> Sequence[str]:
    """Return the captions of an image in the source, or else the one in its file."""
    if source.captions and source.captions[row]:
        return source.captions[row]
    text = metadata.get("text")
    return [text] if isinstance(text, str) else []


def _read_values(
    source: Source, model: Model, batches: Sequence[list[int]]
) -> Iterator[list[_ReadRow | Unread]]:
    """Yield the states of each batch of rows of texts and features."""
    for rows in batches:
        yield [_ReadRow(None, {STATE: values_state(source, row)}) for row in rows]


def _read_images(
    source: Source, model: Model, batches: Sequence[list[int]]
) -> Iterator[list[_ReadRow | Unread]]:
    """Yield the images of each batch of rows. While a batch is encoded, threads read the next
    one.
    """
    # Feature extractors may be anyone's code, so only one thread calls them.
    threads = ThreadPoolExecutor(1 if model.takes_rows("image") else usable_cores())
    reads_text = source.reads_text
    paths = source.records.items["image"]

    def begin(rows: list[int]) -> list[Future[_ReadRow | Unread]]:
        return [threads.submit(_read_image, model, Path(paths[row]), reads_text) for row in rows]

    try:
        if reads_text:
            open_reader()  # once, before several threads need it
        begun = map(begin, (*batches, []))
        for batch, _ in pairwise(begun):  # begins the next batch as well
            yield [future.result() for future in batch]
    finally:
        threads.shutdown(cancel_futures=True)


def _read_image(model: Model, path: Path, reads_text: bool) -> _ReadRow | Unread:
    """Read a model's input from an image, and the metadata of its file. Raise errors that are not
    the file's fault.
    """
    before = ""
    try:
        before = reading_state(path)
        state = file_state(path)
        image = np.asarray(model.prepare("image", [path])[0])
        header, problems = read_header(path, int(state.split()[1]))
        text, lines = read_text(path) if reads_text else (None, [])
        return _ReadRow(image, {**header, "ocr": text, STATE: state}, [*problems, *lines])
    except (InputError, OSError) as error:
        problem = image_problem(path)
        if problem:
            return Unread(problem, before)
        if isinstance(error, OSError) or reading_state(path) != before:
            return Unread(f"{path}: changed while it was read; index it again", "")
        raise
