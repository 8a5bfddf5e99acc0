"""The paper's printed numbers and settings, beside this project's runs."""

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import chain
from math import hypot, isnan
from statistics import fmean
from typing import Any, NamedTuple

from channelhash.config import make_config
from channelhash.lab.experiments import tables
from channelhash.lab.experiments.experiment import Result, Sections, Table, paper_configuration
from channelhash.lab.experiments.results import group_by
from channelhash.lab.experiments.tables import Spread, signed
from channelhash.lab.experiments.text_tables import Cell, Row
from channelhash.metrics.plots import arrow
from channelhash.models.description import split_source

#: What the published code has otherwise than the protocol's defaults
#: (``docs/explanation/paper-notes.md``).
_PUBLISHED_CODE: Sections = {
    "model": {"frozen_batchnorm": "train", "mask_padding": False},
    "train": {"easy_weights": "angles"},
}
#: Keys that say where things lie, how fast they go, or which of several equal draws are taken.
_OF_NO_ACCOUNT: Mapping[str, set[str]] = {
    "data": {"kind", "root", "annotations", "skip_bad", "seed"},
    "model": {"name", "n_bits"},
    "train": {
        "seed",
        "augment_seed",
        "device",
        "workers",
        "compile",
        "validate_every",
        "checkpoint_every",
        "keep",
    },
}
#: Keys of the section ``model`` that another value of makes no other model: how inputs are read,
#: and what the published code has otherwise.
_SAME_MODEL = {
    "model.preprocess",
    "model.prompt",
    "model.word_vectors",
    "model.segmentation_words",
    "model.max_tokens",
    "model.frozen_batchnorm",
    "model.mask_padding",
}
#: How files of the paper's word vectors begin, whatever their format.
_GOOGLE_NEWS = "GoogleNews-vectors-negative300"


def _differences(settings: Sections) -> dict[str, tuple[Any, Any]]:
    """Return key -> (of the run, of the paper's runs) where a run's data, model or training is not
    the paper's.

    The loss is compared elsewhere. Keys that the settings lack have their default, keys that they
    alone have count as off in the paper.

    >>> paper = paper_configuration("cliphash", "nuswide")
    >>> _differences({**paper, "train": {**paper["train"], "epochs": 30}})
    {'train.epochs': (30, 200), 'train.easy_weights': ('kinds', 'angles')}
    """
    paper, defaults = _paper_and_defaults(settings["model"]["name"], settings["data"]["kind"])
    differences = {}
    for section, ignored in _OF_NO_ACCOUNT.items():
        for key, value in {**defaults[section], **settings.get(section, {})}.items():
            expected = paper[section].get(key)
            if key not in ignored and _plain(key, value) != _plain(key, expected):
                differences[f"{section}.{key}"] = value, expected
    return differences


def _is_same_model(settings: Sections) -> bool:
    """Return whether the run's model is the paper's: the same backbone, head and weights, and texts
    read as word vectors.

    >>> paper = paper_configuration("tdsrdh", "nuswide")
    >>> without_vectors = {**paper, "model": {**paper["model"], "word_vectors": None}}
    >>> _is_same_model(paper), _is_same_model(without_vectors)
    (True, False)
    """
    model = settings["model"]
    is_known = model["name"] in _MODELS and settings["data"]["kind"] in _DATASETS
    if not is_known or (model["name"] == "tdsrdh" and not model.get("word_vectors")):
        return False
    return all(not key.startswith("model.") or key in _SAME_MODEL for key in _differences(settings))


@cache
def _paper_and_defaults(model: str, kind: str) -> tuple[Sections, Sections]:
    """Return the complete settings of the paper's runs, and the defaults of all keys."""
    paper = paper_configuration(model, kind)
    bare = {"data": paper["data"], "model": {"name": model}}
    complete, defaults = (
        make_config({**sections, "loss": {"name": "dsch"}}).sections() for sections in (paper, bare)
    )
    for section, values in _PUBLISHED_CODE.items():
        for key in values.keys() & complete[section].keys():
            complete[section][key] = values[key]
    return complete, defaults


def _plain(key: str, value: Any) -> Any:
    """Return the part of a value that is compared: of weights their tag, of word vectors their
    name; None for whatever is off.
    """
    if key == "pretrained" and isinstance(value, str):
        return split_source(value)[0] or value
    if key == "word_vectors" and value:
        name = str(value).rpartition("/")[2]
        return _GOOGLE_NEWS if name.startswith(_GOOGLE_NEWS) else name
    if key == "features" and value in ("bank", "online"):
        return "auto"  # where features of augmented images come from makes no difference
    return value or None


