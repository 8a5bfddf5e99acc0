"""Encoders turn the images and texts of a store into features; one word names each.

`description.ENCODER_FORMS` lists the words. A run or a saved model is no encoder in this sense: it
computes codes of its own.
"""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.data.records import VECTOR, RawItems
from channelhash.errors import InputError, argument
from channelhash.models import onnx_folder, photo
from channelhash.models.description import (
    FEATURES,
    EncoderWord,
    in_one_word,
    read_arrays,
    read_description,
    split_source,
)
from channelhash.models.extractors import Extractor, FeatureRows, NetworkOfArrays, absolute_names
from channelhash.utils.optional_imports import naming_extra
from channelhash.utils.seeds import generator
from channelhash.utils.typed_settings import is_python_name, look_up, unknown

if TYPE_CHECKING:
    from torch import nn

#: Items encoded at a time.
_BATCH = 256
#: Numbers of the probe differ by less between machines, and by more between any two encoders.
_TOLERANCE = 0.02


class EncoderSide(NamedTuple):
    """One modality's way from raw items to features.

    Attributes:
        prepare: raw items to inputs, a tensor; its method ``arrays`` gives an array.
        network: inputs to what ``head`` takes; None where ``prepare`` does all.
        width: number of features.
        identity: what the features depend on besides the items, JSON-able; nothing without a
            network.
        head: what follows to features ``(n, width)``; its weights are saved with every model of the
            encoder.
    """

    prepare: Any
    network: Callable[[NDArray[Any]], NDArray[np.float32]] | None
    width: int
    identity: Mapping[str, str] = {}
    head: photo.Head | None = None

    def features(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Compute the features of prepared inputs."""
        rows = inputs if self.network is None else self.network(inputs)
        return rows if self.head is None else self.head(rows)

    def module(self) -> "nn.Module":
        """Return the network as a module of PyTorch that is never trained."""
        from torch import nn

        from channelhash.models.backbones import Frozen, Tower

        if self.network is None:
            return nn.Identity()
        if isinstance(self.network, NetworkOfArrays):
            return self.network.network
        tower = Tower(self.network, self.identity["weights"])
        return Frozen(tower, self.identity["name"], self.identity["inputs"], self.width)


@dataclass(frozen=True)
class Encoder:
    """Networks that compute features of raw items and are never trained.

    Attributes:
        word: its name, with absolute paths; `open_encoder` opens it again.
        sides: modality -> its way to features.
        one_space: a text's features can be compared with an image's, or with vectors, by their
            cosine.
        seen: modality -> numbers that identify an extractor: what it computes of a fixed item
            (`_look_at_probe`).
        own_bits: length of the encoder's own code, whose bits are the signs of its features; the
            leading ones are a code, too. 0 where the features are no codes.

    >>> encoder = open_encoder("features", widths={"image": 3})
    >>> encoder.modalities, encoder.features("image", np.ones((2, 3))).shape
    (('image',), (2, 3))
    """

    word: EncoderWord
    sides: Mapping[str, EncoderSide]
    one_space: bool = False
    seen: Mapping[str, list[float]] = field(default_factory=dict)
    own_bits: int = 0

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities that it encodes."""
        return tuple(self.sides)

    def features(self, modality: str, items: RawItems) -> NDArray[np.float32]:
        """Compute the features ``(n, width)`` of ``n`` raw items; `InputError` if one cannot be
        read.
        """
        side = self.sides[modality]
        batches = (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))
        rows = [side.features(side.prepare.arrays(batch)) for batch in batches]
        return np.concatenate([np.empty((0, side.width), np.float32), *rows])


def _openclip(source: str) -> Encoder:
    """Open ``openclip:NAME/TAG_OR_FILE``: two sides of one space. A ``.json`` configuration alone
    has random weights.
    """
    with naming_extra("clip"):
        from channelhash.models.backbones import Frozen, fixed_random_weights, load_open_clip

    name, weights = _split_open_clip(source)
    with fixed_random_weights(Path(name).name):
        towers, width = load_open_clip(name, weights)
    sides = {}
    word = str(absolute_word(f"openclip:{source}"))
    inputs = str(towers["image"][0])
    for modality, (prepare, network) in towers.items():
        frozen = Frozen(network, f"{word}, {modality}", inputs, width)
        sides[modality] = EncoderSide(prepare, NetworkOfArrays(frozen), width, frozen.identity())
    return Encoder(word, sides, one_space=True)


