"""Stored items as the API and the page show them: pictures by the address of a thumbnail, never by a path."""

from urllib.parse import quote

from channelhash.codes import PackedCodes
from channelhash.search.query import Hit
from channelhash.search.store import Item
from channelhash.serve.schemas import ItemAnswer, Result


def shown_hit(hit: Hit) -> Result:
    """One answer of a search."""
    return Result(
        id=hit.id,
        distance=hit.distance,
        code=hexadecimal(hit.code),
        text=hit.text,
        labels=hit.labels,
        image=_image(hit.id, hit.image),
        modalities=list(hit.modalities),
        metadata=hit.metadata,
    )


def shown_item(item: Item) -> ItemAnswer:
    """One item with all its codes."""
    known = dict(item.metadata)
    text, image, labels = known.pop("text", None), known.pop("image", None), known.pop("labels", None)
    return ItemAnswer(
        id=item.id,
        codes={modality: hexadecimal(code) for modality, code in item.codes.items()},
        text=str(text or ""),
        labels=labels if isinstance(labels, list) else [],
        image=_image(item.id, image),
        metadata=known,
    )


def hexadecimal(code: PackedCodes) -> str:
    """A packed code ``(b,)`` as ``2 b`` digits."""
    return code.tobytes().hex()


def _image(item_id: str, path: object) -> str:
    return f"images/{quote(item_id, safe='')}" if path else ""
