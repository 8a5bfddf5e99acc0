"""Filters of searches (see `search.filters`) as SQLite writes them."""

from typing import Any, NamedTuple

from channelhash.search.filters import Among, And, Between, Compare, Condition, Filter, Known, Like, literals_of


class SqlCondition(NamedTuple):
    """A Boolean SQL expression with ``?`` in the place of every literal.

    >>> from channelhash.search.filters import parse_filter
    >>> to_sqlite(parse_filter("id = 'a'", []))
    SqlCondition(sql='(id = ?)', parameters=('a',))
    """

    sql: str
    parameters: tuple[Any, ...]


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
    sql = (" AND " if isinstance(tree, And) else " OR ").join(part.sql for part in parts)
    return SqlCondition(f"({sql})", tuple(value for part in parts for value in part.parameters))


# Type of a literal -> what `json_type` calls values of its kind.
_NUMBERS = "'integer', 'real'"
_JSON_TYPES = {str: "'text'", bool: "'true', 'false'", int: _NUMBERS, float: _NUMBERS}
# SQLite's LIKE takes no notice of upper and lower case, its GLOB does.
_GLOB = str.maketrans({"%": "*", "_": "?", "*": "[*]", "?": "[?]", "[": "[[]"})


def _condition_sql(condition: Condition) -> SqlCondition:
    key, test = condition.key, condition.test
    no = "NOT " if condition.negated else ""
    value = key if key in ("label", "id") else "json_extract(metadata, ?)"
    parameters = literals_of(test)
    match test:
        case Compare(operator=sign):
            sql = f"{value} {sign} ?"
        case Among(values=values):
            sql = f"{value} IN ({', '.join('?' * len(values))})"
        case Between():
            sql = f"{value} BETWEEN ? AND ?"
        case Like(pattern=pattern):
            sql, parameters = f"{value} GLOB ?", (pattern.translate(_GLOB),)
        case Known():
            sql = f"{value} IS NOT NULL"
    if key == "label":
        return SqlCondition(f"number {no}IN (SELECT item FROM labels WHERE {sql})", parameters)
    if key == "id":
        return SqlCondition(f"{no}({sql})", parameters)
    path = f'$."{key}"'
    if isinstance(test, Known):
        return SqlCondition(f"json_type(metadata, ?) IS {'' if condition.negated else 'NOT '}NULL", (path,))
    types = _JSON_TYPES[type(literals_of(test)[0])]
    return SqlCondition(f"(json_type(metadata, ?) IN ({types}) AND {no}({sql}))", (path, path, *parameters))
