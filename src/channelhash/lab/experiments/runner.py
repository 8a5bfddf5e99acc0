"""Run a grid of trainings: none twice, several at once, and one failure stops no other."""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from filecmp import cmp
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from channelhash.codes import CodeSet
from channelhash.config import RunConfig, make_config, read_run_config
from channelhash.data.collection import Collection, loaded_once
from channelhash.data.splits import Splits
from channelhash.errors import InputError, argument
from channelhash.lab.experiments.results import Result, read_grid
from channelhash.metrics.report import evaluate_sets
from channelhash.models.backbones import weights_source
from channelhash.runs.evaluate import run_codes
from channelhash.runs.folder import check_contents
from channelhash.runs.plan import plan_run
from channelhash.runs.train import start_run
from channelhash.utils.compiled import limit_threads
from channelhash.utils.files import atomic_path, sweep, write_text
from channelhash.utils.locks import locked_folder
from channelhash.utils.machine import hold_interrupts, process_pool, usable_cores
from channelhash.utils.progress import StageProgress, no_stage_progress, note
from channelhash.utils.typed_settings import (
    check_trusted,
    failing_code,
    failing_line,
    python_names,
    trusting,
)

#: What the process of a job is in until it ends.
_JOB = ExitStack()
#: File of a model's weights in its folder.
_WEIGHTS = "model.safetensors"


class GridRun(NamedTuple):
    """One training of a grid.

    Attributes:
        name: stable name, also of the run's folder below ``runs/``.
        method: what is compared, without code length and seed.
        config: what to train.
    """

    name: str
    method: str
    config: RunConfig

    def with_training(self, **settings: Any) -> "GridRun":
        """Return the run with other settings of the section ``train``."""
        return self._replace(
            config=replace(self.config, train=self.config.train.model_copy(update=settings))
        )


