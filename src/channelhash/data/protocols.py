"""Recognise in which of the literature's variants a collection is: figures of different variants do not compare."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Where other projects make these variants: repository, commit, file.
_DSPH = "QinLab-WFU/DSPH 01ae75cc dataset/make_mirflickr25k.py"
_DEEPHASH = "swuxyj/DeepHash-pytorch 8fd4fbbd data/mirflickr/code.py, HyP²"
_EXCLUSION_LIST = "QinLab-WFU/DSPH 7a5d3dc1 dataset/not-used-id.txt"

_FILTERED = "the images with a label and a tag that occurs 20 times, as in this paper"
_POTENTIAL = "mAP over all 25,000, 24,581 or 20,015 images are three different figures"
_RELEVANT = (
    f"the 24 potential labels and the 14 relevant ones ({_DEEPHASH}), usual are the 24: label similarities differ"
)
_LIST = (
    f"this is the cut by the list of 73,814 rows that many toolboxes carry ({_EXCLUSION_LIST}): it drops 3,055 images "
    "that have one of the 21 labels and keeps 3,055 that have none. Make the subset from the label files "
    "(data.kind nuswide): also 195,834 images"
)


class Protocol(NamedTuple):
    """A variant of a collection, known by three numbers.

    Attributes:
        labels: number of labels.
        images: number of images.
        unlabelled: how many of them have no label.
        name: collection and variant.
        note: what sets it apart.

    >>> recognise(np.ones((20015, 24), dtype=bool)).split(":")[0]
    'MIRFLICKR-25k, 24 labels, 20,015 images'
    """

    labels: int
    images: int
    unlabelled: int
    name: str
    note: str


PROTOCOLS = (
    Protocol(24, 20015, 0, "MIRFLICKR-25k", _FILTERED),
    Protocol(24, 24581, 0, "MIRFLICKR-25k", f"all images with a label ({_DSPH}); {_POTENTIAL}"),
    Protocol(24, 25000, 419, "MIRFLICKR-25k", f"nothing is left out, 419 images have no label; {_POTENTIAL}"),
    Protocol(38, 20015, 0, "MIRFLICKR-25k", f"{_FILTERED}; {_RELEVANT}"),
    Protocol(38, 24581, 0, "MIRFLICKR-25k", f"all images with a label; {_RELEVANT}"),
    Protocol(38, 25000, 419, "MIRFLICKR-25k", f"nothing is left out, 419 images have no label; {_RELEVANT}"),
    Protocol(21, 195834, 0, "NUS-WIDE", "the images with one of the 21 most frequent labels, as in this paper"),
    Protocol(21, 195834, 3055, "NUS-WIDE", _LIST),
    Protocol(21, 192779, 0, "NUS-WIDE", f"195,834 without 3,055 unlabelled ones: {_LIST}"),
    Protocol(21, 269648, 73814, "NUS-WIDE", "nothing is left out; usual are the 195,834 with one"),
    Protocol(
        10, 186577, 0, "NUS-WIDE", "the images with one of the 10 most frequent labels; usual are 21 labels, 195,834"
    ),
    Protocol(10, 269648, 83071, "NUS-WIDE", "nothing is left out; usual are the 186,577 with one"),
    Protocol(81, 209347, 0, "NUS-WIDE", "the images with a label; usual are 21 labels, 195,834"),
    Protocol(81, 269648, 60301, "NUS-WIDE", "nothing is left out; usual are 21 labels, 195,834"),
)


def recognise(labels: NDArray[np.bool_]) -> str:
    """Return a line that says which protocol of the literature a collection follows, empty if none is known.

    Args:
        labels: ``(n, c)`` bool.

    >>> recognise(np.ones((10, 24), dtype=bool))
    ''
    """
    images, width = labels.shape
    unlabelled = images - int(labels.any(axis=1).sum())
    for protocol in PROTOCOLS:
        if (width, images, unlabelled) == protocol[:3]:
            return f"{protocol.name}, {width} labels, {images:,} images: {protocol.note}"
    return ""
