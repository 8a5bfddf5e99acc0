"""Checksums in the files of a saved model, so that a damaged model is not taken for another one.

``config.json`` and ``model.safetensors`` each carry their own, and each is replaced in one step.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from channelhash.errors import InputError
from channelhash.models.backbones import read_weights
from channelhash.utils.files import content_hash

_KEY = "checksum"


def described_with_checksum(description: dict[str, Any]) -> str:
    """Return a model's description as the text of its ``config.json``.

    >>> json.loads(described_with_checksum({"name": "small", "architecture": {}}))["name"]
    'small'
    """
    return json.dumps(description | {_KEY: _of_description(description)}, indent=2)


def read_description(path: Path) -> dict[str, Any]:
    """Read a ``config.json``; one of version 0.1 has no checksum.

    Raises:
        InputError: it is damaged.
        ValueError: it is no JSON object.
        FileNotFoundError: it is missing.
    """
    description = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(description, dict):
        raise ValueError("not an object")
    if description.pop(_KEY, None) not in (None, _of_description(description)):
        raise InputError(
            f"{path}: has changed since it was saved; restore it or, if you have edited it, remove its {_KEY!r}"
        )
    return description


def weights_metadata(weights: dict[str, Tensor]) -> dict[str, str]:
    """Return what the weights' file says of its content.

    >>> list(weights_metadata({"a": torch.zeros(2)}))
    ['checksum']
    """
    return {_KEY: _of_weights(weights)}


def check_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Raise `InputError` if weights are not those that were saved; about 0.6 s a gigabyte."""
    with safe_open(path, "pt") as file:
        expected = (file.metadata() or {}).get(_KEY)
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


def _of_description(description: dict[str, Any]) -> str:
    """Extractors do not count: people change them when a model moves to another machine."""
    counted = dict(description)
    if isinstance(counted.get("architecture"), dict):
        counted["architecture"] = {key: v for key, v in counted["architecture"].items() if key != "extractors"}
    return content_hash(json.dumps(counted, sort_keys=True).encode())[:16]


def _of_weights(weights: dict[str, Tensor]) -> str:
    parts: list[bytes | memoryview] = []
    for name, values in sorted(weights.items()):
        parts += [f"{name} {values.dtype} {list(values.shape)}".encode()]
        parts += [values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data]
    return content_hash(*parts)
