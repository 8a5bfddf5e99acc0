"""``experiment distillation``: what of a teacher's mAP small students keep, and how much faster they are.

For each code length and seed a teacher is trained by the base configuration, then for each of `SIZES`

* a student on the teacher's codes, with the relational term (λ_r = 1);
* the same without it (λ_r = 0), as `distill` trains unless asked otherwise;
* the same model from labels, by the teacher's loss.

All three have the student's data and training settings, and the teacher's partitions joined by id.
"""

from collections.abc import Mapping, Sequence
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
from channelhash.lab.experiments.definitions import TEACHER
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.runner import Grid, GridRun, Say, run_grid
from channelhash.lab.experiments.tables.distillation import DISTILLED, KINDS, LABELLED, UNRELATED
from channelhash.runs.build import draw_run_splits
from channelhash.runs.student_config import student_config

#: Sizes of the student, settings of the model ``small``; each encodes more pictures a second than the one before it.
SIZES: dict[str, dict[str, Any]] = {
    "width 32": {"image_size": 64, "width": 32, "text_width": 256, "hidden": [512]},
    "width 16": {"image_size": 48, "width": 16, "text_width": 128, "hidden": [256]},
    "width 8": {"image_size": 32, "width": 8, "text_width": 64, "hidden": [128]},
}


def run_distillation(
    grid: Grid, student: str, folder: Path, jobs: int, devices: Sequence[str], say: Say
) -> list[Result]:
    """Train the teachers of ``grid``, their students of every size, and the same models from labels.

    Distilled students are trained one at a time, whatever ``jobs`` says: their speed is measured in that process.

    Args:
        grid: the teachers.
        student: ``small``, or a YAML file with that model, as `runs.student_config.student_config` takes it.
        folder: the grid's folder; it gets ``splits.json``, the teacher's partitions as rows of the student's data.
        jobs, devices, say: as in `runner.run_grid`.

    Raises:
        InputError: as `runner.run_grid`; or the student's settings or data do not go with the teacher's.
        JobError: a teacher failed.
    """
    _check_student(student)
    path = (folder / "splits.json").resolve()
    runs = [made for run in grid.runs for made in _students(run, student, folder, path)]
    _save_splits(grid.runs[0].config, runs[0].config, path)
    for result in run_grid(grid, folder, jobs, devices, say):
        if result.status != "finished":
            raise JobError(f"{result.name} failed, it has no students: {result.error}")
    labelled = tuple(run for run in runs if run.teacher is None)
    run_grid(replace(grid, runs=(*grid.runs, *labelled)), folder, jobs, devices, say)
    return run_grid(replace(grid, runs=(*grid.runs, *runs)), folder, 1, devices, say)


def _students(teacher: GridRun, student: str, folder: Path, splits: Path) -> list[GridRun]:
    """The runs of one teacher: each of `KINDS` at each of `SIZES`."""
    runs, config = [], teacher.config
    place = (folder / "runs" / teacher.name).resolve()
    for size, settings in SIZES.items():
        sized = [f"model.{key}={value}" for key, value in settings.items()]
        related, unrelated = (
            student_config(config, student, None, [*sized, f"loss.lambda_r={weight}"]) for weight in (1.0, 0.0)
        )
        split = config.split.model_copy(update={"splits": splits, "only_labels": None, "without_labels": None})
        labelled = replace(related, split=split, loss_name=config.loss_name, loss=config.loss, terms=config.terms)
        for kind, made, of in ((DISTILLED, related, place), (UNRELATED, unrelated, place), (LABELLED, labelled, None)):
            name = teacher.name.replace(TEACHER, f"{KINDS[kind]}-{size.replace(' ', '-')}", 1)
            runs.append(GridRun(name, f"{kind}, {size}", made, of))
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
    """The partitions that all teachers have, as rows of the student's data; `InputError` if that does not fit."""
    collection = load_collection(teacher.sources)
    theirs, own = collection.records, load_collection(student.sources).records
    partners = find_partners(own, theirs)
    _check_same(own, theirs, partners)
    save_splits(partners.splits(draw_run_splits(teacher, collection)), own, path, {"joined": "by id"})


def _check_same(own: Records, theirs: Records, partners: Partners) -> None:
    """A student from labels has to see what the distilled one sees, and the labels that its teacher saw."""
    if more := set(own.items) - set(theirs.items):
        raise InputError(
            f"--student: its data has the modality {min(more)}, the teacher's has {', '.join(theirs.items)}; a model "
            "from labels would learn more than a distilled one"
        )
    both = np.flatnonzero(partners.of_student >= 0)
    same = set(own.label_names) == set(theirs.label_names)
    if same:
        columns = [theirs.label_names.index(name) for name in own.label_names]
        same = np.array_equal(own.labels[both], theirs.labels[partners.of_student[both]][:, columns])
    if not same:
        raise InputError(
            f"--student: its data has other labels ({', '.join(own.label_names) or 'none'}) than the teacher's "
            f"({', '.join(theirs.label_names)}), or on other items; what is trained from labels needs the teacher's"
        )
