"""What a plan and its simulations are asked for: the options of ``channelhash scale``, each declared once.

The metadata of a field is its command-line option: ``help``, ``min`` and ``max``, and where they differ from the field
its ``option`` and how many units of the field one of the option is (``unit``). A field without metadata has no option.
"""

from dataclasses import dataclass, field
from typing import Any


def _option(help: str, default: Any, **metadata: Any) -> Any:
    return field(default=default, metadata={"help": help, **metadata})


@dataclass(frozen=True)
class Need:
    """Collection and machines of a plan. Defaults that nobody measured are assumptions.

    ``node_memory`` is in bytes; ``filled`` is the largest share of a node's memory and cores that is used.

    >>> Need(items=1e9, bits=64).replicas
    2
    """

    items: float = field(metadata={"help": "Items of the collection, such as 1e9.", "min": 1, "max": 1e15})
    bits: int = _option("Code length.", 64, min=1, max=2**16)
    modalities: int = _option("Codes of an item.", 2, min=1, max=1000)
    record_bytes: float = _option("Id and metadata of an item on the disk (assumed).", 200, min=0, max=1e12)
    evaluation_queries: int = _option("Queries of one evaluation.", 5000, min=1, max=10**9)
    queries_per_second: float = _option("Searches at the busiest time.", 100, min=0, max=1e12)
    replicas: int = _option("Nodes that hold each part of the index.", 2, min=1, max=1000)
    node_memory: float = _option("Memory of a serving node.", 64e9, min=0.1, max=1e9, option="node_memory_gb", unit=1e9)
    node_cores: int = _option("Cores of a node that serves.", 32, min=1, max=10**6)
    filled: float = 0.7
    pictures_per_gpu_second: float = _option("Rate of your GPU; 0 encodes on cores.", 0, min=0, max=1e12)


@dataclass(frozen=True)
class Prices:
    """The user's prices, in any currency.

    >>> Prices(node_month=100)
    Prices(node_month=100, gb_month=0, core_hour=0, gpu_hour=0)
    """

    node_month: float = _option("Your price of a node a month.", 0, min=0, max=1e12, option="price_node_month")
    gb_month: float = _option("Your price of a GB on a disk a month.", 0, min=0, max=1e12, option="price_gb_month")
    core_hour: float = _option("Your price of a core an hour.", 0, min=0, max=1e12, option="price_core_hour")
    gpu_hour: float = _option("Your price of a GPU an hour.", 0, min=0, max=1e12, option="price_gpu_hour")


@dataclass(frozen=True)
class Job:
    """Tasks on workers, each of which does one task at a time.

    ``task_seconds`` is the median time of a task on a worker that is not slow, ``spread`` the standard deviation of
    the logarithm of that time, drawn for each attempt. A worker that fails loses its task and is back after
    ``restart_seconds``. A slow worker is slow for the whole job.

    >>> Job(tasks=10).task_seconds
    60
    """

    tasks: int = _option("Simulated job: shards.", 1000, min=1, max=10**6)
    workers: int = _option("Simulated job: workers.", 64, min=1, max=10**5)
    task_seconds: float = _option("Simulated job: time of a shard.", 60, min=0.001, max=1e9)
    spread: float = 0.3
    failures_per_hour: float = _option("Simulated job: failures of a worker.", 0.1, min=0, max=1e6)
    restart_seconds: float = 30
    slow_share: float = _option("Simulated job: share of slow workers.", 0.05, min=0, max=1)
    slow_factor: float = _option("Simulated job: how much longer they take.", 5, min=1, max=1e6)


@dataclass(frozen=True)
class Serving:
    """An index in parts, each held by several machines; a query needs the answer of each part.

    Attributes:
        parts: parts of the index.
        replicas: machines that hold a part.
        up: share of time that a machine answers.
        usual_seconds: median time of an answer.
        spread: standard deviation of the logarithm of that time.
        slow_share: share of answers that come late (a pause of the machine, a queue).
        slow_factor: how much longer those take.
        hedge_seconds: a part that has not answered by then is asked again, at another replica; None: never.
    """

    parts: int = 8
    replicas: int = 2
    up: float = 0.999
    usual_seconds: float = 0.02
    spread: float = 0.3
    slow_share: float = 0.01
    slow_factor: float = 20
    hedge_seconds: float | None = None
