"""Measured growth: how long each job took at each size, read from ``growth.csv``."""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files

from pydantic import TypeAdapter

#: ``encode`` takes images through a backbone; ``features`` is the rest of the way: read, head, codes, files.
JOBS = ("encode", "features", "evaluate", "search", "index")


@dataclass(frozen=True)
class Measurement:
    """One line of ``growth.csv``.

    Attributes:
        job: one of `JOBS`.
        items: size of the collection.
        units: what a rate counts: images, pairs of a query and an item, or items.
        core_seconds: processor time over all cores; ``command`` says where it is wall time.
        extra_mb: peak memory beyond the inputs.
        machine: where it was measured.
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
    """Read all measurements of the package.

    >>> sorted({row.job for row in read_growth()})
    ['encode', 'evaluate', 'features', 'index', 'search']
    """
    lines = files(__package__).joinpath("growth.csv").read_text(encoding="utf-8").splitlines()
    return TypeAdapter(list[Measurement]).validate_python(list(csv.DictReader(lines)))


def largest(measurements: Iterable[Measurement]) -> dict[str, Measurement]:
    """Map each job to its measurement at the largest size, from which larger collections are extrapolated.

    >>> largest(read_growth())["index"].job
    'index'
    """
    return {measurement.job: measurement for measurement in sorted(measurements, key=lambda row: row.items)}


def rates(measurements: Iterable[Measurement]) -> dict[str, float]:
    """Map each job to its units a second on one core, at the largest size measured.

    >>> rates([Measurement("index", 1000, 1000, 0.5, 1.0, "a laptop", "by hand")])
    {'index': 2000.0}
    """
    return {job: measurement.units / measurement.core_seconds for job, measurement in largest(measurements).items()}
