"""The explanation of a pair: its bits, the labels that go with them, and the influence of each item's parts."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from channelhash.errors import InputError
from channelhash.explanation.agreeing_bits import Bit
from channelhash.explanation.bit_labels import Correlations
from channelhash.explanation.occlusion import Fill, ImageMap, WordInfluence
from channelhash.explanation.sides import Side

# Labels with less evidence are not named: relative to the strongest label, and where 0.00 would be printed.
_MIN_RELATIVE_EVIDENCE = 0.1
_MIN_EVIDENCE = 0.005


@dataclass(frozen=True)
class MapSettings:
    """How parts of an item are hidden.

    Attributes:
        cells: cells along an image's short side.
        patch: side of the hidden patch in cells; it moves by one cell.
        fill: what the patch shows: grey, or the image blurred.
        max_words: number of words of a text that are left out in turn, at most.
        max_positions: number of positions of the patch, at most; an image that needs more gets no map.

    Raises:
        InputError: a number is out of range.

    >>> MapSettings(cells=4).patch
    2
    """

    cells: int = 8
    patch: int = 2
    fill: Fill = "grey"
    max_words: int = 100
    max_positions: int = 2000

    def __post_init__(self) -> None:
        if not 1 <= self.cells <= 64:
            raise InputError(f"cells: {self.cells} along the short side; give 1 to 64")
        if not 1 <= self.patch <= self.cells:
            raise InputError(
                f"patch: a side of {self.patch} cells; give 1 to {self.cells}, no more than the short side has"
            )


#: The default settings of maps.
DEFAULT_MAPS = MapSettings()


@dataclass(frozen=True)
class Explanation:
    """Why two codes are as near as they are.

    Attributes:
        sides: the pair.
        bits: all k bits.
        label_names: c names, none where no labels are known.
        clear: ``(k, c)`` clear correlations of the pair's bits with labels, 0 where unclear.
        evidence: ``(c,)`` evidence of the agreeing bits for (positive) and against each label.
        image_maps: for each side, the map of its image.
        words: for each side, the influence of its words.
        remarks: what could not be done, a line each.
    """

    sides: tuple[Side, Side]
    bits: list[Bit]
    label_names: tuple[str, ...]
    clear: Correlations
    evidence: Correlations
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

    def bit_labels(self, bit: Bit) -> list[tuple[str, float]]:
        """Return the labels that go with a bit's being 1 (positive correlation) or 0 (negative), strongest first."""
        return self._strongest_first(self.clear[bit.number - 1].tolist())

    def labels(self) -> list[tuple[str, float]]:
        """Return the labels that the agreeing bits speak for, strongest first, down to a tenth of its evidence."""
        labels = [
            (name, weight) for name, weight in self._strongest_first(self.evidence.tolist()) if weight >= _MIN_EVIDENCE
        ]
        return [(name, weight) for name, weight in labels if weight >= _MIN_RELATIVE_EVIDENCE * labels[0][1]]

    def summary(self) -> str:
        """Return the explanation in a sentence or two."""
        agreeing = len(self.bits) - self.distance
        differing = f"{self.distance} differs" if self.distance == 1 else f"{self.distance} differ"
        counts = f"{agreeing} of {len(self.bits)} bits agree, {differing}."
        if not self.label_names:
            return f"{counts} No labels are known that could give the bits a meaning."
        if not (labels := self.labels()):
            return f"{counts} The agreeing bits speak for no label clearly."
        evidence = ", ".join(f"{name} ({weight:.2f})" for name, weight in labels)
        return f"{counts} Those that agree speak for: {evidence}."

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON-able values."""
        return {
            "n_bits": len(self.bits),
            "distance": self.distance,
            "relaxed_distance": self.relaxed_distance,
            "summary": self.summary(),
            "labels": [{"label": name, "weight": weight} for name, weight in self.labels()],
            "bits": [self._bit_dict(bit) for bit in self.bits],
            "sides": [
                {
                    "modality": side.modality,
                    "name": side.name,
                    "map": image_map and _map_dict(image_map),
                    "words": None if words is None else [{**asdict(word), "flips": list(word.flips)} for word in words],
                }
                for side, image_map, words in zip(self.sides, self.image_maps, self.words, strict=True)
            ],
            "remarks": list(self.remarks),
        }

    def _bit_dict(self, bit: Bit) -> dict[str, Any]:
        return {
            "bit": bit.number,
            "values": [int(value) for value in bit.values],
            "agrees": bit.agrees,
            "strengths": list(bit.strengths),
            "share": bit.share,
            "meaning": [{"label": name, "correlation": value} for name, value in self.bit_labels(bit)],
        }

    def _strongest_first(self, values: Iterable[float]) -> list[tuple[str, float]]:
        pairs = [(name, value) for name, value in zip(self.label_names, values, strict=True) if value]
        return sorted(pairs, key=lambda pair: (-abs(pair[1]), pair[0]))


def _map_dict(image_map: ImageMap) -> dict[str, Any]:
    rows, columns = image_map.influence.shape
    return {
        "rows": rows,
        "columns": columns,
        "patch": image_map.patch,
        "influence": image_map.influence.tolist(),
        "flips": image_map.flips.tolist(),
        "strongest": list(image_map.strongest),
        "flipping": image_map.flipping.tolist(),
    }
