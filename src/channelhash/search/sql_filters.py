"""Filters (see `search.filters`) as SQLite and PostgreSQL write them, for a row of ``items``."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from channelhash.search import filters


class SqlCondition(NamedTuple):
    """A Boolean SQL expression with ``?`` or, in PostgreSQL, ``%s`` in the place of every literal.

    >>> from channelhash.search.filters import parse_filter
    >>> to_sqlite(parse_filter("id = 'a'", []))
    SqlCondition(sql='(id = ?)', parameters=('a',))
    """

    sql: str
    parameters: tuple[Any, ...]


def to_sqlite(tree: filters.Filter | None) -> SqlCondition:
    """Translate a filter for a row of ``items(number, id, metadata as JSON)`` and the table ``labels(label, item)``.

    >>> from channelhash.search.filters import parse_filter
    >>> to_sqlite(parse_filter("label = 'dog'", [])).parameters
    ('dog',)
    """
    return _translate(tree, _sqlite_condition)


def to_postgres(tree: filters.Filter | None) -> SqlCondition:
    """Translate a filter for a row of ``items(id, metadata jsonb)``.

    >>> from channelhash.search.filters import parse_filter
    >>> to_postgres(parse_filter("label = 'dog'", []))
    SqlCondition(sql="(metadata -> 'labels' ?| %s)", parameters=(['dog'],))
    """
    return _translate(tree, _postgres_condition)


def _translate(tree: filters.Filter | None, translate: Callable[[filters.Condition], SqlCondition]) -> SqlCondition:
    """Translate the conditions of a filter, and join them; an item passes if the result is true, not if it is null."""
    if tree is None:
        return SqlCondition("true", ())
    if isinstance(tree, filters.Condition):
        return translate(tree)
    parts = [_translate(part, translate) for part in tree.parts]
    sql = (" AND " if isinstance(tree, filters.And) else " OR ").join(part.sql for part in parts)
    return SqlCondition(f"({sql})", tuple(value for part in parts for value in part.parameters))


def _compared(value: str, test: filters.Test, like: str, mark: str) -> str:
    """Write a test of a value, with ``mark`` for each literal; ``like`` is what LIKE is here."""
    match test:
        case filters.Compare(operator=sign):
            return f"({value} {sign} {mark})"
        case filters.Among(values=values):
            return f"({value} IN ({', '.join([mark] * len(values))}))"
        case filters.Between():
            return f"({value} BETWEEN {mark} AND {mark})"
        case filters.Like():
            return f"({value} {like})"
        case filters.Known():
            return f"({value} IS NOT NULL)"


# Kind of a literal -> what SQLite's `json_type` calls values of that kind.
_JSON_TYPES = {"strings": "'text'", "Booleans": "'true', 'false'", "numbers": "'integer', 'real'"}
# SQLite's LIKE takes no notice of upper and lower case, its GLOB does.
_GLOB = str.maketrans({"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"})


def _sqlite_condition(condition: filters.Condition) -> SqlCondition:
    key, test = condition.key, condition.test
    no = "NOT " if condition.negated else ""
    sql = _compared(key if key in ("label", "id") else "json_extract(metadata, ?)", test, "GLOB ?", "?")
    parameters = (test.pattern.translate(_GLOB),) if isinstance(test, filters.Like) else filters.literals_of(test)
    if key == "label":
        return SqlCondition(f"number {no}IN (SELECT item FROM labels WHERE {sql})", parameters)
    if key == "id":
        return SqlCondition(f"{no}{sql}", parameters)
    path = f'$."{key}"'
    if isinstance(test, filters.Known):
        return SqlCondition(f"json_type(metadata, ?) IS {'' if condition.negated else 'NOT '}NULL", (path,))
    types = _JSON_TYPES[filters.kind_of(filters.literals_of(test)[0])]
    return SqlCondition(f"(json_type(metadata, ?) IN ({types}) AND {no}{sql})", (path, path, *parameters))


# Kind of a literal -> what `jsonb_typeof` calls values of that kind, and what their text is cast to. Strings compare by
# code points, as everywhere here.
_JSONB_KINDS = {
    "strings": ("string", 'text COLLATE "C"'),
    "numbers": ("number", "numeric"),
    "Booleans": ("boolean", "boolean"),
}


def _postgres_condition(condition: filters.Condition) -> SqlCondition:
    """Return what is true of the items that pass; a value of another kind, or none, makes it null."""
    key, test = condition.key, condition.test
    if key == "label":
        inner = _any_label(test)
        return SqlCondition(f"(({inner.sql}) IS NOT TRUE)", inner.parameters) if condition.negated else inner
    if key == "id":
        inner = _postgres_test("id", test)
    elif isinstance(test, filters.Known):
        inner = SqlCondition("(metadata ? %s)", (key,))
    else:
        kind, cast = _JSONB_KINDS[filters.kind_of(filters.literals_of(test)[0])]
        # CASE keeps its order, AND does not: a cast of another kind's value would fail.
        value = f"(CASE jsonb_typeof(metadata -> %s) WHEN '{kind}' THEN (metadata ->> %s)::{cast} END)"
        sql, parameters = _postgres_test(value, test)
        inner = SqlCondition(sql, (key, key, *parameters))
    return SqlCondition(f"(NOT {inner.sql})", inner.parameters) if condition.negated else inner


def _any_label(test: filters.Test) -> SqlCondition:
    """Return whether any label satisfies a test; null or false for an item that has none."""
    if isinstance(test, filters.Among) or (isinstance(test, filters.Compare) and test.operator == "="):
        return SqlCondition("(metadata -> 'labels' ?| %s)", (list(filters.literals_of(test)),))
    if isinstance(test, filters.Known):
        return SqlCondition("(jsonb_array_length(metadata -> 'labels') > 0)", ())
    inner = _postgres_test('(label COLLATE "C")', test)
    labels = "jsonb_array_elements_text(metadata -> 'labels') AS label"
    return SqlCondition(f"EXISTS (SELECT 1 FROM {labels} WHERE {inner.sql})", inner.parameters)


def _postgres_test(value: str, test: filters.Test) -> SqlCondition:
    literals, mark = filters.literals_of(test), "%s"
    if value != "id" and isinstance(test, filters.Compare | filters.Between) and isinstance(literals[0], str):
        # By code points; the bytes of the database's own encoding may be in another order.
        value, mark = f"convert_to({value}, 'UTF8')", "convert_to(%s, 'UTF8')"
    # Numbers are sent as they are written, not as the nearest of 64 bits.
    sent = tuple(literal if isinstance(literal, bool | str) else as_decimal(literal) for literal in literals)
    return SqlCondition(_compared(value, test, "LIKE %s ESCAPE ''", mark), sent)


# From here on Python writes a float with an exponent and rounds it to 17 digits, which jsonb would return as a whole
# number of other digits.
EXPONENT = 1e16


def as_decimal(value: float) -> Decimal:
    """Return the number that stands for a whole number or a float in jsonb, and in comparisons with it.

    >>> as_decimal(0.1), as_decimal(1e16)
    (Decimal('0.1'), Decimal('10000000000000000'))
    """
    exact = isinstance(value, int) or abs(value) >= EXPONENT
    return Decimal(value) if exact else Decimal(float.__repr__(value))
