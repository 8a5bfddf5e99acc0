"""Encode items into a store, batch by batch; items that have not changed are left alone."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack, unit_rows
from channelhash.data.images import image_problem
from channelhash.errors import InputError, JobError
from channelhash.models.description import Model
from channelhash.photos import changes
from channelhash.photos.changes import STATE, Indexed
from channelhash.photos.source import Source, Unread, with_modalities
from channelhash.search.items import DATES, Value, file_date
from channelhash.search.store import Listed, Store
from channelhash.utils.environment import usable_cores
from channelhash.utils.image_files import date_taken, open_image, upright_size
from channelhash.utils.progress import StageProgress, no_stage_progress

_BATCH = 256  # items encoded and written at once

_Header = dict[str, Value]
_Outputs = NDArray[np.float32]

#: What a model takes of an image, and the metadata of its file.
_Reading = tuple[NDArray[Any], _Header]


class Batch(NamedTuple):
    """Encoded rows of a source, all of the same modalities.

    Attributes:
        rows: ``n`` row numbers.
        outputs: modality -> the model's outputs ``(n, k)``.
        metadata: what is known of each row.
        unread: the rows that could not be encoded.

    >>> Batch([0], {"text": np.zeros((1, 16), np.float32)}, [{"text": "a dog"}], {}).rows
    [0]
    """

    rows: list[int]
    outputs: dict[str, _Outputs]
    metadata: list[dict[str, Value]]
    unread: Mapping[int, Unread]


def index_source(
    store: Store,
    load: Callable[[], Model],
    source: Source,
    progress: StageProgress = no_stage_progress,
    prune: bool = False,
    ready: Sequence[Batch] = (),
) -> tuple[Indexed, dict[str, Unread]]:
    """Encode the items of ``source`` and put them into ``store``; return also what could not be read, by its id.

    An item is left alone if the store has its codes, its metadata are the same, and it was encoded from the same text,
    features or image file: one of the same size and modification time, or else of the same content. An image that was
    moved in its folder keeps its codes. Images are encoded and written batch by batch in order, while the next ones are
    read: a job that was killed goes on where it was. The model is loaded where there is something to encode.
    """
    began, ids = time.perf_counter(), source.records.ids
    if prune and source.folder is None:
        raise InputError("--prune: goes with a folder of pictures; leave it out")
    changed, stored, missing = changes.find_changes(store, source, progress("look"))
    moved = _keep_moved(store, source, [row for row in changed if row not in stored], missing)
    unread = changes.still_unread(source, changed)
    todo = [row for row in changed if row not in moved and row not in unread]
    encoding, advance = time.perf_counter(), progress("encode")
    written, done = set[int](), 0
    encoded = {row for batch in ready for row in (*batch.rows, *batch.unread)}
    rest = [row for row in todo if row not in encoded]
    for batch in chain(ready, encode_batches(load(), source, rest) if rest else ()):
        _write(store, ids, batch)
        unread |= batch.unread
        done += len(batch.rows) + len(batch.unread)
        written.update(batch.rows)
        advance(done, len(todo))
    encoding_seconds = time.perf_counter() - encoding
    replaced = len(written & stored)
    lost = [item.id for item in missing if item.id in store] if prune else []  # those moved have another id now
    pruned = store.delete(lost) if lost else 0
    indexed = Indexed(
        added=len(written) - replaced,
        replaced=replaced,
        unchanged=len(source.records) - len(changed),
        pruned=pruned,
        problems=(*source.records.problems, *(unread[row].problem for row in sorted(unread))),
        items=len(store),
        seconds=time.perf_counter() - began,
        rate=len(written) / encoding_seconds if written else 0.0,
        moved=len(moved),
        skipped=source.records.removed if source.folder is not None else {},
    )
    return indexed, {ids[row]: unread[row] for row in sorted(unread)}


def _write(store: Store, ids: Sequence[str], batch: Batch) -> None:
    if batch.rows:
        codes = {modality: _pack_outputs(outputs) for modality, outputs in batch.outputs.items()}
        store.upsert(
            [ids[row] for row in batch.rows],
            codes,
            metadata=batch.metadata,
            projections=batch.outputs if store.projected else None,
        )


def encodable(source: Source, model: Model) -> Source:
    """Return the source with the modalities that the model encodes, in the model's order."""
    encoded = with_modalities(source, model.modalities)
    arrays = [modality for modality, values in encoded.records.items.items() if isinstance(values, np.ndarray)]
    if not all(map(model.takes_rows, arrays)):
        raise InputError(f"the items are features, but the model {model.name!r} reads pictures and texts; give those")
    return encoded


