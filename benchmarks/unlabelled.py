"""Measure heads that learn from pairs without labels: by InfoNCE, by channels of the features' own
similarity, and CCA-ITQ.

    python benchmarks/unlabelled.py features.npz --out unlabelled.csv

Heads d → 256 → k, 500 steps of 128 pairs. Every method has twelve trials on seed 0: the best by R@10
of pairs in validation is kept, so that no label chooses. Scores are tie-aware mAP by labels over the
database without training rows, the mean of all tasks, and R@10 of pairs among the queries. Without
a file, pairs of a few topics are drawn.
"""

import argparse
import csv
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import channelhash as ch
from channelhash.codes import CodeSet, binarize, pack
from channelhash.data.features import load_features
from channelhash.data.records import Records
from channelhash.data.splits import draw_splits
from channelhash.losses import ContrastiveLoss, DSCHLoss, HashLoss, ListwiseLoss, SCHLoss
from channelhash.models.heads import hash_head
from channelhash.models.linear_maps import cca_itq
from channelhash.utils.seeds import derive_seed, generator

BATCH = 128
RATES = (2e-3, 6.3e-3, 2e-2)
#: Of the similarity exp((c − 1)/T), c the mean of both modalities' cosines; of InfoNCE; and the
#: regularisation of CCA, times (d₁ + d₂)/n.
TEMPERATURES = {"similarity": (0.2, 0.4, 0.8, 1.6), "InfoNCE": (0.05, 0.1, 0.2, 0.4)}
RIDGES = tuple(3.0 * 4.0**power for power in range(-6, 6))
FIELDS = ("method", "n_bits", "seed", "rate", "temperature", "map", "recall")

Rows = Mapping[str, NDArray[np.float32]]
Encode = Callable[[Rows], Mapping[str, NDArray[np.float32]]]


