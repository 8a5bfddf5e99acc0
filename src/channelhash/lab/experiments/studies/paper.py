"""``experiment losses``, ``gamma-w`` and ``architectures``: the paper's, with its numbers and
settings beside ours.
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from typing import Any

from channelhash.lab.experiments import experiment, tables
from channelhash.lab.experiments.comparisons import significance_tables
from channelhash.lab.experiments.experiment import (
    Design,
    Experiment,
    GridRun,
    Result,
    Sections,
    Table,
)
from channelhash.lab.experiments.results import group_by
from channelhash.lab.experiments.studies.printed import comparison_tables
from channelhash.lab.experiments.tables import all_views, losses_table


def _losses_tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by method and code length, tests of every pair, and the paper's numbers beside
    them.
    """
    return [
        *all_views(losses_table, results),
        *significance_tables(results),
        *comparison_tables(results, "losses"),
    ]


#: The paper's main table: each loss at each code length.
LOSSES = Experiment(
    name="losses", title="Losses by code length", losses=experiment.METHODS, tables=_losses_tables
)

#: γ_w of the paper's sweep.
_GAMMAS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0)


def _gamma_w_grid(design: Design) -> list[GridRun]:
    """Return DSCH with each γ_w.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> [run.config.loss.gamma_w for run in _gamma_w_grid(Design(DATASETS["synthetic"], [32], [0]))]
    [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    """
    runs = []
    for value in _GAMMAS:
        loss = {**experiment.METHODS["DSCH"], "gamma_w": value}
        runs += design.runs(f"γ_w = {value:g}", loss)
    return runs


def _gamma_w_tables(results: Sequence[Result]) -> list[Table]:
    """Return mAP and ROC-AUC by γ_w, and the paper's numbers beside them."""
    return [
        *all_views(tables.gamma_w_table, results, "validation"),
        *comparison_tables(results, "gamma_w"),
    ]


GAMMA_W = Experiment(
    name="gamma-w", title="DSCH by γ_w", bits=(32,), grid=_gamma_w_grid, tables=_gamma_w_tables
)


#: Model -> its backbone on drawn images, where weights of large models are of no use.
_SMALL_BACKBONES = {
    "tdsrdh": "resnet18",
    "cliphash": str(resources.files("channelhash.lab.experiments") / "tiny-clip.json"),
}


def _architectures_grid(design: Design) -> list[GridRun]:
    """Return both architectures with each loss.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> design = Design(DATASETS["mirflickr25k"], [32], [0], {"DSCH": {"name": "dsch"}})
    >>> [(run.config.model_name, run.config.train.epochs) for run in _architectures_grid(design)]
    [('tdsrdh', 200), ('cliphash', 200)]
    """
    runs = []
    for model in _SMALL_BACKBONES:
        base = {**design.base, "model": _model_settings(design.base, model)}
        with_model = replace(design, base=base)
        for method, loss in design.losses.items():
            runs += with_model.runs(method, loss, prefix=f"{model}-")
    return runs


def _model_settings(base: Sections, model: str) -> dict[str, Any]:
    """Return the settings of an architecture: those of the base configuration if that names it;
    else, on the paper's collections, those of `experiment.paper_configuration`.

    Keys such as ``model.cliphash.pretrained`` are CLIPHash's alone. On drawn images backbones are
    small, random and frozen.

    >>> _model_settings({"data": {"kind": "mirflickr25k"}}, "cliphash")["preprocess"]
    'paper'
    """
    kind = base["data"]["kind"]
    given = base.get("model", {})
    settings: dict[str, Any] = {"name": model}
    if given.get("name") == model:
        settings = {key: value for key, value in given.items() if not key.startswith("cliphash.")}
    elif kind in experiment.PAPER_KINDS:
        settings = experiment.paper_configuration(model, kind)["model"]
    elif kind == "synthetic":
        settings |= {"backbone": _SMALL_BACKBONES[model], "pretrained": None}
    for key, value in given.items():
        if key.startswith("cliphash.") and model == "cliphash":
            settings[key.removeprefix("cliphash.")] = value
    return settings


def _architectures_tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by model and method, tests within each model, and the paper's numbers beside
    them.
    """
    shown = all_views(tables.architectures_table, results)
    models = group_by(results, lambda result: str(result.settings["model"]["name"]))
    for model, of_model in models.items():
        for table in significance_tables(of_model):
            shown.append(
                replace(table, name=f"{table.name}-{model}", title=f"{model}: {table.title}")
            )
    return [*shown, *comparison_tables(results, "architectures")]


ARCHITECTURES = Experiment(
    "architectures",
    "Architectures and losses",
    _architectures_tables,
    experiment.METHODS,
    (32,),
    _architectures_grid,
)
