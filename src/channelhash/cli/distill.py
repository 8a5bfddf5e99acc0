"""``channelhash distill``"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from channelhash.cli.options import AsJson, Modalities, Overrides, Resume, TrustCode
from channelhash.cli.output import percent, percent_or_dash, print_json, print_table, progress_bars
from channelhash.cli.stopping import resumed_command, when_stopped

#: Problems that are printed; all of them are in ``problems.txt``.
_SHOWN = 3


def distill(
    run: Path = typer.Argument(..., help="Folder of a finished run, the teacher."),
    student: str = typer.Option(
        ..., help="Name of a model (small, …), or a YAML file with the section model and, optionally, data and train."
    ),
    data: Path | None = typer.Option(
        None, help="Another source of the same items, joined by id: a table or a file of features."
    ),
    modalities: Modalities = [],
    out: Path | None = typer.Option(None, help="The student's folder; runs/<run>-<student> by default."),
    settings: Overrides = [],
    resume: Resume = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a small model to reproduce a large model's codes, and compare the two.

    Codes of either model can search among the other's. Splits and settings are the teacher's unless overridden.

    Example: channelhash distill runs/clip --student small --set model.width=16

    Example: channelhash distill runs/features --student small --data items.csv --set data.root=images
    """
    from channelhash.runs.distill import distill as train_student
    from channelhash.runs.distill import student_config
    from channelhash.runs.folder import open_run
    from channelhash.training.distributed import launched_rank

    teacher = open_run(run)
    config = student_config(teacher.config, student, data, settings)
    folder = out or Path("runs") / f"{run.resolve().name}-{Path(student).stem}"
    when_stopped(f"{folder} keeps all up to its last checkpoint", resumed_command)
    with progress_bars() as progress:
        result = train_student(teacher, config, folder, modalities, resume, progress)
    if launched_rank() > 0:
        return  # the first process speaks for all
    if as_json:
        print_json(result)
        return
    typer.echo(f"{result['epochs']} epochs, last mean loss {result['loss']:.4f} bits. The student is in {folder}")
    for line in result["problems"][:_SHOWN]:
        typer.echo(line)
    if len(result["problems"]) > _SHOWN:
        typer.echo(f"… and {len(result['problems']) - _SHOWN} more in {folder / 'problems.txt'}")
    rows = result["rows"]
    title = f"{rows['query']} queries, {rows['retrieval']} items, {result['n_bits']} bits; tie-aware mAP in %"
    print_table(title, ["", "teacher", "student", "student asks teacher", "chance"], _table(result))
    typer.echo(f"Next: channelhash search {run} --model {folder} --text …")


def _table(result: Mapping[str, Any]) -> list[list[str]]:
    """Return a row for each of retrieval, equal bits and size."""
    maps, size = result["map"], result["size"]
    columns = [maps["teacher->teacher"], maps["student->student"], maps["student->teacher"]]
    rows = []
    for task, chance in result["chance"].items():
        shares = [percent_or_dash(column.get(task)) for column in columns]
        rows.append([task.replace("->", " → "), *shares, percent(chance)])
    for modality, share in result["agreement"].items():
        rows.append([f"equal bits of {modality}s, %", "", percent(share), "", ""])
    sides = ("teacher", "student")
    rows.append(["parameters", *[f"{size[side]['parameters']:,}" for side in sides], "", ""])
    rows.append(["saved model, MB", *[f"{size[side]['bytes'] / 1e6:.2f}" for side in sides], "", ""])
    if size["teacher"]["frozen_bytes"] or size["student"]["frozen_bytes"]:
        rows.append(["frozen encoders, MB", *[f"{size[side]['frozen_bytes'] / 1e6:.2f}" for side in sides], "", ""])
    return rows
