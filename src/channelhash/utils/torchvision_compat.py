"""Import torchvision through this file: ``from channelhash.utils.torchvision_compat import
torchvision, functional``.

A torchvision built for CUDA beside a CPU-only torch cannot load its compiled operators. Its own
import then fails ("operator torchvision::nms does not exist"), and with it that of timm and
open_clip. Transforms and models use none of these operators: declaring the schemas of the two that
the import names is enough. Nothing is declared if the library loads. Otherwise `torchvision.io` and
`torchvision.ops.nms` stay unusable; images are read with Pillow.
"""

import ctypes
import importlib.util
from pathlib import Path

import torch

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def _compiled_operators_load() -> bool:
    """Return whether torchvision's ``_C`` library can be loaded beside this torch."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        return True  # not installed: the import below reports it
    libraries = sorted(Path(spec.origin).parent.glob("_C*.so")) + sorted(
        Path(spec.origin).parent.glob("_C*.pyd")
    )
    try:
        for library in libraries:
            ctypes.CDLL(str(library))
    except OSError:
        return False
    return bool(libraries)


if not _compiled_operators_load():
    for _name, _schema in _SCHEMAS.items():
        torch.library.define(f"torchvision::{_name}", _schema)

import torchvision  # noqa: E402
from torchvision.transforms import InterpolationMode  # noqa: E402
from torchvision.transforms.v2 import functional  # noqa: E402

__all__ = ["InterpolationMode", "functional", "torchvision"]
