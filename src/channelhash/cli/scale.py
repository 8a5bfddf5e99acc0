"""``channelhash scale``"""

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, asdict, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from channelhash.cli.options import AsJson, Seed
from channelhash.cli.output import print_json, print_table
from channelhash.errors import InputError
from channelhash.lab.capacity.plans import Job, Need, Prices, Serving

_MOST_PARTS = 10_000
Part = TypeVar("Part", Need, Prices, Job)


def scale(
    runs: Annotated[int, typer.Option(min=1, help="Simulated runs of each policy.")] = 100,
    seed: Seed = 0,
    plots: Annotated[Path | None, typer.Option(help="Folder for plots of growth, cost and completion times.")] = None,
    as_json: AsJson = False,
    **options: Any,
) -> None:
    """Estimate what a collection needs (bytes, core-hours, nodes, money) from measured rates, and simulate failures.

    Example: channelhash scale --items 1e9 --bits 64 --queries-per-second 500
    """
    from channelhash.lab.capacity import serving_simulation, simulation
    from channelhash.lab.capacity.cost import plan
    from channelhash.lab.capacity.measured_growth import largest, rates, read_growth

    if plots and plots.exists() and not plots.is_dir():
        raise InputError(f"--plots {plots}: is a file; name a folder")
    need, prices, job = _read(Need, options), _read(Prices, options), _read(Job, options)
    measurements = read_growth()
    estimate = plan(need, rates(measurements), prices if any(asdict(prices).values()) else None)
    if estimate["nodes"]["parts"] > _MOST_PARTS:
        raise InputError(
            f"the index takes {estimate['nodes']['parts']:,} nodes, more than the {_MOST_PARTS:,} that are simulated; "
            "give nodes more memory with --node-memory-gb"
        )
    simulation.check(job)
    outcomes: dict[str, list[simulation.Outcome]] = {
        policy: simulation.simulate(job, policy, seed, runs) for policy in simulation.POLICIES
    }
    serving = Serving(parts=estimate["nodes"]["parts"], replicas=need.replicas)
    result = {
        "need": asdict(need),
        **estimate,
        "rates": {name: asdict(measured) for name, measured in largest(measurements).items()},
        "job": {policy: simulation.summary(results) for policy, results in outcomes.items()},
        "serving": serving_simulation.compare(serving, seed),
        "plots": [],
    }
    if plots:
        from channelhash.lab.capacity.plots import write_plots

        result["plots"] = [str(path) for path in write_plots(plots, measurements, need, rates(measurements), outcomes)]
    if as_json:
        print_json(result)
    else:
        _print(result, _rows(estimate), job, runs)


def _option_fields(part: type[Need | Prices | Job]) -> Iterator[tuple[str, Field[Any]]]:
    """Yield the name of each option of a dataclass in `capacity.plans`, and its field."""
    for field in fields(part):
        if field.metadata:
            yield field.metadata.get("option", field.name), field


def _parameter(name: str, field: Field[Any]) -> inspect.Parameter:
    """Return an option as a parameter that Typer reads."""
    limits = {key: field.metadata[key] for key in ("min", "max") if key in field.metadata}
    annotation = Annotated[field.type, typer.Option(help=field.metadata["help"], **limits)]  # type: ignore[name-defined]
    unit = field.metadata.get("unit")
    default = inspect.Parameter.empty if field.default is MISSING else field.default / unit if unit else field.default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _read(part: type[Part], options: Mapping[str, Any]) -> Part:
    """Return a dataclass of `capacity.plans` with the values of its options; nan passes every limit of an option."""
    for name, _ in _option_fields(part):
        if math.isnan(options[name]):
            raise InputError(f"--{name.replace('_', '-')} nan: expected a number")
    return part(**{field.name: options[name] * field.metadata.get("unit", 1) for name, field in _option_fields(part)})


#: The options that the dataclasses declare, then those of the command itself.
scale.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        *(_parameter(*option) for part in (Need, Prices, Job) for option in _option_fields(part)),
        *(
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(scale).parameters.values()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        ),
    ]
)


def _print(result: Mapping[str, Any], rows: list[list[str]], job: Job, runs: int) -> None:
    from channelhash.lab.capacity.cost import MONEY

    need, parts = result["need"], result["nodes"]["parts"]
    print_table(f"{need['items']:g} items of {need['bits']} bits", ["what", "value"], rows)
    for name, formula in MONEY.items():
        typer.echo(f"Money, {name}: {formula}")
    typer.echo("Rates, per core:")
    for name, measured in result["rates"].items():
        rate = measured["units"] / measured["core_seconds"]
        typer.echo(f"  {name}: {rate:.3g}/s, {measured['command']}, {measured['items']} items, {measured['machine']}")
    print_table(
        f"Simulated job: {job.tasks} tasks of {job.task_seconds:g} s on {job.workers} workers, {runs} runs",
        ["policy", "median min", "95 % min", "longest min", "tasks lost", "work wasted %"],
        [_job_row(policy, summary) for policy, summary in result["job"].items()],
    )
    print_table(
        f"Simulated searches over {parts} parts × {need['replicas']} replicas (assumed answer times)",
        ["second request", "answered %", "median ms", "99 % ms", "99.9 % ms", "requests"],
        [_serving_row(name, summary) for name, summary in result["serving"].items()],
    )
    for path in result["plots"]:
        typer.echo(f"Plot in {path}")


def _rows(estimate: Mapping[str, Any]) -> list[list[str]]:
    """Return the nested estimate as lines; a part's name stands before its keys."""
    rows = []
    for part, value in estimate.items():
        for key, number in value.items() if isinstance(value, dict) else [("", value)]:
            text = f"{number / 1e9:,.2f} GB" if part == "bytes" else f"{number:,.4g}"
            rows.append([f"{part}: {key}".removesuffix(": ").replace("_", " "), text])
    return rows


def _job_row(policy: str, summary: Mapping[str, float]) -> list[str]:
    minutes = [f"{summary[key] / 60:.1f}" for key in ("p50", "p95", "max")]
    return [policy, *minutes, f"{summary['lost']:.1f}", f"{100 * summary['wasted']:.1f}"]


def _serving_row(name: str, summary: Mapping[str, float]) -> list[str]:
    milliseconds = [f"{1000 * summary[key]:.0f}" for key in ("p50", "p99", "p999")]
    return [name, f"{100 * summary['answered']:.3f}", *milliseconds, f"{summary['requests']:.3f}"]
