"""Tables of ``experiment weights``."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from channelhash.errors import JobError
from channelhash.lab.experiments.comparisons import SeedTest, holm, seed_test
from channelhash.lab.experiments.rendering import Cell, Table
from channelhash.lab.experiments.results import VIEWS, Place, Result, query_means
from channelhash.lab.experiments.tables import VIEW_NAMES, best_means, print_spread, spread
from channelhash.metrics.significance import Interval, bootstrap_interval
from channelhash.training.trainer import selection_score
from channelhash.utils.plotting import COLORS

#: What ends the name of a method whose weights are chosen.
TUNED = ", tuned"
#: The recommendation, beside which all others are put.
FIRST = "DSCH" + TUNED
#: A corrected p-value up to this counts as a difference.
_LEVEL = 0.05
#: Draws of the queries.
_RESAMPLES = 1000
#: Column of `means_table` -> view and score.
_COLUMNS = {
    "mAP, R": ("test", "map_tie_aware"),
    "mAP, R∖T": ("leak_free", "map_tie_aware"),
    "graded NDCG, R": ("test", "ndcg_graded"),
}


def plain(method: str) -> str:
    """Return the name of a method without `TUNED`.

    >>> plain("DSCH, tuned"), plain("DSCH")
    ('DSCH', 'DSCH')
    """
    return method.removesuffix(TUNED)


def best_trials(results: Sequence[Result]) -> dict[str, Result]:
    """Return the trial of each method with the best score after the last epoch; the first one of equals.

    Raises:
        JobError: no trial of a method finished.
    """
    best = {}
    for method in dict.fromkeys(result.method for result in results):
        trials = [result for result in results if result.method == method]
        finished = [result for result in trials if result.status == "finished"]
        if not finished:
            raise JobError(f"{method}: none of {len(trials)} trials worked, the first: {trials[0].error}")
        best[method] = max(finished, key=validation_score)
    return best


def validation_score(result: Result) -> float:
    """Return the score that epochs are chosen by too: mean mAP_T of the cross-modal tasks on validation, last epoch."""
    tasks = result.epochs["last"]["validation"]
    return selection_score({task: float(scores["map_tie_aware"]) for task, scores in tasks.items()})


def rate_of(result: Result) -> float:
    """Return the learning rate of a run."""
    return float(result.settings["train"]["learning_rate"])


def means_table(results: Sequence[Result]) -> Table:
    """Return each loss's mean over tasks and code lengths, as published and tuned, a column a score and form."""
    means = {name: method_means(results, *place) for name, place in _COLUMNS.items()}
    forms = {"as published": "", "tuned": TUNED}
    losses = list(dict.fromkeys(plain(result.method) for result in results))
    columns = []
    for name in _COLUMNS:
        for form in forms.values():
            found = [list(means[name].get(loss + form, {}).values()) for loss in losses]
            cells = [spread(values) if values else None for values in found]
            bold = best_means(cells)
            columns.append(
                [Cell(print_spread(cell) if cell else "–", best) for cell, best in zip(cells, bold, strict=True)]
            )
    rows = [(Cell(loss), *row) for loss, row in zip(losses, zip(*columns, strict=True), strict=True)]
    lengths = sorted({result.n_bits for result in results if result.settings})
    seeds = len({result.seed for result in results if result.settings})
    return Table(
        "means",
        "Losses, as published and with weights chosen on validation",
        ("Loss", *(f"{name}, {form}" for name in _COLUMNS for form in forms)),
        tuple(rows),
        f"In percent, mean over all tasks and k = {', '.join(map(str, lengths))}, ± sample standard deviation (ddof 1) "
        f"of that mean over {seeds} seeds, each with a split of its own; tie-aware mAP and graded NDCG, last epoch. As "
        "published: the authors' settings, a loss of this project at its defaults; at the best of five learning rates. "
        "Tuned: nine choices of weights at that rate. All choices on validation, 32 bits, seed 0. Best of each column "
        "in bold." + _unfinished(results),
        labels=1,
    )


def differences_tables(results: Sequence[Result]) -> list[Table]:
    """Return `FIRST` minus every other method, on R and on R∖T; none without two common seeds."""
    tables, queries = [], query_means(results)
    for view in VIEWS:
        own = _cells(results, FIRST, view)
        methods = [method for method in dict.fromkeys(result.method for result in results) if method != FIRST]
        others = {method: _cells(results, method, view) for method in methods}
        tests = {method: found for method, other in others.items() if (found := _tests(own, other))}
        if tests:
            intervals = {method: _over_queries(queries, method, view) for method in tests}
            tables.append(_differences_table(view, tests, intervals))
    return tables


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


