"""Extend a run: train it further on new items, and keep the codes of its old items valid.

In the collection of such a run the rows of the extended run come first, then the new ones
(`data.collection`).
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from channelhash.codes import CodeSet, unpack
from channelhash.config import (
    ExtendSettings,
    RunConfig,
    make_config,
    read_run_config,
    read_sections,
)
from channelhash.data.collection import Collection, labels_as
from channelhash.data.records import Records
from channelhash.data.splits import RowNumbers, Splits
from channelhash.errors import InputError, argument
from channelhash.losses import HashLoss, resolve_loss
from channelhash.losses.incremental import ExtensionLoss
from channelhash.models import HashModel, load_hash_model
from channelhash.models.hash_model import encode_records
from channelhash.presets import data_kind
from channelhash.runs.folder import check_contents
from channelhash.training.distributed import rank, wait_for_all
from channelhash.training.trainer import Trainee
from channelhash.utils.files import write_text
from channelhash.utils.progress import Progress, StageProgress
from channelhash.utils.seeds import generator
from channelhash.utils.typed_settings import apply_overrides


def extension_config(
    run: Path, data: Path, root: Path | None = None, overrides: Sequence[str] = ()
) -> RunConfig:
    """Return the configuration that extends ``run`` by the items of ``data``. All else stays."""
    extended = read_run_config(run)
    if resolve_loss(extended.loss_name).needs_teacher:
        raise InputError(
            f"{run}: a student, which learned from a teacher and not from labels; extend the "
            "teacher (named in its distillation.json), and distill that extension"
        )
    sections: dict[str, dict[str, Any]] = extended.sections()
    if data.suffix.lower() in (".yaml", ".yml"):
        sections["data"] = dict(read_sections(data).get("data", {}))
    else:
        sections["data"] = {"kind": data_kind(data), "path": str(data)}
    if root is not None:
        sections["data"]["root"] = str(root)
    sections["extend"] = {"run": str(run)}
    apply_overrides(sections, *overrides)
    return make_config(sections)


def check_old_items(run: Path, collection: Collection) -> None:
    """Check that the old items of a collection are still those that ``run`` was trained on."""
    check_contents(run, read_run_config(run), Collection(collection.parts[:-1]))


def extend_splits(run: Path, collection: Collection, new: Splits) -> Splits:
    """Return the splits of a collection: the old items keep those of ``run``."""
    old = Collection(collection.parts[:-1]).records
    return Splits.load(run / "splits.json", old).join(new, len(old))


#: In a run's folder: the codes of the old items, as the extended run made them, in the order of
#: their rows in R.
_STORED = Path("codes") / "stored.parquet"


def stored_codes(folder: Path) -> CodeSet | None:
    """Return the codes that old items keep in a run; None if it extends no other.

    >>> stored_codes(Path("no run")) is None
    True
    """
    return CodeSet.load(folder / _STORED) if (folder / _STORED).exists() else None


def database_codes(
    stored: CodeSet | None,
    retrieval: RowNumbers,
    rows: RowNumbers,
    encode: Callable[[RowNumbers], CodeSet],
) -> CodeSet:
    """Return codes of some rows of R: old items have their stored ones, others are encoded now.

    >>> labels = np.ones((2, 1), bool)
    >>> codes = CodeSet(["old", "new"], {"text": np.array([[1], [2]], np.uint8)}, labels, 8, ("a",))
    >>> stored = CodeSet(["old"], {"text": np.array([[7]], np.uint8)}, labels[:1], 8, ("a",))
    >>> database_codes(stored, np.arange(2), np.arange(2), codes.take).codes["text"].tolist()
    [[7], [2]]
    """
    if stored is None:
        return encode(rows)
    fixed = np.isin(rows, retrieval[: len(stored)])
    encoded = encode(rows[~fixed])
    old = stored.take(np.searchsorted(retrieval, rows[fixed]))
    assert old.labels is not None  # an extension has labels
    # One set for the model that was trained to read both, over the labels of both.
    labels = labels_as(old.labels, old.label_names, encoded.label_names)
    return CodeSet.join(
        [replace(old, labels=labels, label_names=encoded.label_names, model=encoded.model), encoded]
    )


def _store_codes(
    trainee: Trainee, rows: RowNumbers, run: Path, folder: Path, progress: Progress
) -> None:
    """Write the codes of the old items into a new run's folder, unless they are there.

    Codes that the extended run has written for its retrieval set are taken over. Otherwise its
    model computes them now.
    """
    model = trainee.feature_model
    made_by = model.extends[-1]
    stored = stored_codes(folder)
    if stored is not None:
        if stored.model != made_by:
            raise InputError(
                f"{folder / _STORED}: {run} has been trained anew since; extend it into another "
                f"{argument('out')}"
            )
        return

    def encode(part: RowNumbers) -> CodeSet:
        return encode_records(model, trainee.features.take(part), progress, made_by)

    old = trainee.features.take(rows)
    file = run / "codes" / "test-retrieval.parquet"
    saved = CodeSet.load(file) if file.exists() else None
    if saved is not None and saved.model == made_by and saved.ids == old.ids:
        codes = saved.codes
    else:
        codes = database_codes(stored_codes(run), rows, rows, encode).codes
    display = old.display_values("text"), old.display_values("image")
    CodeSet(old.ids, codes, old.labels, model.n_bits, old.label_names, *display, made_by).save(
        folder / _STORED
    )


#: In a run's folder: what was extended by what.
DESCRIPTION = "extension.json"


def extend_run(
    config: RunConfig,
    collection: Collection,
    splits: Splits,
    loss: HashLoss,
    folder: Path,
    progress: StageProgress,
) -> HashModel:
    """Train the model of a run on new items, and return it."""
    settings = config.extend
    assert settings is not None  # the run extends another
    _check_extension(config, settings, loss, collection.new)
    rows = _training_rows(splits, collection.n_old, settings, config.train.seed)
    model = load_hash_model(settings.run)
    model.extends = (*model.extends, model.fingerprint())
    trainee = Trainee.prepare(model, collection, rows, config.train, progress)
    del model  # and with it a frozen backbone, whose features are computed
    if rank() == 0:
        old_rows = splits.retrieval[splits.retrieval < collection.n_old]
        _store_codes(trainee, old_rows, settings.run, folder, progress("encode old items"))
    wait_for_all()
    stored = CodeSet.load(folder / _STORED)
    trainee = trainee._replace(stored=stored)
    assert stored.labels is not None  # an extension has labels
    stored_rows = np.where(rows < collection.n_old, np.searchsorted(splits.retrieval, rows), -1)
    signs = {
        modality: torch.from_numpy(2 * unpack(codes, stored.n_bits).astype(np.int8) - 1)
        for modality, codes in stored.codes.items()
    }
    weights = settings.model_dump(include={"stored", "keep", "partners"})
    old = signs, torch.from_numpy(stored.labels), torch.from_numpy(stored_rows)
    joint_loss = ExtensionLoss(loss, *old, **weights, seed=config.train.seed)
    labels = torch.from_numpy(collection.records.labels[rows])
    model = trainee.fit(joint_loss, labels, splits, folder, progress)
    if rank() == 0:
        description = _description(settings, trainee, stored, collection, splits, rows)
        write_text(folder / DESCRIPTION, json.dumps(description, indent=2))
    return model


def _check_extension(
    config: RunConfig, extend: ExtendSettings, loss: HashLoss, new: Records
) -> None:
    """Check that a run can be extended by these new items with this loss."""
    extended = read_run_config(extend.run)
    if (extended.model_name, extended.n_bits, extended.model) != (
        config.model_name,
        config.n_bits,
        config.model,
    ):
        raise InputError(
            f"model: an extension has the model of {extend.run}; leave the section model as it is "
            "there"
        )
    if loss.channels is None:
        raise InputError(
            f"loss.name: {config.loss_name!r} has no channels (bounds) to place new items in; "
            "extend with dsch, sch, bsch or rsch"
        )
    if not new.labels.any():
        raise InputError(
            "the new items have no labels; nothing says which of the old ones they are like"
        )


def _training_rows(splits: Splits, n_old: int, settings: ExtendSettings, seed: int) -> RowNumbers:
    """Return the rows to train on: all new ones of T, and a draw of the old ones.

    >>> splits = Splits(*(np.array(rows) for rows in ([0], [1, 2, 3], [1, 2, 3], [], [])))
    >>> _training_rows(splits, 3, ExtendSettings(run=Path("old"), replay=0), seed=0).tolist()
    [3]
    """
    old = splits.train[splits.train < n_old]
    new = splits.train[splits.train >= n_old]
    if not len(new):
        raise InputError("data.train is 0 for the new items; an extension trains on some of them")
    replayed = len(new) if settings.replay is None else settings.replay
    drawn = generator(seed, "replay").choice(old, min(len(old), replayed), replace=False)
    return np.concatenate([np.sort(drawn), new])


def _description(
    settings: ExtendSettings,
    trainee: Trainee,
    stored: CodeSet,
    collection: Collection,
    splits: Splits,
    rows: RowNumbers,
) -> dict[str, Any]:
    """Return what ``extension.json`` holds: what was extended, what was fixed, and how far the old
    items have moved.
    """
    n_old = collection.n_old
    new = collection.new
    old_names: list[str] = []
    for part in collection.parts[:-1]:
        old_names += [name for name in part.label_names if name not in old_names]
    return {
        "run": str(settings.run),
        "run_model": trainee.feature_model.extends[-1],
        "model": trainee.feature_model.fingerprint(),
        "stored_codes": {"file": str(_STORED), "items": len(stored)},
        "items": {"old": n_old, "new": len(new)},
        "training_rows": {"old": int((rows < n_old).sum()), "new": int((rows >= n_old).sum())},
        "labels": {
            "old": old_names,
            "new": [name for name in new.label_names if name not in old_names],
        },
        "settings": settings.model_dump(mode="json", exclude={"run"}),
        "bits_moved": _bits_moved(trainee, stored, splits),
    }


def _bits_moved(trainee: Trainee, stored: CodeSet, splits: Splits) -> dict[str, float]:
    """Return modality -> mean number of bits in which the model now encodes old items differently.

    Up to 2000 old items that were not trained on are counted; the result is empty if all were.
    """
    untrained = np.setdiff1d(splits.retrieval[: len(stored)], splits.train)[:2000]
    if not len(untrained):
        return {}
    current = encode_records(
        trainee.feature_model, trainee.features.take(untrained), fingerprint=""
    ).codes
    before = stored.take(np.searchsorted(splits.retrieval, untrained)).codes
    return {
        modality: round(float(np.bitwise_count(codes ^ before[modality]).sum(axis=1).mean()), 3)
        for modality, codes in current.items()
    }
