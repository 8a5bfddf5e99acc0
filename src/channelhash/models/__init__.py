"""Models. A new model is one new file and one line in `MODELS`.

Public names are loaded on first use: a saved model's description is read without PyTorch.
"""

import inspect
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from channelhash.errors import InputError
from channelhash.models.description import read_description
from channelhash.utils.public_names import load_name
from channelhash.utils.typed_settings import look_up

if TYPE_CHECKING:
    from channelhash.models.encoders import Encoder as Encoder, open_encoder as open_encoder
    from channelhash.models.fitted import FittedModel as FittedModel, fit_codes as fit_codes
    from channelhash.models.hash_model import (
        Branch as Branch,
        HashModel as HashModel,
        ModelKind as ModelKind,
    )
    from channelhash.models.heads import (
        create_aligned_model as create_aligned_model,
        create_features_model as create_features_model,
    )
    from channelhash.models.paper import (
        create_cliphash_model as create_cliphash_model,
        create_tdsrdh_model as create_tdsrdh_model,
    )
    from channelhash.models.small import create_small_model as create_small_model

    MODELS: dict[str, ModelKind]

#: Public name -> the module that defines it.
_MODULES = {
    "Branch": "channelhash.models.hash_model",
    "Encoder": "channelhash.models.encoders",
    "FittedModel": "channelhash.models.fitted",
    "HashModel": "channelhash.models.hash_model",
    "ModelKind": "channelhash.models.hash_model",
    "create_aligned_model": "channelhash.models.heads",
    "create_cliphash_model": "channelhash.models.paper",
    "create_features_model": "channelhash.models.heads",
    "create_small_model": "channelhash.models.small",
    "create_tdsrdh_model": "channelhash.models.paper",
    "fit_codes": "channelhash.models.fitted",
    "open_encoder": "channelhash.models.encoders",
}

__all__ = ["load_model", "resolve_model", *_MODULES]


@cache
def _models() -> "dict[str, ModelKind]":
    """Return the registry: name in a configuration -> how to create a model, and to build a saved
    one again.
    """
    from channelhash.models import heads, paper, small
    from channelhash.models.hash_model import ModelKind

    return {
        "small": ModelKind(small.create_small_model, small.build_small_branches),
        "features": ModelKind(heads.create_features_model, heads.build_features_branches),
        "aligned": ModelKind(heads.create_aligned_model, heads.build_aligned_branches),
        "tdsrdh": ModelKind(paper.create_tdsrdh_model, paper.build_tdsrdh_branches),
        "cliphash": ModelKind(paper.create_cliphash_model, paper.build_cliphash_branches),
    }


def __getattr__(name: str) -> Any:
    return _models() if name == "MODELS" else load_name(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted(__all__)


def resolve_model(name: str) -> "ModelKind":
    """Return a registered model, or one's own that ``python:module:NAME`` names.

    >>> resolve_model("small").create.__name__
    'create_small_model'
    """
    from channelhash.models.hash_model import ModelKind

    entry = look_up(_models(), name, "model.name")
    if not isinstance(entry, ModelKind):
        raise InputError(f"model.name {name}: is not a channelhash.models.ModelKind")
    if [*inspect.signature(entry.create).parameters][:2] != ["train", "n_bits"]:
        raise InputError(
            f"model.name {name}: create has to take train and n_bits, in this order, before its "
            "own keys"
        )
    return entry


def load_model(
    path: str | Path, trust_code: bool = False, device: str = "cpu"
) -> "HashModel | FittedModel":
    """Load the trained model of a run's folder, or a model saved with ``save_pretrained``; in
    evaluation mode.

    Args:
        path: the folder.
        trust_code: consent to run code of this machine that the folder names
            (``python:module:NAME``) as model or extractor.
        device: where a network of PyTorch computes: ``cpu``, ``cuda``, or ``auto`` for a GPU if
            there is one.

    Returns:
        A `HashModel`; or a `FittedModel`, which needs no PyTorch.

    Raises:
        InputError: there is no model, the run has not finished, its files are damaged, or it names
            code and ``trust_code`` is false.
    """
    folder = Path(path)
    if (folder / "model" / "config.json").exists():
        folder = folder / "model"
    elif (folder / "config.yaml").exists():
        raise InputError(
            f"{folder}: this run has no trained model yet; finish it with `channelhash train "
            "--resume`"
        )
    elif not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; name a run or a saved model (`channelhash train` makes a "
            "run)"
        )
    file = folder / "config.json"
    if file.exists() and read_description(file).get("name") == "fitted":
        from channelhash.models.fitted import FittedModel

        return FittedModel.load(folder, trust_code)
    from channelhash.models.hash_model import HashModel
    from channelhash.utils.machine import pick_device

    return HashModel._load(folder, trust_code).to(pick_device(device))


def load_hash_model(path: str | Path, trust_code: bool = False) -> "HashModel":
    """Load a model that was trained; errors as in `load_model`, and `InputError` for codes that
    were fitted.
    """
    from channelhash.models.hash_model import HashModel

    model = load_model(path, trust_code)
    if not isinstance(model, HashModel):
        raise InputError(
            f"{path}: holds codes that were fitted, and this goes with a trained model; name a run"
        )
    return model
