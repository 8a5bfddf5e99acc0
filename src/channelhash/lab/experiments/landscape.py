"""The landscape of a channel loss: what one pair of samples adds to it, over similarity and distance."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from channelhash._version import __version__
from channelhash.losses import DSCHLoss, SCHLoss
from channelhash.losses.functional import set_weights
from channelhash.utils.files import write_text
from channelhash.utils.plotting import COLOR_MAP, COLORS, DASHES, MARKS, legend_below, write_figure
from channelhash.utils.seeds import generator

ChannelLoss = DSCHLoss | SCHLoss
Values = NDArray[np.float64]

#: How the losses are written in titles.
NAMES: Mapping[type[ChannelLoss], str] = {DSCHLoss: "DSCH", SCHLoss: "SCH"}
#: Smallest similarity that is drawn as "not zero": SCH jumps at 0, so the surface begins right beside it.
JUST_ABOVE_ZERO = 1e-6


@dataclass(frozen=True)
class Landscape:
    """A loss on a grid.

    Attributes:
        similarity: S, ``(s,)``, rising; the first is 0, the second `JUST_ABOVE_ZERO`.
        distance: d in bits, ``(d,)``, from 0 to k.
        loss: value of a pair, ``(d, s)``.
        lower: lower end of the channel, ``(s,)``, in bits.
        upper: upper end, likewise.
    """

    similarity: Values
    distance: Values
    loss: Values
    lower: Values
    upper: Values


def channel(loss: ChannelLoss, similarity: ArrayLike) -> tuple[Values, Values]:
    """Return the lower and upper end of a loss's channel in bits, each shaped like ``similarity``, in float64.

    >>> [float(end) for end in channel(SCHLoss(32), 1.0)]
    [0.0, 0.0]
    """
    lower, upper = loss.bounds(torch.as_tensor(np.asarray(similarity, dtype=np.float64)))
    return lower.numpy(), upper.numpy()


def pair_loss(loss: ChannelLoss, similarity: ArrayLike, distance: ArrayLike) -> Values:
    """Compute what an ordered pair adds to L_D, eq. (dsch:it:l) and (sch:loss).

    It is (ψ · max(0, lower − d, d − upper))^γ_ℓ.

    Args:
        loss: DSCH or SCH with its settings; SCH has γ_ℓ = 1.
        similarity: S in [0, 1], any shape.
        distance: d in [0, k], of a shape that broadcasts with it.

    >>> pair_loss(SCHLoss(32), 0.0, [0.0, 16.0]).tolist()
    [16.0, 0.0]
    """
    similarity, distance = np.broadcast_arrays(
        np.asarray(similarity, dtype=np.float64), np.asarray(distance, dtype=np.float64)
    )
    lower, upper = channel(loss, similarity)
    weights = set_weights(torch.from_numpy(similarity.copy()), loss.alpha, loss.beta).numpy()
    violation = np.maximum(0, np.maximum(lower - distance, distance - upper))
    result: Values = (weights * violation) ** loss.gamma_l
    return result


def landscape(loss: ChannelLoss, points: int = 201) -> Landscape:
    """Compute the loss on a grid of ``points`` distances by ``points`` similarities above 0, and S = 0 itself.

    >>> landscape(SCHLoss(32), points=5).loss.shape
    (5, 6)
    """
    similarity = np.concatenate([[0.0], np.linspace(JUST_ABOVE_ZERO, 1, points)])
    distance = np.linspace(0, loss.n_bits, points)
    return Landscape(
        similarity, distance, pair_loss(loss, similarity[None, :], distance[:, None]), *channel(loss, similarity)
    )


def title(loss: ChannelLoss) -> str:
    """Name a loss with the settings that shape its landscape.

    >>> title(SCHLoss(32))
    'SCH with k = 32, τ = 3'
    """
    settings: dict[str, Any] = {"k": loss.n_bits, "τ": loss.tau}
    if isinstance(loss, DSCHLoss):
        settings |= {"λ$_{neg}$": loss.lambda_neg, "γ$_w$": loss.gamma_w, "γ$_ℓ$": loss.gamma_l}
    return f"{NAMES[type(loss)]} with " + ", ".join(f"{name} = {value:g}" for name, value in settings.items())


#: Code length that the page starts with.
START_BITS = 32
# Colours between which the page interpolates.
_COLORS = 17
# Settings and pairs drawn for the page's own check, beside those at the edges.
_DRAWN = 120


def write_page(path: Path) -> None:
    """Write the page: heat map, surface, cut and channels of both losses, with sliders for their settings.

    It loads nothing from anywhere. The page holds `check_values` and compares them with its own formulas when it is
    opened.
    """
    template = resources.files("channelhash.lab.experiments").joinpath("landscape.html").read_text(encoding="utf-8")
    write_text(path, template.replace("__FACTS__", json.dumps(page_facts())))


def page_facts() -> dict[str, Any]:
    """Return what the page takes from Python: defaults of the losses, colours 0 … 255, values to check itself with.

    >>> page_facts()["defaults"]["sch"]
    {'k': 32, 'tau': 3.0}
    """
    dsch, sch = DSCHLoss(START_BITS), SCHLoss(START_BITS)
    names = ("tau", "lambda_neg", "gamma_w", "gamma_l")
    colors = colormaps[COLOR_MAP](np.linspace(0, 1, _COLORS), bytes=True)[:, :3]
    return {
        "version": __version__,
        "defaults": {
            "dsch": {"k": START_BITS} | {name: getattr(dsch, name) for name in names},
            "sch": {"k": START_BITS, "tau": sch.tau},
        },
        "just_above_zero": JUST_ABOVE_ZERO,
        "colors": colors.tolist(),
        "checks": check_values(),
    }


def check_values() -> list[list[Any]]:
    """Draw rows of (loss, k, λ_neg, τ, γ_w, γ_ℓ, S, d, value of `pair_loss`), at the edges and at random.

    >>> len(check_values())
    272
    """
    random = generator(0, "landscape page")
    rows: list[list[Any]] = []
    edges = [(S, d) for S in (0.0, JUST_ABOVE_ZERO, 0.5, 1.0) for d in (0.0, 0.25, 0.5, 1.0)]
    drawn = [(float(S), float(d)) for S, d in random.random((_DRAWN, 2))]
    for S, share in edges + drawn:
        k = int(random.integers(1, 17)) * 8
        lambda_neg, tau = float(random.uniform(0, k)), float(random.uniform(0, 16))
        gamma_w, gamma_l = float(random.uniform(0.5, 16)), float(random.uniform(0.5, 3))
        losses: dict[str, ChannelLoss] = {
            "dsch": DSCHLoss(k, lambda_neg, tau, gamma_w, gamma_l),
            "sch": SCHLoss(k, tau),
        }
        for name, loss in losses.items():
            value = float(pair_loss(loss, S, share * k))
            rows.append([name, k, lambda_neg, tau, gamma_w, gamma_l, S, share * k, value])
    return rows


# Seen as in the paper: distance from left to right, similarity into the depth.
_VIEW = {"elev": 28, "azim": -62}
_SURFACE_POINTS = 81
# Width of the strip of S = 0 in a heat map, in units of similarity, and of the gap beside it.
_STRIP, _GAP = 0.035, 0.015


#: SCH and DSCH as in the paper's figure, and DSCH with its defaults.
PAPER_FIGURE: tuple[ChannelLoss, ...] = (SCHLoss(32), DSCHLoss(32, gamma_w=2.0), DSCHLoss(32))


def write_landscapes(folder: Path, losses: Sequence[ChannelLoss] = PAPER_FIGURE) -> list[Path]:
    """Draw ``surfaces``, ``heat-maps`` and ``channels`` of a few losses of one code length as PNG and SVG.

    Args:
        folder: where the files go, made if it is missing.
        losses: at least one.

    Returns:
        The files.
    """
    plots = {
        "landscape-surfaces": surfaces_plot(losses),
        "landscape-heat-maps": heat_maps_plot(losses),
        "landscape-channels": channels_plot(losses),
    }
    return [path for name, figure in plots.items() for path in write_figure(figure, folder, name)]


def surfaces_plot(losses: Sequence[ChannelLoss]) -> Figure:
    """Draw the loss of a pair over (distance, similarity), one panel a loss, all with one scale.

    The surface is drawn for S > 0; the loss at S = 0 is a line of its own, which lies on the surface's edge where the
    loss is continuous.
    """
    figure = Figure(figsize=(5.6 * len(losses), 5.2))
    highest = max(float(landscape(loss, _SURFACE_POINTS).loss.max()) for loss in losses)
    for number, loss in enumerate(losses, start=1):
        axes = figure.add_subplot(1, len(losses), number, projection="3d", computed_zorder=False)
        _surface(axes, landscape(loss, _SURFACE_POINTS), highest)
        axes.set_title(title(loss), fontsize=10)
    figure.subplots_adjust(left=0.02, right=0.95, bottom=0.1, top=0.95, wspace=0.08)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center")
    return figure


def heat_maps_plot(losses: Sequence[ChannelLoss]) -> Figure:
    """Draw the loss of a pair as lightness over similarity and distance, with the channel; S = 0 is a strip."""
    figure = Figure(figsize=(5 * len(losses) + 0.8, 4.6), layout="constrained")
    panels = figure.subplots(1, len(losses), sharey=True, squeeze=False)[0]
    grids = [landscape(loss) for loss in losses]
    highest = max(float(grid.loss.max()) for grid in grids)
    for axes, loss, grid in zip(panels, losses, grids, strict=True):
        strip = (-_GAP - _STRIP, -_GAP, 0, loss.n_bits)
        look = {"origin": "lower", "aspect": "auto", "vmin": 0, "vmax": highest, "cmap": COLOR_MAP}
        axes.imshow(grid.loss[:, :1], extent=strip, **look)
        image = axes.imshow(grid.loss[:, 1:], extent=(0, 1, 0, loss.n_bits), **look)
        _bounds(axes, grid, ("white", "white"))
        axes.set(xlim=(strip[0], 1), ylim=(0, loss.n_bits), xlabel="label similarity S")
        axes.set_xticks([-_GAP - _STRIP / 2, 0.2, 0.4, 0.6, 0.8, 1], ["S = 0", "0.2", "0.4", "0.6", "0.8", "1"])
        axes.set_title(title(loss), fontsize=10)
    panels[0].set_ylabel("distance d, bits")
    figure.colorbar(image, ax=panels, label="loss of a pair", pad=0.02)
    legend = figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    legend.get_frame().set_facecolor("0.35")
    for text in legend.get_texts():
        text.set_color("white")
    return figure


def channels_plot(losses: Sequence[ChannelLoss]) -> Figure:
    """Draw the channels over similarity: distances without loss, one panel a loss.

    >>> len(channels_plot([SCHLoss(32), DSCHLoss(32)]).axes)
    2
    """
    figure = Figure(figsize=(4.6 * len(losses) + 0.4, 4.4), layout="constrained")
    panels = figure.subplots(1, len(losses), sharey=True, squeeze=False)[0]
    for axes, loss in zip(panels, losses, strict=True):
        grid = landscape(loss)
        axes.fill_between(
            grid.similarity[1:], grid.lower[1:].clip(0), grid.upper[1:], color=COLORS[0], alpha=0.2, label="no loss"
        )
        axes.plot([0, 0], [max(0, grid.lower[0]), grid.upper[0]], color=COLORS[0], linewidth=5, alpha=0.5)
        _bounds(axes, grid, COLORS)
        axes.axhline(loss.n_bits / 2, color="0.35", linewidth=1, linestyle=(0, (1, 3)), label="k/2, random codes")
        axes.set(xlim=(-0.02, 1), ylim=(0, 1.02 * loss.n_bits), xlabel="label similarity S")
        axes.set_title(title(loss), fontsize=10)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("distance d, bits")
    legend_below(figure, panels[0])
    return figure


def _bounds(axes: Axes, grid: Landscape, colors: Sequence[str]) -> None:
    """Draw both ends of the channel, not below distance 0, for S > 0 and as marks at S = 0."""
    for number, (values, name) in enumerate(((grid.lower, "lower end"), (grid.upper, "upper end"))):
        visible = values.clip(0)
        style: dict[str, Any] = {"color": colors[number], "clip_on": False, "zorder": 3}
        label = f"{name} of the channel"
        axes.plot(grid.similarity[1:], visible[1:], linestyle=DASHES[number], linewidth=1.8, label=label, **style)
        at_zero = -_GAP - _STRIP / 2 if colors[0] == "white" else 0
        axes.plot(at_zero, visible[0], marker=MARKS[number], markersize=5, **style)


def _surface(axes: Any, grid: Landscape, highest: float) -> None:
    distance, similarity = np.meshgrid(grid.distance, grid.similarity[1:], indexing="ij")
    axes.plot_surface(
        distance, similarity, grid.loss[:, 1:], cmap=COLOR_MAP, vmin=0, vmax=highest, rcount=41, ccount=41,
        linewidth=0.25, edgecolor="0.25", antialiased=True,
    )  # fmt: skip
    axes.plot(
        grid.distance, np.zeros_like(grid.distance), grid.loss[:, 0], color=COLORS[1], linewidth=2.5, zorder=10,
        label="pairs that share no label (S = 0)",
    )  # fmt: skip
    axes.set(xlabel="distance d, bits", ylabel="label similarity S", zlabel="loss of a pair", zlim=(0, highest))
    axes.view_init(**_VIEW)
