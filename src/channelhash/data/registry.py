"""The registry of data sets. A new one is a file with a loader that returns `Records`, and one line here."""

from collections.abc import Callable
from dataclasses import dataclass, field

from channelhash.data.coco import load_coco
from channelhash.data.features import load_features
from channelhash.data.mirflickr import load_mirflickr
from channelhash.data.nuswide import load_nuswide
from channelhash.data.records import Records
from channelhash.data.simulated import load_simulated
from channelhash.data.synthetic import load_synthetic
from channelhash.data.table import load_table
from channelhash.errors import InputError
from channelhash.utils.python_names import is_python_name, look_up


@dataclass(frozen=True)
class DataKind:
    """A data set in the registry.

    Attributes:
        load: loader; its arguments are the keys of the configuration's section ``data``.
        split_sizes: ``queries``, ``train`` and ``validation_queries`` of the literature, if any.
        expected: counts of the official collection: found, usable, and rows of each partition.
        reports_progress: whether ``load`` also takes a callback ``progress``.

    >>> DATA_KINDS["nuswide"].split_sizes["queries"]
    2100
    """

    load: Callable[..., Records]
    split_sizes: dict[str, int] = field(default_factory=dict)
    expected: dict[str, int] = field(default_factory=dict)
    reports_progress: bool = False


#: kind in a configuration -> data set.
DATA_KINDS: dict[str, DataKind] = {
    "synthetic": DataKind(load_synthetic, reports_progress=True),
    "table": DataKind(load_table, reports_progress=True),
    "coco": DataKind(load_coco),
    "features": DataKind(load_features),
    "simulated": DataKind(load_simulated),
    "mirflickr25k": DataKind(
        load_mirflickr,
        {"queries": 2000, "train": 10000, "validation_queries": 2000},
        {
            "found": 25000,
            "usable": 20015,
            "query": 2000,
            "retrieval": 18015,
            "train": 10000,
            "validation_query": 2000,
            "validation_retrieval": 6015,
        },
    ),
    "nuswide": DataKind(
        load_nuswide,
        {"queries": 2100, "train": 10500, "validation_queries": 2100},
        {
            "found": 269648,
            "usable": 195834,
            "query": 2100,
            "retrieval": 193734,
            "train": 10500,
            "validation_query": 2100,
            "validation_retrieval": 181134,
        },
    ),
}


def resolve_data_kind(name: str) -> DataKind:
    """Return a registered data set, or one's own: a function or a `DataKind` that ``python:module:name`` names.

    >>> resolve_data_kind("python:channelhash.data.features:load_features").load.__name__
    'load_features'

    Raises:
        InputError: no data set has this name (the nearest known one is named), or what ``python:…`` names cannot be
            imported or is no function.
    """
    found = look_up(DATA_KINDS, name, "data.kind")
    if isinstance(found, DataKind) or not is_python_name(name):
        kind: DataKind = found
        return kind
    if not callable(found):
        raise InputError(f"data.kind {name}: is neither a function that returns records nor a DataKind")
    return DataKind(found)
