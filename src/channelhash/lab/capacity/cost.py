"""What a collection of n items takes, each figure with where it comes from. Pure functions; bytes, hours, seconds."""

import math
from dataclasses import dataclass, replace
from typing import Any

from channelhash.lab.capacity.rates import Measurement, Rates

_HOUR = 3600.0
#: The largest share of a node's memory and cores that is used.
_FILLED = 0.7
# Codes of a modality in an index are fewer.
_MOST_CODES = 2**32


@dataclass(frozen=True)
class Need:
    """A collection and the machines that serve it.

    Attributes:
        items: items of the collection.
        bits: code length.
        modalities: codes of an item, 1 or 2.
        record_bytes: id and metadata of an item on the disk; None takes the measured store.
        evaluation_queries: queries of one task.
        queries_per_second: searches at the busiest time.
        replicas: nodes that hold each part of the index.
        node_memory: bytes of memory of a node.
        node_cores: cores of a node, each as fast as those measured; None: as many.
        pictures_per_gpu_second: images that a GPU encodes; 0 encodes on cores.
        encoder: name of a measured encoder; None takes the slowest.

    >>> Need(items=1e9).bits
    64
    """

    items: float
    bits: int = 64
    modalities: int = 2
    record_bytes: float | None = None
    evaluation_queries: int = 5000
    queries_per_second: float = 100
    replicas: int = 2
    node_memory: float = 64e9
    node_cores: int | None = None
    pictures_per_gpu_second: float = 0
    encoder: str | None = None


@dataclass(frozen=True)
class Figure:
    """A number and its basis.

    Attributes:
        value: bytes, hours, seconds or a count.
        how: the formula in words.
        source: the measurement it is computed from; None for arithmetic alone.
        items: the size that it is computed for.
        measured: whether the value itself was measured: same size, same amount of work.

    >>> Figure(16.0, "items × 16 bytes").kind
    'computed'
    """

    value: float
    how: str
    source: Measurement | None = None
    items: float = 0
    measured: bool = False

    @property
    def kind(self) -> str:
        """Return ``measured`` or ``computed``."""
        return "measured" if self.measured else "computed"

    @property
    def beyond(self) -> float | None:
        """Return how many times the size is that of the measurement; None where it is not larger."""
        return self.items / self.source.items if self.source and self.items > self.source.items else None


def code_bytes(bits: int) -> int:
    """Return the bytes of one packed code.

    >>> code_bytes(63)
    8
    """
    return math.ceil(bits / 8)


def plan(need: Need, rates: Rates) -> dict[str, Figure]:
    """Compute what ``need`` takes, each figure under the key that `nested` splits at its dot.

    The index is cut into parts that fit into a node's memory, each held by ``replicas`` nodes; there are more replicas
    where the rate of queries takes more cores. A query asks all parts at the same time.

    Raises:
        InputError: a job was not measured at this code length, or the encoder was not.

    >>> from channelhash.lab.capacity.rates import shipped_rates
    >>> figures = plan(Need(items=1e9), shipped_rates())
    >>> figures["bytes.codes"].value, figures["bytes.disk"].beyond
    (16000000000.0, 1000.0)
    """
    index = rates.nearest("index", need.items, need.bits, need.modalities)
    figures = {**_bytes(need, rates, index), **_hours(need, rates, index)}
    by_bytes = math.ceil(figures["bytes.embedded"].value / (need.node_memory * _FILLED))
    parts = max(by_bytes, math.floor(need.items / _MOST_CODES) + 1)
    figures |= _searches(need, rates, parts)
    opened = rates.nearest("open", need.items, need.bits, need.modalities)
    figures["start.seconds"] = _scaled(opened, opened.seconds, need.items, need, "items × s / item")
    cores = need.node_cores or rates.cores
    busy = figures["search.core_seconds_per_second"]
    by_memory = parts * need.replicas
    by_rate = parts * math.ceil(busy.value / (parts * cores * _FILLED))
    memory = replace(figures["bytes.embedded"], measured=False)
    rate = replace(busy, measured=False)
    for name, value, of, how in (
        (
            "parts",
            parts,
            memory,
            f"index / ({need.node_memory / 1e9:g} GB × {_FILLED}), rounded up; fewer than 2³² items each",
        ),
        ("by_memory", by_memory, memory, "parts × replicas"),
        ("by_rate", by_rate, rate, f"core-s a second / ({cores} cores × {_FILLED}), rounded up a part"),
        ("total", max(by_memory, by_rate), rate if by_rate > by_memory else memory, "the larger of the two"),
    ):
        figures[f"nodes.{name}"] = replace(of, value=value, how=how)
    return figures


