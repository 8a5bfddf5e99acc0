"""Export encoders as ONNX files, and encode queries with them, without PyTorch.

``export.json`` describes how any ONNX runtime computes the same codes; docs/how-to/export.md shows
how to read it.
"""

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import binarize
from channelhash.data.images import resize_of
from channelhash.errors import InputError, JobError, argument
from channelhash.models.description import QueryEncoder
from channelhash.text.words import Vocabulary
from channelhash.utils.decode import one_line, read_json, reading
from channelhash.utils.files import sync, temporary_folder
from channelhash.utils.hashes import file_hash
from channelhash.utils.optional_imports import library, naming_extra, onnx_runtime
from channelhash.utils.seeds import generator

if TYPE_CHECKING:
    from torch import Tensor, nn

    from channelhash.models.hash_model import HashModel

#: The file that describes the others.
DESCRIPTION = "export.json"
#: The folder of a run or a store that `channelhash export` writes by default.
FOLDER = "onnx"

#: Largest difference of outputs of the file and of PyTorch, relative to the largest output where
#: that is above 1.
_TOLERANCE = 1e-4

_CHECKED_ROWS = 7
_BITS = {
    "bit": "bit j of a code is 1 where output j >= 0, else 0",
    "packing": (
        "bit j is bit 7 - j % 8 of byte j // 8, most significant first (numpy.packbits); bits "
        "past n_bits are 0"
    ),
}
_DAMAGED = "not what `channelhash export` wrote"
_AGAIN = "export the model again"

_EncodeItems = Callable[[Sequence[Any]], NDArray[Any]]


