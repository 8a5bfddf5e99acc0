"""Effects in a grid as tables and as a plot."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from matplotlib.figure import Figure

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.stats.effects import Effect, factorial_effects, option_effects
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
    for n_bits, task in _lengths_and_tasks(results):
        with suppress(InputError):  # too few seeds: the tables of scores name what is missing
            effects += factorial_effects(results, task, n_bits)
    return effects


def all_option_effects(results: Sequence[Result], base: str) -> list[Effect]:
    """Return `option_effects` of every task and code length."""
    return [
        effect for n_bits, task in _lengths_and_tasks(results) for effect in option_effects(results, base, task, n_bits)
    ]


def _lengths_and_tasks(results: Sequence[Result]) -> list[tuple[int, str]]:
    finished = [result for result in results if result.status == "finished"]
    lengths = sorted({result.n_bits for result in finished})
    return [(n_bits, task) for n_bits in lengths for task in task_names(finished, "test", "last")]


def effects_tables(
    effects: Sequence[Effect], score: str = "mAP_T", title: str = "Effects", notes: str = ""
) -> list[Table]:
    """Return one table a code length: an effect a row, a task a column; intervals that exclude zero are bold.

    Args:
        effects: of one grid.
        score: what they are of, as it is printed.
        title: begins the tables' titles.
        notes: ends their captions.
    """
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
                f"{title} on {score} in points, {n_bits} bits",
                ("effect", *(arrow(task) for task in tasks)),
                tuple(rows),
                f"Mean difference over {_count(seeds)} seeds, paired by seed, and Student's 95 % interval; in brackets "
                "the difference over its standard deviation between seeds. Bold: the interval leaves zero out (not "
                f"corrected for the number of effects). {notes}".strip(),
                labels=1,
            )
        )
    return tables


def effects_plot(
    effects: Sequence[Effect], title: str, labels: Mapping[str, str] = FACTORIAL_LABELS, sideways: bool = False
) -> Figure:
    """Draw a panel a task and a mark a code length; bars are 95 % intervals.

    Args:
        effects: of one grid.
        title: of the plot.
        labels: what is shown: name of an effect -> label.
        sideways: one effect below the other, which leaves room for more of them and longer labels.
    """
    tasks = list(dict.fromkeys(effect.task for effect in effects))
    lengths = sorted({effect.n_bits for effect in effects})
    size = (1.8 + 2.3 * len(tasks), 1.4 + 0.36 * len(labels)) if sideways else (3.1 * len(tasks), 3.8)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for panel, task in zip(panels, tasks, strict=True):
        (panel.axvline if sideways else panel.axhline)(0, color="0.4", linewidth=1)
        for number, n_bits in enumerate(lengths):
            named = {effect.name: effect for effect in effects if effect.task == task and effect.n_bits == n_bits}
            drawn = [(place, named[name]) for place, name in enumerate(labels) if name in named]
            shift = 0.18 * (number - (len(lengths) - 1) / 2)
            places = [place + shift for place, _ in drawn]
            differences = [effect.difference for _, effect in drawn]
            bars = [[e.difference - e.lower for _, e in drawn], [e.upper - e.difference for _, e in drawn]]
            panel.errorbar(
                *((differences, places) if sideways else (places, differences)),
                **{"xerr" if sideways else "yerr": bars},
                fmt="osD^v"[number % 5],
                color=COLORS[number % 4],
                markersize=5,
                capsize=3,
                linestyle="none",
                label=f"{n_bits} bits",
            )
        if sideways:
            panel.set_yticks(range(len(labels)), list(labels.values()), fontsize=8.5)
            panel.set_ylim(len(labels) - 0.5, -0.5)
            panel.set_xlabel("difference of mAP, points", fontsize=8.5)
        else:
            panel.set_xticks(range(len(labels)), list(labels.values()), fontsize=7.5)
        panel.set_title(arrow(task), fontsize=10)
        panel.grid(axis="x" if sideways else "y", color="0.9")
        panel.set_axisbelow(True)
    if not sideways:
        panels[0].set_ylabel("difference of mAP, points")
    if len(lengths) > 1 and sideways:  # inside it would lie on marks
        handles = panels[-1].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=len(lengths), frameon=False, fontsize=8)
    elif len(lengths) > 1:
        panels[-1].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def _cell(effect: Effect) -> Cell:
    text = f"{effect.difference:+.2f} [{effect.lower:+.2f}, {effect.upper:+.2f}] ({effect.standardized:+.1f})"
    return Cell(text.replace("-", "−"), effect.clear)


def _count(seeds: set[int]) -> str:
    return str(seeds.pop()) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
