"""``channelhash experiment``, ``report`` and ``landscape``"""

import shlex
import sys
from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Overrides, Quick, TrustCode
from channelhash.cli.output import print_json, print_plan, say, show
from channelhash.cli.stopping import when_stopped
from channelhash.errors import InputError, JobError
from channelhash.lab.experiments.studies import EXPERIMENTS


def experiment(
    name: str = typer.Argument(..., help=f"Which grid: {', '.join(EXPERIMENTS)}; or python:module:NAME."),
    dataset: str = typer.Option("synthetic", help="Base configuration: synthetic, mirflickr25k or nuswide."),
    config: Path | None = typer.Option(None, help="Base configuration as a YAML file, instead of --dataset."),
    data: Path | None = typer.Option(None, help="Folder or file of the data, instead of the base configuration's."),
    settings: Overrides = [],
    bits: str | None = typer.Option(None, help="Code lengths, e.g. 16,32; the paper's by default."),
    seeds: int = typer.Option(3, min=1, help="Runs per cell of the grid, with the seeds 0, 1, ..."),
    quick: Quick = False,
    out: Path | None = typer.Option(None, help="The grid's folder; experiments/<name>-<data> by default."),
    jobs: int = typer.Option(1, min=1, help="Number of runs at a time."),
    devices: str | None = typer.Option(None, help="Devices that the jobs use in turn, e.g. cuda:0,cuda:1."),
    losses: str | None = typer.Option(None, help="Losses instead of the experiment's: dsch,python:mymodule:MyLoss."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Check everything, time a few steps of a run of each model."),
    as_json: AsJson = False,
) -> None:
    """Train and evaluate a grid of runs, and write its tables and plots. Finished runs are never repeated.

    Example: channelhash experiment losses --dataset synthetic --quick
    """
    from channelhash.lab.experiments.experiment import base_configuration, load_experiment, make_grid, write_outputs
    from channelhash.lab.experiments.runner import Execution, plan_grid
    from channelhash.utils.typed_settings import trusting

    study = load_experiment(name)
    folder = (
        out or Path("experiments") / f"{study.name}-{config.stem if config else dataset}{'-quick' if quick else ''}"
    )
    base = base_configuration(config or dataset, folder, data, settings, quick)
    command = shlex.join(["channelhash", *sys.argv[1:]])
    names = losses.split(",") if losses is not None else ()
    grid = make_grid(study, base, _numbers(bits) if bits else None, seeds, names, command)
    if dry_run:
        plans = plan_grid(grid)
        if as_json:
            print_json({"runs": [run.name for run in grid.runs], "plans": plans})
            return
        for plan in plans:
            print_plan(f"{grid.title}: {plan.pop('runs')} runs of {plan.pop('model')}, each", plan)
        return
    places = devices.split(",") if devices else ()
    when_stopped(f"finished runs and the last checkpoints of the others are kept in {folder}")
    with trusting(grid.python_names):
        results = study.run(grid, folder, Execution(jobs, places, say))
        tables = write_outputs(study, folder)
    if as_json:
        print_json({"runs": [result.summary() for result in results], "tables": [str(path) for path in tables]})
    else:
        typer.echo(next(path for path in tables if path.suffix == ".md").read_text(encoding="utf-8"))
        typer.echo(f"All tables, plots and scores are in {folder}. Next: channelhash report {folder}")
    failed = [result for result in results if result.status != "finished"]
    if failed:
        raise JobError(f"{len(failed)} of {len(results)} runs failed, the first: {failed[0].name}: {failed[0].error}")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--bits {text}: write code lengths as 16,32,64") from None


def report(
    folder: Path = typer.Argument(..., metavar="DIR", help="Folder of a run or of an experiment."),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Write one HTML page about a run or an experiment, DIR/report.html, that needs no other file.

    How good it is beside chance, retrieval examples, training curve, plots, scores, data, health of the codes,
    configuration, environment, and the command to repeat it. The page loads nothing and can be passed on as it is.

    Example: channelhash report runs/table
    """
    from channelhash.lab.report import write_report

    when_stopped("the page is written at the end")
    path = write_report(folder)
    show({"report": path}, as_json, f"Report in {path}")


def landscape(
    out: Path = typer.Option(Path("landscape.html"), help="HTML page to write."), as_json: AsJson = False
) -> None:
    """Draw what a pair costs under SCH and DSCH, over similarity and distance, on a page with sliders.

    The page is one file and needs no network: open it in a browser.

    Example: channelhash landscape --out landscape.html
    """
    from channelhash.lab.experiments.landscape import write_page

    if out.is_dir():
        raise InputError(f"--out {out}: is a folder; name the page, such as {out / 'landscape.html'}")
    write_page(out)
    show({"page": str(out)}, as_json, f"Page in {out}; open it in a browser")
