"""Full-text search in what is known of items: SQLite's FTS5 beside the items, written in the same transaction.

The words of an item are those of its id (the path of its file), its text, its labels, its image's file name and its
date (``taken``, with the month's name), separated as `unspaced` says. The index holds no copy of them. The view
``described`` says what they are; it is part of the database, so that what is taken out of the index is always what was
put in.
"""

import json
import sqlite3
from collections.abc import Sequence

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
# FTS5 reads a view, but no table-valued functions in it. JSON's punctuation separates labels as spaces do.
_VIEW = f"""
CREATE VIEW described AS SELECT number, separate(id || ' ' || coalesce(json_extract(metadata, '$.text'), '')
    || ' ' || coalesce(json_extract(metadata, '$.labels'), '')
    || ' ' || coalesce(replace(image, rtrim(image, replace(image, '/', '')), ''), '')
    || ' ' || coalesce(taken, '') || ' ' || CASE substr(taken, 6, 2)
    {" ".join(f"WHEN '{number:02}' THEN '{name}'" for number, name in enumerate(_MONTHS, start=1))} ELSE '' END) AS text
FROM (SELECT *, json_extract(metadata, '$.image') AS image, json_extract(metadata, '$.taken') AS taken FROM items)
"""
_TABLE = """
CREATE VIRTUAL TABLE words USING fts5(
    text, content='described', content_rowid='number', columnsize=0, tokenize='{tokenizer}'
)
"""
_AMONG = "number IN (SELECT value FROM json_each(?))"


def tokenizer(stem: str = "") -> str:
    """Say to FTS5 how words are told apart: at what is no letter or digit, without regard of case and accents.

    >>> tokenizer("english")
    'porter unicode61 remove_diacritics 2'
    """
    return "porter " * (stem == "english") + "unicode61 remove_diacritics 2"


def make_words(connection: sqlite3.Connection, stem: str = "") -> None:
    """Make the index of words of a new database, within a transaction, where SQLite has FTS5.

    Args:
        connection: to the database, as `connection.connect` opens it.
        stem: the language whose words are stemmed, ``"english"`` by Porter's rules (1980); none if empty.
    """
    if has_fts5(connection):
        connection.execute(_VIEW)
        connection.execute(_TABLE.format(tokenizer=tokenizer(stem)))


def has_fts5(connection: sqlite3.Connection) -> bool:
    """Return whether this SQLite can search for words."""
    return bool(connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchall())


def has_words(connection: sqlite3.Connection) -> bool:
    """Return whether a database has the index of words."""
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchall())


def add_words(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Put items into the index of words if there is one, within a transaction."""
    if not numbers or not has_words(connection):
        return
    sql = f"INSERT INTO words (rowid, text) SELECT number, text FROM described WHERE {_AMONG}"
    connection.execute(sql, (json.dumps(numbers),))


def remove_words(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Take items out of the index of words, before they are changed or removed, within a transaction."""
    if not numbers or not has_words(connection):
        return
    sql = f"INSERT INTO words (words, rowid, text) SELECT 'delete', number, text FROM described WHERE {_AMONG}"
    connection.execute(sql, (json.dumps(numbers),))


def check_words(connection: sqlite3.Connection) -> None:
    """Compare the index of words with the items, within a transaction that may write; 6 s a million items.

    Raises:
        sqlite3.DatabaseError: they do not agree.
    """
    connection.execute("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)")
