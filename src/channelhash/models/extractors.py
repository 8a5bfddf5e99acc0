"""Extractors turn new images and texts into the features that a ``features`` model was trained on.

One string names an extractor, ``KIND:WHAT`` or ``KIND:WHAT?normalize``, in a configuration and in a
saved model's ``config.json``. Nothing is imported or read for an extractor until the first raw item
comes: features given as arrays never need it.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.data.images import Prepare, Resize
from channelhash.data.records import Features
from channelhash.errors import InputError, naming
from channelhash.models.description import split_source
from channelhash.utils.decode import one_line
from channelhash.utils.machine import pick_device
from channelhash.utils.optional_imports import library
from channelhash.utils.typed_settings import pick, resolve, split_python_name, unknown

if TYPE_CHECKING:
    from torch import nn

#: ``n`` raw items -> their features ``(n, d)``, as any array or tensor.
_Extract = Callable[[Sequence[Any]], Any]
#: Items encoded at a time.
_BATCH = 32


class _ExtractorSource(NamedTuple):
    """The place that an extractor is loaded from; not opened yet.

    Attributes:
        argument: ``WHAT`` of ``KIND:WHAT``, with an absolute path.
        load: modality -> the function; this may take seconds, and raises `InputError` where it
            cannot be loaded.
        file: the file or folder that it names, if any.
    """

    argument: str
    load: Callable[[str], _Extract]
    file: Path | None = None


def _torchvision(argument: str) -> _ExtractorSource:
    """``torchvision:NAME[/WEIGHTS]``: features below the classifier of images prepared as the
    weights expect.

    ``WEIGHTS`` is a tag (``IMAGENET1K_V2``), ``DEFAULT`` if left out, or ``TAG@FILE`` for weights
    from a file, whose images are prepared as for that tag.
    """
    name, _, weights = argument.partition("/")
    tag, file, pretrained = split_source(weights or "DEFAULT")
    if not tag:
        raise InputError(
            "write TAG@FILE; the tag of torchvision's weights says how pictures are prepared"
        )

    def load(modality: str) -> _Extract:
        from channelhash.models.backbones import load_torchvision
        from channelhash.utils.torchvision_compat import torchvision

        encoder, _ = load_torchvision(name, pretrained)
        preset = torchvision.models.get_model_weights(name)[tag].transforms()
        (size,) = preset.crop_size
        (short_side,) = preset.resize_size
        return _by_batches(encoder, Resize(size, short_side, preset.interpolation.value))

    return _ExtractorSource(f"{name}/{pretrained}", load, file)


def _open_clip(argument: str) -> _ExtractorSource:
    """``open_clip:NAME/PRETRAINED``: embeddings of a model, with its own preprocessing and
    tokenizer.

    ``PRETRAINED`` is a tag (``laion2b_s34b_b79k``), a file, or ``TAG@FILE`` for a tag's weights
    from a file.
    """
    name, _, weights = argument.partition("/")
    if not weights:
        raise InputError(f"name the weights too: open_clip:{argument}/TAG, /FILE or /TAG@FILE")
    _, file, pretrained = split_source(weights)

    def load(modality: str) -> _Extract:
        from channelhash.models.backbones import load_open_clip

        towers, _ = load_open_clip(name, pretrained)
        prepare, network = towers[modality]
        return _by_batches(network, prepare)

    return _ExtractorSource(f"{name}/{pretrained}", load, file)


@dataclass
class NetworkOfArrays:
    """A network of PyTorch as a function of arrays, in evaluation mode; on a GPU if there is
    one.
    """

    network: "nn.Module"

    def __call__(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        import torch

        device = pick_device("auto")
        with torch.inference_mode():
            outputs = self.network.eval().to(device)(torch.from_numpy(inputs).to(device))
        return cast(NDArray[np.float32], outputs.cpu().numpy())


def _by_batches(network: "nn.Module", prepare: Prepare) -> _Extract:
    """Return the network as a function of raw items, in float32."""
    compute = NetworkOfArrays(network)

    def extract(items: Sequence[Any]) -> NDArray[np.float32]:
        starts = range(0, len(items), _BATCH)
        batches = (items[start : start + _BATCH] for start in starts)
        return np.concatenate([compute(prepare.arrays(batch)) for batch in batches])

    return extract


def _sentence_transformers(argument: str) -> _ExtractorSource:
    """``sentence-transformers:FOLDER_OR_NAME``: a text encoder of that library, from a folder or
    the hub.
    """
    is_folder = argument.startswith((".", "/")) or Path(argument).is_dir()
    file = Path(argument).resolve() if is_folder else None
    name = str(file or argument)

    def load(modality: str) -> _Extract:
        sentence_transformers = library("sentence_transformers", "extractors")
        try:
            model = sentence_transformers.SentenceTransformer(
                name, local_files_only=is_folder, trust_remote_code=False
            )
        except Exception as error:  # the hub, tokenizers and transformers each have their own types
            reason = one_line(error)
            raise InputError(
                f"cannot be loaded ({reason}); give a folder that it has saved, or a name"
            ) from None
        return lambda texts: model.encode(list(texts), show_progress_bar=False)

    return _ExtractorSource(name, load, file)


def _python(argument: str) -> _ExtractorSource:
    """``python:package.module:function``: a function of your own, from a sequence of items to an
    ``(n, d)`` matrix.

    >>> _python("numpy:vstack").load("text")(["ab", "c"]).tolist()
    [['ab'], ['c']]
    """
    split_python_name(f"python:{argument}")

    def load(modality: str) -> _Extract:
        extract: _Extract = resolve(f"python:{argument}")
        if not callable(extract):
            raise InputError("is not a function")
        return extract

    return _ExtractorSource(argument, load)


#: KIND -> (what reads WHAT, modalities that it extracts from). A new kind is one function and one
#: line here.
_EXTRACTORS: dict[str, tuple[Callable[[str], _ExtractorSource], tuple[str, ...]]] = {
    "sentence-transformers": (_sentence_transformers, ("text",)),
    "torchvision": (_torchvision, ("image",)),
    "open_clip": (_open_clip, ("image", "text")),
    "python": (_python, ("image", "text")),
}


_ITEM_TYPES = {"image": (str, Path, Image.Image), "text": (str,)}


class Extractor:
    """One modality's extractor; loaded when it is first called. Its name has absolute paths."""

    def __init__(self, name: str, modality: str, width: int | None = None) -> None:
        where = f"model.extractors.{modality}"
        pick(_ITEM_TYPES, modality, "modality in model.extractors")
        kind, colon, rest = str(name).partition(":")
        argument, question, option = rest.partition("?")
        if not colon or not argument:
            raise InputError(
                f"{where}: {name!r} is not of the form KIND:WHAT; kinds are "
                f"{', '.join(_EXTRACTORS)}"
            )
        read, modalities = pick(_EXTRACTORS, kind, f"kind of {where}")
        if modality not in modalities:
            raise InputError(
                f"{where}: {kind} extracts from {' and '.join(modalities)}, not from {modality}"
            )
        if question and option != "normalize":
            raise InputError(
                f"{where}: {unknown(f'option {option!r} of {kind}', option, ['normalize'])}"
            )
        with naming(where):
            self._source: _ExtractorSource = read(argument)
        self.name = f"{kind}:{self._source.argument}{question}{option}"
        self._modality = modality
        self._width = width
        self._normalizes = bool(question)
        self._where = f"{modality} extractor {self.name}"
        self._extract: _Extract | None = None

    def check_file(self) -> None:
        """Raise `InputError` if the file or folder that it names is missing."""
        file = self._source.file
        if file is not None and not file.exists():
            raise InputError(f"model.extractors.{self._modality}: {file}: no such file or folder")

    def __call__(self, items: Sequence[Any]) -> NDArray[np.float32]:
        """Compute the features ``(n, width)`` of ``n`` raw items."""
        self._check_items(items)
        if self._extract is None:
            with suppress(ModuleNotFoundError):  # before anyone's own import of torchvision
                importlib.import_module("channelhash.utils.torchvision_compat")
            with naming(self._where):
                self._extract = self._source.load(self._modality)
        rows = self._as_rows(self._extract(items))
        self._check_rows(rows, items)
        if self._normalizes:
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows

    def _check_items(self, items: Sequence[Any]) -> None:
        """Raise `InputError` if an item is not of this modality."""
        for item in items:
            if not isinstance(item, _ITEM_TYPES[self._modality]):
                expected = (
                    "strings" if self._modality == "text" else "picture files or opened pictures"
                )
                raise InputError(
                    f"{self._modality} items of type {type(item).__name__}: give {expected}, or "
                    "features as one array"
                )

    def _as_rows(self, features: Any) -> NDArray[np.float32]:
        """Convert what an extractor returned to an array."""
        if hasattr(features, "detach"):  # a tensor
            features = features.detach().float().cpu().numpy()
        try:
            # An overflow is infinite, which `_check_rows` reports with its item.
            with np.errstate(over="ignore"):
                return np.asarray(features, dtype=np.float32)
        except (TypeError, ValueError):
            raise InputError(
                f"{self._where}: gave a {type(features).__name__} that is no matrix of numbers"
            ) from None

    def _check_rows(self, rows: NDArray[np.float32], items: Sequence[Any]) -> None:
        """Raise `InputError` unless there is a row of finite features for each item."""
        if rows.ndim != 2 or len(rows) != len(items) or self._width not in (None, rows.shape[1]):
            expected = (
                f"({len(items)}, {self._width or 'd'}) like those that the model was trained on"
            )
            raise InputError(
                f"{self._where}: gave features of shape {rows.shape}, expected {expected}"
            )
        broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(broken):
            raise InputError(
                f"{self._where}: the features of {str(items[broken[0]])[:80]!r} are not finite"
            )


