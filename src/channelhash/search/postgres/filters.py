"""Filters of searches (see `search.filters`) as PostgreSQL writes them."""

from typing import Any, NamedTuple

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
    kind_of,
    literals_of,
)
from channelhash.search.postgres.rows import as_decimal


class SqlCondition(NamedTuple):
    """A Boolean SQL expression with ``%s`` in the place of every literal.

    >>> from channelhash.search.filters import parse_filter
    >>> to_postgres(parse_filter("id = 'a'", []))
    SqlCondition(sql='(id = %s)', parameters=('a',))
    """

    sql: str
    parameters: tuple[Any, ...]


# Kind of literal -> what `jsonb_typeof` calls values of that kind, and what their text is cast to. Strings compare by
# code points, as everywhere here.
_KINDS = {
    "strings": ("string", 'text COLLATE "C"'),
    "numbers": ("number", "numeric"),
    "Booleans": ("boolean", "boolean"),
}


def to_postgres(tree: Filter | None) -> SqlCondition:
    """Translate a filter for a row of ``items(id, metadata jsonb)``.

    >>> from channelhash.search.filters import parse_filter
    >>> to_postgres(parse_filter("label = 'dog'", []))
    SqlCondition(sql="(metadata -> 'labels' ?| %s)", parameters=(['dog'],))
    """
    if tree is None:
        return SqlCondition("true", ())
    if isinstance(tree, Condition):
        return _condition(tree)
    parts = [to_postgres(part) for part in tree.parts]
    word = " AND " if isinstance(tree, And) else " OR "
    return SqlCondition(
        f"({word.join(part.sql for part in parts)})", tuple(value for part in parts for value in part.parameters)
    )


def _condition(condition: Condition) -> SqlCondition:
    """Return what is true of the items that pass; a value of another kind, or none, makes it null."""
    key, test = condition.key, condition.test
    if key == "label":
        inner = _any_label(test)
        return SqlCondition(f"(({inner.sql}) IS NOT TRUE)", inner.parameters) if condition.negated else inner
    if key == "id":
        inner = _test("id", test)
    elif isinstance(test, Known):
        inner = SqlCondition("(metadata ? %s)", (key,))
    else:
        kind, cast = _KINDS[kind_of(literals_of(test)[0])]
        # CASE keeps its order, AND does not: a cast of another kind's value would fail.
        inner = _test(f"(CASE jsonb_typeof(metadata -> %s) WHEN '{kind}' THEN (metadata ->> %s)::{cast} END)", test)
        inner = SqlCondition(inner.sql, (key, key, *inner.parameters))
    return SqlCondition(f"(NOT {inner.sql})", inner.parameters) if condition.negated else inner


def _any_label(test: Test) -> SqlCondition:
    """Return whether any label satisfies a test; null or false for an item that has none."""
    match test:
        case Compare(operator="=", value=value):
            return SqlCondition("(metadata -> 'labels' ?| %s)", ([value],))
        case Among(values=values):
            return SqlCondition("(metadata -> 'labels' ?| %s)", (list(values),))
        case Known():
            return SqlCondition("(jsonb_array_length(metadata -> 'labels') > 0)", ())
    inner = _test('(label COLLATE "C")', test)
    labels = "jsonb_array_elements_text(metadata -> 'labels') AS label"
    return SqlCondition(f"EXISTS (SELECT 1 FROM {labels} WHERE {inner.sql})", inner.parameters)


def _test(value: str, test: Test) -> SqlCondition:
    literals = tuple(_sent(literal) for literal in literals_of(test))
    if value != "id" and isinstance(test, Compare | Between) and isinstance(literals[0], str):
        return _compare_text(value, test, literals)
    match test:
        case Compare(operator=sign):
            return SqlCondition(f"({value} {sign} %s)", literals)
        case Among():
            return SqlCondition(f"({value} IN ({', '.join(['%s'] * len(literals))}))", literals)
        case Between():
            return SqlCondition(f"({value} BETWEEN %s AND %s)", literals)
        case Like():
            return SqlCondition(f"({value} LIKE %s ESCAPE '')", literals)
        case Known():
            return SqlCondition(f"({value} IS NOT NULL)", ())


def _compare_text(value: str, test: Compare | Between, literals: tuple[Any, ...]) -> SqlCondition:
    """Compare by code points; the bytes of the database's own encoding may be in another order."""
    sent = "convert_to(%s, 'UTF8')"
    compared = f"{test.operator} {sent}" if isinstance(test, Compare) else f"BETWEEN {sent} AND {sent}"
    return SqlCondition(f"(convert_to({value}, 'UTF8') {compared})", literals)


def _sent(literal: Literal) -> Any:
    """Return a literal as psycopg is to send it: numbers as they are written, not as the nearest of 64 bits."""
    return literal if isinstance(literal, bool | str) else as_decimal(literal)
