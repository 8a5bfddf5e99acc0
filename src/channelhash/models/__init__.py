"""Models. A new model is one new file and one line in `MODELS` (``registry.py``).

Public names are loaded on first use: a saved model's description is read without PyTorch.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channelhash.errors import InputError
from channelhash.utils.typed_settings import look_up

if TYPE_CHECKING:
    from channelhash.models.hash_model import Branch, HashModel, ModelKind
    from channelhash.models.registry import MODELS

_NAMES = {"MODELS": "registry", "Branch": "hash_model", "HashModel": "hash_model", "ModelKind": "hash_model"}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"channelhash.models.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'channelhash.models' has no attribute {name!r}")


def resolve_model(name: str) -> "ModelKind":
    """Return a registered model, or one's own that ``python:module:NAME`` names.

    >>> resolve_model("python:channelhash.models:MODELS")
    Traceback (most recent call last):
    channelhash.errors.InputError: model.name python:channelhash.models:MODELS: is not a channelhash.models.ModelKind

    Raises:
        InputError: no model has this name (the nearest known one is named), or what ``python:…`` names cannot be
            imported or is no `ModelKind`.
    """
    from channelhash.models.hash_model import ModelKind
    from channelhash.models.registry import MODELS

    found = look_up(MODELS, name, "model.name")
    if not isinstance(found, ModelKind):
        raise InputError(f"model.name {name}: is not a channelhash.models.ModelKind")
    return found


def load_model(path: str | Path, trust_code: bool = False) -> "HashModel":
    """Load the trained model of a run's folder, or a model saved with ``save_pretrained``; in evaluation mode.

    Args:
        path: the folder.
        trust_code: consent to run code of this machine that the folder names (``python:module:NAME``) as model or
            extractor.

    Raises:
        InputError: there is no model, the run has not finished, its files are damaged, or it names code and
            ``trust_code`` is false.
    """
    from channelhash.models.hash_model import HashModel

    folder = Path(path)
    if (folder / "model" / "config.json").exists():
        return HashModel._from_folder(folder / "model", trust_code)
    if (folder / "config.yaml").exists():
        raise InputError(f"{folder}: this run has no trained model yet; finish it with `channelhash train --resume`")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    return HashModel._from_folder(folder, trust_code)


__all__ = ["MODELS", "Branch", "HashModel", "ModelKind", "load_model", "resolve_model"]
