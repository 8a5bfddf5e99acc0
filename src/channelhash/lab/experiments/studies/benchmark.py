"""``experiment benchmark``: every loss as published, and with weights chosen by the same number of
trials; beside them our recommended weights at one setting.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.lab.experiments.comparisons import (
    LEVEL,
    SeedTest,
    common_seeds,
    holm,
    in_order,
    print_p,
    ranks_table,
    split_ratio,
)
from channelhash.lab.experiments.experiment import (
    Design,
    Execution,
    Experiment,
    Grid,
    GridRun,
    Result,
    Table,
)
from channelhash.lab.experiments.results import Sections, by_method, finished, query_means
from channelhash.lab.experiments.runner import run_grid
from channelhash.lab.experiments.studies.tuning import (
    TUNED,
    all_trials,
    chosen_table,
    chosen_trials,
    learning_rates_table,
    loss_of,
    settings_of,
    with_settings,
)
from channelhash.lab.experiments.tables import (
    VIEW_NAMES,
    all_views,
    losses_table,
    signed,
    spread_cells,
)
from channelhash.lab.experiments.text_tables import Cell
from channelhash.losses import PUBLISHED
from channelhash.metrics.resampling import Interval, bootstrap_interval

#: Folder of the trials below the grid's.
_TRIALS = "tuning"
#: The losses that are compared.
_LOSSES: Sections = {
    "DSCH": {"name": "dsch"},
    "SCH": {"name": "sch"},
    "SCH, authors' code": {"name": "sch-original"},
    "TDSRDH": {"name": "tdsrdh"},
    "RSCH": {"name": "rsch"},
    "BSCH": {"name": "bsch"},
    "TALR": {"name": "talr"},
    "CSQ": {"name": "csq"},
    "HyP² / DSPH": {"name": "hyp2"},
    "DCGH": {"name": "dcgh"},
    "DNPH": {"name": "dnph"},
    "DNpH (QSMI)": {"name": "qsmi"},
    "HashNet": {"name": "hashnet"},
    "IDHN": {"name": "idhn"},
    "OrthoHash": {"name": "orthohash"},
    "GreedyHash": {"name": "greedyhash"},
    "DCMH / DPSH": {"name": "dcmh"},
    "DSCH, recommended": {"name": "dsch", "recommended": True},
    "SCH, recommended": {"name": "sch", "recommended": True},
    "BSCH, recommended": {"name": "bsch", "recommended": True},
}
#: What `results.query_means` returns.
_QueryMeans = Mapping[tuple[str, int, str], NDArray[np.float16]]
#: The method beside which all others are put.
_FIRST = "DSCH" + TUNED
#: Our weights, as the ranks and the differences over collections show them.
_OURS = "DSCH, recommended"
#: Column of `_means_table` -> view and score.
_COLUMNS = {
    "mAP, R": ("test", "map_tie_aware"),
    "mAP, R∖T": ("leak_free", "map_tie_aware"),
    "graded NDCG, R": ("test", "ndcg_graded"),
}
#: What stands behind the name of a method in each form.
_FORMS = {"as published": "", "tuned": TUNED}
#: Task and code length -> seed -> score in [0, 1].
_Cells = dict[tuple[str, int], dict[int, float]]


def _grid(design: Design) -> list[GridRun]:
    """Return each loss twice, with its authors' settings if it has any: as published and to be
    tuned. A loss with our weights is returned once.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> design = Design(DATASETS["synthetic"], [32], [0], {"CSQ": {"name": "csq"}})
    >>> [(run.method, run.config.loss.lambda_p) for run in _grid(design)]
    [('CSQ', 0.2), ('CSQ, tuned', 0.2)]
    """
    runs = []
    for method, loss in design.losses.items():
        if loss.get("recommended"):
            runs += design.runs(method, loss)
            continue
        published = {"published": True} if loss["name"] in PUBLISHED else {}
        for name in (method, method + TUNED):
            runs += design.runs(name, {**published, **loss})
    return runs


def _run_benchmark(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Choose each loss's learning rate and initial weights, and in its tuned form its weights; run
    the grid with them.
    """
    for run in grid.trials:
        if not run.config.train.validate_every or run.config.split.validation_queries == 0:
            raise InputError(
                "settings are chosen on validation: train.validate_every and "
                "data.validation_queries have to be above 0"
            )

    title = f"{grid.title}: trials on validation"
    trials = tuple(all_trials(grid))
    trial_grid = Grid("trials", title, grid.command, trials, only_validation=True)
    best_trials = chosen_trials(run_grid(trial_grid, folder / _TRIALS, execution))
    settings = {method: settings_of(best) for method, best in best_trials.items()}
    runs = [with_settings(run, settings.get(run.method, {})) for run in grid.runs]
    return run_grid(grid._replace(runs=tuple(runs)), folder, execution)


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return each loss's means, the recommendation against all others, and every cell."""
    return [
        _means_table(results),
        *_differences_tables(results),
        *all_views(losses_table, results),
        losses_table(results, score="ndcg_graded"),
    ]


