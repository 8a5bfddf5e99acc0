"""``experiment benchmark``: every loss as published, and with weights chosen by the same number of
trials; beside them our recommended weights without any trial.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from channelhash.config import make_config
from channelhash.errors import InputError, JobError
from channelhash.lab.experiments.comparisons import (
    LEVEL,
    SeedTest,
    holm,
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
from channelhash.lab.experiments.results import query_means
from channelhash.lab.experiments.runner import run_grid
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
from channelhash.models.heads import Initial
from channelhash.training.validation import selection_score
from channelhash.utils.seeds import generator

#: Folder of the trials below the grid's.
_TRIALS = "tuning"
#: Learning rates to try, as factors of the base configuration's: half a decade down and a decade
#: up.
_RATE_FACTORS: tuple[float, ...] = (10**-0.5, 1.0, 10**0.5, 10.0)
#: Trials of each tuned form, drawn from all combinations of learning rates, initial weights and
#: weights.
_DRAWS = 9
#: Initial weights that each learning rate is tried with, of a model that has the choice.
_INITIAL: tuple[str, ...] = get_args(Initial)
#: Weights of the direct AP term, by bit of the code: it is a share, and other losses are of the
#: order of bits.
_PER_BIT = (0.0, 0.25, 1.0)
#: What is chosen beside the learning rate: loss -> key -> values, nine combinations each, the
#: published one among them. ``average_precision`` is by bit of the code. ``proxies`` is the
#: learning rate of ``train.rates``, which in the published form is that of the model.
_CHOICES: Mapping[str, Mapping[str, Sequence[float]]] = {
    "dsch": {"kappa_q": (0.01, 0.1, 0.3), "average_precision": _PER_BIT},
    "sch": {"kappa_q": (0.0, 0.1, 0.3), "average_precision": _PER_BIT},
    "bsch": {"kappa_q": (0.03, 0.1, 0.3), "average_precision": _PER_BIT},
    "rsch": {"kappa_q": (0.0, 0.1, 0.3), "average_precision": _PER_BIT},
    "sch-original": {"beta": (0.5, 1.0, 2.0), "average_precision": _PER_BIT},
    "tdsrdh": {"alpha": (0.015, 0.05, 0.15), "epsilon": (0.1, 0.3, 1.0)},
    "dcmh": {"gamma": (1.0, 10.0, 100.0), "average_precision": _PER_BIT},
    "hashnet": {"beta": (0.5, 1.0, 2.0), "average_precision": _PER_BIT},
    "idhn": {"lambda_q": (0.03, 0.1, 0.3), "average_precision": _PER_BIT},
    "csq": {"lambda_q": (0.01, 0.05, 0.25), "average_precision": _PER_BIT},
    "orthohash": {"s": (4.0, 8.0, 16.0), "average_precision": _PER_BIT},
    "greedyhash": {"alpha": (0.03, 0.1, 1.0), "average_precision": _PER_BIT},
    "hyp2": {"proxies": (0.0, 0.002, 0.02), "average_precision": _PER_BIT},
    "dnph": {"proxies": (0.0, 0.002, 0.02), "average_precision": _PER_BIT},
    "dcgh": {"proxies": (0.0, 0.002, 0.02), "average_precision": _PER_BIT},
    "talr": {"alpha": (0.5, 1.0, 2.0), "bin_width": (1, 2, 4)},
    "qsmi": {"average_precision": (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)},
}
#: The same for a loss of one's own.
_OTHER = {"average_precision": (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)}
#: The losses that are compared.
_LOSSES: Mapping[str, Mapping[str, Any]] = {
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
# As `results.query_means` returns them.
_QueryMeans = Mapping[tuple[str, int, str], NDArray[np.float16]]
#: What ends the name of a method whose weights are chosen.
_TUNED = ", tuned"
#: What ends the name of a method with our weights, as `--losses dsch:recommended` names it.
_RECOMMENDED = ", recommended"
#: The method beside which all others are put.
_FIRST = "DSCH" + _TUNED
#: Column of `_means_table` -> view and score.
_COLUMNS = {
    "mAP, R": ("test", "map_tie_aware"),
    "mAP, R∖T": ("leak_free", "map_tie_aware"),
    "graded NDCG, R": ("test", "ndcg_graded"),
}
# Settings as the tables print them.
_NAMES = {
    "kappa_q": "κ_q",
    "lambda_q": "λ_q",
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "epsilon": "ε",
}
_NAMES["average_precision"] = "AP"
# Task and code length -> seed -> score in [0, 1].
_Cells = dict[tuple[str, int], dict[int, float]]


def _grid(design: Design) -> list[GridRun]:
    """Return each loss as published, if anybody else published it, and once more to be tuned; once
    with our weights.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> csq = {"CSQ": {"name": "csq"}}
    >>> [(run.method, run.config.loss.lambda_p) for run in _grid(Design(DATASETS["synthetic"], [32], [0], csq))]
    [('CSQ', 0.2), ('CSQ, tuned', 0.2)]
    """
    runs = []
    for method, loss in design.losses.items():
        if loss.get("recommended"):
            runs += design.runs(method, loss)
            continue
        published = {"published": True} if loss["name"] in PUBLISHED else {}
        for name in (method, method + _TUNED):
            runs += design.runs(name, {**published, **loss})
    return runs


def _run_benchmark(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Choose each loss's learning rate and initial weights, with them the weights of its tuned
    form; run the grid.
    """
    for run in grid.trials:
        if not run.config.train.validate_every or run.config.split.validation_queries == 0:
            raise InputError(
                "settings are chosen on validation: train.validate_every and "
                "data.validation_queries have to be above 0"
            )

    title = f"{grid.title}: trials on validation"
    trials = tuple(_all_trials(grid))
    trial_grid = Grid("trials", title, grid.command, trials, only_validation=True)
    trial_of = _chosen_trials(run_grid(trial_grid, folder / _TRIALS, execution))
    settings = {method: _settings_of(trial) for method, trial in trial_of.items()}
    runs = [
        _with_settings(run, settings[run.method]) if run.method in settings else run
        for run in grid.runs
    ]
    return run_grid(grid._replace(runs=tuple(runs)), folder, execution)


