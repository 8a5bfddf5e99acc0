"""A run's configuration: read from YAML, overridden by ``--set a.b=value``, checked, and written
back complete.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from channelhash.data.collection import DataSource
from channelhash.data.registry import check_data
from channelhash.data.splits import SplitSettings
from channelhash.errors import InputError, naming
from channelhash.losses import (
    RECOMMENDED,
    Terms,
    expand_settings,
    loss_settings,
    resolve_loss,
)
from channelhash.models import resolve_model
from channelhash.utils import typed_settings
from channelhash.utils.decode import read_yaml_sections
from channelhash.utils.typed_settings import Settings, absolute, read_settings, settings_of

_SECTIONS = ("data", "model", "loss", "train", "evaluate", "extend")


class TrainSettings(Settings):
    """The section ``train``; the defaults are the paper's (``protocol.md`` § 6).

    Attributes:
        epochs: passes over the training rows.
        batch_size: rows per batch; the last partial batch is dropped, unless it is the only one.
        captions: each epoch takes every row, or each image once with one of its rows, drawn anew;
            then a batch holds no two texts of one image, and ``batch_size`` counts images.
        learning_rate: Adam's, before the schedule.
        rates: learning rates of parts with one of their own, before the schedule. ``backbone`` is
            what is trained of pre-trained encoders, ``head`` the rest of the model. ``proxies`` are
            what the loss trains (proxies, a classifier), if anything. A part at 0 stays as it was.
        schedule: the paper's, which is constant at first and at last; or a rise from 0 over the
            first 5 % of the training and half a cosine to 0, step by step.
        weight_decay: AdamW's; 0 is Adam.
        clip_gradient: largest 2-norm of a step's gradient, model and loss together: a longer one is
            shortened to it; 0 shortens none.
        average: decay d of the average of the weights over the steps, about the last 1 / (1 − d) of
            them, which is what is validated and saved; 0 takes the weights of the last step.
        keep: the trained model is that of the last epoch, or of the one ``best`` on validation.
        seed: of initial weights, order and dropout.
        validate_every: epochs between two validations, the last epoch included; 0 never validates.
        checkpoint_every: epochs between two checkpoints to resume from.
        alternate: for losses with an anchor: one pass for each modality in an epoch, or each batch
            for all of them.
        augment: images are taken as they are, or augmented progressively by the paper's tables.
        easy_weights: the four kinds of easy augmentation are equally likely; or each of the four
            angles counts as a kind, as in the published code.
        augment_seed: seed of the augmentation, separate so that trainings with other seeds can use
            one bank.
        features: where the features of a frozen backbone come from: computed for each batch
            (``online``), once for the items as they are (``cached``), or once for every augmented
            draw (``bank``); ``auto`` is ``cached`` without augmentation, ``bank`` with it, and
            ``online`` for a model without a frozen backbone.
        feature_dtype: number type of cached features.
        workers: processes that read images from disk; None is one per core.
        label_noise: share of the training rows that are given the labels of another row, to measure
            what that costs.
        device: where to train; ``auto`` takes a GPU if there is one.
        precision: matrix products in bfloat16 or float32; ``auto`` is bfloat16 on a GPU. Losses are
            always float32.
        accumulate: batches whose gradients are averaged for one step; the loss sees the pairs
            within each batch.
        compile: compile the model with ``torch.compile``.
        patience: stop after this number of validations without a better one; 0 never stops early.
    """

    epochs: int = Field(200, ge=1)
    batch_size: int = Field(128, ge=1)
    captions: Literal["all", "one"] = "all"
    learning_rate: float = Field(1e-5, gt=0)
    rates: dict[Literal["backbone", "head", "proxies"], Annotated[float, Field(ge=0)]] = Field(
        default_factory=dict
    )
    schedule: Literal["paper", "cosine"] = "paper"
    weight_decay: float = Field(0.0, ge=0)
    clip_gradient: float = Field(0.0, ge=0)
    average: float = Field(0.0, ge=0, lt=1)
    keep: Literal["last", "best"] = "last"
    seed: int = Field(0, ge=0)
    validate_every: int = Field(5, ge=0)
    checkpoint_every: int = Field(5, ge=1)
    alternate: Literal["epoch", "batch"] = "epoch"
    augment: Literal["none", "progressive"] = "none"
    easy_weights: Literal["kinds", "angles"] = "kinds"
    augment_seed: int = Field(0, ge=0)
    features: Literal["auto", "online", "cached", "bank"] = "auto"
    feature_dtype: Literal["float16", "float32"] = "float32"
    workers: int | None = Field(None, ge=0)
    label_noise: float = Field(0.0, ge=0, le=1)
    device: str = "auto"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    accumulate: int = Field(1, ge=1)
    compile: bool = False
    patience: int = Field(0, ge=0)


class _EvaluateSettings(Settings):
    """The section ``evaluate``.

    Attributes:
        cutoffs: z of mAP@z and P@z; those above the size of the retrieval set are left out.
    """

    cutoffs: tuple[Annotated[int, Field(ge=1)], ...] = (50, 100, 500, 1000, 5000)


class ExtendSettings(Settings):
    """The section ``extend``: the run continues another one, whose codes stay valid
    (`losses.incremental`).

    The section ``data`` describes only the new items; the run's collection is that of ``run``
    followed by these.

    Attributes:
        run: folder of the finished run that is extended; its weights are where the training begins.
        stored: weight w_s of the channels between new items and stored codes.
        keep: weight w_k that holds old training items at their codes.
        partners: stored codes that are drawn for each batch, at most.
        replay: old training rows that are trained on again, drawn at random; None takes as many as
            there are new ones.
    """

    run: Path
    stored: float = Field(1.0, ge=0)
    keep: float = Field(1.0, ge=0)
    partners: int = Field(2048, ge=1)
    replay: int | None = Field(None, ge=0)


@dataclass(frozen=True)
class RunConfig:
    """A checked configuration, with every default filled in.

    Attributes:
        kind: name of the data set, as in `data.resolve_data_kind`.
        source: arguments of its loader.
        split: how its rows are split.
        model_name: as in `models.resolve_model`.
        n_bits: code length k.
        model: further arguments of that model.
        loss_name: as in `losses.resolve_loss`.
        loss: arguments of that loss, under the paper's symbols.
        terms: fields of `losses.Terms`; further keys of the section ``loss``.
        train: the training.
        evaluate: the evaluation.
        extend: the run that this one extends, if any.

    >>> sections = {"data": {"kind": "synthetic", "root": "d"}, "model": {"name": "small"}}
    >>> config = make_config(sections | {"loss": {"name": "sch", "tau": 2}})
    >>> config.loss.tau, config.n_bits, config.train.epochs
    (2.0, 32, 200)
    """

    kind: str
    source: Settings
    split: SplitSettings
    model_name: str
    n_bits: int
    model: Settings
    loss_name: str
    loss: Settings
    terms: Settings
    train: TrainSettings
    evaluate: _EvaluateSettings
    extend: ExtendSettings | None = None

    @property
    def sources(self) -> list[DataSource]:
        """Sources of the run's collection: those of the extended run, if any, then the section
        ``data``.
        """
        with typed_settings.trusting(self.python_names):  # as this one names them too
            old = [] if self.extend is None else read_run_config(self.extend.run).sources
        return [
            *old,
            DataSource(
                self.kind, vars(self.source), self.split.only_labels, self.split.without_labels
            ),
        ]

    @property
    def python_names(self) -> list[str]:
        """Names of a person's own code in the configuration."""
        return typed_settings.python_names(self.sections())

    def sections(self) -> dict[str, dict[str, Any]]:
        """Return the complete configuration as plain values, which `make_config` takes."""
        # Absent unless set: configurations have the hashes of the published tables.
        unset = {
            key for key in ("only_labels", "without_labels") if getattr(self.split, key) is None
        }
        split = self.split.model_dump(mode="json", exclude=unset)
        sections: dict[str, dict[str, Any]] = {
            "data": {"kind": self.kind, **_plain(self.source), **split},
            "model": {"name": self.model_name, "n_bits": self.n_bits, **_plain(self.model)},
            "loss": {"name": self.loss_name, **_plain(self.loss), **_plain(self.terms)},
            "train": _plain(self.train),
            "evaluate": _plain(self.evaluate),
        }
        if self.extend is not None:
            sections["extend"] = _plain(self.extend)
        return sections

    def to_yaml(self) -> str:
        """Return the complete configuration as text that `read_config` reads."""
        return yaml.safe_dump(self.sections(), sort_keys=False)


