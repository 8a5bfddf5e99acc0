"""``channelhash train``"""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Overrides, Resume, SkipBad, TrustCode, read_overrides
from channelhash.cli.output import print_json, print_plan, print_trained, progress_bars
from channelhash.cli.stopping import resumed_command, when_stopped


def _one_of_two(context: typer.Context, preset: str | None) -> str | None:
    if context.params.get("config") is not None and preset is not None:
        raise typer.BadParameter("name a configuration file or a --preset, one of the two")
    return preset


def train(
    config: Path | None = typer.Argument(
        None, is_eager=True, help="YAML file with the sections data, model, loss, train, evaluate."
    ),
    preset: str | None = typer.Option(
        None,
        callback=_one_of_two,
        help="Instead of a file, a configuration that ships with the package; without either, recommended.",
    ),
    out: Path | None = typer.Option(None, help="The run's folder; runs/<name of the file> by default."),
    settings: Overrides = [],
    resume: Resume = False,
    skip_bad: SkipBad = False,
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Check everything, time a few steps, print sizes and estimates."
    ),
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a model into a run's folder.

    Example: channelhash train --set data.path=items.csv --set data.root=images --out runs/mine

    Example: channelhash train --preset photo --set data.path=captions.csv
    """
    from channelhash.config import read_config
    from channelhash.runs.estimate import plan_run
    from channelhash.runs.train import preset_path, start_run
    from channelhash.training.distributed import launched_rank

    config = config or preset_path(preset or "recommended")
    resolved = read_config(config, read_overrides(settings, skip_bad))
    if dry_run:
        plan = plan_run(resolved)
        if as_json:
            print_json(plan)
        else:
            print_plan("Plan", plan)
        return
    folder = out or Path("runs") / config.stem
    when_stopped(f"{folder} keeps all up to its last checkpoint", resumed_command)
    with progress_bars() as progress:
        result = start_run(resolved, folder, resume, progress).as_dict()
    if launched_rank() > 0:
        return  # the first process speaks for all
    if as_json:
        print_json(result)
        return
    print_trained(result, folder)
