"""``channelhash evaluate`` and ``channelhash encode``"""

from enum import StrEnum
from pathlib import Path

import typer

from channelhash.cli.output import messages, print_figures, print_json, progress_stages


class Split(StrEnum):
    """Partitions that have queries."""

    test = "test"
    validation = "validation"


class Checkpoint(StrEnum):
    """Which epoch's weights."""

    last = "last"
    best = "best"


def evaluate(
    run: Path = typer.Argument(..., help="A run's folder."),
    split: Split = typer.Option(Split.test, help="Q against R, or V_q against V_r."),
    checkpoint: Checkpoint = typer.Option(Checkpoint.last, help="The last epoch, or the one best on validation."),
    leak_free: bool = typer.Option(False, "--leak-free", help="Leave training rows out of the retrieval set."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
) -> None:
    """Every figure of a run for all tasks, tie-aware.

    Example: channelhash evaluate runs/table
    """
    from channelhash.run import evaluate_run

    with progress_stages() as stages:
        result = evaluate_run(run, split.value, checkpoint.value, leak_free, stages)
    if as_json:
        print_json(result)
    else:
        rows = "training rows left out of" if leak_free else "all of"
        title = f"{run}, {split} split, {rows} the retrieval set, {result['n_bits']} bits, in %"
        print_figures(title, result["tasks"])


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
    from channelhash.run import encode_records

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
