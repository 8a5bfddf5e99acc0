"""Full-text search in what is known of items: SQLite's FTS5 beside the items, written in the same transaction.

The words of an item are those of its id (the path of its file), its text, its labels, its title, place, country and
camera, its image's file name and its date (``taken``, with the month's name). The index holds no copy of them. The view
``described`` says what they are; it is part of the database, so that what is taken out of the index is always what was
put in.

The index splits texts at what is neither letter nor digit, and so would take a Chinese sentence for one word, and a
Thai or Hindi word for several, split at its vowel signs. Letters are therefore moved to planes of private use, all of
which are letters to SQLite, vowel signs too. In scripts that put no spaces between words each letter is a word of the
index, and a word is a phrase. Korean has spaces, but particles are written to its nouns, so its syllables are separated
as well.
"""

import json
import math
import re
import sqlite3
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from channelhash.search.rank import Ranking
from channelhash.search.sql_filters import SqlCondition

# Thai; Lao; Burmese; Khmer; Korean; Kana, Bopomofo and Chinese, at first with their iteration marks; Yi.
_LETTERS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\ua9e0-\ua9ef\uaa60-\uaa7f"
    "\u1780-\u17d3\u17d7\u17dc\u17dd\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb\u3005-\u3007\u303b"
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003fffd\ua000-\ua48c"
)
# What may stand between letters unseen: joiners, word boundaries, variants of a letter.
_UNSEEN = "\u200b-\u200d\u2060\ufe00-\ufe0f\U000e0100-\U000e01ef"
_RUN = re.compile(f"[{_LETTERS}][{_LETTERS}{_UNSEEN}]*")
_NOT_LETTER = re.compile(f"[{_UNSEEN}]")
# Letters and signs of India's and Tibet's scripts, which put something between words.
_SIGNED = re.compile("[\u0900-\u0963\u0966-\u096f\u0971-\u0df3\u0f40-\u0fbc]+")
# Stands before a run, so that a phrase does not reach from one into the next.
_BORDER = "\ue000"


def _separate(text: str) -> str:
    """Return a text as it is indexed: the letters of scripts without spaces are words.

    >>> _separate("a cat"), len(_separate("黒い猫").split())
    ('a cat', 4)
    """
    if text.isascii():
        return text
    return _RUN.sub(lambda run: f" {_BORDER} {_phrase(run[0])} ", _composed(text))


def _take_phrases(text: str) -> tuple[str, list[str]]:
    """Return what a text has in scripts with spaces, as it is indexed, and its runs in others as phrases.

    >>> words, phrases = _take_phrases("a 猫 cat 黒い")
    >>> words.split(), [len(phrase.split()) for phrase in phrases]
    (['a', 'cat'], [1, 2])
    """
    if text.isascii():
        return text, []
    text = _composed(text)
    return _RUN.sub(" ", text), [_phrase(run) for run in _RUN.findall(text)]


def _composed(text: str) -> str:
    """Return a text in one form, so that é is é and half-width kana are kana, with words that signs do not split."""
    return _SIGNED.sub(lambda run: "".join(map(_moved, run[0])), unicodedata.normalize("NFKC", text))


def _phrase(run: str) -> str:
    return " ".join(map(_moved, _NOT_LETTER.sub("", run)))


def _moved(letter: str) -> str:
    """Return a letter of private use for each of the basic plane; others are letters to SQLite."""
    return chr(0xF0000 + ord(letter)) if ord(letter) < 0x10000 else letter


_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
# Keys of metadata with names in them.
_NAMES = ("title", "place", "country", "camera")
# FTS5 reads a view, but no table-valued functions in it. JSON's punctuation separates labels as spaces do.
_VIEW = f"""
CREATE VIEW described AS SELECT number, separate(id || ' ' || coalesce(json_extract(metadata, '$.text'), '')
    || ' ' || coalesce(json_extract(metadata, '$.labels'), '')
    {" ".join(f"|| ' ' || coalesce(json_extract(metadata, '$.{key}'), '')" for key in _NAMES)}
    || ' ' || coalesce(replace(image, rtrim(image, replace(image, '/', '')), ''), '')
    || ' ' || coalesce(taken, '') || ' ' || CASE substr(taken, 6, 2)
    {" ".join(f"WHEN '{number:02}' THEN '{name}'" for number, name in enumerate(_MONTHS, start=1))} ELSE '' END) AS text
FROM (SELECT *, json_extract(metadata, '$.image') AS image, json_extract(metadata, '$.taken') AS taken FROM items)
"""
# Words are split at characters that are neither letters nor digits, and have neither case nor accents.
_TOKENIZER = "unicode61 remove_diacritics 2"
_TABLE = f"""
CREATE VIRTUAL TABLE words USING fts5(
    text, content='described', content_rowid='number', columnsize=0, tokenize='{_TOKENIZER}'
)
"""


