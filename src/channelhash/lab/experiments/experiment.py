"""An experiment: what its runs start from, its grid, and the tables and plots of its results."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import chain, product, starmap
from pathlib import Path
from typing import Any

from channelhash.config import make_config, read_sections
from channelhash.data.splits import SplitSettings
from channelhash.errors import InputError, argument
from channelhash.lab.experiments import studies
from channelhash.lab.experiments.plots import grid_plots
from channelhash.lab.experiments.results import Result, Sections, read_grid, write_runs
from channelhash.lab.experiments.runner import Execution, Grid, GridRun, run_grid
from channelhash.lab.experiments.text_tables import Table, write_tables
from channelhash.metrics.plots import write_figure
from channelhash.presets import data_kind, preset_path, presets
from channelhash.utils.array_files import IN_FOLDERS
from channelhash.utils.typed_settings import (
    apply_overrides,
    check_kind,
    is_python_name,
    look_up,
    pick,
    unknown,
)

#: What the file of an experiment is written with.
__all__ = [
    "METHODS",
    "Design",
    "Execution",
    "Experiment",
    "Grid",
    "GridRun",
    "Result",
    "Sections",
    "Table",
]

#: The losses that a grid compares: method -> section ``loss`` of the configuration.
_Losses = Sections

#: The paper's three losses, and SCH with the quantisation term that DSCH has (§ 5).
METHODS: dict[str, dict[str, Any]] = {
    "TDSRDH": {"name": "tdsrdh"},
    "SCH": {"name": "sch", "kappa_q": 0.0},
    "SCH + quantisation": {"name": "sch", "kappa_q": 0.01},
    "DSCH": {"name": "dsch", "kappa_q": 0.01},
}

#: The paper's collections, by their kind.
PAPER_KINDS = ("mirflickr25k", "nuswide")
#: The paper's models -> the preset that trains each as the protocol says.
_PAPER_PRESETS = {"tdsrdh": "paper", "cliphash": "paper-cliphash"}


def paper_configuration(model: str, kind: str) -> dict[str, dict[str, Any]]:
    """Read data, model and training of one of the paper's models from its preset, for one of the
    paper's collections.

    >>> paper_configuration("cliphash", "nuswide")["model"]["preprocess"]
    'paper'
    """
    sections = read_sections(preset_path(_PAPER_PRESETS[model]))
    return {
        "data": {"kind": kind, "root": kind},
        "model": sections["model"],
        "train": sections["train"],
    }


#: Name for ``--dataset`` -> base configuration.
DATASETS: dict[str, dict[str, dict[str, Any]]] = {
    "synthetic": {
        "data": {
            "kind": "synthetic",
            "root": "data",
            "n_images": 3000,
            "queries": 400,
            "train": 1800,
        },
        "model": {"name": "small"},
        "train": {"epochs": 30, "batch_size": 64, "learning_rate": 1e-3, "validate_every": 10},
    },
    **{kind: paper_configuration("tdsrdh", kind) for kind in PAPER_KINDS},
}

#: What ``--quick`` changes: everything can be seen to work in minutes, no score is worth quoting.
_QUICK: dict[str, dict[str, Any]] = {
    "data": {"n_images": 600, "queries": 100, "train": 300},
    "train": {"epochs": 4, "validate_every": 2},
}


def _copy(sections: Sections) -> dict[str, dict[str, Any]]:
    return {section: dict(keys) for section, keys in sections.items()}


#: What each run has of its own -> the argument that chooses it.
_OWN = {"loss.": "losses", "model.n_bits": "bits", "train.seed": "seeds"}


def base_configuration(
    base: str | Path,
    folder: Path,
    data: Path | None = None,
    overrides: Sequence[str] = (),
    quick: bool = False,
) -> Sections:
    """Read the configuration that all runs of a grid start from.

    Args:
        base: key of `DATASETS`, or a configuration file.
        folder: the grid's folder; drawn images go below it.
        data: folder or file of the data instead of the base configuration's.
        overrides: ``"section.key=value"`` for all runs.
        quick: apply `_QUICK`; for drawn images only.

    Raises:
        InputError: ``base`` or an override is unknown or of what each run has its own, or ``quick``
            is set for another collection.

    >>> sections = base_configuration("synthetic", Path("grid"), overrides=["train.epochs=5"])
    >>> sections["train"]["epochs"]
    5
    """
    source = (
        read_sections(base) if isinstance(base, Path) else pick(DATASETS, base, argument("base"))
    )
    sections = _copy(source)
    kind = sections.get("data", {}).get("kind")
    if quick and kind != "synthetic":
        raise InputError(
            f"{argument('quick')}: goes with {argument('base')} synthetic; elsewhere lower "
            f"train.epochs with {argument('overrides')}"
        )
    if quick:
        for section, keys in _QUICK.items():
            sections[section] = sections.get(section, {}) | keys
    if base == "synthetic" and data is None:
        data = folder / "data"
    if data is not None:
        sections["data"]["root" if kind in ("synthetic", "wikipedia", *PAPER_KINDS) else "path"] = (
            str(data)
        )
    for override, own in product(overrides, _OWN):
        if override.startswith(own):
            raise InputError(
                f"{argument('overrides')} {override}: each run has its own ({argument(_OWN[own])})"
            )
    apply_overrides(sections, *overrides)
    return sections


#: Code length of trials, whatever lengths the grid has.
_TRIAL_BITS = 32
#: Seed of trials: where seeds draw a split each, no run has that of the trials.
_TRIAL_SEED = 1000
#: Signs of method names as folder names spell them.
_SPELLED = str.maketrans({"γ": "gamma", "κ": "kappa", "τ": "tau", "+": "plus", "²": "2"})


@dataclass(frozen=True)
class Design:
    """What the runs of a grid are made from.

    Attributes:
        base: configuration that every run starts from.
        bits: code lengths.
        seeds: seeds of weights, order and dropout.
        losses: the losses to compare; empty where the experiment compares something else.
        splits: each seed also draws a split of its own; else all share that of the base
            configuration.
    """

    base: Sections
    bits: Sequence[int]
    seeds: Sequence[int]
    losses: _Losses = field(default_factory=dict)
    splits: bool = False

    def runs(self, method: str, loss: Mapping[str, Any], prefix: str = "") -> list[GridRun]:
        """Return one run of a method for each code length and seed.

        Args:
            method: what is compared, as the tables print it.
            loss: section ``loss`` of the configuration.
            prefix: begin of the runs' names.

        >>> design = Design(DATASETS["synthetic"], (16, 32), (0,))
        >>> [run.name for run in design.runs("DSCH, γ_w = 2", {"name": "dsch", "gamma_w": 2.0})]
        ['dsch-gamma_w-2-k16-seed0', 'dsch-gamma_w-2-k32-seed0']
        """
        slug = re.sub(r"[^\w.]+", "-", method.lower().translate(_SPELLED)).strip("-")
        runs = []
        for n_bits, seed in product(self.bits, self.seeds):
            sections = _copy(self.base)
            sections.setdefault("model", {})["n_bits"] = n_bits
            sections["loss"] = dict(loss)
            sections.setdefault("train", {})["seed"] = seed
            if self.splits:
                sections["data"]["seed"] = seed
            runs.append(
                GridRun(f"{prefix}{slug}-k{n_bits}-seed{seed}", method, make_config(sections))
            )
        return runs


def _compare_losses(design: Design) -> list[GridRun]:
    """Return each loss of a design at each code length and seed.

    >>> design = Design(DATASETS["synthetic"], [16], [0], {"DSCH": {"name": "dsch"}})
    >>> [run.name for run in _compare_losses(design)]
    ['dsch-k16-seed0']
    """
    return list(chain.from_iterable(starmap(design.runs, design.losses.items())))


@dataclass(frozen=True)
class Experiment:
    """One experiment: a file in ``studies/`` and a line in `studies.EXPERIMENTS`.

    Attributes:
        name: its name on the command line and in ``grid.json``.
        title: what is compared, in words.
        tables: makes the tables of all results; the command prints the first.
        losses: the losses that are compared, others with ``--loss``; empty where it compares
            something else.
        bits: code lengths by default; those of the paper's tables.
        grid: makes the runs of a design.
        choose: returns the grids of all collections with settings that it has chosen in their
            folders.
        trials: makes the tables of each folder of trials below the grid's; empty where nothing is
            tuned.
        all_trials: returns all trials of a grid, before any choice; for `--dry-run`.
        across: makes the tables of several collections' results; None where an experiment takes
            one.
        splits: see `Design`.
        steps: how many steps a training takes at least, by as many epochs as that needs; 0 takes
            the epochs of the base configuration.
        preset: what its runs start from unless a base configuration is named; drawn images if
            empty.

    >>> Experiment("sch", "SCH alone", lambda results: [], {"SCH": {"name": "sch"}}).bits
    (16, 32, 64, 128)
    """

    name: str
    title: str
    tables: Callable[[Sequence[Result]], list[Table]]
    losses: _Losses = field(default_factory=dict)
    bits: tuple[int, ...] = (16, 32, 64, 128)
    grid: Callable[[Design], list[GridRun]] = _compare_losses
    choose: Callable[[Mapping[str, Grid], Path, Execution], Mapping[str, Grid]] = (
        lambda grids, folder, execution: grids
    )
    trials: Mapping[str, Callable[[Sequence[Result]], list[Table]]] = field(default_factory=dict)
    all_trials: Callable[[Grid], list[GridRun]] = lambda grid: []
    across: Callable[[Mapping[str, Sequence[Result]]], list[Table]] | None = None
    splits: bool = False
    steps: int = 0
    preset: str = ""


def load_experiment(name: str) -> Experiment:
    """Return the experiment that is registered as ``name``, or the one that ``python:module:NAME``
    refers to.

    Raises:
        InputError: there is no such experiment; the message names the nearest.

    >>> load_experiment("gamma-w").title
    'DSCH by γ_w'
    """
    entry = look_up(studies.EXPERIMENTS, name, "experiment")
    if isinstance(entry, str):
        file, _, record = entry.partition(":")
        entry = getattr(import_module(f"{studies.__name__}.{file}"), record)
    if not isinstance(entry, Experiment):
        raise InputError(f"experiment {name}: is not an Experiment; name a record of that module")
    return entry


def make_grid(
    experiment: Experiment,
    base: Sections,
    bits: Sequence[int] | None = None,
    seeds: int = 3,
    losses: Sequence[str] = (),
    command: str = "",
    collection: str = "",
) -> Grid:
    """Make the grid of an experiment.

    Args:
        experiment: see `load_experiment`.
        base: see `base_configuration`.
        bits: code lengths; the experiment's if None.
        seeds: runs of each cell.
        losses: names as in `_choose_losses`, instead of the experiment's.
        command: the command that makes the grid again.
        collection: its name in the title; the kind of data if empty.

    Raises:
        InputError: a key is unknown, or losses are named and the experiment compares something
            else.

    >>> make_grid(load_experiment("losses"), DATASETS["synthetic"], bits=[16], seeds=1).title
    'Losses by code length, synthetic'
    """
    if losses and not experiment.losses:
        raise InputError(
            f"{argument('losses')}: experiment {experiment.name} does not take it; leave it out"
        )
    compared = _choose_losses(losses, experiment.losses) if losses else experiment.losses
    design = Design(base, bits or experiment.bits, range(seeds), compared, experiment.splits)
    trials = (
        experiment.grid(replace(design, bits=[_TRIAL_BITS], seeds=[_TRIAL_SEED]))
        if experiment.trials
        else []
    )
    title = f"{experiment.title}, {collection or base.get('data', {}).get('kind')}"
    runs = check_kind(experiment.grid(design), list, f"grid of {experiment.name}")
    if not runs:
        raise InputError(f"grid of {experiment.name}: has no runs for these bits and seeds")
    return Grid(experiment.name, title, command, tuple(runs), tuple(trials))


def _choose_losses(names: Sequence[str], losses: _Losses) -> _Losses:
    """Return the losses of these names, with the settings and method names of ``losses`` and
    `METHODS` if they are among those; ``NAME:published`` has its authors' settings
    (`losses.PUBLISHED`), ``NAME:recommended`` our weights.

    >>> list(_choose_losses(["dsch", "csq:published", "python:mine:MyLoss"], {}))
    ['DSCH', 'csq, published', 'MyLoss']
    """
    candidates = (*losses.items(), *METHODS.items())
    chosen: dict[str, Mapping[str, Any]] = {}
    for name in map(str.strip, names):
        if not name:
            raise InputError(f"{argument('losses')}: a name is empty; name one, such as dsch")
        bare, form = _split_form(name)
        default = (bare.rpartition(":")[2], {"name": bare})
        method, loss = next((entry for entry in candidates if entry[1]["name"] == bare), default)
        if form:
            method = f"{method}, {form}"
            loss = {"name": bare, form: True}
        if method in chosen:
            raise InputError(
                f"{argument('losses')}: two losses are called {method}; name each once"
            )
        chosen[method] = loss
    return chosen


def _split_form(name: str) -> tuple[str, str]:
    """Return a loss's name without its form, and the form, empty if it has none.

    >>> _split_form("csq:published"), _split_form("python:mine:MyLoss")
    (('csq', 'published'), ('python:mine:MyLoss', ''))
    """
    bare, _, form = name.rpartition(":")
    if form not in ("published", "recommended") or is_python_name(name):
        return name, ""
    return bare, form


def collection_bases(
    experiment: Experiment, base: Sections, places: Sequence[str], overrides: Sequence[str] = ()
) -> dict[str, Sections]:
    """Return the base configuration of each collection, by its name.

    Args:
        experiment: which has tables of several collections.
        base: configuration of everything else.
        places: ``"NAME=PLACE"`` each, or a file alone, whose name without ending is that of the
            collection. If NAME is a preset or a configuration file, the section ``data`` is that
            file's, and PLACE stands in the place of its own; any other collection is a file of
            features or a table, split as ``base`` says.
        overrides: as in `base_configuration`.

    Raises:
        InputError: the experiment takes one collection, two have one name, or a place is not data.

    >>> base, benchmark = {"model": {"name": "features"}}, load_experiment("benchmark")
    >>> bases = collection_bases(benchmark, base, ["features=coco.npz", "mine=own.npz"])
    >>> {name: sections["data"]["path"] for name, sections in bases.items()}
    {'features': 'coco.npz', 'mine': 'own.npz'}
    """
    if experiment.across is None:
        raise InputError(
            f"{argument('places')}: experiment {experiment.name} takes one collection; name its "
            "file or folder alone"
        )
    bases: dict[str, Sections] = {}
    for text in places:
        source, place = _named_place(text)
        name = Path(source).stem if _is_configuration(source) else source
        if name in bases:
            raise InputError(
                f"{argument('places')} {text}: {name} is named twice; give each collection a name "
                f"of its own, e.g. {name}2={place}"
            )
        if Path(name).name != name or name == "tables":  # a folder of the grid has this name
            raise InputError(
                f"{argument('places')} {text}: {name!r} cannot be a folder's name; choose another"
            )
        sections = _copy(base)
        sections["data"] = _data_section(source, place, base.get("data", {}))
        apply_overrides(sections, *overrides)
        bases[name] = sections
    return bases


def _named_place(text: str) -> tuple[str, str]:
    """Return name and place of a collection.

    >>> _named_place("mine=own.npz"), _named_place("data/own.npz")
    (('mine', 'own.npz'), ('own', 'data/own.npz'))
    """
    name, equals, place = text.partition("=")
    if not equals or Path(text).exists():
        return Path(text).stem, text
    if not name or not place:
        raise InputError(
            f"{argument('places')} {text}: write a collection as NAME=PLACE, e.g. "
            "features=features.npz"
        )
    return name, place


def _is_configuration(name: str) -> bool:
    return Path(name).suffix in (".yaml", ".yml")


def _data_section(source: str, place: str, base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``data`` of a collection; ``base`` says how one's own is split."""
    if _is_configuration(source):
        section = dict(read_sections(Path(source)).get("data", {}))
    elif source in presets():
        section = dict(read_sections(preset_path(source))["data"])
    else:
        section = {key: value for key, value in base.items() if key in SplitSettings.model_fields}
        section["kind"] = _kind_of(source, Path(place))
    section["root" if "root" in section else "path"] = place
    return section


