"""Explain a pair of words, images or ids: its bits, their labels, and maps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.errors import InputError, argument, naming
from channelhash.explanation import occlusion
from channelhash.explanation.bits import Bit, BitLabels
from channelhash.explanation.occlusion import Encode, ImageMap, MapSettings, Outputs, WordInfluence
from channelhash.explanation.sides import Side
from channelhash.search import open_filled_store
from channelhash.search.checks import check_words
from channelhash.search.query import encode_codes, load_encoder
from channelhash.search.question import coded_item
from channelhash.search.store import Store
from channelhash.utils.image_files import open_image

__all__ = ["Explanation", "Side", "explain", "explain_pair"]

#: Labels with less evidence, relative to the strongest label, are not named.
_MIN_RELATIVE_EVIDENCE = 0.1
#: Nor are those with less than this, which would be printed as 0.00.
_MIN_EVIDENCE = 0.005
_DEFAULT_MAPS = MapSettings()


@dataclass(frozen=True)
class Explanation:
    """Why two codes are as near as they are.

    Attributes:
        sides: the pair.
        bits: all k bits.
        label_names: c names, none where no labels are known.
        clear: ``(k, c)`` clear correlations of the pair's bits with labels, 0 where unclear.
        image_maps: for each side, the map of its image.
        words: for each side, the influence of its words.
        remarks: what could not be done, a line each.
    """

    sides: tuple[Side, Side]
    bits: list[Bit]
    label_names: tuple[str, ...]
    clear: NDArray[np.float64]
    image_maps: tuple[ImageMap | None, ImageMap | None] = (None, None)
    words: tuple[list[WordInfluence] | None, list[WordInfluence] | None] = (None, None)
    remarks: tuple[str, ...] = ()

    @property
    def distance(self) -> int:
        """Return the number of bits that differ."""
        return sum(not bit.agrees for bit in self.bits)

    @property
    def relaxed_distance(self) -> float:
        """Return k/2 (1 − cos) of the outputs."""
        return 0.5 * len(self.bits) * (1 - sum(bit.share for bit in self.bits))

    @cached_property
    def evidence(self) -> NDArray[np.float64]:
        """The evidence ``(c,)`` of the agreeing bits for (positive) and against each label: the
        mean of ±φ_jl weighted by share_j, + for a bit that is 1 and − for a bit that is 0.
        """
        shares = np.array([bit.share * bit.agrees for bit in self.bits])
        signs = np.array([1 if bit.values[0] else -1 for bit in self.bits])
        return np.asarray((shares * signs) @ self.clear / (shares.sum() or 1.0))

    def bit_labels(self, bit: Bit) -> list[tuple[str, float]]:
        """Return the labels that go with a bit's being 1 (positive correlation) or 0 (negative),
        strongest first.
        """
        return self._strongest_first(self.clear[bit.number - 1].tolist())

    def labels(self) -> list[tuple[str, float]]:
        """Return the labels that the agreeing bits speak for, strongest first, down to a tenth of
        the first one's evidence.
        """
        named = np.where(self.evidence >= _MIN_EVIDENCE, self.evidence, 0)
        labels = self._strongest_first(named.tolist())
        least = _MIN_RELATIVE_EVIDENCE * labels[0][1] if labels else 0
        return [(name, weight) for name, weight in labels if weight >= least]

    def summary(self) -> str:
        """Return the explanation in a sentence or two."""
        agreeing = len(self.bits) - self.distance
        differing = f"{self.distance} differs" if self.distance == 1 else f"{self.distance} differ"
        counts = f"{agreeing} of {len(self.bits)} bits agree, {differing}."
        if not self.label_names:
            return f"{counts} No labels are known that could give the bits a meaning."
        labels = self.labels()
        if not labels:
            return f"{counts} The agreeing bits speak for no label clearly."
        evidence = ", ".join(f"{name} ({weight:.2f})" for name, weight in labels)
        return f"{counts} Those that agree speak for: {evidence}."

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        sides = zip(self.sides, self.image_maps, self.words, strict=True)
        return {
            "n_bits": len(self.bits),
            "distance": self.distance,
            "relaxed_distance": self.relaxed_distance,
            "summary": self.summary(),
            "labels": [{"label": name, "weight": weight} for name, weight in self.labels()],
            "bits": [self._bit_dict(bit) for bit in self.bits],
            "sides": [_side_dict(*side) for side in sides],
            "remarks": list(self.remarks),
        }

    def _bit_dict(self, bit: Bit) -> dict[str, Any]:
        meaning = [{"label": name, "correlation": value} for name, value in self.bit_labels(bit)]
        return {
            "bit": bit.number,
            "values": [int(value) for value in bit.values],
            "agrees": bit.agrees,
            "strengths": list(bit.strengths),
            "share": bit.share,
            "meaning": meaning,
        }

    def _strongest_first(self, values: Iterable[float]) -> list[tuple[str, float]]:
        pairs = [
            (name, value) for name, value in zip(self.label_names, values, strict=True) if value
        ]
        return sorted(pairs, key=lambda pair: (-abs(pair[1]), pair[0]))


def _side_dict(
    side: Side, image_map: ImageMap | None, words: Sequence[WordInfluence] | None
) -> dict[str, Any]:
    influences = None
    if words is not None:
        influences = [{**word._asdict(), "flips": list(word.flips)} for word in words]
    return {
        "modality": side.modality,
        "name": side.name,
        "map": image_map and _map_dict(image_map),
        "words": influences,
    }


def _map_dict(image_map: ImageMap) -> dict[str, Any]:
    rows, columns = image_map.influence.shape
    values = {
        name: np.asarray(value).tolist()
        for name, value in image_map._asdict().items()
        if name != "image"
    }
    return {"rows": rows, "columns": columns, **values}


def explain(
    address: str | Path,
    images: Sequence[Path | str | Image.Image] = (),
    texts: Sequence[str] = (),
    likes: Sequence[str] = (),
    by: Sequence[str] = (),
    model: str | Path | None = None,
    settings: MapSettings | None = _DEFAULT_MAPS,
    trust_code: bool = False,
) -> Explanation:
    """Explain why two items have codes as near as they are.

    Args:
        address: a run's folder, a store or a file of codes, as for a search.
        images: image files or opened images.
        texts: words.
        likes: ids of items of the store. Images, texts and likes together are the two items, in
            this order.
        by: for each like, the modality of its code, ``"image"`` or ``"text"``; by default the one
            that a search compares.
        model: the run or saved model that made the codes, if the store knows none.
        settings: how parts are hidden for the maps; None makes no maps.
        trust_code: consent to run code of this machine that the model's folder names
            (``python:module:NAME``).

    Returns:
        Bits, their labels, and maps where the raw items are known and the model can encode them.

    Raises:
        InputError: there are not two items, one cannot be read or encoded, an id is unknown, or
            there is no such store.

    Example::

        explanation = ch.explain("photos", texts=["a dog on a beach"], likes=["2.png"])
        explanation.distance, explanation.summary()
    """
    _check_pair(images, texts, likes, by)
    with open_filled_store(address) as store:
        encoders: dict[str, Encode] = {}
        if images or texts or model or store.model_folder:
            encoders = _load_encoders(store, model, trust_code)
        sides = [_encode_side(encoders, "image", image) for image in images]
        sides += [_encode_side(encoders, "text", text) for text in texts]
        for item_id, modality in zip_longest(likes, by):
            sides.append(_load_side(store, item_id, modality, encoders))
        return explain_pair((sides[0], sides[1]), BitLabels.load(store), encoders, settings)


def _load_encoders(store: Store, model: str | Path | None, trust_code: bool) -> dict[str, Encode]:
    """Return modality -> the function that encodes its items, of the model of a store."""
    encoder = load_encoder(store, None if model is None else Path(model), trust_code)
    return {name: partial(encode_codes, encoder, name) for name in encoder.modalities}


def _check_pair(
    images: Sequence[object], texts: Sequence[str], likes: Sequence[str], by: Sequence[str]
) -> None:
    """Raise `InputError` unless two items are given, and a modality for each like or none."""
    n_items = len(images) + len(texts) + len(likes)
    if n_items != 2:
        raise InputError(
            f"explain: give two of {argument('images')}, {argument('texts')} and "
            f"{argument('likes')}, not {n_items or 'none'}"
        )
    if by and len(by) != len(likes):
        raise InputError(
            f"{argument('by')}: says which code of a {argument('likes')} is meant; give one for "
            f"each of {len(likes)}, or none"
        )
    for text in texts:
        with naming(argument("texts"), ValueError):
            check_words(text)


def _encode_side(
    encoders: Mapping[str, Encode], modality: str, item: str | Path | Image.Image
) -> Side:
    """Encode a raw item: words, or an image that is opened or named by its file."""
    if modality not in encoders:
        raise InputError(f"{argument(f'{modality}s')}: this model encodes {' and '.join(encoders)}")
    if modality == "image" and isinstance(item, str):
        item = Path(item)
    return Side.encode(modality, item, encoders[modality])


def _load_side(
    store: Store, item_id: str, modality: str | None, encoders: Mapping[str, Encode]
) -> Side:
    """Return an item of the store, by its code of a modality; by default that of a search."""
    modality = modality or store.choose_modality()
    return Side.load(coded_item(store, item_id, modality), modality, store.n_bits or 0, encoders)


def explain_pair(
    pair: tuple[Side, Side],
    bit_labels: BitLabels | None,
    encoders: Mapping[str, Encode],
    settings: MapSettings | None = _DEFAULT_MAPS,
) -> Explanation:
    """Explain a pair of items.

    An encoder encodes one item for each position of the patch on an image (some 60 by default), and
    for each word.

    >>> side = Side("text", "a dog", np.array([1.0, 1.0], np.float32), item="a dog")
    >>> partner = Side("text", "a cat", np.array([1.0, -1.0], np.float32), item="a cat")
    >>> explain_pair((side, partner), None, {}, settings=None).distance
    1
    """
    first, second = pair
    known = (first.item is not None, second.item is not None)
    bits = Bit.compare(first.outputs, second.outputs, known)
    names: tuple[str, ...] = ()
    clear = np.zeros((len(bits), 0))
    if bit_labels is not None and all(side.modality in bit_labels.correlations for side in pair):
        names = bit_labels.label_names
        clear = bit_labels.clear([side.modality for side in pair])
    maps = [
        _Maps.of(side, encoders, partner.outputs, settings)
        for side, partner in ((first, second), (second, first))
    ]
    return Explanation(
        pair,
        bits,
        names,
        clear,
        (maps[0].image, maps[1].image),
        (maps[0].words, maps[1].words),
        (*maps[0].remarks, *maps[1].remarks),
    )


class _Maps(NamedTuple):
    """The map of a side's image or the influence of its words, and remarks."""

    image: ImageMap | None
    words: list[WordInfluence] | None
    remarks: list[str]

    @classmethod
    def of(
        cls,
        side: Side,
        encoders: Mapping[str, Encode],
        partner: Outputs,
        settings: MapSettings | None,
    ) -> "_Maps":
        """Hide the parts of a side in turn, as far as its item is known."""
        if side.item is None:
            remark = [f"no map of {side.name}: {side.problem}"]
            return cls(None, None, remark if settings else [])
        remarks = [f"{side.name}: {side.problem}"] if side.problem else []
        if settings is None:
            return cls(None, None, remarks)
        if side.modality == "text":
            text = str(side.item)
            if len(text.split()) > settings.max_words:
                remarks.append(
                    f"{side.name[:40]} …: only its first {settings.max_words} words were left out "
                    "in turn"
                )
            words = occlusion.map_words(text, encoders["text"], partner, settings.max_words)
            return cls(None, words, remarks)
        image = _reduced_image(side.item)
        grid = settings.grid(image.size)
        n_positions = len(grid.positions())
        if n_positions > settings.max_positions:
            remarks.append(
                f"no map of {side.name}: {n_positions} patches would have to be looked at, more "
                f"than {settings.max_positions}"
            )
            return cls(None, None, remarks)
        drawn = occlusion.map_image(image, grid, encoders["image"], partner, settings.fill)
        return cls(drawn, None, remarks)


def _reduced_image(item: str | Path | Image.Image) -> Image.Image:
    if isinstance(item, Image.Image):
        return occlusion.reduce_image(item)
    with open_image(item) as opened:
        return occlusion.reduce_image(opened)
