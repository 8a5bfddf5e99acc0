"""The language of questions: ``a beach "two dogs"^2 -people`` says what is wanted, how much, and what is not.

Words make one phrase, which is encoded as a whole. Phrases in double quotes, words with a weight (``^2``) and words
with a minus in front are parts of their own. Hyphens and quotes inside words, and lone dashes, are characters.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.errors import InputError

#: Most parts of a question.
MAX_PARTS = 32
#: Largest weight of a part.
MAX_WEIGHT = 100.0

_TOKEN = re.compile(r'(-?)"([^"]*)"(?:\^(\d+(?:\.\d*)?))?|(\S+)')
_WORD = re.compile(r"(-(?=[^-]))?(.+?)(?:\^(\d+(?:\.\d*)?))?", re.DOTALL)


class Part(NamedTuple):
    """A part of a question.

    Attributes:
        content: words; in a question that is not of words alone, perhaps an image or outputs of a stored item.
        weight: how much it counts, below 0 if it is not wanted.

    >>> Part("people", -1.0).weight
    -1.0
    """

    content: Any
    weight: float = 1.0


def parse_question(text: str) -> list[Part]:
    """Read words, phrases in quotes, weights and minuses.

    Raises:
        InputError: there are no words, a quote is not closed, a phrase is empty, a weight is out of range, or there are
            too many parts.

    >>> [(part.content, part.weight) for part in parse_question('a beach "two dogs"^2 -people')]
    [('a beach', 1.0), ('two dogs', 2.0), ('people', -1.0)]
    >>> parse_question("a well-lit room - 5\\" high")[0].content
    'a well-lit room - 5" high'
    """
    phrase: list[str] = []
    parts: list[Part] = []
    for minus, quoted, weight, token in _TOKEN.findall(text.replace("“", '"').replace("”", '"')):
        words = quoted.strip()
        if token:
            if token.startswith(('"', '-"')):
                raise InputError(f"{token}: a quote is opened and not closed; close it, or leave it out")
            match = _WORD.fullmatch(token)
            minus, words, weight = match.groups("") if match else ("", token, "")
            if not minus and not weight:
                phrase.append(words)
                continue
        if not words:
            raise InputError('"": a phrase in quotes is empty; give it some words, or leave the quotes out')
        parts.append(Part(words, _weight(weight) * (-1 if minus else 1)))
    if phrase:
        parts.insert(0, Part(" ".join(phrase)))
    return check_parts(parts)


def check_parts(parts: list[Part]) -> list[Part]:
    """Return the parts of a question, if they can be answered.

    Raises:
        InputError: there are none, or too many, or nothing is wanted.

    >>> check_parts([Part("people", -1)])
    Traceback (most recent call last):
    channelhash.errors.InputError: -people: says only what is not wanted; add what is
    """
    if not parts:
        raise InputError("the question is empty; give some words")
    if len(parts) > MAX_PARTS:
        raise InputError(f"the question has {len(parts)} parts; at most {MAX_PARTS} are taken together")
    if all(part.weight < 0 for part in parts):
        what = parts[0].content if isinstance(parts[0].content, str) else "the question"
        raise InputError(f"-{what}: says only what is not wanted; add what is")
    return parts


def combine(outputs: NDArray[np.floating[Any]], weights: Sequence[float]) -> NDArray[np.float32]:
    """Add up the real-valued outputs of a question's parts: Σ_i w_i u_i / ‖u_i‖, whose signs are the code.

    A single part is returned as it is, for its direction is the sum's.

    Args:
        outputs: ``(n, k)``, a row a part.
        weights: ``n`` of them.

    Returns:
        ``(k,)``.

    Raises:
        InputError: nothing is left, since the parts cancel out.

    >>> combine(np.array([[3.0, 4.0], [0.0, 2.0]]), [1.0, -0.3]).tolist()
    [0.6000000238418579, 0.5]
    """
    rows = np.asarray(outputs, np.float32)
    if len(rows) == 1:
        return np.asarray(rows[0])
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    added = np.asarray(weights, np.float32) @ (rows / norms)
    if np.linalg.norm(added) < 1e-6 * max(map(abs, weights)):
        raise InputError("the question: its parts cancel out; leave one of them out, or weigh them apart (^2)")
    return np.asarray(added, np.float32)


def wanted_words(parts: Iterable[Part]) -> str:
    """Return the words that are wanted, for full-text search.

    >>> wanted_words(parse_question('beach "two dogs"^2 -people'))
    'beach two dogs'
    """
    return " ".join(part.content for part in parts if part.weight > 0 and isinstance(part.content, str))


def unwanted_phrases(parts: Iterable[Part]) -> tuple[str, ...]:
    """Return the phrases that are not wanted, for full-text search.

    >>> unwanted_phrases(parse_question('beach -people -"beach ball"'))
    ('people', 'beach ball')
    """
    return tuple(part.content for part in parts if part.weight < 0 and isinstance(part.content, str))


def _weight(digits: str) -> float:
    weight = float(digits or 1)
    if not 0 < weight <= MAX_WEIGHT:
        raise InputError(f"^{digits[:20]}: a weight is above 0 and at most {MAX_WEIGHT:g}")
    return weight
