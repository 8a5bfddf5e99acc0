"""The registry of data sets. A new one is a file with a loader that returns `Records`, and one line
here.

Also the section ``data`` of a configuration: the arguments of a loader, and the split.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from channelhash.data.coco import load_coco
from channelhash.data.features import load_features, load_simulated, load_wikipedia
from channelhash.data.flickr import load_mirflickr, load_nuswide
from channelhash.data.records import Records
from channelhash.data.splits import Splits, SplitSettings
from channelhash.data.synthetic import load_synthetic
from channelhash.data.table import load_table
from channelhash.errors import InputError
from channelhash.utils import typed_settings


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


def _official(load: Callable[..., Records], n_items: int, *parts: int) -> DataKind:
    """Return a data set with the literature's numbers of images and of the rows of each
    partition.
    """
    rows = dict(zip(Splits.__dataclass_fields__, parts, strict=True))
    sizes = {
        "queries": rows["query"],
        "train": rows["train"],
        "validation_queries": rows["validation_query"],
    }
    return DataKind(
        load, sizes, {"found": n_items, "usable": rows["query"] + rows["retrieval"], **rows}
    )


#: kind in a configuration -> data set.
DATA_KINDS: dict[str, DataKind] = {
    "synthetic": DataKind(load_synthetic, reports_progress=True),
    "table": DataKind(load_table),
    "coco": DataKind(load_coco),
    "features": DataKind(load_features),
    "simulated": DataKind(load_simulated),
    "wikipedia": DataKind(load_wikipedia, expected={"found": 2866, "usable": 2866}),
    "mirflickr25k": _official(load_mirflickr, 25000, 2000, 18015, 10000, 2000, 6015),
    "nuswide": _official(load_nuswide, 269648, 2100, 193734, 10500, 2100, 181134),
}


def resolve_data_kind(name: str) -> DataKind:
    """Return a registered data set, or one's own: a function or a `DataKind` that
    ``python:module:name`` names.

    >>> resolve_data_kind("python:channelhash.data.features:load_features").load.__name__
    'load_features'
    """
    entry = typed_settings.look_up(DATA_KINDS, name, "data.kind")
    if isinstance(entry, DataKind):
        return entry
    if not callable(entry):
        raise InputError(
            f"data.kind {name}: is neither a function that returns records nor a DataKind"
        )
    return DataKind(entry)


def place_key(kind: str) -> str:
    """Return the argument of a data set's loader that names its file or folder.

    >>> place_key("table"), place_key("nuswide")
    ('path', 'root')
    """
    parameters = inspect.signature(resolve_data_kind(kind).load).parameters
    return "path" if "path" in parameters else "root"


def check_data(kind: str, values: dict[str, Any]) -> tuple[typed_settings.Settings, SplitSettings]:
    """Check the keys of a section ``data`` beside ``kind`` and return the loader's arguments and
    the split.

    >>> source, split = check_data("synthetic", {"root": "drawn", "n_images": 60, "queries": 10})
    >>> source.n_images, split.queries
    (60, 10)
    """
    data_kind = resolve_data_kind(kind)
    # a callback is no setting
    loader = typed_settings.settings_of(data_kind.load, frozenset({"progress"}))
    values = {**data_kind.split_sizes, **values}
    source, split = typed_settings.read_both(
        loader, SplitSettings, values, "data", f"kind {kind!r}"
    )
    return typed_settings.absolute(source), typed_settings.absolute(split)
