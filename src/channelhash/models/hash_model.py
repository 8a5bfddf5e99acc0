"""The model: one branch per modality, from raw items to hash codes; saved and loaded."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor, nn

from channelhash.codes import CodeSet, PackedCodes, binarize, pack
from channelhash.data.images import ImageFiles, image_batches
from channelhash.data.records import RawItems, Records, are_files
from channelhash.errors import InputError, JobError
from channelhash.models import description
from channelhash.models.backbones import Frozen, Precision, load_weights
from channelhash.models.extractors import FeatureRows
from channelhash.models.fitted import FittedModel
from channelhash.utils.image_files import PREPROCESSING
from channelhash.utils.machine import usable_cores
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.typed_settings import read_settings, settings_of

_DAMAGED = "weights are damaged or the training broke, train again"


class Branch(nn.Module):
    """The path of one modality: raw items -> ``prepare`` -> inputs -> encoder -> features -> head
    -> outputs.

    Args:
        prepare: converts a sequence of raw items to one tensor whose rows are the items.
        encoder: inputs to features ``(n, d)``.
        head: features to outputs ``(n, k)``. Branches may share a head.
        prepare_collection: does the same for a whole collection and caches the result; None where
            ``prepare`` is quick.
        pretrained: the encoder was trained before; what is trained of it learns at
            ``train.rates.backbone``.

    >>> branch = Branch(torch.tensor, nn.Identity(), nn.Linear(3, 8))
    >>> branch(branch.prepare([[0.0, 1.0, 2.0]])).shape
    torch.Size([1, 8])
    """

    def __init__(
        self,
        prepare: Callable[[Any], Tensor],
        encoder: nn.Module,
        head: nn.Module,
        prepare_collection: Callable[[Any, Progress | None], Tensor] | None = None,
        pretrained: bool = False,
    ) -> None:
        super().__init__()
        self.prepare = prepare
        self.encoder = encoder
        self.head = head
        self.prepare_collection = prepare_collection
        self.pretrained = pretrained

    @property
    def frozen(self) -> Frozen | None:
        """The encoder if it is frozen, else None."""
        return self.encoder if isinstance(self.encoder, Frozen) else None

    @property
    def fixed(self) -> Frozen | None:
        """The encoder if its features never change in training: frozen, without drifting
        statistics. Else None.
        """
        return self.frozen if self.frozen and not self.frozen.drifts else None

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute real-valued outputs ``(n, k)``. A row depends on its own input alone."""
        return cast(Tensor, self.head(self.encoder(inputs)))


@dataclass(frozen=True)
class ModelKind:
    """The functions of a registered model.

    Attributes:
        create: ``(train: Records, n_bits: int, **settings) -> HashModel``, untrained, with all that
            it takes from the training data (sizes, vocabulary, feature statistics). Its keyword
            arguments are the keys of the configuration's section ``model``.
        build: ``(**architecture) -> {modality: Branch}``, from the JSON-able dictionary that
            ``create`` put into the model; called when a saved model is loaded.
    """

    create: Callable[..., "HashModel"]
    build: Callable[..., dict[str, Branch]]


