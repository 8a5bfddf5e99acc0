"""``POST /search`` and ``POST /search/image``: a query comes in, the nearest items go out."""

import time
from typing import Annotated

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Form, HTTPException, Response

from channelhash.codes import PackedCodes, binarize, check_packed, pack
from channelhash.errors import InputError
from channelhash.search.hits import Hits, Query, search_hits
from channelhash.search.hits import SearchOptions as StoreOptions
from channelhash.serve.batching import Outputs
from channelhash.serve.error_handlers import PROBLEMS
from channelhash.serve.limits import check_length, check_number
from channelhash.serve.responses import format_code, make_result
from channelhash.serve.routing import Route
from channelhash.serve.schemas import Modality, SearchOptions, SearchRequest, SearchResponse
from channelhash.serve.service import CurrentService, Service
from channelhash.serve.uploads import UploadedImage

router = APIRouter(tags=["search"], responses=PROBLEMS, route_class=Route)


@router.post("/search", response_model=SearchResponse)
async def search(request: SearchRequest, service: CurrentService) -> Response:
    """Return the items nearest to words, to an item of the store, or to a code."""
    start = time.perf_counter()
    queries = [name for name in ("text", "id", "code") if getattr(request, name) is not None]
    if len(queries) != 1:
        raise HTTPException(422, f"give exactly one of text, id and code, not {' and '.join(queries) or 'none'}")
    if request.query_modality is not None and request.id is None:
        raise HTTPException(422, "query_modality: says which code of an item asks; give it with id")
    _check_options(request, service)
    for name in ("text", "id"):
        check_length(name, getattr(request, name), service.limits.characters)
    if request.text is not None:
        if not request.text.strip():
            raise HTTPException(422, "text: is empty; give some words")
        return await _search_outputs(service, request, await service.encode("text", request.text), "text", start)
    if request.rerank:
        raise HTTPException(422, "rerank: needs the query's real-valued outputs; ask with words or a picture")
    make_query = _query_like if request.id is not None else _query_code

    def work() -> Response:
        return _search(service, request, *make_query(service, request), start)

    return await run_sync(work, limiter=service.searching)


def _read_form(
    modality: Annotated[Modality | None, Form()] = None,
    k: Annotated[int, Form(ge=1)] = 10,
    radius: Annotated[int | None, Form(ge=0)] = None,
    where: Annotated[str | None, Form()] = None,
    rerank: Annotated[int, Form(ge=0)] = 0,
    collapse: Annotated[int | None, Form(ge=0)] = None,
) -> SearchOptions:
    return SearchOptions(modality=modality, k=k, radius=radius, where=where, rerank=rerank, collapse=collapse)


@router.post("/search/image", response_model=SearchResponse)
async def search_by_image(
    service: CurrentService, image: UploadedImage, options: Annotated[SearchOptions, Depends(_read_form)]
) -> Response:
    """Return the items nearest to an uploaded picture. The picture is not kept."""
    start = time.perf_counter()
    _check_options(options, service)
    async with service.open_image(image) as (opened, _):
        outputs = await service.encode("image", opened)
    return await _search_outputs(service, options, outputs, "image", start)


def unpack_hex(service: Service, code: str) -> PackedCodes:
    """Read a packed code from hexadecimal digits, or refuse with status 422 if it does not fit the store's."""
    n_bits = service.store.n_bits
    if n_bits is None:
        raise HTTPException(422, "code: the store is empty")
    packed = np.frombuffer(bytes.fromhex(code), np.uint8)
    try:
        check_packed(packed[None], n_bits)
    except ValueError:
        raise HTTPException(
            422,
            f"code: {len(code)} hexadecimal digits; {n_bits} bits are {2 * -(-n_bits // 8)}, the rest of the last 0",
        ) from None
    return packed


def _check_options(options: SearchOptions, service: Service) -> None:
    """Check what needs no call of the store, for which the event loop must not wait."""
    limits = service.limits
    check_number("k", options.k, limits.k)
    check_number("rerank", options.rerank, limits.rerank)
    check_length("where", options.where, limits.characters)


def _query_like(service: Service, request: SearchRequest) -> tuple[Query, str]:
    """Return the code of a stored item as a query, and the code's modality."""
    item = service.get_item(request.id or "")
    searched = service.store.choose_modality(request.modality)
    modality = request.query_modality or (searched if searched in item.codes else min(item.codes))
    if modality not in item.codes:
        raise HTTPException(422, f"query_modality: this item has no {modality} code, only {' and '.join(item.codes)}")
    return Query(item.codes[modality], modality=modality), modality


def _query_code(service: Service, request: SearchRequest) -> tuple[Query, str]:
    return Query(unpack_hex(service, request.code or "")), ""


async def _search_outputs(
    service: Service, options: SearchOptions, outputs: Outputs, query_modality: str, start: float
) -> Response:
    query = Query(pack(binarize(outputs[None]))[0], outputs, query_modality)
    return await run_sync(_search, service, options, query, query_modality, start, limiter=service.searching)


def _search(service: Service, options: SearchOptions, query: Query, query_modality: str, start: float) -> Response:
    """Search, and write the answer: in this thread, for it may be long."""
    store = service.store
    n_bits = store.n_bits or 8 * len(query.code)
    check_number("radius", options.radius, n_bits)
    check_number("collapse", options.collapse, n_bits)
    modality: str = options.modality or "image"
    hits = Hits()
    if store.modalities:  # otherwise it is empty
        modality = store.choose_modality(options.modality)
        store_options = StoreOptions(
            options.k,
            options.radius,
            options.k,
            modality,
            options.where or None,
            options.rerank or None,
            options.collapse,
        )
        try:
            hits = search_hits(store, query, store_options)
        except InputError:  # a hit may have been deleted before it was read
            hits = search_hits(store, query, store_options)
    answer = SearchResponse(
        query_code=format_code(query.code),
        query_modality=query_modality,
        modality=modality,
        n_bits=n_bits,
        results=[make_result(hit) for hit in hits],
        close=hits.close,
        seconds=time.perf_counter() - start,
    )
    return Response(answer.model_dump_json(), media_type="application/json")
