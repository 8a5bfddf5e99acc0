"""``channelhash config …`` and ``channelhash list``"""

import re
import sys
from typing import Literal

import typer

from channelhash.cli.options import AsJson, command_group
from channelhash.cli.output import print_names

app = command_group("Show the configurations that ship with the package.")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the configurations that `channelhash train --preset NAME` takes.

    Example: channelhash config list
    """
    from channelhash.runs.presets import presets, summary

    print_names({name: summary(path) for name, path in presets().items()}, as_json)


@app.command()
def show(name: str = typer.Argument(..., help="Name of a configuration, as config list prints it.")) -> None:
    """Print a configuration, to change it; `channelhash train FILE` takes what is saved in a file.

    Example: channelhash config show recommended
    """
    from channelhash.runs.presets import preset_path

    typer.echo(preset_path(name).read_text(encoding="utf-8"), nl=False)


_Kind = Literal["losses", "models", "encoders", "data", "stores", "experiments"]


def names(kind: _Kind = typer.Argument(..., help="What to list."), as_json: AsJson = False) -> None:
    """List the losses, models, encoders, kinds of data, stores or experiments that a configuration or command may name.

    Example: channelhash list losses
    """
    print_names(_meanings(kind), as_json)


_STORES = {
    "FOLDER": "made by index create; a folder of photographs is searched as it is",
    "RUN": "a run's folder: its retrieval set, to be read only",
    "FILE.parquet": "codes, to be read only",
    "postgresql://ADDRESS": "a schema of PostgreSQL with pgvector: postgresql://user@host/database?store=name",
    "milvus+ADDRESS": "a collection of Milvus: milvus+http://host:19530/name",
}


def _meanings(kind: _Kind) -> dict[str, str]:
    """Return what each name means; of what a file implements, that file's first line."""
    if kind == "stores":
        return _STORES
    if kind == "encoders":
        from channelhash.models.description import ENCODER_FORMS

        return {word: meaning.replace("`", "") for word, meaning in ENCODER_FORMS.items()}
    if kind == "experiments":
        from channelhash.lab.experiments.experiment import load_experiment
        from channelhash.lab.experiments.studies import EXPERIMENTS

        return {name: load_experiment(name).title for name in EXPERIMENTS}
    modules: dict[str, str]
    if kind == "losses":
        from channelhash.losses import LOSSES

        modules = {name: loss.__module__ for name, loss in LOSSES.items()}
    elif kind == "models":
        from channelhash.models.registry import MODELS

        modules = {name: model.create.__module__ for name, model in MODELS.items()}
    else:
        from channelhash.data import DATA_KINDS

        modules = {name: source.load.__module__ for name, source in DATA_KINDS.items()}
    lines = {name: (sys.modules[module].__doc__ or "").partition("\n")[0] for name, module in modules.items()}
    return {name: re.sub(r"^``\w+``: ", "", line).replace("`", "") for name, line in lines.items()}
