"""``channelhash experiment``, ``report``, ``landscape``: grids of runs, and pages about them."""

import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from channelhash.cli import same_command, shared, when_stopped
from channelhash.errors import InputError, JobError
from channelhash.lab.experiments.studies import EXPERIMENTS

if TYPE_CHECKING:
    from channelhash.lab.experiments.experiment import Experiment, Grid, Result, Sections


def experiment(
    name: str = typer.Argument(
        ..., help=f"Which grid: {', '.join(EXPERIMENTS)}; or python:module:NAME."
    ),
    dataset: str | None = typer.Option(
        None, help="Data set with a base configuration: synthetic, mirflickr25k or nuswide."
    ),
    config: Path | None = typer.Option(
        None, help="Base configuration as a YAML file, instead of --dataset."
    ),
    preset: str | None = typer.Option(
        None, help="Base configuration by its name (config list), instead of --dataset."
    ),
    data: list[str] = typer.Option(
        [], help="Folder or file of the data; for benchmark also several NAME=PLACE."
    ),
    settings: shared.Overrides = [],
    bits: list[int] = typer.Option(
        [], min=1, help="Code length; the paper's by default. May be repeated."
    ),
    seeds: int = typer.Option(3, min=1, help="Runs per cell of the grid, with the seeds 0, 1, ..."),
    quick: shared.Quick = False,
    out: Path | None = typer.Option(
        None, help="The grid's folder; experiments/<name>-<data> by default."
    ),
    workers: int = typer.Option(1, min=1, help="Number of processes, each with a run at a time."),
    device: list[str] = typer.Option(
        [], help="Device of the processes, such as cuda:0; in turn if repeated."
    ),
    loss: list[str] = typer.Option(
        [], help="Loss instead of the experiment's, or python:mymodule:MyLoss. May be repeated."
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Check all, count runs and trials, time a few steps."
    ),
    as_json: shared.AsJson = False,
) -> None:
    """Train and evaluate a grid of runs, and write its tables and plots. Finished runs are never
    repeated.

    Example: channelhash experiment losses --dataset synthetic --quick

    Example: channelhash experiment benchmark --data features.npz --dry-run
    """
    from channelhash.lab.experiments import experiment as lab
    from channelhash.lab.experiments.runner import Execution
    from channelhash.utils.typed_settings import trusting

    study = lab.load_experiment(name)
    base = _base(study, dataset, config, preset, quick)
    out = out or _default_folder(study.name, base, quick)
    bases = _base_configurations(study, base, out, data, settings, quick)
    command = shlex.join(same_command())
    grids = {}
    for collection, sections in bases.items():
        grids[collection] = lab.make_grid(study, sections, bits, seeds, loss, command, collection)
    if dry_run:
        outline = _outline(study, grids)
        shared.print_either(outline, as_json, _print_outline, outline)
        return
    message = f"finished runs and the last checkpoints of the others are kept in {out}"
    own_code = list(chain.from_iterable(grid.python_names for grid in grids.values()))
    with trusting(own_code), shared.progress_bars(message) as progress:
        results, tables = lab.run_grids(
            study, grids, out, Execution(workers, device, shared.say, progress)
        )
    _show_results(results, tables, out, out / next(iter(grids)), as_json)


def _base(
    study: "Experiment", dataset: str | None, config: Path | None, preset: str | None, quick: bool
) -> str | Path:
    """Return the name or the file of the base configuration."""
    from channelhash.presets import configuration_path

    if not (config or preset or dataset or quick):
        preset = study.preset or None
    return configuration_path(config, preset) or dataset or "synthetic"


def _default_folder(name: str, base: str | Path, quick: bool) -> Path:
    """Return the folder of an experiment that starts from a base configuration."""
    base_name = base.stem if isinstance(base, Path) else base
    return Path("experiments") / f"{name}-{base_name}{'-quick' if quick else ''}"


