"""Where a difference between losses comes from, and what an option adds: effects in a grid, paired by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result

#: A cell of the grid: (loss, κ_q, γ_w; None where the loss has none).
Cell = tuple[str, float, float | None]


@dataclass(frozen=True)
class Effect:
    """A mean difference over seeds.

    Attributes:
        name: what is compared.
        task: of which task.
        n_bits: at which code length.
        difference: mean over seeds, in points of the figure (mAP in percent).
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
        """Whether the interval leaves zero out."""
        return self.lower > 0 or self.upper < 0


def cells(
    results: Sequence[Result], task: str, n_bits: int, figure: str = "map_tie_aware", view: str = "test"
) -> dict[Cell, dict[int, float]]:
    """Cell -> seed -> figure in percent, of the finished runs of one code length after the last epoch."""
    found: dict[Cell, dict[int, float]] = {}
    for result in results:
        if result.status == "finished" and result.n_bits == n_bits:
            loss = result.settings["loss"]
            cell = (str(loss["name"]), float(loss["kappa_q"]), loss.get("gamma_w"))
            found.setdefault(cell, {})[result.seed] = 100 * result.score(task, figure, view)
    return found


def option_effects(
    results: Sequence[Result],
    base: str,
    task: str,
    n_bits: int,
    confidence: float = 0.95,
    figure: str = "map_tie_aware",
    view: str = "test",
) -> list[Effect]:
    """What each method adds to ``base``, seed by seed, as in `factorial_effects`; in the grid's order.

    Methods that have fewer than two finished seeds in common with ``base`` are left out: there is no interval.
    """
    found: dict[str, dict[int, float]] = {}
    for result in results:
        if result.status == "finished" and result.n_bits == n_bits:
            found.setdefault(result.method, {})[result.seed] = 100 * result.score(task, figure, view)
    without = found.pop(base, {})
    effects = (
        weighted_effect(name, task, n_bits, [(1, own), (-1, without)], confidence) for name, own in found.items()
    )
    return [effect for effect in effects if effect]


def factorial_effects(
    results: Sequence[Result],
    task: str,
    n_bits: int,
    confidence: float = 0.95,
    figure: str = "map_tie_aware",
    view: str = "test",
) -> list[Effect]:
    """Effects of the channel (DSCH's bounds against SCH's) and of the quantisation term, and how they go together.

    Runs of one seed share initial weights, order and dropout, so differences are taken seed by seed; intervals are
    Student's t over seeds. The published comparison, DSCH with its term against SCH without, is parted in two the way
    Shapley values are: the channel's part is the mean of its effects with and without the term, and likewise the
    term's; the two add up to the whole.

    Raises:
        InputError: a cell of {SCH, DSCH} × κ_q {0, 0.01} has fewer than two seeds in common with the others.
    """
    found = cells(results, task, n_bits, figure, view)

    def cell(loss: str, kappa_q: float, gamma_w: float | None = None) -> Mapping[int, float]:
        wanted = 8.0 if loss == "dsch" and gamma_w is None else gamma_w
        return found.get((loss, kappa_q, wanted), {})

    core = {(loss, kappa): cell(loss, kappa) for loss in ("sch", "dsch") for kappa in (0.0, 0.01)}
    common = sorted(set.intersection(*(set(values) for values in core.values())))
    if len(common) < 2:
        raise InputError(
            f"{task}, {n_bits} bits: effects need two seeds or more of SCH and DSCH with κ_q 0 and 0.01; "
            f"{len(common)} are finished; run `channelhash experiment factorial`"
        )
    sch, sch_q, dsch, dsch_q = (core[key] for key in (("sch", 0.0), ("sch", 0.01), ("dsch", 0.0), ("dsch", 0.01)))
    effects: list[Effect] = []

    def add(name: str, *terms: tuple[float, Mapping[int, float]]) -> None:
        # Of the seeds that all four have, so that the parts add up.
        shared = [(weight, {seed: values[seed] for seed in values if seed in common}) for weight, values in terms]
        if effect := weighted_effect(name, task, n_bits, shared, confidence):
            effects.append(effect)

    kappas = sorted({key[1] for key in found})
    add("published comparison: DSCH, κ_q 0.01 − SCH, κ_q 0", (1, dsch_q), (-1, sch))
    add("  of it the channel", (0.5, dsch), (-0.5, sch), (0.5, dsch_q), (-0.5, sch_q))
    add("  of it the quantisation term", (0.5, sch_q), (-0.5, sch), (0.5, dsch_q), (-0.5, dsch))
    for kappa in kappas:
        add(f"channel: DSCH − SCH, κ_q {kappa:g}", (1, cell("dsch", kappa)), (-1, cell("sch", kappa)))
    for loss in ("sch", "dsch"):
        for kappa in kappas[1:]:
            add(f"quantisation: {loss.upper()}, κ_q {kappa:g} − 0", (1, cell(loss, kappa)), (-1, cell(loss, 0.0)))
    add("interaction: the term's effect in DSCH − in SCH", (1, dsch_q), (-1, dsch), (-1, sch_q), (1, sch))
    for kappa in kappas:
        add(f"width: DSCH, γ_w 2 − 8, κ_q {kappa:g}", (1, cell("dsch", kappa, 2.0)), (-1, cell("dsch", kappa)))
    return effects


def weighted_effect(
    name: str, task: str, n_bits: int, terms: Sequence[tuple[float, Mapping[int, float]]], confidence: float = 0.95
) -> Effect | None:
    """The sum of weights times figures (seed -> figure), seed by seed; None with fewer than two seeds in common.

    Mean, and Student's interval over seeds.
    """
    seeds = sorted(set.intersection(*(set(values) for _, values in terms)))
    if len(seeds) < 2:
        return None
    differences = np.array([sum(weight * values[seed] for weight, values in terms) for seed in seeds])
    n = len(differences)
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    half = float(stats.t.ppf((1 + confidence) / 2, n - 1)) * spread / n**0.5
    standardized = mean / spread if spread > 0 else float(np.copysign(np.inf, mean)) if mean else 0.0
    return Effect(name, task, n_bits, mean, mean - half, mean + half, standardized, n)
