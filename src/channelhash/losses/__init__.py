"""Losses, one file each. A new loss is one file here and one line in `LOSSES`; `base.HashLoss` is
their contract.

Losses that were published for one modality see a batch of several as `multimodal` says. Any loss is
made here, of its settings: those given, those that ``published: true``
(``docs/reference/baselines.md``) and ``recommended: true`` stand for, and the weights of `Terms`
beside it, each of which is off unless a configuration turns it on.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from channelhash.errors import InputError
from channelhash.losses import multimodal
from channelhash.losses.base import (
    Batch,
    ChannelLoss,
    HashLoss,
    quantization_error,
    set_weights,
    sign,
)
from channelhash.losses.bsch import BSCHLoss
from channelhash.losses.contrastive import ContrastiveLoss
from channelhash.losses.csq import CSQLoss, hash_centres, random_signs
from channelhash.losses.dcgh import DCGHLoss
from channelhash.losses.dcmh import DCMHLoss
from channelhash.losses.distillation import DistillationLoss
from channelhash.losses.dnph import DNPHLoss
from channelhash.losses.dsch import DSCHLoss
from channelhash.losses.greedyhash import GreedyHashLoss
from channelhash.losses.hashnet import HashNetLoss
from channelhash.losses.hyp2 import HyP2Loss
from channelhash.losses.idhn import IDHNLoss
from channelhash.losses.listwise import ListwiseLoss
from channelhash.losses.orthohash import OrthoHashLoss
from channelhash.losses.qsmi import QSMILoss
from channelhash.losses.rsch import RSCHLoss
from channelhash.losses.sch import SCHLoss, SCHOriginalLoss
from channelhash.losses.talr import TALRLoss
from channelhash.losses.tdsrdh import TDSRDHLoss
from channelhash.utils.typed_settings import Settings, look_up, settings_of

__all__ = [
    "BSCHLoss",
    "Batch",
    "CSQLoss",
    "ChannelLoss",
    "ContrastiveLoss",
    "DCGHLoss",
    "DCMHLoss",
    "DNPHLoss",
    "DSCHLoss",
    "DistillationLoss",
    "GreedyHashLoss",
    "HashLoss",
    "HashNetLoss",
    "HyP2Loss",
    "IDHNLoss",
    "ListwiseLoss",
    "LossWithTerms",
    "OrthoHashLoss",
    "QSMILoss",
    "RSCHLoss",
    "SCHLoss",
    "SCHOriginalLoss",
    "TALRLoss",
    "TDSRDHLoss",
    "Terms",
    "hash_centres",
    "make_loss",
    "multimodal",
    "quantization_error",
    "random_signs",
    "resolve_loss",
    "set_weights",
    "sign",
]

#: Name in a configuration -> class; its keyword arguments are the keys of the section ``loss``.
LOSSES: dict[str, type[HashLoss]] = {
    "dsch": DSCHLoss,
    "bsch": BSCHLoss,
    "rsch": RSCHLoss,
    "sch": SCHLoss,
    "sch-original": SCHOriginalLoss,
    "tdsrdh": TDSRDHLoss,
    "dcmh": DCMHLoss,
    "hashnet": HashNetLoss,
    "idhn": IDHNLoss,
    "csq": CSQLoss,
    "orthohash": OrthoHashLoss,
    "greedyhash": GreedyHashLoss,
    "hyp2": HyP2Loss,
    "dnph": DNPHLoss,
    "talr": TALRLoss,
    "qsmi": QSMILoss,
    "dcgh": DCGHLoss,
    "contrastive": ContrastiveLoss,
}

#: Likewise, losses that compare with a teacher's outputs instead of labels
#: (`channelhash.lab.distill`).
TEACHER_LOSSES: dict[str, type[HashLoss]] = {"distillation": DistillationLoss}

#: Name of a loss -> the settings with which it is its authors'; empty where its defaults are.
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "dsch": {},
    "sch": {},
    "sch-original": {},
    "tdsrdh": {},
    "dcmh": {"n_train": 10_000},
    "hashnet": {"weighted": False},
    "idhn": {},
    "csq": {"squared": True, "lambda_p": 0.2},
    "orthohash": {},
    "greedyhash": {},
    "hyp2": {"beta": 0.8, "dsph": True},
    "dnph": {},
    "qsmi": {},
    "dcgh": {},
    "talr": {"alpha": 0.5, "bin_width": 2},
}

#: Losses that the weights were measured with.
RECOMMENDED = ("dsch", "sch", "bsch")

_Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def __dir__() -> list[str]:
    return sorted(__all__)


def resolve_loss(name: str) -> type[HashLoss]:
    """Return the class of a registered loss, or of one's own that ``python:module:Name`` names.

    >>> resolve_loss("dsch").__name__
    'DSCHLoss'
    >>> resolve_loss("python:channelhash.losses.csq:CSQLoss").__name__
    'CSQLoss'

    Raises:
        InputError: no loss has this name (the nearest known one is named), or what ``python:…``
            names cannot be imported or is no subclass of `HashLoss` with a method ``compute``.
    """
    entry = look_up(LOSSES | TEACHER_LOSSES, name, "loss.name")
    if not (isinstance(entry, type) and issubclass(entry, HashLoss)):
        raise InputError(
            f"loss.name {name}: is not a loss; derive it from channelhash.losses.HashLoss"
        )
    if entry.__abstractmethods__:
        raise InputError(
            f"loss.name {name}: does not define {', '.join(sorted(entry.__abstractmethods__))}"
        )
    return entry


def loss_settings(loss: type[HashLoss]) -> type[Settings]:
    """Return the settings of a loss: the arguments of its constructor without those that the model
    and the data give.

    >>> list(loss_settings(SCHLoss).model_fields)
    ['tau', 'alpha', 'beta', 'kappa_q']
    """
    return settings_of(loss, frozenset({"n_bits", "n_labels", "modalities"}))


@dataclass(frozen=True)
class Terms:
    """The terms of `LossWithTerms`: further keys of the section ``loss`` of any configuration.

    Attributes:
        contrastive: weight w_c ≥ 0 of `ContrastiveLoss.compute_by_labels`.
        pairs: weight w_p ≥ 0 of `ContrastiveLoss`.
        temperature: temperature T > 0 of the two.
        average_precision: weight w_AP ≥ 0 of `talr.TALRLoss`.

    Raises:
        ValueError: a setting is out of its range.

    >>> Terms(pairs=0.5, average_precision=8).active
    ['pairs', 'average_precision']
    """

    contrastive: _Weight = 0.0
    pairs: _Weight = 0.0
    temperature: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.07
    average_precision: _Weight = 0.0

    def __post_init__(self) -> None:
        weights = (self.contrastive, self.pairs, self.average_precision)
        if not (all(weight >= 0 for weight in weights) and self.temperature > 0):
            raise ValueError("weights are 0 or more, the temperature is above 0")

    @property
    def active(self) -> list[str]:
        """Names of the terms that are on."""
        return [
            name for name in ("contrastive", "pairs", "average_precision") if getattr(self, name)
        ]

    def problem(self, loss: type[HashLoss]) -> str:
        """Return why losses of this class cannot have these terms, as ``"key: reason"``; empty if
        they can.

        >>> Terms(pairs=0.5).problem(TDSRDHLoss)[:45]
        'pairs: this loss trains one modality at a tim'
        """
        if self.active and loss.trains_anchor:
            return (
                f"{self.active[0]}: this loss trains one modality at a time, the term trains "
                "all; set it to 0"
            )
        if self.active and loss.needs_teacher:
            return (
                f"{self.active[0]}: terms read labels, which a teacher's codes are not; set it to 0"
            )
        return ""


class LossWithTerms(HashLoss):
    """A loss and weighted terms beside it: contrastive, pairs, average precision.

    Of the shards of this loss, the first has the terms.

    Args:
        loss: a loss that trains all modalities.
        n_bits: code length k.
        terms: the terms and their weights.

    Raises:
        ValueError: see `Terms.problem`.

    >>> import torch
    >>> outputs, labels = {"image": torch.ones(2, 4), "text": torch.ones(2, 4)}, torch.ones(2, 1)
    >>> more = LossWithTerms(DSCHLoss(4), 4, Terms(average_precision=2.0))
    >>> term = more(outputs, labels) - DSCHLoss(4)(outputs, labels)
    >>> term.item() == 2 * TALRLoss(4)(outputs, labels).item()
    True
    """

    sharded = True

    def __init__(self, loss: HashLoss, n_bits: int, terms: Terms) -> None:
        super().__init__()
        problem = terms.problem(type(loss))
        if problem:
            raise ValueError(problem)
        self.loss = loss
        self.n_bits = n_bits
        self.terms = terms
        self.contrastive = ContrastiveLoss(terms.temperature)
        self.talr = TALRLoss(n_bits)

    @property
    def channels(self) -> ChannelLoss | None:
        """The channels of the loss to which the terms are added."""
        return self.loss.channels

    def compute(self, batch: Batch) -> Tensor:
        """Return the loss of ``batch``."""
        terms = self.terms
        value = self.loss.compute_shard(batch)
        if batch.shard.number == 0:
            if terms.contrastive:
                value = value + terms.contrastive * self.contrastive.compute_by_labels(batch)
            if terms.pairs:
                value = value + terms.pairs * self.contrastive.compute(batch)
            if terms.average_precision:
                value = value + terms.average_precision * self.talr.compute(batch)
        return value


def expand_settings(name: str, settings: Mapping[str, Any], n_bits: int) -> dict[str, Any]:
    """Replace the keys ``published`` and ``recommended`` of ``settings`` by the settings that they
    stand for; given settings go first.

    >>> expand_settings("talr", {"published": True, "bin_width": 1}, 64)
    {'alpha': 0.5, 'bin_width': 1}
    >>> expand_settings("sch", {"recommended": True, "kappa_q": 0.1}, 64)
    {'kappa_q': 0.1, 'average_precision': 64.0}
    """
    rest = dict(settings)
    switches = {key: rest.pop(key, False) for key in ("recommended", "published")}
    for key, switch in switches.items():
        if not isinstance(switch, bool):
            raise InputError(f"loss.{key}: is true or false, got {switch!r}")
    if not any(switches.values()):
        return rest
    if all(switches.values()):
        raise InputError(
            "loss.recommended: the weights are ours or the authors'; leave out it or loss.published"
        )
    if switches["published"]:
        if name not in PUBLISHED:
            raise InputError(
                f"loss.published: nobody else has published {name!r}; leave it out, or take "
                f"{', '.join(PUBLISHED)}"
            )
        return {**PUBLISHED[name], **rest}
    if name not in RECOMMENDED:
        raise InputError(
            f"loss.recommended: is not known for {name!r}; set it to false, or take "
            f"{', '.join(RECOMMENDED)}"
        )
    # Of the quantisation error and of the direct AP term, as `docs/reference/results/benchmark.md`
    # compares them.
    return {"kappa_q": 0.3, "average_precision": float(n_bits), **rest}


def make_loss(name: str, n_bits: int, n_labels: int, **settings: Any) -> HashLoss:
    """Create a loss for codes of ``n_bits`` bits and ``n_labels`` labels.

    Parameters of the loss (proxies, a classifier) are drawn from PyTorch's generator.

    >>> import torch
    >>> make_loss("sch", n_bits=16, n_labels=5, tau=2.0).bounds(torch.tensor([0.5]))
    (tensor([2.]), tensor([4.]))

    Args:
        name: as in `resolve_loss`.
        n_bits: code length k.
        n_labels: number of labels c.
        settings: arguments of that loss, and of `Terms`. Where all terms are off, it is the loss
            itself. With ``published=True`` those that are not given are its authors' (`PUBLISHED`),
            with ``recommended=True`` ours (`expand_settings`).

    Raises:
        InputError: as `resolve_loss` and `expand_settings`.
        ValueError: a setting is out of its range, or a term does not go with that loss.
    """
    kind = resolve_loss(name)
    fields = settings_of(kind).model_fields
    term_fields = settings_of(Terms).model_fields
    settings = expand_settings(name, settings, n_bits)
    if not n_labels and "n_labels" in fields:
        raise InputError(
            f"loss.name: {name!r} learns from labels, and this collection has none; take "
            "contrastive, or dsch, sch … to which each pair is a class of its own"
        )
    terms = Terms(**{key: settings[key] for key in settings if key in term_fields})
    of_loss: dict[str, Any] = {"n_bits": n_bits, "n_labels": n_labels} | settings
    foreign = {"n_bits", "n_labels"} | term_fields.keys()
    loss = kind(**{key: of_loss[key] for key in of_loss if key in fields or key not in foreign})
    return LossWithTerms(loss, n_bits, terms) if terms.active else loss
