"""What the ``config.json`` of a saved model says, read without building the model."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from channelhash.errors import InputError
from channelhash.utils.files import content_hash

CHECKSUM = "checksum"


def described_with_checksum(description: dict[str, Any]) -> str:
    """Return a model's description as the text of its ``config.json``.

    >>> json.loads(described_with_checksum({"name": "small", "architecture": {}}))["name"]
    'small'
    """
    return json.dumps(description | {CHECKSUM: _of_description(description)}, indent=2)


def read_description(path: Path) -> dict[str, Any]:
    """Read a ``config.json``; one that a person has edited may have no checksum.

    Raises:
        InputError: it is damaged.
        ValueError: it is no JSON object.
        FileNotFoundError: it is missing.
    """
    description = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(description, dict):
        raise ValueError("not an object")
    if description.pop(CHECKSUM, None) not in (None, _of_description(description)):
        raise InputError(
            f"{path}: has changed since it was saved; restore it or, if you have edited it, remove its {CHECKSUM!r}"
        )
    return description


def fit_facts(description: Mapping[str, Any]) -> dict[str, str]:
    """Return facts for people about a saved model: its encoder, and how its codes were fitted; of others, nothing.

    Args:
        description: what its ``config.json`` says.

    >>> fit_facts({"name": "fitted", "architecture": {"encoder": "photo", "codes": "itq", "fitted_on": 1000,
    ...                                               "widths": {"image": 1280}}})
    {'encoder': 'photo', 'fitted': 'itq to 1,000 images; no captions join texts to them'}
    """
    if description.get("name") != "fitted":
        return {}
    architecture = description["architecture"]
    n, codes, modalities = architecture["fitted_on"], architecture["codes"], list(architecture["widths"])
    if codes == "learned":
        return {"encoder": in_one_word(architecture["encoder"]), "fitted": "learned codes of the encoder"}
    fitted = f"{codes} to {n:,} {'pairs of image and text' if codes == 'cca-itq' else f'{min(modalities)}s'}"
    fitted += "; no captions join texts to them" * (modalities == ["image"])
    return {"encoder": in_one_word(architecture.get("extractors") or architecture["encoder"]), "fitted": fitted}


def in_one_word(word: str | Mapping[str, str]) -> str:
    """Return a word as it is written on a command line.

    >>> in_one_word({"image": "onnx:net.onnx"})
    'image=onnx:net.onnx'
    """
    return word if isinstance(word, str) else " ".join(f"{modality}={name}" for modality, name in sorted(word.items()))


def _of_description(description: dict[str, Any]) -> str:
    """Extractors do not count: people change them when a model moves to another machine."""
    counted = dict(description)
    if isinstance(counted.get("architecture"), dict):
        counted["architecture"] = {key: v for key, v in counted["architecture"].items() if key != "extractors"}
    return content_hash(json.dumps(counted, sort_keys=True).encode())[:16]
