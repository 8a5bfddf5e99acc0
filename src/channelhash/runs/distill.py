"""The job: a teacher's codes of its training rows, a student trained on them, and the two compared."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from channelhash.config import RunConfig, read_run_config
from channelhash.data.collection import Collection, load_collection
from channelhash.data.records import Records
from channelhash.data.row_matching import Partners, find_partners
from channelhash.data.splits import load_splits
from channelhash.errors import InputError
from channelhash.losses import TEACHER_LOSSES
from channelhash.models import HashModel, load_model
from channelhash.runs.build import create_model
from channelhash.runs.distillation_report import Side, compare_sides
from channelhash.runs.fit import fit, prepare
from channelhash.runs.folder import carry_out, describe_run, keep_splits
from channelhash.training.distributed import launched_rank, rank
from channelhash.training.feature_inputs import feature_records
from channelhash.utils.device import pick_device
from channelhash.utils.files import write_text
from channelhash.utils.progress import StageProgress, no_stage_progress


@dataclass(frozen=True)
class Teacher(Side):
    """A finished run and what it was made with."""

    config: RunConfig


def load_teacher(folder: Path) -> Teacher:
    """The teacher in a run's folder; `InputError` if there is none that has finished."""
    config, model = read_run_config(folder), load_model(folder)
    records = load_collection(config.sources).records
    splits = load_splits(folder / "splits.json", records)
    return Teacher(folder.resolve(), model.to(pick_device(config.train.device)), records, splits, config)


def distill(
    teacher: Teacher,
    config: RunConfig,
    folder: Path,
    modalities: Sequence[str] = (),
    resume: bool = False,
    progress: StageProgress = no_stage_progress,
) -> dict[str, Any]:
    """Train a student of ``teacher`` into ``folder``, a run's folder like any other, and compare the two.

    The student's partitions are the teacher's, joined by id. Beside what a run has there is ``distillation.json``: the
    teacher's folder and fingerprint, and the figures. ``problems.txt`` names the items without partner.

    Args:
        teacher: a finished run.
        config: the student's, see `student_config`.
        folder: a new folder, or with ``resume`` one that holds the same student of the same teacher.
        modalities: what the student encodes; by default all that its data and the teacher have.
        resume: go on with an interrupted run.
        progress: stage -> its callback.

    Returns:
        What `train.start_run` returns, and what ``distillation.json`` holds.

    Raises:
        InputError: the folder holds something else, a modality is not there, or the two collections do not fit
            together; and as `train.start_run`.
        JobError: the loss became NaN.
    """
    records = load_collection(config.sources).records
    partners = find_partners(records, teacher.records)
    chosen = _modalities(records, teacher.model, modalities)
    learned = _with_labels(records, teacher.records, partners)
    learned = replace(learned, items={modality: records.items[modality] for modality in chosen})
    fingerprint = teacher.model.fingerprint()
    from_whom = {"teacher": str(teacher.folder), "teacher_weights": fingerprint, "modalities": list(chosen)}
    described = folder / "distillation.json"
    _check_teacher(described, from_whom)

    def job() -> HashModel:
        if rank() == 0:
            write_text(described, json.dumps(from_whom, indent=2))
        settings = {"teacher": str(teacher.folder), "joined": "by id"}
        splits = keep_splits(folder, records, lambda: partners.splits(teacher.splits), settings, resume)
        describe_run(config, folder, [*records.problems, *partners.alone])
        rows = partners.of_student[splits.train]
        targets = teacher_outputs(teacher, rows, chosen, progress)
        loss_settings = {name: getattr(config.loss, name) for name in type(config.loss).model_fields}
        loss = TEACHER_LOSSES[config.loss_name](n_bits=config.n_bits, modalities=chosen, **loss_settings)
        trainee = prepare(
            config.train,
            _student(config, learned.take(splits.train), (fingerprint, *teacher.model.extends)),
            Collection((learned,)),
            splits.train,
            progress,
        )
        return fit(config, folder, trainee, splits, loss, targets, resume, progress)

    result = carry_out(config, folder, resume, job)
    if launched_rank() > 0:
        return result
    found: dict[str, Any] = json.loads(described.read_text(encoding="utf-8"))
    if "map" not in found:
        splits = load_splits(folder / "splits.json", records)
        student = Side(folder, load_model(folder).to(pick_device(config.train.device)), records, splits)
        figures = compare_sides(teacher, student, partners.of_student, chosen, progress)
        alone = {"student": int((partners.of_student < 0).sum()), "teacher": int((partners.of_teacher < 0).sum())}
        found = from_whom | {"without_partner": alone} | figures
        write_text(described, json.dumps(found, indent=2))
    return result | found


def _student(config: RunConfig, train_records: Records, code_spaces: Sequence[str]) -> HashModel:
    """The untrained student; see `HashModel.code_spaces`."""
    model = create_model(config, train_records)
    model.code_spaces = tuple(code_spaces)
    return model


def teacher_outputs(
    teacher: Teacher, rows: Sequence[int] | np.ndarray[Any, Any], modalities: Sequence[str], progress: StageProgress
) -> Tensor:
    """The teacher's outputs ``(n, m, k)`` of ``rows`` of its data, in evaluation mode; features come from its cache."""
    features = feature_records(teacher.model, teacher.records, teacher.config.train, progress).take(rows)
    feature_model = teacher.model.on_features()
    return torch.stack(
        [feature_model.outputs(name, features.items[name], progress(f"teacher's {name} codes")) for name in modalities],
        dim=1,
    )


def _modalities(records: Records, teacher: HashModel, asked: Sequence[str]) -> tuple[str, ...]:
    """What the student learns, in the teacher's order."""
    both = [modality for modality in teacher.modalities if modality in records.items]
    for modality in asked:
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
    return tuple(modality for modality in both if not asked or modality in asked)


def _with_labels(student: Records, teacher: Records, partners: Partners) -> Records:
    """The student's records with the teacher's labels; rows without partner, which are in no partition, have none."""
    labels = np.where(partners.of_student[:, None] >= 0, teacher.labels[partners.of_student], False)
    return replace(student, labels=labels, label_names=teacher.label_names)


def _check_teacher(described: Path, from_whom: dict[str, Any]) -> None:
    if not described.exists():
        return
    found: dict[str, Any] = json.loads(described.read_text(encoding="utf-8"))
    for key in ("teacher_weights", "modalities"):
        if found.get(key) != from_whom[key]:
            raise InputError(
                f"{described}: was begun with {key} {found.get(key)}, not {from_whom[key]}; choose another --out"
            )
