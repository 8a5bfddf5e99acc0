"""The tables and plots that an experiment leaves in its grid's folder."""

import csv
from collections.abc import Sequence
from pathlib import Path

from channelhash.lab.experiments.experiment import Experiment
from channelhash.lab.experiments.results import Result, read_grid
from channelhash.lab.experiments.tables.rendering import write_tables
from channelhash.utils.files import atomic_path
from channelhash.utils.plotting import write_figure

_SCORES = ("map_tie_aware", "map_lower", "map_upper", "ndcg", "ndcg_graded", "roc_auc_micro", "roc_auc_macro", "chance")


def write_outputs(experiment: Experiment, folder: Path) -> list[Path]:
    """Write the tables of a grid's folder to ``tables/``, plots to ``plots/``, every score to ``figures.csv``.

    Unfinished and failed runs are named in the tables.

    Returns:
        Paths of the tables.

    Raises:
        InputError: the folder is not a grid's, or a run was evaluated on other queries than the rest.
    """
    _, results = read_grid(folder)
    _write_scores(results, folder / "figures.csv")
    tables = experiment.tables(results)
    for trials, table in experiment.trials.items():
        if (folder / trials).exists():
            tables.append(table(read_grid(folder / trials)[1]))
    paths = write_tables(tables, folder / "tables")
    for name, figure in experiment.plots(results).items():
        write_figure(figure, folder / "plots", name)
    return paths


def _write_scores(results: Sequence[Result], path: Path) -> None:
    """Write one line for each run, checkpoint, view and task."""
    with atomic_path(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["run", "method", "n_bits", "seed", "checkpoint", "view", "task", *_SCORES])
        for result in results:
            for checkpoint, views in result.epochs.items():
                for view, tasks in views.items():
                    for task, scores in tasks.items():
                        row = [result.name, result.method, result.n_bits, result.seed, checkpoint, view, task]
                        # Rankings by cosine have no graded NDCG.
                        writer.writerow([*row, *(scores.get(name) for name in _SCORES)])
