"""A draw of the attack that stops commands at several moments; `tools/attacks/kills.py` has more commands and draws."""

import sys

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools" / "attacks"))

from kills import attack_all


@pytest.mark.slow
def test_a_stopped_command_goes_on_to_the_same_result():
    ends = list(attack_all(["train"], count=3, seed=0, full=False))
    assert [end for end in ends if end[2] not in ("right", "had finished")] == []
    assert any(end[2] == "right" for end in ends)
