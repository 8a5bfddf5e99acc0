"""The explanation of a pair: its bits, what they mean, and what the parts of each item do for the distance."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from channelhash.errors import InputError
from channelhash.explanation.agreeing_bits import Bit, Outputs, compare_bits
from channelhash.explanation.bit_labels import Correlations, Meanings, spoken_for
from channelhash.explanation.occlusion import (
    Encode,
    Fill,
    PictureMap,
    WordInfluence,
    map_picture,
    map_words,
    orientation_of,
    picture_grid,
    reduced,
    upright,
)

#: Evidence below this much of the strongest label's is not put into words.
_SAID = 0.1
#: Nor is evidence below this: it would be printed as 0.00.
_HEARD = 0.005


@dataclass(frozen=True)
class MapSettings:
    """How parts are hidden.

    Attributes:
        cells: cells along a picture's short side.
        patch: side of the hidden patch in cells; it moves by one cell.
        fill: what the patch shows: grey, or the picture blurred.
        words: at most so many words of a text are left out in turn.
        positions: at most so many patches; a picture that is too long for that has none.

    Raises:
        InputError: a number is out of range.
    """

    cells: int = 8
    patch: int = 2
    fill: Fill = "grey"
    words: int = 100
    positions: int = 2000

    def __post_init__(self) -> None:
        if not 1 <= self.cells <= 64:
            raise InputError(f"cells: {self.cells} along the short side; give 1 to 64")
        if not 1 <= self.patch <= self.cells:
            raise InputError(
                f"patch: a side of {self.patch} cells; give 1 to {self.cells}, no more than the short side has"
            )


#: How parts are hidden unless told otherwise.
DEFAULT_MAPS = MapSettings()


@dataclass(frozen=True)
class Side:
    """One item of a pair.

    Attributes:
        modality: ``"image"`` or ``"text"``, whose code it is.
        name: what it is called: its words, its file or its id.
        outputs: ``(k,)`` of the model; ±1 where only bits are known.
        item: the text, or the picture (a file or opened), to look at the parts of; None where there is none.
        problem: why there is none, or what else is to be said of it.
    """

    modality: str
    name: str
    outputs: Outputs
    item: str | Path | Image.Image | None = None
    problem: str = ""

    @property
    def real(self) -> bool:
        """Whether the outputs are a model's and not only bits."""
        return self.item is not None


