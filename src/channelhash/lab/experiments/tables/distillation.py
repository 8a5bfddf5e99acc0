"""Tables and plot of students of several sizes: mAP beside their teacher's, cost, and what distillation brings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from channelhash.lab.experiments.plots.results import task_panels
from channelhash.lab.experiments.results import Result, measured
from channelhash.lab.experiments.stats.effects import weighted_effect
from channelhash.lab.experiments.tables.effects import effects_tables
from channelhash.lab.experiments.tables.rendering import Cell, Table
from channelhash.lab.experiments.tables.results import print_spread, spread
from channelhash.utils.plotting import COLORS, arrow, legend_below, line

#: Methods of one size in the order of the tables: method -> begin of its runs' names.
DISTILLED, UNRELATED, LABELLED = "distilled", "distilled, λ_r = 0", "from labels"
KINDS = {DISTILLED: "distilled", UNRELATED: "distilled-lambda-0", LABELLED: "labels"}

#: Columns of scores: whose codes query whose.
_TEACHER, _ASKS, _ALONE, _LABELS = "teacher alone", "student asks teacher", "student alone", "from labels"
_ASKS_0, _ALONE_0 = f"{_ASKS}, λ_r = 0", f"{_ALONE}, λ_r = 0"
_COLUMNS = (_TEACHER, _ASKS, _ASKS_0, _ALONE, _ALONE_0, _LABELS)
#: Differences in the order of the tables: name -> (columns).
_DIFFERENCES = {
    f"{_ASKS}, λ_r 1 − 0": (_ASKS, _ASKS_0),
    f"{_ALONE}, λ_r 1 − 0": (_ALONE, _ALONE_0),
    f"{_ALONE} − {_LABELS}": (_ALONE, _LABELS),
    f"{_ASKS} − {_LABELS}": (_ASKS, _LABELS),
    f"{_ASKS} − {_TEACHER}": (_ASKS, _TEACHER),
}
# Lines of the plot are moved aside by this share of the speed, so that error bars do not lie on one another.
_ASIDE = 0.025


class _Student(NamedTuple):
    """One size and seed: ``distillation.json`` with and without the relational term, and the run from labels."""

    related: Mapping[str, Any]
    unrelated: Mapping[str, Any]
    labelled: Result

    def scores(self, column: str) -> Mapping[str, float]:
        """Map each task to the tie-aware mAP in [0, 1] of one of `_COLUMNS`, on the items of teacher and student."""
        if column == _LABELS:
            return {task: self.labelled.score(task) for task in self.labelled.tasks()}
        report = self.unrelated if column in (_ASKS_0, _ALONE_0) else self.related
        sides = {_TEACHER: "teacher->teacher", _ASKS: "student->teacher", _ASKS_0: "student->teacher"}
        scores: Mapping[str, float] = report["map"][sides.get(column, "student->student")]
        return scores


#: Code length -> size -> seed -> its students, of seeds at which every size and kind is finished.
_Students = Mapping[int, Mapping[str, Mapping[int, _Student]]]


def distillation_tables(results: Sequence[Result]) -> list[Table]:
    """Tabulate mAP of teacher and students, their cost, and differences paired by seed."""
    students = _read(results)
    return [_map_table(students, results), _cost_table(students), *_effects(students)]


def distillation_plots(results: Sequence[Result]) -> dict[str, Figure]:
    """Draw mAP against images a second, by name of the plot: one a code length."""
    return {f"distillation-k{n_bits}": _plot(n_bits, sizes) for n_bits, sizes in _read(results).items()}


def _read(results: Sequence[Result]) -> _Students:
    finished = {(r.method, r.n_bits, r.seed): r for r in results if r.status == "finished"}
    sizes = [r.method.removeprefix(f"{LABELLED}, ") for r in results if r.method.startswith(f"{LABELLED}, ")]
    sizes = list(dict.fromkeys(sizes))
    students: dict[int, dict[str, dict[int, _Student]]] = {}
    for n_bits, seed in sorted({(r.n_bits, r.seed) for r in results}):
        runs = {(kind, size): finished.get((f"{kind}, {size}", n_bits, seed)) for size in sizes for kind in KINDS}
        whole = {key: run for key, run in runs.items() if run}
        if not sizes or len(whole) < len(runs):
            continue
        for size in sizes:
            related, unrelated = (measured(whole[kind, size], "distillation") for kind in (DISTILLED, UNRELATED))
            student = _Student(related, unrelated, whole[LABELLED, size])
            students.setdefault(n_bits, {}).setdefault(size, {})[seed] = student
    return students


def _tasks(sizes: Mapping[str, Mapping[int, _Student]]) -> list[str]:
    """Return the tasks, cross-modal ones first."""
    chance = next(iter(next(iter(sizes.values())).values())).related["chance"]
    return sorted(chance, key=lambda task: task.split("->")[0] == task.split("->")[1])


def _scores(seeds: Mapping[int, _Student], column: str, task: str) -> dict[int, float]:
    """Map seeds to scores, of a task that the column has."""
    return {seed: scores[task] for seed, student in seeds.items() if task in (scores := student.scores(column))}


def _map_table(students: _Students, results: Sequence[Result]) -> Table:
    rows = []
    for n_bits, sizes in students.items():
        for task in _tasks(sizes):
            for size, seeds in sizes.items():
                columns = (list(_scores(seeds, column, task).values()) for column in _COLUMNS)
                cells = (Cell(print_spread(spread(values)) if values else "–") for values in columns)
                chance = median(student.related["chance"][task] for student in seeds.values())
                rows.append((Cell(f"{arrow(task)}, k = {n_bits}"), Cell(size), *cells, Cell(f"{100 * chance:.2f}")))
    missing = [f"{result.name} ({result.error or result.status})" for result in results if result.status != "finished"]
    return Table(
        "distillation",
        "A teacher and its students: tie-aware mAP in percent",
        ("Task", "Student", *_COLUMNS, "chance"),
        tuple(rows),
        f"Whole ranking of R on the items that teacher and student have, last epoch, {_seeds(students)}: mean ± sample "
        "standard deviation. Student asks teacher: its codes of the queries, the teacher's of R. From labels: the same "
        "model trained by the teacher's loss on the same rows, epochs and batches."
        + (f" Not finished, their seeds are left out: {', '.join(missing)}." if missing else ""),
    )


def _cost_table(students: _Students) -> Table:
    rows, modalities, notes = [], [], ""
    for n_bits, sizes in students.items():
        block = Cell(f"k = {n_bits}")
        first = next(iter(next(iter(sizes.values())).values())).related
        modalities = list(first["speed"])
        rows.append((block, Cell("teacher"), *_size_cells([first], "teacher"), *[Cell("")] * (4 * len(modalities))))
        for size, seeds in sizes.items():
            related = [student.related for student in seeds.values()]
            cells = list(_size_cells(related, "student"))
            for modality in modalities:
                for side in ("student", "teacher"):
                    speed = median(report["speed"][modality][f"{side}_per_second"] for report in related)
                    cells.append(Cell(f"{speed:,.0f}"))
                for kind in (related, [student.unrelated for student in seeds.values()]):
                    cells.append(Cell(print_spread(spread([report["agreement"][modality] for report in kind]))))
            rows.append((block, Cell(size), *cells))
        reads = (
            f"{modality}s: teacher {speed['teacher_reads']}, student {speed['student_reads']}"
            for modality, speed in first["speed"].items()
        )
        notes = f" Read are, {'; '.join(reads)}. {first['machine']}."
    columns = [
        name.format(modality)
        for modality in modalities
        for name in ("{}s/s", "teacher's {}s/s", "equal bits of {}s, %", "equal bits of {}s, λ_r = 0, %")
    ]
    return Table(
        "distillation-cost",
        "A teacher and its students: size, speed, and bits in which they agree",
        ("Code length", "Model", "parameters", "MB", *columns),
        tuple(rows),
        "Items a second from what each model reads to codes, median over seeds of students with λ_r = 1; student and "
        "teacher were measured in turn in one process, so compare within a row. Equal bits: share of bits of the test "
        f"queries in which student and teacher agree, mean ± sample standard deviation, {_seeds(students)}. MB: of the "
        f"saved model.{notes}",
    )


def _size_cells(compared: Sequence[Mapping[str, Any]], side: str) -> tuple[Cell, Cell]:
    sizes = [report["size"][side] for report in compared]
    parameters, saved, frozen = (median(size[key] for size in sizes) for key in ("parameters", "bytes", "frozen_bytes"))
    extra = f" + {frozen / 1e6:.2f} frozen" if frozen else ""
    return Cell(f"{parameters:,.0f}"), Cell(f"{saved / 1e6:.2f}{extra}")


def _effects(students: _Students) -> list[Table]:
    """Tabulate differences of mAP and of equal bits, paired by seed; none of fewer than two seeds."""
    maps, bits = [], []
    for n_bits, sizes in students.items():
        for name, columns in _DIFFERENCES.items():
            for size, seeds in sizes.items():
                for task in _tasks(sizes):
                    sides = (_percent(_scores(seeds, column, task)) for column in columns)
                    terms = list(zip((1.0, -1.0), sides, strict=True))
                    maps.append(weighted_effect(f"{size}: {name}", task, n_bits, terms))
        for size, seeds in sizes.items():
            for modality in next(iter(seeds.values())).related["agreement"]:
                related = {seed: student.related["agreement"][modality] for seed, student in seeds.items()}
                unrelated = {seed: student.unrelated["agreement"][modality] for seed, student in seeds.items()}
                terms = [(1.0, _percent(related)), (-1.0, _percent(unrelated))]
                bits.append(weighted_effect(f"{size}: λ_r 1 − 0", f"{modality}s", n_bits, terms))
    title = "Distillation: differences"
    notes = "Where nothing else is said λ_r is 1."
    agreement = effects_tables([effect for effect in bits if effect], "equal bits", title)
    return [
        *effects_tables([effect for effect in maps if effect], title=title, notes=notes),
        *(replace(table, name=f"agreement-{table.name}") for table in agreement),
    ]


def _percent(scores: Mapping[int, float]) -> dict[int, float]:
    return {seed: 100 * score for seed, score in scores.items()}


def _plot(n_bits: int, sizes: Mapping[str, Mapping[int, _Student]]) -> Figure:
    """Draw a panel a task and a mark a size; the teacher is a line, with a mark where it reads what students read."""
    related = {size: [student.related for student in seeds.values()] for size, seeds in sizes.items()}
    speeds = next(iter(related.values()))[0]["speed"]
    modality = "image" if "image" in speeds else next(iter(speeds))

    def speed(compared: Sequence[Mapping[str, Any]], side: str) -> float:
        return float(median(report["speed"][modality][f"{side}_per_second"] for report in compared))

    x = np.array([speed(compared, "student") for compared in related.values()])
    ticks = {f"{size}\n{place:,.0f}": float(place) for size, place in zip(sizes, x, strict=True)}
    if comparable := speeds[modality]["teacher_reads"] == speeds[modality]["student_reads"]:
        measured = speed([report for compared in related.values() for report in compared], "teacher")
        ticks[f"teacher\n{measured:,.0f}"] = measured
    tasks = _tasks(sizes)
    figure, panels = task_panels(tasks)
    for axes, task in zip(panels, tasks, strict=True):
        for number, column in enumerate((_ASKS, _ALONE, _LABELS)):
            groups = [list(_scores(seeds, column, task).values()) for seeds in sizes.values()]
            if not all(groups):
                continue
            means, stds, _ = np.array([spread(group) for group in groups]).T
            line(axes, number, x * (1 + _ASIDE * (number - 1)), means, column, stds)
        teacher = spread(list(_scores(next(iter(sizes.values())), _TEACHER, task).values())).mean
        axes.axhline(teacher, color=COLORS[3], linestyle=":", linewidth=1.6, label=_TEACHER)
        if comparable:
            axes.plot([measured], [teacher], "*", color=COLORS[3], markersize=10)
        axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xticks(list(ticks.values()), list(ticks), fontsize=8)
        axes.set_title(arrow(task), fontsize=10)
        axes.set_xlabel(f"{modality}s a second")
        axes.set_ylabel("mAP$_T$, %")
        axes.margins(x=0.12, y=0.15)
        axes.grid(alpha=0.3)
    figure.suptitle(f"mAP against speed of students, k = {n_bits}, mean ± sample std of {_seeds({n_bits: sizes})}")
    legend_below(figure, panels[0])
    return figure


def _seeds(students: _Students) -> str:
    """Say how many seeds there are."""
    counts = {len(seeds) for sizes in students.values() for seeds in sizes.values()} or {0}
    few, many = min(counts), max(counts)
    return f"{few} seed{'s' * (few != 1)}" if few == many else f"{few} to {many} seeds"