def _bytes(need: Need, rates: Rates, index: Measurement) -> dict[str, Figure]:
    n, m, width = need.items, need.modalities, code_bytes(need.bits)
    if need.record_bytes is None:
        add = rates.nearest("add", n, need.bits, m)
        disk = _scaled(add, float(add.n_bytes or 0), n, need, "items × bytes / item")
    else:
        disk = Figure(n * (m * width + need.record_bytes), f"items × ({m * width} + your {need.record_bytes:g}) bytes")
    return {
        "bytes.codes": Figure(m * n * width, f"items × {m} codes × {width} bytes"),
        "bytes.disk": disk,
        "bytes.embedded": _scaled(index, float(index.n_bytes or 0), m * n, need, "codes × bytes / code"),
        "bytes.milvus": Figure(m * n * (width + 24), f"items × {m} × ({width} + 24) bytes, no server measured"),
    }


def _hours(need: Need, rates: Rates, index: Measurement) -> dict[str, Figure]:
    n, on_gpu = need.items, need.pictures_per_gpu_second > 0
    add = rates.nearest("add", n, need.bits, need.modalities)
    evaluate = rates.nearest("evaluate", n, need.bits)
    jobs = [
        ("add", add, n, "items"),
        ("index", index, need.modalities * n, "codes"),
        ("evaluate", evaluate, need.evaluation_queries * n, "pairs"),
    ]
    figures = {}
    if on_gpu:
        gpu = Figure(n / need.pictures_per_gpu_second / _HOUR, "items / your rate of a GPU")
        figures = {"hours.encode": gpu, "core_hours.encode": Figure(0.0, "a GPU encodes"), "gpu_hours": gpu}
    else:
        jobs.insert(0, ("encode", rates.encoding(need.encoder), n, "images"))
    for name, job, units, noun in jobs:
        hours, core_hours = (
            _scaled(job, each, units, need, f"{noun} × {kind} / {noun.removesuffix('s')}")
            for each, kind in ((job.seconds, "s"), (job.core_seconds, "core-s"))
        )
        figures[f"hours.{name}"] = replace(hours, value=hours.value / _HOUR)
        figures[f"core_hours.{name}"] = replace(core_hours, value=core_hours.value / _HOUR)
    return {"gpu_hours": Figure(0.0, "cores encode"), **figures}


def _searches(need: Need, rates: Rates, parts: int) -> dict[str, Figure]:
    n = need.items
    batch, alone = rates.nearest("search", n, need.bits), rates.nearest("query", n / parts, need.bits)
    core = _scaled(batch, batch.core_seconds, n, need, "items × core-s / item")
    # A query of a part is measured at the size of the part, not of the collection.
    part = replace(need, items=n / parts)
    seconds = _scaled(alone, alone.seconds, n / parts, part, "items of a part × s / item")
    return {
        "search.core_seconds": core,
        "search.seconds": seconds,
        "search.core_seconds_per_second": replace(
            core, value=need.queries_per_second * core.value, how="searches a second × core-s of one", measured=False
        ),
    }


def _scaled(job: Measurement, amount: float, units: float, need: Need, how: str) -> Figure:
    """Scale a measured amount to so many units."""
    same = job.items == need.items and job.units == units
    return Figure(amount * units / job.units, how, job, need.items, measured=same)


def nested(figures: dict[str, Figure]) -> dict[str, Any]:
    """Return the values alone, a dictionary for each part of the plan.

    >>> nested({"bytes.codes": Figure(16.0, ""), "gpu_hours": Figure(0.0, "")})
    {'bytes': {'codes': 16.0}, 'gpu_hours': 0.0}
    """
    result: dict[str, Any] = {}
    for name, figure in figures.items():
        part, _, key = name.rpartition(".")
        (result.setdefault(part, {}) if part else result)[key] = figure.value
    return result
