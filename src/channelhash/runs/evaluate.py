"""Evaluate a run: its codes and its scores."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import CodeSet
from channelhash.config import read_run_config
from channelhash.data.splits import Rows
from channelhash.errors import InputError
from channelhash.metrics.code_files import evaluate_sets
from channelhash.models.encode_records import encode_records
from channelhash.runs.folder import open_run
from channelhash.runs.stored_codes import database_codes, stored_codes
from channelhash.training.feature_inputs import collection_features
from channelhash.utils.files import sweep, write_text
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.python_names import trusting
from channelhash.utils.typed_settings import pick

#: split -> what the names of its parts in `Splits` begin with.
_PREFIXES = {"test": "", "validation": "validation_"}


def evaluate(
    run: str | PathLike[str],
    split: str = "test",
    *,
    checkpoint: str = "last",
    leak_free: bool = False,
    trust_code: bool = False,
    progress: StageProgress = no_stage_progress,
    conventions: Sequence[str] = (),
) -> dict[str, dict[str, Any]]:
    """Return task -> all scores of a finished run, as ``channelhash evaluate`` does.

    Args:
        run: what `ch.train` returned, or a run's folder.
        trust_code: consent to run code of this machine that the run's folder names (``python:module:NAME``). The other
            arguments are those of `evaluate_run`.

    Raises:
        InputError: there is no such run, the split is empty, there are no training rows to leave out, or the run names
            code and ``trust_code`` is false.

    Example::

        ch.evaluate("runs/table")["text->image"]["map_tie_aware"]
    """
    with trusting(trust_code):
        result = evaluate_run(Path(run), split, checkpoint, leak_free, progress, conventions)
    tasks: dict[str, dict[str, Any]] = result["tasks"]
    return tasks


def evaluate_run(
    folder: Path,
    split: str = "test",
    checkpoint: str = "last",
    leak_free: bool = False,
    progress: StageProgress = no_stage_progress,
    conventions: Sequence[str] = (),
) -> dict[str, Any]:
    """Compute all scores of a finished run, for every task: without labels those of instance retrieval.

    The codes are written to ``codes/<split>-query.parquet`` and ``codes/<split>-retrieval.parquet``; codes that this
    very model has already written are not computed again. The scores of the test split after the last epoch, over the
    whole retrieval set, are written to ``metrics.json`` and their plots to ``plots/``; the plots of any other choice to
    a folder of their own below it (`plots_folder`).

    Args:
        folder: a run's folder.
        split: ``"test"`` (Q against R) or ``"validation"`` (V_q against V_r).
        checkpoint: ``"last"`` epoch, or ``"best"`` on validation.
        leak_free: leave the training rows out of the retrieval set (R∖T).
        progress: stage -> its callback.
        conventions: as in `metrics.evaluate`.

    Returns:
        ``{"n_bits": k, "split": …, "checkpoint": …, "leak_free": …, "tasks": {task: scores}}``.

    Raises:
        InputError: see `run_codes` and `RunCodes.without_training_rows`.
    """
    config = read_run_config(folder)
    sweep(folder)
    codes = run_codes(folder, split, checkpoint, progress)
    database = codes.without_training_rows() if leak_free else codes.retrieval
    where = f"{folder}, {split} partition"
    tasks, histograms = evaluate_sets(codes.query, database, where, config.evaluate.cutoffs, conventions)
    result = {
        "n_bits": config.n_bits,
        "split": split,
        "checkpoint": checkpoint,
        "leak_free": leak_free,
        "tasks": tasks,
    }
    if split == "test" and checkpoint == "last" and not leak_free:
        write_text(folder / "metrics.json", json.dumps(result, indent=2))
    from channelhash.metrics.plots import write_plots  # matplotlib: nothing else here needs it

    rows_left_out = ", training rows left out" if leak_free else ""
    title = f"{folder.resolve().name}, {split} split, {checkpoint} epoch{rows_left_out}"
    if histograms:
        write_plots(histograms, plots_folder(folder, split, checkpoint, leak_free), title)
    return result


@dataclass(frozen=True)
class RunCodes:
    """The codes of one split of a run.

    Attributes:
        query: Q or V_q.
        retrieval: R or V_r.
        trained: ``(len(retrieval),)`` bool, which of R are training rows; V_r has none.

    >>> codes = CodeSet(["a", "b"], {"text": np.array([[1], [2]], np.uint8)}, None, n_bits=8)
    >>> RunCodes(codes, codes, np.array([True, False])).without_training_rows().ids
    ('b',)
    """

    query: CodeSet
    retrieval: CodeSet
    trained: NDArray[np.bool_]

    def without_training_rows(self) -> CodeSet:
        """Return the codes of R∖T.

        Raises:
            InputError: there are no training rows to leave out.
        """
        if not self.trained.any():
            raise InputError("--leak-free: the validation partition holds no training rows anyway; leave it out")
        return self.retrieval.take(np.flatnonzero(~self.trained))


def run_codes(
    folder: Path, split: str = "test", checkpoint: str = "last", progress: StageProgress = no_stage_progress
) -> RunCodes:
    """Return the codes of a finished run: from ``codes/`` if this very model has written them, else computed now.

    In a run that extends another, old items of the retrieval set have their stored codes (see `stored_codes`).

    Args:
        folder: a run's folder.
        split: ``"test"`` or ``"validation"``.
        checkpoint: ``"last"`` epoch, or ``"best"`` on validation.
        progress: stage -> its callback.

    Raises:
        InputError: there is no such run, no split of that name, or it is empty.
    """
    prefix = pick(_PREFIXES, split, "split")
    run = open_run(folder, checkpoint)
    splits = run.splits
    rows = {role: getattr(splits, prefix + role) for role in ("query", "retrieval")}
    if not all(len(part) for part in rows.values()):
        raise InputError(f"{folder / 'splits.json'}: the {split} partition is empty; train with fewer data.train rows")
    features = collection_features(run.model, run.collection, run.config.train, progress)
    feature_model, fingerprint = run.model.on_features(), run.model.fingerprint()

    def encode(role: str, part: Rows) -> CodeSet:
        return encode_records(feature_model, features.take(part), progress(f"encode {role}"), fingerprint)

    name = split if checkpoint == "last" else f"{split}-{checkpoint}"
    codes = {}
    for role, part in rows.items():
        path = folder / "codes" / f"{name}-{role}.parquet"
        if path.exists() and (saved := CodeSet.load(path)).model == fingerprint and len(saved.ids) == len(part):
            codes[role] = saved
            continue
        stored = stored_codes(folder) if role == "retrieval" else None
        codes[role] = database_codes(stored, splits.retrieval, part, partial(encode, role))
        codes[role].save(path)
    return RunCodes(codes["query"], codes["retrieval"], np.isin(rows["retrieval"], splits.train))


def plots_folder(folder: Path, split: str, checkpoint: str, leak_free: bool) -> Path:
    """Return the folder of a run's plots; those of the scores in ``metrics.json`` are in ``plots/`` itself.

    >>> plots_folder(Path("run"), "test", "last", leak_free=False).as_posix()
    'run/plots'
    >>> plots_folder(Path("run"), "validation", "best", leak_free=False).as_posix()
    'run/plots/validation-best'
    """
    parts = [split] * (split != "test") + [checkpoint] * (checkpoint != "last") + ["leak-free"] * leak_free
    return folder / "plots" / "-".join(parts)
