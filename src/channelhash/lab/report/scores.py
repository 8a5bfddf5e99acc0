"""How good a run's codes are beside chance, and its scores as tables, whatever their names."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError
from channelhash.lab.report.page import Table
from channelhash.metrics.histogram import hamming_histogram
from channelhash.metrics.significance import bootstrap_interval
from channelhash.utils.files import read_json, reading
from channelhash.utils.plotting import arrow
from channelhash.utils.seeds import generator

# The range of 39 shuffles: a score without information is above it once in 40 times, as above a 95 % interval.
_SHUFFLES = 39


@dataclass(frozen=True)
class Standing:
    """The score of a task beside chance, shares in [0, 1].

    Attributes:
        task: e.g. ``"image->text"``.
        score: tie-aware mAP; without labels Recall@10.
        interval: its 95 % interval over queries.
        chance: the 95 % interval of what codes without information get.
        measure: what the score is.

    >>> Standing("image->text", 0.40, (0.35, 0.45), (0.38, 0.41)).at_chance
    True
    """

    task: str
    score: float
    interval: tuple[float, float]
    chance: tuple[float, float]
    measure: str = "mAP"

    @property
    def at_chance(self) -> bool:
        """Whether chance reaches the score."""
        return self.score <= self.chance[1]


def cross_tasks(tasks: Iterable[str]) -> list[str]:
    """Return the tasks between two modalities, or all where there are none.

    >>> cross_tasks(["image->text", "image->image"]), cross_tasks(["image->image"])
    (['image->text'], ['image->image'])
    """
    every = list(tasks)
    return [task for task in every if task.partition("->")[0] != task.partition("->")[2]] or every


def stand_by_labels(query: CodeSet, database: CodeSet) -> list[Standing]:
    """Score the cross-modal tasks by mAP; chance is the range of the same codes with the database's labels shuffled.

    Costs 40 histograms a task, 2 s for 2,000 queries of 18,000 items. Empty without labels.

    >>> codes = CodeSet(["a", "b"], {"image": np.array([[0], [255]], np.uint8)}, np.eye(2), n_bits=8)
    >>> stand_by_labels(codes, codes)[0].score
    1.0
    """
    if query.labels is None or database.labels is None:
        return []
    standings = []
    for task in cross_tasks(f"{asked}->{found}" for asked in query.codes for found in database.codes):
        asked, _, found = task.partition("->")
        codes = query.codes[asked], database.codes[found], query.labels
        histogram = hamming_histogram(*codes, database.labels, query.n_bits)
        if not histogram.counted:
            continue
        random = generator(0, "chance", task)
        shuffled = [
            hamming_histogram(*codes, random.permutation(database.labels), query.n_bits).mean_average_precision()
            for _ in range(_SHUFFLES)
        ]
        mean, lower, upper = bootstrap_interval(histogram.average_precision(), resamples=1000)
        standings.append(Standing(task, mean, (lower, upper), (min(shuffled), max(shuffled))))
    return standings


def stand_by_recall(tasks: Mapping[str, Mapping[str, Any]]) -> list[Standing]:
    """Score tasks by Recall@10 of the query's own counterpart; intervals are binomial.

    >>> report = {"recall_at": {"10": 0.5}, "recall_items": 100, "queries": 100}
    >>> stand_by_recall({"image->text": report})[0].at_chance
    False
    """
    standings = []
    for task, report in tasks.items():
        if "recall_items" in report:
            score, chance = report["recall_at"]["10"], min(1.0, 10 / report["recall_items"])
            random = generator(0, "chance", task)
            spread = [random.binomial(report["queries"], p, 10_000) / report["queries"] for p in (score, chance)]
            interval, level = (np.quantile(draws, (0.025, 0.975)).tolist() for draws in spread)
            standings.append(Standing(task, score, tuple(interval), tuple(level), "Recall@10"))
    return standings


def verdict(standings: Sequence[Standing]) -> str:
    """Say in words how a run stands; nothing where that is unknown.

    >>> verdict([Standing("image->text", 0.40, (0.35, 0.45), (0.38, 0.41))])
    'This run is at chance: image → text gets 40.0 %, chance 38.0 to 41.0 %.'
    """
    if not standings:
        return ""
    low = [standing for standing in standings if standing.at_chance]
    if not low:
        return "This run is better than chance."
    found = "; ".join(
        f"{arrow(standing.task)} gets {100 * standing.score:.1f} %, chance {_print_range(standing.chance)}"
        for standing in low
    )
    return f"This run is {'partly ' * (len(low) < len(standings))}at chance: {found}."


def _print_range(interval: tuple[float, float]) -> str:
    """Print two shares in percent.

    >>> _print_range((0.1, 0.25))
    '10.0 to 25.0 %'
    """
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f} %"


_Tasks = Mapping[str, Mapping[str, Any]]

#: Names that people know; any other score is printed under its key. A group's name stands before the inner key.
_NAMES = {
    "map_tie_aware": "mAP tie-aware",
    "map_interval": "mAP tie-aware, 95 % interval over queries:",
    "map_lower": "mAP, ties worst",
    "map_upper": "mAP, ties best",
    "map_in_order": "mAP, ties in database order",
    "map_at": "mAP@",
    "precision_at": "P@",
    "ndcg": "NDCG",
    "ndcg_graded": "NDCG by label similarity",
    "roc_auc_micro": "ROC-AUC micro",
    "roc_auc_micro_every_query": "ROC-AUC micro, skipped queries too",
    "roc_auc_macro": "ROC-AUC macro",
    "roc_auc_macro_queries": "queries of ROC-AUC macro",
    "radius_2": "within 2 bits:",
    "chance": "chance level",
    "queries": "queries counted",
    "skipped": "queries skipped",
    "recall_at": "Recall@",
    "median_rank": "median rank",
    "recall_items": "items of Recall@",
    "conventions": "as others print it:",
    "empty": "queries that find nothing",
    "by_radius": "by radius:",
    "precision_recall_curve": "all queries together:",
}


def read_evaluations(folder: Path) -> list[tuple[str, _Tasks]]:
    """Read (title, scores) of everything that a run was evaluated on: ``metrics.json``, and a grid's ``result.json``.

    Raises:
        InputError: a file does not hold scores by task.
    """
    evaluations: list[tuple[str, _Tasks]] = []
    problem, remedy = "holds no scores of this version", "evaluate the run again"
    if (path := folder / "metrics.json").exists():
        metrics = read_json(path, problem, remedy)
        title = f"{metrics.get('split', 'test')} split, {metrics.get('checkpoint', 'last')} epoch"
        evaluations.append((title, _tasks(metrics.get("tasks"), path)))
    if (path := folder / "result.json").exists():
        content = read_json(path, problem, remedy)
        with reading(path, problem, remedy):
            for checkpoint, views in content["epochs"].items():
                for view, tasks in views.items():
                    title = f"{view.replace('_', ' ')}{'' if view == 'leak_free' else ' split'}, {checkpoint} epoch"
                    if title not in dict(evaluations):
                        evaluations.append((title, _tasks(tasks, path)))
    return evaluations


def score_table(title: str, tasks: _Tasks) -> Table:
    """Return a table of the single scores; lists (a number a radius) are left out.

    >>> score_table("test split", {"image->text": {"map_tie_aware": 0.5}}).rows
    [('mAP tie-aware', '50.00')]
    """
    header = ["score", *[arrow(task) for task in tasks]]
    tasks = {task: _flat(report) for task, report in tasks.items()}
    singles: list[tuple[str, ...]] = []
    for key in dict.fromkeys(key for report in tasks.values() for key in report):
        values = [report.get(key) for report in tasks.values()]
        if any(isinstance(value, dict) for value in values):
            for inner in dict.fromkeys(name for value in values if isinstance(value, dict) for name in value):
                parts = [value.get(inner) if isinstance(value, dict) else None for value in values]
                if not any(isinstance(part, list) for part in parts):
                    singles.append((_joined(key, inner), *[print_score(part) for part in parts]))
        elif not any(isinstance(value, list) for value in values):
            show = _print_rank if key == "median_rank" else print_score
            singles.append((_NAMES.get(key, key.replace("_", " ")), *[show(value) for value in values]))
    return Table(header, singles, f"{title}; shares in %")


def _flat(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a report whose conventions are one level of figures: convention, figure and order of ties."""
    figures = {
        f"{name} {figure}, {order}": share
        for name, of_name in report.get("conventions", {}).items()
        for figure, shares in of_name.items()
        for order, share in shares.items()
    }
    return {**report, "conventions": figures} if figures else report


def print_score(value: Any) -> str:
    """Print a score: any float in percent, a count with separators, a dash for what is undefined.

    >>> print_score(0.81407), print_score(1500), print_score(None), print_score(float("nan"))
    ('81.41', '1,500', '–', '–')
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{100 * value:.2f}"


def _print_rank(rank: Any) -> str:
    return f"{rank:,.1f}" if isinstance(rank, int | float) else "–"


def _joined(key: str, inner: str) -> str:
    name = _NAMES.get(key, f"{key.replace('_', ' ')}:")
    return f"{name}{inner}" if name.endswith("@") else f"{name} {_NAMES.get(inner, inner.replace('_', ' '))}".strip()


def _tasks(tasks: Any, path: Path) -> _Tasks:
    if not isinstance(tasks, dict) or not tasks or not all(isinstance(report, dict) for report in tasks.values()):
        raise InputError(f"{path.name}: holds no scores by task, as this version writes; evaluate the run again")
    return tasks
