"""Effects of a factorial grid as tables and as a plot."""

from collections.abc import Sequence
from contextlib import suppress

from matplotlib.figure import Figure

from channelhash.errors import InputError
from channelhash.experiments.effects import Effect, factorial_effects
from channelhash.experiments.rendering import Cell, Table
from channelhash.experiments.results import Result
from channelhash.experiments.tables import arrow, task_names

#: What the plot shows of the effects: name -> label.
_PLOTTED = {
    "published comparison: DSCH, κ_q 0.01 − SCH, κ_q 0": "published\ncomparison",
    "  of it the channel": "of it\nthe channel",
    "  of it the quantisation term": "of it the\nquantisation",
    "interaction: the term's effect in DSCH − in SCH": "interaction",
}


def all_effects(results: Sequence[Result], figure: str = "map_tie_aware", view: str = "test") -> list[Effect]:
    """`factorial_effects` of every task and code length that two seeds or more are finished for; empty if none."""
    finished = [result for result in results if result.status == "finished"]
    effects: list[Effect] = []
    for n_bits in sorted({result.n_bits for result in finished}):
        for task in task_names(finished, view, "last"):
            with suppress(InputError):  # too few seeds: the tables of figures name what is missing
                effects += factorial_effects(finished, task, n_bits, figure=figure, view=view)
    return effects


def effects_tables(effects: Sequence[Effect], figure: str = "mAP_T") -> list[Table]:
    """One table a code length: an effect a row, a task a column; intervals that leave zero out are bold."""
    tables = []
    for n_bits in sorted({effect.n_bits for effect in effects}):
        here = [effect for effect in effects if effect.n_bits == n_bits]
        tasks = list(dict.fromkeys(effect.task for effect in here))
        rows = []
        for name in dict.fromkeys(effect.name for effect in here):
            found = {effect.task: effect for effect in here if effect.name == name}
            rows.append((Cell(name.strip()), *(_cell(found[task]) for task in tasks)))
        seeds = {effect.seeds for effect in here}
        tables.append(
            Table(
                f"effects-k{n_bits}",
                f"Effects on {figure} in points, {n_bits} bits",
                ("effect", *(arrow(task) for task in tasks)),
                tuple(rows),
                f"Mean difference over {_count(seeds)} seeds, paired by seed, and Student's 95 % interval; in brackets "
                "the difference over its standard deviation between seeds. Bold: the interval leaves zero out (not "
                "corrected for the number of effects).",
            )
        )
    return tables


def effects_plot(effects: Sequence[Effect], title: str) -> Figure:
    """The published comparison and its parts: a panel a task, a mark a code length, bars are 95 % intervals."""
    tasks = list(dict.fromkeys(effect.task for effect in effects))
    lengths = sorted({effect.n_bits for effect in effects})
    figure = Figure(figsize=(3.1 * len(tasks), 3.8), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for panel, task in zip(panels, tasks, strict=True):
        panel.axhline(0, color="0.4", linewidth=1)
        for number, n_bits in enumerate(lengths):
            found = {effect.name: effect for effect in effects if effect.task == task and effect.n_bits == n_bits}
            shown = [found[name] for name in _PLOTTED]
            shift = 0.18 * (number - (len(lengths) - 1) / 2)
            panel.errorbar(
                [place + shift for place in range(len(shown))],
                [effect.difference for effect in shown],
                yerr=[[e.difference - e.lower for e in shown], [e.upper - e.difference for e in shown]],
                fmt="osD^v"[number % 5],
                color=("#0072B2", "#D55E00", "#009E73", "#CC79A7")[number % 4],
                markersize=5,
                capsize=3,
                linestyle="none",
                label=f"{n_bits} bits",
            )
        panel.set_xticks(range(len(_PLOTTED)), list(_PLOTTED.values()), fontsize=7.5)
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
