"""Heads on features: those of the models ``features`` and ``aligned``.

``aligned`` has a head for each side of a frozen encoder, learned from pairs of images and texts.
The heads bring the sides of any encoder into one space of k numbers, whose signs are the codes.
``nested`` lengths of them are codes, too.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn

from channelhash.channels import unit_rows
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.losses import ContrastiveLoss
from channelhash.models.description import FEATURES
from channelhash.models.encoders import open_encoder
from channelhash.models.extractors import Extractor, FeatureRows, absolute_names
from channelhash.models.fitted import feature_widths
from channelhash.models.hash_model import Branch, HashModel
from channelhash.utils.array_files import SparseRows
from channelhash.utils.seeds import derive_seed, generator

#: Initial weights of a head.
Initial = Literal["paper", "pytorch"]
#: A number in [0, 1].
_Share = Annotated[float, Field(ge=0, le=1)]
# Of the rotation of outputs.
_BATCH = 1024
_RATE = 3e-3


def hash_head(
    widths: Sequence[int], dropout: float = 0.1, initial: Initial = "paper"
) -> nn.Sequential:
    """Make linear layers, with tanh and dropout after each except the last (§ 4).

    Args:
        widths: input width, hidden widths, number of bits; e.g. ``[2048, 4096, 4096, 32]``.
        dropout: probability of dropping a hidden unit.
        initial: ``paper`` draws Xavier-normal weights with gain 5/3 inside and He-normal ones in
            the last layer, and biases are zero; ``pytorch`` keeps what a linear layer draws,
            weights and biases within ± 1/√n_in.

    >>> [type(layer).__name__ for layer in hash_head([8, 16, 4])]
    ['Linear', 'Tanh', 'Dropout', 'Linear']
    """
    layers: list[nn.Module] = []
    for i, (n_in, n_out) in enumerate(pairwise(widths)):
        linear = nn.Linear(n_in, n_out)
        is_last = i == len(widths) - 2
        if initial == "paper":
            nn.init.zeros_(linear.bias)
            if is_last:
                nn.init.kaiming_normal_(linear.weight)
            else:
                nn.init.xavier_normal_(linear.weight, gain=5 / 3)
        layers += [linear] if is_last else [linear, nn.Tanh(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


class _Standardize(nn.Module):
    """Subtract the training mean and divide by the training spread, column by column; saved with
    the weights.

    >>> standardize = _Standardize(1)
    >>> standardize.fit([[0.0], [4.0]])
    >>> standardize(torch.tensor([[4.0]])).tolist()
    [[1.0]]
    """

    def __init__(self, n_features: int) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(n_features))
        self.scale = nn.Buffer(torch.ones(n_features))

    def fit(self, features: Any) -> None:
        """Set mean and standard deviation to those of ``features`` ``(n, d)``; constant columns
        keep their scale.

        Constant is also what varies by less than a millionth of the widest column: the rounding of
        the network before.
        """
        values = (
            features if isinstance(features, SparseRows) else np.asarray(features, dtype=np.float64)
        )
        spread = values.std(axis=0)
        self.mean.copy_(torch.from_numpy(values.mean(axis=0)))
        self.scale.copy_(
            torch.from_numpy(
                np.where(spread > max(1e-12, 1e-6 * spread.max(initial=0)), spread, 1.0)
            )
        )

    def forward(self, features: Tensor) -> Tensor:
        """Standardize ``(n, d)`` features."""
        return (features.to(self.mean.dtype) - self.mean) / self.scale


def create_features_model(
    train: Records,
    n_bits: int,
    hidden: list[int] | None = None,
    dropout: float = 0.1,
    standardize: bool = True,
    extractors: Annotated[dict[str, str], AfterValidator(absolute_names)] | None = None,
    initial: Initial = "paper",
) -> HashModel:
    """Create an untrained hash head for each modality of ``train``.

    Args:
        train: training records whose items are feature arrays ``(n, d)``.
        n_bits: code length k.
        hidden: widths of the hidden layers; ``[1024, 1024]`` if None.
        dropout: dropout after each hidden layer.
        standardize: scale every feature to mean 0 and spread 1 over the training rows.
        extractors: modality -> ``KIND:WHAT``, the extractor of its features, so that new raw items
            can be encoded (`channelhash.models.extractors`).
        initial: initial weights, see `hash_head`.

    Raises:
        InputError: the records are images and texts, not features; or an extractor's name is wrong.

    >>> features = np.random.default_rng(0).normal(size=(10, 4))
    >>> labels = np.ones((10, 1), dtype=bool)
    >>> train = Records(tuple("abcdefghij"), {"image": features}, labels, ("any",))
    >>> create_features_model(train, n_bits=16, hidden=[8]).encode("image", features).shape
    (10, 2)
    """
    widths = feature_widths(train)
    for modality in train.items:
        if modality not in widths:
            raise InputError(
                f"model.name: 'features' needs precomputed {modality} features; use data.kind "
                "'features'"
            )
    hidden = [1024, 1024] if hidden is None else hidden
    architecture: dict[str, Any] = dict(
        n_bits=n_bits, widths=widths, hidden=hidden, dropout=dropout
    )
    if extractors:
        architecture["extractors"] = absolute_names(extractors)
        for modality, name in extractors.items():
            Extractor(name, modality).check_file()
    model = HashModel(
        "features", n_bits, architecture, build_features_branches(**architecture, initial=initial)
    )
    if standardize:
        for modality, branch in model.branches.items():
            branch.encoder.fit(train.items[modality])  # type: ignore[union-attr, operator]
    return model


def build_features_branches(
    n_bits: int,
    widths: dict[str, int],
    hidden: list[int],
    dropout: float,
    extractors: dict[str, str] | None = None,
    initial: Initial = "paper",
) -> dict[str, Branch]:
    """Build the branches of a feature model from its complete architecture; ``widths`` maps a
    modality to its d.
    """
    named = {}
    for modality, name in (extractors or {}).items():
        if modality not in widths:
            raise InputError(f"model.extractors.{modality}: this model has no {modality} features")
        named[modality] = Extractor(name, modality, widths[modality])
    branches = {}
    for modality, width in widths.items():
        head = hash_head([width, *hidden, n_bits], dropout, initial)
        branches[modality] = Branch(
            FeatureRows(modality, width, named.get(modality)), _Standardize(width), head
        )
    return branches


class _NoisyFeatures(nn.Module):
    """Change standardized features at random while training: Gaussian noise is added, then some
    columns are dropped.

    >>> _NoisyFeatures(noise=0.5, dropout=0.0).eval()(torch.ones(1, 2)).tolist()
    [[1.0, 1.0]]
    """

    def __init__(self, noise: float, dropout: float) -> None:
        super().__init__()
        self.noise = noise
        self.dropout = dropout

    def forward(self, features: Tensor) -> Tensor:
        """Change ``(n, d)`` features in training mode; the draws are those of PyTorch's
        generator.
        """
        if not self.training:
            return features
        noisy = features + self.noise * torch.randn_like(features) if self.noise else features
        return nn.functional.dropout(noisy, self.dropout)


class UnitLength(nn.Module):
    """Divide rows by their Euclidean norm.

    >>> [round(value, 1) for value in UnitLength()(torch.tensor([[3.0, 4.0]]))[0].tolist()]
    [0.6, 0.8]
    """

    def forward(self, features: Tensor) -> Tensor:
        """Scale ``(n, d)`` features."""
        return nn.functional.normalize(features, dim=1)


class _Both(nn.Module):
    """The sum of a linear map and an MLP with GELU and dropout: ``(n, width)`` to ``(n, n_bits)``.

    >>> _Both(8, 4, hidden=[16], dropout=0.3)(torch.ones(2, 8)).shape
    torch.Size([2, 4])
    """

    def __init__(self, width: int, n_bits: int, hidden: list[int], dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n_in, n_out in zip([width, *hidden], hidden, strict=False):
            layers += [nn.Linear(n_in, n_out), nn.GELU(), nn.Dropout(dropout)]
        self.mlp = nn.Sequential(*layers, nn.Linear(hidden[-1] if hidden else width, n_bits))
        self.linear = nn.Linear(width, n_bits)

    def forward(self, features: Tensor) -> Tensor:
        """Compute the sum."""
        return cast(Tensor, self.linear(features) + self.mlp(features))

    @torch.no_grad()
    def rotate(self, rotation: Tensor) -> None:
        """Rotate all future outputs by ``rotation`` ``(n_bits, n_bits)``."""
        last: Any = self.mlp[-1]
        for layer in (self.linear, last):
            layer.weight.copy_(rotation.T @ layer.weight)
            layer.bias.copy_(layer.bias @ rotation)


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
    """Create untrained heads on a frozen encoder; `fit_scales` gives them the scales of the
    features.

    Args:
        train: images and texts, or features with the encoder ``features``.
        n_bits: code length k.
        encoder: a word of `channelhash.models.encoders`: ``photo-backbones``,
            ``openclip:NAME/WEIGHTS``, ``features``.
        hidden: widths of the hidden layers of each head; ``[900]`` if None.
        dropout: dropout after each hidden layer.
        noise: spread of Gaussian noise on the standardized features while training.
        drop_features: probability of dropping a feature while training.
        nested: numbers p < k of leading outputs whose signs are to be codes, too: after the
            training, outputs are rotated to that end, which changes no cosine (`rotate_outputs`).
            For losses of cosines, such as ``contrastive``, alone.

    Raises:
        InputError: ``nested`` names more than k outputs; the records are features and the encoder
            takes raw items, or the other way round; the encoder has no side for them; or as
            `open_encoder`.

    >>> features = np.random.default_rng(0).normal(size=(10, 4))
    >>> labels = np.ones((10, 1), dtype=bool)
    >>> train = Records(tuple("abcdefghij"), {"image": features}, labels, ("any",))
    >>> create_aligned_model(train, 16, "features", hidden=[8]).encode("image", features).shape
    (10, 2)
    """
    if nested and max(nested) > n_bits:
        raise InputError(f"model.nested: {max(nested)} of {n_bits} outputs; name fewer")
    widths = feature_widths(train)
    if bool(widths) != (encoder == FEATURES):
        remedy = "no precomputed features; name another"
        if widths:
            remedy = "precomputed features; take the encoder features"
        raise InputError(f"model.encoder is {encoder}, but the data holds {remedy}")
    opened = open_encoder(encoder, widths)
    sides = {name: side.width for name, side in opened.sides.items() if name in train.items}
    if not sides:
        raise InputError(f"model.encoder: {encoder} has no side for {' and '.join(train.items)}s")
    architecture: dict[str, Any] = dict(
        n_bits=n_bits, encoder=opened.word, widths=sides, dropout=dropout, noise=noise
    )
    architecture |= dict(hidden=[900] if hidden is None else hidden, drop_features=drop_features)
    if nested:
        architecture["nested"] = nested
    return HashModel(
        "aligned", n_bits, architecture, build_aligned_branches(**architecture, opened=opened)
    )


def build_aligned_branches(
    n_bits: int,
    encoder: str,
    widths: dict[str, int],
    hidden: list[int],
    dropout: float,
    noise: float,
    drop_features: float,
    nested: list[int] | None = None,
    opened: Any = None,
) -> dict[str, Branch]:
    """Build the branches from the complete architecture; the encoder's weights are loaded again
    unless it is opened.
    """
    opened = opened or open_encoder(encoder, widths)
    branches = {}
    for modality, width in widths.items():
        side = opened.sides[modality]
        head = nn.Sequential(
            UnitLength() if opened.one_space else nn.Identity(),
            _Standardize(width),
            _NoisyFeatures(noise, drop_features),
            _Both(width, n_bits, hidden, dropout),
        )
        branches[modality] = Branch(side.prepare, side.module(), head)
    return branches


def fit_scales(model: HashModel, inputs: Mapping[str, Tensor]) -> None:
    """Set the mean and the spread by which heads standardize."""
    for modality, rows in inputs.items():
        branch = model.branch(modality)
        head: Any = branch.head
        unit, standardize, *_ = head
        standardize.fit(unit(branch.encoder(rows)))


def rotate_outputs(
    model: HashModel,
    inputs: dict[str, Tensor],
    images: Tensor,
    n_leading: Sequence[int],
    seed: int,
    steps: int = 300,
) -> None:
    """Learn a rotation R of the outputs of both sides and make it part of their heads.

    R is a random rotation times e^(A − Aᵀ), and A minimises the mean over p of InfoNCE
    (`ContrastiveLoss`) of the signs of the first p rotated outputs, p in ``n_leading`` and k. Heads
    drop and disturb features as in their training, for they know the training rows too well.

    Time O(k³ + b k (b + k)) a step, for batches of b = 1,024 rows.
    """
    torch.manual_seed(derive_seed(seed, "rotation"))
    draws = generator(seed, "rotation")
    device = model.device
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
            outputs = model(
                {modality: values[rows].to(device) for modality, values in inputs.items()}
            )
        rotation = start @ torch.matrix_exp(free - free.T)
        rotated = {modality: values @ rotation for modality, values in outputs.items()}
        loss = torch.stack([_of_signs(rotated, length) for length in lengths]).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        rotation = start @ torch.matrix_exp(free - free.T)
        for modality in inputs:
            model.branch(modality).head[-1].rotate(rotation)  # type: ignore[index]
    model.eval()


def _of_signs(outputs: dict[str, Tensor], length: int) -> Tensor:
    bits = {modality: _signs(values[:, :length]) for modality, values in outputs.items()}
    return cast(Tensor, ContrastiveLoss()(bits, next(iter(bits.values()))[:, :0]))


def _signs(codes: Tensor) -> Tensor:
    """Return the signs of ``(n, k)`` codes, −1 or 1, with the gradient of tanh (a straight-through
    estimate).

    Codes are scaled to a mean square of 1 in each row before the tanh, so their length does not
    matter.

    >>> _signs(torch.tensor([[0.5, -2.0]])).tolist()
    [[1.0, -1.0]]
    """
    soft = torch.tanh(unit_rows(codes) * codes.shape[1] ** 0.5)
    hard = torch.where(codes >= 0, 1.0, -1.0).to(codes.dtype)
    return soft + (hard - soft).detach()