def _onnx(source: str) -> Encoder:
    """Open ``onnx:FOLDER`` or ``onnx:FOLDER@VARIANT``."""
    word = str(absolute_word(f"onnx:{source}"))
    opened = onnx_folder.open_sides(word.removeprefix("onnx:"))
    sides = {name: EncoderSide(*side) for name, side in opened.items()}
    widths = {side.width for side in sides.values()}
    return Encoder(word, sides, one_space=len(widths) == 1)


def _split_open_clip(source: str) -> tuple[str, str | None]:
    """Return (name or configuration file, tag or file), files with absolute paths."""
    end = source.find(".json")
    if end >= 0:
        name = str(Path(source[: end + 5]).resolve())
        rest = source[end + 5 :].removeprefix("/")
    else:
        name, _, rest = source.partition("/")
    if not name or not (rest or end >= 0):
        raise InputError(
            f"encoder openclip:{source}: name the weights too: "
            f"openclip:{source or 'NAME'}/TAG_OR_FILE"
        )
    return name, split_source(rest)[2] if rest else None


#: First parts of the words that `open_encoder` knows beside `FEATURES`.
_ENCODERS = ("photo", "photo-backbones", "openclip", "onnx")


def is_encoder(word: EncoderWord) -> bool:
    """Return whether a word has the form of an encoder's name; otherwise it is a run's folder or a
    saved model.

    >>> is_encoder("photo"), is_encoder("openclip:ViT-B-32/openai"), is_encoder("runs/table")
    (True, True, False)
    """
    return (
        not isinstance(word, str)
        or is_python_name(word)
        or word.partition(":")[0] in (*_ENCODERS, FEATURES)
    )


def absolute_word(word: EncoderWord) -> EncoderWord:
    """Return a word with absolute paths, as a saved model keeps it. Nothing is opened or imported.

    >>> absolute_word("photo"), absolute_word("openclip:ViT-B-32/openai")
    ('photo', 'openclip:ViT-B-32/openai')
    """
    if not isinstance(word, str):
        return absolute_names(word)
    kind, _, source = word.partition(":")
    if kind == "onnx":
        folder, at, variant = source.partition("@")
        return f"onnx:{Path(folder).resolve()}{at}{variant}"
    if kind != "openclip":
        return word
    return "openclip:" + "/".join(filter(None, _split_open_clip(source)))


def open_encoder(
    word: EncoderWord,
    widths: Mapping[str, int] | None = None,
    seen: Mapping[str, list[float]] | None = None,
) -> Encoder:
    """Open the encoder that a word names.

    Args:
        word: one of the forms in `description.ENCODER_FORMS`.
        widths: modality -> number of features, for items that are features already and for a saved
            model. Beside vectors, a word names what makes such vectors of texts.
        seen: `Encoder.seen` of a saved model's extractors, which are compared with it when they are
            first used. Without it each extractor runs once here.

    Raises:
        InputError: the word names no encoder, or it cannot be opened.
        JobError: its weights cannot be fetched.
    """
    widths = widths or {}
    if not isinstance(word, str):
        return _extractors(word, widths, seen)
    if word == FEATURES:
        return Encoder(
            word, {name: EncoderSide(FeatureRows(name, n), None, n) for name, n in widths.items()}
        )
    if is_python_name(word):
        return _own_encoder(word)
    kind, _, source = word.partition(":")
    if kind not in _ENCODERS:
        raise InputError(
            f"{unknown(f'encoder {word!r}', kind, [*_ENCODERS, FEATURES])} A run is named by its "
            "folder"
        )
    if kind == "openclip":
        return _openclip(source)
    if kind == "onnx":
        return _onnx(source)
    if source:
        raise InputError(f"encoder {word}: nothing follows this word; write {kind}")
    openers = {"photo": _photo, "photo-backbones": _photo_backbones}
    return openers[kind]()