def absolute_names(extractors: Mapping[str, str]) -> dict[str, str]:
    """Return extractors by modality with absolute paths. Nothing is opened or imported.

    >>> absolute_names({"text": "python:own.texts:embed?normalize"})
    {'text': 'python:own.texts:embed?normalize'}
    """
    return {modality: Extractor(name, modality).name for modality, name in extractors.items()}


@dataclass(frozen=True)
class FeatureRows(Prepare):
    """Rows of features ``(n, width)``; raw items go through ``extractor``, if there is one.

    >>> FeatureRows("image", width=2).arrays(np.ones((1, 2))).tolist()
    [[1.0, 1.0]]
    """

    modality: str
    width: int
    extractor: Extractor | None = None

    def arrays(self, items: Any) -> NDArray[np.float32]:
        """Convert items; errors as in `check`, and `InputError` for raw items without an
        extractor.
        """
        if not isinstance(items, Features):
            if self.extractor is None:
                raise InputError(
                    f"this model was trained on precomputed {self.modality} features and names no "
                    f"extractor: it cannot encode a raw {self.modality}; give features of width "
                    f"{self.width}, or name what makes them, extractors: {{{self.modality}: "
                    "KIND:WHAT}, under architecture in its config.json"
                )
            items = self.extractor(items)
        return self.check(items)

    def check(self, items: Any) -> NDArray[np.float32]:
        """Return rows of features ``(n, width)`` as float32; anything else is an `InputError`.

        >>> FeatureRows("image", 2).check(np.eye(2)).dtype
        dtype('float32')
        """
        if not isinstance(items, Features) or items.ndim != 2 or items.shape[1] != self.width:
            kind = items.shape if isinstance(items, Features) else type(items).__name__
            raise InputError(
                f"{self.modality} features are (n, {self.width}) for this model, not {kind}"
            )
        return np.ascontiguousarray(items, dtype=np.float32)

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, the input of the network."""
        steps = [
            (
                "rows of the features that the model was trained on, as they are; the network "
                "standardises them"
            )
        ]
        name = self.extractor.name if self.extractor else None
        return dict(kind="features", steps=steps, width=self.width, extractor=name)
