"""What a run was evaluated on, and tables of its scores."""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from channelhash.errors import InputError
from channelhash.lab.report import page
from channelhash.metrics.plots import arrow
from channelhash.utils.decode import read_json, reading

#: Task -> score -> value.
_Tasks = Mapping[str, Mapping[str, Any]]

#: Key of a score -> the name that people know; other scores are printed under their key. The name
#: of a group stands before the inner key.
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
    "codes_in_use": "codes in use",
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
    """Read (title, scores) of everything that a run was evaluated on: ``metrics.json``, and a
    grid's ``result.json``.
    """
    evaluations: dict[str, _Tasks] = {}
    problem = "holds no scores of this version"
    remedy = "evaluate the run again"
    path = folder / "metrics.json"
    if path.exists():
        metrics = read_json(path, problem, remedy)
        title = f"{metrics.get('split', 'test')} split, {metrics.get('checkpoint', 'last')} epoch"
        evaluations[title] = _check_tasks(metrics.get("tasks"), path)
    path = folder / "result.json"
    if path.exists():
        content = read_json(path, problem, remedy)
        with reading(path, problem, remedy):
            for checkpoint, views in content["epochs"].items():
                for view, tasks in views.items():
                    split = "leak free" if view == "leak_free" else f"{view} split"
                    title = f"{split}, {checkpoint} epoch"
                    if title not in evaluations:
                        evaluations[title] = _check_tasks(tasks, path)
    return list(evaluations.items())


def score_table(title: str, tasks: _Tasks) -> page.Table:
    """Return a table of the single scores; lists (a number a radius) are left out.

    >>> score_table("test split", {"image->text": {"map_tie_aware": 0.5}}).rows
    [('mAP tie-aware', '50.00')]
    """
    reports = [_flat_scores(report) for report in tasks.values()]
    singles: list[tuple[str, ...]] = []
    for key, inner in dict.fromkeys(chain.from_iterable(reports)):
        values = [report.get((key, inner)) for report in reports]
        if not any(isinstance(value, list) for value in values):
            show = _print_rank if key == "median_rank" else page.print_score
            singles.append((_score_name(key, inner), *map(show, values)))
    return page.Table(["score", *map(arrow, tasks)], singles, f"{title}; shares in %")


def _flat_scores(report: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return scores by key and, of groups, inner key."""
    scores: dict[tuple[str, str], Any] = {}
    for key, value in report.items():
        parts = value if isinstance(value, dict) else {"": value}
        if key == "conventions":
            parts = _flat_conventions(value)
        scores |= {(key, inner): part for inner, part in parts.items()}
    return scores


def _flat_conventions(
    conventions: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> dict[str, Any]:
    """Return scores by the convention that is followed, the figure and the order of ties."""
    scores = {}
    for name, figures in conventions.items():
        for figure, shares in figures.items():
            for order, share in shares.items():
                scores[f"{name} {figure}, {order}"] = share
    return scores


def _print_rank(rank: Any) -> str:
    return f"{rank:,.1f}" if isinstance(rank, int | float) else "–"


def _score_name(key: str, inner: str) -> str:
    name = _NAMES.get(key, key.replace("_", " ") + (":" if inner else ""))
    if name.endswith("@"):
        return f"{name}{inner}"
    return f"{name} {_NAMES.get(inner, inner.replace('_', ' '))}".strip()


def _check_tasks(tasks: Any, path: Path) -> _Tasks:
    is_by_task = isinstance(tasks, dict) and tasks
    if not is_by_task or not all(isinstance(report, dict) for report in tasks.values()):
        raise InputError(
            f"{path.name}: holds no scores by task, as this version writes; evaluate the run again"
        )
    return dict(tasks)
