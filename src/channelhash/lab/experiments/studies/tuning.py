"""Trials of ``experiment benchmark``: what is tried for each loss, what is chosen, and tables of
both.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any, get_args

import numpy as np

from channelhash.config import make_config
from channelhash.errors import JobError
from channelhash.lab.experiments.experiment import Execution, Grid, GridRun, Result, Table
from channelhash.lab.experiments.results import by_method, finished
from channelhash.lab.experiments.runner import run_grid
from channelhash.lab.experiments.text_tables import Cell
from channelhash.models.heads import Initial
from channelhash.training.validation import selection_score
from channelhash.utils.seeds import generator

#: Learning rates to try, as factors of the base configuration's: half a decade down and a decade
#: up.
_RATE_FACTORS: tuple[float, ...] = (10**-0.5, 1.0, 10**0.5, 10.0)

#: Learning rates are tried at half decades: factors of 10^(1/2).
_PER_DECADE = 2

#: No rate is tried that is further from the base configuration's than by so many half decades.
_FURTHEST = 6

#: Trials of each tuned form, drawn from all combinations of learning rates, initial weights and
#: weights.
_DRAWS = 9

#: Initial weights that each learning rate is tried with, of a model that has the choice.
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

#: What ends the name of a method whose weights are chosen.
TUNED = ", tuned"

#: What ends the name of a method with our weights, as `--loss dsch:recommended` names it.
RECOMMENDED = ", recommended"

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


def is_tuned(run: GridRun | Result) -> bool:
    """Return whether the weights of a run's loss are chosen."""
    return run.method.endswith(TUNED)


def loss_of(method: str) -> str:
    """Return the name of a method without its form."""
    return method.removesuffix(TUNED)


def all_trials(grid: Grid) -> list[GridRun]:
    """Return the trials of each method but those with our own weights.

    As published, every learning rate is tried with every kind of initial weights. The tuned form
    draws from all combinations of these with the weights of the loss.
    """
    trials = []
    for run in grid.trials:
        if run.method.endswith(RECOMMENDED):
            continue
        for values in _combinations(run):
            trial = with_settings(run, values)
            trials.append(trial._replace(name=_trial_name(run, values)))
    return trials


def _combinations(run: GridRun) -> list[dict[str, Any]]:
    """Return the settings of each trial of a method."""
    rates = [float(f"{factor * run.config.train.learning_rate:.3g}") for factor in _RATE_FACTORS]
    initial = _INITIAL if hasattr(run.config.model, "initial") else (None,)
    choices: dict[str, Sequence[Any]] = {"initial": initial, "learning_rate": rates}
    if is_tuned(run):
        choices |= CHOICES.get(run.config.loss_name, _AP_ALONE)
    combinations = [
        dict(zip(choices, values, strict=True)) for values in product(*choices.values())
    ]
    if not is_tuned(run):
        return combinations
    draw = generator(0, "trials", run.config.loss_name).permutation(len(combinations))
    return [combinations[row] for row in draw[:_DRAWS]]


def _trial_name(run: GridRun, values: Mapping[str, Any]) -> str:
    terms = [run.name]
    for key, value in values.items():
        if value is not None:
            terms.append(value if key == "initial" else f"{key}{value:g}")
    return "-".join(terms)


def with_settings(run: GridRun, values: Mapping[str, Any]) -> GridRun:
    """Return a run with values of `settings_of`; None leaves a setting as it is."""
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


def settings_of(trial: Result) -> dict[str, Any]:
    """Return what `with_settings` gave a trial."""
    loss = trial.settings["loss"]
    settings = {"initial": trial.settings["model"].get("initial"), "learning_rate": rate_of(trial)}
    if is_tuned(trial):
        average_precision = loss["average_precision"] / trial.n_bits
        rates = trial.settings["train"]["rates"]
        values = {**loss, **rates, "average_precision": average_precision}
        settings |= {key: values[key] for key in CHOICES.get(loss["name"], _AP_ALONE)}
    return settings


def rate_trials(grid: Grid) -> list[GridRun]:
    """Return the first trials of each method's learning rate: that of the base configuration, and
    half a decade down and up.
    """
    return [_rate_trial(run, place) for run in grid.trials for place in (-1, 0, 1)]


def _rate_trial(run: GridRun, place: int) -> GridRun:
    """Return a run at a learning rate so many half decades above its own."""
    rate = run.config.train.learning_rate * 10 ** (place / _PER_DECADE)
    values = {"learning_rate": float(f"{rate:.3g}")}
    return with_settings(run, values)._replace(name=_trial_name(run, values))


