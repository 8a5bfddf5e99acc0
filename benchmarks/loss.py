"""The losses beside the literal DSCH loss, which broadcasts codes to (n, n, k); tiles beside one
piece; a step's share.

What would take more than 4 GB is not run.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from channelhash.channels import label_similarity, unit_rows
from channelhash.losses import LOSSES, DSCHLoss, make_loss
from channelhash.losses.base import quantization_error
from channelhash.models.heads import hash_head
from measure import options, print_rows
from timing import Row, compare

MODALITIES, LABELS = ("image", "text"), 21
# The shared head of CLIPHash after ViT-H-14 (``protocol.md`` § 4), and its batch (§ 6).
HEAD, BATCH = (1024, 4096, 4096, 1024, 256), 128
LARGEST = 4e9


def main() -> None:
    """Print rows of all losses, of a step of the head, and of growing batches."""
    given = options(
        __doc__,
        samples=(128, 512, 2048),
        bits=(32, 128),
        losses=",".join(LOSSES),
        head=HEAD,
        batches=(128, 512, 1024, 2048, 4096, 8192, 16384),
    )
    rows = [
        one_loss(name, n, k)
        for n in given.samples
        for k in given.bits
        for name in given.losses.split(",")
    ]
    rows += [head_step(given.head, k) for k in given.bits]
    print_rows(rows + [row for n in given.batches for row in one_batch(n, 64)])


def one_loss(name: str, n: int, k: int) -> Row:
    """Measure forward and backward pass, that of DSCH beside the literal form."""
    outputs, labels = draw_batch(n, k)
    loss = make_loss(name, k, LABELS)
    ours = gradients(outputs, lambda: loss(outputs, labels))
    what, size = f"{name} loss, forward and backward", f"n = {n}, k = {k}, 2 modalities"
    if name != "dsch":
        return compare(what, size, ours)
    # About three arrays for each of the four pairs of modalities until the backward pass.
    needed = 3 * 4 * n * n * k * 4
    if needed > LARGEST:
        return compare(what, size, ours, f"(n, n, k): not run, it takes {needed / 1e9:.0f} GB")
    literally = gradients(outputs, lambda: literal_dsch(outputs, labels, k))
    return compare(what, size, ours, "(n, n, k) broadcast", literally)


def one_batch(n: int, k: int) -> list[Row]:
    """Measure the DSCH loss in tiles and in one piece; each form has its own memory."""
    outputs, labels = draw_batch(n, k)
    loss = DSCHLoss(n_bits=k)
    tiles = gradients(outputs, lambda: loss(outputs, labels))
    piece = gradients(outputs, lambda: one_piece_dsch(outputs, labels, k))
    # Distances, what is nearest to them, violations and two gradients, each for every pair.
    needed = 5 * (2 * n) ** 2 * 4
    what, size, repeats = (
        "dsch loss in tiles",
        f"n = {n}, k = {k}, 2 modalities",
        5 if n <= 2048 else 1,
    )
    if needed > LARGEST:
        return [
            compare(
                what,
                size,
                tiles,
                f"one piece: not run, it takes {needed / 1e9:.0f} GB",
                repeats=repeats,
            )
        ]
    return [
        compare(what, size, tiles, "one piece", piece, repeats),
        compare("dsch loss in one piece", size, piece, repeats=repeats),
    ]


def head_step(widths: Sequence[int], k: int) -> Row:
    """Measure one step of Adam on the head, both modalities in one pass, and the loss's share of
    it.
    """
    head = hash_head([*widths, k])
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-5, fused=True)
    features = torch.randn(2 * BATCH, widths[0])
    outputs, labels = draw_batch(BATCH, k)
    loss = DSCHLoss(n_bits=k)

    def step() -> None:
        optimizer.zero_grad()
        loss(dict(zip(MODALITIES, head(features).split(BATCH), strict=True)), labels).backward()
        optimizer.step()

    size = f"batch {BATCH}, {'→'.join(map(str, [*widths, k]))}"
    alone = gradients(outputs, lambda: loss(outputs, labels))
    row = compare("step of the CLIPHash head", size, step, "its dsch loss alone", alone)
    return {
        **row,
        "what": f"{row['what']} (loss {100 * (row['baseline_seconds'] or 0) / row['seconds']:.1f} %)",
    }


def one_piece_dsch(outputs: dict[str, Tensor], labels: Tensor, n_bits: int) -> Tensor:
    """Compute `DSCHLoss` with its defaults from arrays of (n, n), whatever n."""
    codes = torch.stack(list(outputs.values()))
    directions = unit_rows(codes.flatten(0, 1)).view_as(codes)
    error = DSCHLoss(n_bits).pair_error(directions, directions, label_similarity(labels))
    return error / len(labels) ** 2 + 0.01 / len(labels) * quantization_error(codes)


def literal_dsch(outputs: dict[str, Tensor], labels: Tensor, n_bits: int) -> Tensor:
    """Compute `DSCHLoss` with its defaults as its equations are written: cosines from arrays of (n,
    n, k).
    """
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
            total = (
                total
                + torch.maximum(lower - distances, distances - (lower + width)).clamp(min=0).sum()
            )
    target = torch.where(torch.stack(list(outputs.values())).sum(dim=0) >= 0, 1.0, -1.0)
    quantization = torch.stack([(codes - target).abs().sum() for codes in outputs.values()]).sum()
    return total / n**2 + 0.01 * quantization / n


def draw_batch(n: int, k: int) -> tuple[dict[str, Tensor], Tensor]:
    """Draw outputs of both modalities, which take gradients, and labels, about three an item."""
    random = torch.Generator().manual_seed(0)
    outputs = {name: torch.randn(n, k, generator=random).requires_grad_() for name in MODALITIES}
    return outputs, torch.rand(n, LABELS, generator=random) < 0.15


def gradients(outputs: dict[str, Tensor], loss: Callable[[], Tensor]) -> Callable[[], None]:
    """Return a forward and backward pass."""

    def run() -> None:
        torch.autograd.grad(loss(), list(outputs.values()))

    return run


if __name__ == "__main__":
    main()