def chosen_table(trials: Sequence[Result], weights_of: Callable[[Result], Mapping[str, float]]) -> Table:
    """Tabulate what was chosen for each loss, and what it scored on validation beside the others of its trials."""
    best = best_trials(trials)
    rows = []
    for method, trial in best.items():
        scores = [
            100 * validation_score(result)
            for result in trials
            if result.method == method and result.status == "finished"
        ]
        chosen = ", ".join(f"{_NAMES.get(key, key)} {value:g}" for key, value in weights_of(trial).items())
        cells = (f"{rate_of(trial):g}", chosen, f"{max(scores):.2f}", f"{np.median(scores):.2f}", f"{min(scores):.2f}")
        rows.append((Cell(plain(method)), *map(Cell, cells)))
    return Table(
        "chosen-weights",
        "Weights chosen on validation",
        ("Loss", "Learning rate", "Chosen", "Best", "Median", "Worst"),
        tuple(rows),
        "Mean mAP of image → text and text → image on validation after the last epoch, in percent, of nine choices of "
        "weights; 32 bits, seed 0. AP: the weight of the direct AP term by bit of the code; proxies: their rate.",
        labels=1,
    )


_NAMES = {
    "kappa_q": "κ_q",
    "average_precision": "AP",
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "epsilon": "ε",
    "lambda_q": "λ_q",
}


def _cells(
    results: Sequence[Result], method: str, view: str, score: str = "map_tie_aware"
) -> dict[tuple[str, int], dict[int, float]]:
    """Map (task, n_bits) to seed -> score in percent, last epoch, of a method's finished runs."""
    cells: dict[tuple[str, int], dict[int, float]] = {}
    for result in results:
        if result.method == method and result.status == "finished" and view in result.epochs["last"]:
            for task in result.tasks(view):
                cells.setdefault((task, result.n_bits), {})[result.seed] = 100 * result.score(task, score, view)
    return cells


def method_means(results: Sequence[Result], view: str, score: str) -> dict[str, dict[int, float]]:
    """Map each method to seed -> its mean score over tasks and code lengths, in [0, 1], of seeds that have all cells.

    >>> method_means([], "test", "map_tie_aware")
    {}
    """
    means = {}
    for method in dict.fromkeys(result.method for result in results):
        cells = _cells(results, method, view, score)
        if cells and (common := set.intersection(*map(set, cells.values()))):
            means[method] = {
                seed: float(np.mean([scores[seed] for scores in cells.values()])) / 100 for seed in sorted(common)
            }
    return means


def _tests(
    own: Mapping[tuple[str, int], Mapping[int, float]], other: Mapping[tuple[str, int], Mapping[int, float]]
) -> tuple[SeedTest, list[SeedTest]] | None:
    """Test the mean difference over all cells, and that of each cell; None with fewer than two common seeds."""
    cells = [cell for cell in own if cell in other]
    common = sorted(set.intersection(*(own[cell].keys() & other[cell].keys() for cell in cells))) if cells else []
    if len(common) < 2:
        return None
    differences: NDArray[np.float64] = np.array(
        [[own[cell][seed] - other[cell][seed] for seed in common] for cell in cells]
    )
    return seed_test(differences.mean(axis=0)), [seed_test(row) for row in differences]


def _over_queries(queries: Mapping[Place, NDArray[np.float16]], second: str, view: str) -> Interval | None:
    """Draw the queries of all common seeds again: the difference in points and its 95 % interval, None without AP."""
    seeds = [
        place.seed
        for place in queries
        if (place.method, place.view) == (FIRST, view) and Place(second, place.seed, view) in queries
    ]
    if not seeds:
        return None
    own, other = (
        np.concatenate([queries[Place(method, seed, view)].astype(np.float64) for seed in seeds])
        for method in (FIRST, second)
    )
    return bootstrap_interval(100 * (own - other), resamples=_RESAMPLES)


