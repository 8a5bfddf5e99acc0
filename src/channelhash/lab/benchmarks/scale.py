"""Growth of bulk encoding and evaluation over shards with the collection, in seconds and in memory."""

import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from channelhash.codes.code_set import CodeSet
from channelhash.data.records import Records
from channelhash.lab.benchmarks.metrics import draw_labels
from channelhash.models import MODELS
from channelhash.scale.encode import encode_bulk
from channelhash.scale.evaluate import evaluate_shards
from channelhash.scale.job import shard_files
from channelhash.utils.files import atomic_path
from channelhash.utils.memory import measure_extra_memory
from channelhash.utils.processes import interrupts_held, process_pool
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, single_row

Result = TypeVar("Result")

_WIDTH, _HIDDEN, _N_BITS, _LABELS, _QUERIES = 64, 256, 64, 24, 1000
# Items that are drawn, and items of a shard.
_ROWS = 1 << 16


def benchmark_scale(sizes: Sequence[int] = (10**4, 10**5, 10**6, 10**7)) -> list[Row]:
    """Measure encoding and evaluating a collection of each size, each in a fresh process.

    The items are features of 64 numbers in a Parquet file and the model is a hash head with one hidden layer of 256, so
    that no backbone is measured. 1000 queries of one task are evaluated.

    Args:
        sizes: numbers of items, at least 1000. 10⁷ take 3 GB in the folder for temporary files.

    Returns:
        Rows without an alternative, measured once, from opening the input to the last file; ``peak_mb`` is beyond what
        a process holds that has only imported this package and its libraries.
    """
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        model = _write_model(Path(folder) / "model")
        for n in sizes:
            rows += _measure_size(n, model, Path(folder) / str(n))
    return rows


def _measure_size(n: int, model: Path, folder: Path) -> list[Row]:
    data, out, query = folder / "features.parquet", folder / "codes", folder / "query.parquet"
    _run_apart(partial(_write_features, data, n))
    encode = partial(encode_bulk, model, str(data), out, shard_items=_ROWS)
    encoded = _run_apart(partial(_measure, "encode", f"{n} items, {_N_BITS} bits", n, encode))
    data.unlink()
    CodeSet.load(shard_files(out)[0]).take(range(min(n, _QUERIES))).save(query)
    evaluate = partial(evaluate_shards, query, out)
    return [encoded, _run_apart(partial(_measure, "evaluate", f"{n} items, {_QUERIES} queries", n, evaluate))]


def _run_apart(run: Callable[[], Result]) -> Result:
    """Call ``run`` in a fresh process, so that measurements do not share memory."""
    with process_pool(1) as pool:
        with interrupts_held():
            result = pool.submit(run)
        return result.result()


def _measure(what: str, size: str, n: int, run: Callable[[], object]) -> Row:
    began = time.perf_counter()
    peak = measure_extra_memory(run)
    seconds = time.perf_counter() - began
    return single_row(f"{what} ({n / seconds:,.0f} items/s)", size, seconds, peak)


def _write_model(folder: Path) -> Path:
    """Write an untrained hash head, which costs what a trained one does."""
    features = generator(0, "scale sample").normal(size=(1000, _WIDTH)).astype(np.float32)
    records = Records(tuple(map(str, range(1000))), {"image": features}, np.ones((1000, 1), dtype=bool), ("label",))
    torch.manual_seed(0)
    MODELS["features"].create(records, _N_BITS, hidden=[_HIDDEN]).save_pretrained(folder)
    return folder


def _write_features(path: Path, n: int) -> None:
    """Write items whose features are their labels' directions plus noise, a row group at a time."""
    directions = generator(0, "scale directions").normal(size=(_LABELS, _WIDTH)).astype(np.float32)
    names = pa.array([f"label {j}" for j in range(_LABELS)])
    path.parent.mkdir(parents=True)
    with atomic_path(path) as temporary:
        writer = None
        for start in range(0, n, _ROWS):
            count = min(_ROWS, n - start)
            labels = draw_labels(count, _LABELS, f"part {start}")
            noise = generator(0, "scale noise", start).normal(size=(count, _WIDTH)).astype(np.float32)
            offsets = np.concatenate([[0], np.cumsum(labels.sum(axis=1))]).astype(np.int32)
            table = pa.table(
                {
                    "id": [str(i) for i in range(start, start + count)],
                    "image": pa.FixedSizeListArray.from_arrays(pa.array((labels @ directions + noise).ravel()), _WIDTH),
                    "labels": pa.ListArray.from_arrays(offsets, names.take(pa.array(np.nonzero(labels)[1]))),
                }
            )
            writer = writer or pq.ParquetWriter(temporary, table.schema)
            writer.write_table(table)
        assert writer is not None  # n is at least 1
        writer.close()