def _is_tuned(run: GridRun | Result) -> bool:
    return run.method.endswith(_TUNED)


def _loss(method: str) -> str:
    return method.removesuffix(_TUNED)


def _all_trials(grid: Grid) -> list[GridRun]:
    """Return the trials of each method: as published, every learning rate with every kind of
    initial weights; tuned, a draw from all combinations of these with the weights of the loss. Our
    own weights have none.
    """
    trials = []
    for run in grid.trials:
        if run.method.endswith(_RECOMMENDED):
            continue
        rates = [
            float(f"{factor * run.config.train.learning_rate:.3g}") for factor in _RATE_FACTORS
        ]
        # a model without the choice
        kinds = _INITIAL if hasattr(run.config.model, "initial") else (None,)
        choices: dict[str, Sequence[Any]] = {"initial": kinds, "learning_rate": rates}
        if _is_tuned(run):
            choices |= _CHOICES.get(run.config.loss_name, _OTHER)
        values = list(product(*choices.values()))
        if _is_tuned(run):
            draw = generator(0, "trials", run.config.loss_name).permutation(len(values))
            values = [values[row] for row in draw[:_DRAWS]]
        trials += [
            _with_settings(run, dict(zip(choices, each, strict=True)), trial=True)
            for each in values
        ]
    return trials


def _with_settings(run: GridRun, values: Mapping[str, Any], trial: bool = False) -> GridRun:
    """Return a run with values of `_settings_of`; the name of a ``trial`` says which."""
    sections = run.config.sections()
    for key, value in values.items():
        if key == "initial" and value is not None:
            sections["model"]["initial"] = value
        elif key == "learning_rate":
            sections["train"]["learning_rate"] = value
        elif key == "proxies":
            sections["train"]["rates"] = {"proxies": value}
        elif key != "initial":
            sections["loss"][key] = (
                value * run.config.n_bits if key == "average_precision" else value
            )
    terms = [
        value if key == "initial" else f"{key}{value:g}"
        for key, value in values.items()
        if value is not None
    ]
    return run._replace(
        name="-".join([run.name, *terms]) if trial else run.name, config=make_config(sections)
    )


