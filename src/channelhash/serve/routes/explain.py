"""``POST /explain`` and ``POST /explain/image``: why two items are as near as they are."""

import io
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import anyio.to_thread
from fastapi import APIRouter, File, Form, HTTPException, UploadFile
from PIL import Image

from channelhash.errors import InputError
from channelhash.explanation.api import coded_side, new_side, stored_side, unlike_stored
from channelhash.explanation.explanation import MapSettings, Side, explain_pair
from channelhash.explanation.occlusion import Encode
from channelhash.search.store import Item
from channelhash.search.validation import choose_modality
from channelhash.serve.error_handlers import PROBLEMS
from channelhash.serve.limits import not_longer
from channelhash.serve.routes.search import packed_code
from channelhash.serve.schemas import ExplainAnswer, ExplainItem, ExplainRequest, MapOptions, Modality
from channelhash.serve.service import Service, Shared
from channelhash.serve.uploads import open_picture

router = APIRouter(tags=["explain"], responses=PROBLEMS)


@router.post("/explain")
async def explain(request: ExplainRequest, service: Shared) -> ExplainAnswer:
    """Why two of words, stored items and codes match: bits, their meanings, and what parts and words matter."""
    began = time.perf_counter()
    for name, item in (("first", request.first), ("second", request.second)):
        given = [key for key in ("text", "id", "code") if getattr(item, key) is not None]
        if len(given) != 1:
            raise HTTPException(
                422, f"{name}: give exactly one of text, id and code, not {' and '.join(given) or 'none'}"
            )
        if item.text is not None and item.modality == "image":
            raise HTTPException(422, f"{name}.modality: a text has the modality text; leave it out")
        not_longer(f"{name}.text", item.text, service.limits.characters)
        if item.text is not None and not item.text.strip():
            raise HTTPException(422, f"{name}.text: is empty; give some words")

    def sides() -> tuple[Side, Side]:
        encoders = _encoders(service)
        return _side(service, request.first, encoders), _side(service, request.second, encoders)

    return await anyio.to_thread.run_sync(partial(_answer, service, sides, request, began), limiter=service.explaining)


@router.post("/explain/image")
async def explain_picture(
    service: Shared,
    image: Annotated[UploadFile, File(description="A picture: JPEG, PNG, WebP, GIF, BMP or TIFF.")],
    id: Annotated[str, Form(min_length=1, description="The item of the store that it is compared with.")],
    modality: Annotated[Modality | None, Form(description="Which of the item's codes.")] = None,
    maps: Annotated[bool, Form()] = True,
    cells: Annotated[int, Form(ge=1, le=32)] = 8,
    patch: Annotated[int, Form(ge=1, le=32)] = 2,
    fill: Annotated[Literal["grey", "blur"], Form()] = "grey",
) -> ExplainAnswer:
    """Why an uploaded picture matches a stored item. The picture is not kept."""
    began = time.perf_counter()
    _, content = await service.open_picture(image)
    options = MapOptions(maps=maps, cells=cells, patch=patch, fill=fill)

    def sides() -> tuple[Side, Side]:
        encoders = _encoders(service)
        if "image" not in encoders:
            raise InputError(f"this server cannot encode a new image: {service.problems['image']}")
        asked = _picture(content, "your picture", encoders["image"])
        return asked, _side(service, ExplainItem(id=id, modality=modality), encoders)

    return await anyio.to_thread.run_sync(partial(_answer, service, sides, options, began), limiter=service.explaining)


def _answer(
    service: Service, sides: Callable[[], tuple[Side, Side]], options: MapOptions, began: float
) -> ExplainAnswer:
    """In a worker thread: the pair, its meanings and maps."""
    limits = service.limits
    settings = MapSettings(options.cells, options.patch, options.fill, limits.words, limits.patches)
    first, second = sides()
    found = explain_pair(first, second, service.meanings(), _encoders(service), settings if options.maps else None)
    return ExplainAnswer(**found.as_dict(), seconds=time.perf_counter() - began)


def _encoders(service: Service) -> dict[str, Encode]:
    return {modality: partial(service.encode_from_thread, modality) for modality in service.batchers}


def _side(service: Service, asked: ExplainItem, encoders: dict[str, Encode]) -> Side:
    """One item of the pair, as the request names it."""
    if asked.text is not None:
        if "text" not in encoders:
            raise InputError(f"this server cannot encode a new text: {service.problems['text']}")
        return new_side("text", asked.text, encoders["text"])
    store = service.store
    if asked.code is not None:
        code = packed_code(service, asked.code)
        modality = asked.modality or ("image" if "image" in store.modalities or not store.modalities else "text")
        return coded_side(code, modality, "a code", store.n_bits or 0, "only its bits are known")
    item = service.item(asked.id or "")
    there = choose_modality(None, sorted(item.codes), "this item") if asked.modality is None else asked.modality
    if there not in item.codes:
        raise HTTPException(422, f"modality: this item has no {there} code, only {' and '.join(item.codes)}")
    n_bits = store.n_bits or 0
    if there not in encoders:
        return coded_side(item.codes[there], there, item.id, n_bits, service.problems[there])
    path = item.metadata.get("image")
    if there == "image" and isinstance(path, str) and path:
        return _stored_picture(service, item, Path(path), encoders["image"])
    return stored_side(item, there, n_bits, encoders)


def _stored_picture(service: Service, item: Item, path: Path, encode: Encode) -> Side:
    """An item's picture, looked at as an upload would be; no answer holds its path."""
    code, n_bits = item.codes["image"], service.store.n_bits or 0
    try:
        content = path.read_bytes()
        open_picture(content, service.limits.pixels)
    except (OSError, HTTPException):
        return coded_side(code, "image", item.id, n_bits, "its picture is not there any more, or cannot be read")
    return unlike_stored(_picture(content, item.id, encode), code, n_bits)


def _picture(content: bytes, name: str, encode: Encode) -> Side:
    """A picture from its file's content, opened twice: a model may decode it smaller."""
    outputs = encode([Image.open(io.BytesIO(content))])[0]
    return Side("image", name, outputs, Image.open(io.BytesIO(content)))
