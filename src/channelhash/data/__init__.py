"""Data sets. A new one is a file with a loader that returns `Records`, and one line in `DATA_KINDS`
(``registry.py``).

Public names are loaded on first use: images are read without the loaders of data sets.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from channelhash.data.records import Records
    from channelhash.data.registry import DATA_KINDS, DataKind, resolve_data_kind
    from channelhash.data.splits import Splits

__all__ = ["DATA_KINDS", "DataKind", "Records", "Splits", "resolve_data_kind"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("channelhash.data.registry"), name)
    raise AttributeError(f"module 'channelhash.data' has no attribute {name!r}")
