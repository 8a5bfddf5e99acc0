"""Meanings of a store's bits: counted over its labelled items; those of a run kept in its folder."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.code_set import CodeSet
from channelhash.data.records import labels_from_names
from channelhash.explanation.bit_labels import Meanings, bit_label_correlation
from channelhash.search.store import Store
from channelhash.utils.files import content_hash, write_text

_FORMAT = "channelhash meanings 1"
_NAME = "meanings.json"
#: Items of a store that are counted at most; of a run all are.
MOST_ITEMS = 20_000
#: Above so many items even their ids are not listed, and nothing is counted.
MOST_LISTED = 5_000_000
_BLOCK = 1000


def meanings_of(store: Store) -> Meanings | None:
    """What the bits of a store's codes mean, or None where no item has labels.

    Of a run: over its whole retrieval set, kept in ``RUN/meanings.json`` with the model's fingerprint and a hash of the
    codes, and counted again where either is another. Of a file of codes: over all of it. Of any other store: over
    20,000 of its items, evenly spaced in the order of ids; an item without the key ``labels`` is left out. None for a
    store of more than 5 million items.
    """
    path = Path(store.address)
    if (path / "config.yaml").exists():
        return _of_run(path)
    if path.suffix == ".parquet":
        return of_codes(CodeSet.load(path))
    return _of_items(store)


def of_codes(codes: CodeSet) -> Meanings | None:
    """The meanings of all codes of a set; None without labels and their names."""
    if codes.labels is None or not codes.label_names:
        return None
    labels = codes.labels
    return Meanings(
        codes.label_names,
        {modality: bit_label_correlation(packed, codes.n_bits, labels) for modality, packed in codes.codes.items()},
        {modality: len(codes) for modality in codes.codes},
    )


def _of_run(folder: Path) -> Meanings | None:
    path = folder / "codes" / "test-retrieval.parquet"
    content = content_hash(path.read_bytes())
    kept = _read(folder / _NAME)
    if kept.get("codes") == content:
        return _from_dict(kept)
    codes = CodeSet.load(path)
    meanings = of_codes(codes)
    if meanings is not None:
        described = {"format": _FORMAT, "model": codes.model, "codes": content, **_as_dict(meanings)}
        with suppress(OSError):  # a run that cannot be written to is explained all the same
            write_text(folder / _NAME, json.dumps(described) + "\n")
    return meanings


def _of_items(store: Store) -> Meanings | None:
    if not 0 < len(store) <= MOST_LISTED:
        return None
    ids = store.ids()
    picked = [ids[i] for i in np.unique(np.linspace(0, len(ids) - 1, min(MOST_ITEMS, len(ids))).astype(int))]
    codes: dict[str, list[NDArray[np.uint8]]] = {}
    names: dict[str, list[list[str]]] = {}
    for start in range(0, len(picked), _BLOCK):
        for item in store.get(picked[start : start + _BLOCK]):
            carried = item.metadata.get("labels")
            if isinstance(carried, list):
                for modality, code in item.codes.items():
                    codes.setdefault(modality, []).append(code)
                    names.setdefault(modality, []).append(carried)
    known = sorted({label for rows in names.values() for row in rows for label in row})
    if not known or store.n_bits is None:
        return None
    correlations = {}
    for modality, rows in codes.items():
        labels, _ = labels_from_names(names[modality], known, store.address)
        correlations[modality] = bit_label_correlation(np.stack(rows), store.n_bits, labels)
    return Meanings(tuple(known), correlations, {modality: len(rows) for modality, rows in codes.items()})


def _as_dict(meanings: Meanings) -> dict[str, Any]:
    return {
        "labels": list(meanings.label_names),
        "rows": dict(meanings.rows),
        "correlations": {
            modality: [[None if np.isnan(value) else value for value in row] for row in values.tolist()]
            for modality, values in meanings.correlations.items()
        },
    }


def _from_dict(kept: dict[str, Any]) -> Meanings:
    correlations = {
        modality: np.array(rows, dtype=np.float64).reshape(len(rows), len(kept["labels"]))  # None becomes NaN
        for modality, rows in kept["correlations"].items()
    }
    return Meanings(tuple(kept["labels"]), correlations, kept["rows"])


def _read(path: Path) -> dict[str, Any]:
    """What is kept, or nothing where that is missing, damaged or of another format: it can be counted again."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return kept if isinstance(kept, dict) and kept.get("format") == _FORMAT else {}
