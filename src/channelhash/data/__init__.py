"""Data sets. A new one is a file with a loader that returns `Records`, and one line in `DATA_KINDS`
(``registry.py``).

Public names are loaded on first use: images are read without the loaders of data sets.
"""

from typing import TYPE_CHECKING, Any

from channelhash.utils.public_names import load_name

if TYPE_CHECKING:
    from channelhash.data.coco import load_coco as load_coco
    from channelhash.data.features import (
        load_features as load_features,
        load_simulated as load_simulated,
        load_wikipedia as load_wikipedia,
    )
    from channelhash.data.flickr import (
        load_mirflickr as load_mirflickr,
        load_nuswide as load_nuswide,
    )
    from channelhash.data.records import Problems as Problems, Records as Records
    from channelhash.data.registry import (
        DATA_KINDS as DATA_KINDS,
        DataKind as DataKind,
        resolve_data_kind as resolve_data_kind,
    )
    from channelhash.data.splits import Splits as Splits, draw_splits as draw_splits
    from channelhash.data.synthetic import load_synthetic as load_synthetic
    from channelhash.data.table import load_table as load_table

#: Public name -> the module that defines it.
_MODULES = {
    "DataKind": "channelhash.data.registry",
    "Problems": "channelhash.data.records",
    "Records": "channelhash.data.records",
    "Splits": "channelhash.data.splits",
    "draw_splits": "channelhash.data.splits",
    "load_coco": "channelhash.data.coco",
    "load_features": "channelhash.data.features",
    "load_mirflickr": "channelhash.data.flickr",
    "load_nuswide": "channelhash.data.flickr",
    "load_simulated": "channelhash.data.features",
    "load_synthetic": "channelhash.data.synthetic",
    "load_table": "channelhash.data.table",
    "load_wikipedia": "channelhash.data.features",
    "resolve_data_kind": "channelhash.data.registry",
}
_REGISTRY = {"DATA_KINDS": "channelhash.data.registry"}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    return load_name(__name__, _MODULES | _REGISTRY, name)


def __dir__() -> list[str]:
    return sorted(__all__)
