"""``experiment factorial``: which part of DSCH's gain is the channel's, which the quantisation term's."""

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from channelhash.errors import InputError
from channelhash.lab.experiments.comparisons import seed_test
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun
from channelhash.lab.experiments.rendering import Cell, Table
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.tables import all_views, losses_table, task_names
from channelhash.utils.plotting import arrow

# (loss, κ_q, γ_w; None where the loss has none).
_Setting = tuple[str, float, float | None]


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


def _setting(result: Result) -> _Setting:
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
    scores: dict[_Setting, dict[int, float]] = {}
    for result in results:
        if result.status == "finished" and result.n_bits == n_bits:
            scores.setdefault(_setting(result), {})[result.seed] = 100 * result.score(task)

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


def all_effects(results: Sequence[Result]) -> list[Effect]:
    """Return `factorial_effects` of every task and code length for which two seeds or more are finished."""
    effects: list[Effect] = []
    finished = [result for result in results if result.status == "finished"]
    lengths = sorted({result.n_bits for result in finished})
    for n_bits, task in product(lengths, task_names(finished, "test", "last")):
        with suppress(InputError):  # too few seeds: the tables of scores name what is missing
            effects += factorial_effects(results, task, n_bits)
    return effects


def effects_tables(effects: Sequence[Effect]) -> list[Table]:
    """Return one table a code length: an effect a row, a task a column; intervals that exclude zero are bold."""
    tables = []
    for n_bits in sorted({effect.n_bits for effect in effects}):
        here = [effect for effect in effects if effect.n_bits == n_bits]
        tasks = list(dict.fromkeys(effect.task for effect in here))
        rows = []
        for name in dict.fromkeys(effect.name for effect in here):
            of_task = {effect.task: effect for effect in here if effect.name == name}
            cells = (_cell(of_task[task]) if task in of_task else Cell("–") for task in tasks)
            rows.append((Cell(name.strip()), *cells))
        seeds = {effect.seeds for effect in here}
        tables.append(
            Table(
                f"effects-k{n_bits}",
                f"Effects on mAP_T in points, {n_bits} bits",
                ("effect", *(arrow(task) for task in tasks)),
                tuple(rows),
                f"Mean difference over {_count(seeds)} seeds, paired by seed, and Student's 95 % interval; in brackets "
                "the difference over its standard deviation between seeds. Bold: the interval leaves zero out (not "
                "corrected for the number of effects).",
                labels=1,
            )
        )
    return tables


def _cell(effect: Effect) -> Cell:
    text = f"{effect.difference:+.2f} [{effect.lower:+.2f}, {effect.upper:+.2f}] ({effect.standardized:+.1f})"
    return Cell(text.replace("-", "−"), effect.clear)


def _count(seeds: set[int]) -> str:
    return str(seeds.pop()) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"


def _grid(design: Design) -> list[GridRun]:
    """Return the bounds of SCH and DSCH, each with κ_q of 0, 0.01 and 0.03; DSCH at 32 bits also with γ_w = 2.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> [run.name for run in _grid(Design(DATASETS["synthetic"], [32], [0]))][-2:]
    ['dsch-kappa_q-0.03-k32-seed0', 'dsch-gamma_w-2-kappa_q-0.03-k32-seed0']
    """
    runs = []
    for channel, kappa_q in product(("sch", "dsch"), (0.0, 0.01, 0.03)):
        loss = {"name": channel, "kappa_q": kappa_q}
        runs += design.runs(f"{channel.upper()}, κ_q = {kappa_q:g}", loss)
        if channel == "dsch" and 32 in design.bits:
            at_32_bits = replace(design, bits=[32])
            runs += at_32_bits.runs(f"DSCH, γ_w = 2, κ_q = {kappa_q:g}", {**loss, "gamma_w": 2.0})
    return runs


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by channel and κ_q, and the effects of both."""
    return [*all_views(losses_table, results), *effects_tables(all_effects(results))]


EXPERIMENT = Experiment(
    name="factorial", title="Channel and quantisation term", bits=(16, 32, 64), grid=_grid, tables=_tables
)
