"""Losses, one file each. A new loss is one file here and one line in `LOSSES`."""

from torch import nn

from channelhash.losses.dsch import DSCHLoss
from channelhash.losses.sch import SCHLoss
from channelhash.losses.tdsrdh import TDSRDHLoss

#: name in a configuration -> class; its keyword arguments are the keys of the section ``loss``.
LOSSES: dict[str, type[nn.Module]] = {
    "dsch": DSCHLoss,
    "sch": SCHLoss,
    "tdsrdh": TDSRDHLoss,
}

__all__ = ["LOSSES", "DSCHLoss", "SCHLoss", "TDSRDHLoss"]