def encode_batches(model: Model, source: Source, todo: Sequence[int]) -> Iterator[Batch]:
    """Encode rows of a source that `encodable` returned, batch by batch in order."""
    batches = [list(todo[start : start + _BATCH]) for start in range(0, len(todo), _BATCH)]
    modalities = tuple(source.records.items)
    if not changes.reads_files(source):
        for rows in batches:
            outputs = {name: np.asarray(model.outputs(name, _take(source, name, rows))) for name in modalities}
            metadata = [{**source.metadata[row], STATE: changes.state_of_values(source, row)} for row in rows]
            yield Batch(rows, outputs, metadata, {})
        return
    for batch_rows, readings in zip(batches, _read_images(source, model, batches), strict=True):
        unread = {row: each for row, each in zip(batch_rows, readings, strict=True) if isinstance(each, Unread)}
        rows = [row for row in batch_rows if row not in unread]
        images = [each for each in readings if not isinstance(each, Unread)]
        metadata = []
        for row, (_, header) in zip(rows, images, strict=True):
            columns = source.metadata[row]
            dates = dict.fromkeys(DATES) if any(map(columns.get, DATES)) else {}  # a given one stands alone
            metadata.append({**header, **dates, **columns, STATE: header[STATE]})
        outputs = {}
        if images:
            inputs = {"image": np.stack([image for image, _ in images])}
            outputs = {name: np.asarray(encoded) for name, encoded in model.outputs_prepared(inputs).items()}
        for modality in modalities:
            if modality != "image" and rows:
                outputs[modality] = np.asarray(model.outputs(modality, _take(source, modality, rows)))
        batch = Batch(rows, outputs, metadata, unread)
        if texts := [text for row in rows for text in source.captions[row]] if source.captions else []:
            yield from with_captions(source, batch, np.asarray(model.outputs("text", texts)))
        else:
            yield batch


def with_captions(source: Source, batch: Batch, each: _Outputs) -> Iterator[Batch]:
    """Yield the images of a batch that have captions, with the outputs of these, and then the others.

    Several captions count as the mean of their outputs, each divided by its norm.
    """
    captions = [source.captions[row] if source.captions else () for row in batch.rows]
    ends = np.cumsum([len(texts) for texts in captions if texts])[:-1]
    text = np.stack([outputs.mean(axis=0) for outputs in np.split(unit_rows(each), ends)]).astype(np.float32)
    captioned = [place for place, texts in enumerate(captions) if texts]
    others = [place for place, texts in enumerate(captions) if not texts]
    first = _take_places(batch, captioned)
    yield first._replace(outputs=first.outputs | {"text": text}, unread=batch.unread)
    if others:
        yield _take_places(batch, others)


def _take_places(batch: Batch, places: list[int]) -> Batch:
    outputs = {modality: rows[places] for modality, rows in batch.outputs.items()}
    return Batch([batch.rows[place] for place in places], outputs, [batch.metadata[place] for place in places], {})


def _pack_outputs(outputs: _Outputs) -> PackedCodes:
    try:
        return pack(binarize(outputs))
    except ValueError as error:
        raise JobError(f"{error}; the model's weights are damaged or the training broke, train again") from None


