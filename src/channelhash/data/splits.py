"""Partitions of a collection: queries, the database that they search, training and validation
rows.
"""

import json
import re
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from channelhash.data.records import Labels, NameList, Records
from channelhash.errors import InputError
from channelhash.utils.decode import reading
from channelhash.utils.files import write_text
from channelhash.utils.hashes import content_hash
from channelhash.utils.seeds import generator
from channelhash.utils.typed_settings import Settings

RowNumbers = NDArray[np.int64]
_Method = Literal["random", "stratified", "per_class", "given"]
#: Size of T; ``rest`` is all but Q, V_q and a row.
_TrainRows = int | Literal["rest"] | None

#: Ids of rows from a file of features that comes in parts.
_PART_ID = re.compile(r"(train|database|query|validation)\d+")


@dataclass(frozen=True)
class Splits:
    """Sorted row numbers of each partition. Q ∩ R = ∅, T ⊂ R, V_q and V_r lie in R∖T and are
    disjoint (§ 1).

    >>> rows = [np.array(rows) for rows in ([0], [1, 2, 3, 4], [1, 2], [3], [4])]
    >>> Splits(*rows).counts()["retrieval"]
    4
    """

    query: RowNumbers
    retrieval: RowNumbers
    train: RowNumbers
    validation_query: RowNumbers
    validation_retrieval: RowNumbers

    def counts(self) -> dict[str, int]:
        """Count the rows of each partition, by name."""
        return {name: len(rows) for name, rows in vars(self).items()}

    def join(self, second: "Splits", n_first: int) -> "Splits":
        """Return the splits of two joined collections: these, of the first with ``n_first`` rows,
        and ``second``.

        >>> splits = Splits(*(np.array([row]) for row in range(5)))
        >>> [rows.tolist() for rows in vars(splits.join(splits, n_first=5)).values()]
        [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]]
        """
        parts = {
            name: np.concatenate([rows, getattr(second, name) + n_first])
            for name, rows in vars(self).items()
        }
        return Splits(**parts)

    def save(self, records: Records, path: Path, settings: dict[str, Any]) -> None:
        """Write splits as JSON, with the hashes of their collection and of the rows."""
        document = {
            "data_hash": records.content_hash(),
            "rows_hash": self._hash(),
            "settings": settings,
            "counts": self.counts(),
            "rows": {name: rows.tolist() for name, rows in vars(self).items()},
        }
        write_text(path, json.dumps(document))

    @classmethod
    def load(cls, path: Path, records: Records) -> "Splits":
        """Read what `save` has written."""
        if not path.exists():
            raise InputError(f"{path}: no such splits file")
        with reading(path, "not a readable splits file", "remove it to draw the splits again"):
            document = json.loads(path.read_text(encoding="utf-8"))
            parts = {
                name: np.asarray(rows, dtype=np.int64) for name, rows in document["rows"].items()
            }
            splits = cls(**parts)
            data_hash = document["data_hash"]
            rows_hash = document["rows_hash"]
        if rows_hash != splits._hash():
            raise InputError(
                f"{path}: the rows do not match their hash, the file was changed; remove it to "
                "draw again"
            )
        if data_hash != records.content_hash():
            raise InputError(
                f"{path}: these splits belong to another collection (ids or labels differ from the "
                "data)"
            )
        return splits

    def _hash(self) -> str:
        return content_hash(*(rows.astype("<i8").tobytes() for rows in vars(self).values()))


class SplitSettings(Settings):
    """How the rows are split; keys of the section ``data`` beside those of the data set's loader.

    Attributes:
        queries: rows of Q; None takes the literature's number for the data set, else a tenth of the
            rows.
        train: rows of T, drawn from R = D∖Q; None likewise, else half of R; ``rest``, all that is
            left beside V_q.
        validation_queries: rows of V_q, drawn from R∖T; None likewise. See `draw_splits` for
            ``given``.
        seed: of the draw.
        split_method: at random, stratified by labels, a number of queries and training rows per
            label, or as in the file.
        splits: a file of splits to use instead (``splits.json`` of another run).
        only_labels: keep only the rows that have one of these labels, before the split; all if
            None.
        without_labels: leave out the rows that have one of these labels, and the labels themselves.
    """

    queries: int | None = None
    train: _TrainRows = None
    validation_queries: int | None = None
    seed: int = Field(0, ge=0)
    split_method: _Method = "random"
    splits: Path | None = None
    only_labels: NameList | None = None
    without_labels: NameList | None = None

    def draw(self, records: Records) -> Splits:
        """Return the splits that the settings ask for: drawn, or read from their file.

        >>> ids = tuple("abcdef")
        >>> records = Records(ids, {"text": ids}, np.ones((6, 1), dtype=bool), ("letter",))
        >>> SplitSettings(queries=2, train=3).draw(records).counts()["train"]
        3
        """
        if self.splits is not None:
            return Splits.load(self.splits, records)
        return draw_splits(
            records, self.queries, self.train, self.validation_queries, self.seed, self.split_method
        )


