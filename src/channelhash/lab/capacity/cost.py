"""Cost of a collection of n items: bytes, core-hours, GPU-hours, nodes and money. Pure functions, sizes in bytes."""

import math
from collections.abc import Mapping
from typing import Any

from channelhash.lab.capacity.plans import Need, Prices

_HOUR = 3600.0
_GB = 1e9


def code_bytes(bits: int) -> int:
    """Return the bytes of one packed code.

    >>> code_bytes(63)
    8
    """
    return math.ceil(bits / 8)


def distinct_codes(items: float, bits: int) -> float:
    """Return the expected number of different codes among n uniform ones of k bits: 2^k (1 − (1 − 2^−k)^n).

    Codes of a trained model are clustered, so there are fewer.

    >>> distinct_codes(2, bits=1)
    1.5
    """
    if bits >= 1000:
        return items
    space = 2.0**bits
    return -space * math.expm1(items * math.log1p(-1 / space))


def index_bytes(need: Need) -> dict[str, float]:
    """Compute the memory of one copy of the index.

    ``embedded``: for each modality the distinct codes, a 4-byte start of each one's run of items, and a 4-byte row
    an item; the tables that searches may use come on top. ``milvus``: for each modality and item the code, its primary
    key and two 8-byte fields of Milvus (row number and time); keys counted as 8 bytes.

    >>> index_bytes(Need(items=1000, bits=64, modalities=1))
    {'embedded': 16000.0, 'milvus': 32000}
    """
    width, distinct = code_bytes(need.bits), distinct_codes(need.items, need.bits)
    return {
        "embedded": need.modalities * (distinct * (width + 4) + need.items * 4),
        "milvus": need.modalities * need.items * (width + 3 * 8),
    }


def plan(need: Need, rates: Mapping[str, float], prices: Prices | None = None) -> dict[str, Any]:
    """Compute what ``need`` takes.

    Args:
        need: collection and machines.
        rates: units a second on one core: ``encode`` (images), ``evaluate`` and ``search`` (pairs of a query and an
            item), ``index`` (items).
        prices: for the money, which is left out without prices.

    Returns:
        ``{"bytes": {"codes", "disk", "embedded", "milvus"}, "core_hours": {"encode", "evaluate", "index"},
        "gpu_hours": x, "search": {"core_seconds", "seconds", "core_seconds_per_second"}, "nodes": {"parts",
        "by_memory", "by_rate", "total"}, "money": {"once", "month"}}``.

        ``nodes``: the index is cut into parts that fit into a node's memory, each held by ``replicas`` nodes; more
        replicas where the rate of queries takes more cores. Seconds of a search are those of a query whose parts are
        scanned at the same time by all cores of one node each, at the rate of a batch.

    >>> rates = {"encode": 10, "evaluate": 1e6, "search": 1e6, "index": 1e4}
    >>> plan(Need(items=1e9, bits=64), rates)["bytes"]["codes"]
    16000000000.0
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


#: The money in words, by the names that `plan` gives.
MONEY = {
    "once": "core hours (encode + evaluate + index) × price of a core hour + GPU hours × price of a GPU hour",
    "month": "nodes × price of a node a month + replicas × GB on the disk × price of a GB a month",
}
