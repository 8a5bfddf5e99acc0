"""``small``: a convolutional image encoder and a text encoder trained from scratch, for a laptop."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from channelhash.data.images import Square
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import hash_head
from channelhash.models.text_encoders import BagOfTags, TransformerText, VocabularyTokens
from channelhash.text.tokens import Vocabulary
from channelhash.utils.typed_settings import Count


class _SmallConvNet(nn.Module):
    """Four strided convolution blocks trained from scratch, for the embedded data set and small collections.

    ``(n, 3, s, s)`` pixels (uint8, or floats in [0, 1]) to ``(n, n_features)``. Group normalisation rather than batch
    normalisation: a code depends on its own image alone, in training too.

    >>> _SmallConvNet(width=8)(torch.zeros(2, 3, 32, 32, dtype=torch.uint8)).shape
    torch.Size([2, 128])
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = [width, 2 * width, 4 * width, 4 * width]
        blocks: list[nn.Module] = []
        for n_in, n_out in zip([3, *widths[:-1]], widths, strict=True):
            blocks += [
                nn.Conv2d(n_in, n_out, 3, stride=2, padding=1),
                nn.GroupNorm(8, n_out),
                nn.ReLU(),
            ]
        self.blocks = nn.Sequential(*blocks)
        # A 2 × 2 grid keeps "above" and "below": sky over sea is not sea over sky.
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.n_features = 4 * widths[-1]

    def forward(self, pixels: Tensor) -> Tensor:
        maps: Tensor = self.blocks((unit_pixels(pixels) - 0.5) / 0.25)
        pooled: Tensor = _quarters(maps) if torch.onnx.is_in_onnx_export() else self.pool(maps)
        return pooled.flatten(1)


def _quarters(maps: Tensor) -> Tensor:
    """Compute ``AdaptiveAvgPool2d(2)`` of square maps ``(n, c, s, s)`` as ``(n, c, 4)``.

    ONNX has no such pooling for odd sides, whose quarters overlap in the middle.
    """
    side = int(maps.shape[-1])
    halves = (slice(0, (side + 1) // 2), slice(side // 2, side))
    return torch.stack([maps[:, :, rows, columns].mean((2, 3)) for rows in halves for columns in halves], dim=2)


def unit_pixels(pixels: Tensor) -> Tensor:
    """Convert pixels to floats in [0, 1]: divide uint8 by 255, return floats unchanged.

    >>> unit_pixels(torch.tensor([0, 255], dtype=torch.uint8)).tolist()
    [0.0, 1.0]
    """
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels


def create_small_model(
    train: Records,
    n_bits: int,
    image_size: Count = 64,
    width: Count = 32,
    text_encoder: Literal["bag", "transformer"] = "bag",
    text_width: Count = 256,
    min_count: int = 2,
    max_tokens: Count = 64,
    hidden: list[Count] | None = None,
    dropout: float = 0.1,
) -> HashModel:
    """Create an untrained small model for the modalities of ``train``.

    Args:
        train: training records, whose words are the vocabulary; all others are dropped.
        n_bits: code length k.
        image_size: side of the images in pixels.
        width: channels of the first convolution, a multiple of 8.
        text_encoder: mean of token vectors, or one Transformer layer.
        text_width: width of a token's vector; for the Transformer a multiple of 4.
        min_count: occurrences that a word needs to enter the vocabulary.
        max_tokens: longer texts are cut.
        hidden: widths of the head's hidden layers; ``[512]`` if None.
        dropout: dropout in the heads.

    Raises:
        InputError: a setting is out of range, or no training word is frequent enough.

    >>> import numpy as np
    >>> train = Records(("a", "b"), {"text": ("a dog", "a cat")}, np.ones((2, 1), dtype=bool), ("animal",))
    >>> create_small_model(train, n_bits=12, min_count=1).encode_texts(["a dog", "two cats"]).shape
    (2, 2)
    """
    if n_bits < 1:
        raise InputError(f"model.n_bits is {n_bits}: a code has at least 1 bit")
    if width % 8:  # groups of the normalisation
        raise InputError(f"model.width is {width}; choose a multiple of 8")
    if text_encoder == "transformer" and text_width % 4:  # attention heads
        raise InputError(f"model.text_width is {text_width}; choose a multiple of 4 for a Transformer")
    vocabulary: list[str] = []
    if "text" in train.items:
        vocabulary = list(Vocabulary.from_texts(map(str, train.items["text"]), min_count=min_count).words)
        if not vocabulary:
            raise InputError(f"model.min_count: no word occurs {min_count} times in the {len(train)} training texts")
    architecture: dict[str, Any] = dict(n_bits=n_bits, modalities=list(train.items), image_size=image_size, width=width)
    architecture |= dict(text_encoder=text_encoder, text_width=text_width, vocabulary=vocabulary)
    architecture |= dict(max_tokens=max_tokens, hidden=[512] if hidden is None else hidden, dropout=dropout)
    return HashModel("small", n_bits, architecture, build_small_branches(**architecture))


def build_small_branches(
    n_bits: Count,
    modalities: list[str],
    image_size: Count,
    width: Count,
    text_encoder: str,
    vocabulary: list[str],
    max_tokens: Count,
    hidden: list[Count],
    dropout: float,
    text_width: Count,
) -> dict[str, Branch]:
    """Build the branches of a small model from its complete architecture; see `create_small_model`."""
    branches = {}
    if "image" in modalities:
        image_encoder = _SmallConvNet(width)
        head = hash_head([image_encoder.n_features, *hidden, n_bits], dropout)
        branches["image"] = Branch(Square(image_size), image_encoder, head)
    if "text" in modalities:
        encoder: BagOfTags | TransformerText
        if text_encoder == "bag":
            encoder = BagOfTags(len(vocabulary), text_width)
        else:
            table = nn.Embedding(len(vocabulary) + 1, text_width, padding_idx=0)
            encoder = TransformerText(table, text_width, feed_forward=2 * text_width, max_tokens=max_tokens)
        prepare = VocabularyTokens(Vocabulary(tuple(vocabulary)), max_tokens)
        branches["text"] = Branch(prepare, encoder, hash_head([text_width, *hidden, n_bits], dropout))
    return branches
