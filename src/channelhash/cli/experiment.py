"""``channelhash experiment …``"""

import shlex
import sys
from functools import partial
from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Overrides, Quick
from channelhash.cli.output import messages, print_json
from channelhash.errors import InputError, JobError

NAMES = (
    "losses, gamma-w, architectures, factorial, reranking, extensions, baselines, channels, shapes, incremental, "
    "distillation"
)


def experiment(
    name: str = typer.Argument(..., help=f"Which grid: {NAMES}."),
    dataset: str = typer.Option("synthetic", help="synthetic, mirflickr25k or nuswide: a ready base configuration."),
    config: Path | None = typer.Option(None, help="A YAML file as base configuration, instead of --dataset."),
    data: Path | None = typer.Option(None, help="Folder or file of the data, instead of the base configuration's."),
    settings: Overrides = [],
    bits: str | None = typer.Option(None, help="Code lengths, e.g. 16,32; the paper's by default."),
    seeds: int = typer.Option(3, min=1, help="Runs of each cell, with the seeds 0, 1, ..."),
    quick: Quick = False,
    out: Path | None = typer.Option(None, help="The grid's folder; experiments/<name>-<data> by default."),
    jobs: int = typer.Option(1, min=1, help="Runs at once."),
    devices: str | None = typer.Option(None, help="Devices for the jobs in turn, e.g. cuda:0,cuda:1."),
    new_labels: str | None = typer.Option(None, help="For incremental: the labels that come later, e.g. cat,dog."),
    student: str | None = typer.Option(
        None, help="For distillation: small, or a YAML file with that model and, optionally, data and train."
    ),
    as_json: AsJson = False,
) -> None:
    """Train and evaluate a grid, and write its tables and plots. Finished runs are never repeated.

    Example: channelhash experiment losses --dataset synthetic --quick
    """
    from channelhash.lab.experiments.definitions import make_grid
    from channelhash.lab.experiments.outputs import write_experiment
    from channelhash.lab.experiments.runner import run_grid
    from channelhash.lab.experiments.studies.baselines import run_baselines
    from channelhash.lab.experiments.studies.channels import run_channels
    from channelhash.lab.experiments.studies.distillation import run_distillation
    from channelhash.lab.experiments.studies.incremental import run_incremental
    from channelhash.lab.experiments.tuning import TRIAL_BITS

    if new_labels is not None and name != "incremental":
        raise InputError(f"--new-labels: goes with incremental, not with {name}; leave it out")
    if student is not None and name != "distillation":
        raise InputError(f"--student: goes with distillation, not with {name}; leave it out")
    base = config or dataset
    folder = out or Path("experiments") / f"{name}-{config.stem if config else dataset}{'-quick' if quick else ''}"
    command = shlex.join(["channelhash", *sys.argv[1:]])
    lengths = None if bits is None else _numbers(bits)
    make = partial(make_grid, name, base, folder, data, settings, quick=quick, command=command)
    grid, places = make(bits=lengths, seeds=seeds), devices.split(",") if devices else ()
    if run_tuned := {"baselines": run_baselines, "channels": run_channels}.get(name):
        trials = make(bits=[TRIAL_BITS], seeds=1).runs
        results = run_tuned(grid, trials, folder, jobs, places, messages.print)
    elif name == "incremental":
        later = [label.strip() for label in (new_labels or "").split(",") if label.strip()]
        results = run_incremental(grid, later, folder, jobs, places, messages.print)
    elif name == "distillation":
        results = run_distillation(grid, student or "small", folder, jobs, places, messages.print)
    else:
        results = run_grid(grid, folder, jobs, places, messages.print)
    written = write_experiment(folder)
    runs = [
        {
            "name": result.name,
            "method": result.method,
            "loss": result.settings.get("loss", {}).get("name"),
            "n_bits": result.settings.get("model", {}).get("n_bits"),
            "seed": result.settings.get("train", {}).get("seed"),
            "status": result.status,
            "error": result.error,
            "tasks": result.epochs["last"]["test"] if result.status == "finished" else {},
        }
        for result in results
    ]
    failed = [result for result in results if result.status != "finished"]
    if as_json:
        print_json({"runs": runs, "tables": [str(path) for path in written]})
    else:
        typer.echo(next(path for path in written if path.suffix == ".md").read_text(encoding="utf-8"))
        typer.echo(f"All tables, plots and figures.csv are in {folder}. Next: channelhash report {folder}")
    if failed:
        raise JobError(f"{len(failed)} of {len(results)} runs failed, the first: {failed[0].name}: {failed[0].error}")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--bits {text}: write code lengths as 16,32,64") from None
