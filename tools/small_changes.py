"""Small changes to a source file that its tests have to notice: the mutants of `tools/mutants.py`."""

import ast
from collections.abc import Callable, Iterator
from typing import NamedTuple

# Each operator, and what it becomes.
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
# What stays as it is: types, decorators, base classes, and what an error says.
KEPT = ("annotation", "returns", "decorator_list", "bases", "exc")


class Mutant(NamedTuple):
    """One change to a file.

    Attributes:
        key: what identifies it, also after lines have moved: where, the code, the change, and which of several alike.
        line: where it is.
    """

    key: str
    line: int


class _Change(NamedTuple):
    scope: str
    node: ast.AST
    what: str
    apply: Callable[[], object]


def mutants(source: str) -> list[Mutant]:
    """List the mutants of a file.

    Operators and comparisons become others, conditions their opposites, numbers one more; arguments change places;
    statements that call, store, raise or leave a loop go.

    >>> [mutant.key for mutant in mutants("def f(a, b): return a < b + 1")]
    ['f | a < b + 1 | Lt to LtE', 'f | b + 1 | Add to Sub', 'f | 1 | one more']
    """
    return [mutant for mutant, _ in _keyed(ast.parse(source))]


def mutate(source: str, key: str) -> ast.Module:
    """Return the file with the change of that key made.

    >>> ast.unparse(mutate("def f(a, b): return a < b", "f | a < b | Lt to LtE"))
    'def f(a, b):\\n    return a <= b'
    """
    tree = ast.parse(source)
    next(apply for mutant, apply in _keyed(tree) if mutant.key == key)()
    return ast.fix_missing_locations(tree)


def _keyed(tree: ast.Module) -> list[tuple[Mutant, Callable[[], object]]]:
    counts: dict[str, int] = {}
    found = []
    for scope, node, what, apply in list(_changes(tree, "module")):
        key = f"{scope} | {' '.join(ast.unparse(node).split())} | {what}"
        counts[key] = counts.get(key, 0) + 1
        again = f" ({counts[key]})" if counts[key] > 1 else ""
        found.append((Mutant(key + again, getattr(node, "lineno", 0)), apply))
    return found


def _changes(node: ast.AST, scope: str) -> Iterator[_Change]:
    """Yield what can be changed in a node and below it, in the order of the source."""
    for shown, what, apply in _own_changes(node):
        yield _Change(scope, shown, what, apply)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        scope = f"{scope}.{node.name}".removeprefix("module.")
    for name, value in ast.iter_fields(node):
        if name in KEPT:
            continue
        if name in ("body", "orelse", "finalbody") and isinstance(value, list):
            yield from _deletions(value, scope)
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Assert):
                yield from _changes(child, scope)


def _deletions(body: list[ast.stmt], scope: str) -> Iterator[_Change]:
    for place, statement in enumerate(body):
        called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        stored = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript | ast.Attribute)
        if called or stored or isinstance(statement, ast.AugAssign | ast.Raise | ast.Break | ast.Continue):
            yield _Change(scope, statement, "deleted", _setter(body, place, ast.Pass()))


def _own_changes(node: ast.AST) -> Iterator[tuple[ast.AST, str, Callable[[], object]]]:
    """Yield (what to show, what becomes of it, the change), for the node itself."""
    match node:
        case ast.Compare(ops=operators):
            for place, operator in enumerate(operators):
                yield node, _becomes(operator), _setter(operators, place, OTHER[type(operator)]())
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) | ast.BoolOp(op=operator) if type(operator) in OTHER:
            yield node, _becomes(operator), lambda: setattr(node, "op", OTHER[type(operator)]())
        case ast.UnaryOp(op=ast.USub()):
            yield node, "sign dropped", lambda: setattr(node, "op", ast.UAdd())
        case ast.Constant(value=bool()):
            yield node, "opposite", lambda: setattr(node, "value", not node.value)
        case ast.Constant(value=int() | float()):
            yield node, "one more", lambda: setattr(node, "value", node.value + 1)
        case ast.Call(args=[first, second, *_]):
            starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
            alike = ast.unparse(node.func) in ("min", "max", "np.minimum", "np.maximum") or ast.unparse(
                first
            ) == ast.unparse(second)
            if not starred and not alike:
                yield node, "arguments swapped", lambda: node.args.__setitem__(slice(0, 2), [second, first])
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, "opposite", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), test))
        case ast.comprehension(ifs=tests):
            for place, test in enumerate(tests):
                yield test, "opposite", _setter(tests, place, ast.UnaryOp(ast.Not(), test))


def _becomes(operator: ast.AST) -> str:
    return f"{type(operator).__name__} to {OTHER[type(operator)].__name__}"


def _setter(values: list, place: int, value: ast.AST) -> Callable[[], object]:
    return lambda: values.__setitem__(place, value)