def _settings_of(trial: Result) -> dict[str, Any]:
    """Return what `_with_settings` gave a trial."""
    loss, train = trial.settings["loss"], trial.settings["train"]
    settings = {"initial": trial.settings["model"].get("initial"), "learning_rate": _rate_of(trial)}
    if _is_tuned(trial):
        values = {
            **loss,
            **train["rates"],
            "average_precision": loss["average_precision"] / trial.n_bits,
        }
        settings |= {key: values[key] for key in _CHOICES.get(loss["name"], _OTHER)}
    return settings


def _chosen_trials(results: Sequence[Result]) -> dict[str, Result]:
    """Return the trial of each method with the best score after the last epoch, the first one of
    equals; a tuned form may keep the published weights.
    """
    chosen = {}
    trials = _grouped(results)
    for method, of_method in trials.items():
        finished = [
            result
            for result in of_method + trials.get(_loss(method), [])
            if result.status == "finished"
        ]
        if not finished:
            raise JobError(
                f"{method}: none of {len(of_method)} trials worked, the first: {of_method[0].error}"
            )
        chosen[method] = max(finished, key=_validation_score)
    return chosen


def _grouped(results: Sequence[Result]) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.method, []).append(result)
    return groups


def _validation_score(result: Result) -> float:
    """Return the score that epochs are chosen by too, mean mAP_T of the cross-modal tasks on
    validation, in percent.
    """
    tasks = result.epochs["last"]["validation"]
    return 100 * selection_score(
        {task: float(scores["map_tie_aware"]) for task, scores in tasks.items()}
    )


def _rate_of(result: Result) -> float:
    """Return the learning rate of a run."""
    return float(result.settings["train"]["learning_rate"])


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return each loss's means, the recommendation against all others, and every cell."""
    return [
        _means_table(results),
        *_differences_tables(results),
        *all_views(losses_table, results),
        losses_table(results, score="ndcg_graded"),
    ]


def _means_table(results: Sequence[Result]) -> Table:
    """Return each loss's mean over tasks and code lengths, as published and tuned, a column a score
    and form.
    """
    losses = list(dict.fromkeys(_loss(result.method) for result in results))
    columns = []
    for view, score in _COLUMNS.values():
        means = _method_means(results, view, score)
        columns += [
            spread_cells([means.get(loss + form, ()) for loss in losses]) for form in ("", _TUNED)
        ]
    rows = [
        (Cell(loss), *row) for loss, row in zip(losses, zip(*columns, strict=True), strict=True)
    ]
    lengths = sorted({result.n_bits for result in results})
    unfinished = [result.name for result in results if result.status != "finished"]
    return Table(
        "means",
        "Losses, as published and with weights chosen on validation",
        ("Loss", *(f"{name}, {form}" for name in _COLUMNS for form in ("as published", "tuned"))),
        tuple(rows),
        f"In percent, mean over all tasks and k = {', '.join(map(str, lengths))}, ± sample "
        f"standard deviation (ddof 1) of that mean over {len({result.seed for result in results})} "
        f"seeds{_of_splits(results)}; tie-aware mAP and graded NDCG, last epoch. As published: the "
        "authors' settings, a loss of this project at its defaults; at the best of four learning "
        "rates with either kind of initial weights. Tuned: the best of these and of nine draws "
        "from all rates, initial weights and weights. All choices on validation, 32 bits, seed 0. "
        "Recommended: our weights at the configuration's learning rate and initial weights, "
        "without trials. "
        "Best of each "
        "column in bold." + (f" Not finished: {', '.join(unfinished)}." if unfinished else ""),
        labels=1,
    )