@dataclass(frozen=True)
class Explanation:
    """Why two codes are as near as they are.

    Attributes:
        sides: the pair.
        bits: all k bits.
        distance: number of bits that differ.
        relaxed_distance: k/2 (1 − cos) of the outputs.
        label_names: c names, none where no labels are known.
        clear: ``(k, c)`` clear correlations of the pair's bits with labels, 0 where there is none.
        spoken: ``(c,)`` what the agreeing bits together say for (positive) and against each label.
        pictures: of each side, the map of its picture.
        words: of each side, the influence of its words.
        remarks: what could not be done, a line each.
    """

    sides: tuple[Side, Side]
    bits: list[Bit]
    distance: int
    relaxed_distance: float
    label_names: tuple[str, ...]
    clear: Correlations
    spoken: Correlations
    pictures: tuple[PictureMap | None, PictureMap | None]
    words: tuple[list[WordInfluence] | None, list[WordInfluence] | None]
    remarks: tuple[str, ...]

    def meaning(self, bit: Bit) -> list[tuple[str, float]]:
        """Labels that go with a bit's being 1 (positive correlation) or 0 (negative), the strongest first."""
        return _strongest_first(self.label_names, self.clear[bit.number - 1])

    def labels(self) -> list[tuple[str, float]]:
        """Labels that the agreeing bits speak for, the strongest first, those with a tenth of its weight and more."""
        found = [(name, weight) for name, weight in _strongest_first(self.label_names, self.spoken) if weight >= _HEARD]
        return [(name, weight) for name, weight in found if weight >= _SAID * found[0][1]]

    def summary(self) -> str:
        """The explanation in a sentence or two."""
        agreeing = len(self.bits) - self.distance
        differing = f"{self.distance} differs" if self.distance == 1 else f"{self.distance} differ"
        counted = f"{agreeing} of {len(self.bits)} bits agree, {differing}."
        if not self.label_names:
            return f"{counted} No labels are known that could give the bits a meaning."
        if not (labels := self.labels()):
            return f"{counted} The agreeing bits speak for no label clearly."
        spoken = ", ".join(f"{name} ({weight:.2f})" for name, weight in labels)
        return f"{counted} Those that agree speak for: {spoken}."

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON-able values."""
        return {
            "n_bits": len(self.bits),
            "distance": self.distance,
            "relaxed_distance": self.relaxed_distance,
            "summary": self.summary(),
            "labels": [{"label": name, "weight": weight} for name, weight in self.labels()],
            "bits": [
                {
                    "bit": bit.number,
                    "values": [int(value) for value in bit.values],
                    "agrees": bit.agrees,
                    "strengths": list(bit.strengths),
                    "share": bit.share,
                    "meaning": [{"label": name, "correlation": value} for name, value in self.meaning(bit)],
                }
                for bit in self.bits
            ],
            "sides": [
                {
                    "modality": side.modality,
                    "name": side.name,
                    "map": _map_dict(picture) if picture else None,
                    "words": None if words is None else [_word_dict(word) for word in words],
                }
                for side, picture, words in zip(self.sides, self.pictures, self.words, strict=True)
            ],
            "remarks": list(self.remarks),
        }


def explain_pair(
    first: Side,
    second: Side,
    meanings: Meanings | None,
    encoders: Mapping[str, Encode],
    settings: MapSettings | None = DEFAULT_MAPS,
) -> Explanation:
    """Explain a pair of items.

    Args:
        first: one item.
        second: the other.
        meanings: what bits mean; None gives bits without meanings.
        encoders: modality -> what encodes new items of it, for the maps.
        settings: how parts are hidden; None makes no maps.

    One call of an encoder for each position of the patch on a picture (some 60 as set by default), and for each word.
    """
    pair = (first, second)
    bits = compare_bits(first.outputs, second.outputs, (first.real, second.real))
    k, remarks = len(bits), []
    clear = np.zeros((k, 0))
    if meanings is not None and all(side.modality in meanings.correlations for side in pair):
        clear = meanings.clear([side.modality for side in pair])
    pictures: list[PictureMap | None] = [None, None]
    words: list[list[WordInfluence] | None] = [None, None]
    for place, (side, other) in enumerate(((first, second), (second, first))):
        if side.item is not None and side.problem:
            remarks.append(f"{side.name}: {side.problem}")
        if settings is None:
            continue
        if side.item is None:
            remarks.append(f"no map of {side.name}: {side.problem}")
        elif side.modality == "text":
            text = str(side.item)
            words[place] = map_words(text, encoders["text"], other.outputs, settings.words)
            if len(text.split()) > settings.words:
                remarks.append(f"{side.name[:40]} …: only its first {settings.words} words were left out in turn")
        else:
            pictures[place], problem = _picture_map(side.item, encoders["image"], other.outputs, settings)
            remarks += [f"no map of {side.name}: {problem}"] if problem else []
    return Explanation(
        pair,
        bits,
        sum(not bit.agrees for bit in bits),
        0.5 * k * (1 - sum(bit.share for bit in bits)),
        meanings.label_names if meanings is not None and clear.shape[1] else (),
        clear,
        spoken_for(bits, clear),
        (pictures[0], pictures[1]),
        (words[0], words[1]),
        tuple(remarks),
    )


def _picture_map(
    item: str | Path | Image.Image, encode: Encode, other: Outputs, settings: MapSettings
) -> tuple[PictureMap | None, str]:
    """The map of a picture, and why there is none."""
    if isinstance(item, Image.Image):
        picture, orientation = reduced(item), orientation_of(item)
    else:
        with Image.open(item) as opened:
            orientation, picture = orientation_of(opened), reduced(opened)
    grid = picture_grid(picture.size, settings.cells, settings.patch)
    if len(grid.positions()) > settings.positions:
        return None, f"{len(grid.positions())} patches would have to be looked at, more than {settings.positions}"
    return upright(map_picture(picture, grid, encode, other, settings.fill), orientation), ""


def _strongest_first(names: tuple[str, ...], values: Correlations) -> list[tuple[str, float]]:
    pairs = [(name, value) for name, value in zip(names, values.tolist(), strict=True) if value]
    return sorted(pairs, key=lambda pair: (-abs(pair[1]), pair[0]))


def _map_dict(found: PictureMap) -> dict[str, Any]:
    return {
        "rows": found.influence.shape[0],
        "columns": found.influence.shape[1],
        "patch": found.patch,
        "influence": found.influence.tolist(),
        "flips": found.flips.tolist(),
        "strongest": list(found.strongest),
        "flipping": found.flipping.tolist(),
    }


def _word_dict(word: WordInfluence) -> dict[str, Any]:
    return {"word": word.word, "influence": word.influence, "flips": list(word.flips)}
