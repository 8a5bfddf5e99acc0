"""What milvus-lite 2.5, the Milvus in a file, cannot do, and how a store gets by: by reading, fit for small stores.

* It writes ids into SQL without escapes, and its expressions know only the escapes ``\\"`` and ``\\\\``: ids are stored
  with ``'`` and control characters spelled in others, such that their order stays the same.
* It has no ``not``, and its LIKE goes wrong on ``_`` and on backslashes: the ids that pass are read, and listed.
* It hangs up on connections that ping as often as pymilvus does.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from channelhash.errors import InputError
from channelhash.search.filters import like_expression
from channelhash.search.milvus.filters import ALL, NONE, Dialect

#: For `pymilvus.MilvusClient`: no pings.
GRPC_OPTIONS = {"grpc.keepalive_time_ms": 2**31 - 1}

# Control characters come before the blank, "'" after "&": each is spelled by that neighbour and a second character.
_SPELLED = {**{chr(code): " " + chr(code + 0x40) for code in range(32)}, " ": " a", "&": "&a", "'": "&b"}
_READ = {spelled: character for character, spelled in _SPELLED.items()}


def stored_id(item_id: str) -> str:
    """Return how an id is stored; of two ids, the lower one is stored as the lower string.

    >>> stored_id("it's"), stored_id("a b")
    ('it&bs', 'a ab')
    """
    return "".join(_SPELLED.get(character, character) for character in item_id)


def item_id(stored: str) -> str:
    """Return the id that is stored so.

    >>> item_id("it&bs")
    "it's"
    """
    return re.sub("[ &].", lambda match: _READ[match[0]], stored)


def quote(text: str) -> str:
    """Quote a string for an expression.

    Raises:
        InputError: it holds control characters.

    >>> print(quote("sea"))
    "sea"
    """
    if any(character < " " for character in text):
        raise InputError(f"{text!r}: milvus-lite cannot compare with control characters; a Milvus server can")
    return json.dumps(text, ensure_ascii=False)


def dialect(
    key_sets: Collection[str],
    passing: Callable[[str], Iterable[str]],
    metadata: Callable[[], Iterable[tuple[str, Mapping[str, Any]]]],
) -> Dialect:
    """See `Dialect`.

    Args:
        key_sets: the different values of the field ``keys``.
        passing: expression -> stored ids of the items for which it holds.
        metadata: the stored ids of all items and their metadata.
    """

    def listed(stored: Iterable[str], word: str, if_empty: str) -> str:
        texts = ", ".join(map(quote, stored))
        return f"id {word} [{texts}]" if texts else if_empty

    def like(key: str, pattern: str) -> str:
        fits = like_expression(pattern)
        values = ((stored, item_id(stored) if key == "id" else of.get(key)) for stored, of in metadata())
        matching = [stored for stored, value in values if isinstance(value, str) and fits.fullmatch(value)]
        return listed(matching, "in", NONE)

    return Dialect(key_sets, quote, stored_id, lambda expression: listed(passing(expression), "not in", ALL), like)
