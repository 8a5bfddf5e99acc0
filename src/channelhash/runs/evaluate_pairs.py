"""Score how captions and photographs find each other, by every ranking that the outputs of a model allow."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.config import TrainSettings
from channelhash.data.folder import load_any
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.metrics.histogram import hamming_histogram
from channelhash.metrics.recall import FirstGroup, counterparts, first_of_codes, first_of_vectors
from channelhash.models import load_model
from channelhash.models.aligned_heads import PHOTO_HEADS
from channelhash.models.fitted import CCA_RHO
from channelhash.models.linear_hashing import LinearMap, cca_itq
from channelhash.runs.folder import OpenedRun, open_run
from channelhash.search import open_store
from channelhash.search.projections import FIRST
from channelhash.training.feature_inputs import collection_features, feature_records
from channelhash.utils.progress import StageProgress, no_stage_progress

#: modality -> ``(n, k)`` real values, row i of each of sample i.
Values = Mapping[str, NDArray[np.floating[Any]]]
#: Ranking -> task -> ``recall_at`` and ``median_rank``.
Scores = dict[str, dict[str, dict[str, Any]]]

_SIDES = ("text", "image")


def evaluate_pairs(
    model: str | Path,
    data: Path,
    images: int | None = None,
    checkpoint: str = "last",
    progress: StageProgress = no_stage_progress,
) -> dict[str, Any]:
    """Compute Recall@1, 5 and 10 and the median rank of counterparts by real values, by bits, and by bits and int8.

    The rows of ``data`` search each other. Rows that a run has in its own collection do so only as its test queries:
    the others may have been learned from. Labels are searched among those others.

    Args:
        model: a run's folder, a saved model, or ``photo`` for the heads that ship with the package.
        data: images and texts, as `load_any` reads them; rows with one image file are several texts of it.
        images: a test has so many images, and scores are means over tests; one test of all if None.
        checkpoint: ``"last"`` epoch of a run, or the one ``"best"`` on validation.
        progress: stage -> its callback.

    Returns:
        ``{"n_bits": k, "images": of a test, "tests": their number, "rankings": scores, "labels": mAP}``: `rankings` of
        the outputs, for a run on features also those of CCA-ITQ fitted to the same rows; and tie-aware mAP as ``{"k
        bits": {task: share}}``, empty without labels or without rows to search.

    Raises:
        InputError: there is no such model, images or texts are missing, or the rows that ask have fewer than
            ``images`` images.
    """
    run = open_run(Path(model), checkpoint) if (Path(model) / "config.yaml").exists() else None
    opened = run.model if run else load_model(PHOTO_HEADS if str(model) == "photo" else model)
    settings = run.config.train if run else TrainSettings()
    records = load_any(data)
    if missing := [side for side in _SIDES if not (side in records.items and side in opened.modalities)]:
        raise InputError(f"{data}: images are to find texts, but data or model have no {missing[0]}s")
    known = _known_rows(records, run)
    asking, names = np.flatnonzero(~known), np.array(records.pair_ids)
    found = list(dict.fromkeys(names[asking]))
    size = images or len(found)
    if not size or len(found) < size:
        raise InputError(f"{data}: {len(found)} images to ask for, of {len(set(names))}; name a table that has more")
    features = feature_records(opened, records, settings, progress).take(np.arange(len(records)))  # off the disk
    outputs = {side: opened.on_features().outputs(side, features.items[side]).numpy() for side in _SIDES}
    lengths = sorted({opened.n_bits, *opened.architecture.get("nested", ())}, reverse=True)
    maps = _cca(run, progress) if run else {}
    tests: list[Scores] = []
    for start in range(0, len(found) - size + 1, size):
        rows = asking[np.isin(names[asking], found[start : start + size])]
        tests.append(rankings({side: outputs[side][rows] for side in _SIDES}, names[rows], lengths))
        if maps:
            beside = {side: maps[side](np.asarray(features.items[side])[rows]) for side in _SIDES}
            scores = rankings(beside, names[rows], lengths[:1])
            tests[-1] |= {f"CCA-ITQ, {ranking}": of_tasks for ranking, of_tasks in scores.items()}
    labels = _label_scores(outputs, records.labels, known, lengths)
    return {"n_bits": opened.n_bits, "images": size, "tests": len(tests), "rankings": _mean(tests), "labels": labels}


def rankings(values: Values, names: NDArray[np.str_], lengths: Sequence[int]) -> Scores:
    """Score texts that search images, and images that search texts.

    Args:
        values: of texts and images; an image of several texts is in several rows, and is searched once.
        names: ``(n,)`` of the image that each row shows.
        lengths: numbers k of leading values whose signs are codes, the longest first.

    >>> values = {"text": np.array([[3.0, 1.0], [-1.0, 2.0]]), "image": np.array([[2.0, 1.0], [-1.0, 2.0]])}
    >>> list(rankings(values, np.array(["a", "b"]), [2, 1]))
    ['real values', '2 bits, then int8 values of the first 500', '2 bits', '1 bits']
    """
    rows = {"text": np.arange(len(names)), "image": np.unique(names, return_index=True)[1]}
    scores: Scores = {}
    for a, b in (_SIDES, _SIDES[::-1]):
        query, items = values[a][rows[a]], values[b][rows[b]]
        pairs = counterparts(names[rows[a]].tolist(), names[rows[b]].tolist())
        groups = {
            "real values": first_of_vectors(query, items, pairs),
            f"{lengths[0]} bits, then int8 values of the first {FIRST}": _second_stage(query, items, pairs),
        }
        for k in lengths:
            groups[f"{k} bits"] = first_of_codes(_bits(query, k), _bits(items, k), pairs, k)
        for name, group in groups.items():
            report = group.report()
            kept = {"recall_at": report["recall_at"], "median_rank": report["median_rank"]}
            scores.setdefault(name, {})[f"{a}->{b}"] = kept
    return scores


def _second_stage(query: NDArray[Any], items: NDArray[Any], pairs: NDArray[np.int64], first: int = FIRST) -> FirstGroup:
    """Find each query's first counterpart by a store that keeps projections; anywhere behind them if not scored."""
    n_bits = query.shape[1]
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "pairs.store", n_bits, projections=True)
        store.add([str(row) for row in range(len(items))], _bits(items, n_bits), "image", projections=items)
        answers = store.search_projections(query, k=min(first, len(items)), modality="image", first=first).ids
    ahead, tied, found = (np.ones(len(query), dtype=np.int64) for _ in range(3))
    for row, (answer, own) in enumerate(zip(answers, pairs, strict=True)):
        own_ids = {str(item) for item in own if item >= 0}
        place = next((place for place, item in enumerate(answer) if item in own_ids), None)
        ahead[row] = len(answer) if place is None else place
        if place is None:
            tied[row], found[row] = len(items) - len(answer), len(own_ids)
    return FirstGroup(ahead, tied, found)


