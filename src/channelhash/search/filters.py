"""The filter language of searches: a small part of SQL. Every store translates its tree for itself.

``label = 'dog' AND NOT (year < 2000 OR text LIKE '%night%')``: comparisons (``= != <> < <= > >=``),
``IN``, ``LIKE`` (``%`` any characters, ``_`` one; upper and lower case differ), ``BETWEEN``, ``IS
[NOT] NULL``, ``AND``, ``OR``, ``NOT`` and parentheses. On the left of a condition stands a key, in
double quotes if it is no plain name; on the right strings in single quotes, numbers, ``TRUE`` or
``FALSE``. A key is ``id``, ``label``, or a key of the metadata:

* A condition on a metadata key holds for items whose value is of the literal's kind (string,
  number, Boolean) and satisfies it. Items without such a value pass neither a condition nor its
  ``NOT``, as with SQL's NULL.
* A condition on ``label`` holds for items of which any label satisfies it; its ``NOT`` holds for
  items of which none does.

Strings are ordered by their code points. On a metadata key, a literal that is a date with a time
means that moment in every spelling (see `channelhash.search.times`). A date alone comes before all
times of its day.
"""

import math
import operator
import re
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, NamedTuple

from channelhash.errors import InputError, argument
from channelhash.search.times import Time, order_problem
from channelhash.utils.typed_settings import unknown

#: Longest filter, in characters.
_MAX_LENGTH = 10_000
#: Most conditions of a filter: SQLite's own limit on the depth of expressions is 1000.
_MAX_CONDITIONS = 300
#: Deepest nesting of a filter, for the same reason.
_MAX_DEPTH = 50
#: Characters of a literal that an error shows.
_SHOWN = 40

#: Keys of every store, whatever its metadata; their values are strings.
_STRING_KEYS = ("id", "image", "label", "text")

Literal = str | int | float | bool

_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition(NamedTuple):
    """One condition. Only conditions are negated, never what joins them.

    Attributes:
        key: ``id``, ``label`` or a metadata key.
        test: the test of the value, or of any label. It is one of ``= != < <= > >=``, ``IN``,
            ``BETWEEN`` (both ends included), ``LIKE`` (the whole string fits the pattern, in which
            only ``%`` and ``_`` are special) or ``IS NOT NULL`` (for ``label``: there are labels).
        literals: what the value is compared with: one literal, several of one kind for ``IN`` and
            ``BETWEEN``, or none.
        negated: a value of the right kind, or every label, must *fail* the test.

    >>> parse_filter("year BETWEEN 1990 AND 2000", ["year"])
    Condition(key='year', test='BETWEEN', literals=(1990, 2000), negated=False)
    """

    key: str
    test: str
    literals: tuple[Literal, ...] = ()
    negated: bool = False


class Joined(NamedTuple):
    """Parts that must all hold (``AND``), or of which any must hold (``OR``).

    >>> parse_filter("label = 'dog' OR id > 'b'", []).word
    'OR'
    """

    word: str
    parts: tuple["Filter", ...]


Filter = Condition | Joined


def parse_filter(where: str, known_keys: Collection[str]) -> Filter:
    """Parse a filter into its tree.

    Args:
        where: what the user wrote.
        known_keys: the metadata keys of the store, beside `_STRING_KEYS`.

    Raises:
        InputError: it is no filter, too long or too deep, or names an unknown key.

    >>> parse_filter("NOT year >= 2000", ["year"])
    Condition(key='year', test='>=', literals=(2000,), negated=True)
    """
    if len(where) > _MAX_LENGTH:
        raise _error(f"{len(where):,} characters, at most {_MAX_LENGTH:,} can be read")
    if not where.strip():
        raise _error("is empty; write for example label = 'dog'")
    if "\0" in where or any(0xD800 <= ord(character) < 0xE000 for character in where):
        raise _error("holds a character that is none (NUL or half a surrogate pair)")
    parser = _Parser(where, known_keys)
    tree = parser.joined("OR", negated=False, depth=0)
    parser.expect_end()
    count = sum(1 for _ in conditions_of(tree))
    if count > _MAX_CONDITIONS:
        raise _error(
            f"{count} conditions, at most {_MAX_CONDITIONS} can be asked; use IN for lists of "
            "values"
        )
    return _find_times(tree)