def run_rate_trials(grid: Grid, folder: Path, execution: Execution) -> list[Result]:
    """Carry out `rate_trials`, and further ones as long as the best rate of a method is the lowest
    or the highest that was tried.
    """
    title = f"{grid.title}: learning rates on validation"
    trials = rate_trials(grid)
    while True:
        names = {trial.name for trial in trials}
        all_trials = Grid("trials", title, grid.command, tuple(trials), only_validation=True)
        results = by_method(run_grid(all_trials, folder, execution))
        further = [_further_trial(run, results[run.method]) for run in grid.trials]
        new = [trial for trial in further if trial and trial.name not in names]
        if not new:
            return list(chain.from_iterable(results.values()))
        trials += new


def _further_trial(run: GridRun, results: Sequence[Result]) -> GridRun | None:
    """Return a trial of the rate beyond the best one if that is at an end, else None."""
    done = finished(results)
    if not done:
        return None
    best = _rate_place(run, max(done, key=validation_score))
    places = [_rate_place(run, result) for result in results]
    further = {min(places): best - 1, max(places): best + 1}.get(best, 0)
    return _rate_trial(run, further) if 0 < abs(further) <= _FURTHEST else None


def _rate_place(run: GridRun, result: Result) -> int:
    """Return how many half decades a result's learning rate is above that of a run."""
    return round(_PER_DECADE * math.log10(rate_of(result) / run.config.train.learning_rate))


def chosen_trials(results: Sequence[Result]) -> dict[str, Result]:
    """Return the trial of each method with the best score after the last epoch, the first one if
    several are best. A tuned form may keep the published weights.
    """
    chosen = {}
    trials = by_method(results)
    for method, of_method in trials.items():
        among = _finished_trials(trials, method)
        if not among:
            raise JobError(
                f"{method}: none of {len(of_method)} trials worked, the first: {of_method[0].error}"
            )
        chosen[method] = max(among, key=validation_score)
    return chosen


def _finished_trials(trials: Mapping[str, Sequence[Result]], method: str) -> list[Result]:
    """Return the finished trials of a method, and if it is tuned, of its published form."""
    return finished(chain(trials[method], trials.get(loss_of(method), ())))


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


def learning_rates_table(trials: Sequence[Result]) -> Table:
    """Tabulate what each trial of a published form scored on validation; the best of each row is
    bold.
    """
    by_row: dict[str, dict[float, Result]] = {}
    for trial in trials:
        if not is_tuned(trial):
            is_pytorch = trial.settings["model"].get("initial") == "pytorch"
            name = trial.method + (", PyTorch's initial weights" if is_pytorch else "")
            by_row.setdefault(name, {})[rate_of(trial)] = trial
    rates = sorted(set(chain.from_iterable(by_row.values())))
    return Table(
        "learning-rates",
        "Learning rates on validation",
        ("Method", *(f"{rate:g}" for rate in rates)),
        tuple((Cell(name), *_rate_cells(by_rate, rates)) for name, by_rate in by_row.items()),
        "Mean mAP of cross-modal tasks, else all, on validation after the last epoch, in percent; "
        "32 bits, seed 0. Bold: the best of the row; the better row of a loss is the one that its "
        "published form is compared at. A bold figure in the first or last column says that its "
        "best may lie beyond.",
        labels=1,
    )


def _rate_cells(by_rate: Mapping[float, Result], rates: Sequence[float]) -> list[Cell]:
    """Return the score of the trial at each rate, the best in bold; the lowest rate if several
    are best.
    """
    texts = dict.fromkeys(rates, "–")
    scores: dict[float, float] = {}
    for rate, trial in by_rate.items():
        texts[rate] = trial.status
        if trial.status == "finished":
            scores[rate] = validation_score(trial)
            texts[rate] = f"{scores[rate]:.2f}"
    best = max(sorted(scores), key=scores.__getitem__, default=None)
    return [Cell(text, rate == best) for rate, text in texts.items()]


def chosen_table(trials: Sequence[Result]) -> Table:
    """Tabulate what was chosen for each tuned loss, and what its trials scored on validation."""
    rows = []
    methods = by_method(trials)
    for method, best in chosen_trials(trials).items():
        if not method.endswith(TUNED):
            continue
        scores = [validation_score(trial) for trial in _finished_trials(methods, method)]
        settings = settings_of(best)
        initial = settings.pop("initial") or "–"
        rate = settings.pop("learning_rate")
        weights = [f"{_NAMES.get(key, key)} {value:g}" for key, value in settings.items()]
        figures = (f"{score:.2f}" for score in (max(scores), np.median(scores), min(scores)))
        texts = loss_of(method), f"{rate:g}", initial, ", ".join(weights) or "as published"
        rows.append(tuple(map(Cell, (*texts, *figures))))
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
