"""``channelhash scale``"""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from channelhash.cli.options import AsJson
from channelhash.cli.output import print_json, print_table
from channelhash.errors import InputError

if TYPE_CHECKING:
    from channelhash.lab.capacity.cost import Figure, Need
    from channelhash.lab.capacity.rates import Rates

#: Options of version 0.1 whose inputs nobody had measured.
_RETIRED = [
    *("--runs", "--seed", "--tasks", "--workers", "--task-seconds", "--failures-per-hour", "--slow-share"),
    *("--slow-factor", "--plots", "--price-node-month", "--price-gb-month", "--price-core-hour", "--price-gpu-hour"),
]


def scale(
    items: Annotated[float, typer.Option(min=1, max=1e15, help="Items of the collection, such as 1e9.")],
    bits: Annotated[int, typer.Option(min=1, max=2**16, help="Code length.")] = 64,
    rates: Annotated[
        Path | None,
        typer.Option(help="Rates of your machine, from benchmark scale --out; a named machine's by default."),
    ] = None,
    modalities: Annotated[int, typer.Option(min=1, max=2, help="Codes of an item.")] = 2,
    encoder: Annotated[str | None, typer.Option(help="Encoder among the rates; the slowest one by default.")] = None,
    record_bytes: Annotated[
        float | None,
        typer.Option(min=0, max=1e12, help="Your id and metadata of an item on the disk; measured by default."),
    ] = None,
    evaluation_queries: Annotated[int, typer.Option(min=1, max=10**9, help="Queries of one evaluation.")] = 5000,
    queries_per_second: Annotated[float, typer.Option(min=0, max=1e12, help="Searches at the busiest time.")] = 100,
    replicas: Annotated[int, typer.Option(min=1, max=1000, help="Nodes that hold each part of the index.")] = 2,
    node_memory_gb: Annotated[float, typer.Option(min=0.1, max=1e9, help="Memory of a serving node.")] = 64,
    node_cores: Annotated[
        int | None, typer.Option(min=1, max=10**6, help="Cores of a serving node; those measured by default.")
    ] = None,
    pictures_per_gpu_second: Annotated[
        float, typer.Option(min=0, max=1e12, help="Rate of your GPU; 0 encodes on cores.")
    ] = 0,
    retired: Annotated[list[str], typer.Option(*_RETIRED, hidden=True)] = [],
    as_json: AsJson = False,
) -> None:
    """Compute what a collection takes (bytes, hours, nodes) from rates that were measured on one machine.

    Every figure says whether it was measured or computed, from which rate and how far beyond the measured size.

    Example: channelhash scale --items 1e9 --bits 64 --rates rates.json
    """
    from channelhash.lab.capacity.cost import Need, plan
    from channelhash.lab.capacity.rates import read_rates, shipped_rates

    if retired:
        raise InputError(
            "prices, plots and simulated jobs (--price-…, --plots, --runs, --seed, --tasks, --workers, --task-seconds, "
            "--failures-per-hour, --slow-…) left `channelhash scale`, as nothing was measured behind them; "
            "leave the option out (docs/how-to/scale.md)"
        )
    numbers = {"items": items, "record-bytes": record_bytes, "queries-per-second": queries_per_second}
    numbers |= {"node-memory-gb": node_memory_gb, "pictures-per-gpu-second": pictures_per_gpu_second}
    for name, number in numbers.items():
        if number is not None and math.isnan(number):  # which passes every limit of an option
            raise InputError(f"--{name} nan: expected a number")
    need = Need(
        items, bits, modalities, record_bytes, evaluation_queries, queries_per_second, replicas,
        node_memory_gb * 1e9, node_cores, pictures_per_gpu_second, encoder,
    )  # fmt: skip
    used = read_rates(rates) if rates else shipped_rates()
    figures = plan(need, used)
    if as_json:
        _print_json(need, figures, used, rates)
    else:
        _print_table(need, figures, used, rates)


def _print_json(need: "Need", figures: "dict[str, Figure]", used: "Rates", file: Path | None) -> None:
    """Print each figure, what it rests on, and the rates that were used."""
    from channelhash.lab.capacity.cost import nested

    machine = {"machine": used.machine, "command": used.command}
    sources = [figure.source for figure in figures.values()]
    print_json(
        {
            "need": asdict(need),
            **nested(figures),
            "basis": {name: _basis(figure) for name, figure in figures.items()},
            "rates": {each.name: {**asdict(each), **machine} for each in sources if each},
            "measured_on": {"file": str(file) if file else None, "date": used.date, **machine},
        }
    )


def _print_table(need: "Need", figures: "dict[str, Figure]", used: "Rates", file: Path | None) -> None:
    """Print a row for each figure, and whose rates were used."""
    rows = [[name.replace(".", ": ").replace("_", " "), *_cells(name, figure)] for name, figure in figures.items()]
    header = ["what", "value", "basis", "rate: formula", "measured at (× beyond)"]
    print_table(f"{need.items:g} items of {need.bits} bits, {need.modalities} codes each", header, rows)
    typer.echo("×: extrapolated to so many times the size at which the rate was measured.")
    typer.echo(f"Rates: {used.machine}, {used.date}, {used.command}.")
    if not file:
        typer.echo("These are not of your machine; measure yours: channelhash benchmark scale --out rates.json")


def _cells(name: str, figure: "Figure") -> list[str]:
    """Return the value of a figure and where it comes from, in words."""
    value = f"{figure.value / 1e9:,.4g} GB" if name.startswith("bytes") else f"{figure.value:,.4g}"
    source = figure.source
    formula = f"{source.name}: {figure.how}" if source else figure.how
    beyond = f" (× {figure.beyond:,.4g})" if figure.beyond else ""
    return [value, figure.kind, formula, f"{source.items:,}{beyond}" if source else ""]


def _basis(figure: "Figure") -> dict[str, Any]:
    source = figure.source
    return {
        "kind": figure.kind,
        "how": figure.how,
        "rate": source.name if source else None,
        "measured_items": source.items if source else None,
        "extrapolated": figure.beyond,
    }
