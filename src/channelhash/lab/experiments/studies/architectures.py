"""``experiment architectures``: both of the paper's architectures with each loss."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files

from channelhash.lab.experiments.base import METHODS, PAPER_KINDS, paper_configuration
from channelhash.lab.experiments.comparisons import significance_tables, wins_table
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.paper import comparison_table
from channelhash.lab.experiments.tables import all_views, architectures_table

_OF_CLIPHASH = "cliphash."


def _grid(design: Design) -> list[GridRun]:
    """Return both architectures with each loss.

    A model has the settings of the base configuration if that names it; else, on the paper's collections, those of the
    preset `PAPER_PRESETS`. Keys such as ``model.cliphash.pretrained`` are CLIPHash's alone. On drawn images, where
    weights of large models are of no use, their backbones are small, random and frozen.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> runs = _grid(Design(DATASETS["mirflickr25k"], [32], [0], {"DSCH": {"name": "dsch"}}))
    >>> [(run.config.model_name, run.config.train.epochs) for run in runs], runs[1].config.model.preprocess
    ([('tdsrdh', 200), ('cliphash', 200)], 'paper')
    """
    tiny = str(files("channelhash.lab.experiments") / "tiny-clip.json")
    kind = design.base["data"]["kind"]
    given = {key: value for key, value in design.base.get("model", {}).items() if not key.startswith(_OF_CLIPHASH)}
    of_clip = {
        key.removeprefix(_OF_CLIPHASH): value for key, value in design.base.get("model", {}).items() if key not in given
    }
    runs = []
    for model, backbone in (("tdsrdh", "resnet18"), ("cliphash", tiny)):
        settings = {"name": model, **({"backbone": backbone, "pretrained": None} if kind == "synthetic" else {})}
        if given.get("name") == model:
            settings = given
        elif kind in PAPER_KINDS:
            settings = paper_configuration(model, kind)["model"]
        settings = {**settings, **(of_clip if model == "cliphash" else {})}
        with_model = replace(design, base={**design.base, "model": settings})
        for method, loss in design.losses.items():
            runs += with_model.runs(method, loss, prefix=f"{model}-")
    return runs


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by model and method, wins, tests within each model, and the paper's numbers beside them."""
    tables = [*all_views(architectures_table, results), wins_table(results)]
    for model in dict.fromkeys(str(result.settings["model"]["name"]) for result in results if result.settings):
        of_model = [result for result in results if result.settings and result.settings["model"]["name"] == model]
        for table in significance_tables(of_model):
            tables.append(replace(table, name=f"{table.name}-{model}", title=f"{model}: {table.title}"))
    return [*tables, *filter(None, [comparison_table(results, "architectures")])]


EXPERIMENT = Experiment(
    name="architectures", title="Architectures and losses", losses=METHODS, bits=(32,), grid=_grid, tables=_tables
)
