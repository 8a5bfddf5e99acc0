"""Quality per byte: what methods of compression keep of vectors, each by its own library.

With ``--data`` and ``--cache`` it measures what ``--rows`` lacks, a method of a data set at a time;
then, and without them, it prints the tables of the page. ``quality_data.py`` says what the folder
of the data holds and how vectors are made, ``quality_methods.py`` what is to be installed.
"""

import argparse
import csv
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from channelhash.compression.trials import score
from quality_data import DataSet, Floats, Rows, load, names
from quality_methods import Index, Method, available
from quality_tables import COLUMNS, print_tables, publish, read_rows, read_tests
from quality_traits import print_traits

#: What says in the environment how many threads a library starts, which reads it when it is loaded.
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON", "REMEX")
#: Questions whose time is taken, at most, and those before them, which only warm up.
_TIMED = 100
_WARM = 5


def main() -> None:
    """Measure what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="the collections; without it nothing is measured")
    parser.add_argument("--cache", type=Path, default=Path("build/quality"), help="their vectors")
    parser.add_argument("--rows", type=Path, help="CSV to go on with (default: the published one)")
    parser.add_argument("--only", default="", help="parts of names of methods, with | between them")
    parser.add_argument("--sets", default="", help="a part of COLLECTION-ENCODER")
    parser.add_argument("--workers", type=int, default=1, help="data sets at the same time")
    parser.add_argument(
        "--publish", action="store_true", help="write the files of the page from --rows"
    )
    parser.add_argument(
        "--traits", action="store_true", help="what predicts where learned codes help; with --data"
    )
    given = parser.parse_args()
    if given.rows is None and (given.data or given.publish):
        parser.error("name the file of the rows: --rows")
    if given.data is not None:
        measure(given)
    if given.publish:
        publish(given.rows)
    print_tables(read_rows(given.rows), read_tests())
    if given.traits:
        print_traits(read_rows(given.rows), given.data, given.cache)


def measure(given: argparse.Namespace) -> None:
    """Append the rows of each method of each data set that the file lacks."""
    done = set()
    if given.rows.exists():
        done = {(row.data_set, row.method) for row in read_rows(given.rows)}
    jobs = [
        (collection, encoder, method.name)
        for collection, encoder in names()
        for method in available()
        if given.sets in f"{collection}-{encoder}"
        and any(part in method.name for part in given.only.split("|"))
        and (f"{collection}-{encoder}", method.name) not in done
    ]
    os.environ.update({f"{name}_NUM_THREADS": "1" for name in _THREADS})
    context = multiprocessing.get_context("spawn")
    cores: Any = context.Queue()
    for core in sorted(os.sched_getaffinity(0))[: given.workers]:
        cores.put(core)
    with ProcessPoolExecutor(given.workers, context, _stay_on_core, (cores,)) as workers:
        futures = [workers.submit(try_method, *job, given.data, given.cache) for job in jobs]
        for future in as_completed(futures):
            append(given.rows, future.result())


def _stay_on_core(cores: Any) -> None:
    os.sched_setaffinity(0, {cores.get()})


def append(file: Path, rows: Sequence[dict[str, object]]) -> None:
    """Add rows to the file."""
    is_new = not file.exists()
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(*(row[name] for name in COLUMNS[:-2]), flush=True)


@lru_cache(maxsize=1)
def _loaded(collection: str, encoder: str, data: Path, cache: Path) -> DataSet:
    return load(collection, encoder, data, cache)


def try_method(
    collection: str, encoder: str, name: str, data: Path, cache: Path
) -> list[dict[str, object]]:
    """Return the rows of a method: one for each setting."""
    data_set = _loaded(collection, encoder, data, cache)
    (method,) = (method for method in available() if method.name == name)
    return list(_rows(data_set, method))


def _rows(data_set: DataSet, method: Method) -> Iterator[dict[str, object]]:
    """Yield the row of each setting."""
    for setting, n_bytes in method.chosen(data_set.width).items():
        began = time.perf_counter()
        index = method.build(data_set.vectors, setting)
        built = time.perf_counter() - began
        per_second = _questions_per_second(index, data_set.questions)
        scores = score(data_set.task, _answers(index, data_set.questions), data_set.exact)
        ndcg = "" if not scores.is_judged else _joined(10_000 * scores.ndcg)
        yield {
            "collection": data_set.collection,
            "encoder": data_set.encoder,
            "vectors": len(data_set.vectors),
            "numbers": data_set.width,
            "method": method.name,
            "setting": setting,
            "bytes": n_bytes,
            "bytes_once": index.shared,
            "questions_per_second": round(per_second, 1),
            "build_seconds": round(built, 3),
            "found": _joined(data_set.exact.shape[1] * scores.neighbours),
            "ndcg": ndcg,
        }


def _joined(values: Any) -> str:
    """Return the scores of questions as whole numbers."""
    return " ".join(map(str, np.rint(values).astype(int).tolist()))


def _answers(index: Index, questions: Floats) -> Rows:
    if index.search_all is not None:
        return index.search_all(questions)
    return np.stack([index.search(question) for question in questions])


def _questions_per_second(index: Index, questions: Floats) -> float:
    """Ask some questions, one at a time."""
    for question in questions[:_WARM]:
        index.search(question)
    asked = questions[:_TIMED]
    began = time.perf_counter()
    for question in asked:
        index.search(question)
    return len(asked) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
