"""``channelhash list``"""

import re
import sys
from collections.abc import Callable
from enum import StrEnum

import typer

from channelhash.cli.options import AsJson
from channelhash.cli.output import print_json, print_names


class Kind(StrEnum):
    """What can be listed."""

    losses = "losses"
    models = "models"
    encoders = "encoders"
    data = "data"
    stores = "stores"
    experiments = "experiments"


def names(kind: Kind = typer.Argument(..., help="What to list."), as_json: AsJson = False) -> None:
    """List the losses, models, encoders, kinds of data, stores or experiments that a configuration or command may name.

    Example: channelhash list losses
    """
    found = _LISTS[kind]()
    if as_json:
        print_json(found)
    else:
        print_names(found)


def _losses() -> dict[str, str]:
    from channelhash.losses import LOSSES

    return {name: _about(loss) for name, loss in LOSSES.items()}


def _models() -> dict[str, str]:
    from channelhash.models import MODELS

    return {name: _about(model.create) for name, model in MODELS.items()}


def _encoders() -> dict[str, str]:
    from channelhash.models.encoders import ENCODER_FORMS

    return {word: meaning.replace("`", "") for word, meaning in ENCODER_FORMS.items()}


def _data() -> dict[str, str]:
    from channelhash.data import DATA_KINDS

    return {name: _about(kind.load) for name, kind in DATA_KINDS.items()}


def _stores() -> dict[str, str]:
    return {
        "FOLDER": "made by index create; a folder of photographs is searched as it is",
        "RUN": "a run's folder: its retrieval set, to be read only",
        "FILE.parquet": "codes, to be read only",
        "milvus+ADDRESS": "a collection of Milvus: milvus+http://host:19530/name, milvus+FILE.db/name",
    }


def _experiments() -> dict[str, str]:
    from channelhash.lab.experiments.experiment import load_experiment
    from channelhash.lab.experiments.studies import EXPERIMENTS

    return {name: load_experiment(name).title for name in EXPERIMENTS}


_LISTS: dict[Kind, Callable[[], dict[str, str]]] = {
    Kind.losses: _losses,
    Kind.models: _models,
    Kind.encoders: _encoders,
    Kind.data: _data,
    Kind.stores: _stores,
    Kind.experiments: _experiments,
}


def _about(entry: object) -> str:
    """Return the first line of the docstring of an entry's module in plain text, without the name that it begins with.

    >>> from channelhash.losses import LOSSES
    >>> _about(LOSSES["rsch"])
    "RSCH: root-mean-square semantic channels, this project's own objective."
    """
    text = (sys.modules[entry.__module__].__doc__ or "").splitlines()[0]
    text = text.partition("``: ")[2] if text.startswith("``") else text
    return re.sub(r" \([^()]*``protocol\.md``[^()]*\)", "", text).replace("`", "")
