"""Evidence for swapped task labels in the paper's mAP tables: the shape of its own numbers.

Image→text and text→image compare the same two kinds of codes, so on the whole their scores are near each other, and an
order of tasks by one score is that by another. The paper's ROC-AUC is so, its mAP only under other labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from channelhash.lab.experiments.paper.printed_results import Printed

Label = Literal["printed_task", "likely_task"]


class Shape(NamedTuple):
    """Of several settings, each with its four tasks.

    Attributes:
        settings: number of them.
        smallest_gap: of |image→text − text→image|, in points.
        mean_gap: likewise.
        largest_gap: likewise.
        highest: task -> number of settings in which it is the highest.
    """

    settings: int
    smallest_gap: float
    mean_gap: float
    largest_gap: float
    highest: dict[str, int]


def scores_by_setting(numbers: Iterable[Printed], label: Label) -> list[dict[str, float]]:
    """Return task -> mean for each printed setting; a setting that two tables repeat counts once.

    >>> from channelhash.lab.experiments.paper.printed_results import load_printed
    >>> len(scores_by_setting(load_printed(), "printed_task")[0])
    4
    """
    scores: dict[tuple[object, ...], dict[str, float]] = {}
    for number in numbers:
        key = number.model, number.dataset, number.loss, number.n_bits, number.gamma_w, number.metric, number.split
        scores.setdefault(key, {})[getattr(number, label)] = number.mean
    return list(scores.values())


def shape(scores: Sequence[Mapping[str, float]]) -> Shape:
    """Measure how the scores of the four tasks lie to each other.

    Args:
        scores: task -> score in percent, of one metric; a setting each.

    >>> tasks = {"image->text": 80.0, "text->image": 81.0, "image->image": 75.0, "text->text": 90.0}
    >>> shape([tasks]).mean_gap, shape([tasks]).highest
    (1.0, {'text->text': 1})
    """
    gaps = [abs(tasks["image->text"] - tasks["text->image"]) for tasks in scores]
    highest: dict[str, int] = {}
    for tasks in scores:
        best = max(tasks, key=lambda task: tasks[task])
        highest[best] = highest.get(best, 0) + 1
    return Shape(len(gaps), min(gaps), sum(gaps) / len(gaps), max(gaps), highest)
