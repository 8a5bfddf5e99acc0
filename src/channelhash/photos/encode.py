"""Encode items into a store, batch by batch; items that have not changed are left alone."""

import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, Dataset

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.data.images import image_problem
from channelhash.errors import InputError, JobError
from channelhash.models import HashModel
from channelhash.models.heads import FeatureRows
from channelhash.photos.changes import (
    STATE,
    Indexed,
    content_of,
    find_changes,
    modalities_of,
    reads_files,
    state_of_file,
    state_of_values,
)
from channelhash.photos.source import Source, with_modalities
from channelhash.search.items import DATES, Value, file_date
from channelhash.search.store import Listed, Store
from channelhash.utils.environment import usable_cores
from channelhash.utils.image_files import date_taken, open_image, upright_size
from channelhash.utils.processes import interrupts_held
from channelhash.utils.progress import StageProgress, no_stage_progress

_BATCH = 256  # items encoded and written at once

_Header = dict[str, Value]
#: The inputs of a batch's images, and of each its metadata, or what is wrong with it.
_Readings = tuple[Tensor | None, list[_Header | str | InputError]]


class Batch(NamedTuple):
    """Encoded rows of a source, all of the same modalities.

    Attributes:
        rows: ``n`` row numbers.
        outputs: modality -> the model's outputs ``(n, k)``.
        metadata: what is known of each row.
        problems: a line for each row that could not be encoded.

    >>> Batch([0], {"text": torch.zeros(1, 16)}, [{"text": "a dog"}], []).rows
    [0]
    """

    rows: list[int]
    outputs: dict[str, Tensor]
    metadata: list[dict[str, Value]]
    problems: list[str]


def index_source(
    store: Store,
    model: HashModel,
    source: Source,
    progress: StageProgress = no_stage_progress,
    prune: bool = False,
    ready: Sequence[Batch] = (),
) -> Indexed:
    """Encode the items of ``source`` and put them into ``store``.

    An item is left alone if the store has its codes, its metadata are the same, and it was encoded from the same text,
    features or image file: one of the same size and modification time, or else of the same content. An image that was
    moved in its folder keeps its codes. Images are encoded and written batch by batch in order, while the next ones are
    read: a job that was killed goes on where it was.
    """
    began = time.perf_counter()
    if prune and source.folder is None:
        raise InputError("--prune: goes with a folder of pictures; leave it out")
    source = encodable(source, model)
    changed, stored, missing = find_changes(store, source, progress("look"))
    moved = _keep_moved(store, source, [row for row in changed if row not in stored], missing)
    todo = [row for row in changed if row not in moved]
    encoding, advance = time.perf_counter(), progress("encode")
    problems, written, done = [*source.records.problems], set[int](), 0
    encoded = {row for batch in ready for row in batch.rows}
    rest = [row for row in todo if row not in encoded]
    every = chain((batch for batch in ready if batch.rows), encode_batches(model, source, rest))
    for batch in every:
        _write(store, source.records.ids, batch)
        problems += batch.problems
        done += len(batch.rows) + len(batch.problems)
        written.update(batch.rows)
        advance(done, len(todo))
    encoding_seconds = time.perf_counter() - encoding
    replaced = len(written & stored)
    lost = [item.id for item in missing if item.id in store] if prune else []  # those moved have another id now
    pruned = store.delete(lost) if lost else 0
    return Indexed(
        added=len(written) - replaced,
        replaced=replaced,
        unchanged=len(source.records) - len(changed),
        pruned=pruned,
        problems=tuple(problems),
        items=len(store),
        seconds=time.perf_counter() - began,
        rate=len(written) / encoding_seconds if written else 0.0,
        moved=len(moved),
        skipped=source.records.removed if source.folder is not None else {},
    )


def _write(store: Store, ids: Sequence[str], batch: Batch) -> None:
    if batch.rows:
        codes = {modality: _pack_outputs(outputs) for modality, outputs in batch.outputs.items()}
        projections = {modality: rows.float().cpu().numpy() for modality, rows in batch.outputs.items()}
        store.upsert(
            [ids[row] for row in batch.rows],
            codes,
            metadata=batch.metadata,
            projections=projections if store.projected else None,
        )


def encodable(source: Source, model: HashModel) -> Source:
    """Return the source with the modalities that the model encodes, in the model's order."""
    encoded = with_modalities(source, model.modalities)
    arrays = [modality for modality, values in encoded.records.items.items() if isinstance(values, np.ndarray)]
    if not all(isinstance(model.branch(modality).prepare, FeatureRows) for modality in arrays):
        raise InputError(f"the items are features, but the model {model.name!r} reads pictures and texts; give those")
    return encoded


