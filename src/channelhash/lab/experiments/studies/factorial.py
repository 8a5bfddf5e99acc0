"""``experiment factorial``: which part of DSCH's gain is the channel's, which the quantisation
term's.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from channelhash.lab.experiments.comparisons import SeedTest
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.tables import all_views, losses_table, signed
from channelhash.lab.experiments.text_tables import Cell
from channelhash.metrics.plots import arrow


class _Effect(NamedTuple):
    """A mean difference over seeds, in points of the score (mAP in percent).

    ``standardized`` is the difference over its standard deviation between seeds (Cohen's d of
    paired samples), infinite where all seeds agree to the last digit.
    """

    test: SeedTest
    standardized: float


def _factorial_effects(results: Sequence[Result], task: str, n_bits: int) -> dict[str, _Effect]:
    """Return the effects of the channel (DSCH's bounds against SCH's) and of the quantisation term
    on tie-aware mAP over R, and how they interact.

    Runs of one seed share initial weights, order and dropout, so differences are taken seed by
    seed; intervals are Student's t over seeds. The published comparison, DSCH with its term against
    SCH without, is split in two as Shapley values are: the channel's part is the mean of its
    effects with and without the term, and likewise the term's; the two add up to the whole.
    """
    # Of each loss, κ_q and γ_w, None where the loss has none: seed -> score.
    scores: dict[tuple[str, float, float | None], dict[int, float]] = {}
    for result in results:
        if result.status == "finished" and result.n_bits == n_bits:
            settings = result.settings["loss"]
            setting = str(settings["name"]), float(settings["kappa_q"]), settings.get("gamma_w")
            scores.setdefault(setting, {})[result.seed] = 100 * result.score(task)

    def cell(loss: str, kappa_q: float, gamma_w: float | None = None) -> Mapping[int, float]:
        width = 8.0 if loss == "dsch" and gamma_w is None else gamma_w
        return scores.get((loss, kappa_q, width), {})

    core = [cell(loss, kappa_q) for loss in ("sch", "dsch") for kappa_q in (0.0, 0.01)]
    common = set.intersection(*map(set, core))
    if len(common) < 2:
        return {}
    sch, sch_q, dsch, dsch_q = core
    kappas = sorted({kappa_q for _, kappa_q, _ in scores})
    terms: dict[str, list[tuple[float, Mapping[int, float]]]] = {
        "published comparison: DSCH, κ_q 0.01 − SCH, κ_q 0": [(1, dsch_q), (-1, sch)],
        "of it the channel": [(0.5, dsch), (-0.5, sch), (0.5, dsch_q), (-0.5, sch_q)],
        "of it the quantisation term": [(0.5, sch_q), (-0.5, sch), (0.5, dsch_q), (-0.5, dsch)],
    }
    for kappa in kappas:
        terms[f"channel: DSCH − SCH, κ_q {kappa:g}"] = [
            (1, cell("dsch", kappa)),
            (-1, cell("sch", kappa)),
        ]
    for loss, kappa in product(("sch", "dsch"), kappas[1:]):
        terms[f"quantisation: {loss.upper()}, κ_q {kappa:g} − 0"] = [
            (1, cell(loss, kappa)),
            (-1, cell(loss, 0.0)),
        ]
    terms["interaction: the term's effect in DSCH − in SCH"] = [
        (1, dsch_q),
        (-1, dsch),
        (-1, sch_q),
        (1, sch),
    ]
    for kappa in kappas:
        terms[f"width: DSCH, γ_w 2 − 8, κ_q {kappa:g}"] = [
            (1, cell("dsch", kappa, 2.0)),
            (-1, cell("dsch", kappa)),
        ]
    # Only seeds that all four cells have count, so that the parts add up.
    effects = {name: _weighted_effect(weights, common) for name, weights in terms.items()}
    return {name: effect for name, effect in effects.items() if effect}


def _weighted_effect(
    terms: Sequence[tuple[float, Mapping[int, float]]], among: Set[int]
) -> _Effect | None:
    """Return the mean sum of weights times scores (seed -> score) over the seeds of ``among`` that
    all scores have; None with fewer than two."""
    seeds = sorted(set(among).intersection(*(scores for _, scores in terms)))
    if len(seeds) < 2:
        return None
    differences = np.array(
        [sum(weight * scores[seed] for weight, scores in terms) for seed in seeds]
    )
    mean = differences.mean()
    deviation = differences.std(ddof=1)
    standardized = mean / deviation if deviation > 0 else np.copysign(np.inf, mean) if mean else 0.0
    return _Effect(SeedTest.of(differences), float(standardized))


def _effects_tables(results: Sequence[Result]) -> list[Table]:
    """Return one table a code length: an effect a row, a task a column; intervals that exclude zero
    are bold.
    """
    finished = [result for result in results if result.status == "finished"]
    tables = []
    for n_bits in sorted({result.n_bits for result in finished}):
        tasks = finished[0].tasks()
        effects = {task: _factorial_effects(finished, task, n_bits) for task in tasks}
        rows = [
            (Cell(name), *(_cell(effects[task][name]) for task in tasks))
            for name in effects[tasks[0]]
        ]
        if not rows:
            continue  # too few seeds: the tables of scores name what is missing
        seeds = sorted(
            {effect.test.seeds for of_task in effects.values() for effect in of_task.values()}
        )
        tables.append(
            Table(
                f"effects-k{n_bits}",
                f"Effects on mAP_T in points, {n_bits} bits",
                ("effect", *(arrow(task) for task in tasks)),
                tuple(rows),
                "Mean difference over "
                f"{' to '.join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))} seeds, paired by "
                "seed, and Student's 95 % interval; in brackets the difference over its standard "
                "deviation between seeds. Bold: the interval leaves zero out (not corrected for "
                "the number of effects).",
                labels=1,
            )
        )
    return tables


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
