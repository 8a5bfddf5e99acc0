"""Evaluate a run: its codes and its scores."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import permutations
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from channelhash.codes import CodeSet, PackedCodes, binarize, pack
from channelhash.codes.stage import Stage
from channelhash.config import TrainSettings, read_run_config
from channelhash.data.folder import load_any
from channelhash.data.records import Records
from channelhash.data.splits import RowNumbers
from channelhash.errors import InputError, argument
from channelhash.metrics.recall import FirstGroup, counterparts
from channelhash.metrics.report import evaluate_sets
from channelhash.models import load_model
from channelhash.models.description import Model
from channelhash.models.hash_model import HashModel, encode_records
from channelhash.models.photo import WEIGHTS
from channelhash.runs.extend import database_codes, stored_codes
from channelhash.runs.folder import OpenedRun, open_run
from channelhash.search import open_store
from channelhash.search.rank import FIRST
from channelhash.training.inputs import collection_features, feature_records
from channelhash.utils.files import sweep, write_text
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.typed_settings import pick, trusting

#: Ranking -> task -> ``recall_at`` and ``median_rank``.
_TaskScores = dict[str, dict[str, dict[str, Any]]]

#: The two modalities of a pair.
_SIDES = ("text", "image")


def evaluate_pairs(
    model_path: str | Path,
    data: Path,
    images: int | None = None,
    checkpoint: str = "last",
    progress: StageProgress = no_stage_progress,
) -> dict[str, Any]:
    """Compute Recall@1, 5 and 10 and the median rank of counterparts, for rankings by real values,
    by bits, and by bits with int8 values.

    The rows of ``data`` search each other. Rows that are also in the collection of a run may have
    been learned from: of these, only its test queries search.
    """
    model, run = _open_model(model_path, checkpoint)
    records = load_any(data)
    for side in _SIDES:
        if not (side in records.items and side in model.modalities):
            raise InputError(f"{data}: images are to find texts, but data or model have no {side}s")
    asking = np.flatnonzero(~_known_rows(records, run))
    names = np.array(records.pair_ids)
    ids = list(dict.fromkeys(names[asking]))
    size = images or len(ids)
    if not size or len(ids) < size:
        raise InputError(
            f"{data}: {len(ids)} images to ask for, of {len(set(names))}; name a table that has "
            "more"
        )
    outputs = _outputs(model, records, run.config.train if run else TrainSettings(), progress)
    lengths = sorted({model.n_bits, *model.architecture.get("nested", ())}, reverse=True)
    stage = model.corrected_stage()
    tests: list[_TaskScores] = []
    for start in range(0, len(ids) - size + 1, size):
        rows = asking[np.isin(names[asking], ids[start : start + size])]
        values = {side: outputs[side][rows] for side in _SIDES}
        tests.append(_rankings(values, names[rows], lengths, stage))
    return {"n_bits": model.n_bits, "images": size, "tests": len(tests), "rankings": _mean(tests)}


def _open_model(path: str | Path, checkpoint: str) -> tuple[Model, OpenedRun | None]:
    """Return a model, and its run if ``path`` is the folder of one."""
    if (Path(path) / "config.yaml").exists():
        run = open_run(Path(path), checkpoint)
        return run.model, run
    return load_model(WEIGHTS if str(path) == "photo" else path), None


def _outputs(
    model: Model, records: Records, settings: TrainSettings, progress: StageProgress
) -> dict[str, NDArray[Any]]:
    """Return the model's real values of images and texts, a row a record."""
    if not isinstance(model, HashModel):
        return {
            side: model.outputs(side, records.items[side], progress(f"encode {side}s"))
            for side in _SIDES
        }
    on_disk = feature_records(model, records, settings, progress)
    features = on_disk.take(np.arange(len(records)))
    feature_model = model.on_features()
    return {side: feature_model.outputs(side, features.items[side]).numpy() for side in _SIDES}


