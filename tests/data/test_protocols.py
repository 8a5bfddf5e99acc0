"""The protocol doctor: variants of MIRFLICKR-25k and NUS-WIDE by their numbers."""

import numpy as np
import pytest

from channelhash.data.describe import PROTOCOLS, describe, recognise
from channelhash.data.records import Records


def labels_of(width: int, images: int, unlabelled: int) -> np.ndarray:
    labels = np.zeros((images, width), dtype=bool)
    labels[unlabelled:, 0] = True
    return labels


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: f"{p.labels}-{p.images}-{p.unlabelled}")
def test_each_variant_is_known_by_its_three_numbers(protocol):
    line = recognise(labels_of(*protocol[:3]))
    assert protocol.name in line
    assert f"{protocol.labels} labels, {protocol.images:,} images: " in line
    assert [protocol[:3] for protocol in PROTOCOLS].count(protocol[:3]) == 1
    assert recognise(labels_of(protocol.labels, protocol.images - 1, 0)) == ""


def test_the_exclusion_list_is_recognised_though_the_number_of_images_is_right():
    wrong, right = (recognise(labels_of(21, 195834, unlabelled)) for unlabelled in (3055, 0))
    assert "drops 3,055 images that have one of the 21 labels and keeps 3,055 that have none" in wrong
    assert "73,814" not in right


def test_the_counts_of_another_variant_are_no_problem_and_of_none_they_are():
    expected = {"found": 25000, "usable": 20015}
    for images, known in ((20015, True), (24581, True), (24000, False)):
        labels = labels_of(24, images, 0)
        labels[0] = True
        records = Records(tuple(map(str, range(images))), {"text": ("a",) * images}, labels, tuple(map(str, range(24))))
        summary = describe(records, expected=expected)
        assert bool(summary["protocol"]) == known
        assert any("usable: " in line for line in summary["problems"]) == (images == 24000)
