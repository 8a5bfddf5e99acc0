"""Scripts that put no spaces between words: each of their letters is a word of the index, and a word is a phrase.

The index splits texts at what is neither letter nor digit, and so would take a Chinese sentence for one word, and a
Thai or Hindi word for several, split at its vowel signs. Letters are therefore moved to planes of private use, all of
which are letters to SQLite, vowel signs too; those of scripts without spaces are separated. Korean has spaces, but
particles are written to its nouns, so its syllables are separated as well.
"""

import re
import unicodedata

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


def separate(text: str) -> str:
    """Return a text as it is indexed: the letters of scripts without spaces are words.

    >>> separate("a cat"), len(separate("黒い猫").split())
    ('a cat', 4)
    """
    if text.isascii():
        return text
    return _RUN.sub(lambda run: f" {_BORDER} {_phrase(run[0])} ", _composed(text))


def take_phrases(text: str) -> tuple[str, list[str]]:
    """Return what a text has in scripts with spaces, as it is indexed, and its runs in others as phrases.

    >>> words, phrases = take_phrases("a 猫 cat 黒い")
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
