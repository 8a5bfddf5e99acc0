"""The filter language of searches: a small part of SQL, read into a tree that every store
translates for itself.

``label = 'dog' AND NOT (year < 2000 OR text LIKE '%night%')``: comparisons (``= != <> < <= > >=``),
``IN``, ``LIKE`` (``%`` any characters, ``_`` one; upper and lower case differ), ``BETWEEN``, ``IS
[NOT] NULL``, ``AND``, ``OR``, ``NOT`` and parentheses. On the left of a condition stands a key, in
double quotes if it is no plain name; on the right strings in single quotes, numbers, ``TRUE`` or
``FALSE``. A key is ``id``, ``label``, or one of the metadata:

* a condition on a metadata key holds for items that have a value of the literal's kind (string,
  number, Boolean) which satisfies it. Items without such a value pass neither a condition nor its
  ``NOT``, as with SQL's NULL;
* a condition on ``label`` holds for items of which any label satisfies it, its ``NOT`` for items of
  which none does.

Strings are ordered by their code points. On a metadata key, a literal that is a date with a time
means that moment in every writing (see `channelhash.search.times`). A date alone comes before all
times of its day.
"""

import math
import operator
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from channelhash.errors import InputError, argument
from channelhash.search.times import Time, order_problem
from channelhash.utils.typed_settings import unknown

#: Longest filter, in characters.
_MAX_LENGTH = 10_000
#: Most conditions of a filter, and deepest nesting: SQLite's own limit on expressions is 1000.
_MAX_CONDITIONS = 300
_MAX_DEPTH = 50
# Characters of a literal that an error shows.
_SHOWN = 40

#: Keys that can be asked for whatever the items' metadata; their values are strings.
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
    """One condition. Negations stand here alone, none above: whatever is not known to hold, does
    not.

    Attributes:
        key: ``id``, ``label`` or a metadata key.
        test: what its value satisfies; of ``label``, what any label satisfies. It is one of ``= !=
            < <= > >=``, ``IN``, ``BETWEEN`` (both ends included), ``LIKE`` (the whole string fits
            the pattern, in which nothing but ``%`` and ``_`` is special) or ``IS NOT NULL`` (of
            ``label``: there are labels).
        literals: what the value is compared with: one or, of ``IN`` and ``BETWEEN``, several of one
            kind; or none.
        negated: what a value of the right kind does *not* satisfy; of ``label``, what no label
            does.

    >>> parse_filter("year BETWEEN 1990 AND 2000", ["year"])
    Condition(key='year', test='BETWEEN', literals=(1990, 2000), negated=False)
    """

    key: str
    test: str
    literals: tuple[Literal, ...] = ()
    negated: bool = False


class Joined(NamedTuple):
    """Parts of which all hold (``AND``), or any (``OR``).

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
        known_keys: the metadata keys of the store; `_STRING_KEYS` are known everywhere.

    Raises:
        InputError: it is no filter, too long or too deep, or names an unknown key; one line that
            begins ``where:``.

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
    if (count := _count(tree)) > _MAX_CONDITIONS:
        raise _error(
            f"{count} conditions, at most {_MAX_CONDITIONS} can be asked; use IN for lists of "
            "values"
        )
    return _find_times(tree)


_TOKEN = re.compile(
    r"""\s*(?:(?P<string>'(?:[^']|'')*')|(?P<name>"[^"]+"|[^\W\d]\w*)"""
    r"""|(?P<number>-?\s*(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?!\w))|(?P<word><>|[<>!]=|[=<>(),])|(?P<end>$))"""
)
# What joins negated parts (De Morgan).
_JOINTS = {"AND": "OR", "OR": "AND"}
_KEYWORDS = {"AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"}