def _take(source: Source, modality: str, rows: Sequence[int]) -> Any:
    values = source.records.items[modality]
    return values[list(rows)] if isinstance(values, np.ndarray) else [values[row] for row in rows]


def _read_images(source: Source, model: Model, batches: Sequence[list[int]]) -> Iterator[list[_Reading | Unread]]:
    """Yield the images of each batch of rows; while a batch is encoded, threads read the next one."""
    # An extractor may be anyone's code: it is called by one thread.
    threads = ThreadPoolExecutor(1 if model.takes_rows("image") else usable_cores())
    try:
        waiting = (
            [threads.submit(_read_image, model, Path(source.records.items["image"][row])) for row in rows]
            for rows in batches
        )
        ahead = list(islice(waiting, 1))
        while ahead:
            ahead += islice(waiting, 1)
            yield [future.result() for future in ahead.pop(0)]
    finally:
        threads.shutdown(cancel_futures=True)


def _read_image(model: Model, path: Path) -> _Reading | Unread:
    """Return what a model takes of an image and what its file says; an error that is not the file's fault is raised."""
    before = ""
    try:
        before = changes.state_of_reading(path)
        state = changes.state_of_file(path)
        return np.asarray(model.prepare("image", [path])[0]), {**_header(path, int(state.split()[1])), STATE: state}
    except (InputError, OSError) as error:
        if problem := image_problem(path):
            return Unread(problem, before)
        if isinstance(error, OSError) or changes.state_of_reading(path) != before:
            return Unread(f"{path}: changed while it was read; index it again", "")
        raise


def _header(path: Path, changed_ns: int) -> _Header:
    """Return when an image was taken, or else when its file was changed, and its upright size, without decoding it."""
    with open_image(path) as opened:
        width, height = upright_size(opened)
        taken = date_taken(opened)
    return {"taken": taken, "date": None if taken else file_date(changed_ns), "width": width, "height": height}


_AT_ONCE = 1000  # items renamed in two transactions, the new ones first: a killed job has both


def _keep_moved(store: Store, source: Source, new: Sequence[int], missing: Sequence[Listed]) -> set[int]:
    """Give items whose file is gone the ids of new files with the same content; return the rows of these.

    An item takes its codes and metadata along. Only new files of a size that a lost one had are read.
    """
    lost: dict[str, list[Listed]] = defaultdict(list)
    for item in missing:
        lost[str(item.metadata.get(STATE, "")).partition(" ")[0]].append(item)
    pairs: list[tuple[Listed, int, str]] = []
    for row in new if lost else ():
        path = Path(source.records.items["image"][row])
        try:
            candidates = lost.get(str(path.stat().st_size), [])
            state = changes.state_of_file(path) if candidates else ""
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
        changes.content_of(str(item.metadata.get(STATE, ""))) == changes.content_of(state)
        and changes.modalities_of(source, row) <= set(item.modalities)
        and text in (None, item.metadata.get("text"))
        and not os.path.lexists(str(item.metadata["image"]))
    )


def _rename(store: Store, source: Source, pairs: Sequence[tuple[Listed, int, str]]) -> None:
    items = store.get([item.id for item, _, _ in pairs])
    rows = [(item, row, state) for item, (_, row, state) in zip(items, pairs, strict=True)]
    for coded in sorted({tuple(item.codes) for item in items}):
        group = [each for each in rows if tuple(each[0].codes) == coded]
        store.upsert(
            [source.records.ids[row] for _, row, _ in group],
            {modality: np.stack([item.codes[modality] for item, _, _ in group]) for modality in coded},
            metadata=[{**item.metadata, **source.metadata[row], STATE: state} for item, row, state in group],
            projections={modality: np.stack([item.projections[modality] for item, _, _ in group]) for modality in coded}
            if store.projected
            else None,
        )
    store.delete([item.id for item in items])
