"""``channelhash extend``"""

import json
from pathlib import Path

import typer

from channelhash.cli.options import AsJson, Overrides, Resume, SkipBad, TableRoot, TrustCode, read_overrides
from channelhash.cli.output import print_json, print_trained, progress_bars
from channelhash.cli.stopping import resumed_command, when_stopped


def extend(
    run: Path = typer.Argument(..., help="A finished run's folder."),
    data: Path = typer.Option(
        ..., help="The new items: a table or a file of features with labels, or a YAML file with the section data."
    ),
    out: Path | None = typer.Option(None, help="The new run's folder; <RUN>-extended by default."),
    root: TableRoot = None,
    settings: Overrides = [],
    resume: Resume = False,
    skip_bad: SkipBad = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Train a run further on new items, with new labels if they have any; its existing codes stay valid.

    Example: channelhash extend runs/table --data new.csv --out runs/extended
    """
    from channelhash.runs.extend import DESCRIPTION, extension_config
    from channelhash.runs.train import start_run
    from channelhash.training.distributed import launched_rank

    overrides = read_overrides(settings, skip_bad)
    config = extension_config(run, data, root, overrides)
    folder = out or run.with_name(f"{run.name}-extended")
    when_stopped(f"{folder} keeps all up to its last checkpoint", resumed_command)
    with progress_bars() as progress:
        result = start_run(config, folder, resume, progress).as_dict()
    if launched_rank() > 0:
        return  # the first process speaks for all
    description = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    if as_json:
        print_json({**result, "extension": description})
        return
    items, labels = description["items"], description["labels"]
    typer.echo(f"{items['new']} new items beside {items['old']}; new labels: {', '.join(labels['new']) or 'none'}")
    print_trained(result, folder)
