"""DCMH and DPSH: the pairwise negative log-likelihood (Jiang & Li, CVPR 2017; Li, Wang & Kang, IJCAI 2016)."""

from torch import Tensor, nn
from torch.nn import functional as F

from channelhash.losses.functional import Outputs, sign
from channelhash.losses.multimodal import Items, loss_of_items


class DCMHLoss(nn.Module):
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
    """

    def __init__(self, n_bits: int, gamma: float = 1.0, eta: float = 1.0) -> None:
        super().__init__()
        self.n_bits, self.gamma, self.eta = n_bits, gamma, eta

    def forward(self, outputs: Outputs, labels: Tensor) -> Tensor:
        """The loss of one batch, a scalar; arguments as in `multimodal.loss_of_items`."""
        return loss_of_items(outputs, labels, self.n_bits, self._loss)

    def _loss(self, items: Items) -> Tensor:
        theta = 0.5 * (items.codes @ items.codes.T)
        similar = (items.similarity() > 0).to(theta)
        likelihood = (F.softplus(theta) - similar * theta).sum()
        codes = items.by_modality(items.codes)
        quantization = (codes - sign(codes.sum(dim=0))).square().sum()
        balance = codes.sum(dim=1).square().sum()
        total: Tensor = likelihood + self.gamma * quantization + self.eta * balance
        return total / len(items.codes) ** 2
