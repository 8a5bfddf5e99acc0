"""Stored items as responses, images by the address of a thumbnail, never by a path; and the parts of a query."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from channelhash.codes import PackedCodes
from channelhash.search.catalogue import date_of
from channelhash.search.hits import Hit
from channelhash.search.query import Part
from channelhash.search.store import Item
from channelhash.serve.schemas import BrowsedItem, ItemResponse, Result, SearchOptions, SearchRequest, Understood
from channelhash.utils.image_files import open_image, upright_size

# Sizes of pictures that are kept, of which the store knows none.
_SIZES = 1 << 16


def make_result(hit: Hit) -> Result:
    """Return one result of a search as a response.

    >>> make_result(Hit("a/1", 2, "a dog", ["dog"], "photos/1.jpg")).image
    'images/a%2F1'
    """
    return Result(
        id=hit.id,
        distance=hit.distance,
        code=format_code(hit.code),
        text=hit.text,
        labels=hit.labels,
        image=_image(hit.id, hit.image),
        modalities=list(hit.modalities),
        metadata=hit.metadata,
        match=hit.match,
        duplicates=hit.duplicates,
        **_photograph(hit.metadata, hit.image),
    )


def make_item_response(item: Item) -> ItemResponse:
    """Return one item with all its codes as a response.

    >>> import numpy as np
    >>> item = Item("17", {"text": np.array([255], np.uint8)}, {"text": "a dog", "year": 2020})
    >>> make_item_response(item).codes, make_item_response(item).metadata
    ({'text': 'ff'}, {'year': 2020})
    """
    codes = {modality: format_code(code) for modality, code in item.codes.items()}
    return ItemResponse(codes=codes, **dict(make_browsed_item(item)))


def make_browsed_item(item: Item) -> BrowsedItem:
    """Return one item without its codes as a response.

    >>> make_browsed_item(Item("17", {}, {"taken": "2019-07-14 10:20:30", "labels": ["dog"]})).date
    '2019-07-14 10:20:30'
    """
    metadata = dict(item.metadata)
    text, image, labels = (metadata.pop(key, None) for key in ("text", "image", "labels"))
    return BrowsedItem(
        id=item.id,
        text=str(text or ""),
        labels=labels if isinstance(labels, list) else [],
        image=_image(item.id, image),
        metadata=metadata,
        **_photograph(metadata, str(image or "")),
    )


def format_code(code: PackedCodes) -> str:
    """Write a packed code ``(b,)`` as ``2 b`` digits.

    >>> import numpy as np
    >>> format_code(np.array([15, 1], np.uint8))
    '0f01'
    """
    return code.tobytes().hex()


def content_tag(content: bytes) -> str:
    """Return the header ``ETag`` of a response's content.

    >>> content_tag(b"body {}")
    '"62368a1a29259b30"'
    """
    return f'"{hashlib.sha256(content).hexdigest()[:16]}"'


def understood(options: SearchOptions, words: Sequence[Part], image: bool = False) -> list[Understood]:
    """Return the parts of a search: what is wanted, what is not, and what the answers are narrowed to.

    Args:
        options: the request.
        words: the parts of its text.
        image: whether an image came with it.

    >>> from channelhash.search.query import parse_question
    >>> parts = understood(SearchOptions(month="2019-07"), parse_question("a dog -people"))
    >>> [(part.kind, part.value) for part in parts]
    [('words', 'a dog'), ('without', 'people'), ('month', '2019-07')]
    """
    found = [Understood(kind="image", value="")] * image
    if isinstance(options, SearchRequest):
        found += [Understood(kind="item", value=options.id)] if options.id is not None else []
        found += [Understood(kind="code", value=options.code)] if options.code is not None else []
    for part in words:
        found.append(_words("without" if part.weight < 0 else "words", part))
    found += [Understood(kind="without", value=what) for what in options.minus]
    if isinstance(options, SearchRequest):
        found += [Understood(kind="without_item", value=item_id) for item_id in options.minus_ids]
    found += [Understood(kind="label", value=label) for label in options.label]
    found += [Understood(kind="folder", value=options.folder)] if options.folder else []
    found += [Understood(kind="month", value=options.month)] if options.month else []
    found += [Understood(kind="where", value=options.where)] if options.where else []
    return found


def _words(kind: Literal["words", "without"], part: Part) -> Understood:
    return Understood(kind=kind, value=part.content, weight=abs(part.weight))


def _photograph(metadata: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return an item's date, and the size of its picture: as it is stored, or else as its file has it."""
    width, height = metadata.get("width"), metadata.get("height")
    if path and not (isinstance(width, int) and isinstance(height, int)):
        try:
            width, height = _size(path, Path(path).stat().st_mtime_ns)
        except OSError:
            width = height = None
    return {"date": date_of(metadata), "width": width if path else None, "height": height if path else None}


@lru_cache(_SIZES)
def _size(path: str, _changed: int) -> tuple[int, int]:
    with open_image(path) as opened:
        return upright_size(opened)


def _image(item_id: str, path: object) -> str:
    return f"images/{quote(item_id, safe='')}" if path else ""