class Grid(NamedTuple):
    """Trainings that are compared.

    Attributes:
        name: the experiment that they belong to, key of `studies.EXPERIMENTS`.
        title: what is compared, in words.
        command: the command that makes the grid again.
        runs: the trainings, in the order of the tables.
        trials: a run of each method, which trials of its settings start from; empty where nothing
            is tuned.
        only_validation: the runs are trials, which see nothing of the test.
        seen: splits of the trials that chose settings; the view ``"apart"`` is R∖T without their
            validation rows, also of queries. None evaluates no such view.
    """

    name: str
    title: str
    command: str
    runs: tuple[GridRun, ...]
    trials: tuple[GridRun, ...] = ()
    only_validation: bool = False
    seen: Path | None = None

    @property
    def python_names(self) -> list[str]:
        """Names of a person's own code in the configurations; the files of these runs may hold
        them.
        """
        names = []
        for run in (*self.runs, *self.trials):
            names += run.config.python_names
        return names

    def at_least(self, steps: int) -> "Grid":
        """Return the grid with as many epochs as take so many steps, and validation after the last;
        all runs are of one collection and number of training rows. 0 changes nothing.
        """
        if not steps:
            return self
        _refuse_missing_files(self)
        config = self.runs[0].config
        with trusting(self.python_names):
            rows = config.split.draw(Collection.load(config.sources).records).train
        epochs = math.ceil(steps / max(1, len(rows) // config.train.batch_size))
        training = {"epochs": epochs, "validate_every": epochs, "checkpoint_every": epochs}
        return self._replace(
            runs=tuple(run.with_training(**training) for run in self.runs),
            trials=tuple(run.with_training(**training) for run in self.trials),
        )

    def plan(self, trials: Sequence[GridRun] = ()) -> list[dict[str, Any]]:
        """Return what the runs and all ``trials`` take, from `plan_run` of the first run of each
        model; only drawn data is written.
        """
        _refuse_missing_files(self)
        models: dict[str, list[GridRun]] = {}
        for run in (*self.runs, *trials):
            models.setdefault(run.config.model_name, []).append(run)
        with trusting(self.python_names):
            return [
                {"title": self.title, "model": name, "runs": len(runs), **plan_run(runs[0].config)}
                for name, runs in models.items()
            ]


@dataclass(frozen=True)
class Execution:
    """How the runs of a grid are carried out.

    Attributes:
        jobs: runs at once, each in a process of its own if there are several.
        devices: handed out to the jobs in turn, e.g. ``("cuda:0", "cuda:1")``; ``train.device`` if
            empty.
        notify: called with a line about each run.
        progress: gets the stage of all runs.
    """

    jobs: int = 1
    devices: Sequence[str] = ()
    notify: Callable[[str], None] = lambda line: None
    progress: StageProgress = no_stage_progress


def run_grid(grid: Grid, folder: Path, execution: Execution = Execution()) -> list[Result]:
    """Train and evaluate the runs of a grid that are not finished in ``folder``; return the results
    of all.

    Each run is a folder ``runs/<name>`` as `start_run` makes it, with ``result.json`` and
    ``query_ap.npz``. An interrupted run goes on at its last checkpoint; a failed one is tried again
    by the next call.
    """
    _refuse_missing_files(grid)
    folder.mkdir(parents=True, exist_ok=True)
    with trusting(grid.python_names), locked_folder(folder, "running this grid"):
        sweep(folder)
        _refuse_other_runs(grid, folder)
        _refuse_other_data(grid, folder)
        listed = [
            {"name": run.name, "method": run.method, "settings": run.config.sections()}
            for run in grid.runs
        ]
        index = {
            "experiment": grid.name,
            "title": grid.title,
            "command": grid.command,
            "runs": listed,
        }
        write_text(folder / "grid.json", json.dumps(index, indent=2))
        unfinished = [
            run for run in grid.runs if not (folder / "runs" / run.name / "result.json").exists()
        ]
        before = len(grid.runs) - len(unfinished)
        execution.notify(f"{grid.title}: {len(grid.runs)} runs, {before} of them finished before")
        progress = execution.progress("runs")
        progress(0, len(unfinished))
        inner = replace(
            execution, progress=lambda stage: lambda i, n: note(progress, f"{stage} {i:,}/{n:,}")
        )
        outcomes = _outcomes(unfinished, folder, inner, grid)
        for done, (name, error) in enumerate(outcomes, start=1):
            execution.notify(
                f"{done}/{len(unfinished)} {name} {f'failed: {error}' if error else 'finished'}"
            )
            progress(done, len(unfinished))
        return read_grid(folder)[1]


def _run_and_evaluate(
    name: str,
    configuration: str,
    folder: Path,
    progress: StageProgress = no_stage_progress,
    only_validation: bool = False,
    seen: Path | None = None,
) -> str:
    """Train one run and write its results; return an error in one line, or an empty string.

    ``configuration`` is the text of `RunConfig.to_yaml`: settings classes are made at run time and
    cannot be sent to another process.
    """
    run = folder / "runs" / name
    (run / "failed.txt").unlink(missing_ok=True)
    try:
        start = time.perf_counter()
        resume = (run / "config.yaml").exists()
        # An interrupted run goes on where it was, also on the device that it had then.
        requested = yaml.safe_load(configuration)
        sections = (
            yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
            if resume
            else requested
        )
        with trusting(python_names(requested)):
            check_trusted(sections, run / "config.yaml")
            config = make_config(sections)
            _check_labelled(config)
            start_run(config, run, resume, progress)
            _evaluate(config, run, start, only_validation, seen)
    except Exception as error:  # whatever it is, the other runs go on and the tables show it
        cause = failing_line(error) or failing_code(error, yaml.safe_load(configuration))
        line = " ".join((cause or f"{type(error).__name__}: {error}").split())
        write_text(run / "failed.txt", line)
        return line
    return ""


def _check_labelled(config: RunConfig) -> None:
    if not Collection.load(config.sources).records.label_names:
        raise InputError(
            "an experiment compares mAP by labels, this collection has none; train and evaluate "
            "each run"
        )


def _evaluate(
    config: RunConfig,
    run: Path,
    start: float,
    only_validation: bool = False,
    seen: Path | None = None,
) -> None:
    """Score the last and the best epoch in every view.

    Write ``result.json`` and ``query_ap.npz`` into the run's folder, as `results.read_grid` reads
    them; ``start`` is the time when the run began.
    """
    query_ap: dict[str, NDArray[np.float64]] = {}
    epochs: dict[str, dict[str, Mapping[str, Any]]] = {}
    best = run / "checkpoints" / "best"
    for checkpoint in ("last", "best") if best.exists() else ("last",):
        if checkpoint == "best" and cmp(best / _WEIGHTS, run / "model" / _WEIGHTS, shallow=False):
            epochs["best"] = epochs["last"]
            query_ap |= {place.replace("last", "best", 1): ap for place, ap in query_ap.items()}
            break
        epochs[checkpoint] = {}
        for view, sets in _views(run, checkpoint, only_validation, seen).items():
            tasks, histograms = evaluate_sets(*sets, f"{run}, {view}", config.evaluate.cutoffs)
            epochs[checkpoint][view] = tasks
            for task in tasks:
                place = f"{checkpoint}|{view}|{task}"
                query_ap[place] = histograms[task].average_precision()
    with atomic_path(run / "query_ap.npz") as path, open(path, "wb") as file:
        # Without allow_pickle, which NumPy has from 2.1 on; 2.0 would write it as an array.
        np.savez(file, **query_ap)  # type: ignore[arg-type]
    # Written last: a run with this file is finished.
    result = {"epochs": epochs, "seconds": round(time.perf_counter() - start, 2)}
    write_text(run / "result.json", json.dumps(result))


def _views(
    run: Path, checkpoint: str, only_validation: bool, seen: Path | None
) -> dict[str, tuple[CodeSet, CodeSet]]:
    """Return queries and database of each view: the test split over R, R∖T and R∖T apart from what
    trials have seen, and validation, or validation alone.
    """
    views = {}
    if not only_validation:
        test = run_codes(run, "test", checkpoint)
        views["test"] = test.query, test.retrieval
        if not test.trained.all():
            views["leak_free"] = test.query, test.without_training_rows()
        if seen:
            ids = _validated_ids(run, seen)
            database = test.without_training_rows()
            views["apart"] = _without(test.query, ids), _without(database, ids)
    if (run / "checkpoints" / "best").exists():
        validation = run_codes(run, "validation", checkpoint)
        views["validation"] = validation.query, validation.retrieval
    return views


def _without(codes: CodeSet, ids: Sequence[str]) -> CodeSet:
    """Return codes without those of some ids."""
    return codes.take(np.flatnonzero(~np.isin(codes.ids, ids)))


def _validated_ids(run: Path, seen: Path) -> list[str]:
    """Return the ids of the validation rows of other splits of a run's collection."""
    records = Collection.load(read_run_config(run).sources).records
    splits = Splits.load(seen, records)
    rows = np.concatenate([splits.validation_query, splits.validation_retrieval])
    return [records.ids[row] for row in rows]


def _outcomes(
    runs: Sequence[GridRun], folder: Path, execution: Execution, grid: Grid
) -> Iterator[tuple[str, str]]:
    """Yield (name, error) of each run as it ends; progress is that of a run's stages, in this
    process only.
    """
    devices = execution.devices
    work = partial(
        _run_and_evaluate,
        folder=folder,
        only_validation=grid.only_validation,
        seen=grid.seen,
    )
    waiting = [
        run.with_training(device=devices[i % len(devices)]) if devices else run
        for i, run in enumerate(runs)
    ]
    if execution.jobs == 1:
        with loaded_once():
            for run in waiting:
                yield run.name, work(run.name, run.config.to_yaml(), progress=execution.progress)
        return
    while waiting:
        n_waiting = len(waiting)
        yield from _finish_jobs(waiting, work, execution.jobs)
        if len(waiting) == n_waiting:
            # Nothing ended before a process died: the first run is what kills it.
            run = waiting.pop(0)
            error = "its process was killed (out of memory?); lower the number of jobs"
            write_text(folder / "runs" / run.name / "failed.txt", error)
            yield run.name, error


def _finish_jobs(
    waiting: list[GridRun], work: Callable[..., str], jobs: int
) -> Iterator[tuple[str, str]]:
    """Carry out runs in processes, and yield (name, error) of each as it ends; those that a killed
    process leaves stay in ``waiting``.
    """
    threads = max(1, usable_cores() // jobs)
    with process_pool(jobs, _start_job, (threads,)) as pool:
        with hold_interrupts():
            started = {pool.submit(work, run.name, run.config.to_yaml()): run for run in waiting}
        for future in as_completed(started):
            run = started[future]
            try:
                error = future.result()
            except BrokenProcessPool:
                continue  # one of the jobs was killed; its unfinished folder shows which
            waiting.remove(run)
            yield run.name, error


def _start_job(threads: int) -> None:
    torch.set_num_threads(threads)
    limit_threads(threads)
    _JOB.enter_context(loaded_once())


def _refuse_missing_files(grid: Grid) -> None:
    for run in grid.runs:
        for key in ("path", "root"):
            path = getattr(run.config.source, key, None)
            if isinstance(path, Path) and run.config.kind != "synthetic" and not path.exists():
                raise InputError(
                    f"data.{key}: {path}: no such file or folder; give the data's place with "
                    f"{argument('data')}"
                )
        words = getattr(run.config.model, "word_vectors", None)
        if isinstance(words, Path) and not words.is_file():
            raise InputError(
                f"model.word_vectors: {words}: no such file; give the word vectors of Google News, "
                f"or others in word2vec's format, with {argument('overrides')} "
                "model.word_vectors=FILE"
            )
        weights_source(getattr(run.config.model, "pretrained", None))


def _refuse_other_runs(grid: Grid, folder: Path) -> None:
    names = [run.name for run in grid.runs]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise InputError(
            f"two runs of the grid are called {min(repeated)!r}; give each method another name"
        )
    for run in grid.runs:
        path = folder / "runs" / run.name / "config.yaml"
        if path.exists() and _without_device(read_run_config(path.parent)) != _without_device(
            run.config
        ):
            raise InputError(
                f"{path}: this run was made with another configuration or version; choose another "
                f"{argument('folder')}, or remove the folder {path.parent}"
            )


def _refuse_other_data(grid: Grid, folder: Path) -> None:
    """Refuse to put new runs beside those that were made from other data."""
    with loaded_once():
        for run in grid.runs:
            check_contents(folder / "runs" / run.name, run.config)


def _without_device(config: RunConfig) -> list[str]:
    return [
        line for line in config.to_yaml().splitlines() if not line.strip().startswith("device:")
    ]
