"""Forks: a child of a process that has searched, evaluated and encoded does so too, and harms nothing of its parent."""

import sys

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools" / "attacks"))

from forks import CASES, run_case

FEW = ("search_in_child", "write_from_both")


def test_a_forked_child_searches_evaluates_and_writes_and_its_parent_goes_on():
    assert run_case(*FEW) == "works"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_forked_and_spawned_processes_work_after_their_parent_did(name):
    assert run_case(name) == "works"
