"""From a run's folder to its codes and figures."""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import CodeSet
from channelhash.config import read_run_config
from channelhash.data.collection import load_collection
from channelhash.data.splits import load_splits
from channelhash.errors import InputError
from channelhash.metrics.code_files import evaluate_sets
from channelhash.models import load_model
from channelhash.runs.build import collection_features
from channelhash.runs.extend import database_codes, encode_rows, stored_codes
from channelhash.utils.device import pick_device
from channelhash.utils.files import write_text
from channelhash.utils.progress import StageProgress, no_stage_progress


def evaluate_run(
    folder: Path,
    split: str = "test",
    checkpoint: str = "last",
    leak_free: bool = False,
    progress: StageProgress = no_stage_progress,
) -> dict[str, Any]:
    """All figures of a finished run, for every task.

    The codes are written to ``codes/<split>-query.parquet`` and ``codes/<split>-retrieval.parquet``; codes that this
    very model has already written are not computed again. The figures of the test split after the last epoch, over the
    whole retrieval set, are written to ``metrics.json`` and their plots to ``plots/``; the plots of any other choice to
    a folder of their own below it (`plots_folder`).

    Args:
        folder: a run's folder.
        split: ``"test"`` (Q against R) or ``"validation"`` (V_q against V_r).
        checkpoint: ``"last"`` epoch, or ``"best"`` on validation.
        leak_free: leave the training rows out of the retrieval set (R∖T).
        progress: stage -> its callback.

    Returns:
        ``{"n_bits": k, "split": …, "checkpoint": …, "leak_free": …, "tasks": {task: figures}}``.
    """
    config = read_run_config(folder)
    codes = run_codes(folder, split, checkpoint, progress)
    database = codes.without_training_rows() if leak_free else codes.retrieval
    where = f"{folder}, {split} partition"
    tasks, histograms = evaluate_sets(codes.query, database, where, config.evaluate.cutoffs)
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
    write_plots(histograms, plots_folder(folder, split, checkpoint, leak_free), title)
    return result


@dataclass(frozen=True)
class RunCodes:
    """Codes of one split of a run.

    Attributes:
        query: Q or V_q.
        retrieval: R or V_r.
        trained: ``(len(retrieval),)`` bool, which of R are training rows; V_r has none.
    """

    query: CodeSet
    retrieval: CodeSet
    trained: NDArray[np.bool_]

    def without_training_rows(self) -> CodeSet:
        """R∖T.

        Raises:
            InputError: there are no training rows to leave out.
        """
        if not self.trained.any():
            raise InputError("--leak-free: the validation partition holds no training rows anyway; leave it out")
        return self.retrieval.take(np.flatnonzero(~self.trained))


def run_codes(
    folder: Path, split: str = "test", checkpoint: str = "last", progress: StageProgress = no_stage_progress
) -> RunCodes:
    """The codes of a finished run: from ``codes/`` if this very model has written them there, else they are now.

    In a run that extends another, old items of the retrieval set have their stored codes (`extend.stored_codes`).

    Args:
        folder: a run's folder.
        split: ``"test"`` or ``"validation"``.
        checkpoint: ``"last"`` epoch, or ``"best"`` on validation.
        progress: stage -> its callback.

    Raises:
        InputError: there is no such run, or the partition is empty.
    """
    config = read_run_config(folder)
    model = load_model(folder / "checkpoints" / "best") if checkpoint == "best" else load_model(folder)
    model.to(pick_device(config.train.device))
    collection = load_collection(config.sources)
    records = collection.records
    splits = load_splits(folder / "splits.json", records)
    if split == "test":
        rows = {"query": splits.query, "retrieval": splits.retrieval}
    else:
        rows = {"query": splits.validation_query, "retrieval": splits.validation_retrieval}
    if not all(len(part) for part in rows.values()):
        raise InputError(f"{folder / 'splits.json'}: the {split} partition is empty; train with fewer data.train rows")
    features = collection_features(model, collection, config.train, progress)
    feature_model, fingerprint = model.on_features(), model.fingerprint()
    name = split if checkpoint == "last" else f"{split}-{checkpoint}"
    codes = {}
    for role, part in rows.items():
        path = folder / "codes" / f"{name}-{role}.parquet"
        if path.exists() and (saved := CodeSet.load(path)).model == fingerprint and len(saved.ids) == len(part):
            codes[role] = saved
            continue
        stored, advance = stored_codes(folder) if role == "retrieval" else None, progress(f"encode {role}")
        encode = partial(encode_rows, feature_model, records, features, progress=advance, fingerprint=fingerprint)
        codes[role] = database_codes(stored, splits.retrieval, part, encode)
        codes[role].save(path)
    return RunCodes(codes["query"], codes["retrieval"], np.isin(rows["retrieval"], splits.train))


def query_outputs(folder: Path, progress: StageProgress = no_stage_progress) -> dict[str, NDArray[np.float32]]:
    """Modality -> real-valued outputs ``(nq, k)`` of a finished run's test queries, whose signs are their codes."""
    config, model = read_run_config(folder), load_model(folder)
    model.to(pick_device(config.train.device))
    collection = load_collection(config.sources)
    features = collection_features(model, collection, config.train, progress)
    splits = load_splits(folder / "splits.json", collection.records)
    queries, feature_model = features.take(splits.query), model.on_features()
    return {
        modality: feature_model.outputs(modality, queries.items[modality]).numpy()
        for modality in feature_model.modalities
    }


def plots_folder(folder: Path, split: str, checkpoint: str, leak_free: bool) -> Path:
    """Where a run's plots are: those of the figures in ``metrics.json`` in ``plots/`` itself."""
    parts = [split] * (split != "test") + [checkpoint] * (checkpoint != "last") + ["leak-free"] * leak_free
    return folder / "plots" / "-".join(parts)
