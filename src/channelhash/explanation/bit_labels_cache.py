"""The labels of a store's bits, counted over its labelled items; a run keeps its own in a file."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import CodeSet
from channelhash.data.records import labels_from_names
from channelhash.explanation.bit_labels import BitLabels, bit_label_correlation
from channelhash.search.photo_folders import is_run
from channelhash.search.store import Store
from channelhash.utils.files import content_hash, write_text

_FORMAT = "channelhash meanings 1"
_NAME = "meanings.json"
#: Largest number of a store's items that are counted; of a run all are.
MAX_COUNTED = 20_000
#: Largest store whose ids are listed; of larger ones nothing is counted.
MAX_ITEMS = 5_000_000
_BLOCK = 1000


def load_bit_labels(store: Store) -> BitLabels | None:
    """Return the labels that go with the bits of a store's codes, or None if no item has labels.

    For a run, the whole retrieval set is counted; the result is kept in ``RUN/meanings.json`` with the model's
    fingerprint and a hash of the codes, and counted again when the codes change. For a file of codes, all codes are
    counted. For any other store, 20,000 items are counted, evenly spaced in the order of ids; items without the key
    ``labels`` are skipped. The result is None for a store of more than 5 million items.
    """
    path = Path(store.address)
    if is_run(path):
        return _load_run(path)
    if path.suffix == ".parquet":
        return count_bit_labels(CodeSet.load(path))
    return _count_items(store)


def count_bit_labels(codes: CodeSet) -> BitLabels | None:
    """Count the labels that go with the bits of all codes of a set; None without labels and their names.

    >>> codes = CodeSet(["a", "b"], {"image": np.array([[128], [0]], np.uint8)}, np.eye(2, 1, dtype=bool), 1, ("dog",))
    >>> bit_labels = count_bit_labels(codes)
    >>> bit_labels.label_names, bit_labels.correlations["image"].tolist()
    (('dog',), [[1.0]])
    """
    if codes.labels is None or not codes.label_names:
        return None
    labels = codes.labels
    return BitLabels(
        codes.label_names,
        {modality: bit_label_correlation(packed, codes.n_bits, labels) for modality, packed in codes.codes.items()},
        {modality: len(codes) for modality in codes.codes},
    )


def _load_run(folder: Path) -> BitLabels | None:
    path = folder / "codes" / "test-retrieval.parquet"
    content = content_hash(path.read_bytes())
    cached = _read_cache(folder / _NAME)
    if cached.get("codes") == content:
        return _from_dict(cached)
    codes = CodeSet.load(path)
    bit_labels = count_bit_labels(codes)
    if bit_labels is not None:
        cached = {"format": _FORMAT, "model": codes.model, "codes": content, **_as_dict(bit_labels)}
        with suppress(OSError):  # a run that cannot be written to is explained all the same
            write_text(folder / _NAME, json.dumps(cached) + "\n")
    return bit_labels


def _count_items(store: Store) -> BitLabels | None:
    if not 0 < len(store) <= MAX_ITEMS:
        return None
    ids = store.ids()
    picked = [ids[i] for i in np.unique(np.linspace(0, len(ids) - 1, min(MAX_COUNTED, len(ids))).astype(int))]
    codes: dict[str, list[NDArray[np.uint8]]] = {}
    names: dict[str, list[list[str]]] = {}
    for start in range(0, len(picked), _BLOCK):
        for item in store.get(picked[start : start + _BLOCK]):
            item_labels = item.metadata.get("labels")
            if isinstance(item_labels, list):
                for modality, code in item.codes.items():
                    codes.setdefault(modality, []).append(code)
                    names.setdefault(modality, []).append(item_labels)
    label_names = sorted({label for rows in names.values() for row in rows for label in row})
    if not label_names or store.n_bits is None:
        return None
    correlations = {}
    for modality, rows in codes.items():
        labels, _ = labels_from_names(names[modality], label_names, store.address)
        correlations[modality] = bit_label_correlation(np.stack(rows), store.n_bits, labels)
    return BitLabels(tuple(label_names), correlations, {modality: len(rows) for modality, rows in codes.items()})


def _as_dict(bit_labels: BitLabels) -> dict[str, Any]:
    return {
        "labels": list(bit_labels.label_names),
        "rows": dict(bit_labels.rows),
        "correlations": {
            modality: [[None if np.isnan(value) else value for value in row] for row in values.tolist()]
            for modality, values in bit_labels.correlations.items()
        },
    }


def _from_dict(cached: dict[str, Any]) -> BitLabels:
    correlations = {
        modality: np.array(rows, dtype=np.float64).reshape(len(rows), len(cached["labels"]))  # None becomes NaN
        for modality, rows in cached["correlations"].items()
    }
    return BitLabels(tuple(cached["labels"]), correlations, cached["rows"])


def _read_cache(path: Path) -> dict[str, Any]:
    """Read the kept file; return nothing if it is missing, damaged or of another format, since it can be recounted."""
    try:
        cached = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return cached if isinstance(cached, dict) and cached.get("format") == _FORMAT else {}