def _differences_table(
    view: str,
    tests: Mapping[str, tuple[SeedTest, list[SeedTest]]],
    over_queries: Mapping[str, Interval | None],
) -> Table:
    mean_p = dict(zip(tests, holm([mean.p_value for mean, _ in tests.values()]), strict=True))
    cell_p = iter(holm([cell.p_value for _, cells in tests.values() for cell in cells]))
    rows = []
    for method, (mean, cells) in tests.items():
        clear = [cell.difference for cell in cells if next(cell_p) <= _LEVEL]
        ahead = sum(cell.difference > 0 for cell in cells)
        counts = (f"{ahead} of {len(cells)}", str(sum(d > 0 for d in clear)), str(sum(d < 0 for d in clear)))
        p, queries = mean_p[method], over_queries[method]
        rows.append(
            (
                Cell(method),
                Cell(f"{_signed(mean.difference)} {_interval(mean)}", p <= _LEVEL),
                Cell("< 0.001" if p < 0.001 else f"{p:.3f}"),
                Cell(_interval(queries) if queries else "–", bool(queries and queries.lower * queries.upper > 0)),
                *map(Cell, counts),
            )
        )
    seeds = {mean.seeds for mean, _ in tests.values()}
    return Table(
        f"differences-{view}",
        f"{FIRST} minus the others, tie-aware mAP in points: {VIEW_NAMES[view]}",
        ("Minus", "Mean of all cells", "p", "Other queries", "Ahead in cells", "Clearly ahead", "Clearly behind"),
        tuple(rows),
        f"A cell is a task at a code length. Differences are paired by seed over {', '.join(map(str, sorted(seeds)))} "
        "seeds, each with a split of its own, so they speak of other queries, training rows and weights; Student's "
        "95 % interval and test. p by Holm's correction over the rows; clearly: p up to 0.05 by Holm's correction over "
        "all cells of all rows. Other queries: 95 % bootstrap interval of the mean over queries, with the same trained "
        "models. Bold: p up to 0.05; an interval that leaves zero out.",
        labels=1,
    )


def _interval(test: SeedTest | Interval) -> str:
    return f"[{_signed(test.lower)}, {_signed(test.upper)}]"


def _signed(points: float) -> str:
    return f"{points:+.2f}".replace("-", "−")


def _unfinished(results: Sequence[Result]) -> str:
    names = [result.name for result in results if result.status != "finished"]
    return f" Not finished: {', '.join(names)}." if names else ""


#: Points of mAP that the plot shows below the lowest tuned mean.
_ROOM = 4.0


def tuning_plot(results: Sequence[Result], view: str = "leak_free") -> Figure:
    """Draw the mean tie-aware mAP of each loss as published and tuned, a row a loss, the best tuned one on top.

    Args:
        results: finished runs of ``experiment weights``, tuned ones among them.
        view: the retrieval set, ``test`` or ``leak_free``.

    Returns:
        A plot in percent, with the sample standard deviation over seeds as error bars.
    """
    means = {
        method: 100 * np.array(list(seeds.values()))
        for method, seeds in method_means(results, view, "map_tie_aware").items()
    }
    losses = sorted(
        {plain(method) for method in means},
        key=lambda loss: means.get(loss + TUNED, means.get(loss, np.zeros(1))).mean(),
    )
    figure = Figure(figsize=(7.2, 0.6 + 0.3 * len(losses)), layout="constrained")
    axes = figure.subplots()
    for form, label, color, filled in (("", "as published", COLORS[1], False), (TUNED, "tuned alike", COLORS[0], True)):
        rows = [row for row, loss in enumerate(losses) if loss + form in means]
        scores = [means[losses[row] + form] for row in rows]
        axes.errorbar(
            [score.mean() for score in scores],
            rows,
            xerr=[score.std(ddof=1) if len(score) > 1 else 0.0 for score in scores],
            fmt="o",
            color=color,
            markerfacecolor=color if filled else "white",
            markersize=6,
            elinewidth=1.0,
            label=label,
        )
    left = min(float(score.mean()) for method, score in means.items() if method.endswith(TUNED)) - _ROOM
    for row, loss in enumerate(losses):
        if loss in means and means[loss].mean() < left:  # a loss that fails as published would squeeze all others
            axes.annotate(f"◂ {means[loss].mean():.1f}", (left, row), color=COLORS[1], va="center", fontsize=9)
    axes.set_xlim(left=left)
    axes.set_yticks(range(len(losses)), losses)
    axes.set_xlabel("tie-aware mAP on items that nobody trained on, %" if view == "leak_free" else "tie-aware mAP, %")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="lower right")
    return figure
