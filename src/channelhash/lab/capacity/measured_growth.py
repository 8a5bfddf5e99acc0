"""Measured growth: how long each job took here at each size, from a file beside this one."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

#: ``encode`` is pictures through a backbone, ``features`` the rest of the way: read, head, codes, files.
JOBS = ("encode", "features", "evaluate", "search", "index")


@dataclass(frozen=True)
class Measurement:
    """One line of ``growth.csv``.

    Attributes:
        job: one of `JOBS`.
        items: size of the collection.
        units: what a rate counts: pictures, pairs of a query and an item, items.
        core_seconds: time of the processor, over all its cores; ``command`` says where it is wall time.
        extra_mb: memory at its highest beside the inputs.
        machine: where.
        command: how.
    """

    job: str
    items: int
    units: int
    core_seconds: float
    extra_mb: float
    machine: str
    command: str


def read_growth() -> list[Measurement]:
    """All measurements of the package."""
    lines = files(__package__).joinpath("growth.csv").read_text(encoding="utf-8").splitlines()
    return [
        Measurement(
            row["job"],
            int(row["items"]),
            int(row["units"]),
            float(row["core_seconds"]),
            float(row["extra_mb"]),
            row["machine"],
            row["command"],
        )
        for row in csv.DictReader(lines)
    ]


def largest(measurements: Iterable[Measurement]) -> dict[str, Measurement]:
    """Job -> its measurement at the largest size: what a larger collection is computed from."""
    return {found.job: found for found in sorted(measurements, key=lambda found: found.items)}


def rates(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Job -> units a second on one core, of the largest size measured."""
    return {job: found.units / found.core_seconds for job, found in largest(measurements).items()}
