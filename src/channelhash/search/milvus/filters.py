"""Filters of searches (see `search.filters`) as Milvus writes them: https://milvus.io/docs/boolean.md."""

import json
from collections.abc import Callable, Collection, Iterable

from channelhash.search.filters import (
    Among,
    And,
    Between,
    Compare,
    Condition,
    Filter,
    Known,
    Like,
    Literal,
    Test,
    literals_of,
)

#: A condition -> ids of the items that pass it.
Matching = Callable[[Condition], Iterable[str]]

#: Every row has a text in ``keys``, so these hold for all rows, and for none.
ALL, NONE = 'keys != ""', 'keys == ""'

_EXACT = 2**53
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


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


def to_milvus(tree: Filter, key_sets: Collection[str], matching: Matching) -> str:
    """Translate a filter into a Milvus expression over the fields ``id``, ``labels``, ``keys`` and ``metadata``.

    Args:
        tree: the filter.
        key_sets: the different values of the field ``keys`` in the collection: metadata keys as a JSON list.
        matching: what compares items here, where not every Milvus can.

    >>> from channelhash.search.filters import parse_filter
    >>> to_milvus(parse_filter("year > 2000", ["year"]), set(), lambda condition: [])
    '(metadata["year"] > 2000)'
    """
    if isinstance(tree, Condition):
        return f"({_condition(tree, key_sets, matching)})"
    word = " and " if isinstance(tree, And) else " or "
    return f"({word.join(to_milvus(part, key_sets, matching) for part in tree.parts)})"


def listed(texts: Iterable[str]) -> str:
    """Return strings as a list in an expression.

    >>> print(listed(["a", "b"]))
    ["a", "b"]
    """
    return f"[{', '.join(map(quote, texts))}]"


def _condition(condition: Condition, key_sets: Collection[str], matching: Matching) -> str:
    key, test, negated = condition.key, condition.test, condition.negated
    if key == "label":
        return f"not ({_label(test, matching)})" if negated else _label(test, matching)
    if key == "id" and isinstance(test, Known):
        return NONE if negated else ALL
    if isinstance(test, Known):
        having = [text for text in sorted(key_sets) if key in json.loads(text)]
        return f"keys {'not in' if negated else 'in'} {listed(having)}" if having else (ALL if negated else NONE)
    if _is_for_us(test):
        return _among(matching(condition))
    return _like(key, test.pattern, negated) if isinstance(test, Like) else _value(key, test, negated)


def _is_for_us(test: Test) -> bool:
    """Return whether items are compared here.

    Before 2.4 Milvus finds strings by their beginning alone, and what it makes of ``_`` and of backslashes differs. It
    compares whole numbers with others as floats, which tell them apart up to 2⁵³.
    """
    if isinstance(test, Like):
        return bool(set(test.pattern.removesuffix("%")) & set("%_\\"))
    return any(not isinstance(value, str) and abs(value) >= _EXACT for value in literals_of(test))


def _path(key: str) -> str:
    return "id" if key == "id" else f'metadata["{key}"]'


def _label(test: Test, matching: Matching) -> str:
    """Require that any label satisfies ``test``."""
    match test:
        case Compare(operator="=", value=str(value)):
            return f"array_contains(labels, {quote(value)})"
        case Among(values=values):
            return " or ".join(f"array_contains(labels, {quote(str(value))})" for value in values)
        case Known():
            return 'labels[0] >= ""'
    return _among(matching(Condition("label", test)))


def _among(ids: Iterable[str]) -> str:
    found = listed(ids)
    return f"id in {found}" if found != "[]" else NONE


def _like(key: str, pattern: str, negated: bool) -> str:
    """Require a string that begins as a pattern does, or one that does not."""
    is_string, beginning = f'{_path(key)} >= ""', pattern.removesuffix("%")
    if not beginning:
        fits = is_string if pattern else f'{_path(key)} == ""'
    else:
        fits = f"{_path(key)} like {quote(pattern)}" if beginning != pattern else f"{_path(key)} == {quote(pattern)}"
    return f"{is_string} and not ({fits})" if negated else fits


def _value(key: str, test: Test, negated: bool) -> str:
    """Require that a value that is there and of the literal's kind satisfies ``test``, or does not.

    Milvus lets an absent value pass ``!=``, ``not in`` and ``not``, but never ``<``, ``>`` or ``==``; so what is
    negated is said with those, which at the same time asks for the kind.
    """
    path = _path(key)

    def compare(operator: str, value: Literal) -> str:
        if isinstance(value, bool):
            return f"{path} == {'true' if value == (operator == '=') else 'false'}"
        literal = quote(value) if isinstance(value, str) else repr(value)
        if operator == "!=":
            return f"({path} < {literal} or {path} > {literal})"
        return f"{path} {'==' if operator == '=' else operator} {literal}"

    match test:
        case Compare(operator=operator, value=value):
            return compare(_OPPOSITE[operator] if negated else operator, value)
        case Among(values=values):
            return (" and " if negated else " or ").join(compare("!=" if negated else "=", value) for value in values)
        case Between(low=low, high=high) if negated:
            return f"{compare('<', low)} or {compare('>', high)}"
        case Between(low=low, high=high):
            return f"{compare('>=', low)} and {compare('<=', high)}"
    raise AssertionError(test)
