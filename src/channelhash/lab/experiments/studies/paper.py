"""``experiment losses``, ``gamma-w`` and ``architectures``: the paper's, with its numbers and
settings beside ours.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from math import hypot, isnan
from statistics import fmean
from typing import Any, NamedTuple

from channelhash.config import make_config
from channelhash.lab.experiments import experiment, tables
from channelhash.lab.experiments.comparisons import significance_tables
from channelhash.lab.experiments.experiment import (
    Design,
    Experiment,
    GridRun,
    Result,
    Sections,
    Table,
)
from channelhash.lab.experiments.tables import Spread, all_views, losses_table, signed
from channelhash.lab.experiments.text_tables import Cell
from channelhash.metrics.plots import arrow
from channelhash.models.description import split_source

#: What the published code has otherwise than the protocol's defaults
#: (``docs/explanation/paper-notes.md``).
_PUBLISHED_CODE: Sections = {
    "model": {"frozen_batchnorm": "train", "mask_padding": False},
    "train": {"easy_weights": "angles"},
}
#: Keys that say where things lie, how fast they go, or which of several equal draws are taken.
_OF_NO_ACCOUNT: Mapping[str, frozenset[str]] = {
    "data": frozenset({"kind", "root", "annotations", "skip_bad", "seed"}),
    "model": frozenset({"name", "n_bits"}),
    "train": frozenset(
        {
            "seed",
            "augment_seed",
            "device",
            "workers",
            "compile",
            "validate_every",
            "checkpoint_every",
            "keep",
        }
    ),
}
#: Keys of the section ``model`` that another value of makes no other model: how inputs are read,
#: and what the published code has otherwise.
_SAME_MODEL = frozenset(
    {"preprocess", "prompt", "word_vectors", "segmentation_words", "max_tokens"}
) | frozenset(_PUBLISHED_CODE["model"])
_GOOGLE_NEWS = "GoogleNews-vectors-negative300"


def _differences(settings: Sections) -> dict[str, tuple[Any, Any]]:
    """Return key -> (of the run, of the paper's runs) where a run's data, model or training is not
    the paper's.

    The loss is compared elsewhere. Keys that the settings lack have their default, keys that they
    alone have count as off in the paper.

    >>> paper = experiment.paper_configuration("cliphash", "nuswide")
    >>> _differences({**paper, "train": {**paper["train"], "epochs": 30}})
    {'train.epochs': (30, 200), 'train.easy_weights': ('kinds', 'angles')}
    """
    model, kind = settings["model"]["name"], settings["data"]["kind"]
    paper, defaults = _paper_and_defaults(model, kind)
    differences = {}
    for section, ignored in _OF_NO_ACCOUNT.items():
        for key, value in {**defaults[section], **settings.get(section, {})}.items():
            expected = paper[section].get(key)
            if key not in ignored and _plain(key, value) != _plain(key, expected):
                differences[f"{section}.{key}"] = value, expected
    return differences


def _is_same_model(settings: Sections) -> bool:
    """Say whether the run's model is the paper's: no other backbone, head or weights, and texts
    read as word vectors.

    >>> paper = experiment.paper_configuration("tdsrdh", "nuswide")
    >>> _is_same_model(paper), _is_same_model({**paper, "model": {**paper["model"], "word_vectors": None}})
    (True, False)
    """
    model = settings["model"]
    is_known = model["name"] in _MODELS and settings["data"]["kind"] in _DATASETS
    if not is_known or (model["name"] == "tdsrdh" and not model.get("word_vectors")):
        return False
    keys = [key.partition(".") for key in _differences(settings)]
    return all(section != "model" or key in _SAME_MODEL for section, _, key in keys)


@cache
def _paper_and_defaults(model: str, kind: str) -> tuple[Sections, Sections]:
    """Return the complete settings of the paper's runs, and the defaults of all keys."""
    paper = experiment.paper_configuration(model, kind)
    bare = {"data": paper["data"], "model": {"name": model}}
    complete, defaults = (
        make_config({**sections, "loss": {"name": "dsch"}}).sections() for sections in (paper, bare)
    )
    for section, values in _PUBLISHED_CODE.items():
        complete[section].update(
            {key: value for key, value in values.items() if key in complete[section]}
        )
    return complete, defaults


def _plain(key: str, value: Any) -> Any:
    """Return what counts of a value: of weights the tag, of word vectors whose they are; off is
    off.
    """
    if key == "pretrained" and isinstance(value, str):
        return split_source(value)[0] or value
    if key == "word_vectors" and value:
        name = str(value).rpartition("/")[2]
        return _GOOGLE_NEWS if name.startswith(_GOOGLE_NEWS) else name
    if key == "features":
        # Where features of augmented images come from makes no difference.
        return "auto" if value in ("auto", "bank", "online") else value
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
# Loss -> the paper's name of it, and what it was run with beside γ_w, which the table says.
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


def _comparison_tables(results: Sequence[Result], table: str) -> list[Table]:
    """Compare runs with the paper's numbers of one of its tables, under both readings of its task
    labels.

    A run is compared if data set, model (`_is_same_model`), code length and every setting of its
    loss are the paper's; on the partitions that the paper's table is about, after the last epoch.
    The caption names what else it has otherwise (`_differences`).

    >>> _comparison_tables([], "losses")
    []
    """
    printed = [number for number in load_printed() if number.table == table]
    blocks = list(dict.fromkeys((number.metric, number.printed_task) for number in printed))
    printed.sort(key=lambda number: blocks.index((number.metric, number.printed_task)))
    runs: dict[_Setting | None, list[Result]] = {}
    for result in results:
        runs.setdefault(_printed_setting(result), []).append(result)
    likely = {(number.metric, number.likely_task, _setting(number)): number for number in printed}
    rows: list[tuple[Cell, ...]] = []
    compared: list[tuple[_Printed, _Printed, Spread | None]] = []
    for number in printed:
        task = number.printed_task
        setting = _setting(number)
        if setting in runs:
            other = likely[number.metric, task, setting]
            ours, text = tables.outcome(runs[setting], task, _METRICS[number.metric], number.split)
            compared.append((number, other, ours))
            label = f"{number.metric}, {arrow(task)}", _label(number), text
            rows.append(
                (*map(Cell, label), *_cells(ours, number, other), *_cells(ours, other, number))
            )
    if not rows:
        return []
    datasets = sorted({number.dataset for number, _, _ in compared})
    settings = dict.fromkeys(_setting(number) for number, _, _ in compared)
    return [
        Table(
            f"paper-{table.replace('_', '-')}-last",
            (
                f"This project's runs beside the paper's table of {_TITLES[table]}, "
                f"{' and '.join(datasets)}"
            ),
            (
                "Task",
                "Runs",
                "Ours",
                "Printed",
                "Difference",
                "Within",
                "Likely label",
                "Difference",
                "Within",
            ),
            tuple(rows),
            _caption([run for setting in settings for run in runs[setting]], compared),
        )
    ]


_TITLES = {
    "losses": "losses, TDSRDH model",
    "gamma_w": "γ_w, TDSRDH model, k = 32",
    "architectures": "architectures, k = 32",
}


def _within_spread(ours: Spread, printed: _Printed) -> bool:
    """Say whether two means differ by no more than √(std_printed² + std_ours²), the spread of two
    single runs.

    >>> printed = load_printed()[0]
    >>> _within_spread(Spread(printed.mean, 0.1, 3), printed)
    True
    """
    return abs(ours.mean - printed.mean) <= hypot(printed.std, ours.std)


def _cells(ours: Spread | None, printed: _Printed, rival: _Printed) -> tuple[Cell, ...]:
    """Return the printed number, and difference and verdict if it is the right one; the nearer
    difference is bold.
    """
    number = Cell(f"{printed.mean:.2f} ± {printed.std:.2f}")
    if ours is None:
        return number, Cell("–"), Cell("–")
    difference = ours.mean - printed.mean
    within = "–" if isnan(ours.std) else "yes" if _within_spread(ours, printed) else "no"
    return (
        number,
        Cell(signed(difference), abs(difference) < abs(ours.mean - rival.mean)),
        Cell(within),
    )


def _caption(
    runs: Sequence[Result], compared: Sequence[tuple[_Printed, _Printed, Spread | None]]
) -> str:
    caption = (
        "In percent, mean ± sample standard deviation over runs. Printed: the number under this "
        "task in the paper. Likely label: the number that very probably belongs to it. "
        "Difference: ours − the paper's, that of the nearer reading in bold. Within: the means "
        "differ by no more than √(std_printed² + std_ours²), a rule of thumb and no test; – where "
        f"ours is a single run. {_named_differences(runs)}"
    )
    doubted = [
        (ours, (printed, likely))
        for printed, likely, ours in compared
        if ours and printed.printed_task != printed.likely_task
    ]
    if not doubted:
        return caption
    within = [sum(_within_spread(ours, pair[side]) for ours, pair in doubted) for side in (0, 1)]
    distance = [
        fmean(abs(ours.mean - pair[side].mean) for ours, pair in doubted) for side in (0, 1)
    ]
    return (
        f"{caption} Of {len(doubted)} numbers whose label is in doubt, {within[0]} are within as "
        f"printed, {within[1]} under the likely label; the mean absolute difference is "
        f"{distance[0]:.2f} and {distance[1]:.2f}."
    )


def _named_differences(runs: Sequence[Result]) -> str:
    """Name the epochs and every setting that the paper's runs have otherwise."""
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
    name, published = _LOSSES.get(settings["name"], ("", {}))
    chosen = {
        key: value
        for key, value in settings.items()
        if key not in ("name", "gamma_w", "temperature")
    }
    # What the paper does not know is 0: off.
    same_loss = all(
        chosen.get(key, 0) == published.get(key, 0) for key in chosen.keys() | published.keys()
    )
    if not name or not same_loss or not _is_same_model(result.settings):
        return None
    model, dataset = (
        _MODELS[result.settings["model"]["name"]],
        _DATASETS[result.settings["data"]["kind"]],
    )
    return model, dataset, name, result.n_bits, settings.get("gamma_w")


def _losses_tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by method and code length, tests of every pair, and the paper's numbers beside
    them.
    """
    return [
        *all_views(losses_table, results),
        *significance_tables(results),
        *_comparison_tables(results, "losses"),
    ]


#: The paper's main table: each loss at each code length.
LOSSES = Experiment(
    name="losses", title="Losses by code length", losses=experiment.METHODS, tables=_losses_tables
)

#: γ_w of the paper's sweep.
_GAMMAS = (2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0)


def _gamma_w_grid(design: Design) -> list[GridRun]:
    """Return DSCH with each γ_w.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> [run.config.loss.gamma_w for run in _gamma_w_grid(Design(DATASETS["synthetic"], [32], [0]))]
    [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    """
    dsch = experiment.METHODS["DSCH"]
    return [
        run
        for value in _GAMMAS
        for run in design.runs(f"γ_w = {value:g}", {**dsch, "gamma_w": value})
    ]


def _gamma_w_tables(results: Sequence[Result]) -> list[Table]:
    """Return mAP and ROC-AUC by γ_w, and the paper's numbers beside them."""
    return [
        *all_views(tables.gamma_w_table, results, "validation"),
        *_comparison_tables(results, "gamma_w"),
    ]


GAMMA_W = Experiment(
    name="gamma-w", title="DSCH by γ_w", bits=(32,), grid=_gamma_w_grid, tables=_gamma_w_tables
)


def _architectures_grid(design: Design) -> list[GridRun]:
    """Return both architectures with each loss.

    A model has the settings of the base configuration if that names it; else, on the paper's
    collections, those of `experiment.paper_configuration`. Keys such as
    ``model.cliphash.pretrained`` are CLIPHash's alone. On drawn images, where weights of large
    models are of no use, their backbones are small, random and frozen.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> runs = _architectures_grid(Design(DATASETS["mirflickr25k"], [32], [0], {"DSCH": {"name": "dsch"}}))
    >>> [(run.config.model_name, run.config.train.epochs) for run in runs], runs[1].config.model.preprocess
    ([('tdsrdh', 200), ('cliphash', 200)], 'paper')
    """
    tiny = str(resources.files("channelhash.lab.experiments") / "tiny-clip.json")
    kind = design.base["data"]["kind"]
    base = design.base.get("model", {})
    shared = {key: value for key, value in base.items() if not key.startswith("cliphash.")}
    of_clip = {
        key.removeprefix("cliphash."): value for key, value in base.items() if key not in shared
    }
    runs = []
    for model, backbone in (("tdsrdh", "resnet18"), ("cliphash", tiny)):
        settings: dict[str, Any] = {"name": model}
        if shared.get("name") == model:
            settings = shared
        elif kind in _DATASETS:
            settings = experiment.paper_configuration(model, kind)["model"]
        elif kind == "synthetic":
            settings = {"name": model, "backbone": backbone, "pretrained": None}
        with_model = replace(
            design,
            base={**design.base, "model": settings | (of_clip if model == "cliphash" else {})},
        )
        for method, loss in design.losses.items():
            runs += with_model.runs(method, loss, prefix=f"{model}-")
    return runs


def _architectures_tables(results: Sequence[Result]) -> list[Table]:
    """Return scores by model and method, tests within each model, and the paper's numbers beside
    them.
    """
    shown = all_views(tables.architectures_table, results)
    for model in dict.fromkeys(result.settings["model"]["name"] for result in results):
        of_model = [result for result in results if result.settings["model"]["name"] == model]
        for table in significance_tables(of_model):
            shown.append(
                replace(table, name=f"{table.name}-{model}", title=f"{model}: {table.title}")
            )
    return [*shown, *_comparison_tables(results, "architectures")]


ARCHITECTURES = Experiment(
    "architectures",
    "Architectures and losses",
    _architectures_tables,
    experiment.METHODS,
    (32,),
    _architectures_grid,
)