class ExportedModel(QueryEncoder):
    """The encoders in a folder that `channelhash export --onnx` wrote.

    They give the outputs of the model within rounding (``largest_difference`` in ``export.json``),
    so its codes are those of the model's store, but for bits whose output is next to 0.
    """

    batch_size = 32
    not_finite = f"the exported model's output is not finite; {_AGAIN}"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        file = folder / DESCRIPTION
        if not file.exists():
            raise InputError(f"{file}: no such file; write it with `channelhash export RUN --onnx`")
        description = read_json(file, _DAMAGED, _AGAIN)
        with reading(file, _DAMAGED, _AGAIN):
            self.name = str(description["model"])
            self.n_bits = int(description["n_bits"])
            self.extends = tuple(map(str, description.get("extends", ())))
            self.code_spaces = tuple(
                str(word) for word in description["comparable_with"] if word not in self.extends
            )
            self._fingerprint = str(description["fingerprint"])
            self._entries: dict[str, dict[str, Any]] = dict(description["modalities"])
            self._sha256: dict[str, str] = dict(description["sha256"])
            #: Whether all modalities of the model were exported.
            self.is_complete = set(description["model_modalities"]) == set(self._entries)
        self._sides: dict[str, _EncodeItems] = {}

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities that were exported."""
        return tuple(self._entries)

    def fingerprint(self) -> str:
        """Return the fingerprint of the model; see `HashModel.fingerprint`."""
        return self._fingerprint

    def reads(self, modalities: Iterable[str]) -> bool:
        """Return whether these modalities were exported as encoders of images and texts, not as
        heads for rows of features.
        """
        entries = [self._entries.get(modality) for modality in modalities]
        return all(
            entry is not None and entry["prepare"]["kind"] != "features" for entry in entries
        )

    def check_encodes(self, modalities: Iterable[str]) -> None:
        """Raise `InputError` if one of the modalities was not exported."""
        missing = set(modalities) - set(self._entries)
        if missing:
            names = " and ".join(self.modalities)
            raise InputError(
                f"{self.folder}: encodes {names}, not {min(missing)}; export the model with it, too"
            )

    def outputs_of_batch(self, modality: str, items: Sequence[Any]) -> NDArray[np.float32]:
        """Compute outputs of images (files or opened), strings, or rows of features."""
        self.check_encodes([modality])
        if modality not in self._sides:
            self._sides[modality] = _open_side(
                self.folder, modality, self._entries[modality], self._sha256
            )
        return self._sides[modality](items)


def _open_side(
    folder: Path, modality: str, entry: Mapping[str, Any], sha256: Mapping[str, str]
) -> _EncodeItems:
    """Open one exported modality: a function from items to outputs."""
    with reading(folder / DESCRIPTION, _DAMAGED, _AGAIN):
        path = folder / str(entry["file"])
        dtype = np.dtype(entry["input"]["dtype"])
        names = [str(entry["output"]["name"])], str(entry["input"]["name"])
        prepare = _PREPARE[str(entry["prepare"]["kind"])](entry["prepare"], folder)
    for name in (path.name, f"{path.name}.data"):
        if name in sha256 and file_hash(folder / name) != sha256[name]:
            raise InputError(f"{folder / name}: has changed since it was exported; {_AGAIN}")
    with naming_extra():
        onnxruntime = onnx_runtime()
    options = onnxruntime.SessionOptions()
    # other threads have work to do
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if modality == "text":
        # Of a short text, that takes longer than it saves, and as much memory again as the weights.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with reading(path, "not an ONNX file that can be run", _AGAIN):
        session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])

    def compute(items: Sequence[Any]) -> Any:
        inputs = np.asarray(prepare(items), dtype)
        with reading(path, "cannot encode this", _AGAIN):
            return session.run(names[0], {names[1]: inputs})[0]

    return compute


def _features(recipe: Mapping[str, Any], folder: Path) -> _EncodeItems:
    width = int(recipe["width"])

    def rows(items: Sequence[Any]) -> NDArray[Any]:
        if not isinstance(items, np.ndarray) or items.ndim != 2 or items.shape[1] != width:
            raise InputError(
                f"{folder}: takes rows of {width} features; give the model itself with "
                f"{argument('model')}"
            )
        return items

    return rows


def _vocabulary(recipe: Mapping[str, Any], folder: Path) -> _EncodeItems:
    return partial(Vocabulary(tuple(recipe["words"])).encode, max_tokens=int(recipe["max_tokens"]))


def _open_clip(recipe: Mapping[str, Any], folder: Path) -> _EncodeItems:
    kind = str(recipe["tokenizer"]).removeprefix("open_clip.")
    if kind != "SimpleTokenizer":
        raise InputError(
            f"{folder}: its texts are tokenized by {recipe['tokenizer']}; give the model with "
            f"{argument('model')}"
        )
    tokenizer = library("open_clip", "clip").SimpleTokenizer(
        context_length=recipe["context_length"]
    )
    prompt = str(recipe["prompt"])
    return lambda texts: tokenizer([prompt.replace("{}", text) for text in texts]).numpy()


#: ``kind`` of a recipe -> what prepares items as it says.
_PREPARE: dict[str, Callable[[Mapping[str, Any], Path], _EncodeItems]] = {
    "pixels": lambda recipe, folder: resize_of(recipe).arrays,
    "features": _features,
    "vocabulary": _vocabulary,
    "open_clip": _open_clip,
}


def export_onnx(model: "HashModel", folder: Path, modalities: Sequence[str] = ()) -> dict[str, Any]:
    """Write ``MODALITY.onnx`` for each modality and ``export.json``; all of them, or nothing.

    A file takes any number of rows of what ``prepare`` returns (``export.json`` says how to compute
    it) and gives real-valued outputs ``(n, k)`` float32. onnxruntime runs each file, and its
    outputs are compared with the model's before the file gets its name.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(
            f"{folder}: is there already; remove it, or name another folder with "
            f"{argument('folder')}"
        )
    unknown = set(modalities) - set(model.modalities)
    if unknown:
        raise InputError(
            f"{argument('modalities')}: this model encodes {', '.join(model.modalities)}, not "
            f"{min(unknown)}"
        )
    library("onnx", "onnx")  # before the work, not after it
    description: dict[str, Any] = {
        "model": model.name,
        "fingerprint": model.fingerprint(),
        "comparable_with": [*model.code_spaces, *model.extends],
        "extends": list(model.extends),
        "model_modalities": list(model.modalities),
        "n_bits": model.n_bits,
        "bytes": -(-model.n_bits // 8),
        "bits": _BITS,
        "modalities": {},
    }
    recipes = {modality: _recipe(model, modality) for modality in modalities or model.modalities}
    with temporary_folder(folder) as temporary:
        for modality, recipe in recipes.items():
            description["modalities"][modality] = _export(
                model, modality, recipe, temporary / f"{modality}.onnx"
            )
        description["sha256"] = {path.name: file_hash(path) for path in sorted(temporary.iterdir())}
        (temporary / DESCRIPTION).write_text(
            json.dumps(description, indent=2, ensure_ascii=False), encoding="utf-8"
        )
        _publish(temporary, folder)
    return description


def _publish(temporary: Path, folder: Path) -> None:
    """Give a finished folder its name, after its files are on the disk."""
    for path in temporary.iterdir():
        sync(path)
    if folder.is_dir():  # it is empty, and Windows renames nothing to it
        folder.rmdir()
    temporary.rename(folder)


def _recipe(model: "HashModel", modality: str) -> dict[str, Any]:
    """Describe how a branch's inputs are computed; raise `InputError` where this is impossible."""
    from channelhash.models.backbones import Tower

    branch = model.branch(modality)
    try:
        if branch.frozen and isinstance(branch.frozen.encoder, Tower):
            raise InputError(
                f"{branch.frozen.name} runs without PyTorch as it is; only networks of PyTorch are "
                "exported"
            )
        if not hasattr(branch.prepare, "recipe"):  # a model of one's own may have none
            raise InputError("what prepares its items has no method recipe() that says how")
        if branch.frozen and branch.frozen.precision == "bfloat16":
            raise InputError("its frozen encoder computes in bfloat16, which few programs can run")
        return cast(dict[str, Any], branch.prepare.recipe())
    except InputError as error:
        raise _refusal(model, modality, str(error)) from None


def _export(
    model: "HashModel", modality: str, recipe: dict[str, Any], path: Path
) -> dict[str, Any]:
    """Write one branch; return its entry of ``export.json``."""
    onnxruntime = onnx_runtime()
    branch = model.branch(modality)
    inputs = model.prepare(modality, _some_items(modality, recipe))
    try:
        _write(branch, inputs.to(model.device), path)
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        batches = (inputs, inputs[:1])
        outputs = [session.run(["outputs"], {"inputs": rows.numpy()})[0] for rows in batches]
        torch_rows = [
            model.outputs_prepared({modality: rows})[modality].numpy() for rows in batches
        ]
    except Exception as error:  # the exporter and the runtime have many types of their own
        raise _refusal(model, modality, one_line(error)[:200]) from error
    return {
        "file": path.name,
        "input": {
            "name": "inputs",
            "dtype": str(inputs.numpy().dtype),
            "shape": ["n", *inputs.shape[1:]],
        },
        "output": {"name": "outputs", "dtype": "float32", "shape": ["n", model.n_bits]},
        "prepare": recipe,
        "largest_difference": max(map(partial(_difference, modality), outputs, torch_rows)),
    }


def _write(branch: "nn.Module", inputs: "Tensor", path: Path) -> None:
    """Write a branch or a head in evaluation mode as an ONNX file; weights of more than 2 GB go to
    ``<path>.data``.
    """
    import torch

    parts = path.with_suffix(".parts")
    parts.mkdir()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one fused operation, which ONNX does not have
    try:
        # of constants in the trace: what is traced is compared below
        with warnings.catch_warnings(action="ignore"):
            torch.onnx.export(
                branch,
                (inputs,),
                str(parts / path.name),  # only a string is a place for more than 2 GB
                input_names=["inputs"],
                output_names=["outputs"],
                dynamic_axes={"inputs": {0: "n"}, "outputs": {0: "n"}},
                opset_version=17,
                dynamo=False,  # the other exporter needs one more library
            )
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    if len(list(parts.iterdir())) == 1:
        (parts / path.name).replace(path)
    else:  # a file for each tensor, under names that the next modality's tensors have as well
        onnx = library("onnx", "onnx")
        onnx.save_model(
            onnx.load(parts / path.name),
            path,
            save_as_external_data=True,
            location=f"{path.name}.data",
        )
    shutil.rmtree(parts)


def _difference(
    modality: str, onnx_rows: NDArray[np.float32], torch_rows: NDArray[np.float32]
) -> float:
    """Return the largest difference between the outputs of file and model; raise `JobError` beyond
    rounding.
    """
    if not np.isfinite(torch_rows).all():
        raise JobError(
            f"{modality}: the model's output is not finite; its weights are damaged, train again"
        )
    allowed = _TOLERANCE * max(1.0, float(np.abs(torch_rows).max()))
    largest = (
        float(np.abs(onnx_rows - torch_rows).max())
        if onnx_rows.shape == torch_rows.shape
        else np.inf
    )
    certain = np.abs(torch_rows) > allowed
    if not largest <= allowed or (binarize(onnx_rows) != binarize(torch_rows))[certain].any():
        raise JobError(
            f"{modality}: the ONNX file computes something else than the model, differing by "
            f"{largest:.1e}"
        )
    return largest


def _some_items(modality: str, recipe: dict[str, Any]) -> Any:
    """Draw random items of a modality, to trace and compare with; texts vary in length, one has no
    words.
    """
    random = generator(0, "export", modality)
    if recipe["kind"] == "features":
        return random.normal(size=(_CHECKED_ROWS, recipe["width"])).astype(np.float32)
    if modality == "image":
        sizes = [
            (int(width), int(height))
            for width, height in random.integers(20, 80, (_CHECKED_ROWS, 2))
        ]
        return [
            Image.fromarray(random.integers(0, 256, (h, w, 3), dtype=np.uint8)) for w, h in sizes
        ]
    words = recipe.get("words") or [f"word{i}" for i in range(100)]
    return [" ".join(random.choice(words, length)) for length in (3, 0, 1, 2, 5, 20, 300)]


def _refusal(model: "HashModel", modality: str, reason: str) -> InputError:
    others = " ".join(
        f"{argument('modalities')} {other}" for other in model.modalities if other != modality
    )
    instead = f"; export the rest with {others}" if others else ""
    return InputError(f"{modality}: cannot be exported to ONNX ({reason}){instead}")
