"""Where a difference between losses comes from: effects in a grid, paired by seed."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.stats.significance import seed_test

#: A cell of the grid: (loss, κ_q, γ_w; None where the loss has none).
Cell = tuple[str, float, float | None]


@dataclass(frozen=True)
class Effect:
    """A mean difference over seeds.

    Attributes:
        name: what is compared.
        task: of which task.
        n_bits: at which code length.
        difference: mean over seeds, in points of the score (mAP in percent).
        lower: lower end of the confidence interval.
        upper: upper end.
        standardized: the difference over its standard deviation between seeds (Cohen's d of paired samples); infinite
            where all seeds agree to the last digit.
        seeds: how many.
    """

    name: str
    task: str
    n_bits: int
    difference: float
    lower: float
    upper: float
    standardized: float
    seeds: int

    @property
    def clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.lower > 0 or self.upper < 0


def _cell(result: Result) -> Cell:
    loss = result.settings["loss"]
    return str(loss["name"]), float(loss["kappa_q"]), loss.get("gamma_w")


def factorial_effects(results: Sequence[Result], task: str, n_bits: int) -> list[Effect]:
    """Return the effects of the channel (DSCH's bounds against SCH's) and of the quantisation term on tie-aware mAP
    over R, and how they interact.

    Runs of one seed share initial weights, order and dropout, so differences are taken seed by seed; intervals are
    Student's t over seeds. The published comparison, DSCH with its term against SCH without, is split in two as Shapley
    values are: the channel's part is the mean of its effects with and without the term, and likewise the term's; the
    two add up to the whole.

    Raises:
        InputError: a cell of {SCH, DSCH} × κ_q {0, 0.01} has fewer than two seeds in common with the others.
    """
    scores: dict[Cell, dict[int, float]] = {}
    for result in results:
        if result.status == "finished" and result.n_bits == n_bits:
            scores.setdefault(_cell(result), {})[result.seed] = 100 * result.score(task)

    def cell(loss: str, kappa_q: float, gamma_w: float | None = None) -> Mapping[int, float]:
        width = 8.0 if loss == "dsch" and gamma_w is None else gamma_w
        return scores.get((loss, kappa_q, width), {})

    core = [cell(loss, kappa_q) for loss in ("sch", "dsch") for kappa_q in (0.0, 0.01)]
    common = set.intersection(*map(set, core))
    if len(common) < 2:
        raise InputError(
            f"{task}, {n_bits} bits: effects need two seeds or more of SCH and DSCH with κ_q 0 and 0.01; "
            f"{len(common)} are finished; run `channelhash experiment factorial`"
        )
    sch, sch_q, dsch, dsch_q = core
    kappas = sorted({kappa_q for _, kappa_q, _ in scores})
    terms: dict[str, list[tuple[float, Mapping[int, float]]]] = {
        "published comparison: DSCH, κ_q 0.01 − SCH, κ_q 0": [(1, dsch_q), (-1, sch)],
        "  of it the channel": [(0.5, dsch), (-0.5, sch), (0.5, dsch_q), (-0.5, sch_q)],
        "  of it the quantisation term": [(0.5, sch_q), (-0.5, sch), (0.5, dsch_q), (-0.5, dsch)],
    }
    for kappa in kappas:
        terms[f"channel: DSCH − SCH, κ_q {kappa:g}"] = [(1, cell("dsch", kappa)), (-1, cell("sch", kappa))]
    for loss in ("sch", "dsch"):
        for kappa in kappas[1:]:
            name = f"quantisation: {loss.upper()}, κ_q {kappa:g} − 0"
            terms[name] = [(1, cell(loss, kappa)), (-1, cell(loss, 0.0))]
    terms["interaction: the term's effect in DSCH − in SCH"] = [(1, dsch_q), (-1, dsch), (-1, sch_q), (1, sch)]
    for kappa in kappas:
        terms[f"width: DSCH, γ_w 2 − 8, κ_q {kappa:g}"] = [(1, cell("dsch", kappa, 2.0)), (-1, cell("dsch", kappa))]
    # Only seeds that all four cells have count, so that the parts add up.
    effects = (weighted_effect(name, task, n_bits, weights, common) for name, weights in terms.items())
    return [effect for effect in effects if effect]


def weighted_effect(
    name: str, task: str, n_bits: int, terms: Sequence[tuple[float, Mapping[int, float]]], among: Set[int]
) -> Effect | None:
    """Return the mean sum of weights times scores (seed -> score), with Student's interval over the seeds that count.

    Args:
        name: see `Effect`.
        task: likewise.
        n_bits: likewise.
        terms: (weight, seed -> score in percent).
        among: the seeds that count, of those that all scores have.

    Returns:
        None with fewer than two such seeds.

    >>> terms = [(1, {0: 3.0, 1: 5.0}), (-1, {0: 2.0, 1: 3.0})]
    >>> effect = weighted_effect("a − b", "image->text", 32, terms, {0, 1})
    >>> effect.difference, effect.seeds, effect.clear
    (1.5, 2, False)
    """
    seeds = sorted(set(among).intersection(*(scores for _, scores in terms)))
    if len(seeds) < 2:
        return None
    differences = np.array([sum(weight * scores[seed] for weight, scores in terms) for seed in seeds])
    test = seed_test(differences)
    spread = float(differences.std(ddof=1))
    mean = test.difference
    standardized = mean / spread if spread > 0 else float(np.copysign(np.inf, mean)) if mean else 0.0
    return Effect(name, task, n_bits, mean, test.lower, test.upper, standardized, len(seeds))
