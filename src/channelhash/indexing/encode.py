"""Encode items into a store, batch by batch; items that have not changed are left alone."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from channelhash.codes import PackedCodes
from channelhash.data.images import image_problem
from channelhash.errors import InputError
from channelhash.indexing.source import Source
from channelhash.indexing.state import STATE, changed_rows, reads_files, state_of_file, state_of_values
from channelhash.models import HashModel
from channelhash.search.store import Store
from channelhash.search.validation import Value
from channelhash.utils.environment import usable_cores
from channelhash.utils.processes import interrupts_held
from channelhash.utils.progress import StageProgress, no_stage_progress

_BATCH = 256  # items encoded and written at once


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


class Batch(NamedTuple):
    """Encoded rows of a source.

    Attributes:
        rows: ``n`` row numbers.
        codes: modality -> their packed codes.
        states: their states, see `state.STATE`.
        problems: a line for each row that could not be encoded.

    >>> Batch([0], {"text": np.zeros((1, 2), np.uint8)}, ["state"], []).rows
    [0]
    """

    rows: list[int]
    codes: dict[str, PackedCodes]
    states: list[str]
    problems: list[str]


def index_source(
    store: Store, model: HashModel, source: Source, progress: StageProgress = no_stage_progress, prune: bool = False
) -> Indexed:
    """Encode the items of ``source`` and put them into ``store``.

    An item is left alone if the store has its codes, its metadata are the same, and it was encoded from the same text,
    features or image file: one of the same size and modification time, or else of the same content. Every batch is on
    the disk before the next one is read, so that a job that was killed goes on where it was.

    Args:
        store: a writable store of ``model``'s codes.
        model: encodes every modality that it shares with the source.
        source: the items.
        progress: stage -> its callback.
        prune: for a folder: remove the items of images that are no longer in it.

    Raises:
        InputError: model and source share no modality, or the source has features that the model does not take; the
            store cannot be written to; an id belongs to an image of another folder; or an item cannot be encoded for
            another reason than a damaged image.
    """
    began = time.perf_counter()
    if prune and source.folder is None:
        raise InputError("--prune: goes with a folder of pictures; leave it out")
    source = _encodable(source, model)
    ids = source.records.ids
    stored_ids = set(store.ids())
    todo = changed_rows(store, source, stored_ids, progress("look"))
    encoding, advance = time.perf_counter(), progress("encode")
    problems, written, done = list(source.records.problems), set[int](), 0
    for batch in _encoded(model, source, todo):
        problems += batch.problems
        done += len(batch.rows) + len(batch.problems)
        if batch.rows:
            states = zip(batch.rows, batch.states, strict=True)
            metadata = [{**source.metadata[row], STATE: state} for row, state in states]
            store.upsert([ids[row] for row in batch.rows], batch.codes, metadata=metadata)
            written.update(batch.rows)
        advance(done, len(todo))
    encoding_seconds = time.perf_counter() - encoding
    replaced = sum(ids[row] in stored_ids for row in written)
    pruned = _prune(store, source) if prune else 0
    return Indexed(
        added=len(written) - replaced,
        replaced=replaced,
        unchanged=len(source.records) - len(todo),
        pruned=pruned,
        problems=tuple(problems),
        items=len(store),
        seconds=time.perf_counter() - began,
        rate=len(written) / encoding_seconds if written else 0.0,
    )


def _encodable(source: Source, model: HashModel) -> Source:
    """Return the source with the modalities that the model encodes, in the model's order."""
    items = source.records.items
    encoded = {modality: items[modality] for modality in model.modalities if modality in items}
    if not encoded:
        available, encodes = " and ".join(items), " and ".join(model.modalities)
        raise InputError(f"the items have {available}s, this model encodes {encodes}s; there is nothing to encode")
    if model.name != "features" and any(isinstance(values, np.ndarray) for values in encoded.values()):
        raise InputError(f"the items are features, but the model {model.name!r} reads pictures and texts; give those")
    return replace(source, records=replace(source.records, items=encoded))


class _Files(Dataset[tuple[Tensor | InputError, str]]):
    """Image files as model inputs, each with its state; an error is returned, not raised."""

    def __init__(self, source: Source, model: HashModel) -> None:
        self._paths = source.records.items["image"]
        self._prepare = model.branch("image").prepare

    def __getitem__(self, row: int) -> tuple[Tensor | InputError, str]:
        path = Path(self._paths[row])
        try:
            state = state_of_file(path)
            return self._prepare([path])[0], state
        except InputError as error:
            return error, ""
        except OSError as error:
            return InputError(f"{path}: {error.strerror}"), ""


def _encoded(model: HashModel, source: Source, todo: Sequence[int]) -> Iterator[Batch]:
    batches = [list(todo[start : start + _BATCH]) for start in range(0, len(todo), _BATCH)]
    modalities = tuple(source.records.items)
    if not reads_files(source):
        for rows in batches:
            codes = {modality: model.encode(modality, _take(source, modality, rows)) for modality in modalities}
            yield Batch(rows, codes, [state_of_values(source, row) for row in rows], [])
        return
    # A process is worth starting for more than one batch only.
    workers = min(usable_cores(), len(batches) - 1) if batches else 0
    loader: DataLoader[Any] = DataLoader(
        _Files(source, model), batch_sampler=batches, num_workers=workers, collate_fn=list, generator=torch.Generator()
    )
    with interrupts_held():
        loaded = iter(loader)
    for numbers, readings in zip(batches, loaded, strict=True):
        rows, pixels, states, problems = [], [], [], []
        for row, (reading, state) in zip(numbers, readings, strict=True):
            if isinstance(reading, Tensor):
                rows.append(row)
                pixels.append(reading)
                states.append(state)
            elif problem := image_problem(Path(source.records.items["image"][row])):
                problems.append(problem)
            else:
                raise reading  # not the image's fault
        codes = model.encode_prepared({"image": torch.stack(pixels)}) if rows else {}
        for modality in modalities:
            if modality != "image" and rows:
                codes[modality] = model.encode(modality, _take(source, modality, rows))
        yield Batch(rows, codes, states, problems)


def _take(source: Source, modality: str, rows: Sequence[int]) -> Any:
    values = source.records.items[modality]
    return values[list(rows)] if isinstance(values, np.ndarray) else [values[row] for row in rows]


def _prune(store: Store, source: Source) -> int:
    """Remove the items whose image was in the folder and has been removed; return their number."""
    other_ids = sorted(set(store.ids()).difference(source.records.ids))
    removed = [item.id for item in store.get(other_ids) if _is_removed(item.metadata.get("image"), source.folder)]
    return store.delete(removed) if removed else 0


def _is_removed(image: Value, folder: Path | None) -> bool:
    return (
        isinstance(image, str)
        and folder is not None
        and Path(image).is_relative_to(folder)
        and not Path(image).exists()
    )
