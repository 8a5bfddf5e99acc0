"""``aligned``: a head for each side of a frozen encoder, learned from pairs of images and texts.

The heads bring the sides of any encoder into one space of k numbers, whose signs are the codes. Where the loss has
``prefixes``, the signs of the leading numbers are codes themselves.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.cliphash import UnitLength
from channelhash.models.encoders import FEATURES, Encoder, open_encoder
from channelhash.models.feature_heads import NoisyFeatures, Share, Standardize
from channelhash.models.fitted import feature_widths
from channelhash.models.hash_head import hash_head
from channelhash.models.hash_model import Branch, HashModel


def create_aligned_model(
    train: Records,
    n_bits: int,
    encoder: str = "photo-backbones",
    hidden: list[Annotated[int, Field(ge=1)]] | None = None,
    dropout: Share = 0.5,
    noise: Annotated[float, Field(ge=0)] = 0.1,
    drop_features: Share = 0.0,
) -> HashModel:
    """Create untrained heads on a frozen encoder; `fit_scales` gives them the scales of the features.

    Args:
        train: images and texts, or features with the encoder ``features``.
        n_bits: code length k.
        encoder: a word of `channelhash.models.encoders`: ``photo-backbones``, ``openclip:NAME/WEIGHTS``, ``features``.
        hidden: widths of the hidden layers of each head; ``[1024]`` if None.
        dropout: dropout after each hidden layer.
        noise: spread of Gaussian noise on the standardized features while training.
        drop_features: probability of dropping a feature while training.

    Raises:
        InputError: the records are features and the encoder takes raw items, or the other way round; the encoder has
            no side for them; or as `open_encoder`.

    >>> features = np.random.default_rng(0).normal(size=(10, 4))
    >>> train = Records(tuple("abcdefghij"), {"image": features}, np.ones((10, 1), dtype=bool), ("any",))
    >>> create_aligned_model(train, 16, "features", hidden=[8]).encode("image", features).shape
    (10, 2)
    """
    widths = feature_widths(train)
    if bool(widths) != (encoder == FEATURES):
        what = "precomputed features; take the encoder features" if widths else "no precomputed features; name another"
        raise InputError(f"model.encoder is {encoder}, but the data holds {what}")
    opened = open_encoder(encoder, widths)
    sides = {modality: side.width for modality, side in opened.sides.items() if modality in train.items}
    if not sides:
        raise InputError(f"model.encoder: {encoder} has no side for {' and '.join(train.items)}s")
    architecture: dict[str, Any] = {
        "n_bits": n_bits,
        "encoder": opened.word,
        "widths": sides,
        "hidden": [1024] if hidden is None else hidden,
        "dropout": dropout,
        "noise": noise,
        "drop_features": drop_features,
    }
    form = {key: architecture[key] for key in ("hidden", "dropout", "noise", "drop_features")}
    return HashModel("aligned", n_bits, architecture, _branches(opened, sides, n_bits, form))


def build_aligned_branches(n_bits: int, encoder: str, widths: dict[str, int], **form: Any) -> dict[str, Branch]:
    """Build the branches from the complete architecture; the encoder's weights are loaded again."""
    return _branches(open_encoder(encoder, widths), widths, n_bits, form)


def _branches(encoder: Encoder, widths: Mapping[str, int], n_bits: int, form: Mapping[str, Any]) -> dict[str, Branch]:
    branches = {}
    for modality, width in widths.items():
        side = encoder.sides[modality]
        unit = UnitLength() if encoder.one_space else nn.Identity()
        head = nn.Sequential(unit, Standardize(width), projection(width, n_bits, **form))
        branches[modality] = Branch(side.prepare, side.network, head)
    return branches


def projection(
    width: int, n_bits: int, hidden: list[int], dropout: float, noise: float, drop_features: float
) -> nn.Module:
    """Make what takes standardized features ``(n, width)`` to ``(n, n_bits)``: the form of the heads.

    >>> [type(layer).__name__ for layer in projection(8, 4, [16], dropout=0.5, noise=0.1, drop_features=0.0)]
    ['NoisyFeatures', 'Linear', 'GELU', 'Dropout', 'Linear']
    """
    layers = hash_head([width, *hidden, n_bits], dropout, "gelu")
    return nn.Sequential(NoisyFeatures(noise, drop_features), *layers)


def fit_scales(model: HashModel, inputs: Mapping[str, Tensor]) -> None:
    """Set the mean and the spread by which heads standardize.

    Args:
        model: an ``aligned`` model without frozen encoders (`HashModel.on_features`).
        inputs: modality -> prepared inputs of training rows.
    """
    for modality, rows in inputs.items():
        branch = model.branch(modality)
        head: Any = branch.head
        unit, standardize, _ = head
        standardize.fit(unit(branch.encoder(rows)))