def _means_table(results: Sequence[Result]) -> Table:
    """Return each loss's mean over tasks and code lengths, a column a score and form."""
    losses = list(dict.fromkeys(loss_of(result.method) for result in results))
    header = ["Loss"]
    columns = [[Cell(loss) for loss in losses]]
    for name, (view, score) in _COLUMNS.items():
        means = _method_means(results, view, score)
        for form, ending in _FORMS.items():
            header.append(f"{name}, {form}")
            columns.append(spread_cells([means.get(loss + ending, ()) for loss in losses]))
    return Table(
        "means",
        "Losses, as published and with weights chosen on validation",
        tuple(header),
        tuple(zip(*columns, strict=True)),
        _means_caption(results),
        labels=1,
    )


def _means_caption(results: Sequence[Result]) -> str:
    lengths = sorted({result.n_bits for result in results})
    n_seeds = len({result.seed for result in results})
    unfinished = [result.name for result in results if result.status != "finished"]
    return (
        f"In percent, mean over all tasks and k = {', '.join(map(str, lengths))}, ± sample "
        f"standard deviation (ddof 1) of that mean over {n_seeds} "
        f"seeds{_of_splits(results)}; tie-aware mAP and graded NDCG, last epoch. As published: the "
        "authors' settings, a loss of this project at its defaults; at the best of four learning "
        "rates with either kind of initial weights. Tuned: the best of these and of nine draws "
        "from all rates, initial weights and weights. All choices on validation, 32 bits, seed 0. "
        "Recommended: our weights at the configuration's learning rate and initial weights, "
        "without trials. Best of each column in bold."
        + (f" Not finished: {', '.join(unfinished)}." if unfinished else "")
    )


def _across_tables(results: Mapping[str, Sequence[Result]]) -> list[Table]:
    """Return a table for each form, losses by their mean rank over collections and raw scores, and
    what our weights differ by from each tuned loss.

    Of losses with our weights, `_OURS` alone is ranked: several nearly equal ones would push all
    others down.
    """
    tuned: dict[tuple[str, str], dict[str, float]] = {}
    published: dict[tuple[str, str], dict[str, float]] = {}
    views = {"leak_free": "R∖T", "test": "R"}
    for collection, (view, name) in product(results, views.items()):
        place = (collection, name)
        tuned[place] = {}
        published[place] = {}
        for method, scores in _method_means(results[collection], view, "map_tie_aware").items():
            if _is_further_form(method):
                continue
            form = tuned if method.endswith(TUNED) else published
            form[place][loss_of(method)] = float(np.mean(scores))
    ranks = [ranks_table(tuned, "tuned"), ranks_table(published, "as published")]
    return [*ranks, *_recommendation_tables(results)]


def _is_further_form(method: str) -> bool:
    """Return whether a method has our weights and is not `_OURS`."""
    return method != _OURS and bool(_LOSSES.get(method, {}).get("recommended"))


