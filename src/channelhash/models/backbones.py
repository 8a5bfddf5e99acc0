"""Pre-trained encoders: where their weights come from, and that a frozen one stays what it is."""

import contextlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from channelhash.errors import InputError, JobError
from channelhash.utils.files import content_hash
from channelhash.utils.seeds import derive_seed

Precision = Literal["auto", "float32", "bfloat16"]

_NORMS = nn.modules.batchnorm._BatchNorm


class Frozen(nn.Module):
    """An encoder that is never trained: no gradient, and evaluation mode whatever mode the model around it is in.

    Args:
        encoder: inputs to features ``(n, d)``.
        name: what it is, e.g. ``"torchvision resnet152"``.
        inputs: how raw items become its inputs; with the weights' hash it identifies the features.
        n_features: width d.
        frozen_batchnorm: ``"train"`` leaves batch normalisation in training mode, so that its running statistics
            drift and a training batch's features depend on the batch, as in the published code (§ 3).
    """

    def __init__(
        self,
        encoder: nn.Module,
        name: str,
        inputs: str,
        n_features: int,
        frozen_batchnorm: Literal["eval", "train"] = "eval",
    ) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.name, self.inputs, self.n_features = name, inputs, n_features
        self.drifts = frozen_batchnorm == "train" and any(isinstance(part, _NORMS) for part in encoder.modules())
        self.precision: Precision = "auto"
        self.eval()

    def train(self, mode: bool = True) -> "Frozen":
        """Training mode reaches nothing inside but batch normalisation, and that only where it shall drift."""
        super().train(mode)
        self.encoder.eval()
        if self.drifts:
            for part in self.encoder.modules():
                if isinstance(part, _NORMS):
                    part.train(mode)
        return self

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs to features ``(n, d)`` float32; matrix products in bfloat16 on a GPU unless ``precision`` forbids."""
        with autocast(inputs.device, self.precision):
            features: Tensor = self.encoder(inputs)
        return features.float()

    @cached_property
    def weights_hash(self) -> str:
        """Identifies what never changes here, all weights and (unless they drift) buffers; 16 hex digits."""
        return weights_hash(dict(self.encoder.named_parameters()) if self.drifts else self.encoder.state_dict())

    def identity(self) -> dict[str, str]:
        """What features depend on beside the items, JSON-able: part of a cache's key and of a saved model."""
        return {"name": self.name, "inputs": self.inputs, "precision": self.precision, "weights": self.weights_hash}


class Normalize(nn.Module):
    """Pixels (uint8, or floats in [0, 1]) minus ``mean`` over ``std``, channel by channel."""

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)
        self.mean: Tensor
        self.std: Tensor

    def forward(self, pixels: Tensor) -> Tensor:
        """``(n, 3, s, s)`` to the same shape, float32."""
        unit = pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels
        return (unit - self.mean) / self.std


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[Any]:
    """bfloat16 matrix products where asked for; ``auto`` asks for them on a GPU only."""
    wanted = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16) if wanted else contextlib.nullcontext()


@contextlib.contextmanager
def memory_advice(advice: str) -> Iterator[None]:
    """An exhausted memory as a `JobError` of one line: "out of memory" and ``advice``."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        # torch.OutOfMemoryError is a RuntimeError; the CPU's allocator has no type of its own.
        if not isinstance(error, torch.OutOfMemoryError | MemoryError) and "allocate memory" not in str(error):
            raise
        raise JobError(f"out of memory {advice}") from error


@contextlib.contextmanager
def fixed_random_weights(name: str) -> Iterator[None]:
    """Weights drawn inside are the same in every process: a frozen backbone without pre-trained weights is drawn
    again, not saved."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(0, "backbone", name))
        yield


def weights_source(pretrained: str) -> tuple[str | None, Path | None]:
    """`split_source`, checked.

    Raises:
        InputError: the file does not exist.
    """
    tag, file = split_source(pretrained)
    if file and not file.is_file():
        raise InputError(f"model.pretrained: {file}: no such file of weights")
    return tag, file


def split_source(pretrained: str) -> tuple[str | None, Path | None]:
    """(tag, file) of a setting ``pretrained``: ``TAG``, ``FILE``, or ``TAG@FILE`` for the tag's weights from a file."""
    tag, at, file = pretrained.partition("@")
    if not at and (Path(pretrained).is_file() or "/" in pretrained or Path(pretrained).suffix):
        tag, file = "", pretrained
    return tag or None, Path(file) if file else None


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors or torch file, also where they lie below ``state_dict`` or ``model``.

    Raises:
        InputError: the file holds none, or is damaged.
    """
    try:
        state = load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:  # torch, pickle, zip and safetensors each have their own types
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(f"{path}: weights cannot be read ({first})") from None
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(f"{path}: holds no tensors by name; give a state dictionary or a safetensors file")
    return {name.removeprefix("module."): value for name, value in state.items()}


def load_weights(wanted: dict[str, Tensor], state: dict[str, Tensor], where: str) -> None:
    """Copy ``state`` into the tensors of ``wanted``; every one has to be there and fit.

    Raises:
        InputError: names the first tensors that are missing, too many, or of another shape.
    """
    wrong = [f"{name} is missing" for name in wanted if name not in state]
    wrong += [f"{name} is unknown" for name in state if name not in wanted]
    wrong += [
        f"{name} is {tuple(state[name].shape)}, expected {tuple(value.shape)}"
        for name, value in wanted.items()
        if name in state and state[name].shape != value.shape
    ]
    if wrong:
        more = f", and {len(wrong) - 2} more" if len(wrong) > 2 else ""
        raise InputError(f"{where}: the weights do not fit ({'; '.join(wrong[:2])}{more})")
    with torch.no_grad():
        for name, value in wanted.items():
            value.copy_(state[name])


def weights_hash(weights: dict[str, Tensor]) -> str:
    """Hash of tensors by name; 16 hex digits."""
    parts: list[bytes] = []
    for name, values in sorted(weights.items()):
        raw = values.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        parts += [name.encode(), content_hash(str(tuple(values.shape)).encode(), raw.data).encode()]
    return content_hash(*parts)[:16]