def _known_rows(records: Records, run: OpenedRun | None) -> NDArray[np.bool_]:
    """Return ``(n,)`` whether a row is in the collection of a run and no test query; rows are known by id and text."""
    if run is None:
        return np.zeros(len(records), dtype=bool)
    others = run.collection.records.take(run.splits.retrieval)
    known = set(zip(others.ids, others.display_values("text") or others.ids, strict=True))
    rows = zip(records.ids, records.display_values("text") or records.ids, strict=True)
    return np.array([row in known for row in rows])


def _cca(run: OpenedRun, progress: StageProgress) -> dict[str, LinearMap]:
    """Fit CCA-ITQ to the features of the training rows; to nothing where there are too few or none."""
    features = collection_features(run.model, run.collection, run.config.train, progress).take(run.splits.train)
    views = {side: values for side in _SIDES if isinstance(values := features.items[side], np.ndarray)}
    n_bits, widths = run.config.n_bits, [values.shape[1] for values in views.values()]
    if len(views) < 2 or n_bits > min(widths):
        return {}
    return cca_itq(views, n_bits, run.config.train.seed, rho=CCA_RHO * sum(widths) / len(features))


def _label_scores(
    outputs: Values, labels: NDArray[np.bool_], known: NDArray[np.bool_], lengths: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Return ``"k bits"`` -> task -> tie-aware mAP of the labelled rows not known, which search those known."""
    query, items = (np.flatnonzero(labels.any(axis=1) & part) for part in (~known, known))
    if not (len(query) and len(items)):
        return {}
    return {
        f"{k} bits": {
            f"{a}->{b}": hamming_histogram(
                _bits(outputs[a][query], k), _bits(outputs[b][items], k), labels[query], labels[items], n_bits=k
            ).mean_average_precision()
            for a in outputs
            for b in outputs
        }
        for k in lengths
    }


def _bits(values: NDArray[np.floating[Any]], n_bits: int) -> PackedCodes:
    return pack(binarize(torch.from_numpy(np.ascontiguousarray(values[:, :n_bits]))))


def _mean(tests: Sequence[Any]) -> Any:
    """Return the means of numbers in nested dictionaries of the same keys."""
    if isinstance(tests[0], dict):
        return {key: _mean([test[key] for test in tests]) for key in tests[0]}
    return float(np.mean(tests))
