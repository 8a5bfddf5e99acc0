"""Encoders in a folder of ONNX files, as `optimum` and Transformers.js write them, without PyTorch.

The graphs lie in the folder or in its ``onnx``. ``preprocessor_config.json`` says how images are
read (https://huggingface.co/docs/transformers/main_classes/image_processor), ``tokenizer.json`` how
texts become tokens (https://huggingface.co/docs/tokenizers).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.data.images import Prepare, Resize
from channelhash.errors import InputError
from channelhash.utils.decode import read_json, reading
from channelhash.utils.hashes import content_hash, file_hash
from channelhash.utils.optional_imports import library, naming_extra, onnx_runtime

#: Modality -> names of its graphs; that of one modality alone comes first.
_GRAPHS = {"image": ("vision_model", "model"), "text": ("text_model", "model")}
#: Modality -> outputs that stand for a whole item, the best first.
_OUTPUTS = {
    "image": ("image_embeds", "pooler_output"),
    "text": ("text_embeds", "sentence_embedding", "pooler_output"),
}
#: Modality -> the role of its items among the inputs of a graph.
_ITEMS = {"image": "image", "text": "token"}
#: Parts of the names of inputs of integers -> what they are; others are tokens.
_ROLES = {"mask": "mask", "type": "type", "position": "position"}
#: Number of a filter of Pillow -> its name here.
_FILTERS: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}
#: Models that were trained with texts padded to their full length (Zhai et al., 2023).
_PADDED = "siglip"
#: Tokens of a text at most where no file says how many.
_MAX_TOKENS = 512
#: From here on the limit of a tokenizer stands for none.
_NO_LIMIT = 100_000
#: Stands for no token in a row of tokens.
_NO_TOKEN = -1
#: What is wrong with a file of settings.
_UNREADABLE = "does not say how items are read"
_REMEDY = "download it again, or convert the model again"

_Rows = NDArray[np.float32]


class Side(NamedTuple):
    """One modality's way from raw items to features: the parts of an `encoders.EncoderSide`."""

    prepare: Prepare
    network: Callable[[NDArray[Any]], _Rows]
    width: int
    identity: Mapping[str, str]


def open_sides(source: str) -> dict[str, Side]:
    """Open the graphs of ``FOLDER`` or ``FOLDER@VARIANT``: modality -> its side.

    Raises:
        InputError: the folder has no graph, or several of one kind and none is named; a file cannot
            be read; a graph gives no row of numbers for a whole item.
    """
    name, _, variant = source.partition("@")
    folder = Path(name)
    if not folder.is_dir():
        raise InputError(f"encoder onnx:{source}: {folder} is no folder")
    parts = {"image": _image_parts, "text": _text_parts}
    probes = {"image": Image.new("RGB", (8, 8)), "text": "a dog"}
    sides = {}
    for modality, read_parts in parts.items():
        path = _find_graph(folder, modality, variant)
        graph = path and _Graph.open(path, modality)
        if graph:
            prepare, network = read_parts(folder, graph)
            width = network(prepare.arrays([probes[modality]])).shape[1]
            identity = {
                "name": f"onnx:{source}, {modality}",
                "inputs": f"{prepare}, {network}",
                "weights": graph.hash(),
            }
            sides[modality] = Side(prepare, network, width, identity)
    if not sides:
        raise InputError(
            f"encoder onnx:{source}: neither {folder} nor its folder onnx has text_model.onnx, "
            "vision_model.onnx or model.onnx"
        )
    return sides


def _find_graph(folder: Path, modality: str, variant: str) -> Path | None:
    """Return the file of a modality's graph: the variant, else the plain one, else the only one."""
    for name in _GRAPHS[modality]:
        paths = [*(folder / "onnx").glob(f"{name}*.onnx"), *folder.glob(f"{name}*.onnx")]
        variants = {path.stem.removeprefix(name).lstrip("_"): path for path in paths}
        if variant in variants:
            return variants[variant]
        if variants and (variant or len(variants) > 1):
            raise InputError(
                f"{folder}: has {name} as {', '.join(sorted(variants))}; name one of these behind "
                f"the folder: onnx:{folder}@{min(variants)}"
            )
        if variants:
            return next(iter(variants.values()))
    return None


