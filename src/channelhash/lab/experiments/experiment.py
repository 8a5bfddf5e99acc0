"""The record of an experiment: how its grid is made and run, and which tables and plots show its results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from channelhash.config import make_config
from channelhash.errors import InputError
from channelhash.lab.experiments import studies
from channelhash.lab.experiments.base import METHODS, PAPER_BITS, Losses, Sections
from channelhash.lab.experiments.plots import grid_plots
from channelhash.lab.experiments.rendering import Table, write_tables
from channelhash.lab.experiments.results import Result, read_grid, write_query_means, write_runs
from channelhash.lab.experiments.runner import Execution, Grid, GridRun, run_grid
from channelhash.utils.plotting import write_figure
from channelhash.utils.python_names import is_python_name, look_up

#: What the file of an experiment is written with.
__all__ = ["Design", "Execution", "Experiment", "Grid", "GridRun", "Result", "Table"]

#: Code length of trials, whatever lengths the grid has; their seed is 0.
TRIAL_BITS = 32
# Signs of method names as folder names spell them.
_SPELLED = str.maketrans({"γ": "gamma", "κ": "kappa", "τ": "tau", "+": "plus", "²": "2"})


@dataclass(frozen=True)
class Design:
    """What the runs of a grid are made from.

    Attributes:
        base: configuration that every run starts from.
        bits: code lengths.
        seeds: seeds of weights, order and dropout.
        losses: the losses to compare; empty where the experiment compares something else.
        splits: each seed also draws a split of its own; else all share that of the base configuration.
    """

    base: Sections
    bits: Sequence[int]
    seeds: Sequence[int]
    losses: Losses = field(default_factory=dict)
    splits: bool = False

    def runs(self, method: str, loss: Mapping[str, Any], prefix: str = "") -> list[GridRun]:
        """Return one run of a method for each code length and seed.

        Args:
            method: what is compared, as the tables print it.
            loss: section ``loss`` of the configuration.
            prefix: begin of the runs' names.

        >>> base = {"data": {"kind": "synthetic", "root": "data"}, "model": {"name": "small"}}
        >>> [run.name for run in Design(base, (16, 32), (0,)).runs("DSCH, γ_w = 2", {"name": "dsch", "gamma_w": 2.0})]
        ['dsch-gamma_w-2-k16-seed0', 'dsch-gamma_w-2-k32-seed0']
        """
        runs = []
        for n_bits, seed in product(self.bits, self.seeds):
            sections = {section: dict(keys) for section, keys in self.base.items()}
            sections.setdefault("model", {})["n_bits"] = n_bits
            sections["loss"] = dict(loss)
            sections.setdefault("train", {})["seed"] = seed
            if self.splits:
                sections["data"]["seed"] = seed
            runs.append(GridRun(f"{prefix}{_slug(method)}-k{n_bits}-seed{seed}", method, make_config(sections)))
        return runs


def compare_losses(design: Design) -> list[GridRun]:
    """Return each loss of a design at each code length and seed.

    >>> from channelhash.lab.experiments.base import DATASETS
    >>> [run.name for run in compare_losses(Design(DATASETS["synthetic"], [16], [0], {"DSCH": {"name": "dsch"}}))]
    ['dsch-k16-seed0']
    """
    return [run for method, loss in design.losses.items() for run in design.runs(method, loss)]


@dataclass(frozen=True)
class Experiment:
    """One experiment: a file in ``studies/`` and a line in `studies.EXPERIMENTS`.

    Attributes:
        name: its name on the command line and in ``grid.json``.
        title: what is compared, in words.
        tables: makes the tables of all results; the command prints the first.
        losses: the losses that are compared, others with ``--losses``; empty where it compares something else.
        bits: code lengths by default.
        grid: makes the runs of a design.
        run: carries a grid out in a folder.
        plots: draws the plots of all results, by file name.
        trials: makes the table of each folder of trials below the grid's; empty where nothing is tuned.
        splits: see `Design`.

    >>> Experiment(name="sch", title="SCH alone", tables=lambda results: [], losses={"SCH": {"name": "sch"}}).bits
    (16, 32, 64, 128)
    """

    name: str
    title: str
    tables: Callable[[Sequence[Result]], list[Table]]
    losses: Losses = field(default_factory=dict)
    bits: tuple[int, ...] = PAPER_BITS
    grid: Callable[[Design], list[GridRun]] = compare_losses
    run: Callable[[Grid, Path, Execution], list[Result]] = run_grid
    plots: Callable[[Sequence[Result]], dict[str, Figure]] = grid_plots
    trials: Mapping[str, Callable[[Sequence[Result]], Table]] = field(default_factory=dict)
    splits: bool = False


def load_experiment(name: str) -> Experiment:
    """Return the experiment that is registered as ``name``, or the one that ``python:module:NAME`` refers to.

    Raises:
        InputError: there is no such experiment; the message names the nearest.

    >>> load_experiment("gamma-w").title
    'DSCH by γ_w'
    """
    entry = look_up(studies.EXPERIMENTS, name, "experiment")
    experiment = import_module(f"{studies.__name__}.{entry}").EXPERIMENT if isinstance(entry, str) else entry
    if not isinstance(experiment, Experiment):
        raise InputError(f"experiment {name}: is not an Experiment; name a record of that module")
    return experiment


def make_grid(
    experiment: Experiment,
    base: Sections,
    bits: Sequence[int] | None = None,
    seeds: int = 3,
    losses: Sequence[str] = (),
    command: str = "",
) -> Grid:
    """Make the grid of an experiment.

    Args:
        experiment: see `load_experiment`.
        base: see `base.base_configuration`.
        bits: code lengths; the experiment's if None.
        seeds: runs of each cell.
        losses: names as in `choose_losses`, instead of the experiment's.
        command: the command that makes the grid again.

    Raises:
        InputError: a key is unknown, or losses are named and the experiment compares something else.

    >>> from channelhash.lab.experiments.base import base_configuration
    >>> make_grid(load_experiment("losses"), base_configuration("synthetic", Path("grid")), bits=[16], seeds=1).title
    'Losses by code length, synthetic'
    """
    if losses and not experiment.losses:
        raise InputError(f"--losses: experiment {experiment.name} does not take it; leave it out")
    compared = choose_losses(losses, experiment.losses) if losses else experiment.losses
    design = Design(base, bits or experiment.bits, range(seeds), compared, experiment.splits)
    trials = experiment.grid(replace(design, bits=[TRIAL_BITS], seeds=[0])) if experiment.trials else []
    title = f"{experiment.title}, {base.get('data', {}).get('kind')}"
    return Grid(experiment.name, title, command, tuple(experiment.grid(design)), tuple(trials))


def choose_losses(names: Sequence[str], losses: Losses) -> Losses:
    """Return the losses of these names, with the settings and method names of ``losses`` and `METHODS` where they are
    among those; ``NAME:published`` has its authors' settings (`losses.PUBLISHED`), ``NAME:recommended`` our weights.

    >>> list(choose_losses(["dsch", "dsch:recommended", "csq:published", "python:mymodule:MyLoss"], {}))
    ['DSCH', 'DSCH, recommended', 'csq, published', 'MyLoss']
    """
    chosen: dict[str, Mapping[str, Any]] = {}
    for name in (name.strip() for name in names):
        if not name:
            raise InputError("--losses: a name is missing; write it as dsch,rsch")
        name, form = (name, "") if is_python_name(name) else _name_and_form(name)
        default = (name.rpartition(":")[2], {"name": name})
        candidates = (*losses.items(), *METHODS.items())
        method, loss = next((known for known in candidates if known[1]["name"] == name), default)
        if form:
            method, loss = f"{method}, {form}", {"name": name, form: True}
        if method in chosen:
            raise InputError(f"--losses: two losses are called {method}; name each once")
        chosen[method] = loss
    return chosen


def _name_and_form(name: str) -> tuple[str, str]:
    bare, _, form = name.rpartition(":")
    return (bare, form) if form in ("published", "recommended") else (name, "")


def _slug(method: str) -> str:
    spelled = method.lower().translate(_SPELLED)
    plain = "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in spelled)
    return "-".join(part for part in plain.split("-") if part)


def write_outputs(experiment: Experiment, folder: Path) -> list[Path]:
    """Write the tables of a grid's folder to ``tables/``, plots to ``plots/``, every score to ``runs.csv``,
    every score of its trials to ``trials.csv``, and the AP of single queries to ``queries.npz``.

    Unfinished and failed runs are named in the tables.

    Returns:
        Paths of the tables.

    Raises:
        InputError: the folder is not a grid's, or a run was evaluated on other queries than the rest.
    """
    _, results = read_grid(folder)
    write_query_means(results, folder / "queries.npz")
    trials = {name: read_grid(folder / name)[1] for name in experiment.trials if (folder / name).exists()}
    tables = [*experiment.tables(results), *(experiment.trials[name](each) for name, each in trials.items())]
    paths = write_tables(tables, folder / "tables")
    write_runs({"": results}, folder / "runs.csv")  # with what the tables measured
    if trials:
        write_runs(trials, folder / "trials.csv")
    for name, figure in experiment.plots(results).items():
        write_figure(figure, folder / "plots", name)
    return paths
