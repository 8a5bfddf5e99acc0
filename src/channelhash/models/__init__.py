"""Models. A new model is one new file and one line in `MODELS`."""

from pathlib import Path

from channelhash.errors import InputError
from channelhash.models.cliphash import build_cliphash_branches, create_cliphash_model
from channelhash.models.feature_heads import build_features_branches, create_features_model
from channelhash.models.hash_model import Branch, HashModel, ModelKind
from channelhash.models.small import build_small_branches, create_small_model
from channelhash.models.tdsrdh import build_tdsrdh_branches, create_tdsrdh_model

#: name in a configuration -> how to create it for new data and build it again from a saved architecture.
MODELS: dict[str, ModelKind] = {
    "small": ModelKind(create_small_model, build_small_branches, tokens=True),
    "features": ModelKind(create_features_model, build_features_branches),
    "tdsrdh": ModelKind(create_tdsrdh_model, build_tdsrdh_branches, tokens=True),
    "cliphash": ModelKind(create_cliphash_model, build_cliphash_branches),
}


def load_model(path: str | Path) -> HashModel:
    """The trained model of a run's folder, or a model saved with ``save_pretrained``; in evaluation mode.

    Raises:
        InputError: there is no model, the run has not finished, or its files are damaged.
    """
    folder = Path(path)
    if (folder / "model" / "config.json").exists():
        return HashModel._from_folder(folder / "model")
    if (folder / "config.yaml").exists():
        raise InputError(f"{folder}: this run has no trained model yet; finish it with `channelhash train --resume`")
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder")
    return HashModel._from_folder(folder)


__all__ = ["MODELS", "Branch", "HashModel", "ModelKind", "load_model"]
