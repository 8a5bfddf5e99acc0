"""Stored items as the API and the page show them."""

from typing import Any
from urllib.parse import quote

from channelhash.search.store import Item
from channelhash.serve.schemas import ItemAnswer, Result


def result(item: Item, distance: int, modality: str) -> Result:
    """One answer of a search of a modality's codes."""
    return Result(
        distance=distance,
        code=item.codes[modality].tobytes().hex(),
        modalities=sorted(item.codes),
        **_shown(item),
    )


def item_answer(item: Item) -> ItemAnswer:
    """One item with all its codes."""
    return ItemAnswer(codes={name: code.tobytes().hex() for name, code in item.codes.items()}, **_shown(item))


def _shown(item: Item) -> dict[str, Any]:
    """What is told of any item: its picture by the address of its thumbnail, never by a path on this machine."""
    known = dict(item.metadata)
    labels = known.pop("labels", None)
    return {
        "id": item.id,
        "text": str(known.pop("text", None) or ""),
        "labels": labels if isinstance(labels, list) else [],
        "image": f"images/{quote(item.id, safe='')}" if known.pop("image", None) else "",
        "metadata": known,
    }