class HashModel(nn.Module, ModelHubMixin, description.Model):
    """Branches by modality whose codes have the same length.

    Args:
        name: the model's name in the registry `channelhash.models.MODELS`.
        n_bits: code length k.
        architecture: arguments of ``MODELS[name].build``, JSON-able.
        branches: modality -> `Branch`.
        features_of: modality -> identity of a frozen encoder that is left out: the branch takes its
            features.
        code_spaces: fingerprints of the models whose codes these may be compared with: the teacher
            of a distilled model and the models that the teacher extends. The model may encode
            queries for their stores, but not new items.
        extends: fingerprints of the models, oldest first, with whose stored codes this model was
            trained to stay comparable (`losses.incremental`): it may encode new items for their
            stores.

    >>> branch = Branch(torch.tensor, nn.Identity(), nn.Linear(3, 8))
    >>> model = HashModel("mine", 8, {}, {"image": branch})
    >>> model.modalities, model.encode("image", [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]).shape
    (('image',), (2, 1))
    """

    not_finite = f"the model's output is not finite; its {_DAMAGED}"

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
        self.code_spaces = tuple(code_spaces)
        self.extends = tuple(extends)
        self._features_of = features_of or {}
        self.name = name
        self.n_bits = n_bits
        self.architecture = architecture
        self.branches = nn.ModuleDict(branches)

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities that the model encodes."""
        return tuple(self.branches)

    @property
    def device(self) -> torch.device:
        """Device of the parameters; the CPU where there are none."""
        return next((values.device for values in self.parameters()), torch.device("cpu"))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute real-valued outputs ``(n, k)`` by modality from prepared inputs by modality."""
        return {modality: self.branches[modality](values) for modality, values in inputs.items()}

    def prepare(self, modality: str, items: RawItems) -> Tensor:
        """Prepare raw items (images, strings, or rows of features) as the input tensor of their
        branch.

        Raises:
            InputError: the model does not encode this modality, or an item cannot be read.
        """
        if modality not in self.branches:
            raise InputError(f"this model encodes {', '.join(self.modalities)}, not {modality}")
        return self.branch(modality).prepare(items)

    def takes_rows(self, modality: str) -> bool:
        """Return whether the items of a modality may be rows of features."""
        return isinstance(self.branch(modality).prepare, FeatureRows)

    def branch(self, modality: str) -> Branch:
        """Return the branch of a modality."""
        return cast(Branch, self.branches[modality])  # a ModuleDict holds any module

    def backbones(self) -> dict[str, dict[str, str]]:
        """Return modality -> identity of its frozen encoder, where it has one."""
        encoders = {modality: self.branch(modality).frozen for modality in self.modalities}
        return self._features_of | {
            modality: frozen.identity() for modality, frozen in encoders.items() if frozen
        }

    def set_precision(self, precision: Precision) -> None:
        """Set how frozen encoders compute on a GPU; see `backbones.autocast`. The setting is saved
        with the model.
        """
        for part in self.modules():
            if isinstance(part, Frozen):
                part.precision = precision

    def on_features(self) -> "HashModel":
        """Return this model without its frozen encoders: their branches take rows of the encoders'
        features.

        All trained parts are shared with this model; saving either model saves both.
        """
        branches = {}
        for modality in self.modalities:
            branch = self.branch(modality)
            if branch.fixed:
                branch = Branch(
                    FeatureRows(modality, branch.fixed.n_features), nn.Identity(), branch.head
                )
            branches[modality] = branch
        origin = self.backbones(), self.code_spaces, self.extends
        return HashModel(self.name, self.n_bits, self.architecture, branches, *origin)

    def trained_state(self) -> dict[str, Tensor]:
        """Return the parameters and buffers that training changes, by name, without copying them.

        Those of frozen encoders are left out, except running statistics that drift. A shared tensor
        comes once.
        """
        excluded: set[int] = set()
        for modality in self.modalities:
            frozen = self.branch(modality).frozen
            if frozen:
                fixed = (
                    frozen.parameters()
                    if frozen.drifts
                    else frozen.state_dict(keep_vars=True).values()
                )
                excluded |= {id(value) for value in fixed}
        state = {}
        for name, value in self.state_dict(keep_vars=True).items():
            if id(value) not in excluded:
                excluded.add(id(value))
                state[name] = value.detach()
        return state

    def outputs(self, modality: str, items: RawItems, progress: Progress = no_progress) -> Tensor:
        """Compute real-valued outputs of raw items in evaluation mode.

        Args:
            modality: ``"image"`` or ``"text"``.
            items: ``n`` images (path or PIL), strings, or rows of features.
            progress: called with (done, n) after each batch.

        Returns:
            ``(n, k)`` float32 on the CPU. Memory grows with ``n · k``, not with the items.

        Raises:
            InputError: an item cannot be read, or the model cannot take this modality.
            JobError: an output is NaN or infinite.
        """
        return torch.from_numpy(super().outputs(modality, items, progress))

    @torch.no_grad()
    def outputs_prepared(self, inputs: Mapping[str, Tensor | NDArray[Any]]) -> dict[str, Tensor]:
        """Compute real-valued outputs, float32 on the CPU, of inputs from `prepare`, in evaluation
        mode.
        """
        was_training = self.training
        if any(part.training for part in self.modules()):
            self.eval()
        outputs = {}
        for modality, values in inputs.items():
            branch = self.branches[modality]
            parts = torch.split(torch.as_tensor(values), self.batch_size)
            outputs[modality] = torch.cat(
                [branch(part.to(self.device)).float().cpu() for part in parts]
            )
        if was_training:
            self.train()
        return outputs

    def encode_prepared(self, inputs: dict[str, Tensor]) -> dict[str, PackedCodes]:
        """Encode inputs from `prepare` as packed codes by modality.

        Raises:
            JobError: an output is NaN.
        """
        try:
            return {
                modality: pack(binarize(rows))
                for modality, rows in self.outputs_prepared(inputs).items()
            }
        except ValueError as error:
            raise JobError(f"{error}; the model's {_DAMAGED}") from None

    def fingerprint(self) -> str:
        """Hash architecture and weights. Codes are comparable if their models have equal
        fingerprints, or `comparable`.

        Extractors do not count: the model maps features to codes, wherever those features are
            computed.
        """
        weights = {
            name: values.cpu().contiguous().numpy() for name, values in self.trained_state().items()
        }
        return description.fingerprint_of(self._description(), weights)

    def _description(self) -> dict[str, Any]:
        required = {"name": self.name, "n_bits": self.n_bits, "architecture": self.architecture}
        optional: dict[str, Any] = {
            "backbones": self.backbones(),
            "code_space": " ".join(self.code_spaces),
        }
        if "image" in self.branches and self.name != "features":
            optional["preprocessing"] = PREPROCESSING
        return required | {key: value for key, value in optional.items() if value}

    def _save_pretrained(self, save_directory: Path) -> None:
        weights = {name: values.contiguous() for name, values in self.trained_state().items()}
        extends = {"extends": list(self.extends)} if self.extends else {}
        description.write_model(save_directory, save, weights, self._description() | extends)

    def generate_model_card(self, *args: Any, **training: Any) -> ModelCard:
        """Generate the card that `save_pretrained` writes; ``training`` are arguments of
        `description.model_card`.
        """
        parameters = sum(values.numel() for values in self.trained_state().values())
        facts = (self.name, self.n_bits, self.modalities, parameters, self.fingerprint())
        return ModelCard(description.model_card(*facts, **training))

    @classmethod
    def _from_pretrained(cls, *, model_id: str, trust_code: bool = False, **hub: Any) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            keys = ("revision", "cache_dir", "force_download", "local_files_only", "token")
            folder = Path(
                snapshot_download(model_id, **{key: hub[key] for key in keys if key in hub})
            )
        return cls._load(folder, trust_code)

    @classmethod
    def _load(cls, folder: Path, trust_code: bool) -> Self:
        model = super()._load(folder, trust_code)
        file = folder / "model.safetensors"
        load_weights(model.trained_state(), load(description.read_checked(file)), str(file))
        return model.eval()

    @classmethod
    def _build(cls, config: dict[str, Any], folder: Path) -> Self:
        # the registry imports the model files, which import this one
        from channelhash.models import resolve_model

        name = config["name"]
        n_bits = config["n_bits"]
        architecture = config["architecture"]
        if not isinstance(n_bits, int) or architecture.get("n_bits", n_bits) != n_bits:
            raise ValueError(
                f"n_bits is {n_bits!r}, in its architecture {architecture.get('n_bits')!r}"
            )
        build = resolve_model(name).build
        fields = settings_of(build)  # what it annotates is checked against these types
        arguments = {
            key: value for key, value in architecture.items() if key in fields.model_fields
        }
        try:
            checked = vars(read_settings(fields, arguments, "architecture"))
            branches = build(**architecture | checked)
        except InputError as error:
            raise ValueError(str(error)) from error
        if not branches:
            raise ValueError("it encodes no modality")
        spaces = str(config.get("code_space", "")).split()
        extends = map(str, config.get("extends", ()))
        model = cls(name, n_bits, architecture, branches, None, spaces, tuple(extends))
        for modality, identity in config.get("backbones", {}).items():
            model._set_backbone(modality, identity, folder / "config.json")
        return model

    def _set_backbone(self, modality: str, identity: Mapping[str, Any], file: Path) -> None:
        """Take over the precision of a frozen backbone from a configuration; raise `InputError` if
        its weights are others.
        """
        frozen = self.branch(modality).frozen
        if frozen is None:
            raise InputError(f"{file}: names a backbone for {modality}, but the model has none")
        frozen.precision = identity["precision"]
        if frozen.weights_hash != identity["weights"]:
            weights = self.architecture.get("pretrained", frozen.name)
            raise InputError(
                f"{file}: trained on {identity['name']} with weights {identity['weights']}, but "
                f"{weights} holds {frozen.weights_hash}; give the same weights, or make it again"
            )