def _across_tables(results: Mapping[str, Sequence[Result]]) -> list[Table]:
    """Return a table for each form: losses by their mean rank over collections, and raw scores."""
    means: dict[bool, dict[tuple[str, str], dict[str, float]]] = {True: {}, False: {}}
    for collection, (view, name) in product(results, {"leak_free": "R∖T", "test": "R"}.items()):
        for is_tuned in means:
            runs = [result for result in results[collection] if _is_tuned(result) == is_tuned]
            scores = _method_means(runs, view, "map_tie_aware")
            means[is_tuned][collection, name] = {
                _loss(method): float(np.mean(each)) for method, each in scores.items()
            }
    return [ranks_table(means[True], "tuned"), ranks_table(means[False], "as published")]


def _cells(results: Sequence[Result], view: str, score: str = "map_tie_aware") -> _Cells:
    """Return the scores of one method's finished runs after the last epoch."""
    cells: _Cells = {}
    for result in results:
        for task in result.tasks(view):
            cells.setdefault((task, result.n_bits), {})[result.seed] = result.score(
                task, score, view
            )
    return cells


def _method_means(results: Sequence[Result], view: str, score: str) -> dict[str, list[float]]:
    """Map each method to the mean score over tasks and code lengths of each seed that has all
    cells, in [0, 1].
    """
    means = {}
    for method, runs in _grouped(results).items():
        cells = _cells(runs, view, score)
        if cells and (common := set.intersection(*map(set, cells.values()))):
            means[method] = [
                float(np.mean([scores[seed] for scores in cells.values()]))
                for seed in sorted(common)
            ]
    return means


def _differences_tables(results: Sequence[Result]) -> list[Table]:
    """Return `_FIRST` minus every other method, on R and on R∖T; none without two common seeds."""
    tables = []
    queries = query_means(results)
    methods = _grouped(results)
    ratio = _split_ratio(results)
    for view in ("test", "leak_free"):
        first = _cells(methods.get(_FIRST, ()), view)
        tests: dict[str, tuple[SeedTest, list[SeedTest]]] = {}
        for method, runs in methods.items():
            other = _cells(runs, view)
            cells = [cell for cell in first if cell in other and method != _FIRST]
            common = (
                set.intersection(*(first[cell].keys() & other[cell].keys() for cell in cells))
                if cells
                else set()
            )
            if len(common) > 1:
                seeds = sorted(common)
                differences = np.array(
                    [[first[cell][seed] - other[cell][seed] for seed in seeds] for cell in cells]
                )
                mean, *of_cells = (
                    SeedTest.of(100 * row, ratio)
                    for row in (differences.mean(axis=0), *differences)
                )
                tests[method] = mean, of_cells
        if tests:
            tables.append(_differences_table(view, tests, queries, _of_splits(results)))
    return tables


def _split_ratio(results: Sequence[Result]) -> float:
    return split_ratio([result for result in results if result.status == "finished"])


def _of_splits(results: Sequence[Result]) -> str:
    return ", each with a split of its own" if _split_ratio(results) else " of one split"


def _differences_table(
    view: str,
    tests: Mapping[str, tuple[SeedTest, list[SeedTest]]],
    queries: _QueryMeans,
    of_splits: str,
) -> Table:
    mean_p = holm([mean.p_value for mean, _ in tests.values()])
    cell_p = iter(holm([cell.p_value for _, cells in tests.values() for cell in cells]))
    rows = []
    for (method, (mean, cells)), p in zip(tests.items(), mean_p, strict=True):
        clear = [cell.difference for cell in cells if next(cell_p) <= LEVEL]
        ahead = sum(cell.difference > 0 for cell in cells)
        drawn = _over_queries(queries, method, view)
        rows.append(
            (
                Cell(method),
                Cell(f"{signed(mean.difference)} {_interval(mean)}", p <= LEVEL),
                Cell(print_p(p)),
                Cell(
                    _interval(drawn) if drawn else "–",
                    bool(drawn and drawn.lower * drawn.upper > 0),
                ),
                Cell(f"{ahead} of {len(cells)}"),
                *(
                    Cell(str(count))
                    for count in (sum(d > 0 for d in clear), sum(d < 0 for d in clear))
                ),
            )
        )
    seeds = sorted({mean.seeds for mean, _ in tests.values()})
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


