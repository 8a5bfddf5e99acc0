"""Cross-modal hashing: short binary codes for pictures and their words. See the README for the
whole use in ten lines.

Public names are loaded on first use, so that ``import channelhash`` and ``channelhash --help`` do
not import torch.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from channelhash._version import __version__
from channelhash.utils import machine, optional_imports

if TYPE_CHECKING:
    from channelhash import (
        channels as channels,
        codes as codes,
        losses as losses,
        metrics as metrics,
        search as search,
    )
    from channelhash.codes import CodeSet as CodeSet
    from channelhash.explanation import explain as explain
    from channelhash.indexing.stores import index as index
    from channelhash.models import HashModel as HashModel, load_model as load_model
    from channelhash.runs.evaluate import evaluate as evaluate
    from channelhash.runs.train import train as train
    from channelhash.search import Store as Store, open_store as open_store

_MODULES = ("channels", "codes", "losses", "metrics", "search")
_NAMES = {
    "CodeSet": "channelhash.codes",
    "HashModel": "channelhash.models",
    "Store": "channelhash.search",
    "evaluate": "channelhash.runs.evaluate",
    "explain": "channelhash.explanation",
    "index": "channelhash.indexing.stores",
    "load_model": "channelhash.models",
    "open_store": "channelhash.search",
    "train": "channelhash.runs.train",
}

__all__ = ["__version__", *_MODULES, *_NAMES]


# Numba reads this when it is imported: compiled loops take no more cores than PyTorch.
if "OMP_NUM_THREADS" in os.environ and "numba" not in sys.modules:
    os.environ.setdefault("NUMBA_NUM_THREADS", os.environ["OMP_NUM_THREADS"])


machine.install()


def __getattr__(name: str) -> Any:
    with optional_imports.naming_extra("photos" if name == "index" else ""):
        if name in _MODULES:
            return importlib.import_module(f"channelhash.{name}")
        if name in _NAMES:
            return getattr(importlib.import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'channelhash' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
