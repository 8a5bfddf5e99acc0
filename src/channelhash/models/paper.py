"""The paper's two models (``protocol.md`` § 4), and backbones that are frozen except for their last
blocks.

``tdsrdh``: a residual network and a Transformer over word vectors, each with a hash head.
``cliphash``: one hash head for the two towers of an OpenCLIP model.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from channelhash.data.images import Resize
from channelhash.data.records import Features, Records
from channelhash.errors import InputError
from channelhash.models import backbones, photo
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import UnitLength, hash_head
from channelhash.models.small import TransformerText, VocabularyTokens, WordTable
from channelhash.text.word_vectors import SEGMENTATION_WORDS, WordVectors
from channelhash.text.words import Vocabulary
from channelhash.utils.files import cache_folder
from channelhash.utils.progress import Progress
from channelhash.utils.typed_settings import PositiveCount

#: Side of the images, a centre crop after their short side has become 232 pixels (bilinear,
#: antialias; § 3).
_IMAGE_SIZE = 224
_SHORT_SIDE = 232 / _IMAGE_SIZE
#: Width of learned token vectors, that of the paper's word vectors.
_VECTOR_WIDTH = 300


def _parts_with_parameters(module: nn.Module) -> list[nn.Module]:
    return [part for part in module.children() if next(part.parameters(), None) is not None]


class PartlyFrozen(nn.Module):
    """An encoder whose last blocks are trained, with the layers behind them; the rest is frozen.

    Frozen parts have no gradient and stay in evaluation mode. So does batch normalisation
    everywhere: a few epochs are too short to learn new statistics. In trained blocks, its scale and
    offset are trained.

    Args:
        encoder: inputs to features.
        n_blocks: number of `blocks` that are trained, at least 1.

    Raises:
        InputError: the encoder has fewer blocks.

    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> layers = nn.TransformerEncoder(layer, num_layers=3)
    >>> encoder = PartlyFrozen(layers, 1)
    >>> [any(values.requires_grad for values in layer.parameters()) for layer in layers.layers]
    [False, False, True]
    """

    def __init__(self, encoder: nn.Module, n_blocks: int) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        trunk = encoder
        inner = _parts_with_parameters(trunk)
        while len(inner) == 1:
            trunk = inner[0]  # behind a normalisation of pixels, say
            inner = _parts_with_parameters(trunk)
        layers = list(_blocks(trunk))
        if n_blocks > len(layers):
            raise InputError(
                f"model.unfreeze_blocks is {n_blocks}, but the backbone has {len(layers)} blocks"
            )
        parts = list(encoder.modules())
        for part in parts[parts.index(layers[-n_blocks]) :]:
            # of tokens, which a CLIP model names behind its blocks
            if not isinstance(part, nn.Embedding):
                for values in part.parameters(recurse=False):
                    values.requires_grad_(True)
        # projections that are no layers: OpenCLIP's
        for name, values in encoder.named_parameters():
            if name.rpartition(".")[2] in ("proj", "text_projection"):
                values.requires_grad_(True)

    def train(self, mode: bool = True) -> "PartlyFrozen":
        """Set the mode of the trained parts; frozen ones stay in evaluation mode."""
        super().train(mode)
        for part in self.encoder.modules():
            values = list(part.parameters())
            if isinstance(part, _BatchNorm) or (
                values and not any(value.requires_grad for value in values)
            ):
                part.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the encoder's features."""
        return cast(Tensor, self.encoder(inputs))


