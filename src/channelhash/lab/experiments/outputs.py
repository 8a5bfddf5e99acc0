"""The tables and plots that an experiment leaves in its grid's folder."""

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from channelhash.lab.experiments.definitions import EXTENSIONS
from channelhash.lab.experiments.paper.printed_results import comparison_table
from channelhash.lab.experiments.plots.results import write_grid_plots
from channelhash.lab.experiments.results import Result, read_grid
from channelhash.lab.experiments.stats.effects import Effect
from channelhash.lab.experiments.stats.significance import compare_methods
from channelhash.lab.experiments.studies.incremental import incremental_tables
from channelhash.lab.experiments.studies.reranking import reranking_tables
from channelhash.lab.experiments.tables.baselines import (
    baselines_plot,
    baselines_table,
    learning_rates_table,
    shares_table,
    trained,
)
from channelhash.lab.experiments.tables.channels import OWN, own_effects, own_effects_tables, trials_table
from channelhash.lab.experiments.tables.distillation import distillation_plots, distillation_tables
from channelhash.lab.experiments.tables.effects import all_effects, all_option_effects, effects_plot, effects_tables
from channelhash.lab.experiments.tables.rendering import Table, write_tables
from channelhash.lab.experiments.tables.results import all_views, architectures_table, gamma_w_table, losses_table
from channelhash.lab.experiments.tables.significance import significance_table, wins_table
from channelhash.lab.experiments.tuning import RATE_TRIALS, TRIALS
from channelhash.utils.files import atomic_path
from channelhash.utils.plotting import write_figure

_FIGURES = (
    "map_tie_aware",
    "map_lower",
    "map_upper",
    "ndcg",
    "ndcg_graded",
    "roc_auc_micro",
    "roc_auc_macro",
    "chance",
)


def write_experiment(folder: Path) -> list[Path]:
    """Write the tables of a grid's folder to ``tables/``, plots to ``plots/``, every figure to ``figures.csv``.

    Unfinished and failed runs are named in the tables.

    Returns:
        Paths of the tables.

    Raises:
        InputError: the folder is no grid's, or a run was evaluated on other queries than the rest.
    """
    _, results = read_grid(folder)
    experiment = str(json.loads((folder / "grid.json").read_text(encoding="utf-8"))["experiment"])
    _write_figures(results, folder / "figures.csv")
    tables = TABLES[experiment](results)
    for where, table in TRIAL_TABLES.get(experiment, {}).items():
        if (folder / where).exists():
            tables.append(table(read_grid(folder / where)[1]))
    written = write_tables(tables, folder / "tables")
    _write_plots(experiment, results, folder / "plots")
    return written


def losses_tables(results: Sequence[Result]) -> list[Table]:
    """By method and code length: figures, wins, tests of every pair, and the paper's numbers beside them."""
    tables = [*all_views(losses_table, results), *_compared(results), wins_table(results)]
    return tables + [table for table in [comparison_table(results, "losses")] if table]


def gamma_w_tables(results: Sequence[Result]) -> list[Table]:
    """By γ_w: mAP and ROC-AUC, and the paper's numbers beside them."""
    tables = all_views(gamma_w_table, results, "validation")
    return tables + [table for table in [comparison_table(results, "gamma_w")] if table]


def architectures_tables(results: Sequence[Result]) -> list[Table]:
    """By model and method: figures, wins, tests within each model, and the paper's numbers beside them."""
    tables = [*all_views(architectures_table, results), wins_table(results)]
    for model in dict.fromkeys(str(result.settings["model"]["name"]) for result in results if result.settings):
        mine = [result for result in results if result.settings and result.settings["model"]["name"] == model]
        tables += [replace(t, name=f"{t.name}-{model}", title=f"{model}: {t.title}") for t in _compared(mine)]
    return tables + [table for table in [comparison_table(results, "architectures")] if table]


def baselines_tables(results: Sequence[Result]) -> list[Table]:
    """Losses between floor and ceiling, the way they go, and the losses alone in every view."""
    return [baselines_table(results), shares_table(results), *all_views(losses_table, trained(results))]


def channels_tables(results: Sequence[Result]) -> list[Table]:
    """By channel and code length: mAP and graded NDCG, wins, and tests of the own one against the others."""
    names = [name for name in dict.fromkeys(result.method for result in results) if name != OWN]
    comparisons = compare_methods(results, [(OWN, name) for name in names])
    return [
        *all_views(losses_table, results),
        losses_table(results, figure="ndcg_graded"),
        *own_effects_tables(results),
        wins_table(results),
        *([significance_table(comparisons)] if comparisons else []),
    ]