def encode_batches(model: HashModel, source: Source, todo: Sequence[int]) -> Iterator[Batch]:
    """Encode rows of a source that `encodable` returned, batch by batch in order."""
    batches = [list(todo[start : start + _BATCH]) for start in range(0, len(todo), _BATCH)]
    modalities = tuple(source.records.items)
    if not reads_files(source):
        for rows in batches:
            outputs = {modality: model.outputs(modality, _take(source, modality, rows)) for modality in modalities}
            metadata = [{**source.metadata[row], STATE: state_of_values(source, row)} for row in rows]
            yield Batch(rows, outputs, metadata, [])
        return
    for batch_rows, (inputs, readings) in zip(batches, _read_images(source, model, batches), strict=True):
        rows, problems, metadata = [], [], []
        for row, reading in zip(batch_rows, readings, strict=True):
            if isinstance(reading, InputError):
                raise reading
            if isinstance(reading, str):
                problems.append(reading)
                continue
            rows.append(row)
            columns = source.metadata[row]
            dates = dict.fromkeys(DATES) if any(map(columns.get, DATES)) else {}  # a given one stands alone
            metadata.append({**reading, **dates, **columns, STATE: reading[STATE]})
        outputs = {} if inputs is None else model.outputs_prepared({"image": inputs})
        for modality in modalities:
            if modality != "image" and rows:
                outputs[modality] = model.outputs(modality, _take(source, modality, rows))
        batch = Batch(rows, outputs, metadata, problems)
        if texts := [text for row in rows for text in source.captions[row]] if source.captions else []:
            yield from with_captions(source, batch, model.outputs("text", texts))
        else:
            yield batch


def with_captions(source: Source, batch: Batch, each: Tensor) -> Iterator[Batch]:
    """Yield the images of a batch that have captions, with the outputs of these, and then the others.

    Several captions count as the mean of their outputs, each divided by its norm.
    """
    captions = [source.captions[row] if source.captions else () for row in batch.rows]
    counts = [len(texts) for texts in captions if texts]
    text = torch.stack([outputs.mean(dim=0) for outputs in torch.split(normalize(each), counts)])
    captioned = [place for place, texts in enumerate(captions) if texts]
    others = [place for place, texts in enumerate(captions) if not texts]
    first = _take_places(batch, captioned)
    yield first._replace(outputs=first.outputs | {"text": text}, problems=batch.problems)
    if others:
        yield _take_places(batch, others)


def _take_places(batch: Batch, places: list[int]) -> Batch:
    outputs = {modality: rows[places] for modality, rows in batch.outputs.items()}
    return Batch([batch.rows[place] for place in places], outputs, [batch.metadata[place] for place in places], [])


def _pack_outputs(outputs: Tensor) -> PackedCodes:
    try:
        return pack(binarize(outputs))
    except ValueError as error:
        raise JobError(f"{error}; the model's weights are damaged or the training broke, train again") from None


def _take(source: Source, modality: str, rows: Sequence[int]) -> Any:
    values = source.records.items[modality]
    return values[list(rows)] if isinstance(values, np.ndarray) else [values[row] for row in rows]


class _Files(Dataset[Any]):
    """Images by row: input, and the metadata that the file gives; or what is wrong with it.

    An error that is not the file's fault is returned, as a worker would wrap it in others.
    """

    def __init__(self, source: Source, model: HashModel) -> None:
        self._paths, self._prepare = source.records.items["image"], model.branch("image").prepare

    def __getitem__(self, row: int) -> tuple[Tensor, _Header] | str | InputError:
        path, state = Path(self._paths[row]), ""
        try:
            state = state_of_file(path)
            return self._prepare([path])[0], {**_header(path, int(state.split()[1])), STATE: state}
        except (InputError, OSError) as error:
            if problem := image_problem(path):
                return problem
            if isinstance(error, OSError) or not _is_still(path, state):
                return f"{path}: changed while it was read; index it again"
            return error


def _stack(readings: list[tuple[Tensor, _Header] | str | InputError]) -> _Readings:
    """Join the inputs of a batch, in the process that has read them."""
    inputs = [reading[0] for reading in readings if isinstance(reading, tuple)]
    others = [reading[1] if isinstance(reading, tuple) else reading for reading in readings]
    return torch.stack(inputs) if inputs else None, others


def _read_images(source: Source, model: HashModel, batches: Sequence[list[int]]) -> Iterator[_Readings]:
    """Yield the images of each batch of rows, read ahead in worker processes where there are several batches."""
    workers = max(0, min(usable_cores(), len(batches) - 1))
    loader: DataLoader[Any] = DataLoader(
        _Files(source, model),
        batch_sampler=batches,
        num_workers=workers,
        collate_fn=_stack,
        generator=torch.Generator(),
    )
    with interrupts_held():
        loaded = iter(loader)
    yield from loaded


def _header(path: Path, changed_ns: int) -> _Header:
    """Return when an image was taken, or else when its file was changed, and its upright size, without decoding it."""
    with open_image(path) as opened:
        width, height = upright_size(opened)
        taken = date_taken(opened)
    return {"taken": taken, "date": None if taken else file_date(changed_ns), "width": width, "height": height}


def _is_still(path: Path, state: str) -> bool:
    try:
        return state_of_file(path) == state
    except OSError:
        return False


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
