"""Codes of old items: a run that extends another keeps them as they are, in its folder and in its retrieval set."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from channelhash.codes.code_set import CodeSet, joined
from channelhash.data.concat import labels_as
from channelhash.data.splits import Rows
from channelhash.errors import InputError
from channelhash.models.encode_records import encode_records
from channelhash.runs.fit import Trainee
from channelhash.utils.progress import Progress

#: In a run's folder: the codes of the old items, as the extended run made them, in the order of their rows in R.
STORED = Path("codes") / "stored.parquet"


def stored_codes(folder: Path) -> CodeSet | None:
    """Return the codes of old items that stay as they are in a run, or None in one that extends no other.

    >>> stored_codes(Path("no run")) is None
    True
    """
    return CodeSet.load(folder / STORED) if (folder / STORED).exists() else None


def database_codes(stored: CodeSet | None, retrieval: Rows, rows: Rows, encode: Callable[[Rows], CodeSet]) -> CodeSet:
    """Return codes of some rows of R: the stored ones of old items, and newly encoded ones of the others.

    Args:
        stored: see `stored_codes`; its items are the first rows of R.
        retrieval: R, sorted.
        rows: some of R, sorted.
        encode: returns the codes of rows.

    >>> codes = CodeSet(["old", "new"], {"text": np.array([[1], [2]], np.uint8)}, np.ones((2, 1), bool), 8, ("a",))
    >>> stored = CodeSet(["old"], {"text": np.array([[7]], np.uint8)}, np.ones((1, 1), bool), 8, ("a",))
    >>> database_codes(stored, np.arange(2), np.arange(2), codes.take).codes["text"].tolist()
    [[7], [2]]
    """
    if stored is None:
        return encode(rows)
    fixed = np.isin(rows, retrieval[: len(stored)])
    encoded = encode(rows[~fixed])
    old = stored.take(np.searchsorted(retrieval, rows[fixed]))
    assert old.labels is not None  # an extension has labels
    # One set for the model that was trained to read both, over the labels of both.
    labels = labels_as(old.labels, old.label_names, encoded.label_names)
    return joined([replace(old, labels=labels, label_names=encoded.label_names, model=encoded.model), encoded])


def store_codes(trainee: Trainee, rows: Rows, run: Path, folder: Path, progress: Progress) -> None:
    """Write the codes of the old items into a new run's folder, unless they are there.

    Codes that the extended run has written for its retrieval set are taken over; else its model computes them now.

    Args:
        trainee: the model of the extended run, not yet trained further.
        rows: the old items of R, sorted.
        run: folder of the extended run.
        folder: the new run's.
        progress: called with (done, n).

    Raises:
        InputError: the folder holds codes of another model.
    """
    model = trainee.feature_model
    made_by = model.extends[-1]
    if (stored := stored_codes(folder)) is not None:
        if stored.model != made_by:
            raise InputError(f"{folder / STORED}: {run} has been trained anew since; extend it into another --out")
        return

    def encode(part: Rows) -> CodeSet:
        return encode_records(model, trainee.features.take(part), progress, made_by)

    old, written = trainee.features.take(rows), run / "codes" / "test-retrieval.parquet"
    if written.exists() and (saved := CodeSet.load(written)).model == made_by and saved.ids == old.ids:
        codes = saved.codes
    else:
        codes = database_codes(stored_codes(run), rows, rows, encode).codes
    texts, images = old.display_values("text"), old.display_values("image")
    CodeSet(old.ids, codes, old.labels, model.n_bits, old.label_names, texts, images, made_by).save(folder / STORED)
