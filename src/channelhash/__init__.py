"""Cross-modal hashing: short binary codes for images and their words. See the README for the
whole use in ten lines.

Public names are loaded on first use, so that ``import channelhash`` and ``channelhash --help`` do
not import torch.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

from channelhash._version import __version__
from channelhash.utils import machine, optional_imports
from channelhash.utils.public_names import load_name

if TYPE_CHECKING:
    from channelhash import (
        channels as channels,
        codes as codes,
        data as data,
        losses as losses,
        metrics as metrics,
        models as models,
        search as search,
    )
    from channelhash.codes import CodeSet as CodeSet
    from channelhash.compression import Compressor as Compressor, compress as compress
    from channelhash.duplicates import (
        DuplicateGroup as DuplicateGroup,
        find_duplicates as find_duplicates,
    )
    from channelhash.errors import InputError as InputError, JobError as JobError
    from channelhash.explanation import Explanation as Explanation, explain as explain
    from channelhash.indexing.encode import Indexed as Indexed
    from channelhash.indexing.index import Index as Index, index as index
    from channelhash.models import HashModel as HashModel, load_model as load_model
    from channelhash.runs.evaluate import evaluate as evaluate
    from channelhash.runs.folder import Run as Run
    from channelhash.runs.train import train as train
    from channelhash.search import (
        Hit as Hit,
        Hits as Hits,
        Store as Store,
        open_store as open_store,
    )

#: Public name -> the module that it is, or that defines it.
_MODULES = {
    "CodeSet": "channelhash.codes",
    "Compressor": "channelhash.compression",
    "DuplicateGroup": "channelhash.duplicates",
    "Explanation": "channelhash.explanation",
    "HashModel": "channelhash.models",
    "Hit": "channelhash.search.hits",
    "Hits": "channelhash.search.hits",
    "Index": "channelhash.indexing.index",
    "Indexed": "channelhash.indexing.encode",
    "InputError": "channelhash.errors",
    "JobError": "channelhash.errors",
    "Run": "channelhash.runs.folder",
    "Store": "channelhash.search",
    "channels": "channelhash.channels",
    "codes": "channelhash.codes",
    "compress": "channelhash.compression",
    "data": "channelhash.data",
    "evaluate": "channelhash.runs.evaluate",
    "explain": "channelhash.explanation",
    "find_duplicates": "channelhash.duplicates",
    "index": "channelhash.indexing.index",
    "load_model": "channelhash.models",
    "losses": "channelhash.losses",
    "metrics": "channelhash.metrics",
    "models": "channelhash.models",
    "open_store": "channelhash.search",
    "search": "channelhash.search",
    "train": "channelhash.runs.train",
}

__all__ = ["__version__", *_MODULES]


# Numba reads this when it is imported: compiled loops take no more cores than PyTorch.
if "OMP_NUM_THREADS" in os.environ and "numba" not in sys.modules:
    os.environ.setdefault("NUMBA_NUM_THREADS", os.environ["OMP_NUM_THREADS"])


machine.install()


def __getattr__(name: str) -> Any:
    with optional_imports.naming_extra("photos" if name == "index" else ""):
        return load_name(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