def read_config(path: Path, overrides: Sequence[str] = ()) -> RunConfig:
    """Read ``path`` and apply ``overrides``, each ``"section.key=value"`` with the value in YAML.

    Relative paths are relative to the folder that the command runs in, and become absolute.
    """
    with naming(path):
        return make_config(read_sections(path, overrides))


def read_sections(path: Path, overrides: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Read the sections of a configuration file and apply ``overrides``; only their form is
    checked.

    ``configs/NAME.yaml``, as the pages name what ships with the package, is found outside the
    repository too.
    """
    if not path.exists():
        shipped = Path(__file__).parent / "presets" / path.name
        if path.parent != Path("configs") or not shipped.exists():
            raise InputError(
                f"{path}: no such configuration file; `channelhash config list` names those that "
                "ship"
            )
        path = shipped
    values = read_yaml_sections(
        path, f"a configuration has the sections {', '.join(_SECTIONS)}, each with keys"
    )
    typed_settings.apply_overrides(values, *overrides)
    _displace_weights(values.get("loss", {}), overrides)
    return values


def _displace_weights(loss: dict[str, Any], overrides: Sequence[str]) -> None:
    """Leave out our weights, which a file takes, where an override takes the authors' or a loss for
    which ours are not known.
    """
    keys = {override.partition("=")[0].strip() for override in overrides}
    if "loss.recommended" in keys:
        return
    takes_published = "loss.published" in keys and loss.get("published") is True
    takes_other_loss = "loss.name" in keys and loss.get("name") not in RECOMMENDED
    if takes_published or takes_other_loss:
        loss.pop("recommended", None)


def _take_required(section: dict[str, Any], key: str) -> Any:
    """Take the value of ``section.key`` out of its section."""
    name = key.partition(".")[2]
    if name not in section:
        raise InputError(f"{key}: is missing and has no default")
    return section.pop(name)


def make_config(values: dict[str, dict[str, Any]]) -> RunConfig:
    """Check a nested dictionary of sections; errors as in `read_config`."""
    for section in values:
        if section not in _SECTIONS:
            raise InputError(
                typed_settings.unknown(f"section {section!r}", section, list(_SECTIONS))
            )
    data = dict(values.get("data", {}))
    model = dict(values.get("model", {}))
    loss = dict(values.get("loss", {}))
    kind = _take_required(data, "data.kind")
    model_name = _take_required(model, "model.name")
    loss_name = _take_required(loss, "loss.name")
    source, split = check_data(kind, data)
    model_settings = settings_of(resolve_model(model_name).create, frozenset({"train", "n_bits"}))
    n_bits = model.pop("n_bits", 32)
    if not isinstance(n_bits, int) or isinstance(n_bits, bool) or n_bits < 1:
        raise InputError(f"model.n_bits: a code has at least 1 bit, got {n_bits!r}")
    loss_class = resolve_loss(loss_name)
    own_keys = loss_settings(loss_class)
    loss = expand_settings(loss_name, loss, n_bits)
    loss_values, terms = typed_settings.read_both(
        own_keys, settings_of(Terms), loss, "loss", f"loss {loss_name!r}"
    )
    problem = Terms(**terms.model_dump()).problem(loss_class)
    if problem:
        raise InputError(f"loss.{problem}")
    return RunConfig(
        kind=kind,
        source=source,
        split=split,
        model_name=model_name,
        n_bits=n_bits,
        model=read_settings(model_settings, model, "model"),
        loss_name=loss_name,
        loss=loss_values,
        terms=terms,
        train=read_settings(TrainSettings, values.get("train", {}), "train"),
        evaluate=read_settings(_EvaluateSettings, values.get("evaluate", {}), "evaluate"),
        extend=absolute(read_settings(ExtendSettings, values["extend"], "extend"))
        if "extend" in values
        else None,
    )


def read_run_config(folder: Path) -> RunConfig:
    """Read the configuration of a run's folder."""
    path = folder / "config.yaml"
    if not path.exists():
        raise InputError(
            f"{folder}: not a run's folder (no config.yaml); give the folder that `train` wrote"
        )
    typed_settings.check_trusted(read_sections(path), path)
    return read_config(path)


def _plain(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(mode="json")
