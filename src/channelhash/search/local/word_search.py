"""Full-text search: the items that have most of a question's words, in milliseconds among millions of them."""

import json
import math
import sqlite3
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from channelhash.search.local.filters import SqlCondition
from channelhash.search.local.unspaced import take_phrases
from channelhash.search.local.words import tokenizer
from channelhash.search.rank import Ranking

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
# How often words are is counted anew when so large a share of the items has come or gone.
_STALE = 0.1

# Texts that are kept as words, and rare words of which is known how many items have them.
_KEPT = 1_000


class WordSearch:
    """Searches in a database's index of words, which remember how frequent words are.

    An item's score is the sum of the weights of the question's words that it has: ln(1 + n / m) for a word that m of n
    items have. This is BM25 (Robertson and Zaragoza 2009) where a word counts once and all texts are equally long, as
    captions nearly are. Frequent words make it slow, so where they are very frequent the search is cut short:

    1. Words that more than a tenth of over 10,000 items have are left out if there are rarer ones.
    2. Items with any of the rarest words, which have at most 2,000 rows together, are scored exactly by these and the
       three next ones.
    3. If these are too few: items with all three, then with the two rarer of them, the rarest, the two more frequent …

    Args:
        connection: to the database, for reading.
        stem: as of `make_words`.

    >>> from channelhash.search.local.tables import connect
    >>> from channelhash.search.local.words import add_words, make_words
    >>> connection = connect(None)
    >>> _ = connection.execute("CREATE TABLE items (number INTEGER PRIMARY KEY, id TEXT, metadata TEXT)")
    >>> make_words(connection)
    >>> _ = connection.execute("INSERT INTO items VALUES (1, 'cat.jpg', '{}'), (2, '2019/dog.jpg', '{}')")
    >>> add_words(connection, [1, 2])
    >>> WordSearch(connection)("a white dog", (), 10, SqlCondition("1", ())).ids
    ['2019/dog.jpg']
    """

    def __init__(self, connection: sqlite3.Connection, stem: str = "") -> None:
        self._connection = connection
        self._stem = stem
        self._counts: dict[str, int] = {}
        self._n_items = 0
        self._state: tuple[int, int] | None = None
        self._last_item = 0
        self._rare_counts: dict[str, int] = {}
        self._split = lru_cache(_KEPT)(self._split_anew)
        self._splitting: sqlite3.Connection | None = None

    def __call__(
        self, text: str, without: Sequence[str], k: int, where: SqlCondition, coverage: float = 0.0
    ) -> Ranking:
        """Return the best ``k`` of the items that pass a filter, equal scores in the order in which they were added.

        Args:
            text: the words that are wanted.
            without: phrases; an item that has all words of one is not returned.
            k: at least 1.
            where: the filter of ``items``.
            coverage: least share of the weight of all words that an item has; see `store.Store.search_words`.
        """
        self._notice_writes()
        split = self._split(text)
        weights = self._weights(split)
        words = list(weights)
        unwanted = [f"({_all(phrase)})" for phrase in map(self._split, without) if phrase]
        suffix = f" NOT ({' OR '.join(unwanted)})" if unwanted else ""

        def rows(expression: str, limit: int) -> NDArray[np.int64]:
            sql = (
                "SELECT words.rowid FROM words CROSS JOIN items ON number = words.rowid WHERE words MATCH ? AND "
                f"{where.sql} LIMIT ?"
            )
            if where.sql == "1":
                sql = "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?"
            found = self._connection.execute(sql, (f"({expression}){suffix}", *where.parameters, limit))
            return np.fromiter((number for (number,) in found), np.int64)

        n_rare = int(np.searchsorted(np.cumsum([self._count(word) for word in words]), _ROWS, side="right"))
        rare, frequent = words[:n_rare], words[n_rare : n_rare + _FREQUENT]
        scores: dict[int, float] = {}
        if rare:
            of_rare = [(rows(_all([word]), _ROWS), weights[word]) for word in rare]
            also = [(rows(f"{_all([word])} AND ({_any(rare)})", _ROWS), weights[word]) for word in frequent]
            scores = _best(of_rare + also, k)
        for together in _runs(frequent):
            if len(scores) >= k:
                break
            score = sum(weights[word] for word in together)
            for number in rows(_all(together), k + len(scores)).tolist():
                scores.setdefault(number, score)
        least = coverage * sum(weights.get(word) or self._weight(self._count(word)) for word in split)
        covering = [number for number in scores if scores[number] >= least - 1e-9]
        order = sorted(covering, key=lambda number: (-scores[number], number))[:k]
        sql = "SELECT number, id FROM items WHERE number IN (SELECT value FROM json_each(?))"
        names = dict(self._connection.execute(sql, (json.dumps(order),)).fetchall())
        return Ranking([names[number] for number in order], [scores[number] for number in order])

    def _notice_writes(self) -> None:
        """Forget what holds only until something is written: by this connection, or by others."""
        (others,) = self._connection.execute("PRAGMA data_version").fetchone()
        state = (others, self._connection.total_changes)
        if state != self._state or len(self._rare_counts) > _KEPT:
            self._state, self._rare_counts = state, {}
            (self._last_item,) = self._connection.execute("SELECT coalesce(max(number), 0) FROM items").fetchone()

    def _split_anew(self, text: str) -> list[str]:
        """Return the first different words of a text, as FTS5 splits it; of those with one stem, the first as it is.

        For FTS5 stems what it looks for, and the stem of a stem may be another. What is written without spaces is one
        word: a phrase of letters.
        """
        spaced, phrases = take_phrases(text)
        tokenizers = {"words": tokenizer(), "stems": tokenizer(self._stem)} if self._stem else {"words": tokenizer()}
        if self._splitting is None:
            self._splitting = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            for table, how in tokenizers.items():
                self._splitting.execute(f"CREATE VIRTUAL TABLE {table} USING fts5(text, tokenize='{how}')")
                self._splitting.execute(f"CREATE VIRTUAL TABLE {table}_found USING fts5vocab({table}, instance)")
        places = []
        for table in tokenizers:
            self._splitting.execute(f"DELETE FROM {table}")
            self._splitting.execute(f"INSERT INTO {table} VALUES (?)", (spaced,))
            places.append(dict(self._splitting.execute(f"SELECT offset, term FROM {table}_found ORDER BY offset")))
        words, stems = places[0], places[-1]
        first: dict[str, str] = {}
        for place, word in words.items():
            first.setdefault(stems[place], word)
        return [*first.values(), *dict.fromkeys(phrases)][:_WORDS]

    def _weights(self, words: Sequence[str]) -> dict[str, float]:
        """Return the weights of those words that are somewhere, rarest first, without those that are everywhere."""
        n_items = self._last_item
        if abs(n_items - self._n_items) > _STALE * self._n_items:
            self._counts, self._n_items = {}, n_items
        there = sorted((count, word) for word in words if (count := self._count(word)))
        rarest = there[0][0] if there else 0
        most = max(rarest, _EVERYWHERE * n_items if n_items > _MANY else n_items)
        return {word: self._weight(count) for count, word in there if count <= most}

    def _weight(self, count: int) -> float:
        """Return the weight of a word that so many items have; of one that none has, as if it were one."""
        return math.log(1 + self._n_items / max(count, 1))

    def _count(self, word: str) -> int:
        """Return how many items have a word; of one that many have, perhaps how many had it some time ago."""
        if word in self._counts:
            return self._counts[word]
        if word in self._rare_counts:
            return self._rare_counts[word]
        sql = "SELECT count(*) FROM words WHERE words MATCH ?"
        count = int(self._connection.execute(sql, (_all([word]),)).fetchone()[0])
        (self._counts if count > _ROWS else self._rare_counts)[word] = count
        return count


def _runs(words: Sequence[str]) -> list[Sequence[str]]:
    """Return the words with as many of the following ones as possible first, then with fewer and fewer."""
    return [words[start:end] for start in range(len(words)) for end in range(len(words), start, -1)]


def _all(words: Sequence[str]) -> str:
    return " AND ".join(f'"{word}"' for word in words)


def _any(words: Sequence[str]) -> str:
    return " OR ".join(f'"{word}"' for word in words)


def _best(found: Sequence[tuple[NDArray[np.int64], float]], k: int) -> dict[int, float]:
    """Return the ``k`` numbers with the largest sums of weights, ties by number."""
    numbers, places = np.unique(np.concatenate([rows for rows, _ in found]), return_inverse=True)
    sums = np.bincount(places, np.concatenate([np.full(len(rows), weight) for rows, weight in found]), len(numbers))
    best = np.lexsort((numbers, -sums))[:k]
    return dict(zip(numbers[best].tolist(), sums[best].tolist(), strict=True))
