"""The filter language of searches: a small part of SQL, read into a tree that every store translates for itself.

``label = 'dog' AND NOT (year < 2000 OR text LIKE '%night%')``: comparisons (``= != <> < <= > >=``), ``IN``, ``LIKE``
(``%`` any characters, ``_`` one; upper and lower case differ), ``BETWEEN``, ``IS [NOT] NULL``, ``AND``, ``OR``, ``NOT``
and parentheses. On the left of a condition stands a key, in double quotes if it is no plain name; on the right strings
in single quotes, numbers, ``TRUE`` or ``FALSE``. A key is ``id``, ``label``, or one of the metadata:

* a condition on a metadata key holds for items that have a value of the literal's kind (string, number, Boolean) which
  satisfies it. Items without such a value pass neither a condition nor its ``NOT``, as with SQL's NULL;
* a condition on ``label`` holds for items of which any label satisfies it, its ``NOT`` for items of which none does.
"""

import math
import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from channelhash.errors import InputError
from channelhash.utils.typed_settings import unknown

#: Longest filter, in characters.
MAX_LENGTH = 10_000
#: Most conditions of a filter, and deepest nesting: SQLite's own limit on expressions is 1000.
MAX_CONDITIONS = 300
MAX_DEPTH = 50

#: Keys that can be asked for whatever the items' metadata; their values are strings.
STRING_KEYS = ("id", "image", "label", "text")

Literal = str | int | float | bool

_OPERATORS: dict[type, str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_INTEGERS = range(-(2**63), 2**63)


@dataclass(frozen=True)
class Compare:
    """``value <operator> literal``; the operator is one of ``= != < <= > >=``, of Booleans ``=`` or ``!=``.

    >>> parse_filter("year >= 2000", ["year"]).test
    Compare(operator='>=', value=2000)
    """

    operator: str
    value: Literal


@dataclass(frozen=True)
class Among:
    """``IN``: one of these literals, all of one kind.

    >>> parse_filter("label IN ('dog', 'cat')", []).test
    Among(values=('dog', 'cat'))
    """

    values: tuple[Literal, ...]


@dataclass(frozen=True)
class Between:
    """``BETWEEN``, both ends included; two strings or two numbers.

    >>> parse_filter("year BETWEEN 1990 AND 2000", ["year"]).test
    Between(low=1990, high=2000)
    """

    low: Literal
    high: Literal


@dataclass(frozen=True)
class Like:
    """``LIKE``: the whole string fits the pattern; ``%`` any characters, ``_`` one, nothing else is special.

    >>> parse_filter("text LIKE '%sea%'", []).test
    Like(pattern='%sea%')
    """

    pattern: str


@dataclass(frozen=True)
class Known:
    """``IS NOT NULL``: there is a value.

    >>> parse_filter("year IS NULL", ["year"])
    Condition(key='year', test=Known(), negated=True)
    """


Test = Compare | Among | Between | Like | Known


@dataclass(frozen=True)
class Condition:
    """One condition. Negations stand here alone, none above: whatever is not known to hold, does not.

    Attributes:
        key: ``id``, ``label`` or a metadata key.
        test: what its value satisfies; of ``label``, what any label satisfies.
        negated: what a value of the right kind does *not* satisfy; of ``label``, what no label does.

    >>> parse_filter("NOT label = 'dog'", []).negated
    True
    """

    key: str
    test: Test
    negated: bool = False


@dataclass(frozen=True)
class And:
    """All parts hold.

    >>> len(parse_filter("label = 'dog' AND id > 'b'", []).parts)
    2
    """

    parts: tuple["Filter", ...]


@dataclass(frozen=True)
class Or:
    """Any part holds.

    >>> type(parse_filter("label = 'dog' OR id > 'b'", [])).__name__
    'Or'
    """

    parts: tuple["Filter", ...]


Filter = Condition | And | Or


def parse_filter(where: str, known_keys: Collection[str]) -> Filter:
    """Parse a filter into its tree.

    Args:
        where: what the user wrote.
        known_keys: the metadata keys of the store; `STRING_KEYS` are known everywhere.

    Raises:
        InputError: it is no filter, too long or too deep, or names an unknown key; one line that begins ``where:``.

    >>> parse_filter("NOT year >= 2000", ["year"])
    Condition(key='year', test=Compare(operator='>=', value=2000), negated=True)
    """
    return _parse(where, frozenset(known_keys))


@lru_cache(maxsize=64)  # parsing takes longer than many a search
def _parse(where: str, known_keys: frozenset[str]) -> Filter:
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


def passes(tree: Filter, item_id: str, metadata: Mapping[str, Any]) -> bool:
    """Return whether an item passes a filter; for stores that have no query language of their own.

    >>> passes(parse_filter("label = 'dog' AND year > 2000", ["year"]), "a", {"labels": ["dog"], "year": 2001})
    True
    """
    if not isinstance(tree, Condition):
        results = (passes(part, item_id, metadata) for part in tree.parts)
        return all(results) if isinstance(tree, And) else any(results)
    if tree.key == "label":
        return any(_satisfies(label, tree.test) for label in metadata.get("labels") or []) != tree.negated
    value = item_id if tree.key == "id" else metadata.get(tree.key)
    if isinstance(tree.test, Known):
        return (value is not None) != tree.negated
    if not isinstance(value, Literal) or kind_of(value) != kind_of(literals_of(tree.test)[0]):
        return False
    return _satisfies(value, tree.test) != tree.negated


def like_expression(pattern: str) -> re.Pattern[str]:
    """Translate a pattern of LIKE into a regular expression that a whole string matches.

    >>> bool(like_expression("%sea_").fullmatch("the seas"))
    True
    """
    parts = ({"%": ".*", "_": "."}.get(character, re.escape(character)) for character in pattern)
    return re.compile("".join(parts), re.DOTALL)


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
        elif isinstance(node, exp.Between):
            test = Between(_literal(node.args["low"]), _literal(node.args["high"]))
        elif isinstance(node, exp.In) and node.expressions:
            test = Among(tuple(_literal(value) for value in node.expressions))
        elif isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            test, negated = Known(), not negated
        else:
            raise _error(f"{_shown(node)} is not a condition; write for example label = 'dog' AND year >= 2000")
        key = self._key(node.this)
        _check_kinds(key, test, node)
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


def literals_of(test: Test) -> tuple[Literal, ...]:
    """Return the literals of a test.

    >>> literals_of(Between(1990, 2000))
    (1990, 2000)
    """
    match test:
        case Compare(value=value):
            return (value,)
        case Among(values=values):
            return values
        case Between(low=low, high=high):
            return (low, high)
        case Like(pattern=pattern):
            return (pattern,)
        case Known():
            return ()


def kind_of(value: Literal) -> str:
    """Return the kind of a literal: strings, numbers or Booleans.

    >>> kind_of(2000)
    'numbers'
    """
    if isinstance(value, bool):
        return "Booleans"
    return "strings" if isinstance(value, str) else "numbers"


def _satisfies(value: Any, test: Test) -> bool:
    """Return whether a value of the literals' kind satisfies a test."""
    match test:
        case Compare(operator=sign, value=literal):
            return bool(_COMPARISONS[sign](value, literal))
        case Among(values=values):
            return value in values
        case Between(low=low, high=high):
            return bool(low <= value <= high)
        case Like(pattern=pattern):
            return like_expression(pattern).fullmatch(value) is not None
        case Known():
            return True


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