def _base_configurations(
    study: "Experiment",
    base: str | Path,
    folder: Path,
    data: Sequence[str],
    settings: Sequence[str],
    quick: bool,
) -> "Mapping[str, Sections]":
    """Return what the runs on each collection start from; a single collection has no name."""
    from channelhash.lab.experiments.experiment import base_configuration, collection_bases

    if len(data) > 1 or any("=" in place and not Path(place).exists() for place in data):
        common = base_configuration(base, folder, None, settings, quick)
        return collection_bases(study, common, data, settings)
    place = Path(data[0]) if data else None
    return {"": base_configuration(base, folder, place, settings, quick)}


def _outline(study: "Experiment", grids: "Mapping[str, Grid]") -> dict[str, Any]:
    """Return what grids would train, and for how long."""
    runs: list[str] = []
    plans: list[dict[str, Any]] = []
    n_trials = 0
    for grid in grids.values():
        trials = study.all_trials(grid)
        n_trials += len(trials)
        plans += grid.at_least(study.steps).plan(trials)
        runs += [run.name for run in grid.runs]
    # The features of frozen encoders are kept for all runs.
    seconds = sum(
        plan["seconds"]["features"] + plan["runs"] * plan["seconds"]["training"] for plan in plans
    )
    total = {"runs": len(runs), "trials": n_trials, "seconds": round(seconds, 1)}
    return {"runs": runs, "plans": plans, "total": total}


def _show_results(
    results: "Sequence[Result]", tables: Sequence[Path], folder: Path, first: Path, as_json: bool
) -> None:
    """Print the first table; runs that failed fail the command after that."""
    summary = {
        "runs": [result.summary() for result in results],
        "tables": [str(path) for path in tables],
    }
    table = next(path for path in tables if path.suffix == ".md").read_text(encoding="utf-8")
    files_line = f"All tables, plots and scores are in {folder}. Next: channelhash report {first}"
    shared.show(summary, as_json, table, files_line)
    failed = [result for result in results if result.status != "finished"]
    if failed:
        raise JobError(
            f"{len(failed)} of {len(results)} runs failed, the first: {failed[0].name}: "
            f"{failed[0].error}"
        )


def _print_outline(outline: Mapping[str, Any]) -> None:
    for plan in outline["plans"]:
        each = {key: value for key, value in plan.items() if key not in ("title", "runs", "model")}
        shared.print_plan(
            f"{plan['title']}: {plan['runs']} trainings of {plan['model']}, each", each
        )
    total = outline["total"]
    typer.echo(
        f"{total['runs']} runs and {total['trials']} trials: about "
        f"{shared.clock(total['seconds'])} of training; scores come on top"
    )


def report(
    folder: Path = typer.Argument(..., metavar="DIR", help="Folder of a run or of an experiment."),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Write one HTML page about a run or an experiment, DIR/report.html, that needs no other file.

    How good it is beside chance, retrieval examples, training curve, plots, scores, data, health of
    the codes, configuration, environment, and the command to repeat it. The page loads nothing and
    can be passed on as it is.

    Example: channelhash report runs/table
    """
    from channelhash.lab.report.grid_page import write_report

    when_stopped("the page is written at the end")
    path = write_report(folder)
    shared.show({"report": path}, as_json, f"Report in {path}")


def landscape(
    out: Path = typer.Option(Path("landscape.html"), help="Page to write."),
    as_json: shared.AsJson = False,
) -> None:
    """Draw what a pair costs under SCH and DSCH, over similarity and distance, on a page with
    sliders.

    The page is one file and needs no network: open it in a browser.

    Example: channelhash landscape --out landscape.html
    """
    from channelhash.lab.experiments.landscape import write_page

    if out.is_dir():
        raise InputError(
            f"--out {out}: is a folder; name the page, such as {out / 'landscape.html'}"
        )
    write_page(out)
    shared.show({"page": str(out)}, as_json, f"Page in {out}; open it in a browser")