def main() -> None:
    """Choose and measure each method, and write a row a seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, nargs="?", help="features of pairs, and labels")
    parser.add_argument("--drawn", type=int, default=2000, help="pairs that are drawn")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--bits", type=int, nargs="+", default=[32])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file for the rows as CSV")
    arguments = parser.parse_args()
    file, n_steps = arguments.file, arguments.steps
    records = draw_pairs(arguments.drawn) if file is None else load_features(file)
    rows = []
    print("|", " | ".join(FIELDS), "|")
    print("|---" * len(FIELDS) + "|")
    for n_bits, (name, fit) in product(arguments.bits, METHODS.items()):
        run = partial(measure, records, partial(fit, n_steps=n_steps), n_bits=n_bits)
        trials = {choice: run(choice, seed=0, in_validation=True)[1] for choice in _choices(name)}
        best = max(trials, key=trials.__getitem__)
        for seed in range(arguments.seeds):
            score, recall = run(best, seed=seed, in_validation=False)
            rows.append(dict(zip(FIELDS, (name, n_bits, seed, *best, score, recall), strict=True)))
            print("|", " | ".join(str(rows[-1][field]) for field in FIELDS), "|", flush=True)
    if arguments.out is not None:
        with arguments.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)


def draw_pairs(n: int) -> Records:
    """Draw pairs of image and text features around the centres of ten topics, their labels."""
    random = generator(0, "pairs without labels")
    topics = random.integers(0, 10, n)
    sides = {}
    for name, width in (("image", 48), ("text", 32)):
        centres = random.normal(size=(10, width))
        rows = centres[topics] + random.normal(size=(n, width))
        sides[name] = rows.astype(np.float32)
    ids = tuple(str(number) for number in range(n))
    return Records(ids, sides, np.eye(10, dtype=bool)[topics], tuple("abcdefghij"))


def _choices(name: str) -> list[tuple[float, float]]:
    """Return the twelve settings of a method: rate and temperature."""
    if name == "CCA-ITQ":
        return [(0.0, ridge) for ridge in RIDGES]
    kind = "InfoNCE" if name == "InfoNCE" else "similarity"
    return [*product(RATES, TEMPERATURES[kind])]


def measure(
    records: Records,
    fit: Callable[..., Encode],
    choice: tuple[float, float],
    n_bits: int,
    seed: int,
    in_validation: bool,
) -> tuple[float, float]:
    """Fit one method; return mAP by labels and R@10 of pairs, in percent."""
    n = len(records.ids)
    splits = draw_splits(records, n // 10, n // 2, n // 20, seed=seed)
    encode = fit(_rows(records, splits.train), choice, n_bits, seed)
    asked = splits.validation_query if in_validation else splits.query
    unseen = np.setdiff1d(splits.retrieval, splits.train)
    database = splits.validation_retrieval if in_validation else unseen
    codes = [_codes(records, encode, rows, n_bits) for rows in (asked, database, asked)]
    recall = ch.metrics.recall_at_k(codes[0], codes[2], k=[10])
    scores = ch.metrics.evaluate(codes[0], codes[1])
    mean = np.mean([task["map_tie_aware"] for task in scores.values()])
    found = np.mean([task["recall_at"]["10"] for task in recall.values()])
    return round(100 * float(mean), 2), round(100 * float(found), 2)


def _rows(records: Records, rows: NDArray[np.int64]) -> Rows:
    return {name: np.asarray(values)[rows] for name, values in records.items.items()}


def _codes(records: Records, encode: Encode, rows: NDArray[np.int64], n_bits: int) -> CodeSet:
    packed = {name: pack(binarize(u)) for name, u in encode(_rows(records, rows)).items()}
    ids = [records.ids[row] for row in rows]
    return CodeSet(ids, packed, np.asarray(records.labels)[rows], n_bits=n_bits)


def by_loss(
    make: Callable[..., HashLoss], *, uses_similarity: bool = True
) -> Callable[..., Encode]:
    """Return what trains heads by a loss."""

    def fit(
        train: Rows, choice: tuple[float, float], n_bits: int, seed: int, n_steps: int
    ) -> Encode:
        rate, temperature = choice
        torch.manual_seed(derive_seed(seed, "heads"))
        moments = {name: (x.mean(axis=0), x.std(axis=0) + 1e-6) for name, x in train.items()}
        scaled = {name: _scaled(x, moments[name]) for name, x in train.items()}
        heads = {
            name: hash_head([x.shape[1], 256, n_bits], initial="pytorch")
            for name, x in scaled.items()
        }
        loss = make(n_bits) if uses_similarity else make(temperature=temperature)
        optimizer = torch.optim.Adam(
            [p for head in heads.values() for p in head.parameters()], rate
        )
        near = _similarities(train, temperature) if uses_similarity else None
        no_labels = torch.zeros((BATCH, 0), dtype=torch.bool)
        random = generator(seed, "batches of pairs")
        for _ in range(n_steps):
            rows = random.choice(len(scaled["image"]), BATCH, replace=False)
            outputs = {name: head(scaled[name][rows]) for name, head in heads.items()}
            given = {"labels": no_labels} if near is None else {"similarity": near(rows)}
            optimizer.zero_grad()
            loss(outputs, **given).backward()
            optimizer.step()

        def encode(rows: Rows) -> Mapping[str, NDArray[np.float32]]:
            with torch.no_grad():
                return {
                    name: heads[name].eval()(_scaled(x, moments[name])).numpy()
                    for name, x in rows.items()
                }

        return encode

    return fit


def _scaled(x: NDArray[np.float32], moments: Sequence[NDArray[np.float32]]) -> torch.Tensor:
    return torch.from_numpy(((x - moments[0]) / moments[1]).astype(np.float32))


def _similarities(train: Rows, temperature: float) -> Callable[[NDArray[np.int64]], torch.Tensor]:
    """Return the similarities within a batch: exp((c − 1)/T), c the mean of the cosines of centred
    features over modalities; 1 for a pair itself.
    """
    units = {}
    for name, x in train.items():
        centred = x - x.mean(axis=0)
        units[name] = centred / np.linalg.norm(centred, axis=1, keepdims=True)

    def within(rows: NDArray[np.int64]) -> torch.Tensor:
        cosines = np.mean([u[rows] @ u[rows].T for u in units.values()], axis=0)
        soft = np.exp((np.minimum(cosines, 1) - 1) / temperature)
        return torch.from_numpy(soft.astype(np.float32))

    return within


def by_cca(
    train: Rows, choice: tuple[float, float], n_bits: int, seed: int, n_steps: int
) -> Encode:
    """Fit CCA-ITQ; the second part of the choice is its regularisation."""
    n = len(train["image"])
    rho = choice[1] * sum(x.shape[1] for x in train.values()) / n
    maps = cca_itq(train, n_bits, seed, rho)
    return lambda rows: {name: maps[name](x) for name, x in rows.items()}


METHODS = {
    "CCA-ITQ": by_cca,
    "InfoNCE": by_loss(ContrastiveLoss, uses_similarity=False),
    "DSCH": by_loss(DSCHLoss),
    "SCH": by_loss(SCHLoss),
    "listwise": by_loss(ListwiseLoss),
}

if __name__ == "__main__":
    main()
