"""The two items of a pair, each as a model encodes it or as the store knows it."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from channelhash.codes import PackedCodes, binarize, unpack
from channelhash.errors import InputError
from channelhash.explanation.occlusion import Encode, Outputs
from channelhash.search.store import Item
from channelhash.utils.contact_sheet import bits as bits_word

# Modality -> why a stored item of it is known only by its bits.
_UNKNOWN = {
    "image": "its picture is not known here",
    "text": "its words are not known here",
    "vector": "its vector is not kept",
}


class Side(NamedTuple):
    """One item of a pair.

    Attributes:
        modality: modality of its code, ``"image"`` or ``"text"``.
        name: its words, its file or its id.
        outputs: ``(k,)`` outputs of the model; ±1 where only bits are known, which is so if
            ``item`` is None.
        item: the text, or the image (a file or opened), whose parts can be hidden; None if unknown.
        problem: why the item is unknown, or a remark on it.

    >>> Side("text", "a dog", np.array([0.3, -0.8], np.float32), item="a dog").name
    'a dog'
    """

    modality: str
    name: str
    outputs: Outputs
    item: str | Path | Image.Image | None = None
    problem: str = ""

    @classmethod
    def encode(
        cls, modality: str, item: str | Path | Image.Image, encode: Encode, name: str = ""
    ) -> "Side":
        """Encode words or an image.

        >>> side = Side.encode("text", "a dog", lambda texts: np.ones((len(texts), 2), np.float32))
        >>> side.name, side.outputs.tolist()
        ('a dog', [1.0, 1.0])
        """
        return cls(modality, name or _name_of(item), encode([item])[0], item)

    @classmethod
    def unpack(
        cls, code: PackedCodes, modality: str, name: str, n_bits: int, problem: str
    ) -> "Side":
        """Return an item known only by its bits, whose outputs are ±1.

        >>> code = np.array([128], np.uint8)
        >>> Side.unpack(code, "image", "item17", 2, "its picture is gone").outputs.tolist()
        [1.0, -1.0]
        """
        outputs = unpack(code[None], n_bits)[0].astype(np.float32) * 2 - 1
        return cls(modality, name, outputs, None, problem)

    @classmethod
    def load(cls, item: Item, modality: str, n_bits: int, encoders: Mapping[str, Encode]) -> "Side":
        """Return a stored item.

        Where its words or its image are known and can be encoded, this is done anew: that gives
        real-valued outputs and maps. Otherwise only its bits are known.
        """
        raw = item.metadata.get(modality)
        code = item.codes[modality]
        name = str(item.metadata.get("text") or item.id) if modality == "text" else item.id
        if not raw:
            return cls.unpack(code, modality, name, n_bits, _UNKNOWN[modality])
        if modality not in encoders:
            return cls.unpack(code, modality, name, n_bits, "there is no model to encode it with")
        try:
            content = Path(str(raw)) if modality == "image" else str(raw)
            side = cls.encode(modality, content, encoders[modality], name)
        except InputError as error:
            return cls.unpack(code, modality, name, n_bits, str(error))
        return side.compare_with_stored(code, n_bits)

    def compare_with_stored(self, code: PackedCodes, n_bits: int) -> "Side":
        """Return this side, with a remark if its code differs from the stored one.

        >>> side = Side("text", "a dog", np.array([0.3, -0.8], np.float32), item="a dog")
        >>> side.compare_with_stored(np.array([0b11000000], np.uint8), n_bits=2).problem
        'encoded anew, it differs in 1 bit from its stored code; explained as it is now'
        """
        bits = binarize(self.outputs[None])
        n_differing = int((unpack(code[None], n_bits) != bits).sum())
        if not n_differing:
            return self
        problem = (
            f"encoded anew, it differs in {bits_word(n_differing)} from its stored code; "
            "explained as it is now"
        )
        return self._replace(problem=problem)


def _name_of(item: str | Path | Image.Image) -> str:
    if isinstance(item, str):
        return item
    return item.name if isinstance(item, Path) else "the picture"
