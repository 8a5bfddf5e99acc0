"""Measure the structure of the package: rooms, imports, sizes, examples.

    python tools/structure.py            the table
    python tools/structure.py --list     also what is too long, too wide, or without an example

Counted: modules at the root; units (packages and modules directly below ``channelhash``), the arrows between them and
the longest chain of imports; functions of more than 60 lines (docstring included) or with more than 7 parameters
(constructors of losses apart, ``self`` not counted); public functions and classes at the top of a module that show an
example (``>>>``).
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent / "site"))

from architecture import PACKAGE, Imports, read_imports

MAX_LINES, MAX_PARAMETERS = 60, 7

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """A function or class with the file that it is in, relative to the package."""

    file: Path
    node: Function | ast.ClassDef
    owner: ast.ClassDef | None

    def __str__(self) -> str:
        name = f"{self.owner.name}.{self.node.name}" if self.owner else self.node.name
        return f"{self.file}:{self.node.lineno} {name}"


def definitions(package: Path = PACKAGE) -> list[Definition]:
    """List all functions, methods and classes of a package."""
    found = []
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found += [Definition(path.relative_to(package), node, owner) for node, owner in _walk(tree, None)]
    return found


def _walk(parent: ast.AST, owner: ast.ClassDef | None) -> Iterator[tuple[Function | ast.ClassDef, ast.ClassDef | None]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, Function | ast.ClassDef):
            yield node, owner
        yield from _walk(
            node, node if isinstance(node, ast.ClassDef) else None if isinstance(node, Function) else owner
        )


def long_functions(all_: list[Definition]) -> list[tuple[int, Definition]]:
    """List functions of more than `MAX_LINES` lines, longest first."""
    sizes = [(d.node.end_lineno - d.node.lineno + 1, d) for d in all_ if isinstance(d.node, Function)]  # type: ignore[operator]
    return sorted(((size, d) for size, d in sizes if size > MAX_LINES), key=lambda pair: -pair[0])


def wide_functions(all_: list[Definition]) -> list[tuple[int, Definition]]:
    """List functions with more than `MAX_PARAMETERS` parameters, widest first; constructors of losses are left out."""
    wide = []
    for definition in all_:
        node = definition.node
        if not isinstance(node, Function) or (node.name == "__init__" and definition.file.parts[0] == "losses"):
            continue
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len([name for name in names if name not in ("self", "cls")])
        if count > MAX_PARAMETERS:
            wide.append((count, definition))
    return sorted(wide, key=lambda pair: -pair[0])


def public(all_: list[Definition]) -> list[Definition]:
    """List the public functions and classes at the top of public modules."""
    return [
        d
        for d in all_
        if d.owner is None
        and d.node.col_offset == 0
        and not any(part.startswith("_") for part in (*d.file.with_suffix("").parts[:-1], d.node.name))
    ]


def has_example(definition: Definition) -> bool:
    """Return whether a definition, or for a class one of its methods, shows an example."""
    nodes = [definition.node]
    if isinstance(definition.node, ast.ClassDef):
        nodes += [node for node in definition.node.body if isinstance(node, Function)]
    return any(">>>" in (ast.get_docstring(node) or "") for node in nodes)


def depth(imports: Imports) -> int:
    """Return the number of units in the longest chain of imports.

    >>> depth({"cli": {"data", "errors"}, "data": {"errors"}, "errors": set()})
    3
    """

    @cache
    def below(unit: str) -> int:
        return 1 + max((below(other) for other in imports[unit]), default=0)

    return max(map(below, imports))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="also list what is counted")
    options = parser.parse_args()
    all_ = definitions()
    imports, shown = read_imports(), public(all_)
    examples = [d for d in shown if has_example(d)]
    files = list(PACKAGE.rglob("*.py"))
    rows = {
        "modules at the root": len(list(PACKAGE.glob("*.py"))),
        "units / import arrows / depth": f"{len(imports)} / {sum(map(len, imports.values()))} / {depth(imports)}",
        f"functions over {MAX_LINES} lines": len(long_functions(all_)),
        f"functions with more than {MAX_PARAMETERS} parameters": len(wide_functions(all_)),
        "public functions and classes with an example": f"{len(examples)} of {len(shown)}, "
        f"{100 * len(examples) / max(1, len(shown)):.0f} %",
        "files / lines": f"{len(files)} / {sum(len(p.read_text(encoding='utf-8').splitlines()) for p in files):,}",
    }
    for what, value in rows.items():
        print(f"{what:<48}{value}")
    if options.list:
        for title, rows_ in (("lines", long_functions(all_)), ("parameters", wide_functions(all_))):
            print(f"\nToo many {title}:", *(f"  {count:>3} {d}" for count, d in rows_), sep="\n")
        print("\nWithout an example:", *(f"  {d}" for d in shown if not has_example(d)), sep="\n")


if __name__ == "__main__":
    main()
