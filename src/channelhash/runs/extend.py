"""Train a run further on new items, so that the codes of its old items stay valid.

In the run's collection the rows of the extended run come first, then the new ones (`data.collection`).
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from channelhash.codes import PackedCodes, unpack
from channelhash.codes.code_set import CodeSet
from channelhash.config import ExtendSettings, TrainSettings
from channelhash.data.collection import Collection
from channelhash.data.concat import labels_as
from channelhash.data.splits import Rows, Splits
from channelhash.errors import InputError
from channelhash.losses import HashLoss
from channelhash.losses.incremental import ExtensionLoss
from channelhash.models import HashModel, load_model
from channelhash.models.encode_records import encode_records
from channelhash.runs.fit import Trainee, fit, prepare
from channelhash.runs.stored_codes import STORED, store_codes
from channelhash.training.distributed import rank, wait_for_all
from channelhash.utils.files import write_text
from channelhash.utils.progress import StageProgress
from channelhash.utils.seeds import generator

#: In a run's folder: what was extended by what.
DESCRIPTION = "extension.json"

# Old rows that were not trained on, of which it is counted how far they have moved.
_MOVED_ROWS = 2000


def extend(
    settings: ExtendSettings,
    train: TrainSettings,
    collection: Collection,
    splits: Splits,
    loss: HashLoss,
    folder: Path,
    progress: StageProgress,
) -> HashModel:
    """Train the model of a run on new items, and return it.

    Args:
        settings: the section ``extend``.
        train: the section ``train``.
        collection: old and new items.
        splits: of the collection.
        loss: the loss of the new items by itself; has channels.
        folder: the new run's.
        progress: stage -> its callback.

    Raises:
        InputError: there is no new row to train on, or the file of codes does not fit.
        JobError: see `trainer.train`.
    """
    rows = training_rows(splits, collection.n_old, settings, train.seed)
    trainee = prepare(_extended_model(settings.run), collection, rows, train, progress)
    if rank() == 0:
        old_rows = splits.retrieval[splits.retrieval < collection.n_old]
        store_codes(trainee, old_rows, settings.run, folder, progress("encode old items"))
    wait_for_all()
    stored = CodeSet.load(folder / STORED)
    trainee = replace(trainee, stored=stored)
    joint_loss = extension_loss(loss, settings, train.seed, stored, collection, splits, rows)
    labels = torch.from_numpy(collection.records.labels[rows])
    model = fit(trainee, joint_loss, labels, splits, train, folder, progress)
    if rank() == 0:
        description = _description(settings, trainee, stored, collection, splits, rows)
        write_text(folder / DESCRIPTION, json.dumps(description, indent=2))
    return model


def _extended_model(run: Path) -> HashModel:
    """Return the model of the extended run; from here on it says so, see `HashModel.extends`."""
    model = load_model(run)
    model.extends = (*model.extends, model.fingerprint())
    return model


def training_rows(splits: Splits, n_old: int, settings: ExtendSettings, seed: int) -> Rows:
    """Return the rows to train on: all new ones of T, and a draw of the old ones.

    Raises:
        InputError: there is no new row in T.

    >>> splits = Splits(*(np.array(rows) for rows in ([0], [1, 2, 3], [1, 2, 3], [], [])))
    >>> training_rows(splits, 3, ExtendSettings(run=Path("old"), replay=0), seed=0).tolist()
    [3]
    """
    old, new = splits.train[splits.train < n_old], splits.train[splits.train >= n_old]
    if not len(new):
        raise InputError("data.train is 0 for the new items; an extension trains on some of them")
    count = min(len(old), len(new) if settings.replay is None else settings.replay)
    drawn = generator(seed, "replay").choice(old, count, replace=False)
    return np.concatenate([np.sort(drawn), new])


def extension_loss(
    loss: HashLoss,
    settings: ExtendSettings,
    seed: int,
    stored: CodeSet,
    collection: Collection,
    splits: Splits,
    rows: Rows,
) -> ExtensionLoss:
    """Return the loss of an extension; see `losses.incremental.ExtensionLoss`.

    Args:
        loss: the loss by itself.
        settings: the section ``extend``.
        seed: of the draw of partners.
        stored: see `stored_codes.stored_codes`.
        collection: old and new items.
        splits: of the collection.
        rows: the training rows.

    Raises:
        InputError: the file of codes does not fit.
    """
    partners = stored if settings.codes is None else _read_partners(settings.codes, settings.run, stored, collection)
    assert partners.labels is not None  # both have some
    is_new = rows >= collection.n_old
    stored_rows = np.searchsorted(splits.retrieval, np.where(is_new, splits.retrieval[0], rows))
    return ExtensionLoss(
        loss,
        {modality: _signs(codes, stored.n_bits)[stored_rows] for modality, codes in stored.codes.items()},
        torch.from_numpy(is_new),
        {modality: _signs(partners.codes[modality], stored.n_bits) for modality in stored.codes},
        torch.from_numpy(partners.labels),
        weight_stored=settings.stored,
        weight_keep=settings.keep,
        pairs=settings.pairs,
        partners=settings.partners,
        seed=seed,
    )


def _signs(packed: PackedCodes, n_bits: int) -> Tensor:
    return torch.from_numpy(2 * unpack(packed, n_bits).astype(np.int8) - 1)


def _read_partners(path: Path, run: Path, stored: CodeSet, collection: Collection) -> CodeSet:
    """Read the codes of a file that new items are placed against, with the labels of the collection."""
    codes, label_names = CodeSet.load(path), collection.records.label_names
    if codes.n_bits != stored.n_bits:
        raise InputError(f"{path}: codes of {codes.n_bits} bits, {run} makes {stored.n_bits}")
    if codes.model and codes.model != stored.model:
        raise InputError(f"{path}: codes of another model than that of {run}; encode them with it")
    if missing := [modality for modality in stored.codes if modality not in codes.codes]:
        raise InputError(f"{path}: has no {missing[0]} codes; encode both modalities of the items")
    if not len(codes) or codes.labels is None or not codes.label_names:
        raise InputError(f"{path}: has no items with named labels, by which new items could be placed; encode a table")
    if unknown := [name for name in codes.label_names if name not in label_names]:
        raise InputError(f"{path}: has the label {unknown[0]!r}, which neither the run nor the new items know")
    if common := set(codes.ids) & set(collection.new.ids):
        raise InputError(f"{path}: holds the new item {min(common)!r} already; leave it out of the new items")
    labels = labels_as(codes.labels, codes.label_names, label_names)
    return CodeSet(codes.ids, codes.codes, labels, codes.n_bits, label_names, model=codes.model)


def _description(
    settings: ExtendSettings, trainee: Trainee, stored: CodeSet, collection: Collection, splits: Splits, rows: Rows
) -> dict[str, Any]:
    """Return what ``extension.json`` holds: what was extended, what was fixed, and how far the old items have moved."""
    n_old, new = collection.n_old, collection.new
    old_names = list(dict.fromkeys(name for part in collection.parts[:-1] for name in part.label_names))
    return {
        "run": str(settings.run),
        "run_model": trainee.feature_model.extends[-1],
        "model": trainee.feature_model.fingerprint(),
        "stored_codes": {"file": str(STORED), "items": len(stored)},
        "placed_against": str(settings.codes or STORED),
        "items": {"old": n_old, "new": len(new)},
        "training_rows": {"old": int((rows < n_old).sum()), "new": int((rows >= n_old).sum())},
        "labels": {"old": old_names, "new": [name for name in new.label_names if name not in old_names]},
        "settings": settings.model_dump(mode="json", exclude={"run", "codes"}),
        "bits_moved": _bits_moved(trainee, stored, splits),
    }


def _bits_moved(trainee: Trainee, stored: CodeSet, splits: Splits) -> dict[str, float]:
    """Return modality -> mean number of bits in which the model now encodes old items differently.

    Counted are old items that were not trained on; the result is empty if all were.
    """
    untrained = np.setdiff1d(splits.retrieval[: len(stored)], splits.train)[:_MOVED_ROWS]
    if not len(untrained):
        return {}
    current = encode_records(trainee.feature_model, trainee.features.take(untrained), fingerprint="").codes
    before = stored.take(np.searchsorted(splits.retrieval, untrained)).codes
    return {modality: _mean_distance(current[modality], before[modality]) for modality in current}


def _mean_distance(a: PackedCodes, b: PackedCodes) -> float:
    differing: NDArray[np.uint8] = np.bitwise_count(a ^ b)
    return round(float(differing.sum(axis=1).mean()), 3)
