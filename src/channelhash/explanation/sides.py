"""The two items of a pair: encoded anew, or known by their stored codes alone."""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from channelhash.codes import PackedCodes, binarize, unpack
from channelhash.errors import InputError
from channelhash.explanation.agreeing_bits import Outputs
from channelhash.explanation.occlusion import Encode
from channelhash.search.query_encoder import QueryEncoder
from channelhash.search.store import Item
from channelhash.utils.image_grid import bits as bits_word

_UNKNOWN = {"image": "its picture is not known here", "text": "its words are not known here"}


@dataclass(frozen=True)
class Side:
    """One item of a pair.

    Attributes:
        modality: modality of its code, ``"image"`` or ``"text"``.
        name: its words, its file or its id.
        outputs: ``(k,)`` outputs of the model; ±1 where only bits are known.
        item: the text, or the image (a file or opened), whose parts can be hidden; None if unknown.
        problem: why the item is unknown, or a remark on it.

    >>> Side("text", "a dog", np.array([0.3, -0.8], np.float32), item="a dog").real
    True
    """

    modality: str
    name: str
    outputs: Outputs
    item: str | Path | Image.Image | None = None
    problem: str = ""

    @property
    def real(self) -> bool:
        """Return whether the outputs are a model's and not only bits."""
        return self.item is not None


def encode_side(modality: str, item: str | Path | Image.Image, encode: Encode, name: str = "") -> Side:
    """Encode words or an image as one item of a pair.

    Raises:
        InputError: it cannot be read or encoded.

    >>> encode_side("text", "a dog", lambda texts: np.ones((len(texts), 2), np.float32)).outputs.tolist()
    [1.0, 1.0]
    """
    name = name or (item if isinstance(item, str) else item.name if isinstance(item, Path) else "the picture")
    return Side(modality, name, encode([item])[0], item)


def unpack_side(code: PackedCodes, modality: str, name: str, n_bits: int, problem: str) -> Side:
    """Return an item of which only the bits are known, as ±1.

    >>> unpack_side(np.array([0b10000000], np.uint8), "image", "item17", 2, "its picture is gone").outputs.tolist()
    [1.0, -1.0]
    """
    return Side(modality, name, unpack(code[None], n_bits)[0].astype(np.float32) * 2 - 1, None, problem)


def load_side(item: Item, modality: str, n_bits: int, encoders: dict[str, Encode]) -> Side:
    """Return a stored item as one item of a pair.

    Its words or its image are encoded anew, which gives real-valued outputs and maps, if they are known and can be
    encoded; else only its bits are known.

    Args:
        item: a store's item with a code of ``modality``.
        modality: modality of the code to explain.
        n_bits: code length k.
        encoders: modality -> encoder of its items, see `make_encoders`.
    """
    raw, code = item.metadata.get(modality), item.codes[modality]
    name = str(item.metadata.get("text") or item.id) if modality == "text" else item.id
    if not raw:
        return unpack_side(code, modality, name, n_bits, _UNKNOWN[modality])
    if modality not in encoders:
        return unpack_side(code, modality, name, n_bits, "there is no model to encode it with")
    try:
        side = encode_side(modality, Path(str(raw)) if modality == "image" else str(raw), encoders[modality], name)
    except InputError as error:
        return unpack_side(code, modality, name, n_bits, str(error))
    return compare_with_stored(side, code, n_bits)


def compare_with_stored(side: Side, code: PackedCodes, n_bits: int) -> Side:
    """Return the side, with a remark if its code differs from the stored one.

    >>> side = Side("text", "a dog", np.array([0.3, -0.8], np.float32), item="a dog")
    >>> compare_with_stored(side, np.array([0b11000000], np.uint8), n_bits=2).problem
    'encoded anew, it differs in 1 bit from its stored code; explained as it is now'
    """
    n_differing = int((unpack(code[None], n_bits)[0] != binarize(side.outputs[None])[0]).sum())
    if not n_differing:
        return side
    problem = f"encoded anew, it differs in {bits_word(n_differing)} from its stored code; explained as it is now"
    return replace(side, problem=problem)


def make_encoders(model: QueryEncoder) -> dict[str, Encode]:
    """Return, for each modality of the model, the function from raw items to outputs ``(n, k)``."""
    return {modality: partial(encode_items, model, modality) for modality in model.modalities}


def encode_items(model: QueryEncoder, modality: str, items: Any) -> Outputs:
    """Encode ``n`` raw items of one modality to real-valued outputs ``(n, k)``; errors as in `HashModel.outputs`."""
    return np.asarray(model.outputs(modality, items), np.float32)
