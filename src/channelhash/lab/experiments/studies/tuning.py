"""Trials of ``experiment benchmark`` and ``factorial``: what is tried for each loss, what is
chosen, and a table of both.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np

from channelhash.config import make_config
from channelhash.errors import InputError, JobError, argument
from channelhash.lab.experiments.experiment import Execution, Grid, GridRun, Result, Table
from channelhash.lab.experiments.results import by_method, finished
from channelhash.lab.experiments.runner import run_grid
from channelhash.lab.experiments.text_tables import Cell
from channelhash.models.heads import Initial
from channelhash.training.validation import selection_score
from channelhash.utils.seeds import generator

#: Folder of the trials below a grid's.
TRIALS = "trials"

#: Learning rates are tried at half decades: factors of 10^(1/2).
_PER_DECADE = 2

#: No rate is tried that is further from the base configuration's than by so many half decades.
_FURTHEST = 6

#: Half decades above the base configuration's learning rate that settings are drawn from.
_DRAWN_PLACES = (-2, -1, 0, 1, 2, 3)

#: Settings that are drawn for each loss, from all combinations of learning rates, initial weights
#: and weights.
_DRAWS = 12

#: Initial weights that are drawn from, of a model that has the choice.
_INITIAL: tuple[str, ...] = get_args(Initial)

#: Weights of the direct AP term, by bit of the code: it is a share, and other losses are of the
#: order of bits.
_PER_BIT = (0.0, 0.25, 1.0)

#: Choices of a loss with no other weight, and of a loss of one's own.
_AP_ALONE = {"average_precision": (0.0, 0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)}

#: Weights of a loss that are chosen together with that of the direct AP term. ``proxies`` is the
#: learning rate of ``train.rates``, which in the published form is that of the model.
_BESIDE_AP: Mapping[str, Mapping[str, Sequence[float]]] = {
    "dsch": {"kappa_q": (0.01, 0.1, 0.3)},
    "sch": {"kappa_q": (0.0, 0.1, 0.3)},
    "bsch": {"kappa_q": (0.03, 0.1, 0.3)},
    "rsch": {"kappa_q": (0.0, 0.1, 0.3)},
    "sch-original": {"beta": (0.5, 1.0, 2.0)},
    "dcmh": {"gamma": (1.0, 10.0, 100.0)},
    "hashnet": {"beta": (0.5, 1.0, 2.0)},
    "idhn": {"lambda_q": (0.03, 0.1, 0.3)},
    "csq": {"lambda_q": (0.01, 0.05, 0.25)},
    "orthohash": {"s": (4.0, 8.0, 16.0)},
    "greedyhash": {"alpha": (0.03, 0.1, 1.0)},
    "hyp2": {"proxies": (0.0, 0.002, 0.02)},
    "dnph": {"proxies": (0.0, 0.002, 0.02)},
    "dcgh": {"proxies": (0.0, 0.002, 0.02)},
}

#: What is chosen beside the learning rate: loss -> key -> values, nine combinations each, the
#: published one among them. ``average_precision`` is by bit of the code.
CHOICES: Mapping[str, Mapping[str, Sequence[float]]] = {
    "tdsrdh": {"alpha": (0.015, 0.05, 0.15), "epsilon": (0.1, 0.3, 1.0)},
    "talr": {"alpha": (0.5, 1.0, 2.0), "bin_width": (1, 2, 4)},
    "qsmi": _AP_ALONE,
    **{loss: {**own, "average_precision": _PER_BIT} for loss, own in _BESIDE_AP.items()},
}

#: What ends the name of a method whose settings are the best on its collection.
TUNED = ", tuned"

#: What ends the name of a method whose settings are the best on all other collections.
ONE_SETTING = ", one setting"

#: What ends the name of a method with our weights, as `--loss dsch:recommended` names it.
RECOMMENDED = ", recommended"

#: Values of `with_settings`.
_Values = dict[str, Any]
#: Collection -> score on validation of each setting of a loss.
_Scores = dict[str, list[float]]

#: Settings as the table prints them.
_NAMES = {
    "average_precision": "AP",
    "kappa_q": "κ_q",
    "lambda_q": "λ_q",
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "epsilon": "ε",
}


def loss_of(method: str) -> str:
    """Return the name of a method without its form."""
    return method.removesuffix(TUNED).removesuffix(ONE_SETTING)


def drawn_trials(grid: Grid) -> list[GridRun]:
    """Return the first trials of each loss of ``experiment benchmark``, as many of each."""
    return [
        _trial(run, values)
        for run in grid.trials
        if run.method.endswith(TUNED)
        for values in _drawn_settings(run)
    ]


def _drawn_settings(run: GridRun) -> list[_Values]:
    """Draw settings of a loss, by its name alone: they are the same on every collection."""
    initial = _INITIAL if hasattr(run.config.model, "initial") else (None,)
    rates = [_rate(run, place) for place in _DRAWN_PLACES]
    choices: dict[str, Sequence[Any]] = {"initial": initial, "learning_rate": rates}
    choices |= CHOICES.get(run.config.loss_name, _AP_ALONE)
    combinations = [
        dict(zip(choices, values, strict=True)) for values in product(*choices.values())
    ]
    draw = generator(0, "trials", run.config.loss_name).permutation(len(combinations))
    return [combinations[row] for row in draw[:_DRAWS]]


def _rate(run: GridRun, place: int) -> float:
    """Return the learning rate so many half decades above that of a run."""
    return float(f"{run.config.train.learning_rate * 10 ** (place / _PER_DECADE):.3g}")


def _place(run: GridRun, rate: float) -> int:
    """Return how many half decades a learning rate is above that of a run."""
    return round(_PER_DECADE * math.log10(rate / run.config.train.learning_rate))


def _trial(run: GridRun, values: _Values) -> GridRun:
    return with_settings(run, values)._replace(name=_trial_name(run, values))


def _trial_name(run: GridRun, values: _Values) -> str:
    terms = [run.name]
    for key, value in values.items():
        if value is not None:
            terms.append(value if key == "initial" else f"{key}{value:g}")
    return "-".join(terms)


def with_settings(run: GridRun, values: _Values) -> GridRun:
    """Return a run with the values of some settings; None leaves a setting as it is."""
    sections = run.config.sections()
    for key, value in values.items():
        if value is None:
            continue
        if key == "initial":
            sections["model"]["initial"] = value
        elif key == "learning_rate":
            sections["train"]["learning_rate"] = value
        elif key == "proxies":
            sections["train"]["rates"] = {"proxies": value}
        elif key == "average_precision":
            sections["loss"][key] = value * run.config.n_bits
        else:
            sections["loss"][key] = value
    return run._replace(config=make_config(sections))


def choose_settings(
    grids: Mapping[str, Grid], folder: Path, execution: Execution
) -> dict[str, Grid]:
    """Return the grids of all collections with the best settings of the trials of each loss: on the
    collection itself (`TUNED`), and on the mean of all others (`ONE_SETTING`, not of a single
    collection).

    After those of `_drawn_settings`, what is best is also tried at half a decade less and more,
    until it is better than both. Every trial is carried out on every collection.
    """
    tried, scores = _trials_of_all(grids, folder, execution)
    chosen = {}
    for name, grid in grids.items():
        runs = []
        for run in grid.runs:
            loss = loss_of(run.method)
            if run.method == loss:  # neither form: our weights
                runs.append(run)
            elif run.method.endswith(TUNED) or len(grids) > 1:
                best = _best(scores[loss], name, run.method.removeprefix(loss))
                runs.append(with_settings(run, tried[loss][best]))
        chosen[name] = grid._replace(runs=tuple(runs), seen=_seen(folder / name))
    return chosen


def _trials_of_all(
    grids: Mapping[str, Grid], folder: Path, execution: Execution
) -> tuple[dict[str, list[_Values]], dict[str, _Scores]]:
    """Carry out the trials of all losses and collections; return the settings of each loss, and
    their scores.
    """
    first = next(iter(grids.values()))
    starts = {loss_of(run.method): run for run in first.trials if run.method.endswith(TUNED)}
    tried = {loss: _drawn_settings(run) for loss, run in starts.items()}
    scores: dict[str, _Scores] = {loss: {} for loss in starts}
    further: Mapping[str, list[_Values]] = tried
    while any(further.values()):
        for name, grid in grids.items():
            for loss, each in _trial_scores(grid, tried, folder / name, execution).items():
                scores[loss][name] = each
        further = {loss: _further(run, tried[loss], scores[loss]) for loss, run in starts.items()}
        for loss, settings in further.items():
            tried[loss] += settings
    return tried, scores


def _trial_scores(
    grid: Grid, tried: Mapping[str, Sequence[_Values]], folder: Path, execution: Execution
) -> dict[str, list[float]]:
    """Carry out the trials of all losses on a collection; return their scores on validation, −∞ of
    those that failed.
    """
    trials = []
    for run in grid.trials:
        if run.method.endswith(TUNED):
            trials += [_trial(run, values) for values in tried[loss_of(run.method)]]
    scores: dict[str, list[float]] = {}
    for result in _run_trials(grid, trials, folder, execution):
        score = validation_score(result) if result.status == "finished" else -math.inf
        scores.setdefault(loss_of(result.method), []).append(score)
    return scores


def _best(scores: _Scores, collection: str, form: str) -> int:
    """Return the number of the setting that is best for a collection in a form."""
    on = [each for name, each in scores.items() if (name == collection) == (form == TUNED)]
    means = np.mean(on, axis=0)
    if np.isneginf(means).all():
        raise JobError(
            f"{collection}: none of {len(means)} trials of a loss worked; look into them"
        )
    return int(means.argmax())


def _further(run: GridRun, tried: Sequence[_Values], scores: _Scores) -> list[_Values]:
    """Return the settings that are best somewhere at the rates beside theirs, if these are new."""
    forms = (TUNED, ONE_SETTING) if len(scores) > 1 else (TUNED,)
    best = {_best(scores, name, form) for name, form in product(scores, forms)}
    further: list[_Values] = []
    for values, step in product([tried[row] for row in sorted(best)], (-1, 1)):
        place = _place(run, values["learning_rate"]) + step
        beside = {**values, "learning_rate": _rate(run, place)}
        if abs(place) <= _FURTHEST and beside not in (*tried, *further):
            further.append(beside)
    return further


def _run_trials(
    grid: Grid, trials: Sequence[GridRun], folder: Path, execution: Execution
) -> list[Result]:
    """Carry out trials, which see nothing of the test, below the folder of their grid."""
    for trial in trials:
        if trial.config.split.validation_queries == 0:
            raise InputError(
                "data.validation_queries: settings are chosen on validation; give it some rows"
            )
        if trial.config.split.split_method == "given":
            raise InputError(
                "data.split_method given: all of R∖T would be seen by the trials; take random, in "
                f"a configuration file that {argument('places')} names"
            )
    title = f"{grid.title}: trials on validation"
    trial_grid = Grid(TRIALS, title, grid.command, tuple(trials), only_validation=True)
    return run_grid(trial_grid, folder / TRIALS, execution)


def _seen(folder: Path) -> Path | None:
    """Return the splits of the trials below a grid's folder, which are all of one seed; None
    without trials.
    """
    return next((folder / TRIALS / "runs").glob("*/splits.json"), None)


def rate_trials(grid: Grid) -> list[GridRun]:
    """Return the first trials of each method's learning rate: that of the base configuration, and
    half a decade down and up.
    """
    return [_rate_trial(run, place) for run in grid.trials for place in (-1, 0, 1)]


def _rate_trial(run: GridRun, place: int) -> GridRun:
    return _trial(run, {"learning_rate": _rate(run, place)})


def choose_rates(grids: Mapping[str, Grid], folder: Path, execution: Execution) -> dict[str, Grid]:
    """Return the grids of all collections with each method's best learning rate there: after
    `rate_trials`, the rate beyond the best one is tried as long as that is at an end.
    """
    chosen = {}
    for name, grid in grids.items():
        trials = rate_trials(grid)
        further = trials
        while further:
            results = by_method(_run_trials(grid, trials, folder / name, execution))
            further = _further_rates(grid, results)
            trials += further
        rates = {method: rate_of(best) for method, best in chosen_trials(results).items()}
        runs = [with_settings(run, {"learning_rate": rates[run.method]}) for run in grid.runs]
        chosen[name] = grid._replace(runs=tuple(runs), seen=_seen(folder / name))
    return chosen


def _further_rates(grid: Grid, results: Mapping[str, Sequence[Result]]) -> list[GridRun]:
    """Return a trial of the rate beyond the best one of each method, where that is at an end."""
    further = []
    best_trials = chosen_trials(results)
    for run in grid.trials:
        places = [_place(run, rate_of(result)) for result in results[run.method]]
        best = _place(run, rate_of(best_trials[run.method]))
        beyond = {min(places): best - 1, max(places): best + 1}.get(best)
        if beyond is not None and abs(beyond) <= _FURTHEST:
            further.append(_rate_trial(run, beyond))
    return further


def chosen_trials(trials: Mapping[str, Sequence[Result]]) -> dict[str, Result]:
    """Return the trial of each method with the best score after the last epoch, the first one if
    several are best.
    """
    chosen = {}
    for method, of_method in trials.items():
        done = finished(of_method)
        if not done:
            raise JobError(
                f"{method}: none of {len(of_method)} trials worked, the first: {of_method[0].error}"
            )
        chosen[method] = max(done, key=validation_score)
    return chosen


def validation_score(result: Result) -> float:
    """Return the score that also chooses epochs: mean mAP_T of the cross-modal tasks on validation,
    in percent.
    """
    tasks = result.epochs["last"]["validation"]
    return 100 * selection_score(
        {task: float(scores["map_tie_aware"]) for task, scores in tasks.items()}
    )


def rate_of(result: Result) -> float:
    """Return the learning rate of a run."""
    return float(result.settings["train"]["learning_rate"])


def chosen_table(trials: Sequence[Result]) -> Table:
    """Tabulate the best settings of each method, and what its trials scored on validation."""
    rows = []
    methods = by_method(trials)
    for method, best in chosen_trials(methods).items():
        rates = [rate_of(trial) for trial in methods[method]]
        texts = (
            method.removesuffix(TUNED),
            f"{rate_of(best):g}",
            f"{min(rates):g} … {max(rates):g}",
            best.settings["model"].get("initial") or "–",
            _weights_of(best),
            str(len(rates)),
            f"{validation_score(best):.2f}",
        )
        rows.append(tuple(map(Cell, texts)))
    return Table(
        "chosen-settings",
        "Settings chosen on validation",
        (
            "Loss",
            "Learning rate",
            "of",
            "Initial weights",
            "Weights",
            "Trials",
            "mAP",
        ),
        tuple(rows),
        "Mean mAP of cross-modal tasks, else all, on validation after the last epoch, in percent; "
        "32 bits, a split of their own. AP: the weight of the direct AP term by bit of the code; "
        "proxies: their rate.",
        labels=1,
    )


def _weights_of(trial: Result) -> str:
    loss = trial.settings["loss"]
    values = {"proxies": rate_of(trial), **loss, **trial.settings["train"]["rates"]}
    values["average_precision"] /= trial.n_bits
    keys = CHOICES.get(loss["name"], _AP_ALONE)
    return ", ".join(f"{_NAMES.get(key, key)} {values[key]:g}" for key in keys)