#: The next token, after any space; the name of the group is its kind.
_TOKEN = re.compile(
    r"""\s*(?:(?P<string>'(?:[^']|'')*')|(?P<name>"[^"]+"|[^\W\d]\w*)"""
    r"""|(?P<number>-?\s*(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))"""
    r"""|(?P<word><>|[<>!]=|[=<>(),])|(?P<end>$))"""
)
#: AND or OR -> the word that joins the negated parts (De Morgan).
_JOINTS = {"AND": "OR", "OR": "AND"}
#: Names that are no keys, in any case.
_KEYWORDS = {"AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"}


class _Parser:
    """Read a filter from left to right, one token ahead."""

    def __init__(self, where: str, known_keys: Collection[str]) -> None:
        self._where = where
        self._keys = {*known_keys, *_STRING_KEYS} - {"labels"}
        self._end = 0
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self._where, self._end)
        if match is None:
            self._end = len(self._where) - len(self._where[self._end :].lstrip()) + 1
            raise self._unreadable()
        self._kind = str(match.lastgroup)
        self._end = match.end()
        self._text = match[self._kind]
        if self._kind == "name" and self._text.upper() in _KEYWORDS:
            self._kind = "word"
            self._text = self._text.upper()

    def _unreadable(self) -> InputError:
        near = " ".join(self._where[max(0, self._end - 20) : self._end].split())
        example = "write for example label = 'dog' AND year >= 2000"
        return _error(f"cannot be read at character {self._end} (after {near!r}); {example}")

    def _take(self, *words: str) -> str:
        """Take and return the next token if it is one of these words, else return ""."""
        if self._kind != "word" or self._text not in words:
            return ""
        word = self._text
        self._advance()
        return word

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._unreadable()

    def expect_end(self) -> None:
        """Raise `InputError` unless everything is read."""
        if self._kind != "end":
            raise self._unreadable()

    def joined(self, word: str, negated: bool, depth: int) -> Filter:
        """Read what OR or AND joins. Negations move inwards (De Morgan), to the conditions."""
        parts: list[Filter] = []
        while not parts or self._take(word):
            parts.append(
                self.joined("AND", negated, depth) if word == "OR" else self._term(negated, depth)
            )
        joint = _JOINTS[word] if negated else word
        return Joined(joint, tuple(parts)) if len(parts) > 1 else parts[0]

    def _term(self, negated: bool, depth: int) -> Filter:
        if depth > _MAX_DEPTH:
            raise _error(f"nested deeper than {_MAX_DEPTH}; write it flatter")
        if self._take("NOT"):
            return self._term(not negated, depth + 1)
        if self._take("("):
            tree = self.joined("OR", negated, depth + 1)
            self._expect(")")
            return tree
        return self._condition(negated)

    def _key(self) -> str:
        if self._kind != "name":
            raise self._unreadable()
        key = self._text.strip('"')
        if key == "labels":
            raise _error("labels are asked for one by one: label = 'dog'")
        if key not in self._keys:
            raise _error(unknown(f"key {key!r}", key, sorted(self._keys)))
        self._advance()
        return key

    def _condition(self, negated: bool) -> Condition:
        key = self._key()
        if self._take("IS"):
            is_known = bool(self._take("NOT"))
            self._expect("NULL")
            return Condition(key, "IS NOT NULL", (), negated == is_known)
        test = self._take(*_COMPARISONS, "<>")
        if not test:
            negated = negated != bool(self._take("NOT"))
            test = self._take("LIKE", "BETWEEN", "IN")
        if not test:
            raise self._unreadable()
        literals = self._literals(key, test)
        if test == "<>":
            test = "!="
        _check_kinds(key, test, literals)
        return Condition(key, test, literals, negated)

    def _literals(self, key: str, test: str) -> tuple[Literal, ...]:
        """Read what a test compares with."""
        if test == "BETWEEN":
            low = self._literal(key)
            self._expect("AND")
            return low, self._literal(key)
        if test != "IN":
            return (self._literal(key),)
        self._expect("(")
        literals = [self._literal(key)]
        while self._take(","):
            literals.append(self._literal(key))
        self._expect(")")
        return tuple(literals)

    def _literal(self, key: str) -> Literal:
        """Read a string, a number, TRUE or FALSE."""
        value: Literal
        if self._kind == "string":
            value = self._text[1:-1].replace("''", "'")
        elif self._kind == "number":
            value = _number("".join(self._text.split()))
        elif self._text in ("TRUE", "FALSE"):
            value = self._text == "TRUE"
        elif self._text == "NULL":
            raise _error("nothing equals NULL; write IS NULL or IS NOT NULL")
        elif self._kind == "name":
            word = self._text.strip('"')
            raise _error(f"{word} stands for a string, and is none; write {quoted(word)}")
        else:
            raise self._unreadable()
        if key in _STRING_KEYS and not isinstance(value, str):
            raise _error(f"{key} is compared with strings, in '…'")
        if key == "label":
            value = unicodedata.normalize("NFC", str(value))  # the form in which stores keep labels
        self._advance()
        return value


