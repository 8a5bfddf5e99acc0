"""Train a student on the codes of a teacher, and compare the two."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from channelhash.codes import CodeSet, unpack
from channelhash.config import RunConfig, make_config, read_sections
from channelhash.data.collection import Collection, Partners
from channelhash.data.records import Records
from channelhash.data.splits import RowNumbers, SplitSettings
from channelhash.errors import InputError, argument
from channelhash.losses import TEACHER_LOSSES, resolve_loss
from channelhash.metrics.report import count_tasks
from channelhash.models import MODELS
from channelhash.presets import data_kind
from channelhash.runs.create import create_model
from channelhash.runs.evaluate import run_codes
from channelhash.runs.folder import (
    OpenedRun,
    check_contents,
    check_evaluable,
    claim_folder,
    describe_run,
    keep_contents,
    keep_splits,
    open_run,
    read_run,
    save_model,
)
from channelhash.training.distributed import launched_rank, rank
from channelhash.training.inputs import feature_records
from channelhash.training.trainer import Trainee
from channelhash.utils.files import write_text
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.typed_settings import apply_overrides, is_python_name, trusting, unknown

#: Settings of a training that belong to the teacher's own encoders.
_OF_ENCODERS = ("features", "feature_dtype", "precision")


def student_config(
    teacher: RunConfig, student: str, data: Path | None, overrides: Sequence[str] = ()
) -> RunConfig:
    """Return the configuration that ``distill`` trains a student by.

    >>> from channelhash.lab.demo import demo_config
    >>> teacher = demo_config(Path("demo"), "dsch", quick=True)
    >>> student = student_config(teacher, "small", None, ["model.width=8"])
    >>> student.loss_name, student.n_bits, student.model.width
    ('distillation', 64, 8)
    """
    sections = _own_sections(student)
    split = teacher.split.model_dump(mode="json")
    if data is not None:
        sections["data"] = {"kind": data_kind(data), "path": str(data)}
    if "data" in sections:  # ids choose the rows, however the teacher's were chosen
        split |= {"only_labels": None, "without_labels": None}
    elif teacher.extend is not None:
        raise InputError(
            f"{argument('data')}: the teacher extends a run, its items are in two places; give "
            "them as one source"
        )
    else:
        sections["data"] = {"kind": teacher.kind, **teacher.source.model_dump(mode="json")}
    apply_overrides(sections, *overrides)
    for key in SplitSettings.model_fields:
        if key in sections["data"]:
            raise InputError(f"data.{key}: the partitions are the teacher's; leave it out")
    if "extend" in sections:
        raise InputError(
            "extend: a student learns from its teacher alone, it extends no run; leave the section "
            "out"
        )
    n_bits = sections.setdefault("model", {}).setdefault("n_bits", teacher.n_bits)
    if n_bits != teacher.n_bits:
        raise InputError(
            f"model.n_bits: is {n_bits!r}, but the teacher's codes have {teacher.n_bits}; leave it "
            "out"
        )
    loss = sections.setdefault("loss", {}).setdefault("name", "distillation")
    if not resolve_loss(loss).needs_teacher:
        raise InputError(
            f"loss.name: {loss!r} takes no teacher; a student's loss is {', '.join(TEACHER_LOSSES)}"
        )
    train = teacher.train.model_dump(mode="json", exclude=set(_OF_ENCODERS))
    sections["data"] |= split
    sections["train"] = train | sections.get("train", {})
    sections["evaluate"] = teacher.evaluate.model_dump(mode="json") | sections.get("evaluate", {})
    return make_config(sections)


def _own_sections(student: str) -> dict[str, dict[str, Any]]:
    if Path(student).suffix.lower() in (".yaml", ".yml"):
        sections = {name: dict(keys) for name, keys in read_sections(Path(student)).items()}
        if "name" not in sections.get("model", {}):
            raise InputError(f"{student}: says no model.name; write model: {{name: small, …}}")
        return sections
    if not (student in MODELS or is_python_name(student)):
        raise InputError(
            unknown(f"{argument('student')} {student!r}", student, [*MODELS, "FILE.yaml"])
        )
    return {"model": {"name": student}}


def _compare_runs(
    teacher: OpenedRun,
    student: OpenedRun,
    partners: Partners,
    modalities: tuple[str, ...],
    progress: StageProgress,
) -> dict[str, Any]:
    """Compute all scores of a distillation, on the test splits and the items that both sides
    have.
    """
    of_student = partners.of_student
    codes = _codes_of_both(teacher, student, of_student, progress)
    query, database = codes["teacher"]
    if (
        query.labels is None
        or database.labels is None
        or not (query.labels.any(0) & database.labels.any(0)).any()
    ):
        raise InputError(
            f"{teacher.folder}: no query shares a label with an item of the retrieval set"
        )
    student_codes = codes["student"][0].codes
    n = query.n_bits
    maps: dict[str, dict[str, float]] = {}
    chance: dict[str, float] = {}
    for a in codes:
        for b in codes:
            histograms = count_tasks(codes[a][0], codes[b][1])
            maps[f"{a}->{b}"] = {
                task: counts.mean_average_precision() for task, counts in histograms.items()
            }
            chance |= {task: counts.chance_level() for task, counts in histograms.items()}
    return {
        "without_partner": {
            "student": int((of_student < 0).sum()),
            "teacher": int((partners.of_teacher < 0).sum()),
        },
        "n_bits": n,
        "rows": student.splits.counts(),
        "map": maps,
        "chance": chance,
        "agreement": {
            name: float((unpack(student_codes[name], n) == unpack(query.codes[name], n)).mean())
            for name in modalities
        },
        "size": {"teacher": _size(teacher), "student": _size(student)},
    }


def _codes_of_both(
    teacher: OpenedRun, student: OpenedRun, of_student: RowNumbers, progress: StageProgress
) -> dict[str, tuple[CodeSet, CodeSet]]:
    """Return codes of Q and R of the items that both have, in the same order, with the teacher's
    labels.
    """
    runs = {side.folder: run_codes(side.folder, progress=progress) for side in (teacher, student)}
    codes: dict[str, list[CodeSet]] = {"teacher": [], "student": []}
    for role in ("query", "retrieval"):
        rows = of_student[getattr(student.splits, role)]
        places = np.searchsorted(getattr(teacher.splits, role), rows)  # splits are sorted
        # One Hamming space: the two models differ, which evaluation otherwise refuses.
        from_teacher = replace(getattr(runs[teacher.folder], role).take(places), model="")
        labels = {"labels": from_teacher.labels, "label_names": from_teacher.label_names}
        codes["teacher"].append(from_teacher)
        codes["student"].append(replace(getattr(runs[student.folder], role), **labels, model=""))
    return {side: (query, database) for side, (query, database) in codes.items()}


def _size(run: OpenedRun) -> dict[str, int]:
    return {
        "parameters": sum(values.numel() for values in run.model.parameters()),
        "bytes": sum(path.stat().st_size for path in (run.folder / "model").iterdir()),
    }


def distill(
    teacher: OpenedRun,
    config: RunConfig,
    folder: Path,
    modalities: Sequence[str] = (),
    resume: bool = False,
    progress: StageProgress = no_stage_progress,
) -> dict[str, Any]:
    """Train a student of ``teacher`` into ``folder``, a run's folder like any other, and compare
    the two.

    The student's splits are the teacher's, joined by id. Beside what any run has,
    ``distillation.json`` holds the teacher's folder and fingerprint, and the scores.
    ``problems.txt`` names the items without partner.
    """
    collection = Collection.load(config.sources)
    records = collection.records
    partners = Partners.match(records, teacher.collection.records)
    labelled = _labelled_by(teacher, records, partners, modalities)
    learned = tuple(labelled.items)
    origin: dict[str, Any] = {
        "teacher": str(teacher.folder.resolve()),
        "teacher_weights": teacher.model.fingerprint(),
        "modalities": list(learned),
    }
    path = folder / "distillation.json"
    begun = json.loads(path.read_text(encoding="utf-8")) if path.exists() else origin
    for key in ("teacher_weights", "modalities"):
        if begun.get(key) != origin[key]:
            raise InputError(
                f"{path}: was begun with {key} {begun.get(key)}, not {origin[key]}; choose "
                f"another {argument('folder')}"
            )

    with trusting(config.python_names), claim_folder(config, folder, resume) as is_new:
        if is_new:
            if rank() == 0:
                write_text(path, json.dumps(origin, indent=2))
            keep_contents(folder, config, collection)
            settings = {"teacher": origin["teacher"], "joined": "by id"}
            splits = keep_splits(folder, records, lambda: partners.splits(teacher.splits), settings)
            describe_run(config, folder, [*records.problems, *partners.unmatched])
            check_evaluable(labelled, splits)
            model = create_model(config, labelled.take(splits.train))
            model.code_spaces = (origin["teacher_weights"], *teacher.model.extends)
            trainee = Trainee.prepare(
                model, Collection((labelled,)), splits.train, config.train, progress
            )
            del model  # and with it a frozen backbone, whose features are computed
            sizes = {"n_bits": config.n_bits, "modalities": learned}
            loss = resolve_loss(config.loss_name)(**sizes, **vars(config.loss))
            targets = _teacher_outputs(
                teacher, partners.of_student[splits.train], learned, progress
            )
            model = trainee.fit(loss, targets, splits, folder, progress)
            save_model(model, config, folder)
        else:
            check_contents(folder, config, collection)
    run = read_run(folder).as_dict()
    if launched_rank() > 0:
        return run
    description: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "map" not in description:
        with trusting(config.python_names):
            student = open_run(folder)
        description = origin | _compare_runs(teacher, student, partners, learned, progress)
        write_text(path, json.dumps(description, indent=2))
    return run | description


def _teacher_outputs(
    teacher: OpenedRun, rows: RowNumbers, modalities: Sequence[str], progress: StageProgress
) -> Tensor:
    """Return the teacher's outputs ``(n, m, k)`` of ``rows`` of its data, in evaluation mode."""
    records = teacher.collection.records
    features = feature_records(teacher.model, records, teacher.config.train, progress).take(rows)
    model = teacher.model.on_features()
    outputs = [
        model.outputs(name, features.items[name], progress(f"teacher's {name} codes"))
        for name in modalities
    ]
    return torch.stack(outputs, dim=1)


def _labelled_by(
    teacher: OpenedRun, records: Records, partners: Partners, modalities: Sequence[str]
) -> Records:
    """Return the student's records with the teacher's labels, of the modalities that the student
    learns.
    """
    both = [modality for modality in teacher.model.modalities if modality in records.items]
    missing = set(modalities) - set(both)
    if missing or not both:
        where = f"{argument('modalities')} {min(missing)}: " if missing else ""
        has = ", ".join(teacher.model.modalities)
        data = ", ".join(records.items)
        raise InputError(f"{where}the teacher has {has}, the student's data {data}")
    items = {name: records.items[name] for name in both if not modalities or name in modalities}
    labelled = teacher.collection.records
    # Rows without partner are in no split, and have no labels.
    has_partner = partners.of_student[:, None] >= 0
    labels = np.where(has_partner, labelled.labels[partners.of_student], False)
    return replace(records, items=items, labels=labels, label_names=labelled.label_names)