def shapes_tables(results: Sequence[Result]) -> list[Table]:
    """What each shape adds to SCH's, on tie-aware mAP and on graded NDCG; figures by shape."""
    title = f"Shapes minus {results[0].method}"
    graded = effects_tables(_option_effects(results, "ndcg_graded"), figure="graded NDCG", title=title)
    return [
        *effects_tables(_option_effects(results), title=title),
        *(replace(table, name=f"ndcg-graded-{table.name}") for table in graded),
        *all_views(losses_table, results),
        losses_table(results, figure="ndcg_graded"),
    ]


def factorial_tables(results: Sequence[Result]) -> list[Table]:
    """By channel and κ_q: figures, and the effects of both."""
    return [*all_views(losses_table, results), *effects_tables(all_effects(results))]


def extensions_tables(results: Sequence[Result]) -> list[Table]:
    """What each option adds to the first method; figures by method, and tests against that method."""
    methods = list(dict.fromkeys(result.method for result in results))
    missing = [name for name in EXTENSIONS if name not in methods]
    notes = f"Left out, because this model's texts are no tokens: {', '.join(missing)}." if missing else ""
    effects = effects_tables(_option_effects(results), title=f"Effect of each option beside {methods[0]}", notes=notes)
    comparisons = compare_methods(results, [(method, methods[0]) for method in methods[1:]])
    compared = [significance_table(comparisons)] if comparisons else []
    return [*effects, *all_views(losses_table, results), *compared]


def _option_effects(results: Sequence[Result], figure: str = "map_tie_aware") -> list[Effect]:
    return all_option_effects(results, results[0].method, figure)


#: name of the experiment -> its tables.
TABLES: dict[str, Callable[[Sequence[Result]], list[Table]]] = {
    "losses": losses_tables,
    "gamma-w": gamma_w_tables,
    "architectures": architectures_tables,
    "factorial": factorial_tables,
    "reranking": reranking_tables,
    "extensions": extensions_tables,
    "baselines": baselines_tables,
    "channels": channels_tables,
    "shapes": shapes_tables,
    "incremental": incremental_tables,
    "distillation": distillation_tables,
}

#: name of an experiment with trials -> folder of trials -> their table.
TRIAL_TABLES: dict[str, dict[str, Callable[[Sequence[Result]], Table]]] = {
    "baselines": {TRIALS: learning_rates_table},
    "channels": {TRIALS: trials_table, RATE_TRIALS: learning_rates_table},
}


def _compared(results: Sequence[Result]) -> list[Table]:
    """Tests between all methods; none where too few runs are finished for any."""
    comparisons = compare_methods(results)
    return [significance_table(comparisons)] if comparisons else []


def _write_plots(experiment: str, results: Sequence[Result], folder: Path) -> None:
    if experiment == "baselines":
        for n_bits in sorted({result.n_bits for result in trained(results) if result.status == "finished"}):
            write_figure(baselines_plot(results, n_bits), folder, f"baselines-k{n_bits}")
        return
    if experiment == "distillation":
        for name, figure in distillation_plots(results).items():
            write_figure(figure, folder, name)
        return
    write_grid_plots(results, folder)
    if experiment == "factorial" and (effects := all_effects(results)):
        title = "Where does DSCH's gain come from? Parts of the published comparison, 95 % intervals"
        write_figure(effects_plot(effects, title), folder, "effects")
    if experiment in ("extensions", "shapes") and (effects := _option_effects(results)):
        each = "option adds to" if experiment == "extensions" else "shape adds to the channel of"
        title = f"What each {each} {results[0].method}, 95 % intervals over seeds"
        names = {effect.name: effect.name for effect in effects}
        write_figure(effects_plot(effects, title, names, sideways=True), folder, "effects")
    if experiment == "channels" and (effects := own_effects(results)):
        names = {effect.name: effect.name.removeprefix(f"{OWN} − ") for effect in effects}
        title = f"{OWN}, minus the other channels, 95 % intervals over seeds"
        write_figure(effects_plot(effects, title, names, sideways=True), folder, "effects")


def _write_figures(results: Sequence[Result], path: Path) -> None:
    """One line for each run, checkpoint, view and task."""
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "method", "n_bits", "seed", "checkpoint", "view", "task", *_FIGURES])
        for result in results:
            for checkpoint, views in result.epochs.items():
                for view, tasks in views.items():
                    for task, figures in tasks.items():
                        place = [result.name, result.method, result.n_bits, result.seed, checkpoint, view, task]
                        # Rankings by cosine have no graded NDCG.
                        writer.writerow([*place, *(figures.get(name) for name in _FIGURES)])
