"""``torchvision:…`` and ``open_clip:…``: features by these libraries' pre-trained models."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from channelhash.data.images import Resize
from channelhash.errors import InputError
from channelhash.models.backbones import split_source

_BATCH = 32

Extract = Callable[[Sequence[Any]], Tensor]


class TorchvisionImages:
    """``torchvision:NAME[/WEIGHTS]``: features below the classifier of images prepared as the weights expect.

    ``WEIGHTS`` is a tag (``IMAGENET1K_V2``), ``DEFAULT`` if left out, or ``TAG@FILE`` for weights from a file, whose
    images are prepared as for that tag.
    """

    modalities: ClassVar[tuple[str, ...]] = ("image",)
    options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, what: str, options: Mapping[str, str]) -> None:
        self._name, _, weights = what.partition("/")
        self._tag, self.file, self._pretrained = absolute_source(weights or "DEFAULT")
        if not self._tag:
            raise InputError("write TAG@FILE; the tag of torchvision's weights says how pictures are prepared")
        self.what = f"{self._name}/{self._pretrained}"

    def load(self, modality: str) -> Extract:
        """Return the model as a function of images."""
        from channelhash.models.torchvision_backbones import load_torchvision
        from channelhash.utils.torchvision_compat import torchvision

        encoder, _ = load_torchvision(self._name, self._pretrained)
        preset = torchvision.models.get_model_weights(self._name)[self._tag].transforms()
        (size,), (short_side,) = preset.crop_size, preset.resize_size
        return _by_batches(encoder, Resize(size, short_side, preset.interpolation.value))


class OpenClipModel:
    """``open_clip:NAME/PRETRAINED``: embeddings of a model, with its own preprocessing and tokenizer.

    ``PRETRAINED`` is a tag (``laion2b_s34b_b79k``), a file, or ``TAG@FILE`` for a tag's weights from a file.
    """

    modalities: ClassVar[tuple[str, ...]] = ("image", "text")
    options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, what: str, options: Mapping[str, str]) -> None:
        self._name, _, pretrained = what.partition("/")
        if not pretrained:
            raise InputError(f"name the weights too: open_clip:{what}/TAG, /FILE or /TAG@FILE")
        _, self.file, self._pretrained = absolute_source(pretrained)
        self.what = f"{self._name}/{self._pretrained}"

    def load(self, modality: str) -> Extract:
        """Return one tower as a function of images or texts."""
        from channelhash.models.open_clip import load_open_clip

        clip = load_open_clip(self._name, self._pretrained)
        return _by_batches(clip.image, clip.resize) if modality == "image" else _by_batches(clip.text, clip.tokenize)


def absolute_source(pretrained: str) -> tuple[str | None, Path | None, str]:
    """Return (tag, file, both in one string), the file with an absolute path.

    >>> absolute_source("openai")
    ('openai', None, 'openai')
    """
    tag, file = split_source(pretrained)
    if file is None:
        return tag, None, pretrained
    file = file.resolve()
    return tag, file, f"{tag}@{file}" if tag else str(file)


def _by_batches(network: nn.Module, prepare: Callable[[Sequence[Any]], Tensor]) -> Extract:
    """Return the network as a function of raw items, in evaluation mode and float32, on a GPU if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    network = network.eval().to(device)

    @torch.inference_mode()
    def extract(items: Sequence[Any]) -> Tensor:
        parts = [items[start : start + _BATCH] for start in range(0, len(items), _BATCH)]
        return torch.cat([network(prepare(part).to(device)).cpu() for part in parts])

    return extract