#: Task as the paper writes it -> our name.
_TASKS = {
    "I->T": "image->text",
    "T->I": "text->image",
    "I->I": "image->image",
    "T->T": "text->text",
}
_DATASETS = {"mirflickr25k": "MIRFLICKR-25k", "nuswide": "NUS-WIDE"}
_MODELS = {"tdsrdh": "TDSRDH", "cliphash": "CLIPHash"}
#: Loss -> the paper's name of it, and what it was run with beside γ_w, which the table says.
_LOSSES: dict[str, tuple[str, dict[str, float | None]]] = {
    "dsch": (
        "DSCH",
        {
            "lambda_neg": None,
            "tau": 1.0,
            "gamma_l": 1.0,
            "alpha": 1.0,
            "beta": 1.0,
            "kappa_q": 0.01,
        },
    ),
    "sch": ("SCH", {"tau": 3.0, "alpha": 1.0, "beta": 1.0, "kappa_q": 0.0}),
    "tdsrdh": ("TDSRDH", {"alpha": 0.05, "beta": 1.0, "epsilon": 0.3}),
}
_METRICS = {"mAP_T": "map_tie_aware", "ROC-AUC": "roc_auc_micro"}


class _Printed(NamedTuple):
    """One printed number, mean and standard deviation in percent.

    Attributes:
        table: ``"losses"``, ``"gamma_w"`` or ``"architectures"``.
        model: ``"TDSRDH"`` or ``"CLIPHash"``.
        dataset: ``"MIRFLICKR-25k"`` or ``"NUS-WIDE"``.
        loss: ``"DSCH"``, ``"SCH"`` or ``"TDSRDH"``.
        n_bits: code length.
        gamma_w: γ_w of DSCH, None for the others.
        metric: ``"mAP_T"`` or ``"ROC-AUC"``.
        split: ``"test"`` or ``"validation"``.
        printed_task: the task it is printed under, in our words (`_TASKS`).
        likely_task: the task that it very probably is of.
        mean: over the authors' runs.
        std: likewise.
    """

    table: str
    model: str
    dataset: str
    loss: str
    n_bits: int
    gamma_w: float | None
    metric: str
    split: str
    printed_task: str
    likely_task: str
    mean: float
    std: float


@cache
def load_printed() -> tuple[_Printed, ...]:
    """Read every number of the paper's four result tables, in their order.

    >>> load_printed()[0].table
    'losses'
    """
    text = (
        resources.files("channelhash.lab.experiments")
        .joinpath("paper_results.csv")
        .read_text(encoding="utf-8")
    )
    numbers = []
    for row in csv.DictReader(text.splitlines()):
        values: dict[str, Any] = {
            name: float(row[name]) if row[name] else None for name in ("gamma_w", "mean", "std")
        }
        values |= {name: _TASKS[row[name]] for name in ("printed_task", "likely_task")}
        numbers.append(_Printed(**{**row, **values, "n_bits": int(row["n_bits"])}))
    return tuple(numbers)


class _Comparison(NamedTuple):
    """A task and setting of one of the paper's tables, beside this project's runs of it.

    Attributes:
        printed: the number that the paper prints under the task.
        likely: the number that very probably belongs to it.
        runs: this project's.
        ours: what they score, if any has finished.
        text: the same, as tables print it.
    """

    printed: _Printed
    likely: _Printed
    runs: Sequence[Result]
    ours: Spread | None
    text: str

    def row(self) -> Row:
        """Return the row of the table, both readings of the label side by side."""
        number = self.printed
        label = f"{number.metric}, {arrow(number.printed_task)}", _label(number), self.text
        return (
            *map(Cell, label),
            *_cells(self.ours, number, self.likely),
            *_cells(self.ours, self.likely, number),
        )


def _compare_numbers(results: Sequence[Result], table: str) -> list[_Comparison]:
    """Find the runs of each number of a table."""
    printed = [number for number in load_printed() if number.table == table]
    blocks = list(dict.fromkeys((number.metric, number.printed_task) for number in printed))
    printed.sort(key=lambda number: blocks.index((number.metric, number.printed_task)))
    runs = group_by(results, _printed_setting)
    likely = {(number.metric, number.likely_task, _setting(number)): number for number in printed}
    compared = []
    for number in printed:
        task = number.printed_task
        setting = _setting(number)
        if setting in runs:
            cell = runs[setting]
            ours, text = tables.outcome(cell, task, _METRICS[number.metric], number.split)
            other = likely[number.metric, task, setting]
            compared.append(_Comparison(number, other, cell, ours, text))
    return compared


def comparison_tables(results: Sequence[Result], table: str) -> list[Table]:
    """Compare runs with the paper's numbers of one of its tables, under both readings of its task
    labels.

    A run is compared if data set, model (`_is_same_model`), code length and every setting of its
    loss are the paper's; on the partitions that the paper's table is about, after the last epoch.
    The caption names its other differences (`_differences`).

    >>> comparison_tables([], "losses")
    []
    """
    compared = _compare_numbers(results, table)
    if not compared:
        return []
    datasets = " and ".join(sorted({comparison.printed.dataset for comparison in compared}))
    reading = ("Difference", "Within")
    return [
        Table(
            f"paper-{table.replace('_', '-')}-last",
            f"This project's runs beside the paper's table of {_TITLES[table]}, {datasets}",
            ("Task", "Runs", "Ours", "Printed", *reading, "Likely label", *reading),
            tuple(comparison.row() for comparison in compared),
            _caption(compared),
        )
    ]