def _kind_of(source: str, place: Path) -> str:
    """Return the kind of one's own data; raise `InputError` if it is a misspelled preset."""
    if any(file.suffix.lower() in IN_FOLDERS for file in place.glob("*")):
        return "features"
    if place.suffix == "":
        raise InputError(unknown(f"preset {source!r}", source, [*presets()]))
    return data_kind(place)


def run_grids(
    experiment: Experiment, grids: Mapping[str, Grid], folder: Path, execution: Execution
) -> tuple[list[Result], list[Path]]:
    """Carry out the grid of each collection, in a folder of its own where there are several, and
    write all tables; those over collections come first, and beside them ``runs.csv`` with every
    score of all, and ``trials.csv``.
    """
    results: dict[str, list[Result]] = {}
    paths: list[Path] = []
    sized = {name: grid.at_least(experiment.steps) for name, grid in grids.items()}
    for name, grid in experiment.choose(sized, folder, execution).items():
        results[name] = run_grid(grid, folder / name, execution)
        paths += _write_outputs(experiment, folder / name)
    if experiment.across and len(grids) > 1:
        paths = write_tables(experiment.across(results), folder / "tables") + paths
        write_runs(results, folder / "runs.csv")
        trials = {}
        for name in grids:
            for kind, each in _read_trials(experiment, folder / name).items():
                trials[f"{name}/{kind}"] = each
        write_runs(trials, folder / "trials.csv")
    return list(chain.from_iterable(results.values())), paths


def _read_trials(experiment: Experiment, folder: Path) -> dict[str, list[Result]]:
    """Return the trials below a grid's folder, by the names of their folders."""
    return {
        name: read_grid(folder / name)[1] for name in experiment.trials if (folder / name).exists()
    }


def _write_outputs(experiment: Experiment, folder: Path) -> list[Path]:
    """Write the tables of a grid's folder to ``tables/``, plots to ``plots/``, every score to
    ``runs.csv``, and every score of its trials to ``trials.csv``.

    Unfinished and failed runs are named in the tables.
    """
    _, results = read_grid(folder)
    trials = _read_trials(experiment, folder)
    tables = check_kind(experiment.tables(results), list, f"tables of {experiment.name}")
    for name, each in trials.items():
        tables += experiment.trials[name](each)
    paths = write_tables(tables, folder / "tables")
    write_runs({"": results}, folder / "runs.csv")  # after the tables, with what they measured
    if trials:
        write_runs(trials, folder / "trials.csv")
    for name, figure in grid_plots(results).items():
        write_figure(figure, folder / "plots", name)
    return paths
