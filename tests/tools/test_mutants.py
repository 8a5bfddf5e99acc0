"""The mutants of `tools/mutants.py`: what is changed, and that the list of harmless ones fits the source."""

import ast
import doctest
import json
import sys

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import small_changes
from coverage_table import table

SOURCE = '''
def f(a: int, b: int = 1) -> int | None:
    """Not 1."""
    assert a < 1
    if a and b:
        raise ValueError(f"{a + 1}")
    values[0] = g(a, -b)
    return [max(x, h(x, x)) for x in values if x]
'''


def test_examples():
    assert doctest.testmod(small_changes).failed == 0


def test_code_is_changed_and_types_assertions_and_messages_are_not():
    assert {mutant.key for mutant in small_changes.mutants(SOURCE)} == {
        "f | 1 | one more",
        "f | a and b | opposite",
        "f | a and b | And to Or",
        "f | raise ValueError(f'{a + 1}') | deleted",
        "f | values[0] = g(a, -b) | deleted",
        "f | 0 | one more",
        "f | g(a, -b) | arguments swapped",
        "f | -b | sign dropped",
        "f | x | opposite",
    }


def test_each_mutant_is_another_program():
    programs = {ast.unparse(small_changes.mutate(SOURCE, mutant.key)) for mutant in small_changes.mutants(SOURCE)}
    assert len(programs) == len(small_changes.mutants(SOURCE))
    assert ast.unparse(ast.parse(SOURCE)) not in programs


HARMLESS = json.loads((ROOT / "tools" / "mutants.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", HARMLESS)
def test_mutants_said_to_change_nothing_are_there(file):
    source = (ROOT / "src" / "channelhash" / file).read_text(encoding="utf-8")
    assert HARMLESS[file].keys() <= {mutant.key for mutant in small_changes.mutants(source)}


def test_the_table_of_coverage_adds_files_up():
    counts = {"a/x.py": (1, 2), "a/y.py": (2, 2), "b.py": (0, 4)}
    files = {
        f"src/channelhash/{file}": {"summary": {"covered_lines": run, "num_statements": n}}
        for file, (run, n) in counts.items()
    }
    assert table({"files": files})[2:] == ["| `a` | 4 | 75.0% |", "| `b.py` | 4 | 0.0% |", "| all | 8 | 37.5% |"]
