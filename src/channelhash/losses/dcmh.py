"""DCMH and DPSH: the pairwise negative log-likelihood (Jiang & Li, CVPR 2017; Li, Wang & Kang, IJCAI 2016)."""

from torch import Tensor
from torch.nn import functional as F

from channelhash.losses.base import Batch, HashLoss
from channelhash.losses.functional import sign
from channelhash.losses.multimodal import items_of


class DCMHLoss(HashLoss):
    """From "Deep Cross-Modal Hashing" (CVPR 2017), its objective; the first term is that of DPSH, "Feature Learning
    based Deep Supervised Hashing with Pairwise Labels" (IJCAI 2016)::

        J = − Σ_ij (S_ij Θ_ij − log(1 + e^Θ_ij)) + γ Σ_m ‖B − F_m‖²_F + η Σ_m ‖F_m 1‖²,   Θ_ij = ½ f_iᵀ f_j

    divided by N², N = m · n; B = sign(Σ_m F_m), as DCMH sets the codes of training samples. DCMH sums over image–text
    pairs alone; here over all pairs of `items`. The batch stands for the training set.

    Several labels: S_ij = 1 where two samples share at least one, else 0.

    Args:
        n_bits: code length k.
        gamma: weight γ of the quantisation error; 1 in the paper.
        eta: weight η of the balance of bits; 1 in the paper.

    >>> import torch
    >>> loss = DCMHLoss(n_bits=4, gamma=0.0, eta=0.0)  # the likelihood alone: log(1 + e^Θ) with Θ = 0
    >>> round(loss({"text": torch.zeros(1, 4)}, torch.ones(1, 1)).item(), 4)
    0.6931
    """

    def __init__(self, n_bits: int, gamma: float = 1.0, eta: float = 1.0) -> None:
        super().__init__()
        self.n_bits, self.gamma, self.eta = n_bits, gamma, eta

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        items = items_of(batch, self.n_bits)
        theta = 0.5 * (items.codes @ items.codes.T)
        similar = (items.similarity() > 0).to(theta)
        likelihood = (F.softplus(theta) - similar * theta).sum()
        codes = items.by_modality(items.codes)
        quantization = (codes - sign(codes.sum(dim=0))).square().sum()
        balance = codes.sum(dim=1).square().sum()
        total: Tensor = likelihood + self.gamma * quantization + self.eta * balance
        return total / len(items.codes) ** 2
