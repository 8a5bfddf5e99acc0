"""Damage to any file of a store is harmless, healed or refused, never a wrong answer and never a crash."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "attacks"))

from damage import attack, matrix
from damaged_stores import build_stores


def outcomes(folder: Path, n_items: int, seed: int, count: int, n_workers: int) -> Counter[str]:
    rows = attack(folder, matrix(folder, build_stores(folder, n_items), seed, count), n_workers)
    bad = [f"{outcome}: {damage}: {reason}" for damage, outcome, reason in rows if outcome in ("WRONG", "CRASH")]
    assert not bad, "\n".join(bad)
    return Counter(outcome for _, outcome, _ in rows)


def test_a_few_damages(tmp_path):
    counts = outcomes(tmp_path, n_items=200, seed=1, count=8, n_workers=1)
    assert counts.total() == 8
    assert counts["refused"]
    assert counts["healed"]


@pytest.mark.slow
def test_every_kind_of_damage_to_every_file(tmp_path):
    assert outcomes(tmp_path, n_items=600, seed=0, count=400, n_workers=2).total() == 400