def _recommendation_tables(results: Mapping[str, Sequence[Result]]) -> list[Table]:
    """Tabulate, by collection, what our weights differ by from each tuned loss on R∖T; no table
    where nothing can be compared.
    """
    columns: dict[str, dict[str, Cell]] = {}
    counts = []
    for collection, runs in results.items():
        tests = _tests_of_tuned(runs)
        corrected = holm([test.p_value for test in tests.values()])
        columns[collection] = {}
        ahead = 0
        behind = 0
        for (loss, test), p in zip(tests.items(), corrected, strict=True):
            is_clear = p <= LEVEL
            text = f"{signed(test.difference)} {_interval(test)}"
            columns[collection][loss] = Cell(text, is_clear)
            ahead += is_clear and test.difference > 0
            behind += is_clear and test.difference < 0
        counts.append(f"{collection}: {ahead} and {behind} of {len(tests)}")
    losses = list(dict.fromkeys(chain.from_iterable(columns.values())))
    if not losses:
        return []
    rows = []
    for loss in losses:
        rows.append((Cell(loss), *(column.get(loss, Cell("–")) for column in columns.values())))
    table = Table(
        "recommendation",
        f"{_OURS} minus each tuned loss, tie-aware mAP in points: {VIEW_NAMES['leak_free']}",
        ("Minus", *columns),
        tuple(rows),
        "Means of all tasks and code lengths, paired by seed, with 95 % intervals corrected for "
        "rows that splits share (Nadeau and Bengio 2003). Bold: p up to 0.05 by Holm's correction "
        f"over the losses of a collection. Clearly ahead and behind, {'; '.join(counts)}.",
        labels=1,
    )
    return [table]


def _tests_of_tuned(results: Sequence[Result]) -> dict[str, SeedTest]:
    """Test our weights against each tuned loss, by its name, over the mean of all cells on R∖T."""
    methods = by_method(results)
    ours = _cells(methods.get(_OURS, []), "leak_free")
    tests = {}
    for method, runs in methods.items():
        if method.endswith(TUNED):
            found = _paired_tests(ours, _cells(runs, "leak_free"), _split_ratio(results))
            if found:
                tests[loss_of(method)] = found[0]
    return tests


def _cells(results: Sequence[Result], view: str, score: str = "map_tie_aware") -> _Cells:
    """Return the scores of one method's finished runs after the last epoch."""
    cells: _Cells = {}
    for result in results:
        for task in result.tasks(view):
            value = result.score(task, score, view)
            cells.setdefault((task, result.n_bits), {})[result.seed] = value
    return cells


def _method_means(results: Sequence[Result], view: str, score: str) -> dict[str, list[float]]:
    """Map each method to the mean score over tasks and code lengths of each seed that has all
    cells, in [0, 1].
    """
    means = {}
    for method, runs in by_method(results).items():
        cells = _cells(runs, view, score).values()
        of_seeds = []
        for seed in common_seeds(cells):
            of_seeds.append(float(np.mean([scores[seed] for scores in cells])))
        if of_seeds:
            means[method] = of_seeds
    return means


def _differences_tables(results: Sequence[Result]) -> list[Table]:
    """Return `_FIRST` minus every other method, on R and on R∖T; none without two common seeds."""
    tables = []
    queries = query_means(results)
    methods = by_method(results)
    first_runs = methods.pop(_FIRST, [])
    for view in ("test", "leak_free"):
        first = _cells(first_runs, view)
        tests = {}
        for method, runs in methods.items():
            found = _paired_tests(first, _cells(runs, view), _split_ratio(results))
            if found:
                tests[method] = found
        if tests:
            tables.append(_differences_table(view, tests, queries, _of_splits(results)))
    return tables


