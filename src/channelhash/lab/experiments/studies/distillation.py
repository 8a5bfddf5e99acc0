"""``experiment distillation``: how much of a teacher's mAP small students keep, and how much faster they are.

For each code length and seed a teacher is trained by the base configuration, then for each of `SIZES`

* a student on the teacher's codes, with the relational term (λ_r = 1);
* the same without it (λ_r = 0), the default of `distill`;
* the same model from labels, by the teacher's loss.

All three have the student's data and training settings, and the teacher's splits joined by id.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.config import RunConfig, read_sections
from channelhash.data.collection import load_collection
from channelhash.data.records import Records
from channelhash.data.row_matching import Partners, find_partners
from channelhash.data.splits import save_splits
from channelhash.errors import InputError, JobError
from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Design, Execution, Experiment, Grid, GridRun, Result
from channelhash.lab.experiments.runner import run_grid
from channelhash.lab.experiments.tables.distillation import (
    DISTILLED,
    KINDS,
    LABELLED,
    UNRELATED,
    distillation_plots,
    distillation_tables,
)
from channelhash.runs.splits import draw_run_splits
from channelhash.runs.student_config import student_config

#: The method of the first runs, from which `SIZES` of students learn.
TEACHER = "teacher"
#: Sizes of the student, settings of the model ``small``; each encodes more images a second than the one before it.
SIZES: dict[str, dict[str, Any]] = {
    "width 32": {"image_size": 64, "width": 32, "text_width": 256, "hidden": [512]},
    "width 16": {"image_size": 48, "width": 16, "text_width": 128, "hidden": [256]},
    "width 8": {"image_size": 32, "width": 8, "text_width": 64, "hidden": [128]},
}


def _grid(design: Design) -> list[GridRun]:
    """Return teachers, by the base configuration's loss or DSCH; `run_distillation` adds their students."""
    return design.runs(TEACHER, design.base.get("loss", METHODS["DSCH"]))


def run_distillation(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Train the teachers of ``grid``, their students of every size, and the same models from labels.

    ``grid.options["student"]`` is ``small``, or a YAML file with that model, as `student_config` takes it. The folder
    gets ``splits.json``, the teacher's splits as rows of the student's data. Distilled students are trained one
    at a time, whatever ``execution.jobs`` says: their speed is measured in that process.

    Raises:
        InputError: as `run_grid`; or the student's settings or data do not fit the teacher's.
        JobError: a teacher failed.
    """
    student = grid.options.get("student", "small")
    _check_student(student)
    path = (folder / "splits.json").resolve()
    students = [run for teacher in grid.runs for run in _students(teacher, student, folder, path)]
    _save_splits(grid.runs[0].config, students[0].config, path)
    for result in run_grid(grid, folder, execution):
        if result.status != "finished":
            raise JobError(f"{result.name} failed, it has no students: {result.error}")
    from_labels = tuple(run for run in students if run.teacher is None)
    run_grid(replace(grid, runs=(*grid.runs, *from_labels)), folder, execution)
    return run_grid(replace(grid, runs=(*grid.runs, *students)), folder, replace(execution, jobs=1))


def _students(teacher: GridRun, student: str, folder: Path, splits: Path) -> list[GridRun]:
    """Return the runs of one teacher: each of `KINDS` at each of `SIZES`."""
    runs, config = [], teacher.config
    teacher_folder = (folder / "runs" / teacher.name).resolve()
    for size, settings in SIZES.items():
        sized = [f"model.{key}={value}" for key, value in settings.items()]
        related, unrelated = (
            student_config(config, student, None, [*sized, f"loss.lambda_r={weight}"]) for weight in (1.0, 0.0)
        )
        split = config.split.model_copy(update={"splits": splits, "only_labels": None, "without_labels": None})
        labelled = replace(related, split=split, loss_name=config.loss_name, loss=config.loss, terms=config.terms)
        for kind, student_run in ((DISTILLED, related), (UNRELATED, unrelated), (LABELLED, labelled)):
            name = teacher.name.replace(TEACHER, f"{KINDS[kind]}-{size.replace(' ', '-')}", 1)
            source = None if kind == LABELLED else teacher_folder
            runs.append(GridRun(name, f"{kind}, {size}", student_run, source))
    return runs


def _check_student(student: str) -> None:
    """Refuse what the experiment sets itself."""
    sections: Mapping[str, Mapping[str, Any]] = {"model": {"name": student}}
    if Path(student).suffix.lower() in (".yaml", ".yml"):
        sections = read_sections(Path(student))
    if (name := sections.get("model", {}).get("name")) != "small":
        raise InputError(f"--student {student}: the sizes are those of the model small, not of {name!r}")
    sizes = next(iter(SIZES.values()))
    for section, key in (*(("model", key) for key in sizes), ("loss", "lambda_r"), ("train", "seed")):
        if key in sections.get(section, {}):
            raise InputError(f"--student {student}: {section}.{key} is what the experiment varies; leave it out")


def _save_splits(teacher: RunConfig, student: RunConfig, path: Path) -> None:
    """Save the splits that all teachers have, as rows of the student's data; `InputError` if the data does not fit."""
    collection = load_collection(teacher.sources)
    teacher_records, records = collection.records, load_collection(student.sources).records
    partners = find_partners(records, teacher_records)
    _check_records(records, teacher_records, partners)
    save_splits(partners.splits(draw_run_splits(teacher, collection)), records, path, {"joined": "by id"})


def _check_records(student: Records, teacher: Records, partners: Partners) -> None:
    """Check that a student from labels sees what the distilled one sees, and the labels that its teacher saw."""
    if more := set(student.items) - set(teacher.items):
        raise InputError(
            f"--student: its data has the modality {min(more)}, the teacher's has {', '.join(teacher.items)}; a model "
            "from labels would learn more than a distilled one"
        )
    both = np.flatnonzero(partners.of_student >= 0)
    same = set(student.label_names) == set(teacher.label_names)
    if same:
        columns = [teacher.label_names.index(name) for name in student.label_names]
        same = np.array_equal(student.labels[both], teacher.labels[partners.of_student[both]][:, columns])
    if not same:
        raise InputError(
            f"--student: its data has other labels ({', '.join(student.label_names) or 'none'}) than the teacher's "
            f"({', '.join(teacher.label_names)}), or on other items; what is trained from labels needs the teacher's"
        )


EXPERIMENT = Experiment(
    name="distillation",
    title="A large model's codes from small ones",
    bits=(32,),
    grid=_grid,
    run=run_distillation,
    tables=distillation_tables,
    plots=distillation_plots,
    options=("student",),
)
