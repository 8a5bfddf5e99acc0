"""``channelhash scale``"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from channelhash.cli.options import AsJson, Seed
from channelhash.cli.output import print_json, print_table
from channelhash.errors import InputError


def scale(
    items: float = typer.Option(..., min=1, help="Items of the collection, such as 1e9."),
    bits: int = typer.Option(64, min=1, help="Code length."),
    modalities: int = typer.Option(2, min=1, help="Codes of an item."),
    record_bytes: float = typer.Option(200, min=0, help="Id and metadata of an item on the disk (assumed)."),
    queries_per_second: float = typer.Option(100, min=0, help="Searches at the busiest time."),
    evaluation_queries: int = typer.Option(5000, min=1, help="Queries of one evaluation."),
    replicas: int = typer.Option(2, min=1, help="Nodes that hold each part of the index."),
    node_memory_gb: float = typer.Option(64, min=0.1, help="Memory of a node that serves."),
    node_cores: int = typer.Option(32, min=1, help="Its cores."),
    pictures_per_gpu_second: float = typer.Option(0, min=0, help="Rate of your GPU; 0 encodes on cores."),
    price_node_month: float = typer.Option(0, min=0, help="Your price of a node a month."),
    price_gb_month: float = typer.Option(0, min=0, help="Your price of a GB on a disk a month."),
    price_core_hour: float = typer.Option(0, min=0, help="Your price of a core an hour."),
    price_gpu_hour: float = typer.Option(0, min=0, help="Your price of a GPU an hour."),
    workers: int = typer.Option(64, min=1, help="Simulated job: workers."),
    tasks: int = typer.Option(1000, min=1, help="Simulated job: shards."),
    task_seconds: float = typer.Option(60, min=0.001, help="Simulated job: time of a shard."),
    failures_per_hour: float = typer.Option(0.1, min=0, help="Simulated job: failures of a worker."),
    slow_share: float = typer.Option(0.05, min=0, max=1, help="Simulated job: share of slow workers."),
    slow_factor: float = typer.Option(5, min=1, help="Simulated job: how much longer they take."),
    runs: int = typer.Option(100, min=1, help="Simulated runs of each policy."),
    seed: Seed = 0,
    plots: Path | None = typer.Option(None, help="Folder for plots of growth, cost and completion times."),
    as_json: AsJson = False,
) -> None:
    """What a collection needs: bytes, core-hours, nodes and money from measured rates; and simulations of failures.

    Example: channelhash scale --items 1e9 --bits 64 --queries-per-second 500
    """
    from channelhash.lab.capacity import serving_simulation
    from channelhash.lab.capacity import simulation as job_simulation
    from channelhash.lab.capacity.cost import MONEY, plan
    from channelhash.lab.capacity.measured_growth import largest, rates, read_growth
    from channelhash.lab.capacity.plans import Job, Need, Prices, Serving

    if plots and plots.exists() and not plots.is_dir():
        raise InputError(f"--plots {plots}: is a file; name a folder")
    need = Need(
        items=items,
        bits=bits,
        modalities=modalities,
        record_bytes=record_bytes,
        evaluation_queries=evaluation_queries,
        queries_per_second=queries_per_second,
        replicas=replicas,
        node_memory=node_memory_gb * 1e9,
        node_cores=node_cores,
        pictures_per_gpu_second=pictures_per_gpu_second,
    )
    prices = Prices(price_node_month, price_gb_month, price_core_hour, price_gpu_hour)
    measurements = read_growth()
    found = plan(need, rates(measurements), prices if any(asdict(prices).values()) else None)
    job = Job(
        tasks=tasks,
        workers=workers,
        task_seconds=task_seconds,
        failures_per_hour=failures_per_hour,
        slow_share=slow_share,
        slow_factor=slow_factor,
    )
    job_simulation.check(job)
    outcomes: dict[str, list[job_simulation.Outcome]] = {
        policy: job_simulation.simulate(job, policy, seed, runs) for policy in job_simulation.POLICIES
    }
    served = serving_simulation.compare(Serving(parts=found["nodes"]["parts"], replicas=replicas), seed)
    paths: list[Path] = []
    if plots:
        from channelhash.lab.capacity.plots import write_plots

        paths = write_plots(plots, measurements, need, rates(measurements), outcomes)
    jobs = {policy: job_simulation.summary(results) for policy, results in outcomes.items()}
    if as_json:
        print_json(
            {
                "need": asdict(need),
                **found,
                "rates": {name: asdict(measured) for name, measured in largest(measurements).items()},
                "job": jobs,
                "serving": served,
                "plots": [str(path) for path in paths],
            }
        )
        return
    print_table(f"{items:g} items of {bits} bits", ["what", "value"], _rows(found))
    for name, formula in MONEY.items():
        typer.echo(f"Money, {name}: {formula}")
    typer.echo("Rates, per core:")
    for name, measured in largest(measurements).items():
        rate = measured.units / measured.core_seconds
        typer.echo(f"  {name}: {rate:.3g}/s, {measured.command}, {measured.items} items, {measured.machine}")
    print_table(
        f"Simulated job: {tasks} tasks of {task_seconds:g} s on {workers} workers, {runs} runs",
        ["policy", "median min", "95 % min", "longest min", "tasks lost", "work wasted %"],
        [_job_row(policy, one) for policy, one in jobs.items()],
    )
    print_table(
        f"Simulated searches over {found['nodes']['parts']} parts × {replicas} replicas (assumed answer times)",
        ["second request", "answered %", "median ms", "99 % ms", "99.9 % ms", "requests"],
        [_serving_row(name, one) for name, one in served.items()],
    )
    for path in paths:
        typer.echo(f"Plot in {path}")


def _rows(found: dict[str, Any]) -> list[list[str]]:
    """The nested plan as lines; a part's name stands before its keys."""
    rows = []
    for part, value in found.items():
        for key, inner in value.items() if isinstance(value, dict) else [("", value)]:
            shown = f"{inner / 1e9:,.2f} GB" if part == "bytes" else f"{inner:,.4g}"
            rows.append([f"{part}: {key}".removesuffix(": ").replace("_", " "), shown])
    return rows


def _job_row(policy: str, one: dict[str, float]) -> list[str]:
    minutes = [f"{one[key] / 60:.1f}" for key in ("p50", "p95", "max")]
    return [policy, *minutes, f"{one['lost']:.1f}", f"{100 * one['wasted']:.1f}"]


def _serving_row(name: str, one: dict[str, float]) -> list[str]:
    milliseconds = [f"{1000 * one[key]:.0f}" for key in ("p50", "p99", "p999")]
    return [name, f"{100 * one['answered']:.3f}", *milliseconds, f"{one['requests']:.3f}"]
