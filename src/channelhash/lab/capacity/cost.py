"""Cost of a collection of n items: bytes, core-hours, GPU-hours, nodes and money. Pure functions, sizes in bytes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HOUR = 3600.0
_GB = 1e9


@dataclass(frozen=True)
class Need:
    """What is asked for. Defaults that nobody measured are assumptions, and the command says so.

    Attributes:
        items: number n of items, each with one code a modality.
        bits: code length k.
        modalities: codes of an item.
        record_bytes: id and metadata of an item on the disk.
        evaluation_queries: queries of one evaluation.
        queries_per_second: searches at the busiest time.
        replicas: machines that hold each part of the index.
        node_memory: bytes of memory of a machine that serves.
        node_cores: its cores.
        filled: share of memory and of cores that is used at most.
        pictures_per_gpu_second: the rate of a GPU that encodes; 0 encodes on cores.
    """

    items: float
    bits: int
    modalities: int = 2
    record_bytes: float = 200
    evaluation_queries: int = 5000
    queries_per_second: float = 100
    replicas: int = 2
    node_memory: float = 64e9
    node_cores: int = 32
    filled: float = 0.7
    pictures_per_gpu_second: float = 0


@dataclass(frozen=True)
class Prices:
    """The user's own, in any currency; there are no defaults but 0."""

    node_month: float = 0
    gb_month: float = 0
    core_hour: float = 0
    gpu_hour: float = 0


def code_bytes(bits: int) -> int:
    """Bytes of one packed code."""
    return math.ceil(bits / 8)


def distinct_codes(items: float, bits: int) -> float:
    """Expected number of different codes among ``items`` uniform ones of 2^k: 2^k (1 − (1 − 2^−k)^n).

    Codes of a trained model are clustered, so there are fewer.
    """
    space = 2.0**bits
    return -space * math.expm1(items * math.log1p(-1 / space)) if bits < 1000 else items


def index_bytes(need: Need) -> dict[str, float]:
    """Memory of one copy of the index.

    ``embedded``: for each modality the distinct codes, a 4-byte start of each one's run of items, and a 4-byte row
    an item; the tables that searches may use come on top. ``milvus``: for each modality and item the code, its primary
    key and two 8-byte fields of Milvus's own (row number and time); keys counted as 8 bytes.
    """
    width, distinct = code_bytes(need.bits), distinct_codes(need.items, need.bits)
    return {
        "embedded": need.modalities * (distinct * (width + 4) + need.items * 4),
        "milvus": need.modalities * need.items * (width + 3 * 8),
    }


def plan(need: Need, rates: Mapping[str, float], prices: Prices | None = None) -> dict[str, Any]:
    """All that ``need`` takes.

    Args:
        need: what is asked for.
        rates: units a second on one core: ``encode`` (pictures), ``evaluate`` and ``search`` (pairs of a query and an
            item), ``index`` (items).
        prices: for the money; left out without them.

    Returns:
        ``{"bytes": {"codes", "disk", "embedded", "milvus"}, "core_hours": {"encode", "evaluate", "index"},
        "gpu_hours": x, "search": {"core_seconds", "seconds", "core_seconds_per_second"}, "nodes": {"parts",
        "by_memory", "by_rate", "total"}, "money": {"once", "month"}}``.

        ``nodes``: the index is cut into parts that fit into a node's memory, each held by ``replicas`` nodes; more
        replicas where the rate of queries takes more cores. Seconds of a search are those of a query whose parts are
        scanned at the same time by all cores of one node each, at the rate of a batch.
    """
    n = need.items
    memory = index_bytes(need)
    codes = need.modalities * n * code_bytes(need.bits)
    parts = max(1, math.ceil(memory["embedded"] / (need.node_memory * need.filled)))
    by_memory = parts * need.replicas
    core_seconds = n / rates["search"]
    busy = need.queries_per_second * core_seconds
    by_rate = parts * math.ceil(busy / (parts * need.node_cores * need.filled))
    on_gpu = need.pictures_per_gpu_second > 0
    hours = {
        "encode": 0.0 if on_gpu else n / rates["encode"] / _HOUR,
        "evaluate": need.evaluation_queries * n / rates["evaluate"] / _HOUR,
        "index": need.modalities * n / rates["index"] / _HOUR,
    }
    gpu_hours = n / need.pictures_per_gpu_second / _HOUR if on_gpu else 0.0
    disk = codes + n * need.record_bytes
    nodes = max(by_memory, by_rate)
    result: dict[str, Any] = {
        "bytes": {"codes": codes, "disk": disk, **memory},
        "core_hours": hours,
        "gpu_hours": gpu_hours,
        "search": {
            "core_seconds": core_seconds,
            "seconds": core_seconds / (parts * need.node_cores),
            "core_seconds_per_second": busy,
        },
        "nodes": {"parts": parts, "by_memory": by_memory, "by_rate": by_rate, "total": nodes},
    }
    if prices:
        result["money"] = {
            "once": sum(hours.values()) * prices.core_hour + gpu_hours * prices.gpu_hour,
            "month": nodes * prices.node_month + need.replicas * disk / _GB * prices.gb_month,
        }
    return result


#: The same in words, with the names that `plan` gives.
MONEY = {
    "once": "core hours (encode + evaluate + index) × price of a core hour + GPU hours × price of a GPU hour",
    "month": "nodes × price of a node a month + replicas × GB on the disk × price of a GB a month",
}
