"""Train a student on the codes of a teacher, and compare the two."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from channelhash.config import RunConfig, read_run_config
from channelhash.data.collection import Collection, load_collection
from channelhash.data.records import Records
from channelhash.data.row_matching import Partners, find_partners
from channelhash.data.splits import load_splits
from channelhash.errors import InputError
from channelhash.losses import resolve_loss
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
    """A finished run with its configuration."""

    config: RunConfig


class Lesson(NamedTuple):
    """What a student learns from.

    Attributes:
        records: the student's data.
        labelled: the same rows with the teacher's labels, of the modalities that the student learns.
        partners: which row is which of the teacher's.
        modalities: the modalities that the student learns, in the teacher's order.
    """

    records: Records
    labelled: Records
    partners: Partners
    modalities: tuple[str, ...]


def load_teacher(folder: Path) -> Teacher:
    """Return the teacher in a run's folder.

    Raises:
        InputError: there is no finished run.
    """
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
    lesson = _lesson(records, teacher, modalities)
    origin = {
        "teacher": str(teacher.folder),
        "teacher_weights": teacher.model.fingerprint(),
        "modalities": list(lesson.modalities),
    }
    path = folder / "distillation.json"
    _check_origin(path, origin)

    def job() -> HashModel:
        if rank() == 0:
            write_text(path, json.dumps(origin, indent=2))
        return _train_student(teacher, config, folder, lesson, progress)

    run = carry_out(config, folder, resume, job).as_dict()
    if launched_rank() > 0:
        return run
    description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "map" not in description:
        splits = load_splits(folder / "splits.json", records)
        student = Side(folder, load_model(folder).to(pick_device(config.train.device)), records, splits)
        description = origin | compare_sides(teacher, student, lesson.partners, lesson.modalities, progress)
        write_text(path, json.dumps(description, indent=2))
    return run | description


def _train_student(
    teacher: Teacher, config: RunConfig, folder: Path, lesson: Lesson, progress: StageProgress
) -> HashModel:
    records, labelled, partners, modalities = lesson
    settings = {"teacher": str(teacher.folder), "joined": "by id"}
    splits = keep_splits(folder, records, lambda: partners.splits(teacher.splits), settings)
    describe_run(config, folder, [*records.problems, *partners.unmatched])
    targets = teacher_outputs(teacher, partners.of_student[splits.train], modalities, progress)
    loss_settings = {name: getattr(config.loss, name) for name in type(config.loss).model_fields}
    loss = resolve_loss(config.loss_name)(n_bits=config.n_bits, modalities=modalities, **loss_settings)
    code_spaces = (teacher.model.fingerprint(), *teacher.model.extends)
    trainee = prepare(
        _student(config, labelled.take(splits.train), code_spaces),
        Collection((labelled,)),
        splits.train,
        config.train,
        progress,
    )
    return fit(trainee, loss, targets, splits, config.train, folder, progress)


def _student(config: RunConfig, train_records: Records, code_spaces: Sequence[str]) -> HashModel:
    """Return the untrained student; see `HashModel.code_spaces`."""
    model = create_model(config, train_records)
    model.code_spaces = tuple(code_spaces)
    return model


def teacher_outputs(
    teacher: Teacher, rows: Sequence[int] | NDArray[np.int64], modalities: Sequence[str], progress: StageProgress
) -> Tensor:
    """Return the teacher's outputs ``(n, m, k)`` of ``rows`` of its data, in evaluation mode."""
    features = feature_records(teacher.model, teacher.records, teacher.config.train, progress).take(rows)
    feature_model = teacher.model.on_features()
    return torch.stack(
        [feature_model.outputs(name, features.items[name], progress(f"teacher's {name} codes")) for name in modalities],
        dim=1,
    )


def _lesson(records: Records, teacher: Teacher, modalities: Sequence[str]) -> Lesson:
    partners = find_partners(records, teacher.records)
    learned = _choose_modalities(records, teacher.model, modalities)
    # Rows without partner are in no split, and have no labels.
    labels = np.where(partners.of_student[:, None] >= 0, teacher.records.labels[partners.of_student], False)
    items = {modality: records.items[modality] for modality in learned}
    labelled = replace(records, items=items, labels=labels, label_names=teacher.records.label_names)
    return Lesson(records, labelled, partners, learned)


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
