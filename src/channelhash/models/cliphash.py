"""``cliphash``: one hash head for the two towers of an OpenCLIP model (``protocol.md`` § 4)."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models import backbones
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import UnitLength, hash_head
from channelhash.models.tdsrdh import PartlyFrozen, check_raw_items, unfrozen


def create_cliphash_model(
    train: Records,
    n_bits: int,
    backbone: str = "ViT-H-14-quickgelu",
    pretrained: str | None = "dfn5b",
    freeze_backbone: bool = True,
    preprocess: backbones.Preprocess = "openclip",
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
    check_raw_items("cliphash", train)
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
    preprocess: backbones.Preprocess,
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
    with backbones.fixed_random_weights(backbone) if frozen and weights is None else nullcontext():
        clip = backbones.load_open_clip(backbone, weights, preprocess)
    head = hash_head([clip.n_features, *hidden, n_bits], dropout)
    sides: dict[str, tuple[Callable[[Any], Tensor], nn.Module, str]] = {
        "image": (clip.resize, clip.image, str(clip.resize)),
        "text": (backbones.PromptTokens(prompt, clip.tokenize), clip.text, f"prompt {prompt!r}"),
    }
    branches = {}
    for modality in modalities:
        prepare, encoder, inputs = sides[modality]
        if normalize:
            encoder, inputs = nn.Sequential(encoder, UnitLength()), f"{inputs}, unit length"
        if frozen:
            name = f"open_clip {backbone} {pretrained}, {modality}"
            encoder = backbones.Frozen(encoder, name, inputs, clip.n_features)
        elif unfreeze_blocks:
            encoder = PartlyFrozen(encoder, unfreeze_blocks)
        branches[modality] = Branch(prepare, encoder, head, pretrained=True)
    return branches
