"""The listwise loss: each item's neighbours in the codes become its neighbours by similarity."""

from itertools import permutations

import torch
from torch import Tensor

from channelhash.channels import unit_rows
from channelhash.losses.base import Batch, HashLoss, sign


class ListwiseLoss(HashLoss):
    """Cross-entropy of two rankings of a batch, with the top-one probabilities of ListNet (Cao et
    al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007)::

        L = mean over questions i of −Σ_j P_ij log P̂_ij,
        P_ij = S_ij / Σ_j S_ij,   P̂_ij = e^(s cos(tanh z_i, b_j)) / Σ_j e^(s cos(tanh z_i, b_j))

    Up to a constant it is the divergence KL(P ‖ P̂). A question i is known by its outputs z_i, an
    item j by its bits b_j = sign(z_j), as in a search; the gradient of a bit is that of tanh z_j
    (straight through, Bengio et al. 2013). The questions of one modality are ranked among the
    items of each other; of one modality alone among their own, without themselves.

    Similarities need not come from labels. Of an encoder's cosines c, S_ij = e^(c_ij / T) up to a
    factor for each i makes P the softmax at temperature T; of clicks, S_ij is their number.

    Args:
        n_bits: code length k.
        scale: s, of the cosines of outputs and bits.

    Raises:
        ValueError: s is not above 0.

    >>> codes = 9 * torch.tensor([[1.0, 1], [1, 1], [-1, -1], [-1, -1]])
    >>> labels = torch.eye(2).repeat_interleave(2, dim=0)
    >>> round(ListwiseLoss(n_bits=2)({"text": codes}, labels).item(), 4)  # each finds its partner
    0.0
    """

    takes_similarity = True

    def __init__(self, n_bits: int, scale: float = 16.0) -> None:
        super().__init__()
        if not scale > 0:
            raise ValueError(f"scale is {scale}; it is above 0")
        self.n_bits = n_bits
        self.scale = scale

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``; a question without similar items does not count."""
        stacked = torch.tanh(batch.codes_of_width(self.n_bits))
        questions = unit_rows(stacked)
        bits = (stacked + (sign(stacked) - stacked).detach()) / self.n_bits**0.5
        n = stacked.shape[1]
        whole = slice(0, n)
        similarity = batch.similarity_of(whole, whole)
        if len(stacked) > 1:
            pairs = permutations(range(len(stacked)), 2)
            logits = [self.scale * questions[a] @ bits[b].T for a, b in pairs]
            return torch.stack([cross_entropy(each, similarity) for each in logits]).mean()
        itself = torch.eye(n, dtype=torch.bool, device=stacked.device)
        logits = self.scale * questions[0] @ bits[0].T
        return cross_entropy(
            logits.masked_fill(itself, -torch.inf), similarity.masked_fill(itself, 0)
        )


def cross_entropy(logits: Tensor, similarity: Tensor) -> Tensor:
    """Return the mean of −Σ_j P_ij log P̂_ij over rows with a similar item; 0 if there are none.

    Args:
        logits: ``(q, n)`` of P̂; −∞ leaves a pair out whose similarity is 0.
        similarity: ``(q, n)``, at least 0.

    >>> round(cross_entropy(torch.zeros(1, 4), torch.tensor([[0.0, 0, 1, 1]])).item(), 4)  # log 4
    1.3863
    """
    sums = similarity.sum(dim=1)
    known = sums > 0
    shares = similarity / sums.clamp_min(torch.finfo(sums.dtype).tiny)[:, None]
    log_shares = torch.log_softmax(logits, dim=1)
    errors = -torch.where(similarity > 0, shares * log_shares, 0).sum(dim=1)
    return (errors * known).sum() / known.sum().clamp_min(1)
