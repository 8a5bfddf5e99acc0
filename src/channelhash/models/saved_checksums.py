"""Checksums in the files of a saved model, so that a damaged model is not taken for another one.

``config.json`` and ``model.safetensors`` each carry their own, and each is replaced in one step.
"""

from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from channelhash.errors import InputError
from channelhash.models.backbones import read_weights
from channelhash.models.description import CHECKSUM, read_description
from channelhash.utils.files import content_hash


def weights_metadata(weights: dict[str, Tensor]) -> dict[str, str]:
    """Return what the weights' file says of its content.

    >>> list(weights_metadata({"a": torch.zeros(2)}))
    ['checksum']
    """
    return {CHECKSUM: _of_weights(weights)}


def check_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Raise `InputError` if weights are not those that were saved; about 0.6 s a gigabyte."""
    with safe_open(path, "pt") as file:
        expected = (file.metadata() or {}).get(CHECKSUM)
    if expected not in (None, _of_weights(weights)):
        raise InputError(f"{path}: is damaged: the weights have changed since they were saved; restore the file")


def damaged_files(folder: Path) -> list[str]:
    """Return a line for each damaged file of a saved model, which is not built; all of them are read.

    >>> damaged_files(Path("none"))
    ['config.json: is missing', 'model.safetensors: is missing']
    """
    found = []
    for name, read in (("config.json", read_description), ("model.safetensors", _read_checked_weights)):
        try:
            read(folder / name)
        except FileNotFoundError:
            found.append(f"{name}: is missing")
        except (InputError, ValueError, RecursionError, OSError) as error:
            found.append(f"{name}: {str(error).removeprefix(f'{folder / name}: ')}")
    return found


def _read_checked_weights(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(path)
    check_weights(path, read_weights(path))


def _of_weights(weights: dict[str, Tensor]) -> str:
    parts: list[bytes | memoryview] = []
    for name, values in sorted(weights.items()):
        parts += [f"{name} {values.dtype} {list(values.shape)}".encode()]
        parts += [values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data]
    return content_hash(*parts)
