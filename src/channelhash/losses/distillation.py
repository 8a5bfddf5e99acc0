"""Distillation: a student's codes become its teacher's."""

from collections.abc import Sequence

import torch
from torch import Tensor

from channelhash.channels import unit_rows
from channelhash.losses.base import Batch, HashLoss, sign


class DistillationLoss(HashLoss):
    """Distance of a student's code to its teacher's::

        L = 1/(m n) Σ_m Σ_i d(ŝ_i^m, b_i^m)

    over the n samples and m modalities of a batch, in bits: d is the relaxed Hamming distance of
    `channels`, ŝ the student's outputs, b = sign(t) the teacher's codes, which are constants.

    It asks for the same point of the Hamming space, so that either model's code can search among
    the other's: the regression that Budnik & Avrithis, "Asymmetric Metric Learning for Knowledge
    Transfer" (CVPR 2021), compare with. For ŝ in {−1, 1}^k it is the number of differing bits, and
    its minimum over real ŝ is at equal magnitudes: it has the quantisation of a code in it. The
    targets are the bits, not the outputs t, since the bits are what a database holds. No label is
    looked at. The temperature of Hinton et al., "Distilling the Knowledge in a Neural Network"
    (2015), has no counterpart: a bit has no runner-up.

    Args:
        n_bits: code length k.
        modalities: the student's modalities, the second axis of the targets.

    >>> codes = torch.tensor([[1.0, 1, 1, 1], [-1, -1, 1, 1]])
    >>> loss = DistillationLoss(n_bits=4, modalities=["text"])
    >>> loss({"text": codes}, -codes[:, None]).item()
    4.0
    """

    needs_teacher = True

    def __init__(self, n_bits: int, modalities: Sequence[str]) -> None:
        super().__init__()
        self.n_bits = n_bits
        self.modalities = tuple(modalities)

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``, whose labels are targets ``(n, m, k)``: the teacher's
        outputs of the samples.

        Raises:
            ValueError: outputs and targets do not fit together.
        """
        targets = batch.labels
        n, k = batch.codes.shape[1:]
        shape = (n, len(self.modalities), self.n_bits)
        if set(batch.outputs) != set(self.modalities) or targets.shape != shape or k != self.n_bits:
            raise ValueError(
                f"this loss takes outputs of {', '.join(self.modalities)} and targets {shape}, not "
                f"outputs {(n, k)} of {', '.join(batch.outputs)} and targets {tuple(targets.shape)}"
            )
        student = torch.cat([batch.outputs[modality] for modality in self.modalities])
        bits = sign(targets.to(student)).transpose(0, 1).flatten(0, 1)
        return 0.5 * self.n_bits * (1 - (unit_rows(student) * unit_rows(bits)).sum(dim=1)).mean()
