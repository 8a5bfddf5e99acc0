"""The configuration of a student: its model, and the teacher's settings for everything else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from channelhash.config import RunConfig, make_config, read_sections
from channelhash.data.settings import SplitSettings
from channelhash.data.tabular_files import ENDINGS as TABLES
from channelhash.errors import InputError
from channelhash.losses import TEACHER_LOSSES, resolve_loss
from channelhash.models import MODELS
from channelhash.utils.array_files import ENDINGS as FEATURE_FILES
from channelhash.utils.overrides import apply_override
from channelhash.utils.python_names import is_python_name
from channelhash.utils.typed_settings import unknown

#: Settings of a training that belong to the teacher's own encoders.
_OF_ENCODERS = ("features", "feature_dtype", "precision")

Sections = dict[str, dict[str, Any]]


def student_config(teacher: RunConfig, student: str, data: Path | None, overrides: Sequence[str] = ()) -> RunConfig:
    """Return the configuration that ``distill`` trains a student by.

    Args:
        teacher: the configuration of the teacher's run. Data, splits, training and evaluation are taken from it.
        student: name in `MODELS`, or a YAML file whose sections replace the teacher's: ``model``; ``data`` as a whole;
            keys of ``train``, ``evaluate`` and ``loss``.
        data: another source of the same items: a table or a file of features.
        overrides: ``"section.key=value"``, which replace everything else.

    Raises:
        InputError: a name or key is unknown or misplaced, the student has another code length or splits of its own, it
            extends a run, or ``data`` is missing although the teacher has two collections.

    >>> from channelhash.runs.demo import demo_config
    >>> student = student_config(demo_config(Path("demo"), "dsch", quick=True), "small", None, ["model.width=8"])
    >>> student.loss_name, student.n_bits, student.model.width
    ('distillation', 64, 8)
    """
    sections = _own_sections(student)
    split = teacher.split.model_dump(mode="json")
    if data is not None:
        sections["data"] = {"kind": _kind(data), "path": str(data)}
    if "data" in sections:  # ids choose the rows, however the teacher's were chosen
        split |= {"only_labels": None, "without_labels": None}
    elif teacher.extend is not None:
        raise InputError(
            "--data: the teacher extends another run, its items are in two places; give them as one source"
        )
    else:
        sections["data"] = {"kind": teacher.kind, **teacher.source.model_dump(mode="json")}
    for override in overrides:
        apply_override(sections, override)
    for key in SplitSettings.model_fields:
        if key in sections["data"]:
            raise InputError(f"data.{key}: the partitions are the teacher's; leave it out")
    if "extend" in sections:
        raise InputError("extend: a student learns from its teacher alone, it extends no run; leave the section out")
    n_bits = sections.setdefault("model", {}).setdefault("n_bits", teacher.n_bits)
    if n_bits != teacher.n_bits:
        raise InputError(f"model.n_bits: is {n_bits!r}, but the teacher's codes have {teacher.n_bits}; leave it out")
    loss = sections.setdefault("loss", {}).setdefault("name", "distillation")
    if not resolve_loss(loss).needs_teacher:
        raise InputError(f"loss.name: {loss!r} takes no teacher; a student's loss is {', '.join(TEACHER_LOSSES)}")
    train = teacher.train.model_dump(mode="json", exclude=set(_OF_ENCODERS))
    evaluate = teacher.evaluate.model_dump(mode="json")
    sections["data"] |= split
    sections["train"] = train | sections.get("train", {})
    sections["evaluate"] = evaluate | sections.get("evaluate", {})
    return make_config(sections)


def _own_sections(student: str) -> Sections:
    if Path(student).suffix.lower() in (".yaml", ".yml"):
        sections = {name: dict(keys) for name, keys in read_sections(Path(student)).items()}
        if "name" not in sections.get("model", {}):
            raise InputError(f"{student}: says no model.name; write model: {{name: small, …}}")
        return sections
    if not (student in MODELS or is_python_name(student)):
        raise InputError(unknown(f"--student {student!r}", student, [*MODELS, "FILE.yaml"]))
    return {"model": {"name": student}}


def _kind(data: Path) -> str:
    if not data.is_file():
        raise InputError(f"--data {data}: no such file; give a table or a file of features")
    kinds = {ending: kind for kind, endings in (("features", FEATURE_FILES), ("table", TABLES)) for ending in endings}
    if data.suffix.lower() not in kinds:
        raise InputError(f"--data {data}: is neither a table nor a file of features ({', '.join(kinds)})")
    return kinds[data.suffix.lower()]
