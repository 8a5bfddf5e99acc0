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
        "problems": [lines], "expected", "labels_per_item", "words_per_text", "chance", "protocol", "measures"}``.
        ``labels_per_item`` and ``words_per_text`` are {min, median, mean, max}; ``chance`` is the probability that two
        random samples share a label; ``protocol`` is a line about the literature's variant that has these counts, which
        are then no problem (`_recognise`); ``measures`` is what can be measured: ``"map"`` by labels,
        ``"recall"`` by pairs of an image and a text.

    >>> labels = np.array([[True, False], [True, True], [False, False]])
    >>> summary = describe(Records(tuple("abc"), {"text": ("a dog", "a dog swims", "nothing")}, labels, ("dog", "sea")))
    >>> summary["labels"], summary["words_per_text"]["median"], round(summary["chance"], 2)
    ({'dog': 2, 'sea': 1}, 2.0, 0.33)
    >>> summary["problems"][0]
    '1 of 3 samples have no label: they are similar to nothing and never relevant; label them or leave them out'
    """
    counts = {"found": len(records) if records.found is None else records.found, "usable": len(records)}
    partitions = splits.counts() if splits else {}
    protocol = _recognise(records.labels)
    compared = {} if protocol and counts["usable"] != (expected or {}).get("usable") else expected or {}
    problems = list(records.problems)
    problems += [
        f"{name}: {count} samples, the official collection has {compared[name]}; is the archive complete?"
        for name, count in (counts | partitions).items()
        if compared.get(name, count) != count
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
        "expected": dict(expected or {}),
        "removed": dict(records.removed),
        "problems": problems,
        "labels_per_item": _summary(records.labels.sum(axis=1)),
        "words_per_text": _summary(np.array(words)) if words else {},
        "chance": _chance(records.labels),
        "protocol": protocol,
        "measures": (["map"] if records.label_names else []) + (["recall"] if len(records.items) > 1 else []),
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


# Where other projects make these variants: repository, commit, file.
_DSPH = "QinLab-WFU/DSPH 01ae75cc dataset/make_mirflickr25k.py"
_DEEPHASH = "swuxyj/DeepHash-pytorch 8fd4fbbd data/mirflickr/code.py, HyP²"
_EXCLUSION_LIST = "QinLab-WFU/DSPH 7a5d3dc1 dataset/not-used-id.txt"

_FILTERED = "the images with a label and a tag that occurs 20 times, as in this paper"
_POTENTIAL = "mAP over all 25,000, 24,581 or 20,015 images are three different figures"
_RELEVANT = (
    f"the 24 potential labels and the 14 relevant ones ({_DEEPHASH}), usual are the 24: label similarities differ"
)
_LIST = (
    f"this is the cut by the list of 73,814 rows that many toolboxes carry ({_EXCLUSION_LIST}): it drops 3,055 images "
    "that have one of the 21 labels and keeps 3,055 that have none. Make the subset from the label files "
    "(data.kind nuswide): also 195,834 images"
)


_M, _N = "MIRFLICKR-25k", "NUS-WIDE"
#: Numbers of labels, of images, and of images without a label -> collection, and what sets this variant apart.
_PROTOCOLS = {
    (24, 20015, 0): (_M, _FILTERED),
    (24, 24581, 0): (_M, f"all images with a label ({_DSPH}); {_POTENTIAL}"),
    (24, 25000, 419): (_M, f"nothing is left out, 419 images have no label; {_POTENTIAL}"),
    (38, 20015, 0): (_M, f"{_FILTERED}; {_RELEVANT}"),
    (38, 24581, 0): (_M, f"all images with a label; {_RELEVANT}"),
    (38, 25000, 419): (_M, f"nothing is left out, 419 images have no label; {_RELEVANT}"),
    (21, 195834, 0): (_N, "the images with one of the 21 most frequent labels, as in this paper"),
    (21, 195834, 3055): (_N, _LIST),
    (21, 192779, 0): (_N, f"195,834 without 3,055 unlabelled ones: {_LIST}"),
    (21, 269648, 73814): (_N, "nothing is left out; usual are the 195,834 with one"),
    (10, 186577, 0): (_N, "the images with one of the 10 most frequent labels; usual are 21 labels, 195,834"),
    (10, 269648, 83071): (_N, "nothing is left out; usual are the 186,577 with one"),
    (81, 209347, 0): (_N, "the images with a label; usual are 21 labels, 195,834"),
    (81, 269648, 60301): (_N, "nothing is left out; usual are 21 labels, 195,834"),
}


def _recognise(labels: NDArray[np.bool_]) -> str:
    """Return a line that says which protocol of the literature a collection follows, empty if none is known.

    Args:
        labels: ``(n, c)`` bool.

    >>> _recognise(np.ones((10, 24), dtype=bool)), _recognise(np.ones((20015, 24), dtype=bool)).split(":")[0]
    ('', 'MIRFLICKR-25k, 24 labels, 20,015 images')
    """
    images, width = labels.shape
    name, note = _PROTOCOLS.get((width, images, images - int(labels.any(axis=1).sum())), ("", ""))
    return f"{name}, {width} labels, {images:,} images: {note}" if name else ""
