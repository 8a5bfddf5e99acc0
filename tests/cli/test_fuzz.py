"""Damaged files and odd values through the real command line: a result or one line, never a traceback or a signal."""

import sys
from pathlib import Path

import pytest

from pages import ROOT

sys.path.append(str(ROOT / "tools" / "attacks"))

from files import FAILURES, KINDS, attack, refused_valid


def failures(count: int, folder: Path, **options: int) -> list[str]:
    done = attack(count, folder=folder, **options)
    assert len(done) == count
    return [f"{one.number} {one.kind}: {one.outcome}: {one.said}" for one in done if one.outcome in FAILURES]


def test_a_small_draw_of_damaged_inputs_ends_in_a_result_or_one_line(tmp_path):
    assert len(KINDS) >= 20
    assert not failures(10, tmp_path, seed=18)


@pytest.mark.slow
def test_many_damaged_inputs_end_in_a_result_or_one_line(tmp_path):
    assert not failures(1_500, tmp_path, seed=1)


@pytest.mark.slow
def test_the_attack_reads_every_kind_where_nothing_is_damaged(tmp_path):
    refused = refused_valid(tmp_path)
    odd = [line for line in refused if not line.startswith(("numbers:", "names:"))]  # any value need not fit any option
    assert not odd
