"""Pictures and texts into a store, batch by batch; what is there already is left alone."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from channelhash.codes import PackedCodes
from channelhash.data.images import image_problem
from channelhash.errors import InputError
from channelhash.indexing.source import Source
from channelhash.indexing.state import STATE, changed_rows, is_file, state_of_file, state_of_values
from channelhash.models import HashModel
from channelhash.search.store import Store
from channelhash.search.validation import Value
from channelhash.utils.environment import usable_cores
from channelhash.utils.progress import StageProgress, no_stage_progress

_BATCH = 256  # items encoded and written at once


@dataclass(frozen=True)
class Indexed:
    """What became of the items of a source.

    Attributes:
        added: new in the store.
        replaced: there already, but changed, and encoded again.
        unchanged: there already.
        pruned: removed from the store because their picture is gone.
        problems: what is wrong with the items that were left out, a line each.
        items: in the store now.
        seconds: for everything.
        rate: items added and replaced a second, of the time for encoding and writing them.
    """

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    pruned: int = 0
    problems: tuple[str, ...] = ()
    items: int = 0
    seconds: float = 0.0
    rate: float = 0.0


def index_source(
    store: Store, model: HashModel, source: Source, progress: StageProgress = no_stage_progress, prune: bool = False
) -> Indexed:
    """Encode the items of ``source`` and put them into ``store``.

    An item is left alone if the store has its codes, its metadata are the same, and it was encoded from the same text,
    features or picture file: one of the same size and time of change, or else of the same content. Every batch is on
    the disk before the next one is read: a job that was killed goes on where it was.

    Args:
        store: can be written to; its codes are ``model``'s.
        model: encodes every modality that it shares with the source.
        source: the items.
        progress: stage -> its callback.
        prune: for a folder: remove the items of pictures that are no longer in it.

    Raises:
        InputError: model and source share no modality, or the source has features that the model does not take; the
            store cannot be written to; an id stands for a picture of another folder; or an item cannot be encoded for
            another reason than a picture that cannot be read.
    """
    began = time.perf_counter()
    modalities = [modality for modality in model.modalities if modality in source.records.items]
    if not modalities:
        there, wanted = " and ".join(source.records.items), " and ".join(model.modalities)
        raise InputError(f"the items have {there}s, this model encodes {wanted}s; there is nothing to encode")
    if model.name != "features" and any(isinstance(source.records.items[m], np.ndarray) for m in modalities):
        raise InputError(f"the items are features, but the model {model.name!r} reads pictures and texts; give those")
    if prune and source.folder is None:
        raise InputError("--prune: goes with a folder of pictures; leave it out")
    before = set(store.ids())
    todo = changed_rows(store, source, modalities, before, progress("look"))
    encoding = time.perf_counter()
    problems, written, done, advance = list(source.records.problems), set[int](), 0, progress("encode")
    for batch, codes, states, bad in _encoded(model, source, modalities, todo):
        problems += bad
        done += len(batch) + len(bad)
        if batch:
            metadata = [{**source.metadata[row], STATE: state} for row, state in zip(batch, states, strict=True)]
            store.upsert([source.records.ids[row] for row in batch], codes, metadata=metadata)
            written.update(batch)
        advance(done, len(todo))
    encoding_seconds = time.perf_counter() - encoding
    replaced = sum(source.records.ids[row] in before for row in written)
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


class _Files(Dataset[tuple[Tensor | InputError, str]]):
    """Picture files as the model wants them, each with its state; what cannot be read is returned, not raised."""

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


def _encoded(
    model: HashModel, source: Source, modalities: Sequence[str], todo: Sequence[int]
) -> Iterator[tuple[list[int], dict[str, PackedCodes], list[str], list[str]]]:
    """(rows, their codes by modality, their states, problems of the others) of each batch of ``todo``."""
    batches = [list(todo[start : start + _BATCH]) for start in range(0, len(todo), _BATCH)]
    if not is_file(source, modalities):
        for batch in batches:
            codes = {modality: model.encode(modality, _take(source, modality, batch)) for modality in modalities}
            yield batch, codes, [state_of_values(source, modalities, row) for row in batch], []
        return
    # A process is worth starting for more than one batch only.
    workers = min(usable_cores(), len(batches) - 1) if batches else 0
    loader: DataLoader[Any] = DataLoader(
        _Files(source, model), batch_sampler=batches, num_workers=workers, collate_fn=list, generator=torch.Generator()
    )
    for batch, readings in zip(batches, loader, strict=True):
        rows, pixels, states, bad = [], [], [], []
        for row, (reading, state) in zip(batch, readings, strict=True):
            if isinstance(reading, Tensor):
                rows.append(row)
                pixels.append(reading)
                states.append(state)
            elif problem := image_problem(Path(source.records.items["image"][row])):
                bad.append(problem)
            else:
                raise reading  # not the picture's fault
        codes = model.encode_prepared({"image": torch.stack(pixels)}) if rows else {}
        for modality in modalities:
            if modality != "image" and rows:
                codes[modality] = model.encode(modality, _take(source, modality, rows))
        yield rows, codes, states, bad


def _take(source: Source, modality: str, rows: Sequence[int]) -> Any:
    values = source.records.items[modality]
    return values[list(rows)] if isinstance(values, np.ndarray) else [values[row] for row in rows]


def _prune(store: Store, source: Source) -> int:
    """Remove the items whose picture lay in the folder and is not there any more."""
    assert source.folder is not None
    others = sorted(set(store.ids()).difference(source.records.ids))
    gone = [item.id for item in store.get(others) if _lay_in(source.folder, item.metadata.get("image"))]
    return store.delete(gone) if gone else 0


def _lay_in(folder: Path, image: Value) -> bool:
    return isinstance(image, str) and Path(image).is_relative_to(folder) and not Path(image).exists()
