"""Running a grid of trainings: none twice, several at once, and one failure stops no other."""

import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
import yaml
from numpy.typing import NDArray

from channelhash.config import RunConfig, make_config, read_config
from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result, read_grid
from channelhash.metrics.code_files import evaluate_sets
from channelhash.runs.distill import distill, load_teacher
from channelhash.runs.evaluate import run_codes
from channelhash.runs.train import start_run
from channelhash.utils.environment import usable_cores
from channelhash.utils.files import atomic_path, locked, write_text

Say = Callable[[str], None]
#: Of one task: AP_T of each query, and its figures by name.
Evaluated = tuple[NDArray[np.float64], Mapping[str, Any]]


@dataclass(frozen=True)
class GridRun:
    """One training of a grid.

    Attributes:
        name: stable; also the run's folder below ``runs/``.
        method: what is compared, without code length and seed.
        config: what to train.
        teacher: folder of the finished run whose codes are learned; None learns from labels.
    """

    name: str
    method: str
    config: RunConfig
    teacher: Path | None = None


@dataclass(frozen=True)
class Grid:
    """Trainings that are compared.

    Attributes:
        name: which experiment it is, key of `definitions.GRIDS`.
        title: what is asked, in words.
        command: the command that makes it again.
        runs: the trainings, in the order of the tables.
    """

    name: str
    title: str
    command: str
    runs: tuple[GridRun, ...]


def run_grid(
    grid: Grid, folder: Path, jobs: int = 1, devices: Sequence[str] = (), say: Say = lambda line: None
) -> list[Result]:
    """Train and evaluate whatever of ``grid`` is not finished in ``folder``; gives all its results.

    Each run is a folder ``runs/<name>`` as `train.start_run` or `distill` makes it, with ``result.json`` and
    ``query_ap.npz`` beside. A run that was interrupted goes on at its last checkpoint; one that failed is tried again
    by the next call.

    Args:
        grid: what to run.
        folder: the grid's folder.
        jobs: runs at once, each in a process of its own if there are several.
        devices: handed out to the jobs in turn, e.g. ``("cuda:0", "cuda:1")``; none takes ``train.device``.
        say: called with a line a run.

    Raises:
        InputError: the data is not there, another process works in the folder, or a run of the same name was made with
            another configuration.
    """
    _refuse_missing_data(grid)
    folder.mkdir(parents=True, exist_ok=True)
    with _only_here(folder):
        _refuse_others(grid, folder)
        listed = [
            {"name": run.name, "method": run.method, "settings": yaml.safe_load(run.config.to_yaml())}
            for run in grid.runs
        ]
        index = {"experiment": grid.name, "title": grid.title, "command": grid.command, "runs": listed}
        write_text(folder / "grid.json", json.dumps(index, indent=2))
        todo = [run for run in grid.runs if not (folder / "runs" / run.name / "result.json").exists()]
        say(f"{len(grid.runs)} runs, {len(grid.runs) - len(todo)} of them finished before")
        began = time.perf_counter()
        for done, (name, error) in enumerate(_outcomes(todo, folder, jobs, devices), start=1):
            left = (time.perf_counter() - began) / done * (len(todo) - done)
            said = f"failed: {error}" if error else "finished"
            say(f"{done}/{len(todo)} {name} {said}; about {left / 60:.0f} min left")
        return read_grid(folder)[1]


def run_and_evaluate(name: str, configuration: str, folder: Path, teacher: Path | None = None) -> str:
    """Train one run and write its results; gives an error in one line, or an empty string.

    ``configuration`` is `RunConfig.to_yaml`'s text: settings classes are made at run time and cannot be sent to another
    process. ``teacher`` is `GridRun`'s.
    """
    place = folder / "runs" / name
    (place / "failed.txt").unlink(missing_ok=True)
    try:
        began = time.perf_counter()
        begun = (place / "config.yaml").exists()
        # An interrupted run goes on where it was, also on the device that it had then.
        text = (place / "config.yaml").read_text(encoding="utf-8") if begun else configuration
        config = make_config(yaml.safe_load(text))
        if teacher is None:
            start_run(config, place, resume=begun)
        else:
            distill(load_teacher(teacher), config, place, resume=begun)
        _write_results(config, place, began)
    except Exception as error:  # whatever it is, the other runs go on and the tables show it
        line = " ".join(f"{type(error).__name__}: {error}".split())
        write_text(place / "failed.txt", line)
        return line
    return ""


