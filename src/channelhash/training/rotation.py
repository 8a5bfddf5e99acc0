"""Rotate the outputs of a trained model ``aligned``, so that signs of all and of the leading ones tell pairs apart.

A rotation of both sides changes no cosine: what was learned stays, and only the bits get better.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from channelhash.channels import unit_rows
from channelhash.losses.contrastive import contrastive_term
from channelhash.models.hash_model import HashModel
from channelhash.utils.seeds import derive_seed, generator

_BATCH, _RATE = 1024, 3e-3


def rotate_outputs(
    model: HashModel,
    inputs: dict[str, Tensor],
    images: Tensor,
    n_leading: Sequence[int],
    seed: int,
    steps: int = 300,
) -> None:
    """Learn a rotation R of the outputs of both sides and make it part of their heads.

    R is a random rotation times e^(A − Aᵀ), and A minimises the mean over p of InfoNCE (`contrastive_term`) of the
    signs of the first p rotated outputs, p in ``n_leading`` and k. Heads drop and disturb features as in their
    training, for they know the training rows too well.

    Args:
        model: an ``aligned`` model without frozen encoders (`HashModel.on_features`); is left in evaluation mode.
        inputs: modality -> prepared inputs of ``n`` training rows.
        images: ``(n,)`` which image each row shows; a batch holds a row of each at most.
        n_leading: lengths p of the codes that the leading outputs are to be.
        seed: of the draws.
        steps: of Adam, of a batch each.

    Time O(k³ + b k (b + k)) a step, for batches of b = 1,024 rows.
    """
    torch.manual_seed(derive_seed(seed, "rotation"))
    draws, device = generator(seed, "rotation"), model.device
    lengths = sorted({*n_leading, model.n_bits})
    start = torch.linalg.qr(torch.randn(model.n_bits, model.n_bits))[0].to(device)
    free = torch.zeros_like(start, requires_grad=True)
    optimizer = torch.optim.Adam([free])
    model.train()
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = _RATE * (1 - step / steps)
        rows = draws.permutation(len(images))[:_BATCH]
        rows = rows[np.unique(images[rows].numpy(), return_index=True)[1]]
        with torch.no_grad():
            outputs = model({modality: values[rows].to(device) for modality, values in inputs.items()})
        rotation = start @ torch.matrix_exp(free - free.T)
        rotated = {modality: values @ rotation for modality, values in outputs.items()}
        loss = torch.stack([_of_signs(rotated, length) for length in lengths]).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        rotation = start @ torch.matrix_exp(free - free.T)
        for modality in inputs:
            head: Any = model.branch(modality).head
            head[-1].rotate(rotation)
    model.eval()


def _of_signs(outputs: dict[str, Tensor], length: int) -> Tensor:
    bits = {modality: _signs(values[:, :length]) for modality, values in outputs.items()}
    return contrastive_term(bits, next(iter(bits.values()))[:, :0])


def _signs(codes: Tensor) -> Tensor:
    """Return the signs of ``(n, k)`` codes, −1 or 1, with the gradient of tanh (a straight-through estimate).

    Codes are scaled to a mean square of 1 in each row before the tanh, so their length does not matter.

    >>> _signs(torch.tensor([[0.5, -2.0]])).tolist()
    [[1.0, -1.0]]
    """
    soft = torch.tanh(unit_rows(codes) * codes.shape[1] ** 0.5)
    hard = torch.where(codes >= 0, 1.0, -1.0).to(codes.dtype)
    return soft + (hard - soft).detach()
