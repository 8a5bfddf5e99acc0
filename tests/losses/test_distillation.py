"""The distillation loss against its literal transcription."""

import pytest
import torch

from channelhash.losses import DistillationLoss
from losses.loss_equations import hamming


def literal(outputs, targets, modalities):
    """The equation, loop by loop, in float64."""
    bits = {
        name: [torch.tensor([1.0 if t >= 0 else -1.0 for t in row], dtype=torch.float64) for row in targets[:, place]]
        for place, name in enumerate(modalities)
    }
    n, m = len(targets), len(modalities)
    total = torch.zeros((), dtype=torch.float64)
    for a in modalities:
        for i in range(n):
            total = total + hamming(outputs[a][i], bits[a][i]) / (m * n)
    return total


def batch(modalities, n=5, k=8, seed=0):
    torch.manual_seed(seed)
    outputs = {name: torch.randn(n, k, dtype=torch.float64, requires_grad=True) for name in modalities}
    targets = torch.randn(n, len(modalities), k)
    targets[0, 0, 0] = 0.0  # counts as +1
    return outputs, targets


@pytest.mark.parametrize("modalities", [("image", "text"), ("text", "image"), ("text",)])
def test_value_and_gradient_are_the_equations(modalities):
    outputs, targets = batch(modalities)
    loss = DistillationLoss(8, modalities)(dict(reversed(outputs.items())), targets)
    expected = literal(outputs, targets, modalities)
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-10)
    slopes = [torch.autograd.grad(value, list(outputs.values()), retain_graph=True) for value in (loss, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-10)


def test_it_counts_differing_bits_of_codes_and_is_0_at_the_teachers():
    _, targets = batch(("image", "text"), n=6)
    signs = torch.where(targets >= 0, 1.0, -1.0)
    outputs = {name: 3 * signs[:, place] for place, name in enumerate(("image", "text"))}
    assert DistillationLoss(8, ["image", "text"])(outputs, targets).item() == pytest.approx(0, abs=1e-5)
    outputs["text"][2, :4] *= -1
    value = DistillationLoss(8, ["image", "text"])(outputs, targets).item()
    assert value == pytest.approx(4 / 12, abs=1e-5)


def test_the_edges_are_finite_and_half_precision_is_not_used():
    outputs, targets = batch(("text",))
    outputs = {"text": torch.zeros(5, 8, requires_grad=True)}
    loss = DistillationLoss(8, ["text"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(outputs, targets)
    value.backward()
    assert value.dtype == torch.float32
    assert outputs["text"].grad.isfinite().all()


def test_what_does_not_fit_is_refused():
    outputs, targets = batch(("image", "text"))
    with pytest.raises(ValueError, match="takes outputs of text and targets"):
        DistillationLoss(8, ["text"])(outputs, targets[:, :1])
    with pytest.raises(ValueError, match=r"targets \(5, 2, 8\), not"):
        DistillationLoss(8, ["image", "text"])(outputs, targets[:, :1])