def _blocks(part: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks of an encoder in their order: the bottlenecks of a ResNet, the layers of a
    Transformer.

    A block is an entry of a sequence or list of modules that has parts of its own.

    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> len(list(_blocks(nn.TransformerEncoder(layer, num_layers=3))))
    3
    """
    is_list = type(part) in (nn.Sequential, nn.ModuleList)
    for child in part.children():
        has_parts = next(child.children(), None) is not None
        if is_list and has_parts and type(child) is not nn.Sequential:
            yield child
        else:
            yield from _blocks(child)


def _unfrozen(n_blocks: int, freeze_backbone: bool) -> dict[str, int]:
    """Return the entry of ``unfreeze_blocks`` in an architecture: none for 0.

    >>> _unfrozen(2, True), _unfrozen(0, False)
    ({'unfreeze_blocks': 2}, {})
    """
    if n_blocks < 0:
        raise InputError(f"model.unfreeze_blocks is {n_blocks}: a number of blocks is 0 or more")
    if n_blocks and not freeze_backbone:
        raise InputError(
            "model.unfreeze_blocks: the whole backbone is trained; set model.freeze_backbone=true"
        )
    return {"unfreeze_blocks": n_blocks} if n_blocks else {}


def _check_raw_items(name: str, train: Records) -> None:
    """Raise `InputError` unless ``train`` holds raw items.

    >>> train = Records(("a",), {"text": ("a dog",)}, np.ones((1, 1), bool), ("dog",))
    >>> _check_raw_items("tdsrdh", train)
    """
    for modality, values in train.items.items():
        if isinstance(values, Features):
            raise InputError(
                f"model.name: {name!r} reads raw {modality}s, the data holds features; use "
                "'features'"
            )


def create_tdsrdh_model(
    train: Records,
    n_bits: int,
    backbone: str = "resnet152",
    pretrained: str | None = "IMAGENET1K_V2",
    freeze_backbone: bool = True,
    frozen_batchnorm: Literal["eval", "train"] = "eval",
    word_vectors: Path | None = None,
    segmentation_words: int = SEGMENTATION_WORDS,
    max_tokens: int = 128,
    mask_padding: bool = True,
    hidden: dict[str, list[int]] | None = None,
    dropout: float = 0.1,
    unfreeze_blocks: int = 0,
    image_size: PositiveCount = _IMAGE_SIZE,
) -> HashModel:
    """Create the paper's first architecture, untrained above its backbone.

    Args:
        train: training records; images and texts, not features.
        n_bits: code length k.
        backbone: a classification model of torchvision, without its classifier; or
            ``efficientnet-lite2`` (`photos`).
        pretrained: a tag of torchvision, a file, ``TAG@FILE``, ``package``, or None for random
            weights.
        freeze_backbone: the backbone is not trained.
        frozen_batchnorm: ``"train"`` lets a frozen backbone's running statistics drift, as the
            published code does.
        word_vectors: a word2vec file, e.g. of Google News; None learns a vector for each word of
            the training texts.
        segmentation_words: number of most frequent words of the word vectors that help to split
            run-together tags.
        max_tokens: longer texts are cut.
        mask_padding: padding takes no part in attention; False is what the published code does.
        hidden: modality -> widths of the head's hidden layers; ``{image: [4096, 4096], text: [1024,
            8192]}`` if None.
        dropout: dropout in the Transformer and the heads.
        unfreeze_blocks: last blocks of a frozen backbone that are trained all the same, with the
            layers behind them.
        image_size: side of the images in pixels.

    Raises:
        InputError: a setting is unknown or does not fit the others, or the data holds features.
    """
    _check_raw_items("tdsrdh", train)
    if unfreeze_blocks and frozen_batchnorm == "train":
        raise InputError(
            "model.frozen_batchnorm: what is frozen beside unfrozen blocks stays as it is; set it "
            "to eval"
        )
    widths = {"image": [4096, 4096], "text": [1024, 8192]} | (hidden or {})
    unknown_modalities = set(widths) - {"image", "text"}
    if unknown_modalities:
        raise InputError(
            f"model.hidden: {min(unknown_modalities)!r} is no modality; known: image, text"
        )
    architecture: dict[str, Any] = dict(
        n_bits=n_bits,
        modalities=list(train.items),
        hidden=widths,
        dropout=dropout,
        backbone=backbone,
        pretrained=pretrained,
        freeze_backbone=freeze_backbone,
        frozen_batchnorm=frozen_batchnorm,
        **_unfrozen(unfreeze_blocks, freeze_backbone),
        word_vectors=None,
        vocabulary=None,
        segmentation_words=segmentation_words,
        max_tokens=max_tokens,
        mask_padding=mask_padding,
    )
    if image_size != _IMAGE_SIZE:
        architecture["image_size"] = image_size
    if word_vectors is not None:
        vectors = str(Path(word_vectors).resolve())
        architecture["word_vectors"] = vectors
        architecture["word_vectors_hash"] = _open(vectors).hash
    elif "text" in train.items:
        architecture["vocabulary"] = _learned_words(train)
    branches = build_tdsrdh_branches(**architecture, untrained=True)
    return HashModel("tdsrdh", n_bits, architecture, branches)


def _learned_words(train: Records) -> list[str]:
    """Return the words of the training texts, each of which learns a vector."""
    texts = [str(text) for text in train.items["text"]]
    words = list(Vocabulary.from_texts(texts, min_count=1).words)
    if not words:
        raise InputError(f"data: the {len(train)} training texts hold no word")
    return words


def build_tdsrdh_branches(
    n_bits: int,
    modalities: list[str],
    backbone: str,
    pretrained: str | None,
    freeze_backbone: bool,
    frozen_batchnorm: Literal["eval", "train"],
    word_vectors: str | None,
    vocabulary: list[str] | None,
    segmentation_words: int,
    max_tokens: PositiveCount,
    mask_padding: bool,
    hidden: dict[str, list[int]],
    dropout: float,
    word_vectors_hash: str | None = None,
    unfreeze_blocks: int = 0,
    image_size: PositiveCount = _IMAGE_SIZE,
    untrained: bool = False,
) -> dict[str, Branch]:
    """Build the branches from the complete architecture; see `create_tdsrdh_model`.

    ``untrained`` loads the pre-trained weights of a backbone that will be trained; a saved model
    has trained ones.
    """
    branches = {}
    if "image" in modalities:
        resize = Resize(image_size, short_side=round(image_size * _SHORT_SIDE))
        is_frozen = freeze_backbone and not unfreeze_blocks
        with _weights_to_load(backbone, pretrained, is_frozen, untrained) as weights:
            encoder, width = _load_image_layers(backbone, weights)
        if is_frozen:
            library = "" if backbone == photo.IMAGES else "torchvision "
            name = f"{library}{backbone} {pretrained}"
            drifts = frozen_batchnorm == "train"
            encoder = backbones.Frozen(encoder, name, str(resize), width, drifts)
        elif unfreeze_blocks:
            encoder = PartlyFrozen(encoder, unfreeze_blocks)
        head = hash_head([width, *hidden["image"], n_bits], dropout)
        branches["image"] = Branch(resize, encoder, head, pretrained=True)
    if "text" in modalities:
        head = hash_head([512, *hidden["text"], n_bits], dropout)
        if word_vectors is None:
            words = _learned_table(vocabulary or [], max_tokens)
        else:
            words = _fixed_table(word_vectors, word_vectors_hash, segmentation_words, max_tokens)
        tokens = nn.Sequential(words.table, nn.Linear(words.width, 512, bias=False))
        text_encoder = TransformerText(
            tokens, dropout=dropout, mask_padding=mask_padding, max_tokens=max_tokens
        )
        branches["text"] = Branch(words.prepare, text_encoder, head, words.prepare_collection)
    return branches


@contextmanager
def _weights_to_load(
    backbone: str, pretrained: str | None, is_frozen: bool, untrained: bool
) -> Iterator[str | None]:
    """Yield the pre-trained weights that a backbone starts with; None for weights drawn at random.

    The block builds the backbone. Its own weights are saved with a model that trains it; a frozen
    one without pre-trained weights draws the same ones in every process.
    """
    weights = pretrained if is_frozen or untrained else None
    with (
        backbones.fixed_random_weights(backbone) if is_frozen and weights is None else nullcontext()
    ):
        yield weights


def _load_image_layers(backbone: str, weights: str | None) -> tuple[nn.Module, int]:
    """Return a backbone of images without its classifier, and the width of its features."""
    if backbone == photo.IMAGES:
        return backbones.image_layers(weights), photo.IMAGE_WIDTH
    return backbones.load_torchvision(backbone, weights)


class _WordLayer(NamedTuple):
    """The first layer of the text branch.

    Attributes:
        table: token numbers to vectors.
        width: of the vectors.
        prepare: texts to token numbers.
        prepare_collection: prepares all texts of a collection together; None prepares them one by
            one.
    """

    table: nn.Module
    width: int
    prepare: "VocabularyTokens | _VectorTexts"
    prepare_collection: Callable[[Any, Progress | None], Tensor] | None = None


def _learned_table(vocabulary: Sequence[str], max_tokens: int) -> _WordLayer:
    """Return a layer that learns a vector for each word of a vocabulary."""
    words = Vocabulary(tuple(vocabulary))
    table = nn.Embedding(len(words.words) + 1, _VECTOR_WIDTH, padding_idx=0)
    return _WordLayer(table, _VECTOR_WIDTH, VocabularyTokens(words, max_tokens))


def _fixed_table(
    file: str, expected_hash: str | None, segmentation_words: int, max_tokens: int
) -> _WordLayer:
    """Return a layer of word vectors from a file, which are not trained."""
    vectors = _open(file)
    if vectors.hash != expected_hash:
        raise InputError(f"{file}: not the word vectors that the model was trained with")
    prepare = _VectorTexts(vectors, segmentation_words, max_tokens)
    width = vectors.vectors.shape[1]
    return _WordLayer(WordTable(vectors.vectors), width, prepare, prepare.collection)


class _VectorTexts:
    """Encode texts as rows of word vectors. SymSpell's dictionaries are loaded for the first text
    that is not cached.
    """

    def __init__(self, vectors: WordVectors, segmentation_words: int, max_tokens: int) -> None:
        self.vectors = vectors
        self.segmentation_words = segmentation_words
        self.max_tokens = max_tokens
        self._reader = cache(lambda: vectors.reader(segmentation_words))

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Encode ``n`` texts as ``(n, max_tokens)`` int32."""
        return torch.from_numpy(self.vectors.encode(texts, self._reader(), self.max_tokens))

    def collection(self, texts: Sequence[str], progress: Progress | None = None) -> Tensor:
        """Encode a collection through the token cache."""
        folder = cache_folder() / "tokens"
        tokens = self.vectors.encode_cached(
            texts, folder, self.segmentation_words, self.max_tokens, progress
        )
        return torch.from_numpy(np.array(tokens))

    def recipe(self) -> dict[str, Any]:
        """Raise `InputError`: word vectors and dictionaries are not part of the model."""
        raise InputError("its words are rows of word vectors, which stay outside the model")


