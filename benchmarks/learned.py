"""Measure codes that are learned from vectors' own neighbours, beside ITQ.

    python benchmarks/learned.py captions=minilm.npy photographs=lite2.npy --out learned.csv

Without files, vectors on a curved surface of few dimensions are drawn. Of each, 1,000 vectors at
most are held out and asked, by the seed. R@10 is the share of a question's ten nearest in floats
that are found: by the number of different bits, and by the question's outputs. With ``--tried``,
variants that do not help follow, of the first seed.
"""

import argparse
import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.compression import learning
from channelhash.compression.compressor import Compressor, Searcher, sample_of
from channelhash.compression.rivals import nearest
from channelhash.compression.task import make_task
from channelhash.data.vectors import Vectors, load_vectors
from channelhash.losses import DSCHLoss, HashLoss, SCHLoss
from channelhash.metrics.retrieval import neighbour_recall
from channelhash.models.linear_maps import LinearMap, pca_itq
from channelhash.utils.seeds import generator

FIELDS = ("vectors", "n", "width", "codes", "n_bits", "seed", "bits", "outputs", "seconds")
K = 10


def main() -> None:
    """Measure, and write a row a code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--drawn", type=int, default=9000, help="vectors that are drawn")
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tried", action="store_true", help="variants that do not help, too")
    parser.add_argument("--out", type=Path, help="file for the rows as CSV")
    arguments = parser.parse_args()
    rows = []
    print("|", " | ".join(FIELDS), "|")
    print("|---" * len(FIELDS) + "|")
    for name, vectors in _sources(arguments.files, arguments.drawn):
        for row in measure(vectors, arguments.bits, arguments.seeds, arguments.tried):
            rows.append({"vectors": name, **row})
            print("|", " | ".join(str(rows[-1][field]) for field in FIELDS), "|", flush=True)
    if arguments.out is not None:
        with arguments.out.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(rows)


def _sources(files: list[str], n_drawn: int) -> Iterator[tuple[str, Vectors]]:
    """Yield the name and the vectors of each file, or drawn ones without any."""
    for given in files:
        name, _, path = given.partition("=")
        yield name, load_vectors(Path(path))
    if not files:
        random = generator(0, "vectors on a surface")
        places = random.normal(size=(n_drawn, 12))
        hidden = np.tanh(places @ random.normal(size=(12, 96)) / 2)
        yield "drawn", Vectors.of((hidden @ random.normal(size=(96, 128))).astype(np.float32))


def measure(
    vectors: Vectors, lengths: list[int], n_seeds: int, with_tried: bool
) -> Iterator[dict[str, Any]]:
    """Yield a row for each code of some vectors."""
    for seed in range(n_seeds):
        task = make_task(vectors, seed=seed)
        exact = nearest(task.questions, task.vectors, K, "cosine")
        for n_bits in lengths:
            methods = {"itq": _itq, "learned": _learned}
            if with_tried and seed == 0:
                methods |= TRIED
            for name, fit in methods.items():
                began = time.perf_counter()
                compressor = fit(task.vectors, n_bits, seed)
                seconds = time.perf_counter() - began
                found = _ask(compressor, task.vectors, task.questions, exact)
                yield {
                    "n": len(task.vectors),
                    "width": vectors.width,
                    "codes": name,
                    "n_bits": n_bits,
                    "seed": seed,
                    **found,
                    "seconds": round(seconds, 1),
                }


def _ask(
    compressor: Compressor,
    vectors: Vectors,
    questions: NDArray[np.float32],
    exact: NDArray[np.int64],
) -> dict[str, float]:
    searcher = Searcher(compressor, compressor.encode(vectors))
    found = {}
    for name, by_bits in (("bits", True), ("outputs", False)):
        rows = searcher.search(questions, K, by_bits=by_bits).rows
        found[name] = round(100 * float(neighbour_recall(rows, exact).mean()), 2)
    return found


def _itq(vectors: Vectors, n_bits: int, seed: int) -> Compressor:
    return Compressor.fit(vectors, n_bits, None, seed=seed)


def _learned(vectors: Vectors, n_bits: int, seed: int) -> Compressor:
    return Compressor.fit(vectors, n_bits, None, method="learned", seed=seed)


def _by_loss(loss: Callable[[int], HashLoss]) -> Callable[[Vectors, int, int], Compressor]:
    """Return a fit by another loss than the listwise one."""

    def fit(vectors: Vectors, n_bits: int, seed: int) -> Compressor:
        start = pca_itq(sample_of(vectors, "cosine", seed), n_bits, seed, "vector")
        sample = sample_of(vectors, "cosine", seed, learning.SAMPLE)
        return _of_map(learning.learn_map(sample, start, seed=seed, loss=loss(n_bits)))

    return fit


def _of_map(fitted: LinearMap) -> Compressor:
    return Compressor(
        fitted.mean.astype(np.float32), fitted.weights.astype(np.float32), None, "cosine"
    )


def _with(**constants: float) -> Callable[[Vectors, int, int], Compressor]:
    """Return a fit with other constants of `channelhash.compression.learning`."""

    def fit(vectors: Vectors, n_bits: int, seed: int) -> Compressor:
        usual = {name: getattr(learning, name) for name in constants}
        try:
            for name, value in constants.items():
                setattr(learning, name, value)
            return _learned(vectors, n_bits, seed)
        finally:
            for name, value in usual.items():
                setattr(learning, name, value)

    return fit


#: What was tried, by name.
TRIED = {
    "dsch": _by_loss(DSCHLoss),
    "sch": _by_loss(SCHLoss),
    "batches of 1,024 without neighbours": _with(_SEEDS=1024, _NEAR_EACH=0),
    "without a pull to ITQ": _with(_DECAY=0.0),
    "3 of 16 neighbours count": _with(_PERPLEXITY=3),
    "13 of 16 neighbours count": _with(_PERPLEXITY=13),
}


if __name__ == "__main__":
    main()
