"""The filter language of searches: a small part of SQL, read into a tree that every store translates for itself.

``label = 'dog' AND NOT (year < 2000 OR text LIKE '%night%')``: comparisons (``= != <> < <= > >=``), ``IN``, ``LIKE``
(``%`` any characters, ``_`` one; upper and lower case differ), ``BETWEEN``, ``IS [NOT] NULL``, ``AND``, ``OR``, ``NOT``
and parentheses. On the left of a condition stands a key, in double quotes if it is no plain name; on the right strings
in single quotes, numbers, ``TRUE`` or ``FALSE``. A key is ``id``, ``label``, or one of the metadata:

* a condition on a metadata key holds for items that have a value of the literal's kind (string, number, Boolean) which
  satisfies it. Items without such a value pass neither a condition nor its ``NOT``, as with SQL's NULL;
* a condition on ``label`` holds for items of which any label satisfies it, its ``NOT`` for items of which none does.
"""

import operator
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

#: Longest filter, in characters.
MAX_LENGTH = 10_000
#: Most conditions of a filter, and deepest nesting: SQLite's own limit on expressions is 1000.
MAX_CONDITIONS = 300
MAX_DEPTH = 50

#: Keys that can be asked for whatever the items' metadata; their values are strings.
STRING_KEYS = ("id", "image", "label", "text")

Literal = str | int | float | bool

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


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
    from channelhash.search.filter_parser import parse  # a library that searches without a filter do not need

    return parse(where, known_keys)


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
    first, *others = ("".join("." if it == "_" else re.escape(it) for it in part) for part in pattern.split("%"))
    if not others:
        return re.compile(first, re.DOTALL)
    # The first place where a part fits will do: trying the others would take exponential time.
    middle = "".join(f"(?>.*?{part})" for part in others[:-1])
    return re.compile(f"{first}{middle}.*{others[-1]}", re.DOTALL)


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