def _check_kinds(key: str, test: str, literals: tuple[Literal, ...]) -> None:
    """Raise `InputError` unless literals are of one kind, which the test takes."""
    if test == "LIKE" and not isinstance(literals[0], str):
        raise _error(f"{key}: LIKE takes a string")
    kinds = {kind_of(value) for value in literals}
    if len(kinds) > 1:
        raise _error(f"{key}: mixes {' and '.join(sorted(kinds))}; compare with one kind")
    if kinds == {"Booleans"} and test not in ("=", "!=", "IN"):
        raise _error(f"{key}: TRUE and FALSE have no order; compare with = or !=")


def _number(digits: str) -> int | float:
    """Return the number that digits write, if stores can compare it."""
    value: int | float = float(digits)
    is_whole = not set(digits) & set(".eE")
    if is_whole and abs(value) <= 2**63:
        # Without zeros in front: Python reads at most 4,300 digits.
        value = int(digits.lstrip("-0") or "0") * (-1 if digits.startswith("-") else 1)
    if not (-(2**63) <= value < 2**63 if is_whole else math.isfinite(value)):
        shown = digits if len(digits) <= _SHOWN else f"{digits[:_SHOWN]}…"
        raise _error(f"the number {shown} is too large")
    return value


def _find_times(tree: Filter) -> Filter:
    """Let every time of a filter mean that moment in each of its spellings."""
    if isinstance(tree, Joined):
        return Joined(tree.word, tuple(map(_find_times, tree.parts)))
    if tree.key in _STRING_KEYS or tree.test in ("LIKE", "IS NOT NULL"):
        return tree
    if tree.test in ("=", "!=", "IN"):
        return _equal_times(tree)
    found = _ordered_times(tree)
    if found == tree._replace(negated=False):
        return tree
    return _opposite(found) if tree.negated else found


def _equal_times(condition: Condition) -> Condition:
    """Compare with all spellings of a time."""
    spellings: dict[Literal, None] = {}  # each once, in order
    for literal in condition.literals:
        spellings[literal] = None
        time = Time.read(literal) if isinstance(literal, str) else None
        if time is not None:
            spellings |= dict.fromkeys(time.writings())
    if spellings.keys() == set(condition.literals):
        return condition
    negated = condition.negated != (condition.test == "!=")
    return Condition(condition.key, "IN", tuple(spellings), negated)


def _ordered_times(condition: Condition) -> Filter:
    """Compare with times by their order, whether or not the condition is negated."""
    if condition.test != "BETWEEN":
        return _ordered_time(condition._replace(negated=False))
    low, high = condition.literals
    bounds = (Condition(condition.key, ">=", (low,)), Condition(condition.key, "<=", (high,)))
    parts = tuple(map(_ordered_time, bounds))
    return condition._replace(negated=False) if parts == bounds else Joined("AND", parts)


def _ordered_time(condition: Condition) -> Filter:
    """Compare with a time by its order, among values that write a space or a T before the clock.

    On its day, all values with a space come before all with a T.
    """
    key, test, (literal,), _ = condition
    if not isinstance(literal, str):
        return condition
    problem = order_problem(literal)
    if problem:
        raise _error(f"{key}: {literal[:_SHOWN]!r} {problem}")
    time = Time.read(literal)
    if time is None:
        return condition
    since, clock = (">=", time.first()) if test in (">=", "<") else (">", time.last())
    with_space = Condition(key, since, (f"{time.date} {clock}",))
    before_t = Condition(key, "<", (f"{time.date}T",))
    with_t = Condition(key, since, (f"{time.date}T{clock}",))
    found = Joined("OR", (Joined("AND", (with_space, before_t)), with_t))
    return found if test in (">=", ">") else _opposite(found)


def _opposite(tree: Filter) -> Filter:
    """Negate a filter, by negating its conditions."""
    if isinstance(tree, Condition):
        return tree._replace(negated=not tree.negated)
    return Joined(_JOINTS[tree.word], tuple(map(_opposite, tree.parts)))


def conditions_of(tree: Filter | None) -> Iterator[Condition]:
    """Yield the conditions of a filter, from left to right; none without a filter.

    >>> [one.key for one in conditions_of(parse_filter("id = 'a' OR year > 1", ["year"]))]
    ['id', 'year']
    """
    if isinstance(tree, Condition):
        yield tree
    for part in tree.parts if isinstance(tree, Joined) else ():
        yield from conditions_of(part)


