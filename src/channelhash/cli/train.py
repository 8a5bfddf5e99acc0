"""``channelhash train``"""

from pathlib import Path

import typer

from channelhash.cli.output import percent, print_json, print_table, progress_stages


def train(
    config: Path = typer.Argument(..., help="YAML file with the sections data, model, loss, train, evaluate."),
    out: Path | None = typer.Option(None, help="The run's folder; runs/<name of the file> by default."),
    settings: list[str] = typer.Option([], "--set", help="Override a key: section.key=value. May be repeated."),
    resume: bool = typer.Option(False, "--resume", help="Go on with an interrupted run in the same folder."),
    skip_bad: bool = typer.Option(False, "--skip-bad", help="Leave bad rows out; they are counted and listed."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check everything and print sizes; train nothing."),
    as_json: bool = typer.Option(False, "--json", help="Print one JSON object on stdout."),
) -> None:
    """Train a model into a run's folder.

    Example: channelhash train configs/table.yaml --set data.path=items.csv --set train.epochs=30
    """
    from channelhash.config import read_config
    from channelhash.run import plan_run, start_run

    resolved = read_config(config, [*settings, *(["data.skip_bad=true"] if skip_bad else [])])
    if dry_run:
        plan = plan_run(resolved)
        if as_json:
            print_json(plan)
        else:
            parameters = plan.pop("parameters")
            sizes = {**{f"{name} parameters": n for name, n in parameters.items()}, **plan.pop("rows"), **plan}
            print_table("Plan", ["what", "value"], [[name, f"{value}"] for name, value in sizes.items()])
        return
    folder = out or Path("runs") / config.stem
    with progress_stages() as stages:
        result = start_run(resolved, folder, resume, stages)
    if as_json:
        print_json(result)
        return
    typer.echo(f"{result['epochs']} epochs, last mean loss {result['loss']:.4f}. The run is in {folder}")
    if result["problems"]:
        typer.echo(f"{len(result['problems'])} rows were left out or repaired, listed in {folder / 'problems.txt'}")
    if result["validation"]:
        rows = [[task.replace("->", " → "), percent(value)] for task, value in result["validation"].items()]
        print_table("Validation, tie-aware mAP in %", ["task", "mAP"], rows)
    typer.echo(f"Next: channelhash evaluate {folder}")
