"""The text of a filter, read into the tree of `channelhash.search.filters`."""

import math
import unicodedata
from collections.abc import Collection

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from channelhash.errors import InputError
from channelhash.search.filters import (
    MAX_CONDITIONS,
    MAX_DEPTH,
    MAX_LENGTH,
    STRING_KEYS,
    Among,
    And,
    Between,
    Compare,
    Condition,
    Filter,
    Known,
    Like,
    Literal,
    Or,
    Test,
    kind_of,
    literals_of,
)
from channelhash.utils.typed_settings import unknown

_OPERATORS: dict[type, str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_INTEGERS = range(-(2**63), 2**63)


def parse(where: str, known_keys: Collection[str]) -> Filter:
    """Parse a filter into its tree; see `filters.parse_filter`.

    >>> parse("year IS NULL", ["year"])
    Condition(key='year', test=Known(), negated=True)
    """
    if len(where) > MAX_LENGTH:
        raise _error(f"{len(where):,} characters, at most {MAX_LENGTH:,} can be read")
    if "\0" in where or any(0xD800 <= ord(character) < 0xE000 for character in where):
        raise _error("holds a character that is none (NUL or half a surrogate pair)")
    try:
        tree = _Reader({*known_keys, *STRING_KEYS} - {"labels"}).read(_syntax_tree(where), negated=False, depth=0)
    except SqlglotError as error:
        raise _error(_reason(error, where)) from None
    except RecursionError:
        raise _error(f"nested deeper than {MAX_DEPTH}; write it flatter") from None
    if _count(tree) > MAX_CONDITIONS:
        raise _error(f"{_count(tree)} conditions, at most {MAX_CONDITIONS} can be asked; use IN for lists of values")
    return tree


_PREFIX = "SELECT 1 WHERE "


def _syntax_tree(where: str) -> exp.Expression:
    """Return what stands after WHERE, if nothing else does."""
    statements = sqlglot.parse(_PREFIX + where, read="sqlite")
    statement = statements[0]
    if len(statements) != 1 or not isinstance(statement, exp.Select):
        raise _error("one condition is expected, not several statements")
    clauses = {name for name, value in statement.args.items() if value} - {"expressions", "where"}
    if clauses:
        raise _error(f"conditions alone are expected, without {sorted(clauses)[0].upper()}")
    if any(node.comments for node in statement.walk()):
        raise _error("comments cannot stand in a filter")
    tree: exp.Expression = statement.args["where"].this
    return tree


class _Reader:
    """Turns sqlglot's tree into ours; everything that is not expected is refused."""

    def __init__(self, keys: set[str]) -> None:
        self._keys = keys

    def read(self, node: exp.Expression, negated: bool, depth: int) -> Filter:
        if depth > MAX_DEPTH:
            raise RecursionError
        if isinstance(node, exp.Paren):
            return self.read(node.this, negated, depth + 1)
        if isinstance(node, exp.Not):
            return self.read(node.this, not negated, depth + 1)
        if isinstance(node, exp.And | exp.Or):
            parts = tuple(self.read(part, negated, depth + 1) for part in _operands(node))
            return And(parts) if isinstance(node, exp.And) != negated else Or(parts)  # De Morgan
        return self._condition(node, negated)

    def _condition(self, node: exp.Expression, negated: bool) -> Condition:
        test: Test
        if type(node) in _OPERATORS:
            test = Compare(_OPERATORS[type(node)], _literal(node.expression))
        elif isinstance(node, exp.Like):
            negated ^= bool(node.args.get("negate"))
            pattern = _literal(node.expression)
            if not isinstance(pattern, str):
                raise _error(f"{_shown(node)}: LIKE takes a string")
            test = Like(pattern)
        elif isinstance(node, exp.Between) and not node.args.get("symmetric"):
            test = Between(_literal(node.args["low"]), _literal(node.args["high"]))
        elif isinstance(node, exp.In) and node.expressions:
            test = Among(tuple(_literal(value) for value in node.expressions))
        elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            test, negated = Known(), not negated
        else:
            raise _error(f"{_shown(node)} is not a condition; write for example label = 'dog' AND year >= 2000")
        key = self._key(node.this)
        _check_kinds(key, test, node)
        if key == "label":
            test = _composed(test)
        return Condition(key, test, negated)

    def _key(self, node: exp.Expression) -> str:
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.args.get("table"):
            raise _error(f'{_shown(node)}: a condition begins with a key; keys with other characters go into "…"')
        key: str = node.this.name
        if key == "labels":
            raise _error("labels are asked for one by one: label = 'dog'")
        if key not in self._keys:
            raise _error(unknown(f"key {key!r}", key, sorted(self._keys)))
        return key


def _operands(node: exp.Expression) -> list[exp.Expression]:
    """Return the parts of ``a AND b AND c``, which sqlglot reads as ``(a AND b) AND c``."""
    kind, parts = type(node), []
    while type(node) is kind:
        parts.append(node.expression)
        node = node.this
    return [node, *reversed(parts)]


def _literal(node: exp.Expression) -> Literal:
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal) and node.is_string:
        return str(node.this)
    negative = isinstance(node, exp.Neg)
    number = node.this if negative else node
    if isinstance(number, exp.Literal) and not number.is_string:
        return _number(("-" if negative else "") + number.this)
    if isinstance(node, exp.Null):
        raise _error("nothing equals NULL; write IS NULL or IS NOT NULL")
    raise _error(f"{_shown(node)} is not a string in '…', a number, TRUE or FALSE")


