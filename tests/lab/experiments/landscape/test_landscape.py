"""The landscape shows what the losses themselves compute, and the paper's discontinuity."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from channelhash.lab.experiments.landscape import (
    channel,
    channels_plot,
    heat_maps_plot,
    landscape,
    pair_loss,
    surfaces_plot,
    title,
    write_landscapes,
)
from channelhash.losses import DSCHLoss, SCHLoss

shares = st.floats(0, 1)
LOSSES = [DSCHLoss(32), DSCHLoss(16, lambda_neg=5.0, tau=2.0, gamma_w=3.0, gamma_l=2.0), SCHLoss(32)]


def loss_of_two_samples(loss, similarity: float, share: float) -> float:
    """The loss itself on two samples with such labels and codes; one modality."""
    angle = math.acos(1 - 2 * share)
    codes = torch.zeros(2, loss.n_bits, dtype=torch.float64)
    codes[0, 0], codes[1, 0], codes[1, 1] = 1, math.cos(angle), math.sin(angle)
    labels = torch.tensor([[1, 0], [similarity, math.sqrt(1 - similarity**2)]], dtype=torch.float64)
    return loss({"image": codes}, labels).item()


@pytest.mark.parametrize(
    "loss",
    [
        DSCHLoss(32, kappa_q=0.0),
        DSCHLoss(24, lambda_neg=9.0, tau=2.5, gamma_w=3.0, gamma_l=2.0, alpha=3.0, beta=0.5, kappa_q=0.0),
        SCHLoss(32),
        SCHLoss(8, tau=1.0, alpha=2.0, beta=0.25),
        DSCHLoss(16, gamma_l=2.0, beta=0.5, kappa_q=0.0),
    ],
)
@settings(max_examples=40)
@given(similarity=st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-3, 1 - 1e-3)), share=shares)
def test_a_pair_costs_what_the_loss_gives_two_samples(loss, similarity, share):
    # Of the four ordered pairs two are of a sample with itself, which costs nothing; the mean is over n² = 4.
    expected = 2 * loss_of_two_samples(loss, similarity, share)
    assert float(pair_loss(loss, similarity, share * loss.n_bits)) == pytest.approx(expected, abs=1e-5)


@given(share=shares, gamma_w=st.floats(1, 14))
def test_dsch_is_continuous_at_similarity_zero_and_sch_is_not(share, gamma_w):
    dsch, sch = DSCHLoss(32, gamma_w=gamma_w), SCHLoss(32)
    step = abs(pair_loss(dsch, 1e-9, share * 32) - pair_loss(dsch, 0.0, share * 32))
    assert step < 1e-5
    lower, upper = channel(sch, [0.0, 1e-9])
    np.testing.assert_allclose(lower, [16, 13], atol=1e-6)
    np.testing.assert_allclose(upper, [32, 16], atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_there_is_no_loss_within_the_channel_and_some_outside(loss):
    grid = landscape(loss, points=41)
    assert grid.loss.shape == (41, 42)
    assert (grid.similarity[0], grid.distance[-1]) == (0, loss.n_bits)
    inside = (grid.distance[:, None] >= grid.lower) & (grid.distance[:, None] <= grid.upper)
    assert (grid.loss[inside] == 0).all()
    assert (grid.loss[~inside] > 0).all()
    assert inside.any()
    assert not inside.all()


def test_titles_name_what_shapes_the_landscape():
    assert title(SCHLoss(32)) == "SCH with k = 32, τ = 3"
    assert "γ$_w$ = 2" in title(DSCHLoss(32, gamma_w=2.0))


def test_panels_show_the_grid_on_one_scale():
    losses = [SCHLoss(32), DSCHLoss(32, gamma_w=2.0)]
    figure = heat_maps_plot(losses)
    *panels, _ = figure.axes  # the last is the scale
    for axes, loss in zip(panels, losses, strict=True):
        strip, rest = axes.images
        np.testing.assert_allclose(rest.get_array(), landscape(loss).loss[:, 1:])
        np.testing.assert_allclose(strip.get_array()[:, 0], landscape(loss).loss[:, 0])
        assert rest.get_clim() == (0, 32)
    assert [axes.get_zlim()[1] for axes in surfaces_plot(losses).axes] == [32, 32]


def test_channels_are_those_of_the_losses():
    (axes,) = channels_plot([DSCHLoss(32)]).axes
    lines = {line.get_label(): line for line in axes.lines}
    for end, name in enumerate(("lower end of the channel", "upper end of the channel")):
        line = lines[name]
        expected = channel(DSCHLoss(32), line.get_xdata())[end].clip(0)
        np.testing.assert_allclose(line.get_ydata(), expected)
    assert lines["lower end of the channel"].get_linestyle() != lines["upper end of the channel"].get_linestyle()


def test_files_are_pictures_and_the_same_each_time(tmp_path):
    paths = write_landscapes(tmp_path / "a", [SCHLoss(16)])
    assert sorted(path.suffix for path in paths) == [".png"] * 3 + [".svg"] * 3
    for path in paths:
        if path.suffix == ".png":
            with Image.open(path) as picture:
                assert min(picture.size) > 400
                # Light and dark are told apart without colour.
                low, high = picture.convert("L").getextrema()
                assert high - low > 150
        else:
            assert path.read_text().lstrip().startswith("<?xml")
    again = write_landscapes(tmp_path / "b", [SCHLoss(16)])
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]
