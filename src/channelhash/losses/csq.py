"""CSQ: central similarity, codes near the centre of their labels (Yuan et al., CVPR 2020)."""

import numpy as np
import torch
from torch import Tensor, nn

from channelhash.losses.multimodal import ItemLoss, StackedItems
from channelhash.utils.seeds import generator


class CSQLoss(ItemLoss):
    """From "Central Similarity Quantization for Efficient Image and Video Retrieval" (CVPR 2020),
    central similarity loss and quantisation loss::

        L = L_C + λ L_Q L_C = mean over items and bits of −[c' log h + (1 − c') log(1 − h)],   L_Q =
        mean log cosh(|2h − 1| − 1)

    with h = (1 + tanh z) / 2 and c' the item's centre in {0, 1}; centres from `hash_centres`.

    Several labels: the centre is the majority of the labels' centres, bit by bit. Ties are broken
    by one random code, drawn once, as in the published code. Items without labels have no centre
    and are in L_Q alone.

    ``published``: the authors' code has L_Q = mean of (|tanh z| − 1)², and a third term: 0.2 · the
    mean of log(1 + e^Ω) − s Ω, Ω = 10/k · tanh z_iᵀ tanh z_j, s = 1 for pairs that share a label,
    over the pairs of a batch's first half with its second.

    Args:
        n_bits: code length k.
        n_labels: number of labels c.
        lambda_q: weight λ of the quantisation error; the published code has 0.05, of (|tanh z| −
            1)².
        seed: of the random centres and of the code that breaks ties.
        squared: L_Q is the mean of (|tanh z| − 1)², as in the published code.
        lambda_p: weight of the pairs of the two halves; 0.2 in the published code.

    >>> loss = CSQLoss(n_bits=4, n_labels=2)  # centres 1 1 1 1 and 1 -1 1 -1
    >>> at_centres = {"text": 9 * torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1]])}
    >>> round(loss(at_centres, torch.eye(2)).item(), 4)
    0.0
    """

    def __init__(
        self,
        n_bits: int,
        n_labels: int,
        lambda_q: float = 0.05,
        seed: int = 0,
        squared: bool = False,
        lambda_p: float = 0.0,
    ) -> None:
        super().__init__(n_bits, n_labels)
        self.lambda_q = lambda_q
        self.squared = squared
        self.lambda_p = lambda_p
        # Made of the settings: a checkpoint need not hold them.
        self.centres = nn.Buffer(hash_centres(n_labels, n_bits, seed), persistent=False)
        self.tie_break = nn.Buffer(random_signs((n_bits,), seed, "csq ties"), persistent=False)

    def centres_of(self, labels: Tensor) -> Tensor:
        """Return the centre of each row of ``(N, c)`` labels, ``(N, k)`` of ±1."""
        votes = labels @ self.centres.to(labels)
        return torch.where(votes == 0, self.tie_break.to(labels), votes.sign())

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        target = (self.centres_of(items.labels) + 1) / 2
        # h = (1 + tanh z) / 2 is the sigmoid of 2z, whose logarithm does not overflow.
        entropy = nn.functional.binary_cross_entropy_with_logits(
            2 * items.codes, target, reduction="none"
        ).mean(dim=1)
        errors = items.codes.tanh().abs() - 1
        quantization = (
            errors.square().mean() if self.squared else torch.log(torch.cosh(errors)).mean()
        )
        loss = items.mean_of_labelled(entropy) + self.lambda_q * quantization
        if self.lambda_p:
            loss = loss + self.lambda_p * items.likelihood_of_halves(
                items.codes.tanh(), 10 / self.n_bits
            )
        return loss


def hash_centres(n_labels: int, n_bits: int, seed: int) -> Tensor:
    """Return a code for each label, ``(c, k)`` of ±1 (CSQ, algorithm 1).

    The first c rows of Hadamard's matrix H and of −H: k/2 bits apart from one another, or k from
    its opposite. Where k is no power of two (Sylvester's construction has no other), or c > 2k:
    bits drawn with probability ½.

    >>> hash_centres(3, 4, seed=0)
    tensor([[ 1.,  1.,  1.,  1.],
            [ 1., -1.,  1., -1.],
            [ 1.,  1., -1., -1.]])
    """
    if n_bits & (n_bits - 1) or n_labels > 2 * n_bits:
        return random_signs((n_labels, n_bits), seed, "hash centres")
    hadamard = np.ones((1, 1), dtype=np.float32)
    while len(hadamard) < n_bits:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    return torch.from_numpy(np.concatenate([hadamard, -hadamard])[:n_labels])


def random_signs(shape: tuple[int, ...], seed: int, *names: str) -> Tensor:
    """Draw ±1 with probability ½ each, from a named seed.

    >>> random_signs((2, 3), 0, "example").abs().tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return torch.from_numpy(
        generator(seed, *names).choice(np.array([-1, 1], dtype=np.float32), size=shape)
    )