def _write_results(config: RunConfig, place: Path, began: float) -> None:
    """Figures of the last and the best epoch: on the test split over R and R∖T, and on validation."""
    epochs: dict[str, dict[str, dict[str, Evaluated]]] = {}
    best = (place / "checkpoints" / "best").exists()
    for checkpoint in ("last", "best") if best else ("last",):
        views = {}
        test = run_codes(place, "test", checkpoint)
        views["test"] = (test.query, test.retrieval)
        if not test.trained.all():
            views["leak_free"] = (test.query, test.without_training_rows())
        if best:
            validation = run_codes(place, "validation", checkpoint)
            views["validation"] = (validation.query, validation.retrieval)
        epochs[checkpoint] = {}
        for view, (query, database) in views.items():
            tasks, histograms = evaluate_sets(query, database, f"{place}, {view}", config.evaluate.cutoffs)
            epochs[checkpoint][view] = {
                task: (histograms[task].average_precision(), figures) for task, figures in tasks.items()
            }
    write_result(place, epochs, round(time.perf_counter() - began, 2))


def write_result(
    place: Path, epochs: Mapping[str, Mapping[str, Mapping[str, Evaluated]]], seconds: float = 0.0
) -> None:
    """Write ``result.json`` and ``query_ap.npz`` into a run's folder, as `results.read_result` reads them.

    Args:
        place: the run's folder.
        epochs: checkpoint -> view -> task -> (AP of each query, figures).
        seconds: wall time of the run.
    """
    query_ap = {
        f"{checkpoint}|{view}|{task}": average_precision
        for checkpoint, views in epochs.items()
        for view, tasks in views.items()
        for task, (average_precision, _) in tasks.items()
    }
    figures = {
        checkpoint: {view: {task: found for task, (_, found) in tasks.items()} for view, tasks in views.items()}
        for checkpoint, views in epochs.items()
    }
    with atomic_path(place / "query_ap.npz") as path, open(path, "wb") as file:
        np.savez(file, **query_ap)  # type: ignore[arg-type]  # its stub takes any keyword for allow_pickle
    # Last: its being there means that the run is finished.
    write_text(place / "result.json", json.dumps({"epochs": figures, "seconds": seconds}))


def _outcomes(runs: Sequence[GridRun], folder: Path, jobs: int, devices: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, error) of each run as it ends."""
    placed = [_on(run, devices[i % len(devices)]) if devices else run for i, run in enumerate(runs)]
    if jobs == 1:
        for run in placed:
            yield run.name, run_and_evaluate(run.name, run.config.to_yaml(), folder, run.teacher)
        return
    waiting = list(placed)
    while waiting:
        started: dict[Future[str], GridRun] = {}
        threads = max(1, usable_cores() // jobs)
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_job, (threads,)) as pool:
            started = {
                pool.submit(run_and_evaluate, run.name, run.config.to_yaml(), folder, run.teacher): run
                for run in waiting
            }
            for future in as_completed(started):
                run = started[future]
                try:
                    error = future.result()
                except BrokenProcessPool:
                    continue  # one of the jobs was killed: which one, its unfinished folder tells below
                waiting.remove(run)
                yield run.name, error
        if waiting and len(waiting) == len(started):
            # Nothing ended before a process died: the first run is what kills it.
            run = waiting.pop(0)
            error = "its process was killed (out of memory?); lower --jobs"
            write_text(folder / "runs" / run.name / "failed.txt", error)
            yield run.name, error


def _start_job(threads: int) -> None:
    torch.set_num_threads(threads)
    # Numba's loops would set PyTorch's number of threads back to all cores.
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]  # set on import
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A job whose grid was killed ends too: it would hold the folders of runs that the next call goes on with."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _on(run: GridRun, device: str) -> GridRun:
    train = run.config.train.model_copy(update={"device": device})
    return replace(run, config=replace(run.config, train=train))


def _refuse_missing_data(grid: Grid) -> None:
    for run in grid.runs:
        for key in ("path", "root"):
            place = getattr(run.config.source, key, None)
            if isinstance(place, Path) and run.config.kind != "synthetic" and not place.exists():
                raise InputError(f"data.{key}: {place}: no such file or folder; give the data's place with --data")


def _refuse_others(grid: Grid, folder: Path) -> None:
    names = [run.name for run in grid.runs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two runs of the grid are called {min(twice)!r}")
    for run in grid.runs:
        path = folder / "runs" / run.name / "config.yaml"
        if path.exists() and _without_device(read_config(path)) != _without_device(run.config):
            raise InputError(
                f"{path}: this run was made with another configuration or version; choose another --out, or remove "
                f"the folder {path.parent}"
            )


def _without_device(config: RunConfig) -> list[str]:
    return [line for line in config.to_yaml().splitlines() if not line.strip().startswith("device:")]


@contextmanager
def _only_here(folder: Path) -> Iterator[None]:
    try:
        with locked(folder / ".lock", wait=False):
            yield
    except BlockingIOError:
        raise InputError(f"{folder}: another process is running this grid; wait for it to end") from None
