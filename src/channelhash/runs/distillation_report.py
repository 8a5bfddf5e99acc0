"""Teacher and student side by side: retrieval in both directions, equal bits, size, speed."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, unpack
from channelhash.codes.code_set import CodeSet
from channelhash.data.records import Items, Records
from channelhash.data.splits import Splits
from channelhash.errors import InputError
from channelhash.metrics.report import count_tasks
from channelhash.models import HashModel
from channelhash.runs.evaluate import run_codes
from channelhash.runs.fit import relevant_pairs
from channelhash.utils.progress import StageProgress
from channelhash.utils.timing import compare, machine

#: Items that speed is measured on, at most; and seconds that the slower model may take for a pass over them, about.
_ITEMS, _SECONDS = 512, 2.0
_FIRST = 16


@dataclass(frozen=True)
class Side:
    """One of the two models: its run's folder, itself on its device, its data and its partitions."""

    folder: Path
    model: HashModel
    records: Records
    splits: Splits


def compare_sides(
    teacher: Side, student: Side, of_student: NDArray[np.int64], modalities: tuple[str, ...], progress: StageProgress
) -> dict[str, Any]:
    """All figures of a distillation, on the test partitions and the items that both have.

    Args:
        teacher: a finished run.
        student: likewise; its partitions are the teacher's as far as it has the items.
        of_student: ``(n_student,)`` the teacher's row of each of the student's.
        modalities: what the student encodes.
        progress: stage -> its callback.

    Returns:
        ``{"n_bits", "rows": {partition: n}, "map": {"teacher->teacher": {task: mAP_T}, "student->student": …,
        "student->teacher": …, "teacher->student": …}, "chance": {task: share}, "agreement": {modality: share of equal
        bits of Q}, "size": {"teacher": {"parameters", "bytes", "frozen_bytes"}, "student": …}, "speed": {modality:
        {"items", "teacher_per_second", "student_per_second", "teacher_reads", "student_reads"}}, "machine"}``.
        ``a->b``: a's codes of Q search b's codes of R.

    Raises:
        InputError: no query shares a label with an item that is searched.
    """
    codes = _codes_of_both(teacher, student, of_student, progress)
    query, database = codes["teacher"]
    if query.labels is None or database.labels is None or not relevant_pairs(query.labels, database.labels):
        raise InputError(f"{teacher.folder}: no query shares a label with an item of the retrieval set")
    figures: dict[str, dict[str, float]] = {}
    chance: dict[str, float] = {}
    for asks in codes:
        for holds in codes:
            counted = count_tasks(codes[asks][0], codes[holds][1])
            figures[f"{asks}->{holds}"] = {task: counts.mean_average_precision() for task, counts in counted.items()}
            chance |= {task: counts.chance_level() for task, counts in counted.items()}
    return {
        "n_bits": student.model.n_bits,
        "rows": student.splits.counts(),
        "map": figures,
        "chance": chance,
        "agreement": {
            name: equal_bits(codes["student"][0].codes[name], query.codes[name], query.n_bits) for name in modalities
        },
        "size": {"teacher": _size(teacher), "student": _size(student)},
        "speed": {name: _speed(teacher, student, of_student, name) for name in modalities},
        "machine": machine(),
    }


def equal_bits(a: PackedCodes, b: PackedCodes, n_bits: int) -> float:
    """Share of equal bits of two lists of codes, in [0, 1]."""
    return float((unpack(a, n_bits) == unpack(b, n_bits)).mean())


def _codes_of_both(
    teacher: Side, student: Side, of_student: NDArray[np.int64], progress: StageProgress
) -> dict[str, tuple[CodeSet, CodeSet]]:
    """Codes of Q and R of the items that both have, in the same order, with the teacher's labels."""
    theirs, own = run_codes(teacher.folder, progress=progress), run_codes(student.folder, progress=progress)
    found: dict[str, list[CodeSet]] = {"teacher": [], "student": []}
    for role in ("query", "retrieval"):
        rows = of_student[getattr(student.splits, role)]
        places = np.searchsorted(getattr(teacher.splits, role), rows)  # partitions are sorted
        at_teacher = replace(getattr(theirs, role).take(places), model="")
        found["teacher"].append(at_teacher)
        # One Hamming space: the two models differ, which evaluation otherwise refuses.
        codes = replace(getattr(own, role), labels=at_teacher.labels, label_names=at_teacher.label_names, model="")
        found["student"].append(codes)
    return {side: (query, database) for side, (query, database) in found.items()}


def _size(side: Side) -> dict[str, int]:
    """Parameters, bytes of the saved model, and bytes of frozen encoders, which lie elsewhere."""
    model = side.model
    frozen = {id(part): part for name in model.modalities if (part := model.branch(name).frozen)}
    return {
        "parameters": sum(values.numel() for values in model.parameters()),
        "bytes": sum(path.stat().st_size for path in (side.folder / "model").iterdir()),
        "frozen_bytes": sum(value.nbytes for part in frozen.values() for value in part.state_dict().values()),
    }


def _speed(teacher: Side, student: Side, of_student: NDArray[np.int64], modality: str) -> dict[str, Any]:
    """Items a second of both, measured in turn in this process: from what each reads to codes."""
    rows = np.sort(np.concatenate([student.splits.query, student.splits.retrieval]))[:_ITEMS]
    own, theirs = student.records.take(rows).items[modality], teacher.records.take(of_student[rows]).items[modality]
    reads = {"teacher": theirs, "student": own}
    makes_features = modality in (teacher.model.architecture.get("extractors") or {})
    if makes_features and isinstance(theirs, np.ndarray) and not isinstance(own, np.ndarray):
        reads["teacher"] = own
    models = {"teacher": teacher.model, "student": student.model}

    def encode(side: str, n: int) -> PackedCodes:
        return models[side].encode(modality, reads[side][:n])

    first = min(_FIRST, len(rows))
    slowest = 0.0
    for side in models:
        encode(side, first)
        began = time.perf_counter()
        encode(side, first)
        slowest = max(slowest, time.perf_counter() - began)
    n = max(first, min(len(rows), int(first * _SECONDS / slowest)))
    row = compare(modality, f"{n}", lambda: encode("student", n), "teacher", lambda: encode("teacher", n), repeats=3)
    return {
        "items": n,
        "teacher_per_second": n / (row["baseline_seconds"] or np.nan),
        "student_per_second": n / row["seconds"],
        "teacher_reads": _what(reads["teacher"], modality),
        "student_reads": _what(own, modality),
    }


def _what(items: Items, modality: str) -> str:
    return "features" if isinstance(items, np.ndarray) else {"image": "picture files", "text": "texts"}[modality]
