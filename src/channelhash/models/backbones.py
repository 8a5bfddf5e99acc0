"""Pre-trained encoders: sources of weights, and frozen encoders that never change."""

import contextlib
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from channelhash.errors import InputError, JobError
from channelhash.models.description import split_source
from channelhash.utils.files import check_exhausted, content_hash, reading
from channelhash.utils.seeds import derive_seed


class Tower(nn.Module):
    """A network of arrays as a module, which is never trained nor saved.

    >>> Tower(lambda rows: 2 * rows, "0123456789abcdef")(torch.ones(1, 2)).tolist()
    [[2.0, 2.0]]
    """

    def __init__(self, network: Callable[[NDArray[Any]], NDArray[np.float32]], weights_hash: str) -> None:
        super().__init__()
        self.network, self.weights_hash = network, weights_hash

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features ``(n, d)`` float32 of ``n`` inputs, on the device of these."""
        return torch.from_numpy(self.network(inputs.cpu().numpy())).to(inputs.device)


class PartlyFrozen(nn.Module):
    """An encoder whose last blocks are trained, with the layers behind them; the rest is frozen.

    What is frozen has no gradient, and stays in evaluation mode. Batch normalisation does so everywhere: it keeps its
    statistics, as a few epochs are too short to learn those that evaluation uses, and its scale and offset are trained.

    Args:
        encoder: inputs to features.
        n_blocks: number of `blocks` that are trained, at least 1.

    Raises:
        InputError: the encoder has fewer blocks.

    >>> layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), num_layers=3)
    >>> encoder = PartlyFrozen(layers, 1)
    >>> [any(values.requires_grad for values in layer.parameters()) for layer in layers.layers]
    [False, False, True]
    """

    def __init__(self, encoder: nn.Module, n_blocks: int) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        trunk = encoder
        while len(parts := [part for part in trunk.children() if next(part.parameters(), None) is not None]) == 1:
            trunk = parts[0]  # behind a normalisation of pixels, say
        layers = list(_blocks(trunk))
        if n_blocks > len(layers):
            raise InputError(f"model.unfreeze_blocks is {n_blocks}, but the backbone has {len(layers)} blocks")
        parts = list(encoder.modules())
        for part in parts[parts.index(layers[-n_blocks]) :]:
            if not isinstance(part, nn.Embedding):  # of tokens, which a CLIP model names behind its blocks
                for values in part.parameters(recurse=False):
                    values.requires_grad_(True)
        for name, values in encoder.named_parameters():  # projections that are no layers: OpenCLIP's
            if name.rpartition(".")[2] in ("proj", "text_projection"):
                values.requires_grad_(True)

    def train(self, mode: bool = True) -> "PartlyFrozen":
        """Set the training mode of what is trained."""
        super().train(mode)
        for part in self.encoder.modules():
            values = list(part.parameters())
            if isinstance(part, _BatchNorm) or (values and not any(value.requires_grad for value in values)):
                part.eval()
        return self

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the encoder's features."""
        return cast(Tensor, self.encoder(inputs))


def _blocks(part: nn.Module) -> Iterator[nn.Module]:
    """Yield the blocks of an encoder in their order: what has parts of its own and stands in a row with others.

    Those of a ResNet are its bottlenecks, those of a Transformer its layers.

    >>> layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> len(list(_blocks(nn.TransformerEncoder(layer, num_layers=3))))
    3
    """
    in_a_row = type(part) in (nn.Sequential, nn.ModuleList)
    for child in part.children():
        if in_a_row and type(child) is not nn.Sequential and next(child.children(), None) is not None:
            yield child
        else:
            yield from _blocks(child)


def unfrozen(n_blocks: int, freeze_backbone: bool) -> dict[str, int]:
    """Return the entry of ``unfreeze_blocks`` in an architecture: none for 0.

    >>> unfrozen(2, True), unfrozen(0, False)
    ({'unfreeze_blocks': 2}, {})
    """
    if n_blocks < 0:
        raise InputError(f"model.unfreeze_blocks is {n_blocks}: a number of blocks is 0 or more")
    if n_blocks and not freeze_backbone:
        raise InputError("model.unfreeze_blocks: the whole backbone is trained; set model.freeze_backbone=true")
    return {"unfreeze_blocks": n_blocks} if n_blocks else {}


Precision = Literal["auto", "float32", "bfloat16"]
# Whether running statistics of batch normalisation drift in training, though the weights are frozen.
_Statistics = Literal["eval", "train"]


