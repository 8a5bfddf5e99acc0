"""What predicts whether learned codes find more neighbours than those of ITQ, tested on encoders
that are left out.

    python benchmarks/which.py --data DATA --cache CACHE [--rows rows.csv]

Data and rows are those of `quality`. A data set's gain is the R@10 of learned codes of 128 bits
less that of ITQ's. A line through the other encoders' gains predicts those of one encoder, by each
of `Traits` alone. Shown are the rank correlation with the gain, the mean absolute error, and how
often the sign is right.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from channelhash.compression.traits import Traits, traits_of
from quality_data import DataSet, load, names
from quality_tables import Row, read_rows

#: Methods that are compared, and their bits.
ITQ = "ours, bits"
LEARNED = "ours, learned bits"
BITS = "128"


def main() -> None:
    """Print a line a trait."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--rows", type=Path, help="CSV (default: the published one)")
    given = parser.parse_args()
    rows = read_rows(given.rows)
    encoders = []
    found = []
    gains = []
    for collection, encoder in names():
        gain = gain_of(rows, collection, encoder)
        if gain is None:
            continue
        traits = traits_of_set(load(collection, encoder, given.data, given.cache))
        print(f"{collection}-{encoder}: {gain:+.1f}", *(f"{value:.3f}" for value in traits))
        encoders.append(encoder)
        found.append(traits)
        gains.append(gain)
    print("| trait | rank correlation | mean absolute error | sign is right |")
    print("| --- | ---: | ---: | ---: |")
    target = np.array(gains)
    print(line("none", np.zeros((len(target), 0)), target, encoders))
    for place, name in enumerate(Traits._fields):
        values = np.array(found)[:, place]
        if name == "vectors_a_number":
            values = np.log(values)
        print(line(name, values[:, None], target, encoders))


def gain_of(rows: list[Row], collection: str, encoder: str) -> float | None:
    """Return the gain of a data set; None where it was not measured."""
    recalls = {
        row.method: float(np.mean(row.recall))
        for row in rows
        if (row.collection, row.encoder, row.setting) == (collection, encoder, BITS)
    }
    if not {ITQ, LEARNED} <= recalls.keys():
        return None
    return recalls[LEARNED] - recalls[ITQ]


def traits_of_set(data_set: DataSet) -> Traits:
    """Return the traits of a data set."""
    vectors = data_set.vectors
    return traits_of(len(vectors), vectors, data_set.questions, "cosine")


def line(name: str, values: np.ndarray, gains: np.ndarray, encoders: list[str]) -> str:
    """Return the line of a trait ``(n, 1)``, or of the mean gain alone ``(n, 0)``."""
    predicted = np.empty(len(gains))
    for encoder in set(encoders):
        held = np.array([each == encoder for each in encoders])
        inputs = np.column_stack([np.ones(len(gains)), values])
        weights, *_ = np.linalg.lstsq(inputs[~held], gains[~held], rcond=None)
        predicted[held] = inputs[held] @ weights
    error = np.abs(predicted - gains).mean()
    right = int((np.sign(predicted) == np.sign(gains)).sum())
    correlation = f"{spearmanr(values[:, 0], gains)[0]:+.2f}" if values.size else ""
    return f"| {name} | {correlation} | {error:.1f} | {right} of {len(gains)} |"


if __name__ == "__main__":
    main()