def feature_rows(items: Any, modality: str, width: int) -> Tensor:
    """Return rows of features as a tensor; see `FeatureRows.check`.

    >>> feature_rows(np.eye(2), "image", 2).dtype
    torch.float32
    """
    return torch.from_numpy(FeatureRows(modality, width).check(items))


#: Images that worker processes read are encoded this many at a time.
_BATCH = 128


def encode_records(
    model: HashModel | FittedModel,
    records: Records,
    progress: Progress = no_progress,
    fingerprint: str | None = None,
) -> CodeSet:
    """Return codes of every modality that both the model and the records have, with labels, texts
    and image paths.
    """
    codes = {}
    for modality in model.modalities:
        if modality in records.items:
            items = records.items[modality]
            codes[modality] = encode_items(model, modality, items, usable_cores(), progress)
    if not codes:
        raise InputError(
            f"the items have {' and '.join(records.items)}s, this model encodes "
            f"{' and '.join(model.modalities)}s; there is nothing to encode"
        )
    return CodeSet(
        records.ids,
        codes,
        records.labels if records.label_names else None,
        model.n_bits,
        label_names=records.label_names,
        texts=records.display_values("text"),
        images=records.display_values("image"),
        model=model.fingerprint() if fingerprint is None else fingerprint,
    )


def encode_items(
    model: HashModel | FittedModel,
    modality: str,
    items: RawItems,
    workers: int,
    progress: Progress = no_progress,
) -> PackedCodes:
    """Return packed codes as `HashModel.encode` does, with image files of a trained model read by
    worker processes.
    """
    if not are_files(items) or not workers or not isinstance(model, HashModel):
        return model.encode(modality, items, progress)
    images = ImageFiles(items, model.branch(modality).prepare)
    n = len(items)
    batches = [range(start, min(start + _BATCH, n)) for start in range(0, n, _BATCH)]
    codes = []
    for rows, pixels in zip(batches, image_batches(images, batches, workers), strict=True):
        codes.append(model.encode_prepared({modality: pixels})[modality])
        progress(rows.stop, n)
    return np.concatenate(codes)
