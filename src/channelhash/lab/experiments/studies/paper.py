"""The paper's experiments: ``experiment losses``, ``gamma-w`` and ``architectures``."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from channelhash.lab.experiments.comparisons import significance_tables
from channelhash.lab.experiments.experiment import (
    METHODS,
    PAPER_KINDS,
    Design,
    Experiment,
    GridRun,
    Result,
    Table,
    paper_configuration,
)
from channelhash.lab.experiments.paper import comparison_tables
from channelhash.lab.experiments.tables import all_views, architectures_table, gamma_w_table, losses_table


def _losses_tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by method and code length, tests of every pair, and the paper's numbers beside them."""
    return [*all_views(losses_table, results), *significance_tables(results), *comparison_tables(results, "losses")]


#: The paper's main table: each loss at each code length.
LOSSES = Experiment(name="losses", title="Losses by code length", losses=METHODS, tables=_losses_tables)

#: γ_w of the paper's sweep.
_GAMMAS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0)


def _gamma_w_grid(design: Design) -> list[GridRun]:
    """Return DSCH with each γ_w.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> [run.config.loss.gamma_w for run in _gamma_w_grid(Design(DATASETS["synthetic"], [32], [0]))]
    [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    """
    return [run for value in _GAMMAS for run in design.runs(f"γ_w = {value:g}", {**METHODS["DSCH"], "gamma_w": value})]


def _gamma_w_tables(results: Sequence[Result]) -> list[Table]:
    """Return mAP and ROC-AUC by γ_w, and the paper's numbers beside them."""
    return [*all_views(gamma_w_table, results, "validation"), *comparison_tables(results, "gamma_w")]


GAMMA_W = Experiment(name="gamma-w", title="DSCH by γ_w", bits=(32,), grid=_gamma_w_grid, tables=_gamma_w_tables)


def _architectures_grid(design: Design) -> list[GridRun]:
    """Return both architectures with each loss.

    A model has the settings of the base configuration if that names it; else, on the paper's collections, those of the
    preset `PAPER_PRESETS`. Keys such as ``model.cliphash.pretrained`` are CLIPHash's alone. On drawn images, where
    weights of large models are of no use, their backbones are small, random and frozen.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> runs = _architectures_grid(Design(DATASETS["mirflickr25k"], [32], [0], {"DSCH": {"name": "dsch"}}))
    >>> [(run.config.model_name, run.config.train.epochs) for run in runs], runs[1].config.model.preprocess
    ([('tdsrdh', 200), ('cliphash', 200)], 'paper')
    """
    tiny = str(files("channelhash.lab.experiments") / "tiny-clip.json")
    kind, base = design.base["data"]["kind"], design.base.get("model", {})
    shared = {key: value for key, value in base.items() if not key.startswith("cliphash.")}
    of_clip = {key.removeprefix("cliphash."): value for key, value in base.items() if key not in shared}
    runs = []
    for model, backbone in (("tdsrdh", "resnet18"), ("cliphash", tiny)):
        settings: dict[str, Any] = {"name": model}
        if shared.get("name") == model:
            settings = shared
        elif kind in PAPER_KINDS:
            settings = paper_configuration(model, kind)["model"]
        elif kind == "synthetic":
            settings = {"name": model, "backbone": backbone, "pretrained": None}
        settings = {**settings, **(of_clip if model == "cliphash" else {})}
        with_model = replace(design, base={**design.base, "model": settings})
        for method, loss in design.losses.items():
            runs += with_model.runs(method, loss, prefix=f"{model}-")
    return runs


def _architectures_tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by model and method, tests within each model, and the paper's numbers beside them."""
    tables = all_views(architectures_table, results)
    for model in dict.fromkeys(result.settings["model"]["name"] for result in results):
        of_model = [result for result in results if result.settings["model"]["name"] == model]
        for table in significance_tables(of_model):
            tables.append(replace(table, name=f"{table.name}-{model}", title=f"{model}: {table.title}"))
    return [*tables, *comparison_tables(results, "architectures")]


ARCHITECTURES = Experiment(
    name="architectures",
    title="Architectures and losses",
    losses=METHODS,
    bits=(32,),
    grid=_architectures_grid,
    tables=_architectures_tables,
)
