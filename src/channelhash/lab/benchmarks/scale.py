"""Rates that ``channelhash scale`` computes with, measured on this machine: encoding, a store, search, evaluation."""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from channelhash.codes import PackedCodes
from channelhash.codes.code_set import CodeSet
from channelhash.data.records import Items
from channelhash.errors import InputError
from channelhash.lab.benchmarks.encode import drawn_models
from channelhash.lab.benchmarks.images import draw_images
from channelhash.lab.benchmarks.metrics import draw_labels
from channelhash.lab.capacity.rates import Measurement, Rates
from channelhash.models import HashModel, load_model
from channelhash.models.encode_records import encode_items
from channelhash.scale.evaluate import evaluate_shards
from channelhash.search import Store, open_store
from channelhash.search.index import FEWEST_LISTED, CodeIndex, compile_loops
from channelhash.search.local.folder import Facts
from channelhash.search.local.store import EmbeddedStore, open_folder
from channelhash.utils.environment import environment, usable_cores
from channelhash.utils.seeds import generator
from channelhash.utils.timing import Row, describe_machine, single_row

#: Queries of an evaluation, of a batch of searches, and searches one at a time.
_EVALUATED, _BATCH, _ALONE, _K = 1000, 100, 20, 10
_LABELS, _WORDS, _VOCABULARY = 24, 10, 1000
# Items of a call of `Store.add`, of a shard, and of the store that compiles the loops.
_ADDED, _ROWS, _WARM = 20_000, 1 << 16, 3000
_MODALITIES = ("image", "text")
_REPEATS = 3


def measure_rates(
    sizes: Sequence[int],
    bits: Sequence[int],
    models: Sequence[Path] = (),
    images: Sequence[Path] = (),
    command: str = "channelhash benchmark scale",
) -> Rates:
    """Measure all that a plan is computed from.

    Args:
        sizes: numbers of items, see `measure_size`, likewise ``bits``.
        bits: code lengths.
        models: see `measure_encoders`, likewise ``images``.
        images: files to read.
        command: what measures, as the result says.

    Raises:
        InputError: see `measure_encoders`.
    """
    measurements = measure_encoders(models, images)
    for n_bits in bits:
        warm_up(n_bits)
        measurements += [each for n in sizes for each in measure_size(n, n_bits)]
    today = time.strftime("%Y-%m-%d")
    versions = environment(torch.device("cpu"))
    return Rates(describe_machine(), usable_cores(), today, command, versions, measurements)


def measure_encoders(models: Sequence[Path] = (), images: Sequence[Path] = ()) -> list[Measurement]:
    """Measure encoders on images, from files to codes, on the cores of this machine.

    Args:
        models: runs or saved models; none measures `encode.drawn_models`.
        images: files to read, repeated where they are few; none draws noise of 500 × 375 pixels.

    Raises:
        InputError: a model cannot be read, or two folders have one name, by which a plan chooses an encoder.
    """
    names = [path.resolve().name for path in models]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--model: {names.count(name)} folders are called {name}; measure them in a run each")
    with tempfile.TemporaryDirectory() as folder:
        paths = list(images) or draw_images(Path(folder), 256)
        if models:
            files = tuple(paths[i % len(paths)] for i in range(256))
            return [_measure_encoder(name, load_model(path), files) for name, path in zip(names, models, strict=True)]
        return [
            _measure_encoder(name, model, records.items["image"]) for name, model, records in drawn_models(paths, "cpu")
        ]


def _measure_encoder(name: str, model: HashModel, files: Items) -> Measurement:
    def encode() -> object:
        return encode_items(model, "image", files, usable_cores())

    seconds, core_seconds = _middle(encode, _REPEATS)
    n = len(files)
    return Measurement("encode", n, n, seconds, core_seconds, model.n_bits, encoder=name)


