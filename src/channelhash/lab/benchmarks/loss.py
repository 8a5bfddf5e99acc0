"""Speed and memory of the losses, beside the literal form that broadcasts codes to (n, n, k)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from channelhash.channels import dsch_bounds, label_similarity, unit_rows
from channelhash.losses import LOSSES, DSCHLoss, make_loss
from channelhash.losses.functional import channel_error, quantization_error
from channelhash.models.hash_head import hash_head
from channelhash.utils.timing import Row, compare

MODALITIES = ("image", "text")
N_LABELS = 21
# The shared head of CLIPHash after ViT-H-14 (``protocol.md`` § 4), and its batch (§ 6).
HEAD = (1024, 4096, 4096, 1024, 256)
BATCH = 128
# The literal form keeps about three arrays of (n, n, k) for each of the four pairs of modalities until the backward
# pass; beyond this many bytes it is not run.
_LARGEST = 4e9


def benchmark_loss(
    samples: Sequence[int] = (128, 512, 2048), lengths: Sequence[int] = (32, 128), widths: Sequence[int] = HEAD
) -> list[Row]:
    """Measure forward and backward pass of each loss, beside the literal DSCH loss; then a step of the head.

    Args:
        samples: batch sizes n.
        lengths: code lengths k.
        widths: widths of the head before its k outputs.

    Returns:
        ``what`` of the last rows says the loss's share of the step.
    """
    rows = []
    for n in samples:
        for k in lengths:
            rows += [_one_loss(name, n, k) for name in LOSSES]
    return rows + [_head_step(widths, k) for k in lengths]


def benchmark_batches(samples: Sequence[int] = (128, 512, 1024, 2048, 4096, 8192, 16384), k: int = 64) -> list[Row]:
    """Measure the DSCH loss over the size of the batch, in tiles and in one piece; each form has its own memory."""
    return [row for n in samples for row in _batch(n, k)]


def _batch(n: int, k: int) -> list[Row]:
    outputs, labels = draw_batch(n, k)
    loss = DSCHLoss(n_bits=k)
    tiles = _gradients(outputs, lambda: loss(outputs, labels))
    piece = _gradients(outputs, lambda: one_piece_dsch(outputs, labels, k))
    # Distances, what is nearest to them, violations and two gradients, each for every pair of modalities.
    needed = 5 * (len(MODALITIES) * n) ** 2 * 4
    size, repeats = f"n = {n}, k = {k}, {len(MODALITIES)} modalities", 5 if n <= 2048 else 1
    what = "dsch loss in tiles"
    if needed > _LARGEST:
        return [compare(what, size, tiles, f"one piece: not run, it takes {needed / 1e9:.0f} GB", repeats=repeats)]
    return [
        compare(what, size, tiles, "one piece", piece, repeats),
        compare("dsch loss in one piece", size, piece, repeats=repeats),
    ]


def one_piece_dsch(outputs: dict[str, Tensor], labels: Tensor, n_bits: int) -> Tensor:
    """Compute `DSCHLoss` with its defaults from arrays of (n, n), whatever n.

    >>> outputs, labels = draw_batch(4, 16)
    >>> torch.allclose(one_piece_dsch(outputs, labels, 16), literal_dsch(outputs, labels, 16))
    True
    """
    codes = torch.stack(list(outputs.values()))
    directions = unit_rows(codes.flatten(0, 1)).view_as(codes)
    error = channel_error(directions, directions, dsch_bounds(label_similarity(labels), n_bits))
    return error / len(labels) ** 2 + 0.01 / len(labels) * quantization_error(codes)


def literal_dsch(outputs: dict[str, Tensor], labels: Tensor, n_bits: int) -> Tensor:
    """Compute `DSCHLoss` with its defaults as its equations are written: cosines from arrays of (n, n, k)."""
    n, k = len(labels), n_bits
    sets = labels.float()
    similarity = F.cosine_similarity(sets[:, None, :], sets[None, :, :], dim=2)
    similarity = torch.where(torch.eye(n, dtype=torch.bool), 1.0, similarity)
    width = (1 - similarity) ** 8 * (k - k / 2 - 1) + 1
    lower = k / 2 * (1 - similarity) - similarity
    total = torch.zeros(())
    for a in outputs.values():
        for b in outputs.values():
            distances = k / 2 * (1 - F.cosine_similarity(a[:, None, :], b[None, :, :], dim=2))
            total = total + torch.maximum(lower - distances, distances - (lower + width)).clamp(min=0).sum()
    target = torch.where(torch.stack(list(outputs.values())).sum(dim=0) >= 0, 1.0, -1.0)
    quantization = torch.stack([(codes - target).abs().sum() for codes in outputs.values()]).sum()
    return total / n**2 + 0.01 * quantization / n


def draw_batch(n: int, k: int, n_labels: int = N_LABELS) -> tuple[dict[str, Tensor], Tensor]:
    """Draw outputs of both modalities, which take gradients, and labels, about three an item.

    >>> outputs, labels = draw_batch(4, 16)
    >>> outputs["image"].shape, labels.shape
    (torch.Size([4, 16]), torch.Size([4, 21]))
    """
    random = torch.Generator().manual_seed(0)
    outputs = {name: torch.randn(n, k, generator=random).requires_grad_() for name in MODALITIES}
    return outputs, torch.rand(n, n_labels, generator=random) < 0.15


def _one_loss(name: str, n: int, k: int) -> Row:
    outputs, labels = draw_batch(n, k)
    loss = make_loss(name, k, N_LABELS)
    size = f"n = {n}, k = {k}, {len(MODALITIES)} modalities"
    if name != "dsch":
        return compare(f"{name} loss, forward and backward", size, _gradients(outputs, lambda: loss(outputs, labels)))
    needed = 3 * len(MODALITIES) ** 2 * n * n * k * 4
    literally = _gradients(outputs, lambda: literal_dsch(outputs, labels, k))
    return compare(
        "dsch loss, forward and backward",
        size,
        _gradients(outputs, lambda: loss(outputs, labels)),
        "(n, n, k) broadcast" + (f": not run, it takes {needed / 1e9:.0f} GB" if needed > _LARGEST else ""),
        None if needed > _LARGEST else literally,
    )


def _head_step(widths: Sequence[int], k: int) -> Row:
    """Measure one step of Adam on the head, both modalities in one pass, and the loss's share of it."""
    head = hash_head([*widths, k])
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-5, fused=True)
    features = torch.randn(len(MODALITIES) * BATCH, widths[0])
    labels = draw_batch(BATCH, k)[1]
    loss = DSCHLoss(n_bits=k)

    def step() -> None:
        optimizer.zero_grad()
        loss(dict(zip(MODALITIES, head(features).split(BATCH), strict=True)), labels).backward()
        optimizer.step()

    outputs = draw_batch(BATCH, k)[0]
    row = compare(
        "step of the CLIPHash head",
        f"batch {BATCH}, {'→'.join(str(width) for width in [*widths, k])}",
        step,
        "its dsch loss alone",
        _gradients(outputs, lambda: loss(outputs, labels)),
    )
    assert row["baseline_seconds"] is not None
    row["what"] += f" (loss {100 * row['baseline_seconds'] / row['seconds']:.1f} %)"
    return row


def _gradients(outputs: dict[str, Tensor], loss: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        torch.autograd.grad(loss(), list(outputs.values()))

    return run
