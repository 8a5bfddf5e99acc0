"""Distil an ensemble of three heads into one, also with targets from heads that did not train on the row.

    python examples/ensemble.py runs.csv --data features.npz --queries 1000 --train 5000
    python examples/ensemble.py runs.csv

For each code length and split: three heads of k bits, the same three side by side, one head of 3k bits, and heads of k
bits that learn from labels and from an ensemble, whose distances between the rows of a batch theirs have to follow.
The ensemble is the three heads, or cross-fitted: three of each half of the training rows, for the codes of the other
half. Rate, weight, and which pairs of rows are compared are chosen on validation, with the first split and 32 bits. A
row of ``runs.csv`` is a training. It may hold several collections; what it has is not computed again. The second line
prints the table.
"""

import argparse
import csv
import gzip
import io
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from channelhash.channels import unit_rows
from channelhash.codes import binarize, pack
from channelhash.config import make_config
from channelhash.data.features import load_features
from channelhash.data.records import Records
from channelhash.data.splits import Splits, draw_splits
from channelhash.lab.experiments.comparisons import seed_test
from channelhash.losses import Batch, HashLoss
from channelhash.metrics import hamming_histogram
from channelhash.runs.build import create_loss, create_model
from channelhash.training.sources import Held
from channelhash.training.step import Steps
from channelhash.utils.files import write_text
from channelhash.utils.seeds import derive_seed, generator

MEMBERS, SPLITS, BITS, EPOCHS = (0, 1, 2), (0, 1, 2), (16, 32, 64, 128), 12
FOLDS, RATES, WEIGHTS = 2, (1e-3, 2e-3, 3e-3), (0.3, 1.0, 3.0, 10.0)
ONE, IN_SAMPLE, CROSS, SIDE, LONG = "one head", "distilled", "cross-fitted", "three side by side", "one head of 3k bits"
#: A training or an ensemble: what it is, and its scores.
Row = dict[str, Any]


@dataclass(frozen=True)
class Teacher:
    """Codes ``(m, n, c)`` of the training rows, and ``(n,)`` which rows are compared: those of one group."""

    codes: Tensor
    group: Tensor


class Distilled(HashLoss):
    """A loss of labels, and the mean difference of distances in a batch from the teacher's, in bits of k."""

    needs_rows = True

    def __init__(self, from_labels: HashLoss, teacher: Teacher, weight: float) -> None:
        super().__init__()
        self.from_labels, self.teacher, self.weight = from_labels, teacher, weight

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        own = unit_rows(batch.codes.flatten(0, 1))
        shown = unit_rows(self.teacher.codes[:, batch.rows].flatten(0, 1))
        group = self.teacher.group[batch.rows].repeat(len(batch.outputs))
        compared = group[:, None] == group
        error = ((own @ own.T - shown @ shown.T).abs() * compared).sum() / compared.sum()
        loss: Tensor = self.from_labels(batch.outputs, batch.labels)
        return loss + self.weight * own.shape[1] / 2 * error


