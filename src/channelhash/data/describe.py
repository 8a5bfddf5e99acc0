"""Describe a collection: its counts and its problems."""

import hashlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.images import image_problem
from channelhash.data.records import Records
from channelhash.data.splits import Splits
from channelhash.utils.progress import Progress

#: Distinct label sets that are compared with all others at once.
_BLOCK = 1024


def describe(
    records: Records,
    splits: Splits | None = None,
    expected: dict[str, int] | None = None,
    decode_images: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Count a collection and list its problems, each with its remedy.

    Args:
        records: the usable samples.
        splits: partitions, if they could be drawn.
        expected: counts of the official collection: ``"found"``, ``"usable"`` and partitions by name.
        decode_images: decode and hash every image to find unreadable and duplicate ones.
        progress: called with (images decoded, images).

    Returns:
        ``{"found", "usable", "labels": {name: count}, "partitions": {name: rows}, "removed": {reason: count},
        "problems": [lines], "expected", "labels_per_item", "words_per_text", "chance", "measures"}``.
        ``labels_per_item`` and ``words_per_text`` are {min, median, mean, max}; ``chance`` is the probability that two
        random samples share a label; ``measures`` is what can be measured: ``"map"`` by labels, ``"recall"`` by pairs
        of an image and a text.

    >>> labels = np.array([[True, False], [True, True], [False, False]])
    >>> summary = describe(Records(tuple("abc"), {"text": ("a dog", "a dog swims", "nothing")}, labels, ("dog", "sea")))
    >>> summary["labels"], summary["words_per_text"]["median"], round(summary["chance"], 2)
    ({'dog': 2, 'sea': 1}, 2.0, 0.33)
    >>> summary["problems"][0]
    '1 of 3 samples have no label: they are similar to nothing and never relevant; label them or leave them out'
    """
    counts = {"found": len(records) if records.found is None else records.found, "usable": len(records)}
    partitions = splits.counts() if splits else {}
    official = expected or {}
    problems = list(records.problems)
    problems += [
        f"{name}: {count} samples, the official collection has {official[name]}; is the archive complete?"
        for name, count in (counts | partitions).items()
        if official.get(name, count) != count
    ]
    problems += _row_problems(records)
    images, texts = records.items.get("image", ()), records.items.get("text", ())
    if decode_images and not isinstance(images, np.ndarray):
        problems += _image_problems([Path(path) for path in images], progress)
    words = [] if isinstance(texts, np.ndarray) else [len(str(text).split()) for text in texts]
    return {
        **counts,
        "labels": dict(zip(records.label_names, (int(n) for n in records.labels.sum(axis=0)), strict=True)),
        "partitions": partitions,
        "expected": dict(official),
        "removed": dict(records.removed),
        "problems": problems,
        "labels_per_item": _summary(records.labels.sum(axis=1)),
        "words_per_text": _summary(np.array(words)) if words else {},
        "chance": _chance(records.labels),
        "measures": ["map"] * bool(records.label_names) + ["recall"] * (len(records.items) > 1),
    }


def _row_problems(records: Records) -> list[str]:
    """Return a line for rows without labels, and for each unused label, repeated id, and label in several spellings."""
    problems = []
    unlabelled = int((~records.labels.any(axis=1)).sum())
    if unlabelled and records.label_names:
        problems.append(
            f"{unlabelled} of {len(records)} samples have no label: they are similar to nothing and never relevant; "
            "label them or leave them out"
        )
    spellings = defaultdict[str, list[str]](list)
    for name, occurs in zip(records.label_names, records.labels.sum(axis=0), strict=True):
        spellings[" ".join(name.casefold().split())].append(name)
        if not occurs:
            problems.append(f"label {name!r} never occurs; leave it out of the labels")
    problems += [
        f"labels {' and '.join(map(repr, names))} differ in capitals or blanks only; write one label one way"
        for names in spellings.values()
        if len(names) > 1
    ]
    if not records.label_names and len(records.items) < 2:
        problems.append("no labels and no pairs of an image and a text: nothing can be learned or measured; add either")
    repeated = sorted(name for name, count in Counter(records.ids).items() if count > 1)
    stay = "occurs more than once: its rows stay on one side of query and retrieval"
    return problems + [f"id {name} {stay}" for name in repeated]


def _image_problems(paths: list[Path], progress: Progress | None) -> list[str]:
    """Return a line for every image that cannot be decoded or is the same file as an earlier one."""
    problems = []
    first: dict[str, Path] = {}
    distinct = list(dict.fromkeys(paths))
    for number, path in enumerate(distinct, start=1):
        if progress:
            progress(number, len(distinct))
        if problem := image_problem(path):
            problems.append(f"{problem}; leave it out with --skip-bad, or get it again")
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest in first:
            problems.append(f"picture {path} is the same file as {first[digest]}; leave one of them out")
        first.setdefault(digest, path)
    return problems


def _summary(values: NDArray[Any]) -> dict[str, float]:
    return {name: float(getattr(np, name)(values)) for name in ("min", "median", "mean", "max")}


def _chance(labels: NDArray[np.bool_]) -> float:
    """Compute the probability that two different samples share a label, from the counts of distinct label sets."""
    sets, counts = np.unique(labels, axis=0, return_counts=True)
    columns, weights = sets.astype(np.float32).T, counts.astype(np.float32)  # for BLAS; exact below 2^24
    pairs = -int(counts[sets.any(axis=1)].sum())  # a sample makes no pair with itself
    for start in range(0, len(sets), _BLOCK):  # a collection may have 50,000 distinct sets
        block = slice(start, start + _BLOCK)
        related = np.minimum(columns[:, block].T @ columns, 1) @ weights  # samples that share a label with each set
        pairs += int(counts[block] @ related.astype(np.int64))
    n = len(labels)
    return pairs / (n * (n - 1)) if n > 1 else 0.0