@dataclass(frozen=True)
class _Graph:
    """A graph that ONNX Runtime runs for one modality.

    Attributes:
        path: its file.
        session: the graph as it is open.
        roles: name of an input -> what it is: image, token, mask, type or position.
        output: name of the output.
    """

    path: Path
    session: Any
    roles: Mapping[str, str]
    output: str

    @classmethod
    def open(cls, path: Path, modality: str) -> "_Graph | None":
        """Open a file; None if its graph takes no items of the modality."""
        with naming_extra("encoders"):
            runtime = onnx_runtime()
        options = runtime.SessionOptions()
        # other threads have work to do
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with reading(path, "not an ONNX file that can be run", _REMEDY):
            session = runtime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        roles = {each.name: _role(path, each) for each in session.get_inputs()}
        items = [name for name, role in roles.items() if role == _ITEMS[modality]]
        if len(items) > 1:
            raise InputError(
                f"{path}: takes {' and '.join(items)}; one input of {modality}s may be"
            )
        return cls(path, session, roles, _choose_output(path, session, modality)) if items else None

    def side(self, role: str, axis: int) -> int | None:
        """Return the length of an axis of an input if the graph fixes it."""
        [length] = [
            each.shape[axis] for each in self.session.get_inputs() if self.roles[each.name] == role
        ]
        return length if isinstance(length, int) else None

    def run(self, items: Mapping[str, NDArray[Any]]) -> _Rows:
        """Compute the features of inputs by their roles; those of the other modality are empty."""
        feed = {}
        for each in self.session.get_inputs():
            rows = items.get(self.roles[each.name])
            if rows is None:
                rows = np.zeros([size if isinstance(size, int) else 1 for size in each.shape])
            feed[each.name] = rows.astype(_dtype(each))
        options = onnx_runtime().RunOptions()
        options.only_execute_path_to_fetches = True  # of a graph of both, one half
        with reading(self.path, "cannot encode this", _REMEDY):
            rows = np.asarray(self.session.run([self.output], feed, options)[0], np.float32)
        if rows.ndim != 2 or not np.isfinite(rows).all():
            raise InputError(
                f"{self.path}: {self.output} is no row of finite numbers for each item; {_REMEDY}"
            )
        return rows

    def hash(self) -> str:
        """Return a hash of the weights, in the file and beside it where they are more than 2 GB."""
        files = [self.path, *sorted(self.path.parent.glob(f"{self.path.name}[._]data*"))]
        return content_hash(*(file_hash(path).encode() for path in files))[:16]


def _role(path: Path, described: Any) -> str:
    """Return what an input of a graph is, by its type, rank and name."""
    rank = len(described.shape)
    is_float = "float" in described.type
    if is_float and rank == 4:
        return "image"
    if not is_float and rank == 2:
        name = str(described.name)
        return next((role for part, role in _ROLES.items() if part in name), "token")
    raise InputError(
        f"{path}: takes {described.name}, {described.type} of {rank} dimensions; images (4) and "
        "tokens (2) are encoded"
    )


def _dtype(described: Any) -> np.dtype[Any]:
    """Return the type of an input: "tensor(float)" is a float32, "tensor(int64)" an int64."""
    name = str(described.type).removeprefix("tensor(").removesuffix(")")
    names = {"float": "float32", "double": "float64"}
    return np.dtype(names.get(name, name))


def _choose_output(path: Path, session: Any, modality: str) -> str:
    """Return the output of a whole item: by its name, else the only one of two dimensions."""
    outputs = {each.name: len(each.shape) for each in session.get_outputs()}
    rows = [name for name, rank in outputs.items() if rank == 2]
    named = [name for name in _OUTPUTS[modality] if name in outputs]
    if not named and len(rows) != 1:
        raise InputError(
            f"{path}: gives {', '.join(outputs)}, none of which is known to stand for a whole "
            f"{modality}; convert the model with {' or '.join(_OUTPUTS[modality])}"
        )
    return (named or rows)[0]


@dataclass(frozen=True)
class _Images:
    """Images as a graph takes them.

    Attributes:
        graph: the graph.
        factor: what the values 0 … 255 of red, green and blue are multiplied by.
        offset: what is added.
    """

    graph: _Graph
    factor: tuple[float, ...]
    offset: tuple[float, ...]

    def __call__(self, pixels: NDArray[np.uint8]) -> _Rows:
        factor = np.array(self.factor, np.float32)[:, None, None]
        offset = np.array(self.offset, np.float32)[:, None, None]
        return self.graph.run({"image": pixels * factor + offset})

    def __str__(self) -> str:
        return f"{self.factor} {self.offset}"


def _image_parts(folder: Path, graph: _Graph) -> tuple[Prepare, Callable[..., _Rows]]:
    """Return how images are read, and what computes their features."""
    path = folder / "preprocessor_config.json"
    if not path.exists():  # as newer versions write it, with what prepares other modalities
        path = folder / "processor_config.json"
    settings = read_json(path, _UNREADABLE, _REMEDY)
    with reading(path, _UNREADABLE, _REMEDY):
        settings = settings.get("image_processor", settings)
        rescale = float(settings.get("rescale_factor", 1 / 255))
        is_normal = settings.get("do_normalize", True)
        mean = np.asarray(settings["image_mean"] if is_normal else [0.0] * 3)
        std = np.asarray(settings["image_std"] if is_normal else [1.0] * 3)
        network = _Images(graph, tuple((rescale / std).tolist()), tuple((-mean / std).tolist()))
        return _resize(settings), network


def _resize(settings: Mapping[str, Any]) -> Resize:
    """Return how images get their size."""
    filter_ = _FILTERS[settings.get("resample", 2)]
    size = settings["size"]
    if isinstance(size, int):
        size = {"shortest_edge": size}
    if not settings.get("do_center_crop", False):
        return Resize(_square(size), filter=filter_, mode="squash")
    side = _square(settings["crop_size"])
    short = size.get("shortest_edge") or _square(size)
    return Resize(side, short, filter_)