def _rankings(
    values: Mapping[str, NDArray[Any]],
    names: NDArray[np.str_],
    lengths: Sequence[int],
    stage: Stage,
) -> _TaskScores:
    """Score texts that search images, and images that search texts; row i of all ``values``, which
    are outputs of a model, is sample i. A stage compares them.

    >>> images = np.array([[2.0, 1.0], [-1.0, 2.0]])
    >>> values = {"text": np.array([[3.0, 1.0], [-1.0, 2.0]]), "image": images}
    >>> list(_rankings(values, np.array(["a", "b"]), [2, 1], Stage(n_bits=2)))
    ['real values', '2 bits, then int8 values of the first 500', '2 bits', '1 bits']
    """
    rows = {"text": np.arange(len(names)), "image": np.unique(names, return_index=True)[1]}
    scores: _TaskScores = {}
    for a, b in permutations(_SIDES):
        query = values[a][rows[a]]
        items = values[b][rows[b]]
        pairs = counterparts(names[rows[a]].tolist(), names[rows[b]].tolist())
        groups = {
            "real values": FirstGroup.of_vectors(stage.vectors(query), stage.vectors(items), pairs),
            f"{lengths[0]} bits, then int8 values of the first {FIRST}": _second_stage(
                query, items, pairs, stage, (a, b)
            ),
        }
        for n_bits in lengths:
            codes = _bits(query, n_bits), _bits(items, n_bits)
            groups[f"{n_bits} bits"] = FirstGroup.of_codes(*codes, pairs, n_bits)
        for name, group in groups.items():
            report = group.report()
            kept = {key: report[key] for key in ("recall_at", "median_rank")}
            scores.setdefault(name, {})[f"{a}->{b}"] = kept
    return scores


def _second_stage(
    query: NDArray[Any],
    items: NDArray[Any],
    pairs: NDArray[np.int64],
    stage: Stage,
    sides: tuple[str, str],
    first: int = FIRST,
) -> FirstGroup:
    """Find each query's first counterpart by a store that keeps projections; counterparts that the
    second stage does not reach are somewhere behind. ``sides`` are the modalities of both.
    """
    asked, modality = sides
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "pairs.store", stage.n_bits, stage=stage)
        store.add(
            [str(row) for row in range(len(items))],
            _bits(items, stage.n_bits),
            modality,
            projections=items,
        )
        answers = store.search_projections(
            query, k=min(first, len(items)), modality=modality, first=first, asked=asked
        ).ids
    groups = []
    for answer, pair in zip(answers, pairs, strict=True):
        own_ids = {str(item) for item in pair if item >= 0}
        place = next((place for place, item in enumerate(answer) if item in own_ids), None)
        if place is None:
            groups.append((len(answer), len(items) - len(answer), len(own_ids)))
        else:
            groups.append((place, 1, 1))
    return FirstGroup(*np.array(groups).T)


def _known_rows(records: Records, run: OpenedRun | None) -> NDArray[np.bool_]:
    """Return ``(n,)`` whether each row is in the collection of a run, test queries aside; rows are
    compared by id and text.
    """
    if run is None:
        return np.zeros(len(records), dtype=bool)
    others = run.collection.records.take(run.splits.retrieval)
    known = set(zip(others.ids, others.display_values("text") or others.ids, strict=True))
    rows = zip(records.ids, records.display_values("text") or records.ids, strict=True)
    return np.array([row in known for row in rows])


def _bits(values: NDArray[np.floating[Any]], n_bits: int) -> PackedCodes:
    return pack(binarize(torch.from_numpy(np.ascontiguousarray(values[:, :n_bits]))))


