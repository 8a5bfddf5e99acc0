"""Full-text search in what is known of items: SQLite's FTS5 beside the items, written in the same
transaction.

The words of an item are those of its id (the path of its file), its text, its labels, its title,
place, country and camera, what was read in its picture (``ocr``), its image's file name and its
date (``taken``, with the month's name). The index holds no copy of them. The view ``described``
says what they are; it is part of the database, so that what is taken out of the index is always
what was put in.

Who reads a picture loses spaces and finds some, so that a second index finds parts of words in what
was read there: three characters that follow each other are a word of it, and spaces are none.

Texts and questions are folded by `text.words.fold`, so that the index knows nothing of letters but
those of ASCII: all others are parts of words to it, and what is none is a space before it gets
there. In scripts that put no spaces between words each letter is a word of the index, and a word is
a phrase. Korean has spaces, but particles are written to its nouns, so its syllables are separated
as well.
"""

import json
import math
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from channelhash.search.filters import SqlCondition
from channelhash.search.rank import Ranking
from channelhash.text.words import fold

# Thai; Lao; Burmese; Khmer; Korean; Kana, Bopomofo and Chinese, at first with their iteration
# marks; Yi.
_LETTERS = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\ua9e0-\ua9ef\uaa60-\uaa7f"
    "\u1780-\u17d3\u17d7\u17dc\u17dd\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb\u3005-\u3007\u303b"
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003fffd\ua000-\ua48c"
)
_RUN = re.compile(f"[{_LETTERS}]+")
_WORD = re.compile(r"[a-z0-9\u0080-\U0010ffff]+")
_NOT_JOINED = re.compile(r"[^a-z0-9\n\u0080-\U0010ffff]+")
# Stands before a run, so that a phrase does not reach from one into the next.
_BORDER = "\ue000"


class _Signs(dict[int, str]):
    """Characters as the index gets them: a space for each that is part of no word."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        is_part = sign.isascii() or unicodedata.category(sign)[0] in "LMN" or sign == _BORDER
        self[code] = sign if is_part else " "
        return self[code]


_SIGNS = _Signs()


def _plain(text: str) -> str:
    """Return a folded text with spaces for what is part of no word."""
    folded = fold(text)
    return folded if folded.isascii() else folded.translate(_SIGNS)


def _separate(text: str) -> str:
    """Return a text as it is indexed: the letters of scripts without spaces are words.

    >>> _separate("a Cat"), _separate("黒い猫").split()[1:]
    ('a cat', ['黒', 'い', '猫'])
    """
    return _RUN.sub(lambda run: f" {_BORDER} {' '.join(run[0])} ", _plain(text))


def _split(text: str) -> list[str]:
    """Return the first different words of a text; a run in a script without spaces is one word, a
    phrase.

    >>> _split("a 猫 Cat 黒い, a")
    ['a', 'cat', '猫', '黒 い']
    """
    plain = _plain(text)
    phrases = (" ".join(run) for run in _RUN.findall(plain))
    return list(dict.fromkeys([*_WORD.findall(_RUN.sub(" ", plain)), *phrases]))[:_WORDS]


def _join(text: str) -> str:
    """Return lines of text as their parts are looked for: folded letters and digits alone.

    >>> _join("Stop harper!\\nCafé 17.50")
    'stopharper\\ncafe1750'
    """
    return _NOT_JOINED.sub("", _plain(text))


def _list_labels(labels: str | None) -> str:
    """Return the labels of an item, a list in JSON, as words."""
    return " ".join(json.loads(labels or "[]"))


def quote(text: str, question: str) -> str:
    """Return the lines of what was read in a picture that hold a question's words, of each word the
    first.

    >>> quote("NO PARKING\\nSTOP\\nHARPER\\nSTOP", "stop harper")
    'STOP HARPER'
    """
    lines = text.split("\n")
    first = set[int]()
    for part in map(_join, question.split()):
        anywhere = len(part) > 2 or _RUN.search(part)
        holds = (
            part in (_join(line) if anywhere else [*map(_join, line.split())]) for line in lines
        )
        first.update([place for place, held in enumerate(holds) if held and part][:1])
    return " ".join(lines[place] for place in sorted(first))


_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
# Keys of metadata with names in them.
_NAMES = ("title", "place", "country", "camera", "ocr")
# FTS5 reads a view, but no table-valued functions in it.
_VIEW = f"""
CREATE VIEW described AS SELECT number, separate(id || ' ' || coalesce(json_extract(metadata, '$.text'), '')
    || ' ' || list_labels(json_extract(metadata, '$.labels'))
    {" ".join(f"|| ' ' || coalesce(json_extract(metadata, '$.{key}'), '')" for key in _NAMES)}
    || ' ' || coalesce(replace(image, rtrim(image, replace(image, '/', '')), ''), '')
    || ' ' || coalesce(taken, '') || ' ' || CASE substr(taken, 6, 2)
    {" ".join(f"WHEN '{number:02}' THEN '{name}'" for number, name in enumerate(_MONTHS, start=1))} ELSE '' END)
    AS text, joined('' || coalesce(json_extract(metadata, '$.ocr'), '')) AS part
