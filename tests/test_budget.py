"""How much code, tests and documentation there may be: whoever adds, takes away.

``make budget`` prints the table.
"""

import ast
import io
from pathlib import Path
from tokenize import COMMENT, DEDENT, ENCODING, ENDMARKER, INDENT, NEWLINE, NL, generate_tokens

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "channelhash"
#: What is counted -> the most that there may be.
BOUNDS: dict[str, float] = {
    "code lines of src without lab": 21_488,
    "code lines of lab": 3130,
    "Python files in src": 172,
    "imports, % of code": 9.1,
    "public names per 100 code lines": 3.5,
    "lines of tests": 27_000,
    "lines of tools and benchmarks": 2965,
    "words of docs": 44_990,
}
_SILENT = {COMMENT, NL, NEWLINE, INDENT, DEDENT, ENCODING, ENDMARKER}


def code_lines(text: str) -> int:
    """Count the lines with a token that is neither comment nor docstring."""
    lines: set[int] = set()
    for token in generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            lines |= set(range(token.start[0], token.end[0] + 1))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node):
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def import_lines(text: str) -> int:
    """Count the lines of import statements, those inside functions too."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)


def public_names(text: str) -> int:
    """Count the functions, classes and constants of a module whose names have no underscore in front."""
    names = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
    return sum(not name.startswith("_") for name in names)


def count() -> dict[str, float]:
    """Count everything that `BOUNDS` bounds."""
    files = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    lines = {path: code_lines(text) for path, text in files.items()}
    lab = sum(number for path, number in lines.items() if path.is_relative_to(PACKAGE / "lab"))
    total = sum(lines.values())

    def physical(*folders: str) -> int:
        paths = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
        return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)

    return {
        "code lines of src without lab": total - lab,
        "code lines of lab": lab,
        "Python files in src": len(files),
        "imports, % of code": round(100 * sum(map(import_lines, files.values())) / total, 1),
        "public names per 100 code lines": round(100 * sum(map(public_names, files.values())) / total, 1),
        "lines of tests": physical("tests"),
        "lines of tools and benchmarks": physical("tools", "benchmarks"),
        "words of docs": sum(len(path.read_text(encoding="utf-8").split()) for path in (ROOT / "docs").rglob("*.md")),
    }


@pytest.mark.parametrize(("text", "code", "imports", "names"), [
    ('"""Doc."""\n\nimport os\n\nA = 1  # why\n_b: int = 2\n', 3, 1, 1),
    ('def f():\n    """Doc\n    more."""\n    from a import (\n        b,\n    )\n    # why\n    return b\n', 5, 3, 1),
    ('class C:\n    text = """\n    a\n    """\n\n    def g(self): ...\n', 5, 0, 1),
])  # fmt: skip
def test_code_imports_and_names_are_counted(text, code, imports, names):
    assert (code_lines(text), import_lines(text), public_names(text)) == (code, imports, names)


def test_nothing_outgrows_its_bound():
    larger = {what: (number, BOUNDS[what]) for what, number in count().items() if number > BOUNDS[what]}
    assert not larger, f"more than the budget allows (counted, bound): {larger}; take something away"


if __name__ == "__main__":
    print("| | now | bound |\n|---|---:|---:|")
    for _what, _number in count().items():
        print(f"| {_what} | {_number:,} | {BOUNDS[_what]:,} |")
