"""Effects in a grid as tables and as a plot."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product

from matplotlib.figure import Figure

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.stats.effects import Effect, factorial_effects
from channelhash.lab.experiments.tables.rendering import Cell, Table
from channelhash.lab.experiments.tables.results import task_names
from channelhash.utils.plotting import COLORS, arrow

#: What the plot of a factorial grid shows of its effects: name -> label.
FACTORIAL_LABELS = {
    "published comparison: DSCH, κ_q 0.01 − SCH, κ_q 0": "published\ncomparison",
    "  of it the channel": "of it\nthe channel",
    "  of it the quantisation term": "of it the\nquantisation",
    "interaction: the term's effect in DSCH − in SCH": "interaction",
}


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


def effects_plot(effects: Sequence[Effect], title: str) -> Figure:
    """Draw the effects of `FACTORIAL_LABELS`: a panel a task and a mark a code length; bars are 95 % intervals."""
    tasks = list(dict.fromkeys(effect.task for effect in effects))
    lengths = sorted({effect.n_bits for effect in effects})
    figure = Figure(figsize=(3.1 * len(tasks), 3.8), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for panel, task in zip(panels, tasks, strict=True):
        panel.axhline(0, color="0.4", linewidth=1)
        for number, n_bits in enumerate(lengths):
            named = {effect.name: effect for effect in effects if effect.task == task and effect.n_bits == n_bits}
            drawn = [(place, named[name]) for place, name in enumerate(FACTORIAL_LABELS) if name in named]
            shift = 0.18 * (number - (len(lengths) - 1) / 2)
            places = [place + shift for place, _ in drawn]
            differences = [effect.difference for _, effect in drawn]
            bars = [[e.difference - e.lower for _, e in drawn], [e.upper - e.difference for _, e in drawn]]
            panel.errorbar(
                places,
                differences,
                yerr=bars,
                fmt="osD^v"[number % 5],
                color=COLORS[number % 4],
                markersize=5,
                capsize=3,
                linestyle="none",
                label=f"{n_bits} bits",
            )
        panel.set_xticks(range(len(FACTORIAL_LABELS)), list(FACTORIAL_LABELS.values()), fontsize=7.5)
        panel.set_title(arrow(task), fontsize=10)
        panel.grid(axis="y", color="0.9")
        panel.set_axisbelow(True)
    panels[0].set_ylabel("difference of mAP, points")
    if len(lengths) > 1:
        panels[-1].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def _cell(effect: Effect) -> Cell:
    text = f"{effect.difference:+.2f} [{effect.lower:+.2f}, {effect.upper:+.2f}] ({effect.standardized:+.1f})"
    return Cell(text.replace("-", "−"), effect.clear)


def _count(seeds: set[int]) -> str:
    return str(seeds.pop()) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
