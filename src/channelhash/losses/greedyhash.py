"""GreedyHash: a classifier on the signs themselves, with a straight-through gradient (Su et al.,
NeurIPS 2018).
"""

from torch import Tensor, nn

from channelhash.losses.base import sign
from channelhash.losses.multimodal import ItemLoss, StackedItems


class GreedyHashLoss(ItemLoss):
    """From "Greedy Hash: Towards Fast Optimization for Accurate Hash Coding in CNN" (NeurIPS
    2018)::

        L = CE(W b, y) + α · mean | |z| − 1 |³,   b = sgn(z),   ∂L/∂z = ∂L/∂b

    The linear classifier W has no bias, is shared by the modalities and is trained with the model:
    it is a parameter of this loss.

    Several labels: the cross-entropy is against a distribution that is even over an item's labels;
    with one label it is the paper's. Items without labels are in the penalty alone.

    Args:
        n_bits: code length k.
        n_labels: number of labels c.
        alpha: weight α of the penalty; 0.1 in the paper (CIFAR-10).

    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> loss = GreedyHashLoss(n_bits=4, n_labels=2)
    >>> loss({"text": torch.ones(1, 4)}, torch.eye(2)[:1]).isfinite().item()
    True
    """

    def __init__(self, n_bits: int, n_labels: int, alpha: float = 0.1) -> None:
        super().__init__(n_bits, n_labels)
        self.alpha = alpha
        self.classifier = nn.Linear(n_bits, n_labels, bias=False)

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        # exactly ±1, with the slope of the codes
        bits = sign(items.codes) + (items.codes - items.codes.detach())
        entropy = items.cross_entropy(bits @ self.classifier.weight.to(bits).T)
        return entropy + self.alpha * (items.codes.abs() - 1).abs().pow(3).mean()
