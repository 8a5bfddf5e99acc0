"""What speaks for swapped task labels in the paper's mAP tables: the shape of its own numbers.

Image→text and text→image compare the same two kinds of codes, so on the whole their figures are near each other, and an
order of tasks by one figure is that by another. The paper's ROC-AUC is so, its mAP only under other labels.
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


def figures_by_setting(numbers: Iterable[Printed], label: Label) -> list[dict[str, float]]:
    """Task -> mean of each printed setting; what two tables repeat is one setting."""
    found: dict[tuple[object, ...], dict[str, float]] = {}
    for number in numbers:
        key = number.model, number.dataset, number.loss, number.n_bits, number.gamma_w, number.metric, number.split
        found.setdefault(key, {})[getattr(number, label)] = number.mean
    return list(found.values())


def shape(figures: Sequence[Mapping[str, float]]) -> Shape:
    """How the four tasks lie to each other; ``figures`` are of one metric, in percent, one's own runs' too."""
    gaps = [abs(tasks["image->text"] - tasks["text->image"]) for tasks in figures]
    highest: dict[str, int] = {}
    for tasks in figures:
        best = max(tasks, key=lambda task: tasks[task])
        highest[best] = highest.get(best, 0) + 1
    return Shape(len(gaps), min(gaps), sum(gaps) / len(gaps), max(gaps), highest)
