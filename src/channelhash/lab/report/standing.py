"""How good a run's codes are beside chance."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from channelhash.codes.code_set import CodeSet
from channelhash.metrics.histogram import hamming_histogram
from channelhash.metrics.significance import bootstrap_interval
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
        f"{arrow(standing.task)} gets {100 * standing.score:.1f} %, chance {print_range(standing.chance)}"
        for standing in low
    )
    return f"This run is {'partly ' * (len(low) < len(standings))}at chance: {found}."


def print_range(interval: tuple[float, float]) -> str:
    """Print two shares in percent.

    >>> print_range((0.1, 0.25))
    '10.0 to 25.0 %'
    """
    return f"{100 * interval[0]:.1f} to {100 * interval[1]:.1f} %"
