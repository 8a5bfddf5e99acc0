"""Train what a configuration says into a run's folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from channelhash.config import RunConfig, make_config, read_config
from channelhash.data.collection import load_collection
from channelhash.data.records import noisy_labels
from channelhash.errors import InputError
from channelhash.models import HashModel
from channelhash.runs.extend import check_extension, extend
from channelhash.runs.fit import check_pairs, create_loss, create_model, fit, fit_scales_of, prepare
from channelhash.runs.folder import Run, claim_folder, describe_run, draw_run_splits, keep_splits, read_run, save_model
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.python_names import trusting
from channelhash.utils.typed_settings import apply_override


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
        config: a YAML file, or its sections ``data``, ``model``, ``loss``, ``train`` … as a mapping.
        overrides: each ``"section.key=value"``, like the option ``--set``.
        out: the run's folder; ``runs/<name of the file>`` by default.
        resume: go on with a run that was interrupted. A finished run is left as it is.
        trust_code: consent to code of this machine (``python:module:NAME``) that only the folder of a run that is
            extended names. Code that ``config`` names is your own word.
        progress: stage -> its callback.

    Raises:
        InputError: the configuration, the overrides or the data cannot be used, the folder is in use or holds another
            run, ``out`` is missing where ``config`` is a mapping, or an extended run names code that is not trusted.
        JobError: the loss became NaN, or memory ran out.

    Example::

        run = ch.train("configs/table.yaml", ["data.path=items.csv", "train.epochs=30"])
        run.validation["text->image"], run.load_model()
    """
    if isinstance(overrides, str):
        raise InputError(f"overrides: {overrides!r} is one string; give a list, such as ['train.epochs=3']")
    if isinstance(config, Mapping):
        if out is None:
            raise InputError("out: a configuration that is no file has no name to take; name the run's folder")
        sections = {name: dict(keys) for name, keys in config.items()}
        for override in overrides:
            apply_override(sections, override)
        resolved = make_config(sections)
    else:
        resolved = read_config(Path(config), overrides)
        out = out or Path("runs") / Path(config).stem
    with trusting(trust_code):
        return start_run(resolved, Path(out), resume, progress)


def start_run(
    config: RunConfig, folder: Path, resume: bool = False, progress: StageProgress = no_stage_progress
) -> Run:
    """Do what `train` does, for a checked configuration.

    The folder gets ``config.yaml``, ``splits.json``, ``environment.json``, ``log.jsonl``, ``checkpoints/``, TensorBoard
    events and, at the end, ``model/`` (the last epoch's weights, the primary result of ``protocol.md`` § 6).
    """
    with trusting(config.python_names), claim_folder(config, folder, resume) as is_new:
        if is_new:
            save_model(_train(config, folder, progress), config, folder)
    return read_run(folder)


def _train(config: RunConfig, folder: Path, progress: StageProgress) -> HashModel:
    collection = load_collection(config.sources)
    records = collection.records
    splits = keep_splits(
        folder, records, lambda: draw_run_splits(config, collection), config.split.model_dump(mode="json")
    )
    describe_run(config, folder, records.problems)
    loss = create_loss(config, len(records.label_names))
    check_pairs(config, records)
    if config.extend is not None:
        check_extension(config, config.extend, loss, collection.new)
        return extend(config.extend, config.train, collection, splits, loss, folder, progress)
    model = create_model(config, records.take(splits.train))
    labels = torch.from_numpy(noisy_labels(records.labels[splits.train], config.train.label_noise, config.train.seed))
    trainee = prepare(model, collection, splits.train, config.train, progress)
    fit_scales_of(trainee, splits.train)
    del model  # and with it a frozen backbone, whose features are computed
    return fit(trainee, loss, labels, splits, config.train, folder, progress)
