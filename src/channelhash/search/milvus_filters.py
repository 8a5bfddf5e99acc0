"""Filters as Milvus expressions over the fields ``id``, ``labels``, ``keys`` and ``metadata``."""

import json
from collections.abc import Callable, Collection

from channelhash.search.filters import Condition, Filter, Literal

#: Holds for all rows, since the text in ``keys`` is never empty.
ALL = 'keys != ""'
#: Holds for no row, likewise.
_NONE = 'keys == ""'
#: Whole numbers below this are exact as floats, as which Milvus compares them with others.
_EXACT = 2**53


def quote(text: str | list[str]) -> str:
    """Quote a string or a list of strings for Milvus's expressions.

    They understand Go's escapes, which include those of JSON.

    >>> quote(["a", "b"])
    '["a", "b"]'
    """
    return json.dumps(text, ensure_ascii=False)


def to_milvus(
    tree: Filter, key_sets: Collection[str], passing: Callable[[Condition], list[str]]
) -> str:
    """Translate a filter into a Milvus expression over the fields ``id``, ``labels``, ``keys`` and
    ``metadata``.

    Args:
        tree: the filter.
        key_sets: all values of ``keys``.
        passing: returns the ids of the items that pass a condition that Milvus cannot test.

    >>> to_milvus(Condition("year", ">", (2000,)), set(), lambda condition: [])
    '(metadata["year"] > 2000)'
    """
    if isinstance(tree, Condition):
        return f"({_condition(tree, key_sets, passing)})"
    word = f" {tree.word.lower()} "
    return f"({word.join(to_milvus(part, key_sets, passing) for part in tree.parts)})"


def _condition(
    condition: Condition, key_sets: Collection[str], passing: Callable[[Condition], list[str]]
) -> str:
    if not _can_test(condition):
        names = passing(condition)
        return f"id in {quote(names)}" if names else _NONE
    if condition.key == "label":
        return _label_condition(condition)
    if condition.test == "IS NOT NULL":
        return _presence(condition, key_sets)
    return _comparison(condition)


def _can_test(condition: Condition) -> bool:
    """Return whether Milvus tests a condition as every store does.

    Before 2.4 Milvus finds strings only by their beginning, and it treats ``_`` and backslashes in
    patterns differently. It cannot order labels, nor tell large whole numbers apart.
    """
    if condition.test == "LIKE":
        return False
    if condition.key == "label":
        return condition.test in ("=", "IN", "IS NOT NULL")
    return all(isinstance(it, str) or abs(it) < _EXACT for it in condition.literals)


def _label_condition(condition: Condition) -> str:
    tests = [f"array_contains(labels, {quote(str(label))})" for label in condition.literals]
    any_label = " or ".join(tests) or 'labels[0] >= ""'
    return f"not ({any_label})" if condition.negated else any_label


def _presence(condition: Condition, key_sets: Collection[str]) -> str:
    """Require that an item has a key, or lacks it."""
    chosen = []
    for text in sorted(key_sets):
        is_present = condition.key == "id" or condition.key in json.loads(text)
        if is_present != condition.negated:
            chosen.append(text)
    return f"keys in {quote(chosen)}" if chosen else _NONE


def _comparison(condition: Condition) -> str:
    path = "id" if condition.key == "id" else f'metadata["{condition.key}"]'
    literals = condition.literals
    operators = [condition.test]
    if condition.test == "IN":
        operators = ["="] * len(literals)
    elif condition.test == "BETWEEN":
        operators = [">=", "<="]
    if condition.negated:
        operators = [_OPPOSITE[operator] for operator in operators]
    word = " and " if (condition.test == "BETWEEN") != condition.negated else " or "
    return word.join(_compare(path, *pair) for pair in zip(operators, literals, strict=True))


#: Operator -> the one that holds where it does not.
_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _compare(path: str, operator: str, value: Literal) -> str:
    """Require that a value exists, is of the literal's kind and compares in this way.

    Milvus lets an absent value pass ``!=``, ``not in`` and ``not``, but never ``<``, ``>`` or
    ``==``. Negations are therefore written with these, which also require the kind.
    """
    if isinstance(value, bool):
        return f"{path} == {'true' if value == (operator == '=') else 'false'}"
    literal = quote(value) if isinstance(value, str) else repr(value)
    if operator == "!=":
        return f"({path} < {literal} or {path} > {literal})"
    return f"{path} {'==' if operator == '=' else operator} {literal}"
