"""Full-text search in what is known of items, by SQLite's FTS5.

The index stands in the items' database and is written in the same transactions. An item's words are
those of its id (the path of its file), text, labels, title, place, country and camera, of what was
read in its image (``ocr``), of the image's file name, and of its date (``taken``, with the name of
the month). The index keeps no copy of them. The view ``described`` lists them; as it is part of the
database, exactly what was put into the index is taken out again.

Reading text in an image (OCR) loses and inserts spaces. A second index therefore finds parts of
words in that text: its words are any three consecutive characters, and spaces do not count.

Texts and questions are folded by `text.words.fold`. The tokenizer distinguishes only ASCII
characters and takes all others for parts of words, so each other character that belongs to no word
becomes a space beforehand. In scripts without spaces between words each letter is a word of the
index, and a word is a phrase. Korean has spaces but attaches particles to nouns, so its syllables
are separated too.
"""

import json
import math
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from channelhash.search.filters import SqlCondition
from channelhash.search.rank import Ranking
from channelhash.text.words import UNSPACED_LETTERS, fold

#: Consecutive letters of scripts without spaces between words.
_RUN = re.compile(f"[{UNSPACED_LETTERS}]+")
#: A word of the other scripts, once folded.
_WORD = re.compile(r"[a-z0-9\u0080-\U0010ffff]+")
#: What is left out where parts of words are looked for; line breaks stay.
_NOT_JOINED = re.compile(r"[^a-z0-9\n\u0080-\U0010ffff]+")
#: Stands before each run, so that no phrase reaches from one run into the next.
_BORDER = "\ue000"


class _Signs(dict[int, str]):
    """A table of characters for the index: those that belong to no word become spaces."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        is_part = sign.isascii() or unicodedata.category(sign)[0] in "LMN" or sign == _BORDER
        self[code] = sign if is_part else " "
        return self[code]


_SIGNS = _Signs()


def _plain(text: str) -> str:
    """Fold a text, and replace characters that belong to no word by spaces."""
    folded = fold(text)
    return folded if folded.isascii() else folded.translate(_SIGNS)


def _separate(text: str) -> str:
    """Return a text as it is indexed, with spaces between the letters of scripts without spaces.

    >>> _separate("a Cat"), _separate("黒い猫").split()[1:]
    ('a cat', ['黒', 'い', '猫'])
    """
    return _RUN.sub(lambda run: f" {_BORDER} {' '.join(run[0])} ", _plain(text))


def _split(text: str) -> list[str]:
    """Return the first distinct words of a text. A run in a script without spaces is one word: a
    phrase of the index.

    >>> _split("a 猫 Cat 黒い, a")
    ['a', 'cat', '猫', '黒 い']
    """
    plain = _plain(text)
    phrases = (" ".join(run) for run in _RUN.findall(plain))
    return list(dict.fromkeys([*_WORD.findall(_RUN.sub(" ", plain)), *phrases]))[:_MOST_WORDS]


def _join(text: str) -> str:
    """Return the form in which parts of words are looked for: lines of folded letters and digits.

    >>> _join("Stop harper!\\nCafé 17.50")
    'stopharper\\ncafe1750'
    """
    return _NOT_JOINED.sub("", _plain(text))


def _list_labels(labels: str | None) -> str:
    """Return an item's labels, given as a JSON list, as words."""
    return " ".join(json.loads(labels or "[]"))


def quote(text: str, question: str) -> str:
    """Return the lines of a text read in an image that hold a question's words: for each word the
    first such line.

    >>> quote("NO PARKING\\nSTOP\\nHARPER\\nSTOP", "stop harper")
    'STOP HARPER'
    """
    lines = text.split("\n")
    first = set[int]()
    for part in filter(None, map(_join, question.split())):
        places = (place for place, line in enumerate(lines) if _holds(line, part))
        first.update(islice(places, 1))
    return " ".join(lines[place] for place in sorted(first))


def _holds(line: str, part: str) -> bool:
    """Return whether a line holds a part; one of one or two letters counts only as a whole word."""
    if len(part) > 2 or _RUN.search(part):
        return part in _join(line)
    return part in map(_join, line.split())


