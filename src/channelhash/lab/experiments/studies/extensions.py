"""``experiment extensions``: what each option beside DSCH adds, one at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from channelhash.lab.experiments.base import METHODS
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.plots.results import grid_plots
from channelhash.lab.experiments.tables.effects import all_option_effects, effects_plot, effects_tables
from channelhash.lab.experiments.tables.results import all_views, losses_table
from channelhash.lab.experiments.tables.significance import significance_tables
from channelhash.models import resolve_model

#: The option that only models with token ids have.
TEXT_AUGMENTATION = "text augmentation"
#: Option -> what it changes in the configuration of DSCH: section -> key -> value. The values were not tuned.
EXTENSIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    TEXT_AUGMENTATION: {"train": {"mask_tokens": 0.15, "replace_tokens": 0.05}},
    "label-aware mixing": {"train": {"mix_images": 0.5}},
    "contrastive term": {"loss": {"contrastive": 0.1}},
    "direct AP term": {"loss": {"average_precision": 8.0}},
}


def _grid(design: Design) -> list[GridRun]:
    """Return DSCH, and DSCH with each option alone; without text augmentation where texts are not tokens."""
    runs = design.runs("DSCH", METHODS["DSCH"])
    tokens = resolve_model(str(design.base["model"].get("name"))).tokens
    for name, change in EXTENSIONS.items():
        if tokens or name != TEXT_AUGMENTATION:
            train = {**design.base.get("train", {}), **change.get("train", {})}
            changed = replace(design, base={**design.base, "train": train})
            runs += changed.runs(name, {**METHODS["DSCH"], **change.get("loss", {})})
    return runs


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return what each option adds to the first method, scores by method, and tests against that method."""
    methods = list(dict.fromkeys(result.method for result in results))
    missing = [name for name in EXTENSIONS if name not in methods]
    notes = f"Left out, because this model's texts are no tokens: {', '.join(missing)}." if missing else ""
    effects = all_option_effects(results, methods[0])
    return [
        *effects_tables(effects, title=f"Effect of each option beside {methods[0]}", notes=notes),
        *all_views(losses_table, results),
        *significance_tables(results, [(method, methods[0]) for method in methods[1:]]),
    ]


def _plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Return the plots of every grid, and one of the effects."""
    plots = grid_plots(results)
    if effects := all_option_effects(results, results[0].method):
        title = f"What each option adds to {results[0].method}, 95 % intervals over seeds"
        names = {effect.name: effect.name for effect in effects}
        plots["effects"] = effects_plot(effects, title, names, sideways=True)
    return plots


EXPERIMENT = Experiment(
    name="extensions", title="Options beside DSCH, one at a time", bits=(32,), grid=_grid, tables=_tables, plots=_plots
)
