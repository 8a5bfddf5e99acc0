"""Tables and plot of losses between floor and ceiling."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from channelhash.lab.experiments.reference_points import FLOORS, UNQUANTISED
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.tables.rendering import Cell, Table
from channelhash.lab.experiments.tables.results import best_means, outcome, task_names
from channelhash.lab.experiments.tuning import rate_of, validation_score
from channelhash.utils.plotting import COLORS, arrow, legend_below

_LOSS = "loss"


def kind_of(result: Result) -> str:
    """Return ``"floor"``, ``"ceiling"``, or ``"loss"`` of a trained run."""
    return str(result.settings["loss"].get("anchor", _LOSS))


def trained(results: Sequence[Result]) -> list[Result]:
    """Return the runs that are trained."""
    return [result for result in results if result.settings and kind_of(result) == _LOSS]


def baselines_table(results: Sequence[Result]) -> Table:
    """Return tie-aware mAP: a block a task, a row a method between chance and ceilings, a column a code length."""
    lengths = sorted({result.n_bits for result in results if result.settings})
    kinds = {result.method: kind_of(result) for result in results if result.settings}
    methods = [method for kind in ("floor", _LOSS, "ceiling") for method in kinds if kinds[method] == kind]
    rows: list[tuple[Cell, ...]] = []
    for task in task_names(results, "test", "last"):
        cells = {(method, k): outcome(_cell(results, method, k), task) for method in methods for k in lengths}
        losses = [method for method in methods if kinds[method] == _LOSS]
        best = {
            (method, k): bold
            for k in lengths
            for method, bold in zip(losses, best_means([cells[method, k].spread() for method in losses]), strict=True)
        }
        chance = [_chance(_at(results, k), task) for k in lengths]
        rows.append((Cell(arrow(task)), Cell("chance"), Cell("floor"), Cell(""), *map(Cell, chance)))
        for method in methods:
            scores = [Cell(cells[method, k].text(), best.get((method, k), False)) for k in lengths]
            rows.append((Cell(arrow(task)), Cell(method), Cell(kinds[method]), Cell(_rates(results, method)), *scores))
    header = ("Task", "Method", "Kind", "Learning rate", *(f"k = {k}" for k in lengths))
    return Table(
        "baselines", "Losses between floor and ceiling, tie-aware mAP", header, tuple(rows), _caption(results), 3
    )


def shares_table(results: Sequence[Result]) -> Table:
    """Return how far each loss goes from floor to ceiling, in percent of the way."""
    lengths = sorted({result.n_bits for result in trained(results)})
    methods = list(dict.fromkeys(result.method for result in trained(results)))
    rows: list[tuple[Cell, ...]] = []
    for task in task_names(results, "test", "last"):
        by_length = {k: shares(_at(results, k), task) for k in lengths}
        for method in methods:
            cells = [f"{by_length[k][method]:.0f}" if method in by_length[k] else "–" for k in lengths]
            rows.append((Cell(arrow(task)), Cell(method), *map(Cell, cells)))
    return Table(
        "baselines-shares",
        "The way from floor to ceiling",
        ("Task", "Method", *(f"k = {k}" for k in lengths)),
        tuple(rows),
        f"(mAP − floor) / (ceiling − floor) in percent, of means over seeds. Floor: the best of {', '.join(FLOORS)} in "
        "the task and code length. Ceiling: the best unquantised ranking among the losses there.",
    )


def shares(results: Sequence[Result], task: str) -> dict[str, float]:
    """Map each method to its percent of the way from the best floor to the best unquantised ranking.

    Empty while one of the two is unknown or the ceiling is not above the floor.

    Args:
        results: of one code length.
        task: retrieval task.
    """
    means: dict[str, dict[str, float]] = {"floor": {}, _LOSS: {}, "ceiling": {}}
    for method in dict.fromkeys(result.method for result in results):
        runs = [result for result in results if result.method == method]
        if summary := outcome(runs, task).spread():
            means[kind_of(runs[0])][method] = summary.mean
    floor = max(means["floor"].values(), default=float("nan"))
    unquantised = [mean for method, mean in means["ceiling"].items() if method.endswith(UNQUANTISED)]
    ceiling = max(unquantised, default=float("nan"))
    if not ceiling > floor:
        return {}
    return {method: 100 * (mean - floor) / (ceiling - floor) for method, mean in means[_LOSS].items()}


def learning_rates_table(trials: Sequence[Result]) -> Table:
    """Tabulate what each trial scored on validation; the chosen learning rates are bold."""
    rates = sorted({rate_of(result) for result in trials})
    rows = []
    for method in dict.fromkeys(result.method for result in trials):
        by_rate = {rate_of(result): result for result in trials if result.method == method}
        scores = {rate: validation_score(run) for rate, run in by_rate.items() if run.status == "finished"}
        best = max(sorted(scores), key=scores.__getitem__, default=None)
        cells = [
            Cell(f"{100 * scores[rate]:.2f}" if rate in scores else by_rate[rate].status, rate == best)
            for rate in rates
        ]
        rows.append((Cell(method), *cells))
    return Table(
        "learning-rates",
        "Learning rates on validation",
        ("Method", *(f"{rate:g}" for rate in rates)),
        tuple(rows),
        "Mean mAP of image → text and text → image on validation after the last epoch, in percent; 32 bits, seed 0. "
        "Bold: the learning rate that the loss is compared at. A bold figure in the first or last column says that its "
        "best may lie beyond.",
        labels=1,
    )


def baselines_plot(results: Sequence[Result], n_bits: int) -> Figure:
    """Draw mAP of every loss at one code length beside its unquantised ranking, floors as lines: a panel a task."""
    here = [result for result in results if result.n_bits == n_bits and result.status == "finished"]
    tasks = task_names(here, "test", "last")
    methods = list(dict.fromkeys(result.method for result in trained(here)))
    figure = Figure(figsize=(3.1 * len(tasks) + 1, 0.3 * len(methods) + 2.2), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for panel, task in zip(panels, tasks, strict=True):
        for number, floor in enumerate(FLOORS):
            if summary := outcome(_cell(here, floor, n_bits), task).spread():
                style = (":", "--", "-.")[number % 3]
                panel.axvline(summary.mean, color="0.5", linewidth=1, linestyle=style, label=floor)
        for suffix, mark, filled, label in (
            (UNQUANTISED, "D", False, "outputs, unquantised"),
            ("", "o", True, "codes"),
        ):
            placed = {
                place: summary
                for place, method in enumerate(methods)
                if (summary := outcome(_cell(here, method + suffix, n_bits), task).spread())
            }
            panel.errorbar(
                [summary.mean for summary in placed.values()],
                list(placed),
                xerr=[0.0 if summary.runs < 2 else summary.std for summary in placed.values()],
                fmt=mark,
                color=COLORS[0],
                markerfacecolor=COLORS[0] if filled else "white",
                markersize=5,
                linestyle="none",
                label=label,
            )
        panel.set_yticks(range(len(methods)), methods)
        panel.set_title(arrow(task), fontsize=10)
        panel.grid(axis="x", color="0.9")
        panel.set_axisbelow(True)
        panel.set_xlabel("mAP, %")
    panels[0].invert_yaxis()
    legend_below(figure, panels[0])
    figure.suptitle(f"Losses between floor and ceiling, {n_bits} bits, mean ± sample std over seeds", fontsize=11)
    return figure


def _cell(results: Sequence[Result], method: str, n_bits: int) -> list[Result]:
    return [result for result in _at(results, n_bits) if result.method == method]


def _at(results: Sequence[Result], n_bits: int) -> list[Result]:
    return [result for result in results if result.settings and result.n_bits == n_bits]


def _chance(results: Sequence[Result], task: str) -> str:
    levels = {f"{100 * run.score(task, 'chance'):.2f}" for run in results if run.status == "finished"}
    return ", ".join(sorted(levels)) or "–"


def _rates(results: Sequence[Result], method: str) -> str:
    rates = {rate_of(result) for result in trained(results) if result.method == method}
    return ", ".join(f"{rate:g}" for rate in sorted(rates))


def _caption(results: Sequence[Result]) -> str:
    runs = trained(results)
    seeds = len({result.seed for result in runs})
    budgets: Mapping[tuple[int, int], None] = dict.fromkeys(
        (int(run.settings["train"]["epochs"]), int(run.settings["train"]["batch_size"])) for run in runs
    )
    budget = " or ".join(f"{epochs} epochs in batches of {batch}" for epochs, batch in budgets)
    missing = [f"{result.name} ({result.error or result.status})" for result in results if result.status != "finished"]
    return (
        f"In percent, mean ± sample standard deviation (ddof 1) over {seeds} {'seed' if seeds == 1 else 'seeds'}, test "
        f"queries over R, last epoch. Every loss has the same model, splits and budget: {budget} (TDSRDH passes over "
        f"the rows once for each modality, so it takes twice the steps), and the same trials of the learning "
        "rate on validation. Other hyper-parameters are each loss's defaults. Best mean of the losses in "
        "bold. Chance: the share of relevant items. Floors: codes in closed form from the same fixed features. "
        "Ceilings: rankings by the cosine of what is not binary, a model's outputs or the features; across modalities "
        "whose features share no space, of their canonical variates."
        + (f" Not finished: {', '.join(missing)}." if missing else "")
    )