_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
#: Keys of metadata whose values are indexed as they are.
_NAMES = ("title", "place", "country", "camera", "ocr")
_NAMES_SQL = " ".join(
    f"|| ' ' || coalesce(json_extract(metadata, '$.{key}'), '')" for key in _NAMES
)
_MONTHS_SQL = " ".join(
    f"WHEN '{number:02}' THEN '{name}'" for number, name in enumerate(_MONTHS, start=1)
)
#: FTS5 reads a view, but no table-valued function in it. A store compares its definitions with
#: these, so each character and line break counts.
_VIEW = (
    "\nCREATE VIEW described AS SELECT number, separate(id || ' ' || "
    "coalesce(json_extract(metadata, '$.text'), '')\n"
    "    || ' ' || list_labels(json_extract(metadata, '$.labels'))\n"
    f"    {_NAMES_SQL}\n"
    "    || ' ' || coalesce(replace(image, rtrim(image, replace(image, '/', '')), ''), '')\n"
    "    || ' ' || coalesce(taken, '') || ' ' || CASE substr(taken, 6, 2)\n"
    f"    {_MONTHS_SQL} ELSE '' END)\n"
    "    AS text, joined('' || coalesce(json_extract(metadata, '$.ocr'), '')) AS part\n"
    "FROM (SELECT *, json_extract(metadata, '$.image') AS image, "
    "json_extract(metadata, '$.taken') AS taken FROM items)\n"
)
#: Index -> the column of the view that it holds, and its tokenizer. ``ascii`` takes every character
#: that is not ASCII for a letter.
_INDEXES = {"words": ("text", "ascii"), "parts": ("part", "trigram")}
_INDEX = """
CREATE VIRTUAL TABLE {0} USING fts5(
    {1}, content='described', content_rowid='number', columnsize=0, tokenize='{2}'
)
"""
#: SQL functions that the view calls.
_FUNCTIONS = {"separate": _separate, "joined": _join, "list_labels": _list_labels}
#: The first SQLite with the tokenizer ``trigram``.
_WITH_TRIGRAMS = (3, 34)


_Numbers = NDArray[np.int64]
_NONE: _Numbers = np.zeros(0, np.int64)
#: Words of a question that are looked for; longer questions are slow and say little more.
_MOST_WORDS = 24
#: Rows of rare words that are scored, all words together: about a millisecond.
_ROWS = 2_000
#: How many of the more frequent words are looked for.
_FREQUENT = 3
#: Number of items above which words that are everywhere are left out.
_MANY = 10_000
#: Share of many items above which a word says nothing beside a rarer one.
_EVERYWHERE = 0.1
#: Texts whose words are remembered, and words whose counts are.
_KEPT = 1_000