def _over_queries(queries: _QueryMeans, method: str, view: str) -> Interval | None:
    """Draw the queries of all common seeds again: the difference in points and its 95 % interval,
    None without AP.
    """
    pairs = [
        (ap, queries[(method, seed, view)])
        for (first, seed, place), ap in queries.items()
        if (first, place) == (_FIRST, view) and (method, seed, view) in queries
    ]
    if not pairs:
        return None
    first_scores, other = (
        np.concatenate(side).astype(np.float64) for side in zip(*pairs, strict=True)
    )
    return bootstrap_interval(100 * (first_scores - other), resamples=1000)


def _interval(test: SeedTest | Interval) -> str:
    return f"[{signed(test.lower)}, {signed(test.upper)}]"


def _learning_rates_table(trials: Sequence[Result]) -> Table:
    """Tabulate what each trial of a published form scored on validation; the best of each row is
    bold.
    """
    by_row: dict[str, dict[float, Result]] = {}
    for trial in trials:
        if not _is_tuned(trial):
            is_pytorch = trial.settings["model"].get("initial") == "pytorch"
            name = trial.method + (", PyTorch's initial weights" if is_pytorch else "")
            by_row.setdefault(name, {})[_rate_of(trial)] = trial
    rates = sorted({rate for by_rate in by_row.values() for rate in by_rate})
    rows = []
    for method, by_rate in by_row.items():
        scores = {
            rate: _validation_score(run)
            for rate, run in by_rate.items()
            if run.status == "finished"
        }
        best = max(sorted(scores), key=scores.__getitem__, default=None)
        texts = [
            f"{scores[rate]:.2f}" if rate in scores else by_rate[rate].status for rate in rates
        ]
        rows.append(
            (
                Cell(method),
                *(Cell(text, rate == best) for text, rate in zip(texts, rates, strict=True)),
            )
        )
    return Table(
        "learning-rates",
        "Learning rates on validation",
        ("Method", *(f"{rate:g}" for rate in rates)),
        tuple(rows),
        "Mean mAP of cross-modal tasks, else all, on validation after the last epoch, in percent; "
        "32 bits, seed 0. Bold: the best of the row; the better row of a loss is the one that its "
        "published form is compared at. A bold figure in the first or last column says that its "
        "best may lie beyond.",
        labels=1,
    )


def _chosen_table(trials: Sequence[Result]) -> Table:
    """Tabulate what was chosen for each tuned loss, and what its trials scored on validation."""
    rows = []
    methods = _grouped(trials)
    for method, best in _chosen_trials(trials).items():
        if not method.endswith(_TUNED):
            continue
        among = [*methods[method], *methods.get(_loss(method), ())]
        scores = [_validation_score(result) for result in among if result.status == "finished"]
        settings = _settings_of(best)
        initial = settings.pop("initial") or "–"
        rate = settings.pop("learning_rate")
        chosen = (
            ", ".join(f"{_NAMES.get(key, key)} {value:g}" for key, value in settings.items())
            or "as published"
        )
        figures = (f"{score:.2f}" for score in (max(scores), np.median(scores), min(scores)))
        rows.append(tuple(map(Cell, (_loss(method), f"{rate:g}", initial, chosen, *figures))))
    return Table(
        "chosen-weights",
        "Settings chosen on validation",
        ("Loss", "Learning rate", "Initial weights", "Weights", "Best", "Median", "Worst"),
        tuple(rows),
        "Mean mAP of cross-modal tasks, else all, on validation after the last epoch, in percent, "
        "of trials of both forms; 32 bits, seed 0. AP: the weight of the direct AP term by bit of "
        "the code; proxies: their rate.",
        labels=1,
    )


EXPERIMENT = Experiment(
    name="benchmark",
    title="Losses as published and tuned alike",
    losses=_LOSSES,
    grid=_grid,
    run=_run_benchmark,
    tables=_tables,
    trials={_TRIALS: lambda trials: [_learning_rates_table(trials), _chosen_table(trials)]},
    all_trials=_all_trials,
    across=_across_tables,
    splits=True,
    bits=(16, 32, 64),
    preset="benchmark",
)