class Frozen(nn.Module):
    """An encoder that is never trained: no gradient, and evaluation mode whatever the mode of the model.

    >>> frozen = Frozen(nn.Linear(2, 3), "linear", "pairs", n_features=3)
    >>> frozen.train().encoder.training, any(p.requires_grad for p in frozen.parameters())
    (False, False)
    """

    def __init__(
        self, encoder: nn.Module, name: str, inputs: str, n_features: int, frozen_batchnorm: _Statistics = "eval"
    ) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.name, self.inputs, self.n_features = name, inputs, n_features
        self.drifts = frozen_batchnorm == "train" and any(isinstance(part, _BatchNorm) for part in encoder.modules())
        self.precision: Precision = "auto"
        self.eval()

    def train(self, mode: bool = True) -> "Frozen":
        """Set the training mode, which inside reaches only batch normalisation whose statistics drift."""
        super().train(mode)
        self.encoder.eval()
        if self.drifts:
            for part in self.encoder.modules():
                if isinstance(part, _BatchNorm):
                    part.train(mode)
        return self

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features ``(n, d)`` float32; matrix products in bfloat16 on a GPU unless ``precision`` forbids."""
        with autocast(inputs.device, self.precision):
            features: Tensor = self.encoder(inputs)
        return features.float()

    @cached_property
    def weights_hash(self) -> str:
        """16 hex digits that identify what never changes: all weights and, unless they drift, buffers."""
        if isinstance(self.encoder, Tower):
            return self.encoder.weights_hash
        return _weights_hash(dict(self.encoder.named_parameters()) if self.drifts else self.encoder.state_dict())[:16]

    def identity(self) -> dict[str, str]:
        """Return, JSON-able, what features depend on besides the items: part of a cache's key and of a saved model."""
        return {"name": self.name, "inputs": self.inputs, "precision": self.precision, "weights": self.weights_hash}


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[Any]:
    """Compute matrix products in bfloat16 if ``precision`` says so; ``auto`` does on a GPU only.

    >>> with autocast(torch.device("cpu"), "auto"):
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.float32
    """
    reduced = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16) if reduced else contextlib.nullcontext()


@contextlib.contextmanager
def memory_advice(advice: str) -> Iterator[None]:
    """Turn exhausted memory into a `JobError` of one line: "out of memory" and ``advice``.

    >>> with memory_advice("in this batch; lower train.batch_size"):
    ...     raise MemoryError
    Traceback (most recent call last):
    channelhash.errors.JobError: out of memory in this batch; lower train.batch_size
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # torch.OutOfMemoryError is a RuntimeError; the CPU's allocator has no type of its own.
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "allocate memory" not in str(error):
            raise
        raise JobError(f"out of memory {advice}") from error


@contextlib.contextmanager
def fixed_random_weights(name: str) -> Iterator[None]:
    """Draw the same weights in every process: a frozen backbone without pre-trained weights is drawn again, not saved.

    >>> with fixed_random_weights("example"):
    ...     first = torch.rand(2)
    >>> with fixed_random_weights("example"):
    ...     torch.equal(torch.rand(2), first)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(0, "backbone", name))
        yield


def weights_source(pretrained: str) -> tuple[str | None, Path | None]:
    """Apply `split_source` and check that the file exists."""
    tag, file = split_source(pretrained)
    if file and not file.is_file():
        raise InputError(f"model.pretrained: {file}: no such file of weights")
    return tag, file


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors or torch file, also from below ``state_dict`` or ``model``."""
    try:
        open(path, "rb").close()  # the libraries call a file missing where no handle is left
    except OSError as error:
        check_exhausted(error, path)
        raise InputError(f"{path}: weights cannot be read ({error.strerror})") from None
    with reading(path, "weights cannot be read"):
        state = load(path.read_bytes()) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path}: holds no tensors by name; give a state dictionary or a safetensors file")
    return {name.removeprefix("module."): value for name, value in state.items()}


def load_weights(target: dict[str, Tensor], state: dict[str, Tensor], where: str) -> None:
    """Copy ``state`` into the tensors of ``target``; names and shapes must agree.

    >>> target = {"weight": torch.zeros(2)}
    >>> load_weights(target, {"weight": torch.ones(2)}, "example")
    >>> target["weight"].tolist()
    [1.0, 1.0]
    """
    wrong = [f"{name} is missing" for name in target if name not in state]
    wrong += [f"{name} is unknown" for name in state if name not in target]
    wrong += [
        f"{name} is {tuple(state[name].shape)}, expected {tuple(value.shape)}"
        for name, value in target.items()
        if name in state and state[name].shape != value.shape
    ]
    if wrong:
        more = f", and {len(wrong) - 2} more" if len(wrong) > 2 else ""
        raise InputError(f"{where}: the weights do not fit ({'; '.join(wrong[:2])}{more})")
    with torch.no_grad():
        for name, value in target.items():
            if state[name].isnan().any():
                raise InputError(f"{where}: {name} is not a number in places (NaN); the file is damaged, save it again")
            value.copy_(state[name])


def _weights_hash(weights: dict[str, Tensor]) -> str:
    """Hash tensors with their names, types and shapes; 64 hex digits; about 0.6 s a gigabyte.

    >>> _weights_hash({"weight": torch.zeros(2)}) == _weights_hash({"weight": torch.ones(2)})
    False
    """
    parts: list[bytes | memoryview] = []
    for name, values in sorted(weights.items()):
        parts += [f"{name} {values.dtype} {list(values.shape)}".encode()]
        parts += [values.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data]
    return content_hash(*parts)