class WordIndex:
    """A database's index of words. Searches remember how frequent words are.

    An item's score is the sum of the weights of the question's words that it has: ln(1 + n / m) for
    a word that m of n items have. A word may be a part of what was read in an image; a part of
    three or four letters counts half, as "hat" is a part of "that". This is BM25 (Robertson and
    Zaragoza 2009) where a word counts once and all texts are equally long, as captions nearly are.
    Very frequent words would make it slow, so they cut the search short:

    1. If more than a tenth of over 10,000 items have a word, it is left out beside rarer ones.
    2. Items with any of the rarest words, which have at most 2,000 rows together, are scored
       exactly by these words and the three next ones.
    3. If that finds too few, items with all three next words follow, then those with the two rarer
       of the three, with the rarest, with the two more frequent …

    >>> from channelhash.search.sqlite.folder import connect
    >>> connection = connect(None)
    >>> columns = "number INTEGER PRIMARY KEY, id TEXT, metadata TEXT"
    >>> _ = connection.execute(f"CREATE TABLE items ({columns})")
    >>> words = WordIndex(connection)
    >>> words.make()
    >>> rows = [(1, "cat.jpg", "{}"), (2, "2019/dog.jpg", "{}")]
    >>> _ = connection.executemany("INSERT INTO items VALUES (?, ?, ?)", rows)
    >>> words.add([1, 2])
    >>> words.search("a white dog", (), 10, SqlCondition("true", ())).ids
    ['2019/dog.jpg']
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        for name, function in _FUNCTIONS.items():
            connection.create_function(name, 1, function, deterministic=True)
        self._counts: dict[str, int] = {}
        self._n_items = 0
        self._state: tuple[int, int] | None = None
        self._split = lru_cache(_KEPT)(_split)

    def make(self) -> None:
        """Create the index of a new database, within a transaction, if SQLite has FTS5."""
        if self._is_supported():
            self._connection.execute(_VIEW)
            for index, (column, tokenizer) in _INDEXES.items():
                self._connection.execute(_INDEX.format(index, column, tokenizer))

    @property
    def usable(self) -> bool:
        """Whether items can be found by words."""
        return self._exists() and self._is_supported()

    def _exists(self) -> bool:
        return bool(self._number("SELECT count(*) FROM sqlite_master WHERE name = 'words'"))

    def _is_supported(self) -> bool:
        has_fts = self._number("SELECT count(*) FROM pragma_module_list WHERE name = 'fts5'")
        return has_fts > 0 and sqlite3.sqlite_version_info >= _WITH_TRIGRAMS

    def add(self, numbers: Sequence[int]) -> None:
        """Put items into the index, if there is one, within a transaction."""
        self._change(numbers, "INSERT INTO {0} (rowid, {1}) SELECT number, {1}")

    def remove(self, numbers: Sequence[int]) -> None:
        """Take items out of the index within a transaction, before they are changed or removed."""
        self._change(numbers, "INSERT INTO {0} ({0}, rowid, {1}) SELECT 'delete', number, {1}")

    def _change(self, numbers: Sequence[int], sql: str) -> None:
        if not numbers or not self._exists():
            return
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
        """Return the best ``k`` of the items that pass a filter. Ties are broken by the order of
        adding.

        Items that have one of the phrases ``without`` do not count, nor do items whose words have
        less than ``coverage`` of the weight of all words of the question.
        """
        self._notice_writes()
        words = self._split(text)
        weights = self._weights(words)
        if not weights:
            return Ranking([], [])
        matches = _WordLookup(self._connection, where, self._unwanted(without))
        rare, frequent = self._part_by_frequency(list(weights))
        scores = _best(matches.weighted(rare, frequent, weights), k)
        for together in _runs(frequent):
            if len(scores) >= k:
                break
            weight = sum(weights[word] for word in together)
            for number in matches.find(_all(together), k + len(scores)).tolist():
                scores.setdefault(number, weight)
        least = coverage * sum(self._weight(self._count(word)) for word in words)
        return self._rank({n: score for n, score in scores.items() if score >= least - 1e-9}, k)

    def _rank(self, scores: Mapping[int, float], k: int) -> Ranking:
        """Return the ids of the ``k`` highest scores by number. Ties are broken by number."""
        order = sorted(scores, key=lambda number: (-scores[number], number))[:k]
        sql = "SELECT number, id FROM items WHERE number IN (SELECT value FROM json_each(?))"
        ids = dict(self._connection.execute(sql, (json.dumps(order),)).fetchall())
        return Ranking([ids[number] for number in order], [scores[number] for number in order])

    def _unwanted(self, phrases: Sequence[str]) -> dict[str, str]:
        """Return index -> the expression for items that have any of these phrases.

        A phrase counts as parts only if each of its words is long enough to count fully there.
        """
        split = [words for words in map(self._split, phrases) if words]
        as_parts = [words for words in split if min(map(_share, words)) == 1]
        return {
            "words": _any(map(_all, split)),
            "parts": _any(_all(map(_join, words)) for words in as_parts),
        }

    def _part_by_frequency(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Part words, given rarest first, into the rare ones and a few frequent ones."""
        rows = np.cumsum([self._count(word) for word in words])
        n_rare = int(np.searchsorted(rows, _ROWS, side="right"))
        return words[:n_rare], words[n_rare : n_rare + _FREQUENT]

    def counts(self) -> dict[str, int]:
        """Return word -> the number of items that have it."""
        self._connection.execute(
            "CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab(main, words, row)"
        )
        return dict(self._connection.execute("SELECT term, doc FROM temp.terms").fetchall())

    def _notice_writes(self) -> None:
        """Forget the counts of words once this or another connection has written."""
        state = (self._number("PRAGMA data_version"), self._connection.total_changes)
        if state != self._state or len(self._counts) > _KEPT:
            self._state = state
            self._counts = {}
            self._n_items = self._number("SELECT coalesce(max(number), 0) FROM items")

    def _weights(self, words: Sequence[str]) -> dict[str, float]:
        """Return word -> weight, rarest first, of the words that some items have.

        Of many items, a word that more than a tenth have is left out, unless none is rarer.
        """
        counts = sorted((self._count(word), word) for word in words)
        found = [(count, word) for count, word in counts if count]
        if found and self._n_items > _MANY:
            most = max(found[0][0], _EVERYWHERE * self._n_items)
            found = [(count, word) for count, word in found if count <= most]
        return {word: self._weight(count) for count, word in found}

    def _weight(self, count: int) -> float:
        """Return the weight of a word that ``count`` items have; 0 counts as 1."""
        return math.log(1 + self._n_items / max(count, 1))

    def _count(self, word: str) -> int:
        """Return how many items have a word.

        Items that have it only as a part count too, unless parts of its length count half and other
        items have the whole word.
        """
        if word not in self._counts:
            whole = _phrase(word)
            sql = "SELECT count(*) FROM words WHERE words MATCH ?"
            count = self._number(sql, whole)
            if _share(word) > 0.5 * bool(count):
                sql = "SELECT count(*) FROM parts WHERE parts MATCH ?"
                sql += " AND rowid NOT IN (SELECT rowid FROM words WHERE words MATCH ?)"
                count += self._number(sql, _phrase(_join(word)), whole)
            self._counts[word] = count
        return self._counts[word]

    def _number(self, sql: str, *parameters: str) -> int:
        return int(self._connection.execute(sql, parameters).fetchone()[0])


