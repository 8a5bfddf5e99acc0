"""Filters of searches (see `filters`) as Milvus writes them."""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass

from channelhash.errors import InputError
from channelhash.search.filters import Among, And, Between, Compare, Condition, Filter, Known, Like, Literal, Test

#: Every row has a text in ``keys``, so these hold for all rows, and for none.
ALL, NONE = 'keys != ""', 'keys == ""'

_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class Dialect:
    """What one Milvus understands.

    Attributes:
        key_sets: the different values of the field ``keys`` in the collection: metadata keys as a JSON list.
        negate: an expression that holds where the given one does not.
        lite: whether it is milvus-lite, whose strings have no escapes but ``\\"`` and ``\\\\``, and whose LIKE goes
            wrong on ``_`` and on backslashes.
    """

    key_sets: Collection[str]
    negate: Callable[[str], str]
    lite: bool


def known_keys(key_sets: Collection[str]) -> set[str]:
    """The metadata keys that any item has."""
    return {key for text in key_sets for key in json.loads(text)}


def to_milvus(tree: Filter, dialect: Dialect) -> str:
    """The filter as a Milvus expression over the fields ``id``, ``labels``, ``keys`` and ``metadata``.

    Raises:
        InputError: the filter asks what Milvus, or milvus-lite, cannot answer.
    """
    if isinstance(tree, Condition):
        return f"({_condition(tree, dialect)})"
    word = " and " if isinstance(tree, And) else " or "
    return f"({word.join(to_milvus(part, dialect) for part in tree.parts)})"


def quote(text: str, lite: bool) -> str:
    """A string of Milvus's expressions, which knows Go's escapes; JSON's are among them.

    Raises:
        InputError: milvus-lite cannot read it.
    """
    if lite and any(character < " " for character in text):
        raise InputError(f"{text!r}: milvus-lite cannot compare with control characters; a Milvus server can")
    return json.dumps(text, ensure_ascii=False)


def _condition(condition: Condition, dialect: Dialect) -> str:
    key, test, negated = condition.key, condition.test, condition.negated
    if key == "label":
        expression = _label(test, dialect.lite)
        return dialect.negate(expression) if negated else expression
    if key == "id":
        if isinstance(test, Known):
            return NONE if negated else ALL
        return _value("id", test, negated, dialect)
    if isinstance(test, Known):
        return _known(key, negated, dialect)
    return _value(f'metadata["{key}"]', test, negated, dialect)


def _known(key: str, negated: bool, dialect: Dialect) -> str:
    having = [text for text in sorted(dialect.key_sets) if key in json.loads(text)]
    if not having:
        return ALL if negated else NONE
    return f"keys {'not in' if negated else 'in'} [{', '.join(quote(text, dialect.lite) for text in having)}]"


def _label(test: Test, lite: bool) -> str:
    """Any label satisfies ``test``."""
    match test:
        case Compare(operator="=", value=str(value)):
            return f"array_contains(labels, {quote(value, lite)})"
        case Among(values=values):
            texts = [quote(str(value), lite) for value in values]
            return f"array_contains_any(labels, [{', '.join(texts)}])"
        case Known():
            return 'labels[0] >= ""'
    raise InputError("where: Milvus compares label with = and IN only; for items without a label write NOT label = '…'")


def _value(path: str, test: Test, negated: bool, dialect: Dialect) -> str:
    """A value that is there and of the literal's kind satisfies ``test``, or does not.

    Milvus lets an absent value pass ``!=``, ``not in`` and ``not``, but never ``<``, ``>`` or ``==``; so what is
    negated is said with those, which at the same time asks for the kind.
    """
    match test:
        case Compare(operator=operator, value=value):
            return _compare(path, _OPPOSITE[operator] if negated else operator, value, dialect.lite)
        case Among(values=values) if isinstance(values[0], str):
            texts = ", ".join(_literal(value, dialect.lite) for value in values)
            return f'{path} >= "" and {path} not in [{texts}]' if negated else f"{path} in [{texts}]"
        case Among(values=values):
            # An `in` of milvus-lite fails on whole numbers beside others.
            operator, word = ("!=", " and ") if negated else ("=", " or ")
            return word.join(f"({_compare(path, operator, value, dialect.lite)})" for value in values)
        case Between(low=low, high=high):
            least, most = _literal(low, dialect.lite), _literal(high, dialect.lite)
            if negated:
                return f"{path} < {least} or {path} > {most}"
            return f"{path} >= {least} and {path} <= {most}"
        case Like(pattern=pattern):
            return _like(path, pattern, negated, dialect)
    raise AssertionError(test)


def _compare(path: str, operator: str, value: Literal, lite: bool) -> str:
    if isinstance(value, bool):
        return f"{path} == {'true' if value == (operator == '=') else 'false'}"
    literal = _literal(value, lite)
    if operator == "!=":
        return f"{path} < {literal} or {path} > {literal}"
    return f"{path} {'==' if operator == '=' else operator} {literal}"


def _literal(value: Literal, lite: bool) -> str:
    return quote(value, lite) if isinstance(value, str) else repr(value)


def _like(path: str, pattern: str, negated: bool, dialect: Dialect) -> str:
    if not set(pattern) & set("%_"):
        return _compare(path, "!=" if negated else "=", pattern, dialect.lite)
    is_string = f'{path} >= ""'
    if set(pattern) == {"%"}:
        return NONE if negated else is_string
    if dialect.lite and set(pattern) & set("_\\"):
        raise InputError(
            f"where: LIKE {pattern!r}: milvus-lite cannot do '_' and '\\' in patterns; a Milvus server can"
        )
    # Milvus takes a backslash for an escape, our language does not.
    expression = f"{path} like {quote(pattern.replace(chr(92), chr(92) * 2), dialect.lite)}"
    return f"{is_string} and {dialect.negate(expression)}" if negated else expression
