"""OpenCLIP's models as two encoders into one embedding space."""

import importlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from channelhash.data.images import Resize
from channelhash.errors import InputError, JobError
from channelhash.models.backbones import Normalize, read_weights, weights_source
from channelhash.utils.files import one_line
from channelhash.utils.typed_settings import unknown

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
        features: Tensor = self.clip.encode_text(tokens)  # type: ignore[operator]
        return features


def load_open_clip(name: str, pretrained: str | None, preprocess: Preprocess = "openclip") -> _OpenClip:
    """Load a model of OpenCLIP.

    Args:
        name: a name that OpenCLIP knows, or a JSON file in its format for model configurations.
        pretrained: a tag such as ``"dfn5b"``, a file with the model's weights, ``TAG@FILE`` for the weights of a tag
            from a file, or None for random weights.
        preprocess: see `Preprocess`; a file without a tag has the configuration of the architecture.

    Raises:
        InputError: name or tag is unknown (the nearest one is named), or a file's weights do not fit.
        JobError: the weights cannot be fetched.
    """
    open_clip = _library()
    if name.endswith(".json"):
        name = _register(Path(name))
    elif name not in open_clip.list_models():
        raise InputError(unknown(f"model.backbone {name!r}", name, open_clip.list_models()))
    tag, file = weights_source(pretrained) if pretrained else (None, None)
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag is not None and tag not in tags:
        raise InputError(unknown(f"model.pretrained {tag!r} of {name}", tag, tags or ["none"]))
    with _quiet():
        try:
            source = str(file) if file else tag
            clip = open_clip.create_model(name, pretrained=source, device=torch.get_default_device())
            tokenize = _tokenizer(name, json.dumps(open_clip.get_model_config(name)))
        except Exception as error:  # OpenCLIP, torch, pickle and the hub each have their own types
            if file:
                read_weights(file)  # says so where the file is no weights at all
                raise InputError(f"{file}: the weights do not fit {name} ({one_line(error)[:200]})") from None
            where = f"model.pretrained: {tag} of {name}"
            raise JobError(
                f"{where} cannot be fetched ({one_line(error)}); fetch it elsewhere and give {tag}@FILE"
            ) from None
    options = {**clip.visual.preprocess_cfg, **(open_clip.get_pretrained_cfg(name, tag) if tag else {})}
    visual, config = clip.visual, open_clip.get_model_config(name)
    del clip.visual
    return _OpenClip(
        image=nn.Sequential(Normalize(tuple(options["mean"]), tuple(options["std"])), visual),
        text=_TextTower(clip),
        resize=_resize(visual.image_size, options, preprocess),
        tokenize=tokenize,
        n_features=int(config["embed_dim"]),
    )


@lru_cache(maxsize=8)
def _tokenizer(name: str, config: str) -> Callable[[Sequence[str]], Tensor]:
    """Make the tokenizer of a model once for each configuration that its name has had; some are on the hub."""
    open_clip = _library()
    tokenize: Callable[[Sequence[str]], Tensor] = open_clip.get_tokenizer(name)
    return tokenize


def _resize(image_size: Any, options: dict[str, Any], preprocess: Preprocess) -> Resize:
    height, width = image_size if isinstance(image_size, tuple | list) else (image_size, image_size)
    if height != width:
        raise InputError(f"model.backbone: takes pictures of {width} x {height} pixels; only squares are supported")
    if preprocess == "paper":
        return Resize(int(height))
    fill = int(options.get("fill_color", 0))
    return Resize(int(height), filter=options["interpolation"], mode=options["resize_mode"], fill=fill)


def _register(path: Path) -> str:
    open_clip = _library()
    try:
        text = path.read_text(encoding="utf-8")
        keys = json.loads(text).keys()
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"model.backbone: {path}: not a readable JSON file ({error})") from None
    if "trust_remote_code" in json.dumps(json.loads(text)):  # OpenCLIP hands such keys to a tokenizer's loader
        raise InputError(f"model.backbone: {path}: asks to trust_remote_code, which is never done; remove the key")
    if missing := {"embed_dim", "vision_cfg", "text_cfg"} - keys:
        raise InputError(f"model.backbone: {path}: no model configuration of OpenCLIP, {min(missing)} is missing")
    open_clip.add_model_config(path)
    return path.stem


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep OpenCLIP from logging to the root logger what is an error here, or was requested."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _library() -> Any:
    """Import the library: seconds, which other models do not wait for."""
    import channelhash.utils.torchvision_compat  # noqa: F401  before open_clip, which imports torchvision

    return importlib.import_module("open_clip")
