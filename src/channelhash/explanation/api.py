"""From what a person names (words, images, ids) to the explanation of a pair: its bits, their
labels, and maps.

No bit of a learned code is a label. What can be counted, over a store's labelled items, is how
often the bit is 1 on items with a label and on items without it: the phi coefficient, which is
Pearson's (and the point-biserial) correlation of two binary variables.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import CodeSet, PackedCodes, binarize, unit_rows, unpack
from channelhash.data.records import labels_from_names
from channelhash.errors import InputError
from channelhash.explanation import occlusion
from channelhash.explanation.occlusion import Encode, ImageMap, MapSettings, Outputs, WordInfluence
from channelhash.search import codes_at, open_filled_store
from channelhash.search.query import coded_item, encode_items, load_encoder
from channelhash.search.store import Item, Store
from channelhash.utils.contact_sheet import bits as bits_word
from channelhash.utils.image_files import open_image

_Correlations = NDArray[np.float64]
_LabelledCodes = Mapping[str, tuple[PackedCodes, NDArray[np.bool_]]]


class Bit(NamedTuple):
    """One bit of a pair of codes.

    Attributes:
        number: its place in the code, counted from 1.
        values: the bit of the first and of the second code.
        strengths: for each code, |output| over the root mean square of all its outputs: a bit of
            strength 0 is about to flip, a bit of strength 1 is as sure as the item's bits are on
            average. None where only bits are known.
        share: the bit's summand of cos(a, b), in [−1, 1]; positive where the bits agree. The shares
            of all bits add up to the cosine, and the relaxed Hamming distance is k/2 (1 − cos), eq.
            (2) of the paper.

    >>> Bit(1, (True, False), (0.5, 1.5), share=-0.2).agrees
    False
    """

    number: int
    values: tuple[bool, bool]
    strengths: tuple[float | None, float | None]
    share: float

    @property
    def agrees(self) -> bool:
        """Return whether both codes have the same bit here."""
        return self.values[0] == self.values[1]

    @classmethod
    def compare(
        cls, first: Outputs, second: Outputs, real: tuple[bool, bool] = (True, True)
    ) -> "list[Bit]":
        """Compare two codes bit by bit.

        >>> bits = Bit.compare(np.array([1.0, -1.0]), np.array([1.0, 1.0]))
        >>> [(bit.number, bit.agrees, round(bit.share, 3)) for bit in bits]
        [(1, True, 0.5), (2, False, -0.5)]
        """
        outputs = np.stack([first, second])
        unit = unit_rows(outputs)
        values = binarize(outputs).tolist()
        shares = (unit[0] * unit[1]).tolist()
        strengths = (np.abs(unit) * np.sqrt(unit.shape[1])).tolist()
        rows = [
            row if is_real else [None] * len(row)
            for row, is_real in zip(strengths, real, strict=True)
        ]
        pairs = zip(zip(*values, strict=True), zip(*rows, strict=True), shares, strict=True)
        return [cls(number, *pair) for number, pair in enumerate(pairs, start=1)]


#: Probability that any correlation is called clear when bits and labels are independent.
_ALPHA = 0.05
#: Smallest |φ| that is called clear, however many rows there are; docs/how-to/explain.md gives the
#: reason.
_EFFECT = 0.2
# Rows unpacked at a time.
_ROWS = 1 << 16
#: Largest number of a store's items that are counted; of a run all are.
_MAX_COUNTED = 20_000
#: Largest store whose ids are listed; of larger ones nothing is counted.
_MAX_ITEMS = 5_000_000


def _bit_label_correlation(
    packed: PackedCodes, n_bits: int, labels: NDArray[np.bool_]
) -> _Correlations:
    """Return the phi coefficient of every bit with every label.

    φ = (n n₁₁ − b l) / sqrt(b (n − b) l (n − l)), where of n items b have the bit, l the label and
    n₁₁ both.

    >>> from channelhash.codes import pack
    >>> packed = pack(np.array([[True, False], [True, True], [False, True], [False, False]]))
    >>> _bit_label_correlation(packed, 2, np.array([[True], [True], [False], [False]])).tolist()
    [[1.0], [0.0]]
    """
    both = np.zeros((n_bits, labels.shape[1]))
    with_bit = np.zeros(n_bits)
    for start in range(0, len(packed), _ROWS):
        # counts of a block are exact in it
        bits = unpack(packed[start : start + _ROWS], n_bits).astype(np.float32)
        both += bits.T @ labels[start : start + _ROWS].astype(np.float32)
        with_bit += bits.sum(axis=0)
    n = float(len(packed))
    with_label = labels.sum(axis=0, dtype=np.float64)
    scale = np.sqrt(np.outer(with_bit * (n - with_bit), with_label * (n - with_label)))
    numerator = n * both - np.outer(with_bit, with_label)
    correlation: _Correlations = np.divide(
        numerator, scale, out=np.full(scale.shape, np.nan), where=scale > 0
    )
    return np.clip(correlation, -1, 1)


def _clear_threshold(n_rows: int, n_tests: int) -> float:
    """Return the smallest |φ| that is clear: significant after Bonferroni's correction, and not a
    small effect.

    Without association n φ² is χ² with one degree of freedom, so √n φ is a standard normal
    variable: of 500 tests at 5 %, each is one at 1e-4 on two sides, so that |z| > 3.8906, and φ = z
    / √n.

    >>> round(_clear_threshold(100, 500), 3), _clear_threshold(1_000_000, 500)
    (0.389, 0.2)
    """
    significant = -NormalDist().inv_cdf(_ALPHA / (2 * max(n_tests, 1))) / np.sqrt(max(n_rows, 1))
    return max(_EFFECT, float(significant))


class BitLabels(NamedTuple):
    """Correlations of a model's bits with labels.

    Attributes:
        label_names: c names.
        correlations: modality -> ``(k, c)``, for the codes of that modality.
        rows: modality -> number of items counted.

    >>> values = np.array([[0.6, -0.5], [0.1, 0.9]])
    >>> BitLabels(("dog", "cat"), {"image": values}, {"image": 10_000}).clear(["image"]).tolist()
    [[0.6, -0.5], [0.0, 0.9]]
    """

    label_names: tuple[str, ...]
    correlations: Mapping[str, _Correlations]
    rows: Mapping[str, int]

    def clear(self, modalities: Sequence[str]) -> _Correlations:
        """Return the clear correlations of the bits of a pair of codes: ``(k, c)``, 0 where
        unclear.

        A correlation is clear if it is so, with the same sign, for the codes of each of
        ``modalities``; the smallest of them is returned.
        """
        stack = []
        for modality in dict.fromkeys(modalities):
            values = np.nan_to_num(self.correlations[modality])
            stack.append(
                np.where(
                    np.abs(values) >= _clear_threshold(self.rows[modality], values.size),
                    values,
                    0.0,
                )
            )
        clear = np.stack(stack)
        same_sign = (clear > 0).all(axis=0) | (clear < 0).all(axis=0)
        return np.where(same_sign, np.sign(clear[0]) * np.abs(clear).min(axis=0), 0.0)

    @classmethod
    def load(cls, store: Store) -> "BitLabels | None":
        """Return the labels that go with the bits of a store's codes, or None if no item has
        labels.

        For a run, the whole retrieval set is counted, for a file of codes all codes. For any other
        store, 20,000 items are counted, evenly spaced in the order of ids; items without the key
        ``labels`` are skipped. The result is None for a store of more than 5 million items.
        """
        file = codes_at(Path(store.address))
        n_bits = store.n_bits
        label_names, rows = _sample_items(store) if file is None else _read_items(file)
        if not label_names or n_bits is None:
            return None
        correlations = {
            name: _bit_label_correlation(codes, n_bits, labels)
            for name, (codes, labels) in rows.items()
        }
        return cls(
            tuple(label_names),
            correlations,
            {name: len(codes) for name, (codes, _) in rows.items()},
        )


def _read_items(file: Path) -> tuple[Sequence[str], _LabelledCodes]:
    """Return the names of labels, and the codes of each modality with the labels of their items."""
    codes = CodeSet.load(file)
    if codes.labels is None:
        return (), {}
    return codes.label_names, {name: (packed, codes.labels) for name, packed in codes.codes.items()}


def _sample_items(store: Store) -> tuple[Sequence[str], _LabelledCodes]:
    """Return the same of some items of a store."""
    if not 0 < len(store) <= _MAX_ITEMS:
        return (), {}
    ids = store.ids()
    places = np.linspace(0, len(ids) - 1, min(_MAX_COUNTED, len(ids))).astype(int)
    sample = [ids[place] for place in np.unique(places)]
    items = store.get(sample, missing_ok=True)  # others may delete meanwhile
    items = [item for item in items if isinstance(item.metadata.get("labels"), list)]
    names: list[Any] = [item.metadata["labels"] for item in items]
    labels, label_names = labels_from_names(names, None, store.address)
    rows = {}
    for modality in sorted(set().union(*(item.codes for item in items))):
        coded = [i for i, item in enumerate(items) if modality in item.codes]
        rows[modality] = np.stack([items[i].codes[modality] for i in coded]), labels[coded]
    return label_names, rows


_UNKNOWN = {"image": "its picture is not known here", "text": "its words are not known here"}


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

        >>> Side.encode("text", "a dog", lambda texts: np.ones((len(texts), 2), np.float32)).outputs.tolist()
        [1.0, 1.0]
        """
        name = name or (
            item
            if isinstance(item, str)
            else item.name
            if isinstance(item, Path)
            else "the picture"
        )
        return cls(modality, name, encode([item])[0], item)

    @classmethod
    def unpack(
        cls, code: PackedCodes, modality: str, name: str, n_bits: int, problem: str
    ) -> "Side":
        """Return an item of which only the bits are known, as ±1.

        >>> Side.unpack(np.array([128], np.uint8), "image", "item17", 2, "its picture is gone").outputs.tolist()
        [1.0, -1.0]
        """
        return cls(
            modality, name, unpack(code[None], n_bits)[0].astype(np.float32) * 2 - 1, None, problem
        )

    @classmethod
    def load(cls, item: Item, modality: str, n_bits: int, encoders: Mapping[str, Encode]) -> "Side":
        """Return a stored item.

        Its words or its image are encoded anew, which gives real-valued outputs and maps, if they
        are known and can be encoded; else only its bits are known.
        """
        raw = item.metadata.get(modality)
        code = item.codes[modality]
        name = str(item.metadata.get("text") or item.id) if modality == "text" else item.id
        if not raw:
            return cls.unpack(code, modality, name, n_bits, _UNKNOWN[modality])
        if modality not in encoders:
            return cls.unpack(code, modality, name, n_bits, "there is no model to encode it with")
        try:
            side = cls.encode(
                modality,
                Path(str(raw)) if modality == "image" else str(raw),
                encoders[modality],
                name,
            )
        except InputError as error:
            return cls.unpack(code, modality, name, n_bits, str(error))
        return side.compare_with_stored(code, n_bits)

    def compare_with_stored(self, code: PackedCodes, n_bits: int) -> "Side":
        """Return this side, with a remark if its code differs from the stored one.

        >>> side = Side("text", "a dog", np.array([0.3, -0.8], np.float32), item="a dog")
        >>> side.compare_with_stored(np.array([0b11000000], np.uint8), n_bits=2).problem
        'encoded anew, it differs in 1 bit from its stored code; explained as it is now'
        """
        n_differing = int((unpack(code[None], n_bits)[0] != binarize(self.outputs[None])[0]).sum())
        if not n_differing:
            return self
        problem = (
            f"encoded anew, it differs in {bits_word(n_differing)} from its stored code; "
            "explained as it is now"
        )
        return self._replace(problem=problem)