#: Table of the paper -> what it is about.
_TITLES = {
    "losses": "losses, TDSRDH model",
    "gamma_w": "γ_w, TDSRDH model, k = 32",
    "architectures": "architectures, k = 32",
}


def _within_spread(ours: Spread, printed: _Printed) -> bool:
    """Return whether two means differ by no more than √(std_printed² + std_ours²), the spread of
    two single runs.

    >>> printed = load_printed()[0]
    >>> _within_spread(Spread(printed.mean, 0.1, 3), printed)
    True
    """
    return abs(ours.mean - printed.mean) <= hypot(printed.std, ours.std)


def _cells(ours: Spread | None, printed: _Printed, rival: _Printed) -> Row:
    """Return the printed number, and difference and verdict if it is the right one; the nearer
    difference is bold.
    """
    number = Cell(f"{printed.mean:.2f} ± {printed.std:.2f}")
    if ours is None:
        return number, Cell("–"), Cell("–")
    difference = ours.mean - printed.mean
    is_nearer = abs(difference) < abs(ours.mean - rival.mean)
    within = "–"
    if not isnan(ours.std):
        within = "yes" if _within_spread(ours, printed) else "no"
    return number, Cell(signed(difference), is_nearer), Cell(within)


def _caption(compared: Sequence[_Comparison]) -> str:
    runs = list(chain.from_iterable(comparison.runs for comparison in compared))
    caption = (
        "In percent, mean ± sample standard deviation over runs. Printed: the number under this "
        "task in the paper. Likely label: the number that very probably belongs to it. "
        "Difference: ours − the paper's, that of the nearer reading in bold. Within: the means "
        "differ by no more than √(std_printed² + std_ours²), a rule of thumb and no test; – where "
        f"ours is a single run. {_named_differences(runs)}"
    )
    as_printed = []
    as_likely = []
    for printed, likely, _, ours, _ in compared:
        if ours and printed.printed_task != printed.likely_task:
            as_printed.append((ours, printed))
            as_likely.append((ours, likely))
    if not as_printed:
        return caption
    return (
        f"{caption} Of {len(as_printed)} numbers whose label is in doubt, {_n_within(as_printed)} "
        f"are within as printed, {_n_within(as_likely)} under the likely label; the mean absolute "
        f"difference is {_mean_distance(as_printed):.2f} and {_mean_distance(as_likely):.2f}."
    )


def _n_within(pairs: Sequence[tuple[Spread, _Printed]]) -> int:
    return sum(_within_spread(ours, number) for ours, number in pairs)


def _mean_distance(pairs: Sequence[tuple[Spread, _Printed]]) -> float:
    return fmean(abs(ours.mean - number.mean) for ours, number in pairs)


def _named_differences(runs: Sequence[Result]) -> str:
    """Name the epochs and every setting in which the paper's runs differ."""
    epochs = sorted({int(run.settings["train"]["epochs"]) for run in runs})
    named: dict[str, dict[str, None]] = {}
    for run in runs:
        for key, (ours, paper) in _differences(run.settings).items():
            if key != "train.epochs":  # has its own sentence
                named.setdefault(f"{key} {_in_words(paper)}", {})[_in_words(ours)] = None
    listed = "; ".join(f"{key}, ours {' and '.join(ours)}" for key, ours in named.items())
    return (
        f"Ours trained {', '.join(map(str, epochs))} epochs, the paper's 200. Other settings than "
        f"the paper's: {listed or 'none'}. The rows of the splits are other draws, and so are "
        "augmentations, which repeat across workers and epochs in theirs."
    )


def _in_words(value: object) -> str:
    name = "none" if value is None else str(value)
    return name.rpartition("/")[2] if name.startswith("/") else name


def _label(number: _Printed) -> str:
    if number.table == "gamma_w":
        return f"γ_w = {number.gamma_w:g}"
    if number.table == "architectures":
        return f"{number.model}, {number.loss}"
    return f"{number.loss}, k = {number.n_bits}"


_Setting = tuple[str, str, str, int, float | None]


def _setting(number: _Printed) -> _Setting:
    return number.model, number.dataset, number.loss, number.n_bits, number.gamma_w


def _printed_setting(result: Result) -> _Setting | None:
    """Return what the paper calls the run's setting; None unless the model and all settings of the
    loss are its own.
    """
    settings = result.settings["loss"]
    if settings["name"] not in _LOSSES or not _is_same_model(result.settings):
        return None
    name, published = _LOSSES[settings["name"]]
    keys = (settings.keys() | published.keys()) - {"name", "gamma_w", "temperature"}
    # What the paper does not know is 0: off.
    if any(settings.get(key, 0) != published.get(key, 0) for key in keys):
        return None
    model = _MODELS[result.settings["model"]["name"]]
    dataset = _DATASETS[result.settings["data"]["kind"]]
    return model, dataset, name, result.n_bits, settings.get("gamma_w")
