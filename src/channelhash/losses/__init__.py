"""Losses, one file each. A new loss is one file here and one line in `LOSSES`; `base.HashLoss` is their contract.

Losses that were published for one modality see a batch of several as `multimodal` says.
"""

from typing import Any

from channelhash.errors import InputError
from channelhash.losses.auxiliary import LossWithTerms as LossWithTerms
from channelhash.losses.auxiliary import Terms as Terms
from channelhash.losses.base import Batch as Batch
from channelhash.losses.base import ChannelLoss as ChannelLoss
from channelhash.losses.base import HashLoss as HashLoss
from channelhash.losses.bsch import BSCHLoss as BSCHLoss
from channelhash.losses.contrastive import ContrastiveLoss as ContrastiveLoss
from channelhash.losses.csq import CSQLoss as CSQLoss
from channelhash.losses.dcgh import DCGHLoss as DCGHLoss
from channelhash.losses.dcmh import DCMHLoss as DCMHLoss
from channelhash.losses.distillation import DistillationLoss as DistillationLoss
from channelhash.losses.dnph import DNPHLoss as DNPHLoss
from channelhash.losses.dsch import DSCHLoss as DSCHLoss
from channelhash.losses.greedyhash import GreedyHashLoss as GreedyHashLoss
from channelhash.losses.hashnet import HashNetLoss as HashNetLoss
from channelhash.losses.hyp2 import HyP2Loss as HyP2Loss
from channelhash.losses.idhn import IDHNLoss as IDHNLoss
from channelhash.losses.orthohash import OrthoHashLoss as OrthoHashLoss
from channelhash.losses.published import PUBLISHED as PUBLISHED
from channelhash.losses.published import RECOMMENDED as RECOMMENDED
from channelhash.losses.published import expand_settings as expand_settings
from channelhash.losses.published import recommended_weights as recommended_weights
from channelhash.losses.qsmi import QSMILoss as QSMILoss
from channelhash.losses.rsch import RSCHLoss as RSCHLoss
from channelhash.losses.sch import SCHLoss as SCHLoss
from channelhash.losses.sch_original import SCHOriginalLoss as SCHOriginalLoss
from channelhash.losses.talr import TALRLoss as TALRLoss
from channelhash.losses.tdsrdh import TDSRDHLoss as TDSRDHLoss
from channelhash.utils.typed_settings import Settings, look_up, settings_of

#: name in a configuration -> class; its keyword arguments are the keys of the section ``loss``.
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

#: Likewise, losses that compare with a teacher's outputs instead of labels (`channelhash.lab.distill`).
TEACHER_LOSSES: dict[str, type[HashLoss]] = {"distillation": DistillationLoss}


def resolve_loss(name: str) -> type[HashLoss]:
    """Return the class of a registered loss, or of one's own that ``python:module:Name`` names.

    >>> resolve_loss("dsch").__name__
    'DSCHLoss'
    >>> resolve_loss("python:channelhash.losses.csq:CSQLoss").__name__
    'CSQLoss'

    Raises:
        InputError: no loss has this name (the nearest known one is named), or what ``python:…`` names
            cannot be imported or is no subclass of `HashLoss` with a method ``compute``.
    """
    entry = look_up(LOSSES | TEACHER_LOSSES, name, "loss.name")
    if not (isinstance(entry, type) and issubclass(entry, HashLoss)):
        raise InputError(f"loss.name {name}: is not a loss; derive it from channelhash.losses.HashLoss")
    if entry.__abstractmethods__:
        raise InputError(f"loss.name {name}: does not define {', '.join(sorted(entry.__abstractmethods__))}")
    return entry


def loss_settings(loss: type[HashLoss]) -> type[Settings]:
    """Return the settings of a loss: the arguments of its constructor without those that the model and the data give.

    >>> list(loss_settings(SCHLoss).model_fields)
    ['tau', 'alpha', 'beta', 'kappa_q']
    """
    return settings_of(loss, frozenset({"n_bits", "n_labels", "modalities"}))


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
        settings: arguments of that loss, and of `Terms`. Where all terms are off, it is the loss itself. With
            ``published=True`` those that are not given are its authors' (`PUBLISHED`), with
            ``recommended=True`` ours (`recommended_weights`).

    Raises:
        InputError: as `resolve_loss` and `expand_settings`.
        ValueError: a setting is out of its range, or a term does not go with that loss.
    """
    kind = resolve_loss(name)
    fields = settings_of(kind).model_fields
    settings = expand_settings(name, settings, n_bits)
    if not n_labels and "n_labels" in fields:
        raise InputError(
            f"loss.name: {name!r} learns from labels, and this collection has none; take contrastive, or dsch, sch … "
            "to which each pair is a class of its own"
        )
    of_terms = settings_of(Terms).model_fields
    terms = Terms(**{key: value for key, value in settings.items() if key in of_terms})
    sizes = {key: value for key, value in {"n_bits": n_bits, "n_labels": n_labels}.items() if key in fields}
    loss = kind(**sizes, **{key: value for key, value in settings.items() if key in fields or key not in of_terms})
    return LossWithTerms(loss, n_bits, terms) if terms.active else loss