def measure_size(n: int, n_bits: int) -> list[Measurement]:
    """Measure stores of ``n`` items with one and with two codes, searches of one modality, and an evaluation.

    The codes are uniform, so that a search compares every distinct one. An item has a caption of ten words, drawn from
    a thousand. An evaluation has 1,000 queries of one task and 24 labels, and reads shards of 65,536 items.

    Args:
        n: items, at least 1000. 10⁷ items of 64 bits take 6 GB in the folder for temporary files.
        n_bits: code length, a multiple of 8.
    """
    codes = {
        name: generator(0, "scale", name).integers(0, 256, (n, n_bits // 8), dtype=np.uint8) for name in _MODALITIES
    }
    with tempfile.TemporaryDirectory() as folder:
        one = _measure_store(Path(folder) / "one", {"image": codes["image"]}, n_bits)
        two = _measure_store(Path(folder) / "two", codes, n_bits)
        return [*one, *two, _measure_evaluation(Path(folder) / "shards", codes["image"], n_bits)]


def warm_up(n_bits: int) -> None:
    """Compile the loops, so that no measurement includes that."""
    compile_loops()
    CodeIndex.build(warm_codes(n_bits), n_bits)
    measure_size(_WARM, n_bits)


def warm_codes(n_bits: int) -> PackedCodes:
    """Return so many codes that an index also tries clusters and tables, whose loops are others.

    >>> from channelhash.search.index import FEWEST_LISTED
    >>> len(np.unique(warm_codes(32), axis=0)) >= FEWEST_LISTED
    True
    """
    n = FEWEST_LISTED + FEWEST_LISTED // 16  # some codes are drawn twice
    return generator(0, "scale warm").integers(0, 256, (n, n_bits // 8), dtype=np.uint8)


def _measure_store(folder: Path, codes: dict[str, PackedCodes], n_bits: int) -> list[Measurement]:
    n, m = len(codes["image"]), len(codes)
    queries = generator(1, "scale queries").integers(0, 256, (_BATCH, n_bits // 8), dtype=np.uint8)
    store = open_folder(folder, Facts(n_bits, ""))
    added = _once(lambda: _fill(store, codes))
    indexed = _once(lambda: _index(store, queries[:1]))
    store.close()
    arrays = sum(file.stat().st_size for file in folder.glob("snapshot-*/*/index/*.npy"))
    disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    opened = _once(lambda: _open(folder, queries[:1]))
    found = [
        Measurement("add", n, n, *added, n_bits, m, n_bytes=disk),
        Measurement("index", n, m * n, *indexed, n_bits, m, n_bytes=arrays),
        Measurement("open", n, n, *opened, n_bits, m),
    ]
    return found if m > 1 else [*found, *_measure_searches(folder, queries, n)]


def _measure_searches(folder: Path, queries: PackedCodes, n: int) -> Iterator[Measurement]:
    store = open_store(str(folder))
    try:
        one = iter(queries)
        alone = _middle(lambda: store.search(next(one)[None], _K, modality="image"), _ALONE)
        batch = _middle(lambda: store.search(queries, _K, modality="image"), _REPEATS)
    finally:
        store.close()
    yield Measurement("query", n, n, *alone, 8 * queries.shape[1])
    yield Measurement("search", n, n, batch[0] / _BATCH, batch[1] / _BATCH, 8 * queries.shape[1])


def _measure_evaluation(folder: Path, codes: PackedCodes, n_bits: int) -> Measurement:
    folder.mkdir()
    n, names = len(codes), tuple(f"label {j}" for j in range(_LABELS))
    for start in range(0, n, _ROWS):
        rows = range(start, min(n, start + _ROWS))
        labels = draw_labels(len(rows), _LABELS, f"part {start}")
        part = CodeSet(list(map(str, rows)), {"image": codes[rows.start : rows.stop]}, labels, n_bits, names)
        part.save(folder / f"codes-{start:012}.parquet")
    query = folder.with_name("query.parquet")
    CodeSet.load(folder / f"codes-{0:012}.parquet").take(range(min(n, _EVALUATED))).save(query)
    spent = _once(lambda: evaluate_shards(query, folder))
    return Measurement("evaluate", n, min(n, _EVALUATED) * n, *spent, n_bits)


def _fill(store: Store, codes: dict[str, PackedCodes]) -> None:
    words = generator(0, "scale captions")
    for start in range(0, len(codes["image"]), _ADDED):
        rows = range(start, min(len(codes["image"]), start + _ADDED))
        captions = words.integers(0, _VOCABULARY, (len(rows), _WORDS))
        texts = [" ".join(f"word{word}" for word in caption) for caption in captions.tolist()]
        part = {name: packed[rows.start : rows.stop] for name, packed in codes.items()}
        store.add([f"{row:09}" for row in rows], part, metadata=[{"text": text} for text in texts])


def _index(store: EmbeddedStore, query: PackedCodes) -> None:
    store.make_snapshot()  # which the search would make of more than 10,000 items
    store.search(query, _K, modality="image")


def _open(folder: Path, query: PackedCodes) -> None:
    store = open_store(str(folder))
    try:
        store.search(query, _K, modality="image")
    finally:
        store.close()


def _once(run: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a call, and its processor time over all cores and ended children."""
    began, used = time.perf_counter(), _used()
    run()
    return time.perf_counter() - began, max(_used() - used, 1e-9)


def _used() -> float:
    return time.process_time() + sum(os.times()[2:4])


def _middle(run: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the medians of both times over so many calls after the first."""
    times = [_once(run) for _ in range(repeats + 1)][1:]
    return statistics.median(each[0] for each in times), statistics.median(each[1] for each in times)


#: What the units of a job are; items otherwise.
_UNITS = {"encode": "images", "index": "codes", "evaluate": "pairs", "search": "pairs", "query": "pairs"}


def rate_row(measured: Measurement) -> Row:
    """Return a measurement as a row of a benchmark.

    >>> rate_row(Measurement("add", 1000, 1000, 0.5, 0.4, 64))["what"]
    'add (2,000 items/s)'
    """
    rate = f"{measured.units / measured.seconds:,.{1 if measured.job == 'encode' else 0}f}"
    what = f"{measured.name} ({rate} {_UNITS.get(measured.job, 'items')}/s)"
    size = f"{measured.items} items, {measured.bits} bits" + f", {measured.codes} codes" * (measured.codes > 1)
    return single_row(what, size, measured.seconds, None)
