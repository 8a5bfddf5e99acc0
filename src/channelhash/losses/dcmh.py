"""DCMH and DPSH: the pairwise negative log-likelihood (Jiang & Li, CVPR 2017; Li, Wang & Kang,
IJCAI 2016).
"""

from torch import Tensor
from torch.nn import functional as F

from channelhash.losses.base import sign
from channelhash.losses.multimodal import ItemLoss, StackedItems


class DCMHLoss(ItemLoss):
    """From "Deep Cross-Modal Hashing" (CVPR 2017), its objective; the first term is that of DPSH,
    "Feature Learning based Deep Supervised Hashing with Pairwise Labels" (IJCAI 2016)::

        J = − Σ_ij (S_ij Θ_ij − log(1 + e^Θ_ij)) + γ Σ_m ‖B − F_m‖²_F + η Σ_m ‖F_m 1‖²,   Θ_ij = ½
        f_iᵀ f_j

    divided by N², N = m · n; B = sign(Σ_m F_m), as DCMH sets the codes of training samples. DCMH
    sums over image–text pairs alone; here over all pairs of `items`. The batch stands for the
    training set.

    ``published``: J of the training set, over its image–text pairs alone and divided by n², as a
    batch estimates it::

        mean_ij (log(1 + e^Θ_ij) − S_ij Θ_ij) + γ/n_train · Σ_m mean_i ‖b_i − f_mi‖² + η Σ_m ‖mean_i
        f_mi‖²

    with n_train = 10,000 as in the authors' code, the first term for each two modalities (of a
    single one for its own pairs). Against it the default's quantisation error weighs n_train / 4n
    times as much in a batch of n, and its balance a quarter. The authors' F and G are of all
    training samples, each as of its last step, and B of the last epoch; here they are of the batch.

    Several labels: S_ij = 1 where two samples share at least one, else 0.

    Args:
        n_bits: code length k.
        gamma: weight γ of the quantisation error; 1 in the paper.
        eta: weight η of the balance of bits; 1 in the paper.
        n_train: number of training samples that the batch is drawn from, at least 1; None takes the
            batch for all.

    Raises:
        ValueError: ``n_train`` is below 1.

    >>> import torch
    >>> loss = DCMHLoss(n_bits=4, gamma=0.0, eta=0.0)  # the likelihood alone: log(1 + e⁰)
    >>> round(loss({"text": torch.zeros(1, 4)}, torch.ones(1, 1)).item(), 4)
    0.6931
    """

    def __init__(
        self, n_bits: int, gamma: float = 1.0, eta: float = 1.0, n_train: int | None = None
    ) -> None:
        super().__init__(n_bits)
        if n_train is not None and not n_train >= 1:
            raise ValueError(f"n_train is {n_train}; a training has at least 1 sample")
        self.gamma = gamma
        self.eta = eta
        self.n_train = n_train

    def compute_items(self, items: StackedItems) -> Tensor:
        """Return the loss of ``items``."""
        theta = 0.5 * (items.codes @ items.codes.T)
        similar = (items.similarity() > 0).to(theta)
        likelihoods = F.softplus(theta) - similar * theta
        codes = items.by_modality(items.codes)
        quantization = (codes - sign(codes.sum(dim=0))).square().sum()
        balance = codes.sum(dim=1).square().sum()
        if self.n_train is None:
            return (likelihoods.sum() + self.gamma * quantization + self.eta * balance) / len(
                items.codes
            ) ** 2
        m = items.n_modalities
        n = items.n_samples
        pairs = likelihoods.view(m, n, m, n).sum(dim=(1, 3)).triu(diagonal=min(m - 1, 1)).sum()
        return (pairs + self.eta * balance) / n**2 + self.gamma * quantization / (n * self.n_train)
