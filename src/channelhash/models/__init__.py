"""Models. A new model is one new file and one line in `MODELS`."""

from pathlib import Path

from channelhash.errors import InputError
from channelhash.models.aligned import build_aligned_branches, create_aligned_model
from channelhash.models.both import build_both_branches, create_both_model
from channelhash.models.cliphash import build_cliphash_branches, create_cliphash_model
from channelhash.models.feature_heads import build_features_branches, create_features_model
from channelhash.models.fitted import build_fitted_branches, create_fitted_model
from channelhash.models.hash_model import Branch, HashModel, ModelKind
from channelhash.models.small import build_small_branches, create_small_model
from channelhash.models.tdsrdh import build_tdsrdh_branches, create_tdsrdh_model
from channelhash.utils.python_names import look_up

#: name in a configuration -> how to create it for new data and build it again from a saved architecture.
MODELS: dict[str, ModelKind] = {
    "small": ModelKind(create_small_model, build_small_branches, tokens=True),
    "features": ModelKind(create_features_model, build_features_branches),
    "both": ModelKind(create_both_model, build_both_branches),
    "aligned": ModelKind(create_aligned_model, build_aligned_branches),
    "tdsrdh": ModelKind(create_tdsrdh_model, build_tdsrdh_branches, tokens=True),
    "cliphash": ModelKind(create_cliphash_model, build_cliphash_branches),
    "fitted": ModelKind(create_fitted_model, build_fitted_branches),
}


def resolve_model(name: str) -> ModelKind:
    """Return a registered model, or one's own that ``python:module:NAME`` names.

    >>> resolve_model("python:channelhash.models:MODELS")
    Traceback (most recent call last):
    channelhash.errors.InputError: model.name python:channelhash.models:MODELS: is not a channelhash.models.ModelKind

    Raises:
        InputError: no model has this name (the nearest known one is named), or what ``python:…`` names cannot be
            imported or is no `ModelKind`.
    """
    found = look_up(MODELS, name, "model.name")
    if not isinstance(found, ModelKind):
        raise InputError(f"model.name {name}: is not a channelhash.models.ModelKind")
    return found


def load_model(path: str | Path, trust_code: bool = False) -> HashModel:
    """Load the trained model of a run's folder, or a model saved with ``save_pretrained``; in evaluation mode.

    Args:
        path: the folder.
        trust_code: consent to run code of this machine that the folder names (``python:module:NAME``) as model or
            extractor.

    Raises:
        InputError: there is no model, the run has not finished, its files are damaged, or it names code and
            ``trust_code`` is false.
    """
    folder = Path(path)
    if (folder / "model" / "config.json").exists():
        return HashModel._from_folder(folder / "model", trust_code)
    if (folder / "config.yaml").exists():
        raise InputError(f"{folder}: this run has no trained model yet; finish it with `channelhash train --resume`")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    return HashModel._from_folder(folder, trust_code)


__all__ = ["MODELS", "Branch", "HashModel", "ModelKind", "load_model", "resolve_model"]