# Words of a question that are looked for.
_WORDS = 24
# Rows of rare words that are scored, all together.
_ROWS = 2_000
# Of the more frequent words, how many are looked for.
_FREQUENT = 3
# Items from which on words that are everywhere are left out.
_MANY = 10_000
# Share of many items from which on a word says nothing beside a rarer one.
_EVERYWHERE = 0.1
# Texts that are kept as words, and words of which is known how many items have them.
_KEPT = 1_000


class WordIndex:
    """A database's index of words, and searches in it, which remember how frequent words are.

    An item's score is the sum of the weights of the question's words that it has: ln(1 + n / m) for a word that m of n
    items have. This is BM25 (Robertson and Zaragoza 2009) where a word counts once and all texts are equally long, as
    captions nearly are. Frequent words make it slow, so where they are very frequent the search is cut short:

    1. Words that more than a tenth of over 10,000 items have are left out if there are rarer ones.
    2. Items with any of the rarest words, which have at most 2,000 rows together, are scored exactly by these and the
       three next ones.
    3. If these are too few: items with all three, then with the two rarer of them, the rarest, the two more frequent …

    >>> from channelhash.search.sqlite.folder import connect
    >>> connection = connect(None)
    >>> _ = connection.execute("CREATE TABLE items (number INTEGER PRIMARY KEY, id TEXT, metadata TEXT)")
    >>> words = WordIndex(connection)
    >>> words.make()
    >>> _ = connection.execute("INSERT INTO items VALUES (1, 'cat.jpg', '{}'), (2, '2019/dog.jpg', '{}')")
    >>> words.add([1, 2])
    >>> words.search("a white dog", (), 10, SqlCondition("true", ())).ids
    ['2019/dog.jpg']
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.create_function("separate", 1, _separate, deterministic=True)  # for the view
        self._counts: dict[str, int] = {}
        self._n_items = 0
        self._state: tuple[int, int] | None = None
        self._split = lru_cache(_KEPT)(self._split_anew)
        self._splitting: sqlite3.Connection | None = None

    def make(self) -> None:
        """Make the index of a new database, within a transaction, where SQLite has FTS5."""
        if self._is_supported():
            self._connection.execute(_VIEW)
            self._connection.execute(_TABLE)

    @property
    def usable(self) -> bool:
        """Whether items can be found by words."""
        return self._is_there() and self._is_supported()

    def _is_there(self) -> bool:
        return bool(self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchall())

    def _is_supported(self) -> bool:
        return bool(self._connection.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchall())

    def add(self, numbers: Sequence[int]) -> None:
        """Put items into the index if there is one, within a transaction."""
        self._change(numbers, "INSERT INTO words (rowid, text) SELECT number, text")

    def remove(self, numbers: Sequence[int]) -> None:
        """Take items out of the index, before they are changed or removed, within a transaction."""
        self._change(numbers, "INSERT INTO words (words, rowid, text) SELECT 'delete', number, text")

    def _change(self, numbers: Sequence[int], sql: str) -> None:
        if numbers and self._is_there():
            among = "FROM described WHERE number IN (SELECT value FROM json_each(?))"
            self._connection.execute(f"{sql} {among}", (json.dumps(numbers),))

    def search(self, text: str, without: Sequence[str], k: int, where: SqlCondition, coverage: float = 0.0) -> Ranking:
        """Return the best ``k`` of the items that pass a filter, equal scores in the order in which they were added."""
        self._notice_writes()
        split = self._split(text)
        weights = self._weights(split)
        words = list(weights)
        unwanted = [f"({_all(phrase)})" for phrase in map(self._split, without) if phrase]
        suffix = f" NOT ({' OR '.join(unwanted)})" if unwanted else ""

        def rows(expression: str, limit: int) -> NDArray[np.int64]:
            join = "" if where.sql == "true" else "CROSS JOIN items ON number = words.rowid"
            sql = f"SELECT words.rowid FROM words {join} WHERE words MATCH ? AND {where.sql} LIMIT ?"
            cursor = self._connection.execute(sql, (f"({expression}){suffix}", *where.parameters, limit))
            return np.fromiter((number for (number,) in cursor), np.int64)

        n_rare = int(np.searchsorted(np.cumsum([self._count(word) for word in words]), _ROWS, side="right"))
        rare, frequent = words[:n_rare], words[n_rare : n_rare + _FREQUENT]
        scores: dict[int, float] = {}
        if rare:
            any_rare = " OR ".join(map(_all, zip(rare)))
            of_rare = [(rows(_all([word]), _ROWS), weights[word]) for word in rare]
            also = [(rows(f"{_all([word])} AND ({any_rare})", _ROWS), weights[word]) for word in frequent]
            scores = _best(of_rare + also, k)
        # As many of the following ones as possible first, then fewer and fewer.
        runs = [frequent[start:end] for start in range(len(frequent)) for end in range(len(frequent), start, -1)]
        while runs and len(scores) < k:
            together = runs.pop(0)
            score = sum(weights[word] for word in together)
            for number in rows(_all(together), k + len(scores)).tolist():
                scores.setdefault(number, score)
        least = coverage * sum(weights.get(word) or self._weight(self._count(word)) for word in split)
        covering = [number for number in scores if scores[number] >= least - 1e-9]
        order = sorted(covering, key=lambda number: (-scores[number], number))[:k]
        sql = "SELECT number, id FROM items WHERE number IN (SELECT value FROM json_each(?))"
        names = dict(self._connection.execute(sql, (json.dumps(order),)).fetchall())
        return Ranking([names[number] for number in order], [scores[number] for number in order])

    def counts(self) -> dict[str, int]:
        """Return word -> the number of items that have it."""
        self._connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab(main, words, row)")
        return dict(self._connection.execute("SELECT term, doc FROM temp.terms").fetchall())

    def _notice_writes(self) -> None:
        """Forget what holds only until something is written: by this connection, or by others."""
        (others,) = self._connection.execute("PRAGMA data_version").fetchone()
        state = (others, self._connection.total_changes)
        if state != self._state or len(self._counts) > _KEPT:
            self._state, self._counts = state, {}
            (self._n_items,) = self._connection.execute("SELECT coalesce(max(number), 0) FROM items").fetchone()

    def _split_anew(self, text: str) -> list[str]:
        """Return the first different words of a text, as FTS5 splits it; a run without spaces is one word, a phrase."""
        spaced, phrases = _take_phrases(text)
        if self._splitting is None:
            self._splitting = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            self._splitting.execute(f"CREATE VIRTUAL TABLE words USING fts5(text, tokenize='{_TOKENIZER}')")
            self._splitting.execute("CREATE VIRTUAL TABLE found USING fts5vocab(words, instance)")
        self._splitting.execute("DELETE FROM words")
        self._splitting.execute("INSERT INTO words VALUES (?)", (spaced,))
        terms = (term for (term,) in self._splitting.execute("SELECT term FROM found ORDER BY offset"))
        return list(dict.fromkeys([*terms, *phrases]))[:_WORDS]

    def _weights(self, words: Sequence[str]) -> dict[str, float]:
        """Return the weights of those words that are somewhere, rarest first, without those that are everywhere."""
        n_items = self._n_items
        counts = sorted((count, word) for word in words if (count := self._count(word)))
        rarest = counts[0][0] if counts else 0
        most = max(rarest, _EVERYWHERE * n_items if n_items > _MANY else n_items)
        return {word: self._weight(count) for count, word in counts if count <= most}

    def _weight(self, count: int) -> float:
        """Return the weight of a word that so many items have; of one that none has, as if it were one."""
        return math.log(1 + self._n_items / max(count, 1))

    def _count(self, word: str) -> int:
        """Return how many items have a word."""
        if word not in self._counts:
            sql = "SELECT count(*) FROM words WHERE words MATCH ?"
            self._counts[word] = int(self._connection.execute(sql, (_all([word]),)).fetchone()[0])
        return self._counts[word]


def _all(words: Sequence[str]) -> str:
    return " AND ".join(f'"{word}"' for word in words)


def _best(rankings: Sequence[tuple[NDArray[np.int64], float]], k: int) -> dict[int, float]:
    """Return the ``k`` numbers with the largest sums of weights, ties by number."""
    numbers, places = np.unique(np.concatenate([rows for rows, _ in rankings]), return_inverse=True)
    sums = np.bincount(places, np.concatenate([np.full(len(rows), weight) for rows, weight in rankings]), len(numbers))
    best = np.lexsort((numbers, -sums))[:k]
    return dict(zip(numbers[best].tolist(), sums[best].tolist(), strict=True))
