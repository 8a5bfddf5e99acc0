"""Bulk encoding and evaluation on a Ray cluster that loses a node and gains one, beside one process."""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from channelhash.codes.code_set import CodeSet
from channelhash.lab.benchmarks.bulk_inputs import write_features, write_model
from channelhash.lab.benchmarks.ray_cluster import RayNodes, StoreBytes, ray_nodes
from channelhash.scale.encode import encode_bulk
from channelhash.scale.engines import LOCAL, Workers
from channelhash.scale.evaluate import evaluate_shards
from channelhash.scale.job import shard_files
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.timing import Row, single_row

_NODES, _QUERIES = 3, 1000


class RayRow(Row):
    """What was measured of one job; the alternative is one process.

    Attributes:
        same: whether all files, or all scores, are those of one process to the bit.
        shards: files of codes.
        store_bytes: bytes that went through the object stores of all nodes; what moves counts on both sides.
        driver_bytes: those of them in the store of the driver's node.
        store_peak_bytes: most that all stores together held, looked at after each result.
        spilled_bytes: bytes that a full store wrote to disk.
    """

    same: bool
    shards: int
    store_bytes: int
    driver_bytes: int
    store_peak_bytes: int
    spilled_bytes: int


def benchmark_ray(sizes: Sequence[int] = (10**5, 10**6), shard_items: int = 4096) -> list[RayRow]:
    """Measure jobs on three nodes of this machine, one of which gets SIGKILL in the middle while another one joins.

    The items are features of 64 numbers in a Parquet file and the model is a hash head with one hidden layer of 256, so
    that no backbone is measured. 1000 queries of one task are evaluated. Every object store has 80 MB.

    Args:
        sizes: numbers of items, at least 1000 each.
        shard_items: items of a shard, fewer than usual so that every worker has many.
    """
    rows = []
    with tempfile.TemporaryDirectory() as name:
        model = write_model(Path(name) / "model")
        for n in sizes:
            rows += _measure_size(n, model, Path(name) / str(n), shard_items)
    return rows


def _measure_size(n: int, model: Path, folder: Path, shard_items: int) -> list[RayRow]:
    data, here, there, query = (folder / part for part in ("features.parquet", "here", "there", "query.parquet"))
    write_features(data, n, shard_items)

    def encode(out: Path, workers: Workers, progress: Progress) -> dict[str, Any]:
        return encode_bulk(model, str(data), out, workers, shard_items=shard_items, progress=progress)

    def evaluate(workers: Workers, progress: Progress) -> dict[str, Any]:
        return evaluate_shards(query, here, workers, progress=progress)

    encoded, encode_seconds = _timed(partial(encode, here, LOCAL, no_progress))
    first = CodeSet.load(shard_files(here)[0])
    n_queries = min(len(first), _QUERIES)
    first.take(range(n_queries)).save(query)
    scores, evaluate_seconds = _timed(partial(evaluate, LOCAL, no_progress))
    workers = Workers("ray", _NODES)
    jobs = (
        (f"encode, {n / encode_seconds:,.0f} items/s in one process", partial(encode, there, workers), encode_seconds),
        (f"evaluate, {n_queries} queries", partial(evaluate, workers), evaluate_seconds),
    )
    rows = []
    for what, job, alone in jobs:
        result, seconds, stores = _on_nodes(job)
        same = _scores(result) == _scores(scores) if "tasks" in result else _files(here) == _files(there)
        row = single_row(what, f"{n} items", seconds, None)
        row["baseline"], row["baseline_seconds"], row["ratio"] = "one process", alone, alone / seconds
        rows.append(_with_stores(row, same and result["items"] == encoded["items"], result["shards"], stores))
    return rows


def _on_nodes(job: Callable[[Progress], dict[str, Any]]) -> tuple[dict[str, Any], float, StoreBytes]:
    """Do a job on nodes of its own; kill one and add one when half is done, which counts in the seconds."""
    with ray_nodes(_NODES) as nodes:
        progress = _Replacing(nodes)
        result, seconds = _timed(lambda: job(progress))
        return result, seconds, nodes.store_bytes()


class _Replacing:
    """Progress that looks at the object stores, and replaces a node when half is done."""

    def __init__(self, nodes: RayNodes) -> None:
        self._nodes, self._replaced = nodes, False

    def __call__(self, done: int, total: int) -> None:
        self._nodes.look()
        if not self._replaced and 2 * done >= total:
            self._replaced = True
            self._nodes.kill()
            self._nodes.add()


def _timed(run: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], float]:
    began = time.perf_counter()
    return run(), time.perf_counter() - began


def _scores(result: dict[str, Any]) -> str:
    return json.dumps(result["tasks"])  # in which a score that is not a number equals itself


def _files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}


def _with_stores(row: Row, same: bool, shards: int, stores: StoreBytes) -> RayRow:
    return {
        **row,
        "same": same,
        "shards": shards,
        "store_bytes": stores.created,
        "driver_bytes": stores.driver,
        "store_peak_bytes": stores.peak,
        "spilled_bytes": stores.spilled,
    }
