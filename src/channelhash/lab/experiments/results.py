"""The results of a grid's runs, as tables, tests and plots read them."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError
from channelhash.utils.decode import read_yaml_sections, reading
from channelhash.utils.files import write_text

#: A configuration as nested keys: section -> key -> value.
Sections = Mapping[str, Mapping[str, Any]]
_Key = TypeVar("_Key")
_Item = TypeVar("_Item")
_Status = Literal["finished", "failed", "missing"]

#: What tables, plots and pages read of every run's configuration: section -> key -> type.
_READ: dict[str, dict[str, type]] = {
    "data": {"kind": str},
    "loss": {"name": str},
    "model": {"name": str, "n_bits": int},
    "train": {"seed": int, "epochs": int, "batch_size": int},
}


@dataclass(frozen=True)
class Result:
    """One run of a grid.

    Attributes:
        name: stable name within the grid, e.g. ``"dsch-kq0.01-k32-seed0"``; also the run's folder.
        folder: the run's folder.
        method: what is compared, without code length and seed, e.g. ``"DSCH"`` or ``"SCH +
            quantisation"``.
        settings: the run's resolved configuration: section -> key -> value.
        status: ``"missing"`` means not run yet.
        error: why it failed, one line.
        epochs: checkpoint (``"last"``, ``"best"``) -> view (``"test"`` for R, ``"leak_free"`` for
            R∖T, ``"validation"``) -> task -> scores, as `metrics.evaluate` returns them.
        query_ap: (checkpoint, view, task) -> AP_T of each query ``(nq,)``, NaN without relevant
            items.
        seconds: wall time of the run.
        measured: what only some experiments measure, by name, as `measure` finds it.

    >>> scores = {"image->text": {"map_tie_aware": 0.84}}
    >>> epochs = {"last": {"test": scores}}
    >>> result = Result("dsch-k16-seed0", Path(), "DSCH", {}, "finished", epochs=epochs)
    >>> result.score("image->text"), result.tasks()
    (0.84, ['image->text'])
    """

    name: str
    folder: Path
    method: str
    settings: Sections
    status: _Status
    error: str = ""
    epochs: Mapping[str, Sections] = field(default_factory=dict)
    query_ap: Mapping[tuple[str, str, str], NDArray[np.float64]] = field(default_factory=dict)
    seconds: float = 0.0
    measured: dict[str, Any] = field(default_factory=dict)

    @property
    def n_bits(self) -> int:
        """Code length k."""
        return int(self.settings["model"]["n_bits"])

    @property
    def seed(self) -> int:
        """Seed of weights, order and dropout."""
        return int(self.settings["train"]["seed"])

    def score(
        self, task: str, name: str = "map_tie_aware", view: str = "test", checkpoint: str = "last"
    ) -> float:
        """Return one metric of a finished run; NaN where it is undefined."""
        value = self.epochs[checkpoint][view][task][name]
        return float("nan") if value is None else float(value)

    def tasks(self, view: str = "test", checkpoint: str = "last") -> Sequence[str]:
        """Return the names of the tasks that it was evaluated on, cross-modal ones first."""
        return list(self.epochs.get(checkpoint, {}).get(view, {}))

    def measure(self, name: str, find: Callable[[], Any]) -> Any:
        """Return what ``find`` finds of a finished run beside its scores; it is called once.

        The file ``name.json`` of the run's folder keeps it: a finished run never changes.

        >>> result = Result("run", Path(), "DSCH", {}, "finished", measured={"bytes": 8})
        >>> result.measure("bytes", dict)
        8
        """
        path = self.folder / f"{name}.json"
        if name not in self.measured:
            if not path.exists():
                write_text(path, json.dumps(find()))
            self.measured[name] = json.loads(path.read_text(encoding="utf-8"))
        return self.measured[name]

    def summary(self) -> dict[str, Any]:
        """Return what ``experiment --json`` prints of the run."""
        return {
            "name": self.name,
            "method": self.method,
            "loss": self.settings["loss"]["name"],
            "n_bits": self.n_bits,
            "seed": self.seed,
            "status": self.status,
            "error": self.error,
            "tasks": self.epochs["last"]["test"] if self.status == "finished" else {},
        }


def finished(results: Iterable[Result]) -> list[Result]:
    """Return the results of the runs that have finished."""
    return [result for result in results if result.status == "finished"]


def by_method(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Return the results of each method."""
    return group_by(results, lambda result: result.method)


