"""Balance term: each bit is on for half of the samples."""

import torch
from torch import Tensor

from channelhash.losses.functional import Outputs


def balance_term(outputs: Outputs) -> Tensor:
    """Return the mean over modalities and bits of (mean_i tanh z_i)²: how far a bit is from 0 on the mean of the batch.

    Balanced bits are a condition of Spectral Hashing (Weiss et al., NIPS 2008), there as a constraint; DCMH's third
    term is the same thing without tanh. Each modality is balanced by itself, as each is searched by itself.

    Args:
        outputs: modality -> ``(n, k)`` real-valued codes z.

    Returns:
        A scalar in [0, 1], in float32 (float64 for float64 outputs) also under autocast; about 1/n for random codes.

    >>> balance_term({"text": 50 * torch.tensor([[1.0, 1.0], [1.0, -1.0]])}).item()  # one bit always on, one balanced
    0.5
    """
    stacked = torch.stack(list(outputs.values()))
    with torch.autocast(stacked.device.type, enabled=False):
        values = stacked if stacked.dtype == torch.float64 else stacked.float()
        return values.tanh().mean(dim=1).square().mean()