FROM (SELECT *, json_extract(metadata, '$.image') AS image, json_extract(metadata, '$.taken') AS taken FROM items)
"""
# Index -> the column of the view that it holds, and how that is split. ``ascii`` takes all that is
# not ASCII for letters.
_INDEXES = {"words": ("text", "ascii"), "parts": ("part", "trigram")}
_INDEX = """
CREATE VIRTUAL TABLE {0} USING fts5(
    {1}, content='described', content_rowid='number', columnsize=0, tokenize='{2}'
)
"""


_Numbers = NDArray[np.int64]
_NONE: _Numbers = np.zeros(0, np.int64)
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

    An item's score is the sum of the weights of the question's words that it has: ln(1 + n / m) for
    a word that m of n items have. A word may be a part of what was read in a picture; one of three
    or four letters counts half there, as "hat" is a part of "that". This is BM25 (Robertson and
    Zaragoza 2009) where a word counts once and all texts are equally long, as captions nearly are.
    Frequent words make it slow, so where they are very frequent the search is cut short:

    1. Words that more than a tenth of over 10,000 items have are left out if there are rarer ones.
    2. Items with any of the rarest words, which have at most 2,000 rows together, are scored
       exactly by these and the three next ones.
    3. If these are too few: items with all three, then with the two rarer of them, the rarest, the
       two more frequent …

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
        connection.create_function("joined", 1, _join, deterministic=True)
        connection.create_function("list_labels", 1, _list_labels, deterministic=True)
        self._counts: dict[str, int] = {}
        self._n_items = 0
        self._state: tuple[int, int] | None = None
        self._split = lru_cache(_KEPT)(_split)

    def make(self) -> None:
        """Make the index of a new database, within a transaction, where SQLite has FTS5."""
        if self._is_supported():
            self._connection.execute(_VIEW)
            for index, (column, tokenizer) in _INDEXES.items():
                self._connection.execute(_INDEX.format(index, column, tokenizer))

    @property
    def usable(self) -> bool:
        """Whether items can be found by words."""
        return self._exists() and self._is_supported()

    def _exists(self) -> bool:
        return bool(
            self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchall()
        )

    def _is_supported(self) -> bool:
        has_fts = bool(
            self._connection.execute(
                "SELECT 1 FROM pragma_module_list WHERE name = 'fts5'"
            ).fetchall()
        )
        return has_fts and sqlite3.sqlite_version_info >= (3, 34)  # the first that knows trigrams

    def add(self, numbers: Sequence[int]) -> None:
        """Put items into the index if there is one, within a transaction."""
        self._change(numbers, "INSERT INTO {0} (rowid, {1}) SELECT number, {1}")

    def remove(self, numbers: Sequence[int]) -> None:
        """Take items out of the index, before they are changed or removed, within a transaction."""
        self._change(numbers, "INSERT INTO {0} ({0}, rowid, {1}) SELECT 'delete', number, {1}")

    def _change(self, numbers: Sequence[int], sql: str) -> None:
        if numbers and self._exists():
            # The limit keeps SQLite from making each text twice, to compare it and to return it.
            among = (
                "SELECT number, {1} FROM described WHERE number IN (SELECT value FROM "
                "json_each(?)) LIMIT -1"
            )
            for index, (column, _) in _INDEXES.items():
                statement = f"{sql} FROM ({among}) WHERE {{1}} <> ''".format(index, column)
                self._connection.execute(statement, (json.dumps(numbers),))

    def search(
        self, text: str, without: Sequence[str], k: int, where: SqlCondition, coverage: float = 0.0
    ) -> Ranking:
        """Return the best ``k`` of the items that pass a filter, equal scores in the order in which
        they were added.
        """
        self._notice_writes()
        split = self._split(text)
        weights = self._weights(split)
        words = list(weights)
        phrases = [phrase for phrase in map(self._split, without) if phrase]
        unwanted = {"words": _any(map(_all, phrases))}
        unwanted["parts"] = _any(
            _all(map(_join, phrase)) for phrase in phrases if all(_share(w) == 1 for w in phrase)
        )

        def rows(
            expression: str, limit: int, table: str = "words", among: _Numbers = _NONE
        ) -> _Numbers:
            join = "" if where.sql == "true" else f"CROSS JOIN items ON number = {table}.rowid"
            exclusion = f" NOT ({unwanted[table]})" if unwanted[table] else ""
            sql = f"{table} MATCH ? AND {where.sql}"
            parameters = [f"({expression}){exclusion}", *where.parameters]
            (other,) = unwanted.keys() - {table}
            if unwanted[other]:
                sql += (
                    f" AND {table}.rowid NOT IN (SELECT rowid FROM {other} WHERE {other} MATCH ?)"
                )
                parameters.append(unwanted[other])
            if len(among):  # the index is read in turn; without the + each row would be sought
                sql += f" AND +{table}.rowid IN (SELECT value FROM json_each(?))"
                parameters.append(json.dumps(among.tolist()))
            sql = f"SELECT {table}.rowid FROM {table} {join} WHERE {sql} LIMIT ?"
            cursor = self._connection.execute(sql, (*parameters, limit))
            return np.fromiter((number for (number,) in cursor), np.int64)

        n_rare = int(
            np.searchsorted(np.cumsum([self._count(word) for word in words]), _ROWS, side="right")
        )
        rare = words[:n_rare]
        frequent = words[n_rare : n_rare + _FREQUENT]
        whole = {word: [rows(_all([word]), _ROWS)] for word in rare}
        parts = {
            word: rows(_all([_join(word)]), _ROWS, "parts")
            for word in rare + frequent
            if _share(word)
        }
        by_part = np.unique(np.concatenate([_NONE, *parts.values()]))
        for word in frequent:
            with_rare = (
                [rows(f"{_all([word])} AND ({_any(map(_all, zip(rare)))})", _ROWS)] if rare else []
            )
            whole[word] = with_rare + (
                [rows(_all([word]), -1, among=by_part)] if len(by_part) else []
            )
        scored = [
            (np.unique(np.concatenate([_NONE, *found])), weights[word])
            for word, found in whole.items()
        ]
        for (numbers, weight), word in zip(tuple(scored), whole, strict=True):
            scored.append((np.setdiff1d(parts.get(word, _NONE), numbers), weight * _share(word)))
        scores = _best(scored, k) if scored else {}
        # As many of the following ones as possible first, then fewer and fewer.
        runs = [
            frequent[start:end]
            for start in range(len(frequent))
            for end in range(len(frequent), start, -1)
        ]
        while runs and len(scores) < k:
            together = runs.pop(0)
            score = sum(weights[word] for word in together)
            for number in rows(_all(together), k + len(scores)).tolist():
                scores.setdefault(number, score)
        least = coverage * sum(
            weights.get(word) or self._weight(self._count(word)) for word in split
        )
        covering = [number for number in scores if scores[number] >= least - 1e-9]
        order = sorted(covering, key=lambda number: (-scores[number], number))[:k]
        sql = "SELECT number, id FROM items WHERE number IN (SELECT value FROM json_each(?))"
        names = dict(self._connection.execute(sql, (json.dumps(order),)).fetchall())
        return Ranking([names[number] for number in order], [scores[number] for number in order])

    def counts(self) -> dict[str, int]:
        """Return word -> the number of items that have it."""
        self._connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab(main, words, row)"
        )
        return dict(self._connection.execute("SELECT term, doc FROM temp.terms").fetchall())

    def _notice_writes(self) -> None:
        """Forget what holds only until something is written: by this connection, or by others."""
        (others,) = self._connection.execute("PRAGMA data_version").fetchone()
        state = (others, self._connection.total_changes)
        if state != self._state or len(self._counts) > _KEPT:
            self._state = state
            self._counts = {}
            (self._n_items,) = self._connection.execute(
                "SELECT coalesce(max(number), 0) FROM items"
            ).fetchone()

    def _weights(self, words: Sequence[str]) -> dict[str, float]:
        """Return the weights of those words that are somewhere, rarest first, without those that
        are everywhere.
        """
        counts = sorted((count, word) for word in words if (count := self._count(word)))
        rarest = counts[0][0] if counts else 0
        most = max(rarest, _EVERYWHERE * self._n_items if self._n_items > _MANY else self._n_items)
        return {word: self._weight(count) for count, word in counts if count <= most}

    def _weight(self, count: int) -> float:
        """Return the weight of a word that so many items have; of one that none has, as if it were
        one.
        """
        return math.log(1 + self._n_items / max(count, 1))

    def _count(self, word: str) -> int:
        """Return how many items have a word, as a part, too, unless that counts half and others
        have it as it is.
        """
        if word not in self._counts:
            sql = "SELECT count(*) FROM words WHERE words MATCH ?"
            whole = _all([word])
            count = int(self._connection.execute(sql, (whole,)).fetchone()[0])
            if _share(word) > 0.5 * bool(count):
                sql = "SELECT count(*) FROM parts WHERE parts MATCH ?"
                sql += " AND rowid NOT IN (SELECT rowid FROM words WHERE words MATCH ?)"
                count += int(
                    self._connection.execute(sql, (_all([_join(word)]), whole)).fetchone()[0]
                )
            self._counts[word] = count
        return self._counts[word]


def _share(word: str) -> float:
    """Return how much of a word's weight counts where it is a part of what was read in a picture.

    >>> [_share(word) for word in ("no", "hat", "stop2", "harper", "黒 い 猫")]
    [0.0, 0.5, 1.0, 1.0, 1.0]
    """
    part = _join(word)
    if len(part) < 3:  # the index has three characters at least
        return 0.0
    return 1.0 if len(part) >= 5 or _RUN.search(part) or any(map(str.isdigit, part)) else 0.5


def _all(words: Iterable[str]) -> str:
    return " AND ".join(f'"{word}"' for word in words)


def _any(expressions: Iterable[str]) -> str:
    return " OR ".join(f"({expression})" for expression in expressions)


def _best(rankings: Sequence[tuple[_Numbers, float]], k: int) -> dict[int, float]:
    """Return the ``k`` numbers with the largest sums of weights, ties by number."""
    numbers, places = np.unique(np.concatenate([rows for rows, _ in rankings]), return_inverse=True)
    sums = np.bincount(
        places,
        np.concatenate([np.full(len(rows), weight) for rows, weight in rankings]),
        len(numbers),
    )
    best = np.lexsort((numbers, -sums))[:k]
    return dict(zip(numbers[best].tolist(), sums[best].tolist(), strict=True))
