"""``experiment factorial``: which part of DSCH's gain is the channel's, which the quantisation
term's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.lab.experiments.comparisons import SeedTest, common_seeds, in_order
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.results import finished
from channelhash.lab.experiments.tables import all_views, losses_table, signed
from channelhash.lab.experiments.text_tables import Cell
from channelhash.metrics.plots import arrow


class _Effect(NamedTuple):
    """A mean difference over seeds, in points of the score (mAP in percent).

    Attributes:
        test: of the difference.
        standardized: the difference over its standard deviation between seeds (Cohen's d of
            paired samples), infinite where all seeds agree to the last digit.
    """

    test: SeedTest
    standardized: float


#: A loss, its κ_q, and its γ_w, None where it has none.
_Setting = tuple[str, float, float | None]


def _setting(loss: str, kappa_q: float, gamma_w: float = 8.0) -> _Setting:
    return loss, kappa_q, gamma_w if loss == "dsch" else None


#: The published comparison and what lies between: SCH and DSCH, each without and with the term.
_CORE = [_setting(loss, kappa_q) for loss, kappa_q in product(("sch", "dsch"), (0.0, 0.01))]


def _factorial_effects(results: Sequence[Result], task: str, n_bits: int) -> dict[str, _Effect]:
    """Return the effects of the channel (DSCH's bounds against SCH's) and of the quantisation term
    on tie-aware mAP over R, and how they interact.

    Runs of one seed share initial weights, order and dropout, so differences are taken seed by
    seed; intervals are Student's t over seeds. The published comparison, DSCH with its term against
    SCH without, is split in two as Shapley values are: the channel's part is the mean of its
    effects with and without the term, and likewise the term's; the two add up to the whole.
    """
    scores: dict[_Setting, dict[int, float]] = {}
    for result in finished(results):
        if result.n_bits == n_bits:
            loss = result.settings["loss"]
            setting = str(loss["name"]), float(loss["kappa_q"]), loss.get("gamma_w")
            scores.setdefault(setting, {})[result.seed] = 100 * result.score(task)
    # Only seeds that all four cells have count, so that the parts add up.
    common = common_seeds(scores.get(setting, {}) for setting in _CORE)
    effects = {}
    for name, weights in _contrasts(sorted({kappa_q for _, kappa_q, _ in scores})).items():
        cells = [scores.get(setting, {}) for setting in weights]
        seeds = [seed for seed in common_seeds(cells) if seed in common]
        if len(seeds) > 1:
            pairs = zip(weights.values(), cells, strict=True)
            terms = [weight * in_order(cell, seeds) for weight, cell in pairs]
            effects[name] = _effect(np.sum(terms, axis=0))
    return effects


def _contrasts(kappas: Sequence[float]) -> dict[str, dict[_Setting, float]]:
    """Return name -> setting -> weight of every effect: a weighted sum of scores."""
    sch, sch_q, dsch, dsch_q = _CORE
    contrasts: dict[str, dict[_Setting, float]] = {
        "published comparison: DSCH, κ_q 0.01 − SCH, κ_q 0": {dsch_q: 1, sch: -1},
        "of it the channel": {dsch: 0.5, sch: -0.5, dsch_q: 0.5, sch_q: -0.5},
        "of it the quantisation term": {sch_q: 0.5, sch: -0.5, dsch_q: 0.5, dsch: -0.5},
    }
    for kappa in kappas:
        name = f"channel: DSCH − SCH, κ_q {kappa:g}"
        contrasts[name] = {_setting("dsch", kappa): 1, _setting("sch", kappa): -1}
    for loss, kappa in product(("sch", "dsch"), kappas[1:]):
        name = f"quantisation: {loss.upper()}, κ_q {kappa:g} − 0"
        contrasts[name] = {_setting(loss, kappa): 1, _setting(loss, 0.0): -1}
    name = "interaction: the term's effect in DSCH − in SCH"
    contrasts[name] = {dsch_q: 1, dsch: -1, sch_q: -1, sch: 1}
    for kappa in kappas:
        name = f"width: DSCH, γ_w 2 − 8, κ_q {kappa:g}"
        contrasts[name] = {_setting("dsch", kappa, 2.0): 1, _setting("dsch", kappa): -1}
    return contrasts


def _effect(differences: NDArray[np.float64]) -> _Effect:
    """Test the difference of each seed."""
    mean = float(differences.mean())
    deviation = float(differences.std(ddof=1))
    if deviation > 0:
        standardized = mean / deviation
    else:
        standardized = float(np.copysign(np.inf, mean)) if mean else 0.0
    return _Effect(SeedTest.of(differences), standardized)


def _effects_tables(results: Sequence[Result]) -> list[Table]:
    """Return one table a code length; none where there are too few seeds, whose tables of scores
    name what is missing.
    """
    done = finished(results)
    tables = []
    for n_bits in sorted({result.n_bits for result in done}):
        tasks = done[0].tasks()
        effects = {task: _factorial_effects(done, task, n_bits) for task in tasks}
        if effects[tasks[0]]:
            tables.append(_effects_table(effects, n_bits))
    return tables


def _effects_table(effects: Mapping[str, Mapping[str, _Effect]], n_bits: int) -> Table:
    """Return an effect a row, a task a column; intervals that exclude zero are bold."""
    rows = []
    seeds = set()
    for name in next(iter(effects.values())):
        of_tasks = [of_task[name] for of_task in effects.values()]
        seeds |= {effect.test.seeds for effect in of_tasks}
        rows.append((Cell(name), *map(_cell, of_tasks)))
    ends = dict.fromkeys((min(seeds), max(seeds)))
    return Table(
        f"effects-k{n_bits}",
        f"Effects on mAP_T in points, {n_bits} bits",
        ("effect", *map(arrow, effects)),
        tuple(rows),
        f"Mean difference over {' to '.join(map(str, ends))} seeds, paired by seed, and Student's "
        "95 % interval; in brackets the difference over its standard deviation between seeds. "
        "Bold: the interval leaves zero out (not corrected for the number of effects).",
        labels=1,
    )


def _cell(effect: _Effect) -> Cell:
    test = effect.test
    interval = f"[{signed(test.lower)}, {signed(test.upper)}]"
    standardized = f"{effect.standardized:+.1f}".replace("-", "−")
    return Cell(
        f"{signed(test.difference)} {interval} ({standardized})", test.lower > 0 or test.upper < 0
    )


def _grid(design: Design) -> list[GridRun]:
    """Return the bounds of SCH and DSCH, each with κ_q of 0, 0.01 and 0.03; DSCH at 32 bits also
    with γ_w = 2.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> [run.name for run in _grid(Design(DATASETS["synthetic"], [32], [0]))][-2:]
    ['dsch-kappa_q-0.03-k32-seed0', 'dsch-gamma_w-2-kappa_q-0.03-k32-seed0']
    """
    runs = []
    for channel, kappa_q in product(("sch", "dsch"), (0.0, 0.01, 0.03)):
        loss = {"name": channel, "kappa_q": kappa_q}
        runs += design.runs(f"{channel.upper()}, κ_q = {kappa_q:g}", loss)
        if channel == "dsch" and 32 in design.bits:
            runs += replace(design, bits=[32]).runs(
                f"DSCH, γ_w = 2, κ_q = {kappa_q:g}", {**loss, "gamma_w": 2.0}
            )
    return runs


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by channel and κ_q, and the effects of both."""
    return [*all_views(losses_table, results), *_effects_tables(results)]


EXPERIMENT = Experiment(
    "factorial", "Channel and quantisation term", _tables, bits=(16, 32, 64), grid=_grid
)
