"""Import torchvision through this file: ``from channelhash.utils.torchvision_compat import torchvision, functional``.

A torchvision built for CUDA beside a CPU-only torch cannot load its compiled operators, and then its own import fails
("operator torchvision::nms does not exist"), taking timm and open_clip with it. Transforms and models need none of
those operators; declaring the schemas of the two that the import refers to is enough. Where the library loads, nothing
is declared. `torchvision.io` and `torchvision.ops.nms` stay unusable in the first case: pictures are read with Pillow.
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
    """Whether torchvision's ``_C`` library can be loaded beside this torch."""
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return True  # not installed: let the import below say so
    libraries = sorted(Path(found.origin).parent.glob("_C*.so")) + sorted(Path(found.origin).parent.glob("_C*.pyd"))
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
