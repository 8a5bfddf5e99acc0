"""all-MiniLM-L6-v2 as a network: token ids to sentence embeddings, without a further library."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_WIDTH, _LAYERS, _HEADS, _EPS = 384, 6, 12, 1e-12


class SentenceTower(nn.Module):
    """BERT with 6 layers of width 384, the mean over a text's tokens, unit length.

    >>> SentenceTower().eval()(torch.tensor([[101, 7, 102, 0], [101, 7, 8, 102]])).shape
    torch.Size([2, 384])
    """

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30522, _WIDTH, padding_idx=0)
        self.places = nn.Embedding(512, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH, eps=_EPS)
        layer = nn.TransformerEncoderLayer(
            _WIDTH, _HEADS, 4 * _WIDTH, dropout=0.0, activation="gelu", layer_norm_eps=_EPS, batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, _LAYERS, enable_nested_tensor=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed ``(n, m)`` token ids, 0 for padding, as ``(n, 384)``."""
        padding = tokens == 0
        places = torch.arange(tokens.shape[1], device=tokens.device)
        inputs = self.norm(self.words(tokens) + self.places(places))
        states = self.layers(inputs, src_key_padding_mask=padding)
        counts = (~padding).sum(dim=1, keepdim=True).clamp(min=1)
        return F.normalize(states.masked_fill(padding[..., None], 0).sum(dim=1) / counts, dim=1)


def sentence_weights(published: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the published weights under the names of `SentenceTower`; every token is of the first segment."""
    segment = published["embeddings.token_type_embeddings.weight"][0]
    found = {
        "words.weight": published["embeddings.word_embeddings.weight"],
        "places.weight": published["embeddings.position_embeddings.weight"] + segment,
        "norm.weight": published["embeddings.LayerNorm.weight"],
        "norm.bias": published["embeddings.LayerNorm.bias"],
    }
    renamed = {
        "self_attn.out_proj": "attention.output.dense",
        "norm1": "attention.output.LayerNorm",
        "linear1": "intermediate.dense",
        "linear2": "output.dense",
        "norm2": "output.LayerNorm",
    }
    for number in range(_LAYERS):
        theirs, ours = f"encoder.layer.{number}", f"layers.layers.{number}"
        for kind in ("weight", "bias"):
            parts = [published[f"{theirs}.attention.self.{name}.{kind}"] for name in ("query", "key", "value")]
            found[f"{ours}.self_attn.in_proj_{kind}"] = torch.cat(parts)
            for mine, name in renamed.items():
                found[f"{ours}.{mine}.{kind}"] = published[f"{theirs}.{name}.{kind}"]
    return found