def _mean(tests: Sequence[Any]) -> Any:
    """Return the means of numbers in nested dictionaries of the same keys."""
    if not isinstance(tests[0], dict):
        return float(np.mean(tests))
    means = {}
    for key in tests[0]:
        means[key] = _mean([test[key] for test in tests])
    return means


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
    """Compute all scores of a finished run, as ``channelhash evaluate`` does.

    Args:
        run: what `ch.train` returned, or a run's folder.
        split: ``"test"`` or ``"validation"``.
        checkpoint: the model of the ``"last"`` epoch, or of the one ``"best"`` on validation.
        leak_free: leave the training rows out of the database.
        trust_code: consent to run code of this machine that the run's folder names
            (``python:module:NAME``).
        progress: stage -> its callback, which gets the numbers done and in all.
        conventions: programs whose scores are computed, too: ``"qinlab"``, ``"sch"``, ``"hyp2"``.

    Returns:
        task, such as ``"text->image"``, -> name of a score -> its value.

    Raises:
        InputError: there is no such run, the split is empty, there are no training rows to leave
            out, or the run names code and ``trust_code`` is false.

    Example::

        ch.evaluate("runs/features")["text->image"]["map_tie_aware"]
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
    """Compute all scores of a finished run, for every task: without labels those of instance
    retrieval.

    The codes are written to ``codes/<split>-query.parquet`` and
    ``codes/<split>-retrieval.parquet``; codes that this very model has already written are not
    computed again. The scores of the test split after the last epoch, over the whole retrieval set,
    are written to ``metrics.json`` and their plots to ``plots/``; the plots of any other choice to
    a folder of their own below it (`plots_folder`).
    """
    config = read_run_config(folder)
    sweep(folder)
    codes = run_codes(folder, split, checkpoint, progress)
    database = codes.without_training_rows() if leak_free else codes.retrieval
    where = f"{folder}, {split} partition"
    tasks, histograms = evaluate_sets(
        codes.query, database, where, config.evaluate.cutoffs, conventions
    )
    choice = {"split": split, "checkpoint": checkpoint, "leak_free": leak_free}
    result = {"n_bits": config.n_bits, **choice, "tasks": tasks}
    if split == "test" and checkpoint == "last" and not leak_free:
        write_text(folder / "metrics.json", json.dumps(result, indent=2))
    from channelhash.metrics.plots import write_plots  # matplotlib: nothing else here needs it

    rows_left_out = ", training rows left out" if leak_free else ""
    title = f"{folder.resolve().name}, {split} split, {checkpoint} epoch{rows_left_out}"
    if histograms:
        write_plots(histograms, plots_folder(folder, split, checkpoint, leak_free), title)
    return result


class _RunCodes(NamedTuple):
    """The codes of one split of a run.

    Attributes:
        query: Q or V_q.
        retrieval: R or V_r.
        trained: ``(len(retrieval),)`` bool, which of R are training rows; V_r has none.

    >>> codes = CodeSet(["a", "b"], {"text": np.array([[1], [2]], np.uint8)}, None, n_bits=8)
    >>> _RunCodes(codes, codes, np.array([True, False])).without_training_rows().ids
    ('b',)
    """

    query: CodeSet
    retrieval: CodeSet
    trained: NDArray[np.bool_]

    def without_training_rows(self) -> CodeSet:
        """Return the codes of R∖T."""
        if not self.trained.any():
            raise InputError(
                f"{argument('leak_free')}: the validation partition holds no training rows anyway; "
                "leave it out"
            )
        return self.retrieval.take(np.flatnonzero(~self.trained))


def run_codes(
    folder: Path,
    split: str = "test",
    checkpoint: str = "last",
    progress: StageProgress = no_stage_progress,
) -> _RunCodes:
    """Return the codes of a finished run: read from ``codes/`` if they are of this very model, else
    computed.

    In a run that extends another, old items of the retrieval set have their stored codes (see
    `stored_codes`).
    """
    # The names of fields of `Splits` begin so.
    prefix = pick({"test": "", "validation": "validation_"}, split, "split")
    run = open_run(folder, checkpoint)
    splits = run.splits
    rows = {role: getattr(splits, prefix + role) for role in ("query", "retrieval")}
    if not all(len(part) for part in rows.values()):
        raise InputError(
            f"{folder / 'splits.json'}: the {split} partition is empty; train with fewer "
            "data.train rows"
        )
    features = collection_features(run.model, run.collection, run.config.train, progress)
    feature_model = run.model.on_features()
    fingerprint = run.model.fingerprint()

    def encode(role: str, part: RowNumbers) -> CodeSet:
        return encode_records(
            feature_model, features.take(part), progress(f"encode {role}"), fingerprint
        )

    name = split if checkpoint == "last" else f"{split}-{checkpoint}"
    codes = {}
    for role, part in rows.items():
        path = folder / "codes" / f"{name}-{role}.parquet"
        saved = _saved_codes(path, fingerprint, len(part))
        if saved is not None:
            codes[role] = saved
            continue
        stored = stored_codes(folder) if role == "retrieval" else None
        codes[role] = database_codes(stored, splits.retrieval, part, partial(encode, role))
        codes[role].save(path)
    return _RunCodes(codes["query"], codes["retrieval"], np.isin(rows["retrieval"], splits.train))


def _saved_codes(path: Path, fingerprint: str, n: int) -> CodeSet | None:
    """Return the codes in a file if a model with this fingerprint has written all ``n``."""
    if not path.exists():
        return None
    saved = CodeSet.load(path)
    return saved if saved.model == fingerprint and len(saved) == n else None


def plots_folder(folder: Path, split: str, checkpoint: str, leak_free: bool) -> Path:
    """Return the folder of a run's plots; those of the scores in ``metrics.json`` are in ``plots/``
    itself.

    >>> plots_folder(Path("run"), "test", "last", leak_free=False).as_posix()
    'run/plots'
    >>> plots_folder(Path("run"), "validation", "best", leak_free=False).as_posix()
    'run/plots/validation-best'
    """
    parts = [split, checkpoint, "leak-free" if leak_free else ""]
    return folder / "plots" / "-".join(part for part in parts if part not in ("test", "last", ""))
