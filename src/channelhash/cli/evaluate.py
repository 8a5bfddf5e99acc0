"""``channelhash evaluate`` and ``channelhash encode``"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import typer

from channelhash.cli.output import messages, print_figures, print_json, progress_stages
from channelhash.errors import InputError


class Split(StrEnum):
    """Partitions that have queries."""

    test = "test"
    validation = "validation"


class Checkpoint(StrEnum):
    """Which epoch's weights."""

    last = "last"
    best = "best"


def evaluate(
    run: Path | None = typer.Argument(None, help="A run's folder."),
    split: Split | None = typer.Option(None, help="Of a run: Q against R (test, the default), or V_q against V_r."),
    checkpoint: Checkpoint | None = typer.Option(
        None, help="Of a run: the last epoch (the default), or the one best on validation."
    ),
    leak_free: bool = typer.Option(False, "--leak-free", help="Of a run: no training rows in the retrieval set."),
    query: Path | None = typer.Option(None, help="Instead of a run: a Parquet file of codes that ask …"),
    database: Path | None = typer.Option(None, help="… and one of codes that are searched, both with labels."),
    codes: Path | None = typer.Option(
        None, help="Instead of a run: another toolbox's .mat, .npz or .h5 file with B_q, B_r, L_q, L_r."
    ),
    array: list[str] = typer.Option([], help="With --codes: NAME=ARRAY, such as B_q=codes_test, for other names."),
    task: str | None = typer.Option(None, help='With --codes: what B_q and B_r are codes of, such as "image->text".'),
    out: Path | None = typer.Option(None, help="With --query or --codes: folder for metrics.json and plots."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
) -> None:
    """Every figure for all tasks, tie-aware: of a run, of code files, or of another toolbox's codes.

    A run's figures and plots go into its own folder.

    Example: channelhash evaluate runs/table

    Example: channelhash evaluate --codes theirs.mat --out theirs
    """
    _check_sources(
        {"a run's folder": run, "--query and --database": query or database, "--codes": codes},
        {
            "a run's folder": {"--split": split, "--checkpoint": checkpoint, "--leak-free": leak_free},
            "--codes": {"--array": array, "--task": task},
        },
    )
    if out and out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is a file; name a folder")
    if run:
        from channelhash.run_evaluation import evaluate_run, plots_folder

        if out:
            raise InputError("--out: a run's figures and plots go into its own folder; leave it out")
        split, checkpoint = split or Split.test, checkpoint or Checkpoint.last
        with progress_stages() as stages:
            result = evaluate_run(run, split.value, checkpoint.value, leak_free, stages)
        rows = "training rows left out of" if leak_free else "all of"
        title = f"{run}, {split.value} split, {rows} the retrieval set"
        written = f"Plots in {plots_folder(run, split.value, checkpoint.value, leak_free)}"
    else:
        from channelhash.evaluation import evaluate_code_files, evaluate_export

        if codes:
            result = evaluate_export(codes, _pairs(array), task, out)
            title = str(codes)
        elif query and database:
            result = evaluate_code_files(query, database, out)
            title = f"{query} searches {database}"
        else:
            raise InputError("--query and --database go together; one of them is missing")
        written = f"Figures in {out / 'metrics.json'}, plots in {out / 'plots'}" if out else ""
    if as_json:
        print_json(result)
        return
    print_figures(f"{title}, {result['n_bits']} bits, in %", result["tasks"])
    if written:
        typer.echo(written)


def _check_sources(sources: Mapping[str, object], options: Mapping[str, Mapping[str, object]]) -> None:
    """Exactly one source is given, and no option that belongs to another one."""
    given = [name for name, value in sources.items() if value]
    if len(given) != 1:
        raise InputError(f"give one of {'; '.join(sources)}. Given: {'; '.join(given) or 'none'}")
    for source, belonging in options.items():
        for option, value in belonging.items():
            if value and source != given[0]:
                raise InputError(f"{option}: belongs to {source}, not to {given[0]}; leave it out")


def _pairs(assignments: list[str]) -> dict[str, str]:
    """``NAME=ARRAY`` options as name -> array."""
    pairs = {}
    for assignment in assignments:
        name, equals, array = assignment.partition("=")
        if not (name and equals and array):
            raise InputError(f"--array {assignment}: write it as NAME=ARRAY, such as B_q=codes_test")
        pairs[name] = array
    return pairs


def encode(
    run: Path = typer.Argument(..., help="A run's folder or a saved model."),
    data: Path = typer.Option(..., help="A table, a file of features, or a folder of pictures."),
    out: Path = typer.Option(..., help="Parquet file of codes to write."),
    root: Path | None = typer.Option(None, help="Folder that the table's picture paths are relative to."),
    skip_bad: bool = typer.Option(False, "--skip-bad", help="Leave bad rows out; they are counted and listed."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
) -> None:
    """Hash codes of a table, of features, or of a folder of pictures.

    Example: channelhash encode runs/table --data items.csv --root images --out codes.parquet
    """
    from channelhash.data.folder import load_any
    from channelhash.models import load_model
    from channelhash.run_evaluation import encode_records

    model = load_model(run)
    records = load_any(data, root, skip_bad)
    with progress_stages() as stages:
        codes = encode_records(model, records, stages("encode"))
    codes.save(out)
    for line in records.problems:
        messages.print(f"left out: {line}")
    if as_json:
        print_json(
            {
                "out": str(out),
                "items": len(codes),
                "n_bits": codes.n_bits,
                "modalities": list(codes.codes),
                "removed": records.removed,
                "problems": list(records.problems),
            }
        )
    else:
        typer.echo(f"{len(codes)} items, {codes.n_bits} bits, {' and '.join(codes.codes)} codes in {out}")