@dataclass(frozen=True)
class Cell:
    """A split of a collection, a code length and a learning rate."""

    records: Records
    splits: Splits
    split: int
    n_bits: int
    rate: float = 0.0

    def head(self, seed: int, rows: Any = None, teacher: Teacher | None = None, weight: float = 0.0) -> Any:
        """Train a head on ``rows``, or all training rows, and return its outputs of all items, ``(m, N, k)``."""
        train = {"epochs": EPOCHS, "batch_size": 128, "learning_rate": self.rate, "seed": seed}
        train |= {"device": "cpu", "precision": "bfloat16"}
        model = {"name": "features", "n_bits": self.n_bits, "hidden": [512, 512]}
        loss = {"name": "dsch", "recommended": True}
        config = make_config({"data": {"kind": "features", "path": ""}, "model": model, "loss": loss, "train": train})
        trained = self.records.take(self.splits.train if rows is None else rows)
        network, objective = create_model(config, trained), create_loss(config, trained.labels.shape[1])
        if teacher:
            objective = Distilled(objective, teacher, weight)
        sources = {name: Held(torch.from_numpy(values), config.train) for name, values in trained.items.items()}
        steps = Steps(network.train(), objective, torch.from_numpy(trained.labels), config.train, network.device)
        for epoch in range(EPOCHS):
            torch.manual_seed(derive_seed(seed, "dropout", epoch))
            steps.run(steps.batches(sources, epoch))
        return torch.stack([network.outputs(name, self.records.items[name]) for name in network.modalities]).numpy()

    def ensemble(self, heads: Sequence[Any]) -> Teacher:
        """Return the codes of the training rows by these heads, one after another."""
        codes = torch.from_numpy(np.concatenate([np.sign(head[:, self.splits.train]) for head in heads], axis=2))
        return Teacher(codes, torch.zeros(codes.shape[1], dtype=torch.int64))

    def cross_fitted(self) -> dict[str, Teacher]:
        """Return the codes of each fold's rows by heads that were trained on the other rows.

        Heads of different folds have nothing in common: with ``fold`` only rows of one fold are compared, with
        ``rotated`` the codes are first rotated onto the first fold's, by orthogonal Procrustes over all training rows.
        """
        train = self.splits.train
        fold = generator(self.split, "folds").permutation(len(train)) % FOLDS
        codes = []
        for number in range(FOLDS):
            heads = [self.head(10 * (number + 1) + seed, train[fold != number]) for seed in MEMBERS]
            codes.append(self.ensemble(heads).codes)
        products = [torch.linalg.svd(each.flatten(0, 1).T @ codes[0].flatten(0, 1)) for each in codes]
        rotated = [each @ (u @ v) for each, (u, _, v) in zip(codes, products, strict=True)]
        group, rows = torch.from_numpy(fold), torch.arange(len(fold))
        own, one = (torch.stack(each, 2)[:, rows, group] for each in (codes, rotated))
        return {"fold": Teacher(own, group), "rotated": Teacher(one, torch.zeros_like(group))}

    def row(self, method: str, seed: int, outputs: Any, views: Sequence[str] = (), **settings: Any) -> Row:
        """Return tie-aware mAP of the outputs' signs, by retrieval set and task."""
        q, r, rows = self.splits.query, self.splits.retrieval, self.splits
        sets = {"validation": (rows.validation_query, rows.validation_retrieval)}
        sets |= {"test": (q, r), "leak_free": (q, np.setdiff1d(r, rows.train))}
        codes = {name: pack(binarize(each)) for name, each in zip(self.records.items, outputs, strict=True)}
        labels, n_bits = self.records.labels, outputs.shape[2]
        row: Row = {"method": method, "n_bits": self.n_bits, "split": self.split, "seed": seed, "rate": self.rate}
        row |= {"weight": "", "compared": "", **settings}
        for view, (a, b) in itertools.product(views or sets, itertools.product(codes, repeat=2)):
            q, r = sets[view]
            histogram = hamming_histogram(codes[a][q], codes[b][r], labels[q], labels[r], n_bits=n_bits)
            row[f"{view}/{a}->{b}"] = round(histogram.mean_average_precision(), 6)
        return row


def score(row: Row, view: str) -> float:
    """Return the mean over tasks in percent."""
    return 100 * mean(float(row[key]) for key in row if key.startswith(f"{view}/") and row[key] != "")


def best(trials: Sequence[Row], method: str) -> Row:
    """Return the trial of a method that is best on validation."""
    return max((row for row in trials if row["method"] == method), key=lambda row: score(row, "validation"))


def trials(cell: Cell) -> Iterator[Row]:
    """Yield validation scores of rates of one head, then of weights and folds at the best of them."""
    only, rates = ("validation",), [replace(cell, rate=rate) for rate in RATES]
    rows = [at.row(ONE, 0, at.head(0), only) for at in rates]
    yield from rows
    cell = replace(cell, rate=best(rows, ONE)["rate"])
    teachers = {"": cell.ensemble([cell.head(seed) for seed in MEMBERS])} | cell.cross_fitted()
    for (compared, teacher), weight in itertools.product(teachers.items(), WEIGHTS):
        outputs = cell.head(0, teacher=teacher, weight=weight)
        yield cell.row(CROSS if compared else IN_SAMPLE, 0, outputs, only, weight=weight, compared=compared)