def _own_encoder(word: str) -> Encoder:
    """Call the function ``python:module:NAME``, which returns an encoder."""
    make = look_up({}, word, "encoder")
    encoder = make() if callable(make) else None
    if not isinstance(encoder, Encoder):
        raise InputError(
            f"encoder {word}: is not a function that gives an Encoder (channelhash.models.encoders)"
        )
    return replace(encoder, word=word)


def _photo() -> Encoder:
    """Open the encoder ``photo``: its backbones, and the heads that ship with the package."""
    sides = {}
    heads = photo.Head.read_all(read_arrays(photo.WEIGHTS / "model.safetensors"))
    form = read_description(photo.WEIGHTS / "config.json")
    for name, side in _photo_backbones().sides.items():
        expected = form["backbones"][name]
        if side.identity != expected:
            raise InputError(
                f"{photo.WEIGHTS}: heads of {expected}, not of {side.identity}; reinstall"
            )
        sides[name] = side._replace(width=len(heads[name].weights["linear.bias"]), head=heads[name])
    return Encoder("photo", sides, one_space=True, own_bits=sides["image"].width)


def _photo_backbones() -> Encoder:
    """Open the encoder ``photo-backbones``, without heads."""
    sides = {name: EncoderSide(*parts) for name, parts in photo.open_networks().items()}
    return Encoder("photo-backbones", sides)


class _KnownExtractor(Extractor):
    """An extractor that must compute the same features of the probe as when codes were fitted to
    them.
    """

    def __init__(self, name: str, modality: str, width: int, seen: list[float]) -> None:
        super().__init__(name, modality, width)
        self._waiting: list[float] | None = seen

    def __call__(self, items: Sequence[Any]) -> NDArray[np.float32]:
        expected = self._waiting
        self._waiting = None
        if expected is not None and not np.allclose(
            _look_at_probe(self, self._modality)[1], expected, atol=_TOLERANCE
        ):
            self._waiting = expected
            raise InputError(
                f"{self._modality} extractor {self.name}: makes other features than when these "
                "codes were fitted; give it the weights and libraries of then, or encode the items "
                "again"
            )
        return super().__call__(items)


def _extractors(
    word: Mapping[str, str], widths: Mapping[str, int], seen: Mapping[str, list[float]] | None
) -> Encoder:
    """Open an extractor for each modality; the arguments are those of `open_encoder`."""
    names = absolute_names(word)
    sides = {}
    extractors = {}
    if VECTOR in widths:
        _check_asks_vectors(names)
        width = widths[VECTOR]
        sides[VECTOR] = EncoderSide(FeatureRows(VECTOR, width), None, width)
    for modality, name in names.items():
        if seen is not None and modality not in seen:
            continue  # its codes cannot be compared with those of the other modality
        if seen is None:
            width, extractors[modality] = _look_at_new(name, modality, widths)
        else:
            width = widths[modality]
            extractors[modality] = seen[modality]
        extractor = _KnownExtractor(name, modality, width, extractors[modality])
        sides[modality] = EncoderSide(FeatureRows(modality, width, extractor), None, width)
    return Encoder(names, sides, one_space=VECTOR in widths, seen=extractors)


def _check_asks_vectors(names: Mapping[str, str]) -> None:
    """Raise `InputError` unless extractors beside vectors are one of texts."""
    if set(names) != {"text"}:
        raise InputError(
            f"{argument('encoder')} {in_one_word(names)}: the items are vectors; name only what "
            "makes such vectors of words, text=KIND:WHAT, or nothing"
        )


def _look_at_new(name: str, modality: str, widths: Mapping[str, int]) -> tuple[int, list[float]]:
    """Return (number of features, `Encoder.seen`) of an extractor that runs here first."""
    extractor = Extractor(name, modality, widths.get(modality))
    extractor.check_file()
    width, seen = _look_at_probe(extractor, modality)
    if width != widths.get(VECTOR, width):
        raise InputError(
            f"{argument('encoder')} {modality}={extractor.name}: makes {width} numbers of a "
            f"{modality}, but the vectors have {widths[VECTOR]}; name what made them"
        )
    return width, seen


def _look_at_probe(extractor: Callable[[Any], Any], modality: str) -> tuple[int, list[float]]:
    """Return (number of features, 8 numbers) of a fixed image or text.

    The numbers are the features, of unit length, in 8 random directions. Other weights or another
    preprocessing change them.

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
