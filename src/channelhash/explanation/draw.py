"""An explanation as a picture: the heat map over the photograph, the words with their influence, the bits."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from channelhash.errors import InputError
from channelhash.explanation.explanation import Explanation
from channelhash.explanation.occlusion import PictureMap, WordInfluence
from channelhash.utils.image_grid import wrap
from channelhash.utils.plotting import COLORS, write_figure

#: What holds a pair together, what parts it.
TOGETHER, APART = COLORS[1], COLORS[0]
# Opacity of the strongest cell: the picture below stays visible.
_OPAQUE = 0.75
# Below this many bits a map is noise; its colours are not scaled up to full.
_LEAST = 0.25
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
    parts = zip(explanation.sides, explanation.pictures, explanation.words, strict=True)
    for place, (side, picture, words) in enumerate(parts):
        axes[place].set_title("\n".join(wrap(side.name, 46)[:2]), fontsize=10)
        if picture:
            _draw_map(axes[place], picture)
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


def _draw_map(axes: Axes, found: PictureMap) -> None:
    """The photograph in grey, so that the colours are the map's alone."""
    axes.imshow(np.asarray(found.picture.convert("L")), cmap="gray", vmin=0, vmax=255)
    heat = overlay(found)
    extent = (0, found.picture.width, found.picture.height, 0)
    axes.imshow(heat, extent=extent, interpolation="nearest")
    axes.set_xlabel(f"hidden: up to {found.influence.max():+.1f} / {found.influence.min():+.1f} bits", fontsize=9)
    axes.set_xticks([])
    axes.set_yticks([])


def overlay(found: PictureMap) -> np.ndarray:
    """``(rows, columns, 4)`` colour and opacity in [0, 1] of a map's cells; opacity is proportional to |influence|."""
    from matplotlib.colors import to_rgb

    heat = np.empty((*found.influence.shape, 4))
    heat[..., :3] = np.where((found.influence > 0)[..., None], to_rgb(TOGETHER), to_rgb(APART))
    heat[..., 3] = _OPAQUE * np.abs(found.influence) / max(float(np.abs(found.influence).max()), _LEAST)
    return heat


def _draw_words(axes: Axes, words: list[WordInfluence]) -> None:
    shown = words[:_WORDS]
    values = [word.influence for word in shown]
    axes.barh(range(len(shown)), values, color=[TOGETHER if value > 0 else APART for value in values])
    flips = [f"{word.word[:24]}  ({len(word.flips)})" if word.flips else word.word[:24] for word in shown]
    axes.set_yticks(range(len(shown)), flips)
    axes.invert_yaxis()
    axes.axvline(0, color="0.35", linewidth=1)
    axes.set_xlabel("bits farther without it  (in brackets: bits that flip)", fontsize=9)
    axes.grid(axis="x", alpha=0.3)


def _draw_bits(axes: Axes, explanation: Explanation) -> None:
    """The strongest bits with what they mean: agreeing ones to the right."""
    strongest = sorted(explanation.bits, key=lambda bit: -abs(bit.share))[:16]
    shares = [bit.share for bit in strongest]
    axes.barh(range(len(strongest)), shares, color=[TOGETHER if bit.agrees else APART for bit in strongest])
    names = []
    for bit in strongest:
        sign = 1 if bit.values[0] else -1
        said = [f"{'' if sign * value > 0 else 'not '}{name}" for name, value in explanation.meaning(bit)[:2]]
        names.append(f"{', '.join(said) or 'no clear meaning'}  {bit.number}")
    axes.set_yticks(range(len(strongest)), names, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, color="0.35", linewidth=1)
    axes.set_xlabel("share of the cosine", fontsize=9)
    axes.set_title("the bits that count most, and what they mean", fontsize=10)
    axes.grid(axis="x", alpha=0.3)