class _Parser:
    """Reads a filter from left to right; one token is looked at ahead."""

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
        """Return the next word if it is one of these, and go on; else an empty string."""
        if self._kind != "word" or self._text not in words:
            return ""
        word = self._text
        self._advance()
        return word

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise self._unreadable()

    def expect_end(self) -> None:
        """Raise `InputError` unless all is read."""
        if self._kind != "end":
            raise self._unreadable()

    def joined(self, word: str, negated: bool, depth: int) -> Filter:
        """Read what OR or AND joins. Negations go inwards (De Morgan), so that conditions alone are
        negated.
        """
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
        if test == "IN":
            self._expect("(")
        literals = [self._literal(key)]
        if test == "BETWEEN":
            self._expect("AND")
            literals.append(self._literal(key))
        if test == "IN":
            while self._take(","):
                literals.append(self._literal(key))
            self._expect(")")
        if test == "LIKE" and not isinstance(literals[0], str):
            raise _error(f"{key}: LIKE takes a string")
        kinds = {kind_of(value) for value in literals}
        if len(kinds) > 1:
            raise _error(f"{key}: mixes {' and '.join(sorted(kinds))}; compare with one kind")
        if kinds == {"Booleans"} and test not in ("=", "!=", "<>", "IN"):
            raise _error(f"{key}: TRUE and FALSE have no order; compare with = or !=")
        return Condition(key, "!=" if test == "<>" else test, tuple(literals), negated)

    def _literal(self, key: str) -> Literal:
        """Read a string, a number, TRUE or FALSE; letters and accents of labels in one form, as
        stores keep them.
        """
        value: Literal
        if self._kind == "string":
            value = self._text[1:-1].replace("''", "'")
            value = unicodedata.normalize("NFC", value) if key == "label" else value
        elif self._kind == "number":
            value = _number("".join(self._text.split()))
        elif self._kind == "word" and self._text in ("TRUE", "FALSE"):
            value = self._text == "TRUE"
        elif self._kind == "word" and self._text == "NULL":
            raise _error("nothing equals NULL; write IS NULL or IS NOT NULL")
        else:
            raise self._unreadable()
        if key in _STRING_KEYS and not isinstance(value, str):
            raise _error(f"{key} is compared with strings, in '…'")
        self._advance()
        return value


def _number(digits: str) -> int | float:
    """Return the number that a filter writes, if stores can compare it."""
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
    """Let the times of a filter mean a moment in every writing, which no store does by itself."""
    if isinstance(tree, Joined):
        return Joined(tree.word, tuple(map(_find_times, tree.parts)))
    if tree.key in _STRING_KEYS or tree.test in ("LIKE", "IS NOT NULL"):
        return tree
    if tree.test in ("=", "!=", "IN"):
        return _equal_times(tree)
    tests = (">=", "<=") if tree.test == "BETWEEN" else (tree.test,)
    conditions = [
        Condition(tree.key, *pair) for pair in zip(tests, zip(tree.literals), strict=True)
    ]
    parts = [_ordered_time(condition) for condition in conditions]
    if parts == conditions:
        return tree
    found = Joined("AND", tuple(parts)) if len(parts) > 1 else parts[0]
    return _opposite(found) if tree.negated else found


def _equal_times(condition: Condition) -> Condition:
    writings: dict[Literal, None] = {}  # in an order, each once
    for literal in condition.literals:
        time = Time.read(literal) if isinstance(literal, str) else None
        writings |= dict.fromkeys([literal, *(time.writings() if time else [])])
    if writings.keys() == set(condition.literals):
        return condition
    negated = condition.negated != (condition.test == "!=")
    return Condition(condition.key, "IN", tuple(writings), negated)


def _ordered_time(condition: Condition) -> Filter:
    """Return what orders values written with a blank or a T before or behind a time.

    Of those of its day, all with a blank come before all with a T.
    """
    key, test, (literal,), _ = condition
    if not isinstance(literal, str):
        return condition
    if problem := order_problem(literal):
        raise _error(f"{key}: {literal[:_SHOWN]!r} {problem}")
    time = Time.read(literal)
    if time is None:
        return condition
    since, clock = (">=", time.first()) if test in (">=", "<") else (">", time.last())
    with_blank = Condition(key, since, (f"{time.date} {clock}",))
    before_t = Condition(key, "<", (f"{time.date}T",))
    with_t = Condition(key, since, (f"{time.date}T{clock}",))
    found = Joined("OR", (Joined("AND", (with_blank, before_t)), with_t))
    return found if test in (">=", ">") else _opposite(found)


