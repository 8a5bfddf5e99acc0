"""A model's exported encoders, run by ONNX Runtime: codes of queries without PyTorch."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.data.images import resize_of
from channelhash.errors import InputError, JobError
from channelhash.text.tokens import Vocabulary
from channelhash.utils.files import file_hash, reading
from channelhash.utils.optional_imports import library, naming_extra, onnx_runtime

#: The file that describes the others, and the folder of a run or a store that `channelhash export` writes by default.
DESCRIPTION, FOLDER = "export.json", "onnx"

_BATCH = 32
_DAMAGED = "not what `channelhash export` wrote"
_AGAIN = "export the model again"

_Prepare = Callable[[Sequence[Any]], NDArray[Any]]


class ExportedModel:
    """The encoders in a folder that `channelhash export --onnx` wrote.

    They give the outputs of the model within rounding (``largest_difference`` in ``export.json``), so its codes are
    those of the model's store, but for bits whose output is next to 0.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        file = folder / DESCRIPTION
        if not file.exists():
            raise InputError(f"{file}: no such file; write it with `channelhash export RUN --onnx`")
        with reading(file, _DAMAGED, _AGAIN):
            description = json.loads(file.read_text(encoding="utf-8"))
            self.name, self.n_bits = str(description["model"]), int(description["n_bits"])
            comparable = [str(word) for word in description["comparable_with"]]
            self.extends = tuple(word for word in description.get("extends", ()) if word in comparable)
            self.code_spaces = tuple(word for word in comparable if word not in self.extends)
            self._fingerprint = str(description["fingerprint"])
            self._entries: dict[str, dict[str, Any]] = dict(description["modalities"])
            self._kinds = {modality: str(entry["prepare"]["kind"]) for modality, entry in self._entries.items()}
            self._sha256: dict[str, str] = dict(description["sha256"])
            #: Whether all modalities of the model were exported.
            self.is_whole = set(description["model_modalities"]) == set(self._entries)
        self._sides: dict[str, _Side] = {}

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities that were exported."""
        return tuple(self._entries)

    def fingerprint(self) -> str:
        """Return the fingerprint of the model; see `HashModel.fingerprint`."""
        return self._fingerprint

    def comparable(self, model: str) -> bool:
        """Return whether these codes can be compared with those of the model with the fingerprint ``model``."""
        return model in (self._fingerprint, *self.code_spaces, *self.extends)

    def reads(self, modalities: Iterable[str]) -> bool:
        """Return whether images and texts of these modalities were exported, and not heads for rows of features."""
        return all(self._kinds.get(modality, "features") != "features" for modality in modalities)

    def check_encodes(self, modalities: Iterable[str]) -> None:
        """Raise `InputError` if one of the modalities was not exported."""
        if missing := set(modalities) - set(self._entries):
            what = " and ".join(self.modalities)
            raise InputError(f"{self.folder}: encodes {what}, not {min(missing)}; export the model with it, too")

    def outputs(self, modality: str, items: Sequence[Any]) -> NDArray[np.float32]:
        """Compute real-valued outputs ``(n, k)`` of raw items: images (files or opened), strings, or rows of
        features.
        """
        self.check_encodes([modality])
        if modality not in self._sides:
            self._sides[modality] = _Side(self.folder, modality, self._entries[modality], self._sha256)
        side = self._sides[modality]
        parts = [side(items[start : start + _BATCH]) for start in range(0, len(items), _BATCH)]
        rows = np.concatenate([np.empty((0, self.n_bits), np.float32), *parts])
        if not np.isfinite(rows).all():
            row = int(np.argwhere(~np.isfinite(rows))[0][0])
            raise JobError(f"{modality} in row {row}: the exported model's output is not finite; {_AGAIN}")
        return rows


def is_exported(folder: Path, modality: str, model: str) -> bool:
    """Return whether a folder has the exported encoder of a modality of the model with this fingerprint.

    >>> is_exported(Path("nowhere"), "text", "c0ffee")
    False
    """
    with suppress(InputError):
        exported = ExportedModel(folder)
        return exported.fingerprint() == model and exported.reads([modality])
    return False


class _Side:
    """One exported modality: items to outputs."""

    def __init__(self, folder: Path, modality: str, entry: Mapping[str, Any], sha256: Mapping[str, str]) -> None:
        self._file = folder / DESCRIPTION
        with reading(self._file, _DAMAGED, _AGAIN):
            path = folder / str(entry["file"])
            self._names = [str(entry["output"]["name"])], str(entry["input"]["name"])
            self._dtype = np.dtype(entry["input"]["dtype"])
            recipe: Mapping[str, Any] = entry["prepare"]
            self._prepare = _PREPARE[str(recipe["kind"])](recipe, folder)
        for name in (path.name, f"{path.name}.data"):
            if name in sha256 and file_hash(folder / name) != sha256[name]:
                raise InputError(f"{folder / name}: has changed since it was exported; {_AGAIN}")
        self._path, self._modality = path, modality

    @cached_property
    def _session(self) -> Any:
        with naming_extra():
            onnxruntime = onnx_runtime()
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # other threads have work to do
        if self._modality == "text":
            # Of a short text, that takes longer than it saves, and as much memory again as the weights.
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        with reading(self._path, "not an ONNX file that can be run", _AGAIN):
            return onnxruntime.InferenceSession(str(self._path), options, ["CPUExecutionProvider"])

    def __call__(self, items: Sequence[Any]) -> NDArray[np.float32]:
        inputs = np.asarray(self._prepare(items), self._dtype)
        with reading(self._path, "cannot encode this", _AGAIN):
            rows: NDArray[np.float32] = self._session.run(self._names[0], {self._names[1]: inputs})[0]
        return rows


def _pixels(recipe: Mapping[str, Any], folder: Path) -> _Prepare:
    return resize_of(recipe).arrays


def _features(recipe: Mapping[str, Any], folder: Path) -> _Prepare:
    width = int(recipe["width"])

    def rows(items: Sequence[Any]) -> NDArray[Any]:
        if not isinstance(items, np.ndarray) or items.ndim != 2 or items.shape[1] != width:
            raise InputError(f"{folder}: takes rows of {width} features; give the model itself with --model")
        return items

    return rows


def _vocabulary(recipe: Mapping[str, Any], folder: Path) -> _Prepare:
    return partial(Vocabulary(tuple(recipe["words"])).encode, max_tokens=int(recipe["max_tokens"]))


def _open_clip(recipe: Mapping[str, Any], folder: Path) -> _Prepare:
    kind = str(recipe["tokenizer"]).removeprefix("open_clip.")
    if kind != "SimpleTokenizer":
        raise InputError(f"{folder}: its texts are tokenized by {recipe['tokenizer']}; give the model with --model")
    tokenizer = library("open_clip", "clip").SimpleTokenizer(context_length=recipe["context_length"])
    prompt = str(recipe["prompt"])
    return lambda texts: tokenizer([prompt.replace("{}", text) for text in texts]).numpy()


#: ``kind`` of a recipe -> what prepares items as it says.
_PREPARE: dict[str, Callable[[Mapping[str, Any], Path], _Prepare]] = {
    "pixels": _pixels,
    "features": _features,
    "vocabulary": _vocabulary,
    "open_clip": _open_clip,
}