def _open(path: str) -> WordVectors:
    return WordVectors.open(Path(path), cache_folder() / "word-vectors")


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
        unfreeze_blocks: last blocks of a frozen backbone that are trained all the same, in each
            tower, with the layers behind them.

    Raises:
        InputError: backbone or weights are unknown or do not fit, the backbone has fewer blocks or
            is not frozen, or the data holds features.
    """
    _check_raw_items("cliphash", train)
    if prompt.count("{}") != 1:
        raise InputError(f"model.prompt: holds '{{}}' once, where the text goes; got {prompt!r}")
    backbone = str(Path(backbone).resolve()) if backbone.endswith(".json") else backbone
    hidden = [4096, 4096, 1024, 256] if hidden is None else hidden
    architecture: dict[str, Any] = dict(
        n_bits=n_bits,
        modalities=list(train.items),
        hidden=hidden,
        dropout=dropout,
        backbone=backbone,
        pretrained=pretrained,
        freeze_backbone=freeze_backbone,
        preprocess=preprocess,
        prompt=prompt,
        normalize=normalize,
        **_unfrozen(unfreeze_blocks, freeze_backbone),
    )
    branches = build_cliphash_branches(**architecture, untrained=True)
    return HashModel("cliphash", n_bits, architecture, branches)


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

    ``untrained`` loads the pre-trained weights of a backbone that will be trained; a saved model
    has trained ones.
    """
    is_frozen = freeze_backbone and not unfreeze_blocks
    with _weights_to_load(backbone, pretrained, is_frozen, untrained) as weights:
        towers, width = backbones.load_open_clip(backbone, weights, preprocess, prompt)
    head = hash_head([width, *hidden, n_bits], dropout)
    branches = {}
    for modality in modalities:
        prepare, encoder = towers[modality]
        inputs = str(prepare) if modality == "image" else f"prompt {prompt!r}"
        if normalize:
            encoder = nn.Sequential(encoder, UnitLength())
            inputs = f"{inputs}, unit length"
        if is_frozen:
            name = f"open_clip {backbone} {pretrained}, {modality}"
            encoder = backbones.Frozen(encoder, name, inputs, width)
        elif unfreeze_blocks:
            encoder = PartlyFrozen(encoder, unfreeze_blocks)
        branches[modality] = Branch(prepare, encoder, head, pretrained=True)
    return branches