def runs(cell: Cell, tried: Sequence[Row], seeds: int) -> Iterator[Row]:
    """Yield the scores of all methods, with what was best in the trials; at most three seeds."""
    alone, inside, across = (best(tried, method) for method in (ONE, IN_SAMPLE, CROSS))
    cell = replace(cell, rate=float(alone["rate"]))
    heads = [cell.head(seed) for seed in MEMBERS]
    for seed in range(seeds):
        yield cell.row(ONE, seed, heads[seed])
    yield cell.row(SIDE, 0, np.concatenate(heads, axis=2))
    yield cell.row(LONG, 0, replace(cell, n_bits=3 * cell.n_bits).head(0))
    teachers = (inside, cell.ensemble(heads)), (across, cell.cross_fitted()[across["compared"]])
    for (trial, teacher), seed in itertools.product(teachers, range(seeds)):
        settings = {"weight": float(trial["weight"]), "compared": trial["compared"]}
        outputs = cell.head(seed, teacher=teacher, weight=settings["weight"])
        yield cell.row(trial["method"], seed, outputs, **settings)


def table(rows: Sequence[Row]) -> list[str]:
    """Return the table of all collections: one head's scores, and what the others have more, over splits."""
    others = (IN_SAMPLE, CROSS, SIDE, LONG)
    lines = [" | ".join(("| data", "k", "", ONE, *others)) + " |", "| --- | ---: | --- |" + " ---: |" * 5]
    cells = dict.fromkeys((row["data"], row["n_bits"]) for row in rows if not row["trial"])
    for (data, n_bits), view in itertools.product(sorted(cells, key=lambda cell: (cell[0], int(cell[1]))), _VIEWS):
        by_split: dict[tuple[str, str], list[float]] = {}
        for row in rows:
            if (row["data"], row["n_bits"], row["trial"]) == (data, n_bits, ""):
                by_split.setdefault((row["method"], row["split"]), []).append(score(row, view))
        means = {method: [mean(v) for (m, _), v in by_split.items() if m == method] for method in (ONE, *others)}
        gains = (_gain(means[method], means[ONE]) for method in others)
        lines.append(" | ".join((f"| {data}", n_bits, _VIEWS[view], f"{mean(means[ONE]):.2f}", *gains)) + " |")
    return lines


_VIEWS = {"test": "R", "leak_free": "R∖T"}


def _gain(values: Sequence[float], others: Sequence[float]) -> str:
    test = seed_test([a - b for a, b in zip(values, others, strict=True)])
    return f"{test.difference:+.2f} \\[{test.lower:+.2f}, {test.upper:+.2f}\\]".replace("-", "−")


def read(path: Path) -> list[Row]:
    """Return the rows of the file, none if it is not there."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text("utf-8")
    return list(csv.DictReader(io.StringIO(text)))


def fill(path: Path, data: Path, queries: int, train: int, bits: Sequence[int] = BITS, seeds: int = 3) -> None:
    """Compute what the file does not have of a collection, and write it after each cell."""
    records, rows = load_features(data), read(path) if path.exists() else []
    for trial, split, n_bits in [("yes", SPLITS[0], 32), *itertools.product([""], SPLITS, bits)]:
        of_cell = {"data": data.stem, "trial": trial, "split": str(split), "n_bits": str(n_bits)}
        if any(of_cell.items() <= row.items() for row in rows):
            continue
        cell = Cell(records, draw_splits(records, queries, train, seed=split), split, n_bits)
        tried = [row for row in rows if (row["data"], row["trial"]) == (data.stem, "yes")]
        found = [of_cell | row for row in (trials(cell) if trial else runs(cell, tried, seeds))]
        names = list(dict.fromkeys(name for row in (*rows, *found) for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, *found])
        write_text(path, text.getvalue())
        rows = read(path)
        print(*of_cell.values(), flush=True)


def main() -> None:
    """Parse the arguments; without ``--data`` print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--train", type=int, default=5000)
    parser.add_argument("--bits", type=int, nargs="+", default=BITS)
    parser.add_argument("--seeds", type=int, choices=(1, 2, 3), default=3)
    given = parser.parse_args()
    if given.data:
        fill(given.runs, given.data, given.queries, given.train, given.bits, given.seeds)
    print(*table(read(given.runs)), sep="\n")


if __name__ == "__main__":
    main()
