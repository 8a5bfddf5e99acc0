"""Train a model from a configuration into a run's folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from channelhash.config import RunConfig, make_config, read_config
from channelhash.data.collection import Collection
from channelhash.data.splits import Splits
from channelhash.errors import InputError
from channelhash.models import HashModel
from channelhash.runs.create import check_pairs, create_loss, create_model, list_doubts
from channelhash.runs.extend import check_old_items, extend_run, extend_splits
from channelhash.runs.folder import (
    Run,
    check_contents,
    check_evaluable,
    claim_folder,
    describe_run,
    keep_contents,
    keep_splits,
    read_run,
    save_model,
)
from channelhash.training.trainer import Trainee
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.seeds import generator
from channelhash.utils.typed_settings import apply_overrides, trusting


def train(
    config: str | Path | Mapping[str, Mapping[str, Any]],
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    resume: bool = False,
    trust_code: bool = False,
    progress: StageProgress = no_stage_progress,
) -> Run:
    """Train a model and evaluate it on the validation split, as ``channelhash train`` does.

    Args:
        config: a YAML file, or its sections ``data``, ``model``, ``loss``, ``train`` … as a
            mapping.
        overrides: each ``"section.key=value"``, like the option ``--set``.
        out: the run's folder; ``runs/<name of the file>`` by default.
        resume: continue a run that was interrupted. A finished run is left as it is.
        trust_code: consent to run code of this machine (``python:module:NAME``) that the folder of
            an extended run names. Code that ``config`` names needs no consent.
        progress: stage -> its callback, which gets the numbers done and in all.

    Raises:
        InputError: the configuration, the overrides or the data cannot be used; the folder is in
            use or holds another run; ``config`` is a mapping and ``out`` is missing; or an extended
            run names code that is not trusted.
        JobError: the loss became NaN, or memory ran out.

    Example::

        run = ch.train("features.yaml", ["train.epochs=3"])  # in the folder runs/features
        run.validation["text->image"], run.load_model()
    """
    if isinstance(overrides, str):
        raise InputError(
            f"overrides: {overrides!r} is one string; give a list, such as ['train.epochs=3']"
        )
    if isinstance(config, Mapping):
        if out is None:
            raise InputError(
                "out: a configuration that is no file has no name to take; name the run's folder"
            )
        sections = {name: dict(keys) for name, keys in config.items()}
        apply_overrides(sections, *overrides)
        resolved = make_config(sections)
    else:
        resolved = read_config(Path(config), overrides)
        out = out or Path("runs") / Path(config).stem
    with trusting(trust_code):
        return start_run(resolved, Path(out), resume, progress)


def start_run(
    config: RunConfig,
    folder: Path,
    resume: bool = False,
    progress: StageProgress = no_stage_progress,
) -> Run:
    """Do what `train` does, for a checked configuration.

    The folder gets ``config.yaml``, ``data.json`` (hashes of what it is made from),
    ``splits.json``, ``environment.json``, ``log.jsonl``, ``checkpoints/``, TensorBoard events and,
    at the end, ``model/`` (the last epoch's weights, the primary result of ``protocol.md`` § 6).
    """
    with trusting(config.python_names), claim_folder(config, folder, resume) as is_new:
        if is_new:
            save_model(_train(config, folder, progress), config, folder)
        else:
            check_contents(folder, config)
    return read_run(folder)


def _train(config: RunConfig, folder: Path, progress: StageProgress) -> HashModel:
    collection = Collection.load(config.sources)
    keep_contents(folder, config, collection)
    if config.extend is not None:
        check_old_items(config.extend.run, collection)
    records = collection.records
    settings = config.split.model_dump(mode="json")
    splits = keep_splits(folder, records, lambda: _draw_splits(config, collection), settings)
    describe_run(config, folder, list_doubts(config, records, splits.train))
    check_evaluable(records, splits)
    loss = create_loss(config, len(records.label_names))
    check_pairs(config, records)
    if config.extend is not None:
        return extend_run(config, collection, splits, loss, folder, progress)
    model = create_model(config, records.take(splits.train))
    labels = torch.from_numpy(
        _noisy_labels(records.labels[splits.train], config.train.label_noise, config.train.seed)
    )
    trainee = Trainee.prepare(model, collection, splits.train, config.train, progress)
    del model  # and with it a frozen backbone, whose features are computed
    return trainee.fit(loss, labels, splits, folder, progress)


def _draw_splits(config: RunConfig, collection: Collection) -> Splits:
    """Return the splits of a run; in an extension the old items keep theirs."""
    new = config.split.draw(collection.new)
    return new if config.extend is None else extend_splits(config.extend.run, collection, new)


def _noisy_labels(labels: NDArray[np.bool_], share: float, seed: int) -> NDArray[np.bool_]:
    """Give a share of the rows, drawn by ``seed``, the labels of another row each.

    Up to chance, labels stay as frequent as they were, and occur together as often. Some rows get
    labels equal to their own.

    >>> labels = np.eye(4, dtype=bool)
    >>> int((_noisy_labels(labels, 0.5, seed=0) != labels).any(axis=1).sum())
    2
    """
    n = len(labels)
    random = generator(seed, "label noise")
    chosen = random.permutation(n)[: round(share * n)]
    others = (chosen + random.integers(1, max(n, 2), size=len(chosen))) % n
    result = labels.copy()
    result[chosen] = labels[others]
    return result
