"""Compare a teacher and its student: retrieval in both directions, equal bits, size, speed."""

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, unpack
from channelhash.codes.code_set import CodeSet
from channelhash.data.records import Items
from channelhash.data.row_matching import Partners
from channelhash.errors import InputError
from channelhash.metrics.report import count_tasks
from channelhash.runs.evaluate import run_codes
from channelhash.runs.fit import relevant_pairs
from channelhash.runs.folder import OpenedRun
from channelhash.utils.progress import StageProgress
from channelhash.utils.timing import compare, describe_machine

#: Items that speed is measured on, at most; and seconds that the slower model may take for a pass over them, about.
_ITEMS, _SECONDS = 512, 2.0
_FIRST = 16


def compare_runs(
    teacher: OpenedRun, student: OpenedRun, partners: Partners, modalities: tuple[str, ...], progress: StageProgress
) -> dict[str, Any]:
    """Compute all scores of a distillation, on the test splits and the items that both sides have.

    Args:
        teacher: a finished run.
        student: likewise; its splits are the teacher's as far as it has the items.
        partners: which row of the student's is which of the teacher's.
        modalities: what the student encodes.
        progress: stage -> its callback.

    Returns:
        ``{"without_partner": {"student": n, "teacher": n}, "n_bits", "rows": {split: n}, "map":
        {"teacher->teacher": {task: mAP_T}, "student->student": …, "student->teacher": …, "teacher->student": …},
        "chance": {task: x}, "agreement": {modality: fraction of equal bits of Q}, "size": {"teacher": {"parameters",
        "bytes", "frozen_bytes"}, "student": …}, "speed": {modality: {"items", "teacher_per_second",
        "student_per_second", "teacher_reads", "student_reads"}}, "machine"}``.
        ``a->b``: a's codes of Q search b's codes of R.

    Raises:
        InputError: no query shares a label with an item that is searched.
    """
    of_student = partners.of_student
    codes = _codes_of_both(teacher, student, of_student, progress)
    query, database = codes["teacher"]
    if query.labels is None or database.labels is None or not relevant_pairs(query.labels, database.labels):
        raise InputError(f"{teacher.folder}: no query shares a label with an item of the retrieval set")
    maps: dict[str, dict[str, float]] = {}
    chance: dict[str, float] = {}
    for a in codes:
        for b in codes:
            histograms = count_tasks(codes[a][0], codes[b][1])
            maps[f"{a}->{b}"] = {task: counts.mean_average_precision() for task, counts in histograms.items()}
            chance |= {task: counts.chance_level() for task, counts in histograms.items()}
    return {
        "without_partner": {"student": int((of_student < 0).sum()), "teacher": int((partners.of_teacher < 0).sum())},
        "n_bits": student.model.n_bits,
        "rows": student.splits.counts(),
        "map": maps,
        "chance": chance,
        "agreement": {
            name: equal_bits(codes["student"][0].codes[name], query.codes[name], query.n_bits) for name in modalities
        },
        "size": {"teacher": _size(teacher), "student": _size(student)},
        "speed": {name: _speed(teacher, student, of_student, name) for name in modalities},
        "machine": describe_machine(),
    }


def equal_bits(a: PackedCodes, b: PackedCodes, n_bits: int) -> float:
    """Return the fraction of equal bits of two lists of codes.

    >>> equal_bits(np.array([[0b1111_0000]], np.uint8), np.array([[0b1100_0000]], np.uint8), n_bits=4)
    0.5
    """
    return float((unpack(a, n_bits) == unpack(b, n_bits)).mean())


def _codes_of_both(
    teacher: OpenedRun, student: OpenedRun, of_student: NDArray[np.int64], progress: StageProgress
) -> dict[str, tuple[CodeSet, CodeSet]]:
    """Return codes of Q and R of the items that both have, in the same order, with the teacher's labels."""
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
    """Return parameters, bytes of the saved model, and bytes of frozen encoders, which are saved elsewhere."""
    model = run.model
    frozen = {id(part): part for name in model.modalities if (part := model.branch(name).frozen)}
    return {
        "parameters": sum(values.numel() for values in model.parameters()),
        "bytes": sum(path.stat().st_size for path in (run.folder / "model").iterdir()),
        "frozen_bytes": sum(value.nbytes for part in frozen.values() for value in part.state_dict().values()),
    }


def _speed(teacher: OpenedRun, student: OpenedRun, of_student: NDArray[np.int64], modality: str) -> dict[str, Any]:
    """Measure items a second of both, in turn in this process: from what each reads to codes."""
    rows = np.sort(np.concatenate([student.splits.query, student.splits.retrieval]))[:_ITEMS]
    reads = {
        "teacher": teacher.collection.records.take(of_student[rows]).items[modality],
        "student": student.collection.records.take(rows).items[modality],
    }
    makes_features = modality in (teacher.model.architecture.get("extractors") or {})
    if makes_features and isinstance(reads["teacher"], np.ndarray) and not isinstance(reads["student"], np.ndarray):
        reads["teacher"] = reads["student"]
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
        "student_reads": _what(reads["student"], modality),
    }


def _what(items: Items, modality: str) -> str:
    return "features" if isinstance(items, np.ndarray) else {"image": "picture files", "text": "texts"}[modality]