@dataclass(frozen=True)
class _WordLookup:
    """Items with given words, of those that pass a filter and have nothing that is unwanted.

    Attributes:
        connection: to the database.
        where: the filter.
        unwanted: index -> expression, empty where everything is wanted.
    """

    connection: sqlite3.Connection
    where: SqlCondition
    unwanted: Mapping[str, str]

    def find(
        self, expression: str, limit: int = _ROWS, index: str = "words", among: _Numbers = _NONE
    ) -> _Numbers:
        """Return the numbers of the first items that match, of some items if these are given."""
        join = "" if self.where.sql == "true" else f"CROSS JOIN items ON number = {index}.rowid"
        unwanted = self.unwanted[index]
        exclusion = f" NOT ({unwanted})" if unwanted else ""
        sql = f"{index} MATCH ? AND {self.where.sql}"
        parameters = [f"({expression}){exclusion}", *self.where.parameters]
        for other in self.unwanted.keys() - {index}:
            if self.unwanted[other]:
                sql += (
                    f" AND {index}.rowid NOT IN (SELECT rowid FROM {other} WHERE {other} MATCH ?)"
                )
                parameters.append(self.unwanted[other])
        if len(among):  # the index is read in turn; without the + each row would be sought
            sql += f" AND +{index}.rowid IN (SELECT value FROM json_each(?))"
            parameters.append(json.dumps(among.tolist()))
        sql = f"SELECT {index}.rowid FROM {index} {join} WHERE {sql} LIMIT ?"
        cursor = self.connection.execute(sql, (*parameters, limit))
        return np.fromiter((number for (number,) in cursor), np.int64)

    def weighted(
        self, rare: Sequence[str], frequent: Sequence[str], weights: Mapping[str, float]
    ) -> list[tuple[_Numbers, float]]:
        """Return the items that have each word, and what it adds to their scores.

        Items that have a word only as a part come apart, as it may count less there. Frequent words
        are looked for only among items with a rare word, or with a part.
        """
        parts = {
            word: self.find(_phrase(_join(word)), index="parts")
            for word in (*rare, *frequent)
            if _share(word)
        }
        with_part = _union(parts.values())
        whole = {word: self.find(_phrase(word)) for word in rare}
        for word in frequent:
            found = []
            if rare:
                any_rare = _any(map(_phrase, rare))
                found.append(self.find(f"{_phrase(word)} AND ({any_rare})"))
            if len(with_part):
                found.append(self.find(_phrase(word), limit=-1, among=with_part))
            whole[word] = _union(found)
        weighted = [(numbers, weights[word]) for word, numbers in whole.items()]
        for word, numbers in parts.items():
            only_part = np.setdiff1d(numbers, whole[word])
            weighted.append((only_part, weights[word] * _share(word)))
        return weighted


def _runs(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the words to find together: those from the first on, the longest run first, then those
    from the second on, and so forth.

    >>> [*_runs("abc")]
    ['abc', 'ab', 'a', 'bc', 'b', 'c']
    """
    for start in range(len(words)):
        for end in range(len(words), start, -1):
            yield words[start:end]


def _share(word: str) -> float:
    """Return the share of a word's weight that counts where it is a part of what was read in an
    image.

    >>> [_share(word) for word in ("no", "hat", "stop2", "harper", "黒 い 猫")]
    [0.0, 0.5, 1.0, 1.0, 1.0]
    """
    part = _join(word)
    if len(part) < 3:  # the index knows no shorter parts
        return 0.0
    is_telling = len(part) >= 5 or _RUN.search(part) or any(map(str.isdigit, part))
    return 1.0 if is_telling else 0.5


def _phrase(word: str) -> str:
    return f'"{word}"'


def _all(words: Iterable[str]) -> str:
    return " AND ".join(map(_phrase, words))


def _any(expressions: Iterable[str]) -> str:
    return " OR ".join(f"({expression})" for expression in expressions)


def _union(found: Iterable[_Numbers]) -> _Numbers:
    return np.unique(np.concatenate([_NONE, *found]))


def _best(weighted: Sequence[tuple[_Numbers, float]], k: int) -> dict[int, float]:
    """Return the ``k`` numbers with the largest sums of weights. Ties are broken by number."""
    numbers, places = np.unique(np.concatenate([rows for rows, _ in weighted]), return_inverse=True)
    weights = np.concatenate([np.full(len(rows), weight) for rows, weight in weighted])
    sums = np.bincount(places, weights, len(numbers))
    best = np.lexsort((numbers, -sums))[:k]
    return dict(zip(numbers[best].tolist(), sums[best].tolist(), strict=True))