def _composed(test: Test) -> Test:
    """Return a test of labels with letters and accents in one form (NFC), as stores keep labels."""
    match test:
        case Compare(operator=operator, value=str(value)):
            return Compare(operator, unicodedata.normalize("NFC", value))
        case Among(values=values):
            return Among(tuple(unicodedata.normalize("NFC", str(value)) for value in values))
        case Between(low=str(low), high=str(high)):
            return Between(unicodedata.normalize("NFC", low), unicodedata.normalize("NFC", high))
        case Like(pattern=pattern):
            return Like(unicodedata.normalize("NFC", pattern))
    return test


def _number(text: str) -> int | float:
    try:
        value = int(text)
    except ValueError:
        real = float(text)
        if not math.isfinite(real):
            raise _error(f"the number {text} is too large") from None
        return real
    if value not in _INTEGERS:
        raise _error(f"the number {text} has more than 64 bits")
    return value


def _check_kinds(key: str, test: Test, node: exp.Expression) -> None:
    """Refuse literals of several kinds, and those that no value of the key can have."""
    kinds = {kind_of(value) for value in literals_of(test)}
    if len(kinds) > 1:
        raise _error(f"{_shown(node)}: mixes {' and '.join(sorted(kinds))}; compare with one kind")
    if key in STRING_KEYS and kinds - {"strings"}:
        raise _error(f"{_shown(node)}: {key} is compared with strings, in '…'")
    ordered = isinstance(test, Between) or (isinstance(test, Compare) and test.operator not in ("=", "!="))
    if ordered and kinds == {"Booleans"}:
        raise _error(f"{_shown(node)}: TRUE and FALSE have no order; compare with = or !=")


def _count(tree: Filter) -> int:
    return 1 if isinstance(tree, Condition) else sum(_count(part) for part in tree.parts)


def _error(reason: str) -> InputError:
    return InputError(f"where: {reason}")


def _shown(node: exp.Expression) -> str:
    text = " ".join(node.sql("sqlite").split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def _reason(error: SqlglotError, where: str) -> str:
    """sqlglot's reason with the place in ``where``."""
    if not where.strip():
        return "is empty; write for example label = 'dog'"
    details = getattr(error, "errors", None)
    if not details:
        return "a string or a quoted key does not end; put it between two quotes"
    column = max(1, details[0]["col"] - len(_PREFIX))
    near = " ".join(where[max(0, column - 20) : column].split())
    return f"cannot be read at character {column} (after {near!r}); write for example label = 'dog' AND year >= 2000"
