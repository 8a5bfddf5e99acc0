"""Train a student on the codes of a teacher, and compare the two."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from channelhash.config import RunConfig
from channelhash.data.collection import Collection, load_collection
from channelhash.data.records import Records
from channelhash.data.row_matching import Partners, find_partners
from channelhash.data.splits import Splits
from channelhash.errors import InputError
from channelhash.losses import resolve_loss
from channelhash.models import HashModel
from channelhash.runs.build import create_model
from channelhash.runs.distillation_report import compare_runs
from channelhash.runs.fit import fit, fit_scales_of, prepare
from channelhash.runs.folder import OpenedRun, claim_folder, describe_run, keep_splits, open_run, read_run, save_model
from channelhash.training.distributed import launched_rank, rank
from channelhash.training.feature_inputs import feature_records
from channelhash.utils.files import write_text
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.python_names import trusting


def distill(
    teacher: OpenedRun,
    config: RunConfig,
    folder: Path,
    modalities: Sequence[str] = (),
    resume: bool = False,
    progress: StageProgress = no_stage_progress,
) -> dict[str, Any]:
    """Train a student of ``teacher`` into ``folder``, a run's folder like any other, and compare the two.

    The student's splits are the teacher's, joined by id. Beside what any run has, ``distillation.json`` holds the
    teacher's folder and fingerprint, and the scores. ``problems.txt`` names the items without partner.

    Args:
        teacher: a finished run.
        config: the student's, see `student_config`.
        folder: a new folder, or with ``resume`` one that holds the same student of the same teacher.
        modalities: what the student encodes; by default all that its data and the teacher have.
        resume: go on with an interrupted run.
        progress: stage -> its callback.

    Returns:
        What the run came to (`folder.Run.as_dict`), and what ``distillation.json`` holds.

    Raises:
        InputError: the folder holds something else, a modality is missing, or the two collections do not fit together;
            and as `train.train`.
        JobError: the loss became NaN.
    """
    records = load_collection(config.sources).records
    partners = find_partners(records, teacher.collection.records)
    labelled = _labelled_by(teacher, records, partners, modalities)
    origin = {
        "teacher": str(teacher.folder.resolve()),
        "teacher_weights": teacher.model.fingerprint(),
        "modalities": list(labelled.items),
    }
    path = folder / "distillation.json"
    _check_origin(path, origin)

    with trusting(config.python_names), claim_folder(config, folder, resume) as is_new:
        if is_new:
            if rank() == 0:
                write_text(path, json.dumps(origin, indent=2))
            settings = {"teacher": origin["teacher"], "joined": "by id"}
            splits = keep_splits(folder, records, lambda: partners.splits(teacher.splits), settings)
            describe_run(config, folder, [*records.problems, *partners.unmatched])
            targets = teacher_outputs(teacher, partners.of_student[splits.train], tuple(labelled.items), progress)
            save_model(_train_student(teacher, config, labelled, splits, targets, folder, progress), config, folder)
    run = read_run(folder).as_dict()
    if launched_rank() > 0:
        return run
    description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "map" not in description:
        with trusting(config.python_names):
            student = open_run(folder)
        description = origin | compare_runs(teacher, student, partners, tuple(labelled.items), progress)
        write_text(path, json.dumps(description, indent=2))
    return run | description


def _train_student(
    teacher: OpenedRun,
    config: RunConfig,
    labelled: Records,
    splits: Splits,
    targets: Tensor,
    folder: Path,
    progress: StageProgress,
) -> HashModel:
    loss_settings = {name: getattr(config.loss, name) for name in type(config.loss).model_fields}
    loss = resolve_loss(config.loss_name)(n_bits=config.n_bits, modalities=tuple(labelled.items), **loss_settings)
    model = create_model(config, labelled.take(splits.train))
    model.code_spaces = (teacher.model.fingerprint(), *teacher.model.extends)
    trainee = prepare(model, Collection((labelled,)), splits.train, config.train, progress)
    fit_scales_of(trainee, splits.train)
    del model  # and with it a frozen backbone, whose features are computed
    return fit(trainee, loss, targets, splits, config.train, folder, progress)


def teacher_outputs(
    teacher: OpenedRun, rows: Sequence[int] | NDArray[np.int64], modalities: Sequence[str], progress: StageProgress
) -> Tensor:
    """Return the teacher's outputs ``(n, m, k)`` of ``rows`` of its data, in evaluation mode."""
    records = teacher.collection.records
    features = feature_records(teacher.model, records, teacher.config.train, progress).take(rows)
    feature_model = teacher.model.on_features()
    return torch.stack(
        [feature_model.outputs(name, features.items[name], progress(f"teacher's {name} codes")) for name in modalities],
        dim=1,
    )


def _labelled_by(teacher: OpenedRun, records: Records, partners: Partners, modalities: Sequence[str]) -> Records:
    """Return the student's records with the teacher's labels, of the modalities that the student learns."""
    items = {name: records.items[name] for name in _choose_modalities(records, teacher.model, modalities)}
    names, labels = teacher.collection.records.label_names, teacher.collection.records.labels
    # Rows without partner are in no split, and have no labels.
    labels = np.where(partners.of_student[:, None] >= 0, labels[partners.of_student], False)
    return replace(records, items=items, labels=labels, label_names=names)


def _choose_modalities(records: Records, teacher: HashModel, chosen: Sequence[str]) -> tuple[str, ...]:
    """Return the modalities that the student learns, in the teacher's order."""
    both = [modality for modality in teacher.modalities if modality in records.items]
    for modality in chosen:
        if modality not in both:
            raise InputError(
                f"--modalities {modality}: the teacher has {', '.join(teacher.modalities)}, the student's data "
                f"{', '.join(records.items)}"
            )
    if not both:
        raise InputError(
            f"the teacher encodes {', '.join(teacher.modalities)}, the student's data has {', '.join(records.items)}; "
            "there is nothing to learn"
        )
    return tuple(modality for modality in both if not chosen or modality in chosen)


def _check_origin(path: Path, origin: dict[str, Any]) -> None:
    """Check that a student in this folder, if any, was begun with the same teacher and modalities."""
    if not path.exists():
        return
    description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for key in ("teacher_weights", "modalities"):
        if description.get(key) != origin[key]:
            raise InputError(
                f"{path}: was begun with {key} {description.get(key)}, not {origin[key]}; choose another --out"
            )