def _error(reason: str) -> InputError:
    return InputError(f"{argument('where')}: {reason}")


def passes(tree: Filter, item_id: str, metadata: Mapping[str, Any]) -> bool:
    """Return whether an item passes a filter; for stores without a query language of their own.

    >>> tree = parse_filter("label = 'dog' AND year > 2000", ["year"])
    >>> passes(tree, "a", {"labels": ["dog"], "year": 2001})
    True
    """
    if isinstance(tree, Condition):
        return _passes_condition(tree, item_id, metadata)
    results = (passes(part, item_id, metadata) for part in tree.parts)
    return all(results) if tree.word == "AND" else any(results)


def _passes_condition(condition: Condition, item_id: str, metadata: Mapping[str, Any]) -> bool:
    if condition.key == "label":
        labels = metadata.get("labels") or []
        return any(_satisfies(label, condition) for label in labels) != condition.negated
    value = item_id if condition.key == "id" else metadata.get(condition.key)
    if condition.test == "IS NOT NULL":
        return (value is not None) != condition.negated
    if not isinstance(value, Literal) or kind_of(value) != kind_of(condition.literals[0]):
        return False
    return _satisfies(value, condition) != condition.negated


#: Translates a pattern of LIKE into one of file names, which `fnmatch` matches in linear time.
_GLOB = str.maketrans({"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"})


def to_glob(pattern: Literal) -> str:
    """Translate a pattern of LIKE for `fnmatch.fnmatchcase` and SQLite's GLOB, which tell upper and
    lower case apart.

    >>> to_glob("%sea_ [*]")
    '*sea? [[][*]]'
    """
    return str(pattern).translate(_GLOB)


def quoted(text: str) -> str:
    """Quote a string as a literal of a filter.

    >>> quoted("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"


def kind_of(value: Literal) -> str:
    """Return the kind of a literal: strings, numbers or Booleans.

    >>> kind_of(2000)
    'numbers'
    """
    return {bool: "Booleans", str: "strings"}.get(type(value), "numbers")


def _satisfies(value: Any, condition: Condition) -> bool:
    """Return whether a value of the literals' kind satisfies a condition's test."""
    literals = condition.literals
    match condition.test:
        case "IN":
            return value in literals
        case "BETWEEN":
            return bool(literals[0] <= value <= literals[1])
        case "LIKE":
            return fnmatchcase(value, to_glob(literals[0]))
        case "IS NOT NULL":
            return True
    return bool(_COMPARISONS[condition.test](value, literals[0]))


class SqlCondition(NamedTuple):
    """A Boolean SQL expression with ``?``, or ``%s`` in PostgreSQL, in place of every literal.

    >>> SqlCondition("id = ?", ("a",)).sql
    'id = ?'
    """

    sql: str
    parameters: tuple[Any, ...]


def to_sql(tree: Filter | None, translate: Callable[[Condition], SqlCondition]) -> SqlCondition:
    """Translate the conditions of a filter and join them.

    An item passes if the result is true, not if it is null. Without a filter all items pass.

    >>> tree = parse_filter("id = 'a' OR id = 'b'", [])
    >>> to_sql(tree, lambda condition: SqlCondition("id = ?", condition.literals))
    SqlCondition(sql='(id = ? OR id = ?)', parameters=('a', 'b'))
    """
    if tree is None:
        return SqlCondition("true", ())
    if isinstance(tree, Condition):
        return translate(tree)
    parts = [to_sql(part, translate) for part in tree.parts]
    sql = f" {tree.word} ".join(part.sql for part in parts)
    parameters = chain.from_iterable(part.parameters for part in parts)
    return SqlCondition(f"({sql})", tuple(parameters))


def compared(value: str, condition: Condition, like: str, mark: str) -> str:
    """Write a condition's test of a value in SQL.

    Args:
        value: the value, as an SQL expression.
        condition: the condition, whether or not it is negated.
        like: what is written for ``LIKE``.
        mark: what is written for each literal.

    >>> compared("year", Condition("year", "BETWEEN", (1990, 2000)), "LIKE ?", "?")
    '(year BETWEEN ? AND ?)'
    """
    marks = ", ".join([mark] * len(condition.literals))
    spelling = {"IN": f"IN ({marks})", "BETWEEN": f"BETWEEN {mark} AND {mark}", "LIKE": like}
    return f"({value} {spelling.get(condition.test, f'{condition.test} {marks}'.rstrip())})"