def _square(size: Any) -> int:
    """Return the side of a square: 224, ``{"height": 224, "width": 224}``."""
    if isinstance(size, int):
        return size
    if size["height"] != size["width"]:
        raise ValueError(f"images of {size['width']} × {size['height']} pixels are no squares")
    return int(size["height"])


@dataclass(frozen=True)
class _Tokens(Prepare):
    """Texts to tokens ``(n, m)`` int64, `_NO_TOKEN` behind those of a shorter text.

    Attributes:
        tokenizer: cuts texts into tokens, and frames and limits these.
        lower: texts become small letters first.
        length: m where all texts have one length; else the longest text's.
        name: what the tokenizer is, for the identity of the encoder.
    """

    tokenizer: Any
    lower: bool
    length: int | None
    name: str

    def arrays(self, items: Sequence[str]) -> NDArray[np.int64]:
        """Return the tokens of texts."""
        texts = [text.lower() if self.lower else text for text in items]
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(texts)]
        tokens = np.full((len(rows), self.length or max(map(len, rows), default=1)), _NO_TOKEN)
        for row, ids in zip(tokens, rows, strict=True):
            row[: len(ids)] = ids
        return tokens

    def __str__(self) -> str:
        return f"tokenizer {self.name}, lower {self.lower}, length {self.length}"


@dataclass(frozen=True)
class _Texts:
    """Tokens as a graph takes them.

    Attributes:
        graph: the graph.
        padding: the token that stands for none; without one, texts run one by one.
    """

    graph: _Graph
    padding: int | None

    def __call__(self, tokens: NDArray[np.int64]) -> _Rows:
        if self.padding is not None or (tokens != _NO_TOKEN).all():
            return self._run(tokens)
        return np.concatenate([self._run(row[None, row != _NO_TOKEN]) for row in tokens])

    def _run(self, tokens: NDArray[np.int64]) -> _Rows:
        mask = tokens != _NO_TOKEN
        items = {
            "token": np.where(mask, tokens, self.padding or 0),
            "mask": mask,
            "type": np.zeros_like(tokens),
            "position": np.broadcast_to(np.arange(tokens.shape[1]), tokens.shape),
        }
        return self.graph.run(items)

    def __str__(self) -> str:
        return f"padding {self.padding}"


def _text_parts(folder: Path, graph: _Graph) -> tuple[Prepare, Callable[..., _Rows]]:
    """Return how texts become tokens, and what computes their features."""
    path = folder / "tokenizer.json"
    tokenizers = library("tokenizers", "encoders")
    with reading(path, "not a tokenizer that the library tokenizers reads", _REMEDY):
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    settings = _read_settings(folder / "tokenizer_config.json")
    model = _read_settings(folder / "config.json")
    with reading(folder, _UNREADABLE, _REMEDY):
        fixed = graph.side("token", 1)
        limit = fixed or _most_tokens(settings, model, tokenizer.truncation)
        tokenizer.enable_truncation(limit)
        padding = _padding(settings, model, tokenizer)
        tokenizer.no_padding()
        is_padded = fixed or str(model.get("model_type", "")).startswith(_PADDED)
        if is_padded and padding is None:
            raise InputError(
                f"{folder}: texts have {limit} tokens each, and no file names the token that pads "
                "them (pad_token in tokenizer_config.json)"
            )
    if padding is None and "mask" in graph.roles.values():
        padding = 0  # what it is does not matter, the graph is told where
    lower = bool(settings.get("do_lower_case", False))
    prepare = _Tokens(tokenizer, lower, limit if is_padded else None, file_hash(path)[:16])
    return prepare, _Texts(graph, padding)


def _read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of a file that may be missing."""
    return read_json(path, _UNREADABLE, _REMEDY) if path.exists() else {}


def _most_tokens(
    settings: Mapping[str, Any], model: Mapping[str, Any], truncation: Mapping[str, Any] | None
) -> int:
    """Return how many tokens a text has at most: the least of what the files say."""
    of_texts = model.get("text_config", model)
    limits = [
        settings.get("model_max_length"),
        of_texts.get("max_position_embeddings"),
        (truncation or {}).get("max_length"),
    ]
    known = [int(limit) for limit in limits if limit and limit < _NO_LIMIT]
    return min(known, default=_MAX_TOKENS)


def _padding(settings: Mapping[str, Any], model: Mapping[str, Any], tokenizer: Any) -> int | None:
    """Return the token that stands for none; None if no file names it."""
    name = settings.get("pad_token")
    if isinstance(name, dict):
        name = name.get("content")
    if name and tokenizer.token_to_id(name) is not None:
        return int(tokenizer.token_to_id(name))
    if tokenizer.padding:
        return int(tokenizer.padding["pad_id"])
    known = model.get("text_config", model).get("pad_token_id")
    return None if known is None else int(known)
