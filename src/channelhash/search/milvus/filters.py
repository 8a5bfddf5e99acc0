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
    """How one Milvus is asked; `server_dialect`, or milvus-lite's (`lite.dialect`).

    Attributes:
        key_sets: the different values of the field ``keys`` in the collection: metadata keys as a JSON list.
        quote: a string as an expression writes it.
        stored_id: an id as it is stored.
        negate: an expression that holds where the given one does not.
        like: key and pattern -> an expression that holds for strings which fit, and may fail for other values.

    >>> server_dialect(set()).negate("a == 1")
    'not (a == 1)'
    """

    key_sets: Collection[str]
    quote: Callable[[str], str]
    stored_id: Callable[[str], str]
    negate: Callable[[str], str]
    like: Callable[[str, str], str]


def server_dialect(key_sets: Collection[str]) -> Dialect:
    """Return what a Milvus server understands: the whole of https://milvus.io/docs/boolean.md.

    >>> server_dialect(set()).like("text", "%sea%")
    'metadata["text"] like "%sea%"'
    """

    def like(key: str, pattern: str) -> str:
        # Milvus takes a backslash for an escape, our language does not.
        return f"{_path(key)} like {quote(pattern.replace(chr(92), chr(92) * 2))}"

    return Dialect(key_sets, quote, str, "not ({})".format, like)


def quote(text: str) -> str:
    """Quote a string for Milvus's expressions, which know Go's escapes; JSON's are among them.

    >>> print(quote("sea"))
    "sea"
    """
    return json.dumps(text, ensure_ascii=False)


def known_keys(key_sets: Collection[str]) -> set[str]:
    """Return the metadata keys that any item has.

    >>> sorted(known_keys(['["year"]', '["text", "year"]']))
    ['text', 'year']
    """
    return {key for text in key_sets for key in json.loads(text)}


def to_milvus(tree: Filter, dialect: Dialect) -> str:
    """Translate a filter into a Milvus expression over the fields ``id``, ``labels``, ``keys`` and ``metadata``.

    Raises:
        InputError: the filter asks what Milvus, or milvus-lite, cannot answer.

    >>> from channelhash.search.filters import parse_filter
    >>> to_milvus(parse_filter("year > 2000", ["year"]), server_dialect(set()))
    '(metadata["year"] > 2000)'
    """
    if isinstance(tree, Condition):
        return f"({_condition(tree, dialect)})"
    word = " and " if isinstance(tree, And) else " or "
    return f"({word.join(to_milvus(part, dialect) for part in tree.parts)})"


def _condition(condition: Condition, dialect: Dialect) -> str:
    key, test, negated = condition.key, condition.test, condition.negated
    if key == "label":
        expression = _label(test, dialect)
        return dialect.negate(expression) if negated else expression
    if key == "id":
        if isinstance(test, Known):
            return NONE if negated else ALL
        return _value(key, test, negated, dialect)
    if isinstance(test, Known):
        return _known(key, negated, dialect)
    return _value(key, test, negated, dialect)


def _path(key: str) -> str:
    return "id" if key == "id" else f'metadata["{key}"]'


def _known(key: str, negated: bool, dialect: Dialect) -> str:
    having = [text for text in sorted(dialect.key_sets) if key in json.loads(text)]
    if not having:
        return ALL if negated else NONE
    return f"keys {'not in' if negated else 'in'} [{', '.join(map(dialect.quote, having))}]"


def _label(test: Test, dialect: Dialect) -> str:
    """Require that any label satisfies ``test``."""
    match test:
        case Compare(operator="=", value=str(value)):
            return f"array_contains(labels, {dialect.quote(value)})"
        case Among(values=values):
            return f"array_contains_any(labels, [{', '.join(dialect.quote(str(value)) for value in values)}])"
        case Known():
            return 'labels[0] >= ""'
    raise InputError("where: Milvus compares label with = and IN only; for items without a label write NOT label = '…'")


def _value(key: str, test: Test, negated: bool, dialect: Dialect) -> str:
    """Require that a value that is there and of the literal's kind satisfies ``test``, or does not.

    Milvus lets an absent value pass ``!=``, ``not in`` and ``not``, but never ``<``, ``>`` or ``==``; so what is
    negated is said with those, which at the same time asks for the kind.
    """
    path = _path(key)

    def literal(value: Literal) -> str:
        if not isinstance(value, str):
            return repr(value)
        return dialect.quote(dialect.stored_id(value) if key == "id" else value)

    def compare(operator: str, value: Literal) -> str:
        if isinstance(value, bool):
            return f"{path} == {'true' if value == (operator == '=') else 'false'}"
        if operator == "!=":
            return f"({path} < {literal(value)} or {path} > {literal(value)})"
        return f"{path} {'==' if operator == '=' else operator} {literal(value)}"

    match test:
        case Compare(operator=operator, value=value):
            return compare(_OPPOSITE[operator] if negated else operator, value)
        case Among(values=values) if isinstance(values[0], str):
            texts = ", ".join(map(literal, values))
            return f'{path} >= "" and {path} not in [{texts}]' if negated else f"{path} in [{texts}]"
        case Among(values=values):
            # An `in` of milvus-lite fails on whole numbers beside others.
            return (" and " if negated else " or ").join(compare("!=" if negated else "=", value) for value in values)
        case Between(low=low, high=high):
            if negated:
                return f"{path} < {literal(low)} or {path} > {literal(high)}"
            return f"{path} >= {literal(low)} and {path} <= {literal(high)}"
        case Like(pattern=pattern):
            is_string = f'{path} >= ""'
            if set(pattern) == {"%"}:
                return NONE if negated else is_string
            if not set(pattern) & set("%_"):
                return compare("!=" if negated else "=", pattern)
            fits = dialect.like(key, pattern)
            return f"{is_string} and {dialect.negate(fits)}" if negated else fits
    raise AssertionError(test)
