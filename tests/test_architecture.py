"""The rule that CONTRIBUTING.md states and the documentation draws: imports go down, and the data's
way is as drawn.
"""

import ast
import inspect
import re
import sys
from pkgutil import resolve_name
from textwrap import dedent

import pytest

from pages import ROOT

sys.path.insert(0, str(ROOT / "tools"))
sys.path.insert(0, str(ROOT / "tools" / "site"))

from architecture import PACKAGE, WAY, architecture_svg, drawn_edges, read_floors, read_imports
from ways import follow_all, read_ways

FLOORS = read_floors((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
IMPORTS = read_imports()


def test_every_package_has_a_floor():
    assert IMPORTS.keys() == FLOORS.keys(), (
        "the table of floors in CONTRIBUTING.md names what is below channelhash"
    )


def test_imports_go_down():
    pairs = [(unit, other) for unit, others in IMPORTS.items() for other in others]
    assert not [f"{unit} imports {other}" for unit, other in pairs if FLOORS[other] >= FLOORS[unit]]


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs" / "how-to").glob("add-*.md")), ids=lambda page: page.stem
)
def test_a_module_that_a_page_adds_imports_downward(page):
    text = page.read_text(encoding="utf-8")
    unit = re.search(r"src/channelhash/(\w+)/", text)[1]
    module = re.search(r'```python(?: title="[^"]+\.py")?\n(.*?)```', text, re.DOTALL)[1]
    imports = set(re.findall(r"^from channelhash\.(\w+)", module, re.MULTILINE))
    assert imports
    assert not [other for other in imports - {unit} if FLOORS[other] >= FLOORS[unit]]


def test_each_promise_names_tests_that_are_there():
    page = (ROOT / "docs" / "reference" / "guarantees.md").read_text(encoding="utf-8")
    promises = re.search(r"## Promises\n(.*?)\n## ", page, re.DOTALL)[1].splitlines()[3:]
    tests = {path: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    for promise in filter(None, promises):
        names = re.findall(r"`(test[a-z_/0-9.]+)`", promise.rsplit("|", 2)[1])
        assert names or promise.endswith("| the same |"), promise
        for name in names:
            assert ROOT / name in tests or any(f"def {name}(" in text for text in tests.values()), (
                name
            )


def test_inference_needs_no_training():
    for unit in ("search", "serve", "bulk", "indexing", "duplicates", "explanation"):
        assert not IMPORTS[unit] & {"training", "runs", "lab"}, unit


def test_few_modules_stand_at_the_root():
    root = {path.stem for path in PACKAGE.glob("*.py")}
    assert root == {"__init__", "__main__", "_version", "channels", "config", "errors"}


def test_imports_are_found_wherever_they_stand(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "__init__.py").write_text("def f():\n    from channelhash.b import x\n")
    (tmp_path / "a" / "deep.py").write_text(
        "import channelhash.c\nfrom channelhash import a, __version__\n"
    )
    for name in "bc":
        (tmp_path / f"{name}.py").write_text(
            "import numpy\nfrom channelhash.a.deep import y\n" * (name == "c")
        )
    assert read_imports(tmp_path) == {"a": {"b", "c"}, "b": set(), "c": {"a"}}


def test_what_is_implied_and_the_ground_floor_are_not_drawn():
    floors = {"top": 5, "middle": 4, "low": 3, "errors": 1}
    imports = {
        "top": {"middle", "low", "errors"},
        "middle": {"low"},
        "low": {"errors"},
        "errors": set(),
    }
    assert drawn_edges(imports, floors) == [("top", "middle"), ("middle", "low")]


def _annotations(function: str) -> tuple[set[str], set[str]]:
    """The names in the annotations of a function's arguments and of its result, as the source has
    them.
    """
    (node,) = ast.parse(dedent(inspect.getsource(resolve_name(f"channelhash.{function}")))).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)

    def names(annotation: ast.AST | None) -> set[str]:
        return set(re.findall(r"\w+", ast.unparse(annotation))) if annotation else set()

    return set().union(*(names(argument.annotation) for argument in node.args.args)), names(
        node.returns
    )


@pytest.mark.parametrize(
    "step", [step for _, steps in WAY.values() for step in steps], ids=lambda step: step.function
)
def test_the_way_of_the_data_is_as_drawn(step):
    takes, gives = _annotations(step.function)
    assert step.takes in takes
    assert step.gives in gives


def test_the_picture_shows_every_package():
    picture = architecture_svg(IMPORTS, FLOORS)
    for unit in IMPORTS:
        assert f">{unit}</text>" in picture
    lines = len(drawn_edges(IMPORTS, FLOORS)) + sum(len(steps) for _, steps in WAY.values())
    assert picture.count("<path d=") == lines + 1  # and the tip of an arrow


WAYS = read_ways((ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8"))


def test_the_page_shows_five_ways():
    assert list(WAYS) == [
        "One training step",
        "One search",
        "One request",
        "One indexing",
        "One grid",
    ]


@pytest.mark.parametrize(
    ("way", "step"), [(way, step) for way, steps in WAYS.items() for step in steps]
)
def test_the_steps_of_a_way_take_and_return_what_the_page_says(way, step):
    module = step.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    takes, gives = _annotations(f"{module}.{step.function}")
    assert step.takes is None or step.takes in takes
    assert step.gives in gives


@pytest.mark.slow
def test_each_way_runs_through_the_files_of_its_table(tmp_path, monkeypatch):
    monkeypatch.setattr("channelhash.search.index._left_to_numpy", 1 << 27)  # as in a new process
    for name, way in follow_all(WAYS, tmp_path).items():
        assert not way.missed, name
        assert way.spine == [step.file for step in WAYS[name]], name
