"""``experiment architectures``: both of the paper's architectures with each loss."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files

from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.paper.printed_results import comparison_table
from channelhash.lab.experiments.tables.results import all_views, architectures_table
from channelhash.lab.experiments.tables.significance import significance_tables, wins_table


def _grid(design: Design) -> list[GridRun]:
    """Return both architectures with each loss.

    On drawn images, where weights of large models are of no use, their backbones are small, random and frozen.
    """
    tiny = str(files("channelhash.lab.experiments") / "tiny-clip.json")
    drawn = design.base["data"]["kind"] == "synthetic"
    runs = []
    for model, backbone in (("tdsrdh", "resnet18"), ("cliphash", tiny)):
        settings = {"name": model, **({"backbone": backbone, "pretrained": None} if drawn else {})}
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
