"""Text encoders: texts to token ids, and these to features; 0 is padding, a text without tokens has a finite code."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from channelhash.text.tokens import PUNCTUATION, Vocabulary, encode_vocabulary

_STEPS = [
    "lower-case the text and split it at white space (Unicode's)",
    "strip the characters of `punctuation` from both ends of every word; leave out words of which nothing is left",
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
        return torch.from_numpy(encode_vocabulary(list(texts), self.vocabulary, self.max_tokens))

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        words = list(self.vocabulary.words)
        return dict(
            kind="vocabulary",
            steps=_STEPS,
            punctuation=PUNCTUATION,
            max_tokens=self.max_tokens,
            padding=0,
            words=words,
        )


class BagOfTags(nn.Module):
    """Mean of learned token vectors: ``(n, m)`` token ids to ``(n, n_features)``; order does not matter.

    Args:
        n_tokens: largest token id.
        n_features: width of a token's vector.

    >>> bag = BagOfTags(n_tokens=5, n_features=4)
    >>> torch.equal(bag(torch.tensor([[1, 2, 0]])), bag(torch.tensor([[2, 1, 0]])))
    True
    """

    def __init__(self, n_tokens: int, n_features: int = 256) -> None:
        super().__init__()
        # padding_idx is left out of the mean, and an empty bag is zeros.
        self.tokens = nn.EmbeddingBag(n_tokens + 1, n_features, mode="mean", padding_idx=0)
        # Small at first: a word that training hardly met has little weight among words that it met.
        nn.init.normal_(self.tokens.weight, std=0.1)
        with torch.no_grad():
            self.tokens.weight[0].zero_()
        self.n_features = n_features

    def forward(self, tokens: Tensor) -> Tensor:
        if torch.onnx.is_in_onnx_export():  # ONNX has no bags with padding
            real = (tokens != 0).unsqueeze(-1).to(self.tokens.weight)
            rows = nn.functional.embedding(tokens, self.tokens.weight) * real
            return rows.sum(1) / real.sum(1).clamp_min(1)
        features: Tensor = self.tokens(tokens)
        return features


class WordTable(nn.Module):
    """Map token ``t`` to row ``t − 1`` of fixed word vectors, and token 0 (padding) to zeros.

    The vectors stay in their memory-mapped file. Rows in use are kept on the model's device: a collection's words, not
    the 3,000,000 of Google News.

    Args:
        vectors: ``(V, d)`` floats.

    >>> WordTable(np.array([[0.5, 1.0]]))(torch.tensor([[1, 0]])).tolist()
    [[[0.5, 1.0], [0.0, 0.0]]]
    """

    def __init__(self, vectors: NDArray[np.floating[Any]]) -> None:
        super().__init__()
        self.vectors = vectors
        self.register_buffer("places", torch.full((len(vectors) + 1,), -1, dtype=torch.int32), persistent=False)
        self.register_buffer("rows", torch.zeros(1, vectors.shape[1]), persistent=False)
        self.places: Tensor
        self.rows: Tensor
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
        self.places[new] = torch.arange(len(self.rows), len(self.rows) + len(new), dtype=torch.int32, device=new.device)
        self.rows = torch.cat([self.rows, torch.from_numpy(vectors).to(self.rows.device)])


class TransformerText(nn.Module):
    """One post-norm Transformer layer over token vectors, mean over the real tokens (``protocol.md`` § 2).

    Args:
        tokens: ``(n, m)`` token ids to their vectors ``(n, m, n_features)``.
        n_features: width of the Transformer.
        n_heads: attention heads.
        feed_forward: width of the feed-forward layer.
        dropout: dropout inside the Transformer.
        mask_padding: whether padding takes no part in attention; False is what the published code does.
        max_tokens: length of the longest text.

    >>> encoder = TransformerText(nn.Embedding(10, 16, padding_idx=0), n_features=16, feed_forward=32)
    >>> encoder(torch.tensor([[3, 1, 0], [0, 0, 0]])).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        tokens: nn.Module,
        n_features: int = 512,
        n_heads: int = 4,
        feed_forward: int = 2048,
        dropout: float = 0.1,
        mask_padding: bool = True,
        max_tokens: int = 128,
    ) -> None:
        super().__init__()
        self.tokens = tokens
        self.layer = nn.TransformerEncoderLayer(
            n_features, n_heads, feed_forward, dropout, activation="relu", batch_first=True, norm_first=False
        )
        self.mask_padding = mask_padding
        self.n_features = n_features
        self.register_buffer("positions", _sinusoidal_positions(max_tokens, n_features), persistent=False)
        self.positions: Tensor

    def forward(self, tokens: Tensor) -> Tensor:
        """Encode ``(n, m)`` token ids as ``(n, n_features)``; a text without tokens gives zeros."""
        real = tokens != 0
        cut = self.mask_padding and not torch.onnx.is_in_onnx_export()  # an exported network has one width
        if cut and (used := real.any(0).nonzero()).numel():
            # Masked columns without a token in any row change nothing but cost: captions have 10 tokens, not 128.
            tokens, real = tokens[:, : int(used.max()) + 1], real[:, : int(used.max()) + 1]
        hidden = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        # A row of padding alone would attend to nothing, which is NaN: the first place, padding in no other row, stays
        # visible and is left out of the mean below.
        hidden_from = torch.cat([torch.zeros_like(real[:, :1]), ~real[:, 1:]], dim=1)
        hidden = self.layer(hidden, src_key_padding_mask=hidden_from if self.mask_padding else None)
        weight = real.unsqueeze(-1).to(hidden)
        mean: Tensor = (hidden * weight).sum(1) / weight.sum(1).clamp_min(1)
        return mean


def _sinusoidal_positions(length: int, width: int) -> Tensor:
    """Compute the ``(length, width)`` positional encoding of Vaswani et al. 2017, § 3.5: sines in even, cosines in odd
    columns.

    >>> _sinusoidal_positions(2, 4)[0].tolist()
    [0.0, 1.0, 0.0, 1.0]
    """
    position = torch.arange(length, dtype=torch.float32)[:, None]
    frequency = torch.exp(torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10000.0) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(position * frequency)
    table[:, 1::2] = torch.cos(position * frequency)[:, : width // 2]
    return table
