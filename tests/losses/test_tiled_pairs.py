"""The channel losses in tiles are the channel losses in one piece."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from channelhash.losses import DSCHLoss, HashNetLoss, LossWithTerms, SCHLoss, Terms
from channelhash.losses import base as tiles
from pages import ROOT


def draw_batch(n: int, k: int, n_modalities: int = 2, n_labels: int = 4, seed: int = 0):
    random = torch.Generator().manual_seed(seed)
    outputs = {
        f"modality {number}": torch.randn(n, k, generator=random, dtype=torch.float64).requires_grad_()
        for number in range(n_modalities)
    }
    return outputs, torch.rand(n, n_labels, generator=random) < 0.4


def value_and_gradients(loss, outputs, labels, **how):
    value = loss(outputs, labels, **how)
    return [value, *torch.autograd.grad(value, list(outputs.values()))]


def assert_shards_add_up(loss, outputs, labels, side, parts):
    """Also in value and gradient; returns those of each part."""
    whole = value_and_gradients(loss, outputs, labels)
    with in_tiles(side):
        shards = [value_and_gradients(loss, outputs, labels, shard=tiles.Shard(i, parts)) for i in range(parts)]
    for want, *pieces in zip(whole, *shards, strict=True):
        torch.testing.assert_close(torch.stack(pieces).sum(dim=0), want, rtol=1e-9, atol=1e-10)
    return whole, shards


@contextmanager
def in_tiles(side: int):
    """Tiles of so many samples on a side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "_SIDE", side)
        yield


@st.composite
def cases(draw):
    k = draw(st.integers(1, 20))
    gamma_l = draw(st.sampled_from([1.0, 2.0, 1.5]))
    alpha, beta = draw(st.sampled_from([(1.0, 1.0), (3.0, 0.25)]))
    dsch = DSCHLoss(k, tau=min(1.0, k / 2), gamma_l=gamma_l, alpha=alpha, beta=beta, gamma_w=2.0)
    sch = SCHLoss(k, alpha=alpha, beta=beta, kappa_q=0.3)
    terms = Terms(contrastive=0.3, pairs=0.2, temperature=0.5, average_precision=0.7)
    loss = draw(st.sampled_from([dsch, sch, *(LossWithTerms(one, k, terms) for one in (dsch, sch, HashNetLoss(k)))]))
    fewest = 2 if isinstance(loss, LossWithTerms) else 1  # InfoNCE is between modalities
    ends = ((1, 30), (fewest, 3), (1, 6), (0, 1000))
    n, n_modalities, n_labels, seed = (draw(st.integers(*two)) for two in ends)
    return loss, *draw_batch(n, k, n_modalities, n_labels, seed)


@settings(max_examples=60)
@given(case=cases(), side=st.integers(1, 31), parts=st.integers(1, 5))
def test_tiles_and_their_shards_add_up_to_the_whole(case, side, parts):
    assert_shards_add_up(*case, side, parts)


def test_a_batch_above_the_side_of_a_tile_is_cut_and_stays_the_same():
    outputs, labels = draw_batch(3 * tiles._SIDE // 2, 16)
    assert len(tiles._tiles(len(labels))) == 3
    actual = value_and_gradients(DSCHLoss(16), outputs, labels)
    with in_tiles(len(labels)):
        expected = value_and_gradients(DSCHLoss(16), outputs, labels)
    for want, got in zip(expected, actual, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)


MEMORY = """
import sys, torch
sys.path.append("{benchmarks}")
from timing import measure_extra_memory
from channelhash.losses import DSCHLoss
torch.set_num_threads(1)
outputs = {name: torch.randn(16384, 64).requires_grad_() for name in ("image", "text")}
labels = torch.rand(16384, 24) < 0.15
loss = DSCHLoss(64)
print(measure_extra_memory(lambda: loss(outputs, labels).backward()))
"""


@pytest.mark.slow
def test_a_batch_of_16384_takes_less_than_200_megabytes():
    """One array of (2n, 2n) alone would be 4.3 GB."""
    command = [sys.executable, "-c", MEMORY.replace("{benchmarks}", str(ROOT / "benchmarks"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 8 < float(done.stdout) < 200  # the gradient is 8 MB: what is measured is really there
