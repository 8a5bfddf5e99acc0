"""``cliphash``: one hash head for the two towers of an OpenCLIP model (``protocol.md`` § 4); OpenCLIP's models."""

import importlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from channelhash.data.images import Resize
from channelhash.data.records import Records
from channelhash.errors import InputError, JobError
from channelhash.models.backbones import (
    Frozen,
    Normalize,
    PartlyFrozen,
    fixed_random_weights,
    read_weights,
    unfrozen,
    weights_source,
)
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import UnitLength, hash_head
from channelhash.utils.files import one_line
from channelhash.utils.typed_settings import unknown

#: ``paper``: short side to 224 bilinear, centre crop. ``openclip``: as the weights' own configuration says (§ 3).
_Preprocess = Literal["openclip", "paper"]


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


def load_open_clip(name: str, pretrained: str | None, preprocess: _Preprocess = "openclip") -> _OpenClip:
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


def _resize(image_size: Any, options: dict[str, Any], preprocess: _Preprocess) -> Resize:
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


@dataclass(frozen=True)
class PromptTokens:
    """Put texts in a prompt and tokenize them: texts -> ``(n, context)`` int64, by the OpenCLIP model's ``tokenize``.

    >>> PromptTokens("a photo of {}", lambda texts: texts)(["a dog"])
    ['a photo of a dog']
    """

    prompt: str
    tokenize: Callable[[Sequence[str]], Tensor]

    def __call__(self, texts: Sequence[str]) -> Tensor:
        return self.tokenize([self.prompt.replace("{}", text) for text in texts])

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        tokenizer = f"open_clip.{type(self.tokenize).__name__}"
        length = getattr(self.tokenize, "context_length", None)
        steps = ["put the text in the place of {} in `prompt`", "token ids as `tokenizer` gives them"]
        return dict(kind="open_clip", steps=steps, prompt=self.prompt, tokenizer=tokenizer, context_length=length)


def create_cliphash_model(
    train: Records,
    n_bits: int,
    backbone: str = "ViT-H-14-quickgelu",
    pretrained: str | None = "dfn5b",
    freeze_backbone: bool = True,
    preprocess: _Preprocess = "openclip",
    prompt: str = "{}",
    normalize: bool = False,
    hidden: list[int] | None = None,
    dropout: float = 0.1,
    unfreeze_blocks: int = 0,
) -> HashModel:
    """Create an OpenCLIP model with an untrained, shared hash head of d→4096→4096→1024→256→k.

    Args:
        train: training records; images and texts, not features.
        n_bits: code length k.
        backbone: a name that OpenCLIP knows, or a JSON file in its format for model configurations.
        pretrained: a tag of OpenCLIP, a file of weights, ``TAG@FILE``, or None for random weights.
        freeze_backbone: train the head alone.
        preprocess: prepare images as the weights' configuration says, or as in the paper.
        prompt: prompt around a text; ``{}`` stands for the text.
        normalize: scale embeddings to unit length before the head; the published code does not.
        hidden: widths of the head's hidden layers; ``[4096, 4096, 1024, 256]`` if None.
        dropout: dropout in the head.
        unfreeze_blocks: last blocks of a frozen backbone that are trained all the same, in each tower, with the layers
            behind them.

    Raises:
        InputError: backbone or weights are unknown or do not fit, the backbone has fewer blocks or is not frozen, or
            the data holds features.
    """
    check_raw_items("cliphash", n_bits, train)
    if prompt.count("{}") != 1:
        raise InputError(f"model.prompt: holds '{{}}' once, where the text goes; got {prompt!r}")
    backbone = str(Path(backbone).resolve()) if backbone.endswith(".json") else backbone
    hidden = [4096, 4096, 1024, 256] if hidden is None else hidden
    architecture: dict[str, Any] = dict(n_bits=n_bits, modalities=list(train.items), hidden=hidden, dropout=dropout)
    architecture |= dict(backbone=backbone, pretrained=pretrained, freeze_backbone=freeze_backbone)
    architecture |= dict(preprocess=preprocess, prompt=prompt, normalize=normalize)
    architecture |= unfrozen(unfreeze_blocks, freeze_backbone)
    return HashModel("cliphash", n_bits, architecture, build_cliphash_branches(**architecture, untrained=True))


def build_cliphash_branches(
    n_bits: int,
    modalities: list[str],
    backbone: str,
    pretrained: str | None,
    freeze_backbone: bool,
    preprocess: _Preprocess,
    prompt: str,
    normalize: bool,
    hidden: list[int],
    dropout: float,
    unfreeze_blocks: int = 0,
    untrained: bool = False,
) -> dict[str, Branch]:
    """Build the branches from the complete architecture; see `create_cliphash_model`.

    ``untrained`` loads the pre-trained weights of a backbone that will be trained; a saved model has trained ones.
    """
    frozen = freeze_backbone and not unfreeze_blocks
    weights = pretrained if frozen or untrained else None
    with fixed_random_weights(backbone) if frozen and weights is None else nullcontext():
        clip = load_open_clip(backbone, weights, preprocess)
    head = hash_head([clip.n_features, *hidden, n_bits], dropout)
    sides: dict[str, tuple[Callable[[Any], Tensor], nn.Module, str]] = {
        "image": (clip.resize, clip.image, str(clip.resize)),
        "text": (PromptTokens(prompt, clip.tokenize), clip.text, f"prompt {prompt!r}"),
    }
    branches = {}
    for modality in modalities:
        prepare, encoder, inputs = sides[modality]
        if normalize:
            encoder, inputs = nn.Sequential(encoder, UnitLength()), f"{inputs}, unit length"
        if frozen:
            encoder = Frozen(encoder, f"open_clip {backbone} {pretrained}, {modality}", inputs, clip.n_features)
        elif unfreeze_blocks:
            encoder = PartlyFrozen(encoder, unfreeze_blocks)
        branches[modality] = Branch(prepare, encoder, head, pretrained=True)
    return branches


def check_raw_items(name: str, n_bits: int, train: Records) -> None:
    """Raise `InputError` unless ``train`` holds raw items and codes have a bit.

    >>> check_raw_items("small", 8, Records(("a",), {"text": ("a dog",)}, np.ones((1, 1), bool), ("dog",)))
    """
    if n_bits < 1:
        raise InputError(f"model.n_bits is {n_bits}: a code has at least 1 bit")
    for modality, values in train.items.items():
        if isinstance(values, np.ndarray):
            raise InputError(f"model.name: {name!r} reads raw {modality}s, the data holds features; use 'features'")