# Labels with less evidence are not named: relative to the strongest label, and where 0.00 would be
# printed.
_MIN_RELATIVE_EVIDENCE = 0.1
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
    clear: _Correlations
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
        its evidence.
        """
        labels = self._strongest_first(
            np.where(self.evidence >= _MIN_EVIDENCE, self.evidence, 0).tolist()
        )
        return [
            (name, weight)
            for name, weight in labels
            if weight >= _MIN_RELATIVE_EVIDENCE * labels[0][1]
        ]

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
        likes: ids of items of the store. Images, texts and likes are two together: the pair, in
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
    _check_pair(len(images), texts, len(likes), len(by))
    with open_filled_store(address) as store:
        encoders: dict[str, Encode] = {}
        if images or texts or model or store.model_folder:
            encoder = load_encoder(store, None if model is None else Path(model), trust_code)
            for modality in encoder.modalities:
                encoders[modality] = partial(encode_items, encoder, modality)
        paths = [Path(image) if isinstance(image, str) else image for image in images]
        sides = _encode_sides(encoders, "image", paths) + _encode_sides(encoders, "text", texts)
        for item_id, chosen in zip(likes, by or [""] * len(likes), strict=True):
            modality = chosen or store.choose_modality()
            item = coded_item(store, item_id, modality)
            sides.append(Side.load(item, modality, store.n_bits or 0, encoders))
        return explain_pair((sides[0], sides[1]), BitLabels.load(store), encoders, settings)


def _check_pair(n_images: int, texts: Sequence[str], n_likes: int, n_by: int) -> None:
    """Raise `InputError` unless two items are given, and a modality for each like or none."""
    n_items = n_images + len(texts) + n_likes
    if n_items != 2:
        raise InputError(
            f"explain: give two of --image, --text and --like, not {n_items or 'none'}"
        )
    if n_by not in (0, n_likes):
        raise InputError(
            f"--by: says which code of a --like is meant; give one for each of {n_likes}, or none"
        )
    if not all(text.strip() for text in texts):
        raise InputError("--text: is empty; give some words")


def _encode_sides(
    encoders: Mapping[str, Encode], modality: str, items: Sequence[Any]
) -> list[Side]:
    """Encode the raw items of one modality that are to be explained."""
    if items and modality not in encoders:
        raise InputError(f"--{modality}: this model encodes {' and '.join(encoders)}")
    return [Side.encode(modality, item, encoders[modality]) for item in items]


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
    bits = Bit.compare(
        first.outputs, second.outputs, (first.item is not None, second.item is not None)
    )
    names: tuple[str, ...] = ()
    clear = np.zeros((len(bits), 0))
    if bit_labels is not None and all(side.modality in bit_labels.correlations for side in pair):
        names = bit_labels.label_names
        clear = bit_labels.clear([side.modality for side in pair])
    image, words, remarks = _map_side(first, encoders, second.outputs, settings)
    image_2, words_2, remarks_2 = _map_side(second, encoders, first.outputs, settings)
    return Explanation(
        pair, bits, names, clear, (image, image_2), (words, words_2), (*remarks, *remarks_2)
    )


def _map_side(
    side: Side, encoders: Mapping[str, Encode], partner: Outputs, settings: MapSettings | None
) -> tuple[ImageMap | None, list[WordInfluence] | None, list[str]]:
    """Return the map of a side's image or the influence of its words, and remarks."""
    remarks = [f"{side.name}: {side.problem}"] if side.item is not None and side.problem else []
    if settings is None:
        return None, None, remarks
    if side.item is None:
        return None, None, [f"no map of {side.name}: {side.problem}"]
    if side.modality == "text":
        text = str(side.item)
        if len(text.split()) > settings.max_words:
            remarks.append(
                f"{side.name[:40]} …: only its first {settings.max_words} words were left out in "
                "turn"
            )
        return (
            None,
            occlusion.map_words(text, encoders["text"], partner, settings.max_words),
            remarks,
        )
    with (
        open_image(side.item)
        if isinstance(side.item, str | Path)
        else nullcontext(side.item) as opened
    ):
        image = occlusion.reduce_image(opened)
    grid = settings.grid(image.size)
    n_positions = len(grid.positions())
    if n_positions > settings.max_positions:
        problem = (
            f"{n_positions} patches would have to be looked at, more than {settings.max_positions}"
        )
        return None, None, [*remarks, f"no map of {side.name}: {problem}"]
    return (
        occlusion.map_image(image, grid, encoders["image"], partner, settings.fill),
        None,
        remarks,
    )
