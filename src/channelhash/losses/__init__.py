"""Losses, one file each. A new loss is one file here and one line in `LOSSES`.

Those that were published for one modality see a batch of several as `losses.items` says.
"""

import inspect
from typing import Any

from torch import nn

from channelhash.losses.adaptive_sch import ShapedSCHLoss
from channelhash.losses.auxiliary import LossWithTerms, term_problem
from channelhash.losses.bsch import BSCHLoss
from channelhash.losses.csq import CSQLoss
from channelhash.losses.dcmh import DCMHLoss
from channelhash.losses.distillation import DistillationLoss
from channelhash.losses.dnph import DNPHLoss
from channelhash.losses.dsch import DSCHLoss
from channelhash.losses.greedyhash import GreedyHashLoss
from channelhash.losses.hashnet import HashNetLoss
from channelhash.losses.hyp2 import HyP2Loss
from channelhash.losses.idhn import IDHNLoss
from channelhash.losses.orthohash import OrthoHashLoss
from channelhash.losses.rsch import RSCHLoss
from channelhash.losses.sch import SCHLoss
from channelhash.losses.sch_original import SCHOriginalLoss
from channelhash.losses.talr import TALRLoss
from channelhash.losses.tdsrdh import TDSRDHLoss

#: name in a configuration -> class; its keyword arguments are the keys of the section ``loss``.
LOSSES: dict[str, type[nn.Module]] = {
    "dsch": DSCHLoss,
    "bsch": BSCHLoss,
    "rsch": RSCHLoss,
    "sch": SCHLoss,
    "sch-original": SCHOriginalLoss,
    "sch-shaped": ShapedSCHLoss,
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
}

#: Losses that compare with a teacher's outputs instead of labels (`channelhash.runs`), likewise.
TEACHER_LOSSES: dict[str, type[nn.Module]] = {"distillation": DistillationLoss}

#: Those that take labels by modality, with fractions in them, where images are blended (`functional.Labels`). The
#: others are made of labels that are there or not (centres, proxies, "share a label"), or of one set a sample.
LABELS_PER_MODALITY = frozenset({"bsch", "dsch", "sch"})
#: Terms beside a loss that take one set of labels a sample.
ONE_LABEL_SET = ("contrastive", "average_precision", "memory")

#: Arguments that come from the model and the data, not from the section ``loss``.
FROM_RUN = frozenset({"n_bits", "n_labels", "modalities"})


#: Keys that the section ``loss`` has for any loss: terms beside it, and their defaults.
TERMS: dict[str, Any] = {
    name: parameter.default
    for name, parameter in inspect.signature(LossWithTerms).parameters.items()
    if name not in ("loss", "n_bits")
}


def make_loss(name: str, n_bits: int, n_labels: int, **settings: Any) -> nn.Module:
    """A registered loss for codes of ``n_bits`` bits and ``n_labels`` labels, which it is told if it asks for them.

    Parameters of the loss (proxies, a classifier) are drawn from PyTorch's generator.

    Args:
        name: key of `LOSSES`.
        n_bits: code length k.
        n_labels: number of labels c.
        settings: arguments of that loss, and those of `LossWithTerms`. Where all terms are off, it is the loss itself.

    Raises:
        ValueError: a setting is out of its range, or a term does not go beside that loss.
    """
    kind = LOSSES[name]
    known = {"n_bits": n_bits, "n_labels": n_labels}
    asked = {key: known[key] for key in FROM_RUN & inspect.signature(kind).parameters.keys()}
    terms = {key: settings.pop(key) for key in TERMS.keys() & settings.keys()}
    loss = kind(**asked, **settings)
    return LossWithTerms(loss, n_bits, **terms) if any(terms[key] for key in terms if key != "temperature") else loss


__all__ = [
    "FROM_RUN",
    "LABELS_PER_MODALITY",
    "LOSSES",
    "ONE_LABEL_SET",
    "TEACHER_LOSSES",
    "TERMS",
    "BSCHLoss",
    "CSQLoss",
    "DCMHLoss",
    "DNPHLoss",
    "DSCHLoss",
    "DistillationLoss",
    "GreedyHashLoss",
    "HashNetLoss",
    "HyP2Loss",
    "IDHNLoss",
    "LossWithTerms",
    "OrthoHashLoss",
    "RSCHLoss",
    "SCHLoss",
    "SCHOriginalLoss",
    "ShapedSCHLoss",
    "TALRLoss",
    "TDSRDHLoss",
    "make_loss",
    "term_problem",
]