def group_by(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    """Return the items of each key."""
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def cross_tasks(tasks: Iterable[str]) -> list[str]:
    """Return the tasks between two modalities, or all if there are none.

    >>> cross_tasks(["image->text", "image->image"]), cross_tasks(["image->image"])
    (['image->text'], ['image->image'])
    """
    every = list(tasks)
    return [task for task in every if len(set(task.split("->"))) == 2] or every


def _read_result(folder: Path, name: str, method: str, settings: Sections) -> Result:
    """Read the result of one run's folder below a grid; ``settings`` are those of a run that has
    not started.
    """
    run = folder / "runs" / name
    config = run / "config.yaml"
    if config.exists():
        problem = "not a run's configuration"
        settings = read_yaml_sections(config, problem)
        with reading(config, problem, _remedy(run)):
            _check_settings(settings)
    result = Result(name, run, method, settings, "missing")
    failed = run / "failed.txt"
    if (run / "result.json").exists():
        return _with_scores(result)
    if failed.exists():
        error = failed.read_text(encoding="utf-8", errors="replace").strip()
        return replace(result, status="failed", error=error)
    return result


def _with_scores(result: Result) -> Result:
    """Read the scores of a finished run."""
    run = result.folder
    arrays_path = run / "query_ap.npz"
    if not arrays_path.exists():
        raise InputError(f"{arrays_path}: is missing; {_remedy(run)}")
    path = run / "result.json"
    with reading(path, "not a result of this version", _remedy(run)):
        content = json.loads(path.read_text(encoding="utf-8"))
        epochs = content["epochs"]
        seconds = float(content["seconds"])
        for views in epochs.values():
            for tasks in views.values():
                for scores in tasks.values():
                    scores["map_tie_aware"] + 0.0  # a number, which tables need
        query_ap = {}
        with np.load(arrays_path) as arrays:
            for key in arrays.files:
                checkpoint, view, task = key.split("|")
                query_ap[checkpoint, view, task] = arrays[key]
    return replace(result, status="finished", epochs=epochs, query_ap=query_ap, seconds=seconds)


def _remedy(run: Path) -> str:
    """Say what to do about a run whose files cannot be read."""
    return f"remove the folder {run} to run it again"


def _check_settings(settings: Sections) -> None:
    for section, keys in _READ.items():
        for key, expected in keys.items():
            value = settings[section][key]
            if not isinstance(value, expected):
                raise ValueError(f"{section}.{key} is {value!r}")


def read_grid(folder: Path) -> tuple[str, list[Result]]:
    """Read the title and the results of a grid's folder, in the grid's order."""
    index = folder / "grid.json"
    if not index.exists():
        raise InputError(
            f"{folder}: not a grid's folder (no grid.json); give what `experiment` wrote"
        )
    with reading(index, "not a grid of this version", "run the experiment into a new folder"):
        grid = json.loads(index.read_text(encoding="utf-8"))
        title = str(grid["title"])
        for run in grid["runs"]:
            _check_settings(run["settings"])
        runs = [(str(run["name"]), str(run["method"]), run["settings"]) for run in grid["runs"]]
    return title, [_read_result(folder, name, method, settings) for name, method, settings in runs]


#: Digits of a hash that tell splits apart: 64 bits.
_DIGITS = 16


def write_runs(results: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Write one line for each run: hashes of its collection and splits, every score but curves,
    what `Result.measure` has found, and its configuration, of which paths are cut down to names.

    Columns of scores are named like ``last/test/image->text/map_tie_aware``.
    """
    rows = []
    for trials, each in results.items():
        rows += [_row(trials, result) for result in each]
    text = io.StringIO()
    columns = dict.fromkeys(chain.from_iterable(rows))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _row(trials: str, result: Result) -> dict[str, Any]:
    """Return what `write_runs` says of a run, by column."""
    data, splits = _split_hashes(result.folder)
    settings = {section: dict(values) for section, values in result.settings.items()}
    settings["train"].pop("device", None)
    return {
        "trials": trials,
        "run": result.name,
        "method": result.method,
        "n_bits": result.n_bits,
        "seed": result.seed,
        "status": result.status,
        "error": result.error,
        "data": data,
        "splits": splits,
        "seconds": result.seconds,
        "settings": json.dumps(_without_folders(settings), ensure_ascii=False),
        "measured": json.dumps(result.measured, ensure_ascii=False),
        **dict(_numbers(result.epochs)),
    }


def _without_folders(value: Any) -> Any:
    """Return nested settings with absolute paths cut down to names."""
    if isinstance(value, Mapping):
        return {key: _without_folders(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_folders(each) for each in value]
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name
    return value


def _split_hashes(run: Path) -> tuple[str, str]:
    """Return the hashes of a run's collection and of the rows of its splits; empty for what was not
    trained.
    """
    path = run / "splits.json"
    if not path.exists():
        return "", ""
    with reading(path, "no splits of this version", _remedy(run)):
        splits = json.loads(path.read_text(encoding="utf-8"))
        return splits["data_hash"][:_DIGITS], splits["rows_hash"][:_DIGITS]


def _numbers(scores: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield (path, value) of every number in nested scores; lists, which are curves, are left
    out.
    """
    for key, value in scores.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{prefix}{key}/")
        elif isinstance(value, int | float):
            yield f"{prefix}{key}", value
