"""The model: one branch per modality, from raw items to hash codes; saving and loading it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from safetensors.torch import save
from torch import Tensor, nn

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.data.images import ImageInput
from channelhash.data.records import Items
from channelhash.errors import InputError, JobError
from channelhash.models.backbones import Frozen, Precision, load_weights, read_weights
from channelhash.models.model_card import ModelFacts, model_card
from channelhash.utils.files import atomic_path, content_hash, write_text
from channelhash.utils.progress import Progress
from channelhash.utils.python_names import check_trusted

_ENCODE_BATCH = 256


class Branch(nn.Module):
    """One modality's way: raw items -> ``prepare`` -> inputs -> encoder -> features -> head -> outputs.

    Args:
        prepare: turns a sequence of raw items into one tensor whose rows are the items.
        encoder: inputs to features ``(n, d)``.
        head: features to outputs ``(n, k)``. Branches may share a head.
        prepare_collection: does what ``prepare`` does for a whole collection and keeps the result for the next time;
            None where ``prepare`` is quick enough.
    """

    def __init__(
        self,
        prepare: Callable[[Any], Tensor],
        encoder: nn.Module,
        head: nn.Module,
        prepare_collection: Callable[[Any, Progress | None], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.prepare = prepare
        self.encoder = encoder
        self.head = head
        self.prepare_collection = prepare_collection

    @property
    def frozen(self) -> Frozen | None:
        """The encoder, if it is frozen."""
        return self.encoder if isinstance(self.encoder, Frozen) else None

    @property
    def fixed(self) -> Frozen | None:
        """The encoder, if its features never change in a training: frozen, and no statistics drift."""
        return self.frozen if self.frozen and not self.frozen.drifts else None

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
        tokens: whether texts become ``(n, m)`` int32 token ids, 0 for padding, of which a training may hide, replace
            and drop some.
    """

    create: Callable[..., "HashModel"]
    build: Callable[..., dict[str, Branch]]
    tokens: bool = False


