"""An explanation as one image: heat maps over the photographs, words with their influence, bits."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from channelhash.errors import InputError
from channelhash.explanation.api import Explanation
from channelhash.explanation.occlusion import ImageMap, Values, WordInfluence
from channelhash.utils.image_grid import wrap
from channelhash.utils.plotting import COLORS, write_figure

#: Colours of what holds a pair together and of what parts it.
TOGETHER, APART = COLORS[1], COLORS[0]
# Opacity of the strongest cell; the image below stays visible.
_OPAQUE = 0.75
# Fewer bits are noise: colours are not scaled up further.
_MIN_SCALE = 0.25
_WORDS = 20


def draw_explanation(explanation: Explanation, path: Path) -> None:
    """Write an explanation as a PNG: one column for each side, and one for the bits.

    Raises:
        InputError: the file's name does not end in .png.
    """
    if path.suffix != ".png":
        raise InputError(f"--sheet {path}: is written as a PNG; let its name end in .png")
    figure = Figure(figsize=(13, 4.9), layout="constrained")
    axes = figure.subplots(1, 3, width_ratios=(1, 1, 1.05))
    parts = zip(explanation.sides, explanation.image_maps, explanation.words, strict=True)
    for place, (side, image_map, words) in enumerate(parts):
        axes[place].set_title("\n".join(wrap(side.name, 46)[:2]), fontsize=10)
        if image_map:
            _draw_map(axes[place], image_map)
        elif words:
            _draw_words(axes[place], words)
        else:
            axes[place].set_axis_off()
            axes[place].text(0.5, 0.5, "only its bits\nare looked at", ha="center", va="center", color="0.35")
    _draw_bits(axes[2], explanation)
    figure.suptitle("\n".join(wrap(explanation.summary(), 140)), fontsize=11)
    handles = [Patch(color=TOGETHER, label="holds the pair together"), Patch(color=APART, label="parts it")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9, frameon=False)
    write_figure(figure, path.parent, path.stem, ("png",))


def _draw_map(axes: Axes, image_map: ImageMap) -> None:
    """Draw the photograph in grey, so that only the map has colours."""
    image, influence = image_map.image, image_map.influence
    axes.imshow(np.asarray(image.convert("L")), cmap="gray", vmin=0, vmax=255)
    axes.imshow(_heat(influence), extent=(0, image.width, image.height, 0), interpolation="nearest")
    axes.set_xlabel(f"hidden: up to {influence.max():+.1f} / {influence.min():+.1f} bits", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


def _heat(influence: Values) -> Values:
    """Return ``(rows, columns, 4)`` colour and opacity in [0, 1]; opacity is proportional to |influence|."""
    heat = np.empty((*influence.shape, 4))
    heat[..., :3] = np.where((influence > 0)[..., None], to_rgb(TOGETHER), to_rgb(APART))
    heat[..., 3] = _OPAQUE * np.abs(influence) / max(float(np.abs(influence).max()), _MIN_SCALE)
    return heat


def _draw_words(axes: Axes, words: list[WordInfluence]) -> None:
    first = words[:_WORDS]
    values = [word.influence for word in first]
    axes.barh(range(len(first)), values, color=[TOGETHER if value > 0 else APART for value in values])
    flips = [f"{word.word[:24]}  ({len(word.flips)})" if word.flips else word.word[:24] for word in first]
    axes.set_yticks(range(len(first)), flips)
    axes.invert_yaxis()
    axes.axvline(0, color="0.35", linewidth=1)
    axes.set_xlabel("bits farther without it  (in brackets: bits that flip)", fontsize=9)
    axes.grid(axis="x", alpha=0.3)


def _draw_bits(axes: Axes, explanation: Explanation) -> None:
    """Draw the strongest bits with their labels, agreeing bits to the right."""
    strongest = sorted(explanation.bits, key=lambda bit: -abs(bit.share))[:16]
    shares = [bit.share for bit in strongest]
    axes.barh(range(len(strongest)), shares, color=[TOGETHER if bit.agrees else APART for bit in strongest])
    names = []
    for bit in strongest:
        sign = 1 if bit.values[0] else -1
        labels = [f"{'' if sign * value > 0 else 'not '}{name}" for name, value in explanation.bit_labels(bit)[:2]]
        names.append(f"{', '.join(labels) or 'no clear meaning'}  {bit.number}")
    axes.set_yticks(range(len(strongest)), names, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, color="0.35", linewidth=1)
    axes.set_xlabel("share of the cosine", fontsize=9)
    axes.set_title("the bits that count most, and what they mean", fontsize=10)
    axes.grid(axis="x", alpha=0.3)
