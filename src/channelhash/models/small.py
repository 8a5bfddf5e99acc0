"""``small``: a convolutional image encoder and a text encoder trained from scratch, for a laptop;
and the text encoders of other models.

Token id 0 is padding; a text without tokens has a finite code.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from channelhash.data.images import square
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.backbones import unit_pixels
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import hash_head
from channelhash.text.words import PUNCTUATION, Vocabulary
from channelhash.utils.typed_settings import PositiveCount

_STEPS = [
    "lower-case the text and split it at white space (Unicode's)",
    (
        "strip the characters of `punctuation` from both ends of every word; leave out words of "
        "which nothing is left"
    ),
    "the token of words[i] is i + 1; leave out words that are not there",
    "keep the first max_tokens tokens, fill up with padding",
]


@dataclass(frozen=True)
class VocabularyTokens:
    """Look up words in ``vocabulary``; texts -> ``(n, max_tokens)`` int32, 0 is padding.

    >>> VocabularyTokens(Vocabulary(("dog", "cat")), max_tokens=3)(["a cat"]).tolist()
    [[2, 0, 0]]
    """

    vocabulary: Vocabulary
    max_tokens: int

    def __call__(self, texts: Sequence[str]) -> Tensor:
        return torch.from_numpy(self.vocabulary.encode(texts, self.max_tokens))

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        form = dict(
            kind="vocabulary", steps=_STEPS, punctuation=PUNCTUATION, max_tokens=self.max_tokens
        )
        return form | dict(padding=0, words=list(self.vocabulary.words))


class _BagOfTags(nn.Module):
    """Mean of learned token vectors: ``(n, m)`` token ids to ``(n, n_features)``; order does not
    matter.

    >>> bag = _BagOfTags(n_tokens=5, n_features=4)
    >>> torch.equal(bag(torch.tensor([[1, 2, 0]])), bag(torch.tensor([[2, 1, 0]])))
    True
    """

    def __init__(self, n_tokens: int, n_features: int = 256) -> None:
        super().__init__()
        # padding_idx is left out of the mean, and an empty bag is zeros.
        self.tokens = nn.EmbeddingBag(n_tokens + 1, n_features, mode="mean", padding_idx=0)
        # Small at first: a rare word of the training then weighs little beside frequent ones.
        nn.init.normal_(self.tokens.weight, std=0.1)
        with torch.no_grad():
            self.tokens.weight[0].zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        if torch.onnx.is_in_onnx_export():  # ONNX has no bags with padding
            real = (tokens != 0).unsqueeze(-1).to(self.tokens.weight)
            rows = nn.functional.embedding(tokens, self.tokens.weight) * real
            return rows.sum(1) / real.sum(1).clamp_min(1)
        return cast(Tensor, self.tokens(tokens))


class TransformerText(nn.Module):
    """One post-norm Transformer layer of 4 heads over token vectors, mean over the real tokens
    (``protocol.md`` § 2).

    >>> table = nn.Embedding(10, 16, padding_idx=0)
    >>> encoder = TransformerText(table, n_features=16, feed_forward=32)
    >>> encoder(torch.tensor([[3, 1, 0], [0, 0, 0]])).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        tokens: nn.Module,
        n_features: int = 512,
        feed_forward: int = 2048,
        dropout: float = 0.1,
        mask_padding: bool = True,
        max_tokens: int = 128,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.layer = nn.TransformerEncoderLayer(
            n_features, 4, feed_forward, dropout, "relu", batch_first=True
        )
        self.mask_padding = mask_padding
        self.positions = nn.Buffer(_sinusoidal_positions(max_tokens, n_features), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode ``(n, m)`` token ids as ``(n, n_features)``; a text without tokens gives zeros."""
        real = tokens != 0
        # An exported network has one width.
        if self.mask_padding and not torch.onnx.is_in_onnx_export():
            # Masked columns without a token in any row change nothing but cost: captions have 10
            # tokens, not 128.
            used = real.any(0).nonzero()
            n_used = int(used.max()) + 1 if used.numel() else tokens.shape[1]
            tokens = tokens[:, :n_used]
            real = real[:, :n_used]
        hidden = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        # A row of padding alone would attend to nothing, which is NaN: the first place, padding in
        # no other row, stays visible and is left out of the mean below.
        hidden_from = torch.cat([torch.zeros_like(real[:, :1]), ~real[:, 1:]], dim=1)
        hidden = self.layer(hidden, src_key_padding_mask=hidden_from if self.mask_padding else None)
        weight = real.unsqueeze(-1).to(hidden)
        return cast(Tensor, (hidden * weight).sum(1) / weight.sum(1).clamp_min(1))


class WordTable(nn.Module):
    """Map token ``t`` to row ``t − 1`` of fixed word vectors, and token 0 (padding) to zeros.

    The vectors stay in their memory-mapped file. Rows in use are kept on the model's device: a
    collection's words, not the 3,000,000 of Google News.

    >>> WordTable(np.array([[0.5, 1.0]]))(torch.tensor([[1, 0]])).tolist()
    [[[0.5, 1.0], [0.0, 0.0]]]
    """

    def __init__(self, vectors: NDArray[np.floating[Any]]) -> None:
        super().__init__()
        self.vectors = vectors
        self.places = nn.Buffer(
            torch.full((len(vectors) + 1,), -1, dtype=torch.int32), persistent=False
        )
        self.rows: Tensor = nn.Buffer(torch.zeros(1, vectors.shape[1]), persistent=False)
        self.places[0] = 0

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up ``(n, m)`` token ids; ``(n, m, d)`` float32."""
        places = self.places[tokens.long()]
        if (places < 0).any():
            self._fetch(torch.unique(tokens.long()))
            places = self.places[tokens.long()]
        return self.rows[places.long()]

    def _fetch(self, tokens: Tensor) -> None:
        new = tokens[self.places[tokens] < 0]
        vectors = np.asarray(self.vectors[new.cpu().numpy() - 1], dtype=np.float32)
        self.places[new] = torch.arange(
            len(self.rows), len(self.rows) + len(new), dtype=torch.int32, device=new.device
        )
        self.rows = torch.cat([self.rows, torch.from_numpy(vectors).to(self.rows.device)])


def _sinusoidal_positions(length: int, width: int) -> Tensor:
    """Compute the ``(length, width)`` positional encoding of Vaswani et al. 2017, § 3.5: sines in
    even, cosines in odd columns.

    >>> _sinusoidal_positions(2, 4)[0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    position = torch.arange(length, dtype=torch.float32)[:, None]
    frequency = torch.exp(
        torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10000.0) / width)
    )
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)[:, : width // 2]
    return table


class _SmallConvNet(nn.Module):
    """Four strided convolution blocks trained from scratch, for the embedded data set and small
    collections.

    ``(n, 3, s, s)`` pixels (uint8, or floats in [0, 1]) to ``(n, n_features)``. Group normalisation
    rather than batch normalisation: a code depends on its own image alone, in training too.

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
    quarters = [maps[:, :, rows, columns].mean((2, 3)) for rows, columns in product(halves, halves)]
    return torch.stack(quarters, dim=2)


def create_small_model(
    train: Records,
    n_bits: int,
    image_size: PositiveCount = 64,
    width: PositiveCount = 32,
    text_encoder: Literal["bag", "transformer"] = "bag",
    text_width: PositiveCount = 256,
    min_count: int = 2,
    max_tokens: PositiveCount = 64,
    hidden: list[PositiveCount] | None = None,
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

    >>> texts = {"text": ("a dog", "a cat")}
    >>> train = Records(("a", "b"), texts, np.ones((2, 1), dtype=bool), ("animal",))
    >>> create_small_model(train, n_bits=12, min_count=1).encode_texts(["a dog", "two cats"]).shape
    (2, 2)
    """
    if width % 8:  # groups of the normalisation
        raise InputError(f"model.width is {width}; choose a multiple of 8")
    if text_encoder == "transformer" and text_width % 4:  # attention heads
        raise InputError(
            f"model.text_width is {text_width}; choose a multiple of 4 for a Transformer"
        )
    architecture: dict[str, Any] = dict(
        n_bits=n_bits,
        modalities=list(train.items),
        image_size=image_size,
        width=width,
        text_encoder=text_encoder,
        text_width=text_width,
        vocabulary=_frequent_words(train, min_count),
        max_tokens=max_tokens,
        hidden=[512] if hidden is None else hidden,
        dropout=dropout,
    )
    return HashModel("small", n_bits, architecture, build_small_branches(**architecture))


def _frequent_words(train: Records, min_count: int) -> list[str]:
    """Return the words of the training texts that occur often enough; none without texts."""
    if "text" not in train.items:
        return []
    texts = map(str, train.items["text"])
    words = list(Vocabulary.from_texts(texts, min_count=min_count).words)
    if not words:
        raise InputError(
            f"model.min_count: no word occurs {min_count} times in the {len(train)} training texts"
        )
    return words


def build_small_branches(
    n_bits: PositiveCount,
    modalities: list[str],
    image_size: PositiveCount,
    width: PositiveCount,
    text_encoder: str,
    vocabulary: list[str],
    max_tokens: PositiveCount,
    hidden: list[PositiveCount],
    dropout: float,
    text_width: PositiveCount,
) -> dict[str, Branch]:
    """Build the branches of a small model from its complete architecture; see
    `create_small_model`.
    """
    branches = {}
    if "image" in modalities:
        image_encoder = _SmallConvNet(width)
        head = hash_head([image_encoder.n_features, *hidden, n_bits], dropout)
        branches["image"] = Branch(square(image_size), image_encoder, head)
    if "text" in modalities:
        encoder: _BagOfTags | TransformerText
        if text_encoder == "bag":
            encoder = _BagOfTags(len(vocabulary), text_width)
        else:
            table = nn.Embedding(len(vocabulary) + 1, text_width, padding_idx=0)
            encoder = TransformerText(
                table, text_width, feed_forward=2 * text_width, max_tokens=max_tokens
            )
        prepare = VocabularyTokens(Vocabulary(tuple(vocabulary)), max_tokens)
        branches["text"] = Branch(
            prepare, encoder, hash_head([text_width, *hidden, n_bits], dropout)
        )
    return branches