class HashModel(nn.Module, ModelHubMixin):
    """Branches by modality that end in codes of the same length.

    Args:
        name: the model's name in the registry `channelhash.models.MODELS`.
        n_bits: code length k.
        architecture: everything ``MODELS[name].build`` needs, JSON-able.
        branches: modality -> `Branch`.
        features_of: modality -> identity of a frozen encoder that is left out: the branch takes its features.
        code_spaces: fingerprints of the models whose codes these are made to be compared with: the teacher of a
            distilled model and the models that the teacher extends; empty if none. It asks, but adds nothing.
        extends: fingerprints of the models, oldest first, whose stored codes this one was trained to stay comparable
            with (`losses.extension`): it may encode what comes beside them.
    """

    def __init__(
        self,
        name: str,
        n_bits: int,
        architecture: dict[str, Any],
        branches: dict[str, Branch],
        features_of: dict[str, dict[str, str]] | None = None,
        code_spaces: Sequence[str] = (),
        extends: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.code_spaces, self.extends = tuple(code_spaces), tuple(extends)
        self._features_of = features_of or {}
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
        """Prepared inputs by modality to real-valued outputs ``(n, k)`` by modality.

        Modalities that share a head go through it together: its weights are read once, and larger matrices multiply
        faster.
        """
        heads = {id(self.branch(modality).head) for modality in inputs}
        if len(heads) > 1 or len(inputs) == 1:
            return {modality: self.branches[modality](values) for modality, values in inputs.items()}
        features = [self.branch(modality).encoder(values) for modality, values in inputs.items()]
        outputs = self.branch(next(iter(inputs))).head(torch.cat(features))
        return dict(zip(inputs, outputs.split([len(rows) for rows in features]), strict=True))

    def prepare(self, modality: str, items: Items) -> Tensor:
        """Raw items (pictures, strings, or rows of features) as the input tensor of their branch."""
        if modality not in self.branches:
            raise InputError(f"this model encodes {', '.join(self.modalities)}, not {modality}")
        inputs: Tensor = self.branches[modality].prepare(items)  # type: ignore[operator]
        return inputs

    def branch(self, modality: str) -> Branch:
        """The branch of a modality."""
        branch: Branch = self.branches[modality]  # type: ignore[assignment]  # a ModuleDict holds any module
        return branch

    def backbones(self) -> dict[str, dict[str, str]]:
        """modality -> identity of its frozen encoder, for those that have one."""
        there = {modality: self.branch(modality).frozen for modality in self.modalities}
        return self._features_of | {modality: frozen.identity() for modality, frozen in there.items() if frozen}

    def set_precision(self, precision: Precision) -> None:
        """How frozen encoders compute on a GPU; see `backbones.autocast`. Saved with the model."""
        for part in self.modules():
            if isinstance(part, Frozen):
                part.precision = precision

    def on_features(self) -> "HashModel":
        """This model without its frozen encoders: those branches take rows of the encoders' features.

        Heads and all that is trained are shared with this model, and saving the one saves the other.
        """
        branches = {}
        for modality in self.modalities:
            branch = self.branch(modality)
            if branch.fixed:
                rows = partial(feature_rows, modality=modality, width=branch.fixed.n_features)
                branch = Branch(rows, nn.Identity(), branch.head)
            branches[modality] = branch
        return HashModel(
            self.name, self.n_bits, self.architecture, branches, self.backbones(), self.code_spaces, self.extends
        )

    def trained_state(self) -> dict[str, Tensor]:
        """What a training changes, by name: parameters and buffers without those of frozen encoders (whose running
        statistics belong here where they drift). A shared tensor comes once. The tensors are the model's own."""
        fixed: set[int] = set()
        for modality in self.modalities:
            if frozen := self.branch(modality).frozen:
                kept = frozen.parameters() if frozen.drifts else frozen.state_dict(keep_vars=True).values()
                fixed |= {id(value) for value in kept}
        state = {}
        for name, value in self.state_dict(keep_vars=True).items():
            if id(value) not in fixed:
                fixed.add(id(value))
                state[name] = value.detach()
        return state

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

    def encode_images(self, images: Sequence[ImageInput]) -> PackedCodes:
        """Packed codes ``(n, ceil(k / 8))`` uint8 of picture files or opened pictures."""
        return self.encode("image", images)  # type: ignore[arg-type]  # opened images too

    def encode_texts(self, texts: Sequence[str]) -> PackedCodes:
        """Packed codes ``(n, ceil(k / 8))`` uint8 of texts."""
        return self.encode("text", texts)

    def fingerprint(self) -> str:
        """Hash of architecture and weights; codes are comparable when the fingerprints of their models are equal (or as
        `comparable` says).

        Extractors are left out: the model maps features to codes, whoever computes those features and wherever.
        """
        description = self._description()
        description["architecture"] = {key: v for key, v in self.architecture.items() if key != "extractors"}
        parts = [json.dumps(description, sort_keys=True).encode()]
        for name, values in sorted(self.trained_state().items()):
            parts += [name.encode(), values.cpu().contiguous().numpy().tobytes()]
        return content_hash(*parts)[:16]

    def _description(self) -> dict[str, Any]:
        description = {"name": self.name, "n_bits": self.n_bits, "architecture": self.architecture}
        known = {"backbones": self.backbones(), "code_space": " ".join(self.code_spaces)}
        return description | {key: value for key, value in known.items() if value}

    def comparable(self, model: str) -> bool:
        """Whether this model's codes can be compared with those of the model with the fingerprint ``model``."""
        return model in (self.fingerprint(), *self.code_spaces, *self.extends)

    def _save_pretrained(self, save_directory: Path) -> None:
        with atomic_path(save_directory / "model.safetensors") as path:
            # Not `save_file`, whose files only their owner may read.
            path.write_bytes(save({name: values.contiguous() for name, values in self.trained_state().items()}))
        extends = {"extends": list(self.extends)} if self.extends else {}
        write_text(save_directory / "config.json", json.dumps(self._description() | extends, indent=2))

    def generate_model_card(self, *args: Any, **training: Any) -> ModelCard:
        """Generate the card that `save_pretrained` writes; ``training`` are arguments of `model_card.model_card`."""
        parameters = sum(values.numel() for values in self.trained_state().values())
        facts = ModelFacts(self.name, self.n_bits, self.modalities, parameters, self.fingerprint())
        return ModelCard(model_card(facts, **training))

    @classmethod
    def _from_pretrained(cls, *, model_id: str, trust_code: bool = False, **hub: Any) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            keys = ("revision", "cache_dir", "force_download", "local_files_only", "token")
            folder = Path(snapshot_download(model_id, **{key: hub[key] for key in keys if key in hub}))
        return cls._from_folder(folder, trust_code)

    @classmethod
    def _from_folder(cls, folder: Path, trust_code: bool = False) -> Self:
        from channelhash.models import resolve_model  # the registry imports the model files, which import this one

        try:
            description = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            name, n_bits, architecture = (description[key] for key in ("name", "n_bits", "architecture"))
            check_trusted(name, folder / "config.json", trust_code)
            try:
                kind = resolve_model(name)
            except InputError as error:
                raise ValueError(str(error)) from error
            branches = kind.build(**architecture)
        except FileNotFoundError:
            raise InputError(f"{folder}: no config.json, this is not a saved model") from None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{folder / 'config.json'}: not a model this version can build ({error})") from None
        model = cls(name=name, n_bits=n_bits, architecture=architecture, branches=branches)
        model.code_spaces = tuple(str(description.get("code_space", "")).split())
        model.extends = tuple(description.get("extends", ()))
        model._check_backbones(description.get("backbones", {}), folder)
        file = folder / "model.safetensors"
        load_weights(model.trained_state(), read_weights(file), str(file))
        return model.eval()

    def _check_backbones(self, saved: dict[str, dict[str, str]], folder: Path) -> None:
        for modality, identity in saved.items():
            frozen = self.branch(modality).frozen
            if frozen is None:
                raise InputError(f"{folder / 'config.json'}: names a backbone for {modality}, but the model has none")
            frozen.precision = identity["precision"]  # type: ignore[assignment]
            if frozen.weights_hash != identity["weights"]:
                raise InputError(
                    f"{folder / 'config.json'}: trained on {identity['name']} with weights {identity['weights']}, but "
                    f"{self.architecture.get('pretrained')} holds {frozen.weights_hash}; give the same weights"
                )


def feature_rows(items: Any, modality: str, width: int) -> Tensor:
    """Rows of features as a float32 tensor ``(n, width)``; `InputError` for anything else."""
    if not isinstance(items, np.ndarray) or items.ndim != 2 or items.shape[1] != width:
        what = items.shape if isinstance(items, np.ndarray) else type(items).__name__
        raise InputError(f"{modality} features are (n, {width}) for this model, not {what}")
    return torch.from_numpy(np.ascontiguousarray(items, dtype=np.float32))
