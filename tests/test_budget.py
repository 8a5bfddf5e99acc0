"""How much there is to read, and how tangled it is: `make budget` prints the table.

Each bound lies 2 % above what there was when it was set, so that a contribution of a file fits.
Bounds are lowered when a release is made. How many lines the code is folded into is not counted.
"""

import ast
import io
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "channelhash"
LAB = PACKAGE / "lab"
#: What there was when the bounds were set; of walrus and the like there is less, so that one fits.
COUNTS = {
    "tokens of src without lab": 333_200,
    "tokens of lab": 38_900,
    "tokens of tests": 381_600,
    "lines over 100 columns": 0,
    "functions of complexity 10 and more": 35,
    "functions of complexity 15 and more": 0,
    "functions over 60 lines": 8,
    "nested comprehensions": 10,
    "conditionals in a conditional": 0,
    "tuple assignments": 20,
    "tuple assignments of three and more": 0,
    "walrus": 20,
    "Python files in src": 268,
    "words of docs": 52_050,
    "words of README": 735,
}
#: How far a count may be above that, until a release is made.
SLACK = 0.02
_SILENT = {COMMENT, NL, NEWLINE, INDENT, DEDENT, ENDMARKER}
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_Branch = (
    ast.If
    | ast.For
    | ast.AsyncFor
    | ast.While
    | ast.ExceptHandler
    | ast.IfExp
    | ast.match_case
    | ast.Assert
)


def count_tokens(text: str) -> int:
    """Count the tokens of a module without comments, docstrings and line ends."""
    documented: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Module | ast.ClassDef | _Function)
            and ast.get_docstring(node, clean=False) is not None
        ):
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in _SILENT and token.start[0] not in documented for token in tokens)


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of functions and classes inside it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, _Function | ast.ClassDef):
            yield from _own_nodes(node)


def complexity(function: ast.AST) -> int:
    """Return 1 and one for each branch, further operand of `and` and `or`, and clause of a
    comprehension.
    """
    total = 1
    for node in _own_nodes(function):
        if isinstance(node, _Branch):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += 1 + len(node.ifs)
    return total


def count_density(text: str) -> Counter[str]:
    """Count what makes a module hard to read."""
    counts: Counter[str] = Counter(
        {"lines over 100 columns": sum(len(line) > 100 for line in text.splitlines())}
    )
    for node in ast.walk(ast.parse(text)):
        inside = [other for other in ast.walk(node) if other is not node]
        if isinstance(node, ast.NamedExpr):
            counts["walrus"] += 1
        elif isinstance(node, _Comprehension):
            several = len(node.generators) > 1
            counts["nested comprehensions"] += several or any(
                isinstance(other, _Comprehension) for other in inside
            )
        elif isinstance(node, ast.IfExp):
            counts["conditionals in a conditional"] += any(
                isinstance(other, ast.IfExp) for other in inside
            )
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            if isinstance(target := node.targets[0], ast.Tuple):
                counts["tuple assignments"] += 1
                counts["tuple assignments of three and more"] += len(target.elts) > 2
        elif isinstance(node, _Function):
            size = complexity(node)
            counts["functions of complexity 10 and more"] += size >= 10
            counts["functions of complexity 15 and more"] += size >= 15
            counts["functions over 60 lines"] += (
                node.end_lineno or node.lineno
            ) - node.lineno >= 60
    return counts


def count() -> dict[str, int]:
    """Count everything that `COUNTS` names."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    tokens = {path: count_tokens(text) for path, text in texts.items()}
    lab = sum(number for path, number in tokens.items() if path.is_relative_to(LAB))
    tests = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    density = sum(map(count_density, texts.values()), Counter[str]())
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    counts = {
        "tokens of src without lab": sum(tokens.values()) - lab,
        "tokens of lab": lab,
        "tokens of tests": sum(map(count_tokens, tests)),
        "Python files in src": len(texts),
        "words of docs": sum(len(page.split()) for page in pages),
        "words of README": len((ROOT / "README.md").read_text(encoding="utf-8").split()),
    }
    return {what: counts.get(what, density[what]) for what in COUNTS}


def bound(what: str) -> int:
    """Return the most that there may be."""
    return math.floor(COUNTS[what] * (1 + SLACK))


@pytest.mark.parametrize(("text", "tokens"), [
    ('"""Doc."""\n\nimport os\n\nA = 1  # why\n', 5),
    ('def f(a):\n    """Doc\n    more."""\n    return a\n', 8),
])  # fmt: skip
def test_tokens_are_counted_without_comments_and_docstrings(text, tokens):
    assert count_tokens(text) == tokens


@pytest.mark.parametrize(("body", "size"), [
    ("return a", 1),
    ("return 1 if a else 2", 2),
    ("return a and b or c", 3),
    ("return [x for x in a if x if not x]", 4),
    ("for x in a:\n  while x: x()", 3),
    ("def g():\n  if a: b()", 1),
])  # fmt: skip
def test_complexity_counts_branches_in_expressions_too(body, size):
    function = ast.parse("def f():\n" + "\n".join(f" {line}" for line in body.splitlines())).body[0]
    assert complexity(function) == size


@pytest.mark.parametrize(("text", "what"), [
    ("x = " + "1 + " * 30 + "1", "lines over 100 columns"),
    ("if (a := f()): pass", "walrus"),
    ("[[x for x in y] for y in z]", "nested comprehensions"),
    ("[x for y in z for x in y]", "nested comprehensions"),
    ("1 if a else (2 if b else 3)", "conditionals in a conditional"),
    ("a, b = 1, 2", "tuple assignments"),
    ("a, b, c = 1, 2, 3", "tuple assignments of three and more"),
    ("def f():\n" + "    pass\n" * 60, "functions over 60 lines"),
])  # fmt: skip
def test_density_is_counted(text, what):
    assert count_density(text)[what] == 1


@pytest.mark.parametrize("what", COUNTS)
def test_nothing_outgrows_its_bound(what, counted):
    assert counted[what] <= bound(what), "more than the budget allows; take something away"


@pytest.fixture(scope="module")
def counted():
    return count()


if __name__ == "__main__":
    print("| | now | bound |\n|---|---:|---:|")
    for _what, _number in count().items():
        print(f"| {_what} | {_number:,} | {bound(_what):,} |")
