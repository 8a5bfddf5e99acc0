"""The filter language against three-valued logic written out over dictionaries."""

import json
import random
from functools import partial

import pytest
from hypothesis import example, given, settings, strategies as st
from tests.search.contract import ITEMS, KEYS, TREES, literal, truth, written

from channelhash.errors import InputError
from channelhash.search import filters
from channelhash.search.filters import Condition, Joined, parse_filter, passes
from channelhash.search.sqlite.database import _to_sqlite
from channelhash.search.sqlite.folder import connect
from refusals import refusal


def passing(where: str, items: list[dict]) -> list[int]:
    """The items that SQLite lets pass, by number."""
    database = connect(None)
    database.execute("CREATE TABLE items (number INTEGER PRIMARY KEY, id TEXT, metadata TEXT)")
    database.execute("CREATE TABLE labels (label TEXT, item INTEGER)")
    for number, item in enumerate(items):
        metadata = {key: value for key, value in item.items() if key not in ("id", "labels")}
        database.execute(
            "INSERT INTO items VALUES (?, ?, ?)", (number, item["id"], json.dumps(metadata))
        )
        database.executemany(
            "INSERT INTO labels VALUES (?, ?)", [(label, number) for label in item["labels"]]
        )
    condition = _to_sqlite(parse_filter(where, KEYS))
    rows = database.execute(
        f"SELECT number FROM items WHERE {condition.sql} ORDER BY number", condition.parameters
    )
    return [number for (number,) in rows]


@settings(max_examples=200)
@given(TREES, st.lists(ITEMS, min_size=1, max_size=6))
def test_python_lets_pass_what_three_valued_logic_does(tree, items):
    expected = [number for number, item in enumerate(items) if truth(tree, item)]
    parsed = parse_filter(written(tree), KEYS)
    assert [
        number for number, item in enumerate(items) if passes(parsed, item["id"], item)
    ] == expected


def test_a_pattern_is_compared_in_time_that_does_not_explode():
    tree = parse_filter(f"text LIKE '{'%a' * 20}b'", KEYS)
    assert not passes(tree, "", {"text": "a" * 10_000})


def test_zeros_in_front_of_a_number_are_no_digits_of_it():
    assert parse_filter("year = -" + "0" * 5000 + "7", KEYS).literals == (-7,)
    assert parse_filter("year = " + "0" * 5000, KEYS).literals == (0,)


def test_a_time_that_is_named_often_is_found_in_every_writing():
    where = f"a IN ({', '.join(['?'] * 40)})".replace("?", "'2019-07-14T10:20:30'")
    tree = parse_filter(where, ["a"])
    assert passes(tree, "", {"a": "2019-07-14 10:20:30.000"})
    assert parse_filter("a IN (1, 1.0, 1)", ["a"]).literals == (1, 1.0, 1)


read = partial(parse_filter, known_keys=["year", "a"])


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        ("year >= 2000", Condition("year", ">=", (2000,))),
        ("a IN (1, -2.5)", Condition("a", "IN", (1, -2.5))),
        ("a not in ('x')", Condition("a", "IN", ("x",), negated=True)),
        ("a BETWEEN 1 AND 2", Condition("a", "BETWEEN", (1, 2))),
        ("NOT a NOT LIKE 'x%'", Condition("a", "LIKE", ("x%",))),
        ("NOT (a IS NULL)", Condition("a", "IS NOT NULL")),
        ("((a IS NULL))", Condition("a", "IS NOT NULL", negated=True)),
        ("text = 'it''s'", Condition("text", "=", ("it's",))),
        ('"a" = TRUE', Condition("a", "=", (True,))),
        ("a <> 3", Condition("a", "!=", (3,))),
    ],
)
def test_a_condition_is_read(where, condition):
    assert read(where) == condition


@pytest.mark.parametrize(
    ("where", "word", "parts"),
    [
        ("NOT (year >= 2000 AND NOT a = 1)", "OR", ["NOT year >= 2000", "a = 1"]),
        ("a IN (1, -2.5) or a not in ('x')", "OR", ["a IN (1, -2.5)", "NOT a IN ('x')"]),
        ("a > 1 AND a BETWEEN 1 AND 2 AND a = 3", "AND", ["a > 1", "a BETWEEN 1 AND 2", "a = 3"]),
    ],
)
def test_negations_stand_at_conditions_alone(where, word, parts):
    assert read(where) == Joined(word, tuple(map(read, parts)))