def draw_splits(
    records: Records,
    queries: int | None = None,
    train: _TrainRows = None,
    validation_queries: int | None = None,
    seed: int = 0,
    method: _Method = "random",
) -> Splits:
    """Draw Q from D, T from R = D∖Q, V_q from R∖T; V_r is the rest of R∖T (``protocol.md`` § 1).

    A random draw depends on ``seed`` and the ids alone; one by labels also on the order of the
    rows. Rows that share an id or an image (`Records.pair_ids`) are drawn together, into one of Q,
    T, V_q and V_r; a size that whole ids cannot make is missed by fewer rows than one id has.
    Defaults: a tenth of the rows (at most 2,000) as queries, half of the rest as training rows, as
    many validation as test queries (at most half of R∖T).

    Args:
        records: collection D.
        queries: size of Q.
        train: size of T; ``"rest"`` leaves V_q, and a row or, where rows share an image, a few to
            V_r.
        validation_queries: size of V_q.
        seed: of the draw.
        method: ``"stratified"`` draws each partition by iterative stratification; without labels at
            random. ``"per_class"`` reads ``queries`` and ``train`` as numbers per label, as much of
            the literature does, and draws V_q at random. Both need unique ids and, where there are
            labels, one row an image. ``"given"`` takes Q, T and R = T ∪ database from a features
            file that comes in parts and draws V_q alone, from its validation part if it has one.
            Without a validation part and a database, V_q and V_r are each a tenth of T, or
            ``validation_queries`` rows of it, and are not trained on.

    Raises:
        InputError: a count is negative or larger than the rows allow; all rows have the same id;
            the method needs unique ids, counts, or parts that are missing.

    >>> ids = tuple("abcdefghij")
    >>> records = Records(ids, {"text": ids}, np.ones((10, 1), dtype=bool), ("letter",))
    >>> draw_splits(records, queries=2, train=4, seed=1).counts()
    {'query': 2, 'retrieval': 8, 'train': 4, 'validation_query': 2, 'validation_retrieval': 2}
    """
    if method == "given":
        if queries is not None or train is not None:
            raise InputError(
                "data.split_method given takes queries and train from the file; leave both "
                "settings out"
            )
        return _splits_of_parts(records, validation_queries, seed)
    random = generator(seed, "splits")
    if method == "per_class":
        return _draw_per_class(records, queries, train, validation_queries, random)
    by_labels = method == "stratified" and bool(records.label_names)
    return _draw(records, queries, train, validation_queries, random, by_labels)


def _draw(
    records: Records,
    queries: int | None,
    train: _TrainRows,
    validation_queries: int | None,
    random: Generator,
    by_labels: bool,
) -> Splits:
    """Draw each partition at random or by iterative stratification."""
    if by_labels:
        _check_one_row_an_id(records, "stratified")

    def cut(rows: RowNumbers, count: int) -> tuple[RowNumbers, RowNumbers]:
        if not by_labels:
            return _cut(rows, count, records)
        drawn = _stratified_sample(records.labels, rows, count, random)
        return drawn, np.setdiff1d(rows, drawn)

    rows = _shuffled_rows(records, random)
    queries, train, validation_queries = _sizes(len(records), queries, train, validation_queries)
    query, rest = cut(rows, queries)
    if not len(rest):
        raise InputError(
            f"all {len(records)} usable rows have the same id; give each item an id of its own"
        )
    trained, rest = cut(rest, train)
    return _splits(query, trained, *cut(rest, validation_queries))


def _draw_per_class(
    records: Records,
    queries: int | None,
    train: _TrainRows,
    validation_queries: int | None,
    random: Generator,
) -> Splits:
    """Draw a number of queries and of training rows for each label."""
    if not records.label_names:
        raise InputError(
            "data.split_method per_class needs labels, and there are none; draw these splits at "
            "random"
        )
    _check_one_row_an_id(records, "per_class")
    if queries is None or train is None or train == "rest" or min(queries, train) < 0:
        raise InputError(
            "data.split_method per_class needs queries and train, as numbers a label from 0 up"
        )
    rows = _shuffled_rows(records, random)
    query = _per_class_sample(records.labels, rows, queries, random)
    if len(query) == len(records):
        raise InputError(
            f"data.split_method per_class: {queries} queries a label are all {len(query)} rows"
        )
    rest = random.permutation(np.setdiff1d(rows, query))
    trained = _per_class_sample(records.labels, rest, train, random)
    rest = random.permutation(np.setdiff1d(rest, trained))
    _, _, count = _sizes(len(records), len(query), len(trained), validation_queries)
    return _splits(query, trained, *_cut(rest, count, records))


