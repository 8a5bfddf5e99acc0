"""What commands print: tables, progress with a rate and an end time, JSON."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from channelhash.utils.progress import StageProgress

#: Progress and remarks go to stderr, so that stdout holds results alone.
messages = Console(stderr=True, highlight=False)
results = Console(highlight=False)


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON object on stdout and nothing else."""
    print(json.dumps(result, default=str))


@contextmanager
def progress_bars() -> Iterator[StageProgress]:
    """Stages of a long job as bars with count, rate and time left."""
    columns = (
        TextColumn("{task.description:<22}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages, transient=not messages.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def stage(name: str) -> Callable[[int, int], None]:
            # A stage that comes again (the next loss, the next part) starts a bar of its own.
            tasks[name] = bars.add_task(name, total=None, rate="", start=True)

            def advance(done: int, total: int) -> None:
                elapsed = bars.tasks[bars.task_ids.index(tasks[name])].elapsed or 0
                rate = f"{done / elapsed:,.1f}/s" if elapsed > 0 else ""
                bars.update(tasks[name], completed=done, total=total, rate=rate)

            return advance

        yield stage


def print_tasks(title: str, rows: Mapping[str, Mapping[str, Any]], first: str) -> None:
    """Tie-aware mAP of each task in percent: one line a loss (or run), chance level below."""
    tasks = list(next(iter(rows.values())))
    results.print(title)
    table = Table()
    table.add_column(first)
    for task in tasks:
        table.add_column(task.replace("->", " → "), justify="right")
    for name, reports in rows.items():
        table.add_row(name, *[percent(reports[task]["map_tie_aware"]) for task in tasks])
    chance = next(iter(rows.values()))
    table.add_section()
    table.add_row("chance", *[percent(chance[task]["chance"]) for task in tasks])
    results.print(table)


def print_figures(title: str, tasks: Mapping[str, Mapping[str, Any]]) -> None:
    """All figures of each task in percent, one column a task."""
    results.print(title)
    table = Table()
    table.add_column("figure")
    for task in tasks:
        table.add_column(task.replace("->", " → "), justify="right")
    for label, pick in _FIGURES.items():
        table.add_row(label, *[pick(report) for report in tasks.values()])
    for kind in ("map_at", "precision_at"):
        for z in next(iter(tasks.values()))[kind]:
            name = f"{'mAP' if kind == 'map_at' else 'P'}@{z}"
            table.add_row(name, *[percent(report[kind][z]) for report in tasks.values()])
    results.print(table)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain table."""
    results.print(title)
    table = Table()
    for name in header:
        table.add_column(name)
    for row in rows:
        table.add_row(*row)
    results.print(table)


def print_trained(result: Mapping[str, Any], folder: Path) -> None:
    """What a training came to, and what to do next."""
    typer.echo(f"{result['epochs']} epochs, last mean loss {result['loss']:.4f}. The run is in {folder}")
    if result["problems"]:
        typer.echo(f"{len(result['problems'])} rows were left out or repaired, listed in {folder / 'problems.txt'}")
    if result["validation"]:
        rows = [[task.replace("->", " → "), percent(value)] for task, value in result["validation"].items()]
        print_table("Validation, tie-aware mAP in %", ["task", "mAP"], rows)
    typer.echo(f"Next: channelhash evaluate {folder}")


def percent(share: float) -> str:
    """A share as percent with one digit."""
    return f"{100 * share:.1f}"


def percent_or_dash(share: float | None) -> str:
    """`percent`, or a dash for a figure that is not defined."""
    return "–" if share is None else percent(share)


_FIGURES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "mAP tie-aware": lambda r: percent(r["map_tie_aware"]),
    "mAP, ties worst": lambda r: percent(r["map_lower"]),
    "mAP, ties best": lambda r: percent(r["map_upper"]),
    "mAP, ties in database order": lambda r: percent_or_dash(r["map_in_order"]),
    "mAP tie-aware, 95 % interval": lambda r: " – ".join(percent(r["map_interval"][end]) for end in ("lower", "upper")),
    "chance level": lambda r: percent(r["chance"]),
    "NDCG": lambda r: percent(r["ndcg"]),
    "NDCG by label similarity": lambda r: percent_or_dash(r["ndcg_graded"]),
    "ROC-AUC micro": lambda r: percent_or_dash(r["roc_auc_micro"]),
    "ROC-AUC macro": lambda r: percent_or_dash(r["roc_auc_macro"]),
    "precision within 2 bits": lambda r: percent(r["radius_2"]["precision"]),
    "queries counted": lambda r: str(r["queries"]),
    "queries skipped": lambda r: str(r["skipped"]),
}
