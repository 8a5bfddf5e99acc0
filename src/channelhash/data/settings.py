"""The section ``data`` of a configuration: the arguments of a loader, and the split."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from channelhash.data import resolve_data_kind
from channelhash.data.records import Records
from channelhash.data.splits import Method, Splits, TrainRows, draw_splits, load_splits
from channelhash.utils.typed_settings import Settings, absolute, apply_override, read_both, settings_of


class SplitSettings(Settings):
    """How the rows are split; keys of the section ``data`` beside those of the data set's loader.

    Attributes:
        queries: rows of Q; None takes the literature's number for the data set, else a tenth of the rows.
        train: rows of T, drawn from R = D∖Q; None likewise, else half of R; ``rest``, all that is left beside V_q.
        validation_queries: rows of V_q, drawn from R∖T; None likewise.
        seed: of the draw.
        split_method: at random, stratified by labels, a number of queries and training rows per label, or as in the
            file.
        splits: a file of splits to use instead (``splits.json`` of another run).
        only_labels: keep only the rows that have one of these labels, before the split; all if None.
        without_labels: leave out the rows that have one of these labels, and the labels themselves.
    """

    queries: int | None = None
    train: TrainRows = None
    validation_queries: int | None = None
    seed: int = Field(0, ge=0)
    split_method: Method = "random"
    splits: Path | None = None
    only_labels: list[str] | None = None
    without_labels: list[str] | None = None


def check_data(kind: str, values: dict[str, Any]) -> tuple[Settings, SplitSettings]:
    """Check the keys of a section ``data`` beside ``kind`` and return the loader's arguments and the split.

    >>> source, split = check_data("synthetic", {"root": "drawn", "n_images": 60, "queries": 10})
    >>> source.n_images, split.queries
    (60, 10)

    Raises:
        InputError: the kind or a key is unknown, or a value does not fit.
    """
    data_kind = resolve_data_kind(kind)
    loader = settings_of(data_kind.load, frozenset({"progress"}))  # a callback is no setting
    source, split = read_both(loader, SplitSettings, {**data_kind.split_sizes, **values}, "data", f"kind {kind!r}")
    return absolute(source), absolute(split)


def read_data_section(kind: str, overrides: Sequence[str]) -> tuple[Settings, SplitSettings]:
    """Return `check_data` of keys given as ``"key=value"``.

    >>> read_data_section("synthetic", ["root=drawn", "queries=10"])[1].queries
    10

    Raises:
        InputError: as `check_data` and `apply_override`.
    """
    values: dict[str, Any] = {"data": {}}
    for override in overrides:
        apply_override(values, f"data.{override}")
    return check_data(kind, values["data"])


def make_splits(split: SplitSettings, records: Records) -> Splits:
    """Return the splits that a section ``data`` asks for: read from its file, or drawn.

    >>> import numpy as np
    >>> records = Records(tuple("abcdef"), {"text": tuple("abcdef")}, np.ones((6, 1), dtype=bool), ("letter",))
    >>> make_splits(SplitSettings(queries=2, train=3), records).counts()["train"]
    3
    """
    if split.splits is not None:
        return load_splits(split.splits, records)
    return draw_splits(records, split.queries, split.train, split.validation_queries, split.seed, split.split_method)
