"""What predicts whether learned codes find more neighbours than those of ITQ, tested on encoders
that are left out.

A data set's gain is the R@10 of learned codes of 128 bits less that of ITQ's. A line through the
other encoders' gains predicts those of one encoder, by each of `Traits` alone. Shown are the rank
correlation with the gain, the mean absolute error, and how often the sign is right.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import skew, spearmanr

from channelhash.compression.proof import question_distance
from channelhash.compression.rivals import nearest
from quality_data import DataSet, load, names
from quality_tables import Row

#: Methods that are compared, and their bits.
ITQ = "ours, bits"
LEARNED = "ours, learned bits"
BITS = "128"
#: Nearest vectors of which hubs are in many.
N_NEAR = 10


class Traits(NamedTuple):
    """Numbers that describe vectors of unit length and their questions.

    Attributes:
        vectors_a_number: vectors for each number of one, n / d.
        share: effective dimensions of their spectrum, (Σ λ)² / Σ λ², over d.
        mean: length of the mean.
        hubness: skewness of how often a vector is among the ten nearest of others (Radovanović
            et al., "Hubs in Space", JMLR 2010).
        distance: see `question_distance`.
    """

    vectors_a_number: float
    share: float
    mean: float
    hubness: float
    distance: float


def print_traits(rows: list[Row], data: Path, cache: Path) -> None:
    """Print a line a trait."""
    encoders = []
    found = []
    gains = []
    for collection, encoder in names():
        gain = gain_of(rows, collection, encoder)
        if gain is None:
            continue
        traits = traits_of_set(load(collection, encoder, data, cache))
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
    n, d = vectors.shape
    spectrum = np.linalg.eigvalsh(np.cov(vectors, rowvar=False))
    near = nearest(vectors, vectors, 1 + N_NEAR, "cosine")[:, 1:]  # the first one is itself
    return Traits(
        n / d,
        float(spectrum.sum() ** 2 / (np.square(spectrum).sum() * d)),
        float(np.linalg.norm(vectors.mean(axis=0))),
        float(skew(np.bincount(near.ravel(), minlength=n))),
        question_distance(vectors, data_set.questions, "cosine"),
    )


def line(
    name: str, values: NDArray[np.float64], gains: NDArray[np.float64], encoders: list[str]
) -> str:
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
