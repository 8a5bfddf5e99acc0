"""``aligned``: a head for each side of a frozen encoder, learned from pairs of images and texts.

The heads bring the sides of any encoder into one space of k numbers, whose signs are the codes. ``nested`` lengths of
them are codes, too.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from channelhash.channels import unit_rows
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.losses.contrastive import contrastive_term
from channelhash.models.backbones import Frozen, Tower
from channelhash.models.description import FEATURES
from channelhash.models.encoders import Encoder, FrozenNetwork, Side, open_encoder
from channelhash.models.fitted import feature_widths
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import aligned_head
from channelhash.utils.seeds import derive_seed, generator

#: A number in [0, 1].
_Share = Annotated[float, Field(ge=0, le=1)]


def create_aligned_model(
    train: Records,
    n_bits: int,
    encoder: str = "photo-backbones",
    hidden: list[Annotated[int, Field(ge=1)]] | None = None,
    dropout: _Share = 0.4,
    noise: Annotated[float, Field(ge=0)] = 0.1,
    drop_features: _Share = 0.3,
    nested: list[Annotated[int, Field(ge=1)]] | None = None,
) -> HashModel:
    """Create untrained heads on a frozen encoder; `fit_scales` gives them the scales of the features.

    Args:
        train: images and texts, or features with the encoder ``features``.
        n_bits: code length k.
        encoder: a word of `channelhash.models.encoders`: ``photo-backbones``, ``openclip:NAME/WEIGHTS``, ``features``.
        hidden: widths of the hidden layers of each head; ``[900]`` if None.
        dropout: dropout after each hidden layer.
        noise: spread of Gaussian noise on the standardized features while training.
        drop_features: probability of dropping a feature while training.
        nested: numbers p < k of leading outputs whose signs are to be codes, too: after the training, outputs are
            rotated to that end, which changes no cosine (`channelhash.models.aligned`). Only for a loss of cosines,
            such as ``contrastive``; None never rotates.

    Raises:
        InputError: ``nested`` names more than k outputs; the records are features and the encoder takes raw items, or
            the other way round; the encoder has no side for them; or as `open_encoder`.

    >>> import numpy as np
    >>> features = np.random.default_rng(0).normal(size=(10, 4))
    >>> train = Records(tuple("abcdefghij"), {"image": features}, np.ones((10, 1), dtype=bool), ("any",))
    >>> create_aligned_model(train, 16, "features", hidden=[8]).encode("image", features).shape
    (10, 2)
    """
    if nested and max(nested) > n_bits:
        raise InputError(f"model.nested: {max(nested)} of {n_bits} outputs; name fewer")
    widths = feature_widths(train)
    if bool(widths) != (encoder == FEATURES):
        what = "precomputed features; take the encoder features" if widths else "no precomputed features; name another"
        raise InputError(f"model.encoder is {encoder}, but the data holds {what}")
    opened = open_encoder(encoder, widths)
    sides = {modality: side.width for modality, side in opened.sides.items() if modality in train.items}
    if not sides:
        raise InputError(f"model.encoder: {encoder} has no side for {' and '.join(train.items)}s")
    hidden = [900] if hidden is None else hidden
    form: dict[str, Any] = dict(hidden=hidden, dropout=dropout, noise=noise, drop_features=drop_features)
    architecture = {"n_bits": n_bits, "encoder": opened.word, "widths": sides, **form}
    if nested:
        architecture["nested"] = nested
    return HashModel("aligned", n_bits, architecture, _branches(opened, sides, n_bits, form))


def build_aligned_branches(
    n_bits: int,
    encoder: str,
    widths: dict[str, int],
    hidden: list[int],
    dropout: float,
    noise: float,
    drop_features: float,
    nested: list[int] | None = None,
) -> dict[str, Branch]:
    """Build the branches from the complete architecture; the encoder's weights are loaded again."""
    form = dict(hidden=hidden, dropout=dropout, noise=noise, drop_features=drop_features)
    return _branches(open_encoder(encoder, widths), widths, n_bits, form)


def _branches(encoder: Encoder, widths: Mapping[str, int], n_bits: int, form: Mapping[str, Any]) -> dict[str, Branch]:
    branches = {}
    for modality, width in widths.items():
        side = encoder.sides[modality]
        branches[modality] = Branch(side.prepare, _module(side), aligned_head(width, n_bits, encoder.one_space, **form))
    return branches


def _module(side: Side) -> nn.Module:
    """Return the network of an encoder's side as a module that is never trained."""
    if side.network is None:
        return nn.Identity()
    if isinstance(side.network, FrozenNetwork):
        return side.network.frozen
    tower = Tower(side.network, side.identity["weights"])
    return Frozen(tower, side.identity["name"], side.identity["inputs"], side.width)


def fit_scales(model: HashModel, inputs: Mapping[str, Tensor]) -> None:
    """Set the mean and the spread by which heads standardize."""
    for modality, rows in inputs.items():
        branch = model.branch(modality)
        head: Any = branch.head
        unit, standardize, *_ = head
        standardize.fit(unit(branch.encoder(rows)))


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
