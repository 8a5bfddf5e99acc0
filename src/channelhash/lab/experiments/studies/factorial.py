"""``experiment factorial``: what the channel, the quantisation term and the direct AP term bring,
each alone and together.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, product
from typing import NamedTuple

import numpy as np

from channelhash.lab.experiments.comparisons import (
    SeedTest,
    common_seeds,
    difference_rows,
    in_order,
    split_ratio,
)
from channelhash.lab.experiments.experiment import (
    Design,
    Experiment,
    GridRun,
    Result,
    Table,
)
from channelhash.lab.experiments.results import Sections, finished, group_by
from channelhash.lab.experiments.studies.tuning import (
    TRIALS,
    choose_rates,
    chosen_table,
    rate_trials,
    with_settings,
)
from channelhash.lab.experiments.tables import all_views, losses_table, spread_cells
from channelhash.lab.experiments.text_tables import Cell
from channelhash.losses import loss_settings, resolve_loss

#: The losses that are compared, those of others as published.
_LOSSES: Sections = {
    "DSCH": {"name": "dsch"},
    "SCH": {"name": "sch"},
    "RSCH": {"name": "rsch"},
    "TALR": {"name": "talr", "published": True},
    "HyP²": {"name": "hyp2", "published": True},
}
#: The loss whose channel the paper proposes.
_FIRST = "DSCH"
#: Weights of the quantisation term, of a loss that has one; without it, and ours.
_KAPPAS = (0.0, 0.3)
#: Effects of the two terms, as the tables name them.
_AP = "AP term"
_TERM = "quantisation term"
#: Column of the mean of all collections.
_MEAN = "Mean of collections"
#: Steps of each training at least.
_STEPS = 500


class _Setting(NamedTuple):
    """What one cell of the grid is: a loss by its name in the tables, κ_q, and whether the AP term
    is on.
    """

    loss: str
    kappa_q: float
    has_ap: bool

    @property
    def name(self) -> str:
        """Its name in the tables."""
        term = f", κ_q {self.kappa_q:g}" if self.kappa_q else ""
        return f"{self.loss}{term}{', AP' if self.has_ap else ''}"


#: Cells that differ in one thing: one that has it, and one that does not.
_Pairs = list[tuple[_Setting, _Setting]]
#: Weights of cells, whose weighted sum is an effect.
_Contrast = dict[_Setting, float]
#: Cell -> seed -> score in [0, 1].
_Scores = dict[_Setting, dict[int, float]]


def _grid(design: Design) -> list[GridRun]:
    """Return each loss without and with the AP term, weighed by the bits of the code, and those
    that have a quantisation term, without and with that.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> losses = {"SCH": {"name": "sch"}, "TALR": {"name": "talr"}}
    >>> runs = _grid(Design(DATASETS["synthetic"], [32], [0], losses))
    >>> [run.method for run in runs][2:]
    ['SCH, κ_q = 0, AP', 'SCH, κ_q = 0.3, AP', 'TALR', 'TALR, AP']
    """
    runs = []
    for method, loss in design.losses.items():
        has_term = "kappa_q" in loss_settings(resolve_loss(str(loss["name"]))).model_fields
        kappas = _KAPPAS if has_term else (None,)
        for ending, kappa_q in product(("", ", AP"), kappas):
            name = method if kappa_q is None else f"{method}, κ_q = {kappa_q:g}"
            settings = loss if kappa_q is None else {**loss, "kappa_q": kappa_q}
            for run in design.runs(name + ending, settings):
                runs.append(with_settings(run, {"average_precision": 1.0 if ending else 0.0}))
    return runs


def _cell_scores(results: Sequence[Result]) -> _Scores:
    """Return the mean of tasks and code lengths of each cell and seed."""
    means: dict[tuple[_Setting, int], list[float]] = {}
    for result in finished(results):
        loss = result.settings["loss"]
        setting = _Setting(
            result.method.partition(",")[0],
            float(loss.get("kappa_q", 0.0)),
            loss["average_precision"] > 0,
        )
        mean = np.mean([result.score(task, view="apart") for task in result.tasks("apart")])
        means.setdefault((setting, result.seed), []).append(float(mean))
    lengths = max(map(len, means.values()), default=0)
    cells: _Scores = {}
    for (setting, seed), of_lengths in means.items():
        if len(of_lengths) == lengths:
            cells.setdefault(setting, {})[seed] = float(np.mean(of_lengths))
    return cells


def _contrasts(cells: Collection[_Setting]) -> dict[str, _Contrast]:
    """Return every effect by its name: the mean over all pairs of cells that differ in one thing,
    how much more that is with the AP term (``×``), and ours against each loss with the AP term.
    """
    pairs = _term_pairs(cells) | _loss_pairs(cells)
    ours = _Setting(_FIRST, _KAPPAS[-1], has_ap=True)
    against = {f"{ours.name} − {cell.name}": [(ours, cell)] for cell in cells if cell.has_ap}
    contrasts = {}
    for name, each in (pairs | against).items():
        contrasts[name] = _mean_difference(each, cells)
    for name, each in pairs.items():
        if _AP not in name and f"{_TERM} in" not in name:
            contrasts[f"{_AP} × ({name})"] = _difference_with_ap(each, cells)
    return {name: contrast for name, contrast in contrasts.items() if any(contrast.values())}


def _term_pairs(cells: Collection[_Setting]) -> dict[str, _Pairs]:
    """Return the pairs that differ in a term, in all losses and in each."""
    with_ap = [(cell, cell._replace(has_ap=False)) for cell in cells if cell.has_ap]
    with_term = [(cell, cell._replace(kappa_q=0.0)) for cell in cells if cell.kappa_q]
    pairs = {}
    for name, each in {_AP: with_ap, _TERM: with_term}.items():
        pairs[name] = each
        for loss, of_loss in group_by(each, lambda pair: pair[0].loss).items():
            pairs[f"{name} in {loss}"] = of_loss
    return pairs


def _loss_pairs(cells: Collection[_Setting]) -> dict[str, _Pairs]:
    """Return the pairs that differ in the loss: the paper's and each other one, those with channels
    (which have a quantisation term) and those without.
    """
    losses = dict.fromkeys(cell.loss for cell in cells)
    channels = list(dict.fromkeys(cell.loss for cell in cells if cell.kappa_q))
    others = [loss for loss in losses if loss not in channels]
    pairs = {f"{_FIRST} − {loss}": _swapped(cells, [_FIRST], [loss]) for loss in losses}
    pairs[f"{', '.join(channels)} − {', '.join(others)}"] = _swapped(cells, channels, others)
    return pairs


def _swapped(cells: Collection[_Setting], first: Sequence[str], second: Sequence[str]) -> _Pairs:
    """Return pairs of cells of losses that are otherwise alike."""
    of_second = [cell for cell in cells if cell.loss in second]
    return [(cell._replace(loss=loss), cell) for loss, cell in product(first, of_second)]


def _mean_difference(pairs: _Pairs, cells: Collection[_Setting]) -> _Contrast:
    """Return the mean difference of the pairs of which both are there."""
    complete = [pair for pair in pairs if set(pair) <= set(cells)]
    contrast: _Contrast = {}
    for first, second in complete:
        contrast[first] = contrast.get(first, 0.0) + 1 / len(complete)
        contrast[second] = contrast.get(second, 0.0) - 1 / len(complete)
    return contrast


def _difference_with_ap(pairs: _Pairs, cells: Collection[_Setting]) -> _Contrast:
    """Return the mean difference of pairs with the AP term, minus that of those without."""
    contrast = _mean_difference([pair for pair in pairs if pair[0].has_ap], cells)
    without = _mean_difference([pair for pair in pairs if not pair[0].has_ap], cells)
    for cell, weight in without.items():
        contrast[cell] = contrast.get(cell, 0.0) - weight
    return contrast


def _effects(results: Sequence[Result]) -> dict[str, SeedTest]:
    """Test each effect over the seeds that all of its cells have, if these are two or more."""
    scores = _cell_scores(results)
    ratio = split_ratio(finished(results))
    effects = {}
    for name, contrast in _contrasts(scores).items():
        seeds = common_seeds(scores[cell] for cell in contrast)
        if len(seeds) > 1:
            terms = [
                100 * weight * in_order(scores[cell], seeds) for cell, weight in contrast.items()
            ]
            effects[name] = SeedTest.of(np.sum(terms, axis=0), ratio)
    return effects


def _effects_table(results: Mapping[str, Sequence[Result]]) -> Table:
    """Tabulate the effects, a collection a column, and their mean over collections."""
    tests = {collection or "Difference": _effects(runs) for collection, runs in results.items()}
    if len(tests) > 1:
        tests[_MEAN] = _means_of(list(tests.values()))
    return Table(
        "effects",
        "Effects on tie-aware mAP in points: R∖T apart from validation",
        ("Effect", *tests),
        difference_rows(tests),
        "Means of all tasks, paired over seeds with a split each, and 95 % intervals corrected for "
        "rows that splits share (Nadeau and Bengio 2003); of the mean of collections, Student's "
        "interval over these. ×: how much more it is with the AP term. Bold: p up to 0.05 by "
        "Holm's correction over the column. Queries and database are without the rows that "
        "learning rates were chosen on.",
        labels=1,
    )


def _means_of(collections: Sequence[Mapping[str, SeedTest]]) -> dict[str, SeedTest]:
    """Test the mean of each effect over the collections that have it, if these are two or more."""
    found: dict[str, list[float]] = {}
    for tests in collections:
        for name, test in tests.items():
            found.setdefault(name, []).append(test.difference)
    return {name: SeedTest.of(each) for name, each in found.items() if len(each) > 1}


def _means_table(results: Mapping[str, Sequence[Result]]) -> Table:
    """Tabulate the mean score of each cell, a collection a column."""
    columns = {name: _cell_scores(runs) for name, runs in results.items()}
    cells = list(dict.fromkeys(chain.from_iterable(columns.values())))
    texts = [[Cell(cell.name) for cell in cells]]
    for scores in columns.values():
        texts.append(spread_cells([list(scores.get(cell, {}).values()) for cell in cells]))
    return Table(
        "cells",
        "Tie-aware mAP in percent: R∖T apart from validation",
        ("Loss", *(collection or "mAP" for collection in columns)),
        tuple(zip(*texts, strict=True)),
        "Mean of all tasks ± sample standard deviation over seeds. Best of each column in bold.",
        labels=1,
    )


def _tables_of(results: Mapping[str, Sequence[Result]]) -> list[Table]:
    return [_effects_table(results), _means_table(results)]


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return the effects, the means that they are made of, and every cell on R and R∖T."""
    return [*_tables_of({"": results}), *all_views(losses_table, results)]


EXPERIMENT = Experiment(
    name="factorial",
    title="Channel, quantisation term and AP term",
    losses=_LOSSES,
    grid=_grid,
    choose=choose_rates,
    tables=_tables,
    trials={TRIALS: lambda trials: [chosen_table(trials)]},
    all_trials=rate_trials,
    across=_tables_of,
    splits=True,
    bits=(32,),
    preset="benchmark",
    steps=_STEPS,
)
