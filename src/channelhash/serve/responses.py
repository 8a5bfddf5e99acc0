"""Stored items as responses: images by the address of a thumbnail, never by a path."""

from urllib.parse import quote

from channelhash.codes import PackedCodes
from channelhash.search.hits import Hit
from channelhash.search.store import Item
from channelhash.serve.schemas import ItemResponse, Result


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
    )


def make_item_response(item: Item) -> ItemResponse:
    """Return one item with all its codes as a response.

    >>> import numpy as np
    >>> item = Item("17", {"text": np.array([255], np.uint8)}, {"text": "a dog", "year": 2020})
    >>> make_item_response(item).codes, make_item_response(item).metadata
    ({'text': 'ff'}, {'year': 2020})
    """
    metadata = dict(item.metadata)
    text, image, labels = (metadata.pop(key, None) for key in ("text", "image", "labels"))
    return ItemResponse(
        id=item.id,
        codes={modality: format_code(code) for modality, code in item.codes.items()},
        text=str(text or ""),
        labels=labels if isinstance(labels, list) else [],
        image=_image(item.id, image),
        metadata=metadata,
    )


def format_code(code: PackedCodes) -> str:
    """Write a packed code ``(b,)`` as ``2 b`` digits.

    >>> import numpy as np
    >>> format_code(np.array([15, 1], np.uint8))
    '0f01'
    """
    return code.tobytes().hex()


def _image(item_id: str, path: object) -> str:
    return f"images/{quote(item_id, safe='')}" if path else ""