UNREADABLE = (
    "year",
    "year = ",
    "year = 1 AND label = 'dog' dog",
    "(year = 1",
    "year = 1)",
    "text = 'x",
    "year = 1; DROP TABLE items",
    "year = 1 UNION SELECT 1",
    "year = 1 ORDER BY 1",
    "year = 1 -- and so on",
    "year /* of */ = 1",
    "year = (SELECT 1)",
    "year IN (SELECT 1)",
    "EXISTS (SELECT 1)",
    "year IN ()",
    "length(text) = 1",
    "1 = year",
    "1 = 1",
    "year = score",
    "items.year = 1",
    "year + 1 = 2",
    "year = 1 + 1",
    "year = 1x",
    "year = ?",
    "text || 'x' = 'y'",
    "text GLOB '*'",
    "text LIKE 'a' ESCAPE 'b'",
    "text NOT = 'a'",
)
REFUSED = {
    "": "is empty",
    "year = 1 AND label = 'dog' dog": "at character 30 (after \"ND label = 'dog' dog\")",
    "length(text) = 1": "unknown key 'length'",
    "text = Canon": "Canon stands for a string, and is none; write 'Canon'",
    "text LIKE 3": "text is compared with strings",
    "year LIKE 3": "LIKE takes a string",
    "text = NULL": "write IS NULL",
    "label = 3": "label is compared with strings",
    "labels = 'dog'": "one by one: label = 'dog'",
    "year IN (1, 'a')": "mixes numbers and strings",
    "sharp < TRUE": "no order",
    "sharp BETWEEN FALSE AND TRUE": "no order",
    "year = 1e999": "too large",
    f"year = {2**63}": "too large",
    "year = " + "9" * 4301: "the number 9999999999999999999999999999999999999999… is too large",
    "year > -" + "1" * 9000: "too large",
    "year IN (1, " + "2" * 6000 + ")": "too large",
    "year < 1" + "0" * 5000 + ".5": "too large",
    "year >= '2019-07-14T10:20Z'": "year: '2019-07-14T10:20Z' has a time zone",
    "year < '20190714T102030'": "cannot be ordered; write it as 2019-07-14 10:20:30",
    "year < '2019-W28-7T10:20'": "cannot be ordered",
    "yeer = 1": "unknown key 'yeer'; did you mean 'year'?",
    "text = 'a\0'": "a character that is none",
    "text = '\ud800'": "a character that is none",
    "(" * 60 + "year = 1" + ")" * 60: "nested deeper than 50",
    "NOT " * 2000 + "year = 1": "nested deeper than 50",
    " AND ".join(["year = 1"] * 301): "301 conditions, at most 300",
    "year = 1" + " " * 10_000: "10,008 characters, at most 10,000",
}


@pytest.mark.parametrize(
    ("where", "reason"), [*((where, "") for where in UNREADABLE), *REFUSED.items()]
)
def test_everything_else_is_refused_in_one_line(where, reason):
    message = refusal(parse_filter, where, KEYS)
    assert message.startswith("where: ")
    assert reason in message
    assert len(message) < 200


PIECES = r"""
year text label id "key" 'a' 'it''s' 1 -2.5 TRUE NULL = <> < IN ( ) , AND OR NOT LIKE BETWEEN IS ; -- /* */ \ ? SELECT
FROM items DROP TABLE ' " ` [ ] { } : @ || * count( CASE WHEN THEN END CAST AS x'00' 0x1
"""


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES.split()), max_size=15).map(" ".join) | st.text(max_size=40))
@example("'; DELETE FROM items; --")
@example("year = 1 OR 1 = 1")
@example("text = '''); DROP TABLE items; --'")
def test_whatever_is_written_is_read_as_a_filter_or_refused(where):
    refused = ""
    try:
        found = passing(where, [{"id": "a", "labels": ["a"], "year": 1, "text": "a"}])
    except InputError as error:
        found, refused = [], f"{error}"
    assert found in ([], [0])
    assert refused == "" or (refused.startswith("where: ") and "\n" not in refused)


def test_the_longest_filter_is_within_the_limits_of_sqlite():
    names = ", ".join(literal(f"i{number}") for number in range(1000))
    assert len(names) < filters._MAX_LENGTH
    items = [{"id": "i7", "labels": []}, {"id": "j", "labels": []}]
    assert passing(f"id IN ({names})", items) == [0]
    draw = random.Random(0)
    parts = (
        f"year > {draw.randrange(9)} {draw.choice(['AND', 'OR'])}"
        for _ in range(filters._MAX_CONDITIONS - 1)
    )
    found = passing(f"{' '.join(parts)} year < 0", [{"id": "a", "labels": [], "year": 99}])
    assert found in ([], [0])
