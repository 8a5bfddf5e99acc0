"""``/explain``: why two items match."""

import io
import time
from functools import partial
from pathlib import Path
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, File, HTTPException, Response

from channelhash.explanation.api import Side, explain_pair
from channelhash.explanation.occlusion import Encode, MapSettings
from channelhash.search.checks import choose_modality
from channelhash.search.store import Item
from channelhash.serve import schemas
from channelhash.serve.images import open_upload
from channelhash.serve.routing import PROBLEMS, Route
from channelhash.serve.searcher import unpack_hex
from channelhash.serve.service import CurrentService, Service
from channelhash.utils.image_files import RAW_ENDINGS, STORED_FORMATS, open_image

router = APIRouter(responses=PROBLEMS, route_class=Route)


@router.post("/explain", tags=["explain"], response_model=schemas.ExplainResponse)
async def explain(request: schemas.ExplainRequest, service: CurrentService) -> Response:
    """Explain why two of words, stored items and codes match: by their bits, the labels of these,
    and the parts and words that matter.
    """
    return await _explain(service, request.first, request.second, request)


@router.post("/explain/image", tags=["explain"], response_model=schemas.ExplainResponse)
async def explain_image(
    service: CurrentService, request: Annotated[schemas.ImageExplanation, File()]
) -> Response:
    """Explain why an uploaded image matches a stored item. The image is not kept."""
    async with service.uploads.open(request.image) as (_, content):
        stored = schemas.ExplainItem(id=request.id, modality=request.modality)
        return await _explain(service, content, stored, request)


async def _explain(
    service: Service,
    first: schemas.ExplainItem | bytes,
    second: schemas.ExplainItem,
    options: schemas.MapOptions,
) -> Response:
    """Encode the pair, find its labels, draw its maps and write the answer, in a worker thread."""
    start = time.perf_counter()

    def work() -> Response:
        limits = service.limits
        pair = (_make_side(service, first), _make_side(service, second))
        settings = MapSettings(
            options.cells, options.patch, options.fill, limits.words, limits.patches
        )
        explanation = explain_pair(
            pair,
            service.labels.bit_labels(),
            _encoders(service),
            settings if options.maps else None,
        )
        answer = schemas.ExplainResponse(
            **explanation.as_dict(), seconds=time.perf_counter() - start
        )
        return Response(answer.model_dump_json(), media_type="application/json")

    return await run_sync(work, limiter=service.explaining)


def _encoders(service: Service) -> dict[str, Encode]:
    return {
        modality: partial(service.encode_from_thread, modality)
        for modality in service.encoding.result().batchers
    }


def _make_side(service: Service, request: schemas.ExplainItem | bytes) -> Side:
    """Return one item of the pair, as the request names it, or an uploaded image."""
    if isinstance(request, bytes):
        return _encode_file(service, request, "your picture")
    if request.text is not None:
        return Side.encode("text", request.text, partial(service.encode_from_thread, "text"))
    if request.code is not None:
        return _unpack_side(service, request.code, request.modality)
    return _load_side(service, service.get_item(request.id or ""), request.modality)


def _unpack_side(service: Service, code: str, modality: str | None) -> Side:
    """Return a bare code as a side: of an image unless the store has only texts."""
    store = service.store
    default = "text" if store.modalities and "image" not in store.modalities else "image"
    problem = "only its bits are known"
    packed = unpack_hex(store, code)
    return Side.unpack(packed, modality or default, "a code", store.n_bits or 0, problem)


def _load_side(service: Service, item: Item, named: str | None) -> Side:
    """Return a stored item as a side, encoded again where that is possible."""
    n_bits = service.store.n_bits or 0
    modality = named or choose_modality(None, sorted(item.codes), "this item")
    if modality not in item.codes:
        raise HTTPException(
            422, f"modality: this item has no {modality} code, only {' and '.join(item.codes)}"
        )
    problem = service.encoding.result().problems.get(modality)
    if problem:
        return Side.unpack(item.codes[modality], modality, item.id, n_bits, problem)
    path = item.metadata.get("image")
    if modality == "image" and isinstance(path, str) and path:
        return _load_image(service, item, Path(path))
    return Side.load(item, modality, n_bits, _encoders(service))


def _load_image(service: Service, item: Item, path: Path) -> Side:
    """Encode an item's image, checked like an upload, but with as many pixels as indexing reads.

    No response names its path.
    """
    code = item.codes["image"]
    n_bits = service.store.n_bits or 0
    try:
        is_raw = path.suffix.lower() in RAW_ENDINGS
        content = service.thumbnails.jpeg(path)[0] if is_raw else path.read_bytes()
        open_upload(content, float("inf"), service.limits.side, STORED_FORMATS)
    except (OSError, HTTPException):
        problem = "its picture is not there any more, cannot be read or is too large"
        return Side.unpack(code, "image", item.id, n_bits, problem)
    return _encode_file(service, content, item.id).compare_with_stored(code, n_bits)


def _encode_file(service: Service, content: bytes, name: str) -> Side:
    """Encode an image from its file's content, opened twice: a model may decode it smaller."""
    outputs = service.encode_from_thread("image", [open_image(io.BytesIO(content))])[0]
    return Side("image", name, outputs, open_image(io.BytesIO(content)))
