"""The model: one branch per modality, from raw items to hash codes; saving and loading it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from huggingface_hub import ModelHubMixin, snapshot_download
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.data.records import Items
from channelhash.errors import InputError, JobError
from channelhash.files import atomic_path, content_hash, write_text

Picture = Path | str | Image.Image
Progress = Callable[[int, int], None]

_ENCODE_BATCH = 256


class Branch(nn.Module):
    """One modality's way: raw items -> ``prepare`` -> inputs -> encoder -> features -> head -> outputs.

    Args:
        prepare: turns a sequence of raw items into one tensor whose rows are the items.
        encoder: inputs to features ``(n, d)``.
        head: features to outputs ``(n, k)``. Branches may share a head.
    """

    def __init__(self, prepare: Callable[[Any], Tensor], encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.prepare = prepare
        self.encoder = encoder
        self.head = head

    def forward(self, inputs: Tensor) -> Tensor:
        """Inputs to real-valued outputs ``(n, k)``. A row depends on its own input alone."""
        outputs: Tensor = self.head(self.encoder(inputs))
        return outputs


@dataclass(frozen=True)
class ModelKind:
    """How a registered model comes to be.

    Attributes:
        create: ``(train: Records, n_bits: int, **settings) -> HashModel``, untrained, with everything that it takes
            from the training data (sizes, vocabulary, feature statistics). Its keyword arguments are the keys of the
            configuration's section ``model``.
        build: ``(**architecture) -> {modality: Branch}``, from the JSON-able dictionary that ``create`` put into the
            model; used when a saved model is loaded.
    """

    create: Callable[..., "HashModel"]
    build: Callable[..., dict[str, Branch]]


class HashModel(nn.Module, ModelHubMixin):
    """Branches by modality that end in codes of the same length.

    Args:
        name: the model's name in the registry `channelhash.models.MODELS`.
        n_bits: code length k.
        architecture: everything ``MODELS[name].build`` needs, JSON-able.
        branches: modality -> `Branch`.
    """

    def __init__(self, name: str, n_bits: int, architecture: dict[str, Any], branches: dict[str, Branch]) -> None:
        super().__init__()
        self.name = name
        self.n_bits = n_bits
        self.architecture = architecture
        self.branches = nn.ModuleDict(branches)

    @property
    def modalities(self) -> tuple[str, ...]:
        """The modalities that this model encodes."""
        return tuple(self.branches)

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Prepared inputs by modality to real-valued outputs ``(n, k)`` by modality."""
        return {modality: self.branches[modality](values) for modality, values in inputs.items()}

    def prepare(self, modality: str, items: Items) -> Tensor:
        """Raw items (pictures, strings, or rows of features) as the input tensor of their branch."""
        if modality not in self.branches:
            raise InputError(f"this model encodes {', '.join(self.modalities)}, not {modality}")
        inputs: Tensor = self.branches[modality].prepare(items)  # type: ignore[operator]
        return inputs

    def outputs(self, modality: str, items: Items, progress: Progress | None = None) -> Tensor:
        """Real-valued outputs of raw items in evaluation mode.

        Args:
            modality: ``"image"`` or ``"text"``.
            items: ``n`` pictures (path or PIL), strings, or rows of features.
            progress: called with (done, n) after each batch.

        Returns:
            ``(n, k)`` float32 on the CPU. Memory grows with ``n · k``, not with the items.

        Raises:
            InputError: an item cannot be read, or the model cannot take this modality.
            JobError: an output is NaN or infinite.
        """
        rows = [torch.empty(0, self.n_bits)]
        for start in range(0, len(items), _ENCODE_BATCH):
            inputs = self.prepare(modality, items[start : start + _ENCODE_BATCH])
            rows.append(self.outputs_prepared({modality: inputs})[modality])
            broken = (~rows[-1].isfinite().all(dim=1)).nonzero()
            if len(broken):
                row = start + int(broken[0])
                name = f" ({items[row]})" if isinstance(items[row], str | Path) else ""
                raise JobError(
                    f"{modality} in row {row}{name}: the model's output is not finite; its weights are damaged or the "
                    "training broke, train again"
                )
            if progress:
                progress(min(start + _ENCODE_BATCH, len(items)), len(items))
        return torch.cat(rows)

    @torch.no_grad()
    def outputs_prepared(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Real-valued outputs, float32 on the CPU, of inputs made by `prepare`, in evaluation mode."""
        was_training = self.training
        self.eval()
        outputs = {
            modality: torch.cat([self.branches[modality](part.to(self.device)).float().cpu() for part in parts])
            for modality, parts in ((name, torch.split(values, _ENCODE_BATCH)) for name, values in inputs.items())
        }
        self.train(was_training)
        return outputs

    def encode(self, modality: str, items: Items, progress: Progress | None = None) -> PackedCodes:
        """Packed codes ``(n, ceil(k / 8))`` uint8 of raw items; arguments and errors as in `outputs`."""
        return pack(binarize(self.outputs(modality, items, progress)))

    def encode_prepared(self, inputs: dict[str, Tensor]) -> dict[str, PackedCodes]:
        """Packed codes by modality of inputs made by `prepare`."""
        return {modality: pack(binarize(rows)) for modality, rows in self.outputs_prepared(inputs).items()}

    def encode_images(self, pictures: Sequence[Picture]) -> PackedCodes:
        """Packed codes ``(n, ceil(k / 8))`` uint8 of picture files or opened pictures."""
        return self.encode("image", pictures)  # type: ignore[arg-type]  # opened pictures too

    def encode_texts(self, texts: Sequence[str]) -> PackedCodes:
        """Packed codes ``(n, ceil(k / 8))`` uint8 of texts."""
        return self.encode("text", texts)

    def fingerprint(self) -> str:
        """Hash of architecture and weights; codes are comparable when the fingerprints of their models are equal."""
        parts = [json.dumps(self._description(), sort_keys=True).encode()]
        for name, values in sorted(self.state_dict().items()):
            parts += [name.encode(), values.detach().cpu().contiguous().numpy().tobytes()]
        return content_hash(*parts)[:16]

    def _description(self) -> dict[str, Any]:
        return {"name": self.name, "n_bits": self.n_bits, "architecture": self.architecture}

    def _save_pretrained(self, save_directory: Path) -> None:
        with atomic_path(save_directory / "model.safetensors") as path:
            save_file({name: values.contiguous() for name, values in self.state_dict().items()}, path)
        write_text(save_directory / "config.json", json.dumps(self._description(), indent=2))

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **hub: Any) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            keys = ("revision", "cache_dir", "force_download", "local_files_only", "token")
            folder = Path(snapshot_download(model_id, **{key: hub[key] for key in keys if key in hub}))
        return cls._from_folder(folder)

    @classmethod
    def _from_folder(cls, folder: Path) -> Self:
        from channelhash.models import MODELS  # the registry imports the model files, which import this one

        try:
            description = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            name, n_bits, architecture = (description[key] for key in ("name", "n_bits", "architecture"))
            branches = MODELS[name].build(**architecture)
        except FileNotFoundError:
            raise InputError(f"{folder}: no config.json, this is not a saved model") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{folder / 'config.json'}: not a model this version can build ({error})") from None
        model = cls(name=name, n_bits=n_bits, architecture=architecture, branches=branches)
        try:
            model.load_state_dict(load_file(folder / "model.safetensors"))
        except Exception as error:  # safetensors and torch raise their own types for truncated and foreign files
            first = str(error).strip().splitlines()[0]
            raise InputError(f"{folder / 'model.safetensors'}: weights cannot be read ({first})") from None
        return model.eval()
