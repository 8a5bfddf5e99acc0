"""Computed rows: whole or not there, resumed, checked before use."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import numpy as np
import pytest

from channelhash.errors import JobError
from channelhash.utils import row_file as module
from channelhash.utils.row_file import row_file
from refusals import check_refusal

KEY = {"weights": "abc", "items": "def"}
SIZES = [3, 3, 3, 1]
ROWS = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)


class Compute:
    """Blocks of `ROWS`; counts them, and stops before block ``fails_at``."""

    def __init__(self, fails_at=None):
        self.blocks, self.fails_at = [], fails_at

    def __call__(self, first):
        for block in range(first, len(SIZES)):
            if block == self.fails_at:
                raise KeyboardInterrupt
            self.blocks.append(block)
            start = sum(SIZES[:block])
            yield ROWS[start : start + SIZES[block]]


def build(folder, compute, dtype="float32", key=KEY):
    return row_file(folder / "features", key, SIZES, 4, dtype, compute)


def test_rows_are_those_computed_and_computed_once(tmp_path):
    compute = Compute()
    file = build(tmp_path, compute)
    assert isinstance(file.rows, np.memmap)
    np.testing.assert_array_equal(file.check().rows, ROWS)
    np.testing.assert_array_equal(file.block(2), ROWS[6:9])
    np.testing.assert_array_equal(build(tmp_path, compute).rows, ROWS)
    assert compute.blocks == [0, 1, 2, 3]
    np.testing.assert_array_equal(
        build(tmp_path, Compute(), "float16").rows, ROWS.astype(np.float16)
    )
    assert len(list(tmp_path.glob("*.npy"))) == 2


@pytest.mark.parametrize("fails_at", [0, 1, 3])
def test_an_interrupted_build_goes_on_where_it_stopped(tmp_path, fails_at):
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, Compute(fails_at))
    assert not list(tmp_path.glob("*.npy"))
    again = Compute()
    np.testing.assert_array_equal(build(tmp_path, again).rows, ROWS)
    assert again.blocks == list(range(fails_at, 4))
    assert {path.suffix for path in tmp_path.iterdir()} == {".npy", ".json", ".lock"}


def test_a_torn_journal_or_block_is_computed_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, Compute(3))
    journal = next(tmp_path.glob("*.journal"))
    journal.write_text(journal.read_text()[:-3])  # the third line is cut short
    partial = np.load(next(tmp_path.glob("*.partial")), mmap_mode="r+")
    partial[4] = 0  # the second block did not reach the disk
    partial.flush()
    again = Compute()
    np.testing.assert_array_equal(build(tmp_path, again).rows, ROWS)
    assert again.blocks == [1, 2, 3]


def test_two_builders_compute_once(tmp_path):
    compute = Compute()
    with ThreadPoolExecutor(3) as threads:
        # each gets its rows, or this raises
        list(threads.map(lambda _: build(tmp_path, compute), range(3)))
    assert compute.blocks == [0, 1, 2, 3]


def test_a_damaged_file_is_named(tmp_path):
    path = build(tmp_path, Compute()).path
    rows = np.load(path, mmap_mode="r+")
    rows[4, 2] += 1
    rows.flush()
    check_refusal(r"features-.*\.npy: block 1 is damaged", build(tmp_path, Compute()).check)
    path.write_bytes(path.read_bytes()[:100])
    check_refusal(r"features-.*\.npy: damaged .*remove it", build, tmp_path, Compute())


def test_a_file_of_another_backbone_is_refused(tmp_path):
    mine = build(tmp_path, Compute()).path
    other = build(tmp_path, Compute(), key={**KEY, "weights": "xyz"}).path
    for suffix in (".npy", ".json"):
        os.replace(other.with_suffix(suffix), mine.with_suffix(suffix))
    check_refusal("belongs to something else", build, tmp_path, Compute())
    mine.with_suffix(".json").write_text(json.dumps({"key": "nothing"}))
    check_refusal("damaged", build, tmp_path, Compute())


def test_what_float16_cannot_hold_is_refused(tmp_path):
    check_refusal(
        "not finite in float16", build, tmp_path, lambda first: iter([1e6 * ROWS[:3]]), "float16"
    )


def test_a_full_disk_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(
        module.os, "posix_fallocate", Mock(side_effect=OSError(28, "No space left on device"))
    )
    compute = Compute()
    check_refusal("No space left on device; make room", build, tmp_path, compute, error=JobError)
    assert not compute.blocks
    assert not list(tmp_path.glob("*.partial"))