def _check_one_row_an_id(records: Records, method: _Method) -> None:
    if len(set(records.pair_ids)) < len(records):
        raise InputError(f"data.split_method {method} needs unique ids, and one row an image")


def _splits(
    query: RowNumbers,
    train: RowNumbers,
    validation_query: RowNumbers,
    validation_retrieval: RowNumbers,
) -> Splits:
    retrieval = np.concatenate([train, validation_query, validation_retrieval])
    return Splits(*map(np.sort, (query, retrieval, train, validation_query, validation_retrieval)))


def _sizes(
    n: int, queries: int | None, train: _TrainRows, validation_queries: int | None
) -> tuple[int, int, int]:
    """Return the sizes of Q, T and V_q, with defaults filled in.

    Raises:
        InputError: they do not fit.
    """
    if n < 2:
        raise InputError(
            f"{n} usable rows: at least 2 are needed, one to query and one to be found"
        )
    queries = _or_default(queries, min(2000, max(1, n // 10)))
    if not 0 < queries < n:
        raise InputError(
            f"queries: {queries} asked for, but there are {n} usable rows; choose 1 … {n - 1}"
        )
    rest = n - queries
    if train == "rest":
        validation_queries = _or_default(validation_queries, min(queries, rest // 2))
        train = max(rest - validation_queries - 1, 0)
    train = _or_default(train, rest // 2)
    if not 0 <= train <= rest:
        raise InputError(
            f"train: {train} asked for, but {rest} rows are left after {queries} queries"
        )
    rest -= train
    validation_queries = _or_default(validation_queries, min(queries, rest // 2))
    if not 0 <= validation_queries <= max(rest - 1, 0):
        raise InputError(
            f"validation_queries: {validation_queries} asked for, but {rest} rows are left"
        )
    return queries, train, validation_queries


def _or_default(size: int | None, default: int) -> int:
    return default if size is None else size


def _shuffled_rows(records: Records, random: Generator) -> RowNumbers:
    """Shuffle all rows; rows of one id, and texts of one image, stay next to each other."""
    ids, group = np.unique(np.asarray(records.pair_ids, dtype=str), return_inverse=True)
    return np.argsort(random.permutation(len(ids))[group], kind="stable").astype(np.int64)


def _splits_of_parts(records: Records, validation_queries: int | None, seed: int) -> Splits:
    """Return the splits of a features file that comes in parts, which the ids name."""
    parts = np.array([name.rstrip("0123456789") for name in records.ids])
    query = np.flatnonzero(parts == "query")
    trained = np.flatnonzero(parts == "train")
    if not all(map(_PART_ID.fullmatch, records.ids)) or not 0 < len(query) < len(records):
        raise InputError(
            "data.split_method given needs a features file with the parts I_te … and I_tr … or "
            "I_db …"
        )
    shuffled = _shuffled_rows(records, generator(seed, "splits"))
    rest = shuffled[parts[shuffled] == "database"]
    validation = shuffled[parts[shuffled] == "validation"]
    if len(validation):
        parts_of_file = (query, trained, validation, rest)
        return _with_validation_part(records, parts_of_file, validation_queries)
    if len(rest):
        _, _, count = _sizes(len(records), len(query), len(trained), validation_queries)
        return _splits(query, trained, *_cut(rest, count, records))
    count = _or_default(validation_queries, len(trained) // 10)
    if not 0 <= 2 * count < len(trained):
        most = (len(trained) - 1) // 2
        raise InputError(
            f"validation_queries: {count} asked for, but {len(trained)} training rows allow 0 … "
            f"{most}"
        )
    validation_query, rest = _cut(shuffled[parts[shuffled] == "train"], count, records)
    validation_retrieval, rest = _cut(rest, count, records)
    return _splits(query, rest, validation_query, validation_retrieval)


def _with_validation_part(
    records: Records,
    parts: tuple[RowNumbers, RowNumbers, RowNumbers, RowNumbers],
    validation_queries: int | None,
) -> Splits:
    """Return the splits of a file with a validation part.

    V_q is drawn from that part; V_r is the rest of it and the database. By default V_q is all of
    the part, or half of it without a database.
    """
    query, trained, validation, database = parts
    default = len(validation) if len(database) else len(validation) // 2
    count = _or_default(validation_queries, default)
    most = min(len(validation), len(validation) + len(database) - 1)
    if not 0 <= count <= most:
        raise InputError(
            f"validation_queries: {count} asked for, but the {len(validation)} rows of the "
            f"validation part allow 0 … {most}"
        )
    validation_query, rest = _cut(validation, count, records)
    return _splits(query, trained, validation_query, np.concatenate([rest, database]))


def _cut(rows: RowNumbers, count: int, records: Records) -> tuple[RowNumbers, RowNumbers]:
    """Split off ``count`` rows, as whole ids in the order of the rows.

    An id with too many rows is skipped and comes last in the rest. If the ids do not add up to
    ``count``, fewer rows are split off, but one id at least.
    """
    names = records.pair_ids
    id_rows = [list(group) for _, group in groupby(rows.tolist(), key=lambda row: names[row])]
    chosen: list[list[int]] = []
    skipped: list[list[int]] = []
    rest: list[list[int]] = []
    remaining = count
    for group in id_rows:
        if not remaining:
            rest.append(group)
        elif len(group) <= remaining:
            chosen.append(group)
            remaining -= len(group)
        else:
            skipped.append(group)
    if count and skipped and not chosen:
        chosen.append(skipped.pop(int(np.argmin(list(map(len, skipped))))))
    return np.array([*chain(*chosen)], np.int64), np.array([*chain(*rest, *skipped)], np.int64)


def _stratified_sample(
    labels: Labels, rows: RowNumbers, count: int, random: Generator
) -> RowNumbers:
    """Draw ``count`` of ``rows`` with about the same share of each label: iterative stratification
    into two subsets (Sechidis, Tsoumakas and Vlahavas 2011, algorithm 1).

    Rows of the label with the fewest remaining rows are dealt out first, each to the subset that
    needs most of that label, ties to the subset that needs most rows, then at random. Rows without
    labels fill up.

    >>> labels = np.arange(8)[:, None] % 4 == 0  # one row in four has the label
    >>> rows = _stratified_sample(labels, np.arange(8), 4, np.random.default_rng(0))
    >>> len(rows), int(labels[rows].sum())
    (4, 1)
    """
    rows = random.permutation(rows)
    row_labels = labels[rows]
    needed_rows = np.array([count, len(rows) - count], dtype=np.float64)
    remaining = row_labels.sum(axis=0)
    # (2, c): rows of each label that a subset needs
    needed = (needed_rows / max(1, len(rows)))[:, None] * remaining
    subset = np.full(len(rows), -1)
    members = [np.flatnonzero(column).tolist() for column in row_labels.T]
    while (remaining > 0).any():
        label = int(np.where(remaining > 0, remaining, np.iinfo(remaining.dtype).max).argmin())
        for row in members[label]:
            if subset[row] >= 0:
                continue
            # The subset that needs most of the label; on a tie most rows; then either.
            needs = needed[:, label] if needed[0, label] != needed[1, label] else needed_rows
            chosen = int(needs[1] > needs[0]) if needs[0] != needs[1] else int(random.integers(2))
            subset[row] = chosen
            needed[chosen] -= row_labels[row]
            needed_rows[chosen] -= 1
            remaining -= row_labels[row]
    # Subset sizes are exact only in expectation: rows without labels, else the last ones dealt,
    # make up the difference.
    order = [
        np.flatnonzero(subset == 0),
        np.flatnonzero(subset == -1),
        np.flatnonzero(subset == 1)[::-1],
    ]
    return np.sort(rows[np.concatenate(order)[:count]])


def _per_class_sample(
    labels: Labels, rows: RowNumbers, n_per_class: int, random: Generator
) -> RowNumbers:
    """Draw ``n_per_class`` rows for every label, as much of the literature draws its queries.

    Labels are served in their order; a row drawn for one label is not drawn again for the next, so
    frequent labels end up with more than ``n_per_class`` (the paper's objection to it). A label
    with fewer rows left gives them all.

    >>> labels = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], dtype=bool)
    >>> len(_per_class_sample(labels, np.arange(4), 1, np.random.default_rng(0)))
    2
    """
    order = random.permutation(rows)
    taken = np.zeros(len(labels), dtype=bool)
    for label in range(labels.shape[1]):
        candidates = order[labels[order, label] & ~taken[order]]
        taken[candidates[:n_per_class]] = True
    return np.flatnonzero(taken).astype(np.int64)