def _opposite(tree: Filter) -> Filter:
    """Negate a filter; negations stand at conditions alone."""
    if isinstance(tree, Condition):
        return tree._replace(negated=not tree.negated)
    return Joined(_JOINTS[tree.word], tuple(map(_opposite, tree.parts)))


def _count(tree: Filter) -> int:
    return 1 if isinstance(tree, Condition) else sum(_count(part) for part in tree.parts)


def _error(reason: str) -> InputError:
    return InputError(f"{argument('where')}: {reason}")


def passes(tree: Filter, item_id: str, metadata: Mapping[str, Any]) -> bool:
    """Return whether an item passes a filter; for stores that have no query language of their own.

    >>> passes(parse_filter("label = 'dog' AND year > 2000", ["year"]), "a", {"labels": ["dog"], "year": 2001})
    True
    """
    if not isinstance(tree, Condition):
        results = (passes(part, item_id, metadata) for part in tree.parts)
        return all(results) if tree.word == "AND" else any(results)
    if tree.key == "label":
        return (
            any(_satisfies(label, tree) for label in metadata.get("labels") or []) != tree.negated
        )
    value = item_id if tree.key == "id" else metadata.get(tree.key)
    if tree.test == "IS NOT NULL":
        return (value is not None) != tree.negated
    if not isinstance(value, Literal) or kind_of(value) != kind_of(tree.literals[0]):
        return False
    return _satisfies(value, tree) != tree.negated


# What LIKE means as a pattern of names of files: a part that fits is taken where it first does, in
# time that is linear.
_GLOB = str.maketrans({"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"})


def to_glob(pattern: Literal) -> str:
    """Translate a pattern of LIKE for `fnmatch.fnmatchcase` and SQLite's GLOB, to which upper and
    lower case differ.

    >>> to_glob("%sea_ [*]")
    '*sea? [[][*]]'
    """
    return str(pattern).translate(_GLOB)


def quoted(text: str) -> str:
    """Return a string as a literal of a filter.

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
    """A Boolean SQL expression with ``?`` or, in PostgreSQL, ``%s`` in the place of every literal.

    >>> SqlCondition("id = ?", ("a",)).sql
    'id = ?'
    """

    sql: str
    parameters: tuple[Any, ...]


def to_sql(tree: Filter | None, translate: Callable[[Condition], SqlCondition]) -> SqlCondition:
    """Translate the conditions of a filter, and join them; an item passes if the result is true,
    not if it is null.

    All pass where there is no filter.

    >>> to_sql(parse_filter("id = 'a' OR id = 'b'", []), lambda condition: SqlCondition("id = ?", ("c",))).sql
    '(id = ? OR id = ?)'
    """
    if tree is None:
        return SqlCondition("true", ())
    if isinstance(tree, Condition):
        return translate(tree)
    parts = [to_sql(part, translate) for part in tree.parts]
    sql = f" {tree.word} ".join(part.sql for part in parts)
    return SqlCondition(f"({sql})", tuple(value for part in parts for value in part.parameters))


def compared(value: str, condition: Condition, like: str, mark: str) -> str:
    """Write a condition's test of a value, with ``mark`` for each literal; ``like`` is what LIKE is
    here.

    >>> compared("year", Condition("year", "BETWEEN", (1990, 2000)), "LIKE ?", "?")
    '(year BETWEEN ? AND ?)'
    """
    marks = ", ".join([mark] * len(condition.literals))
    spelling = {"IN": f"IN ({marks})", "BETWEEN": f"BETWEEN {mark} AND {mark}", "LIKE": like}
    return f"({value} {spelling.get(condition.test, f'{condition.test} {marks}'.rstrip())})"