def _paired_tests(first: _Cells, other: _Cells, ratio: float) -> list[SeedTest]:
    """Test the difference of two methods, of the mean of all cells and then of each; empty without
    two seeds that all cells of both have.
    """
    cells = [cell for cell in first if cell in other]
    seeds = common_seeds([*(first[cell] for cell in cells), *(other[cell] for cell in cells)])
    if len(seeds) < 2:
        return []
    differences = np.array(
        [in_order(first[cell], seeds) - in_order(other[cell], seeds) for cell in cells]
    )
    rows = [differences.mean(axis=0), *differences]
    return [SeedTest.of(100 * row, ratio) for row in rows]


def _split_ratio(results: Sequence[Result]) -> float:
    return split_ratio(finished(results))


def _of_splits(results: Sequence[Result]) -> str:
    return ", each with a split of its own" if _split_ratio(results) else " of one split"


def _differences_table(
    view: str, tests: Mapping[str, Sequence[SeedTest]], queries: _QueryMeans, of_splits: str
) -> Table:
    """Tabulate what `_paired_tests` found of each method."""
    means = [mean for mean, *_ in tests.values()]
    mean_p = holm([mean.p_value for mean in means])
    of_cells = list(chain.from_iterable(cells for _, *cells in tests.values()))
    cell_p = iter(holm([cell.p_value for cell in of_cells]))
    rows = []
    for (method, (mean, *cells)), p in zip(tests.items(), mean_p, strict=True):
        clear = [cell for cell in cells if next(cell_p) <= LEVEL]
        texts = (
            f"{_n_ahead(cells)} of {len(cells)}",
            str(_n_ahead(clear)),
            str(sum(cell.difference < 0 for cell in clear)),
        )
        rows.append(
            (
                Cell(method),
                Cell(f"{signed(mean.difference)} {_interval(mean)}", p <= LEVEL),
                Cell(print_p(p)),
                _queries_cell(queries, method, view),
                *map(Cell, texts),
            )
        )
    seeds = sorted({mean.seeds for mean in means})
    return Table(
        f"differences-{view}",
        f"{_FIRST} minus the others, tie-aware mAP in points: {VIEW_NAMES[view]}",
        (
            "Minus",
            "Mean of all cells",
            "p",
            "Other queries",
            "Ahead in cells",
            "Clearly ahead",
            "Clearly behind",
        ),
        tuple(rows),
        "A cell is a task at a code length. Differences are paired by seed over "
        f"{', '.join(map(str, seeds))} seeds{of_splits}; 95 % interval and t-test, corrected for "
        "rows that splits share (Nadeau and Bengio 2003). p by Holm's correction over the rows; "
        "clearly: p up to 0.05 by Holm's correction over all cells of all rows. Other queries: 95 "
        "% bootstrap interval of the mean over queries, with the same trained models. Bold: p up "
        "to 0.05; an interval that leaves zero out.",
        labels=1,
    )


def _n_ahead(tests: Sequence[SeedTest]) -> int:
    return sum(test.difference > 0 for test in tests)


def _queries_cell(queries: _QueryMeans, method: str, view: str) -> Cell:
    """Print the 95 % interval of the difference in points over queries of all common seeds, drawn
    again; bold without zero, a dash without AP.
    """
    differences = []
    for (first, seed, place), ap in queries.items():
        if (first, place) == (_FIRST, view) and (method, seed, view) in queries:
            other = queries[method, seed, view]
            differences.append(ap.astype(np.float64) - other.astype(np.float64))
    if not differences:
        return Cell("–")
    drawn = bootstrap_interval(100 * np.concatenate(differences), resamples=1000)
    return Cell(_interval(drawn), drawn.lower * drawn.upper > 0)


def _interval(test: SeedTest | Interval) -> str:
    return f"[{signed(test.lower)}, {signed(test.upper)}]"


EXPERIMENT = Experiment(
    name="benchmark",
    title="Losses as published and tuned alike",
    losses=_LOSSES,
    grid=_grid,
    run=_run_benchmark,
    tables=_tables,
    trials={_TRIALS: lambda trials: [learning_rates_table(trials), chosen_table(trials)]},
    all_trials=all_trials,
    across=_across_tables,
    splits=True,
    bits=(16, 32, 64),
    preset="benchmark",
)
