"""``channelhash train``"""

from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Overrides, Resume, SkipBad, TrustCode, read_overrides
from channelhash.cli.output import print_json, print_plan, print_trained, progress_bars
from channelhash.cli.stopping import resumed_command, when_stopped


def _alone(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    """Let one word say which configuration: a file, a preset, or a model."""
    others = [name for name in ("config", "preset", "model") if name != parameter.name]
    if value is not None and any(context.params.get(name) is not None for name in others):
        raise typer.BadParameter("name a configuration file, a --preset or a --model, one of the three")
    return value


def train(
    config: Path | None = typer.Argument(
        None, is_eager=True, help="YAML file with the sections data, model, loss, train, evaluate."
    ),
    preset: str | None = typer.Option(
        None,
        callback=_alone,
        help="Instead of a file, a configuration that ships with the package (config list); recommended by default.",
    ),
    model: str | None = typer.Option(
        None, callback=_alone, help="Instead of a file, the model whose configuration ships with the package."
    ),
    data: Path | None = typer.Option(None, help="Table of items or file of features, instead of the configuration's."),
    images: Path | None = typer.Option(None, help="Folder that the table's picture paths are relative to."),
    epochs: int | None = typer.Option(None, min=1, help="Epochs, instead of the configuration's."),
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

    Example: channelhash train --data items.csv --images photos --out runs/mine

    Example: channelhash train --preset photo --data captions.csv --skip-bad

    Example: channelhash train --data features.npz --set loss.name=sch --epochs 10
    """
    from channelhash.config import read_config
    from channelhash.runs.estimate import plan_run
    from channelhash.runs.presets import preset_of_model, preset_path
    from channelhash.runs.train import start_run
    from channelhash.training.distributed import launched_rank

    config = config or preset_path(preset or (preset_of_model(model) if model else "recommended"))
    short = _short_overrides(config, data, images, epochs)
    resolved = read_config(config, [*short, *read_overrides(settings, skip_bad)])
    if dry_run:
        with progress_bars() as progress:
            plan = plan_run(resolved, progress)
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


def _short_overrides(config: Path, data: Path | None, images: Path | None, epochs: int | None) -> list[str]:
    """Return the keys that the short options stand for; ``--set`` comes after them and prevails."""
    from channelhash.config import read_sections
    from channelhash.runs.presets import data_overrides
    from channelhash.utils.overrides import path_override

    model = read_sections(config).get("model", {}).get("name", "")
    return [
        *(data_overrides(data, model) if data else []),
        *([path_override("data.root", images)] if images else []),
        *([f"train.epochs={epochs}"] if epochs else []),
    ]
