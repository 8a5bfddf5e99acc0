"""Filters of searches (see `search.filters`) as SQLite writes them."""

from typing import NamedTuple

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


class SqlCondition(NamedTuple):
    """A Boolean SQL expression with ``?`` in the place of every literal.

    >>> from channelhash.search.filters import parse_filter
    >>> to_sqlite(parse_filter("id = 'a'", []))
    SqlCondition(sql='(id = ?)', parameters=('a',))
    """

    sql: str
    parameters: tuple[Literal, ...]


def to_sqlite(tree: Filter | None) -> SqlCondition:
    """Translate a filter for a row of ``items(number, id, metadata as JSON)`` and the table ``labels(label, item)``.

    >>> from channelhash.search.filters import parse_filter
    >>> to_sqlite(parse_filter("label = 'dog'", [])).parameters
    ('dog',)
    """
    if tree is None:
        return SqlCondition("1", ())
    if isinstance(tree, Condition):
        return _condition_sql(tree)
    parts = [to_sqlite(part) for part in tree.parts]
    word = " AND " if isinstance(tree, And) else " OR "
    return SqlCondition(
        f"({word.join(part.sql for part in parts)})", tuple(value for part in parts for value in part.parameters)
    )


# Kind of literal -> what `json_type` calls values of that kind.
_JSON_TYPES = {"strings": "'text'", "numbers": "'integer', 'real'", "Booleans": "'true', 'false'"}


def _condition_sql(condition: Condition) -> SqlCondition:
    key, test = condition.key, condition.test
    no = "NOT " if condition.negated else ""
    if key == "label":
        inner = _test_sql("label", test)
        return SqlCondition(f"number {no}IN (SELECT item FROM labels WHERE {inner.sql})", inner.parameters)
    if key == "id":
        inner = _test_sql("id", test)
        return SqlCondition(f"{no}({inner.sql})", inner.parameters)
    path = f'$."{key}"'
    if isinstance(test, Known):
        return SqlCondition(f"json_type(metadata, ?) IS {'' if condition.negated else 'NOT '}NULL", (path,))
    inner = _test_sql("json_extract(metadata, ?)", test)
    types = _JSON_TYPES[kind_of(literals_of(test)[0])]
    sql = f"(json_type(metadata, ?) IN ({types}) AND {no}({inner.sql}))"
    return SqlCondition(sql, (path, path, *inner.parameters))


def _test_sql(value: str, test: Test) -> SqlCondition:
    match test:
        case Compare(operator=sign):
            sql = f"{value} {sign} ?"
        case Among(values=values):
            sql = f"{value} IN ({', '.join('?' * len(values))})"
        case Between():
            sql = f"{value} BETWEEN ? AND ?"
        case Like(pattern=pattern):
            return SqlCondition(f"{value} GLOB ?", (_glob(pattern),))
        case Known():
            sql = f"{value} IS NOT NULL"
    return SqlCondition(sql, literals_of(test))


# SQLite's LIKE takes no notice of upper and lower case, its GLOB does.
_GLOB = str.maketrans({"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"})


def _glob(pattern: str) -> str:
    """Translate a pattern of LIKE into one of GLOB."""
    return pattern.translate(_GLOB)
