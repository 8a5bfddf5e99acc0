"""``POST /explain`` and ``POST /explain/image``: why two items are as near as they are."""

import io
import time
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, File, HTTPException, Response

from channelhash.explanation import api
from channelhash.explanation.occlusion import Encode
from channelhash.search.items import choose_modality
from channelhash.search.store import Item
from channelhash.serve.images import open_upload
from channelhash.serve.middleware import PROBLEMS
from channelhash.serve.routing import Route
from channelhash.serve.schemas import ExplainItem, ExplainRequest, ExplainResponse, ImageExplanation, MapOptions
from channelhash.serve.search import unpack_hex
from channelhash.serve.service import CurrentService, Service
from channelhash.utils.image_files import STORED_FORMATS, open_image

router = APIRouter(tags=["explain"], responses=PROBLEMS, route_class=Route)


@router.post("/explain", response_model=ExplainResponse)
async def explain(request: ExplainRequest, service: CurrentService) -> Response:
    """Explain why two of words, stored items and codes match: bits, their labels, and what parts and words matter."""

    def make_sides() -> tuple[api.Side, api.Side]:
        return _make_side(service, request.first), _make_side(service, request.second)

    return await _explain(service, make_sides, request)


@router.post("/explain/image", response_model=ExplainResponse)
async def explain_image(service: CurrentService, request: Annotated[ImageExplanation, File()]) -> Response:
    """Explain why an uploaded picture matches a stored item. The picture is not kept."""
    async with service.open_image(request.image) as (_, content):

        def make_sides() -> tuple[api.Side, api.Side]:
            uploaded = _encode_file(service, content, "your picture")
            return uploaded, _make_side(service, ExplainItem(id=request.id, modality=request.modality))

        return await _explain(service, make_sides, request)


async def _explain(
    service: Service, make_sides: Callable[[], tuple[api.Side, api.Side]], options: MapOptions
) -> Response:
    """Encode the pair, find its labels, draw its maps and write the answer, in a worker thread."""
    start = time.perf_counter()

    def work() -> Response:
        limits = service.limits
        settings = api.MapSettings(options.cells, options.patch, options.fill, limits.words, limits.patches)
        explanation = api.explain_pair(
            make_sides(), service.bit_labels(), _encoders(service), settings if options.maps else None
        )
        answer = ExplainResponse(**explanation.as_dict(), seconds=time.perf_counter() - start)
        return Response(answer.model_dump_json(), media_type="application/json")

    return await anyio.to_thread.run_sync(work, limiter=service.explaining)


def _encoders(service: Service) -> dict[str, Encode]:
    return {modality: partial(service.encode_from_thread, modality) for modality in service.encoding.result().batchers}


def _make_side(service: Service, request: ExplainItem) -> api.Side:
    """Return one item of the pair, as the request names it."""
    if request.text is not None:
        return api.encode_side("text", request.text, partial(service.encode_from_thread, "text"))
    store = service.store
    n_bits = store.n_bits or 0
    if request.code is not None:
        code = unpack_hex(service, request.code)
        default = "text" if store.modalities and "image" not in store.modalities else "image"
        return api.unpack_side(code, request.modality or default, "a code", n_bits, "only its bits are known")
    item = service.get_item(request.id or "")
    modality = request.modality or choose_modality(None, sorted(item.codes), "this item")
    if modality not in item.codes:
        raise HTTPException(422, f"modality: this item has no {modality} code, only {' and '.join(item.codes)}")
    if problem := service.encoding.result().problems.get(modality):
        return api.unpack_side(item.codes[modality], modality, item.id, n_bits, problem)
    path = item.metadata.get("image")
    if modality == "image" and isinstance(path, str) and path:
        return _load_image(service, item, Path(path))
    return api.load_side(item, modality, n_bits, _encoders(service))


def _load_image(service: Service, item: Item, path: Path) -> api.Side:
    """Encode an item's image, checked like an upload, but with as many pixels as indexing reads.

    No response names its path.
    """
    code, n_bits = item.codes["image"], service.store.n_bits or 0
    try:
        content = path.read_bytes()
        open_upload(content, inf, service.limits.side, STORED_FORMATS)
    except (OSError, HTTPException):
        problem = "its picture is not there any more, cannot be read or is too large"
        return api.unpack_side(code, "image", item.id, n_bits, problem)
    return api.compare_with_stored(_encode_file(service, content, item.id), code, n_bits)


def _encode_file(service: Service, content: bytes, name: str) -> api.Side:
    """Encode an image from its file's content, opened twice: a model may decode it smaller."""
    outputs = service.encode_from_thread("image", [open_image(io.BytesIO(content))])[0]
    return api.Side("image", name, outputs, open_image(io.BytesIO(content)))
