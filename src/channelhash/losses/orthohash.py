"""OrthoHash: one cosine softmax over orthogonal binary targets (Hoe et al., NeurIPS 2021)."""

from torch import Tensor, nn

from channelhash.channels import unit_rows
from channelhash.losses.csq import hash_centres
from channelhash.losses.multimodal import ItemLoss, StackedItems


class OrthoHashLoss(ItemLoss):
    """From "One Loss for All: Deep Hashing with a Single Cosine Similarity based Learning
    Objective" (NeurIPS 2021)::

        L = −mean_i Σ_y t_iy log softmax_y(s (cos(z_i, o_y) − m · y_iy))

    over targets o_y from `csq.hash_centres` (the published code draws them at random; the paper
    names both).

    Several labels: t_i is spread evenly over an item's labels and each of their cosines has the
    margin, the paper's "label smoothing". Items without labels are left out.

    Left out: the batch normalisation that the paper puts after the last layer for the balance of
    bits. It is part of the model, and this project's codes do not depend on the batch
    (``protocol.md`` § 4).

    Args:
        n_bits: code length k.
        n_labels: number of labels c.
        s: scale s of the cosines; 8 in the published code.
        m: margin m; 0.2 in the published code.
        seed: of targets that are no rows of a Hadamard matrix.

    >>> import torch
    >>> loss = OrthoHashLoss(n_bits=4, n_labels=2)  # targets 1 1 1 1 and 1 -1 1 -1
    >>> at_targets, at_others = torch.tensor([[1.0, 1, 1, 1]]), torch.tensor([[1.0, -1, 1, -1]])
    >>> labels = torch.tensor([[1, 0]])
    >>> loss({"text": at_targets}, labels).item() < loss({"text": at_others}, labels).item()
    True
    """

    def __init__(
        self, n_bits: int, n_labels: int, s: float = 8.0, m: float = 0.2, seed: int = 0
    ) -> None:
        super().__init__(n_bits, n_labels)
        self.s = s
        self.m = m
        self.centres = nn.Buffer(hash_centres(n_labels, n_bits, seed), persistent=False)

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        cosines = unit_rows(items.codes) @ self.centres.to(items.codes).T / self.n_bits**0.5
        return items.cross_entropy(self.s * (cosines - self.m * items.labels))
