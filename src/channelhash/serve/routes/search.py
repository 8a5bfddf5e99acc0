"""``POST /search`` and ``POST /search/image``: a question comes in, the nearest items go out."""

import time
from typing import Annotated

import numpy as np
from fastapi import APIRouter, File, Form, HTTPException, UploadFile
from starlette.concurrency import run_in_threadpool

from channelhash.codes import PackedCodes, binarize, check_packed, pack
from channelhash.errors import InputError
from channelhash.search.query import Hit, Query, search_hits
from channelhash.search.query import SearchOptions as StoreOptions
from channelhash.serve.batching import Outputs
from channelhash.serve.error_handlers import PROBLEMS
from channelhash.serve.limits import at_most, not_longer
from channelhash.serve.responses import shown_hit
from channelhash.serve.schemas import Modality, SearchAnswer, SearchOptions, SearchRequest
from channelhash.serve.service import Service, Shared

router = APIRouter(tags=["search"], responses=PROBLEMS)


@router.post("/search")
async def search(request: SearchRequest, service: Shared) -> SearchAnswer:
    """The items nearest to words, to an item of the store, or to a code."""
    began = time.perf_counter()
    asked = [name for name in ("text", "id", "code") if getattr(request, name) is not None]
    if len(asked) != 1:
        raise HTTPException(422, f"give exactly one of text, id and code, not {' and '.join(asked) or 'none'}")
    if request.query_modality is not None and request.id is None:
        raise HTTPException(422, "query_modality: says which code of an item asks; give it with id")
    _check(request, service)
    if request.text is not None:
        not_longer("text", request.text, service.limits.characters)
        if not request.text.strip():
            raise HTTPException(422, "text: is empty; give some words")
        return await _answer_outputs(service, request, await service.encode("text", request.text), "text", began)
    if request.rerank:
        raise HTTPException(422, "rerank: needs the query's real-valued outputs; ask with words or a picture")
    if request.id is not None:
        query, query_modality = await run_in_threadpool(_item_asks, service, request)
    else:
        query, query_modality = await run_in_threadpool(_code_asks, service, request.code or ""), ""
    return await run_in_threadpool(_answer, service, request, query, query_modality, began)


@router.post("/search/image")
async def search_by_picture(
    service: Shared,
    image: Annotated[UploadFile, File(description="A picture: JPEG, PNG, WebP, GIF, BMP or TIFF.")],
    modality: Annotated[Modality | None, Form()] = None,
    k: Annotated[int, Form(ge=1)] = 10,
    radius: Annotated[int | None, Form(ge=0)] = None,
    where: Annotated[str | None, Form()] = None,
    rerank: Annotated[int, Form(ge=0)] = 0,
) -> SearchAnswer:
    """The items nearest to an uploaded picture. The picture is not kept."""
    began = time.perf_counter()
    options = SearchOptions(modality=modality, k=k, radius=radius, where=where, rerank=rerank)
    _check(options, service)
    picture, _ = await service.open_picture(image)
    return await _answer_outputs(service, options, await service.encode("image", picture), "image", began)


def _check(options: SearchOptions, service: Service) -> None:
    """Limits that can be seen without asking the store, which the event loop must not wait for."""
    limits = service.limits
    at_most("k", options.k, limits.k)
    at_most("rerank", options.rerank, limits.rerank)
    not_longer("where", options.where, limits.characters)


async def _answer_outputs(
    service: Service, options: SearchOptions, outputs: Outputs, query_modality: str, began: float
) -> SearchAnswer:
    query = Query(pack(binarize(outputs[None]))[0], outputs)
    return await run_in_threadpool(_answer, service, options, query, query_modality, began)


def _item_asks(service: Service, request: SearchRequest) -> tuple[Query, str]:
    """The code of an item that asks, and what it is a code of."""
    item = service.item(request.id or "")
    searched = _searched(service, request.modality)
    asks = request.query_modality or (searched if searched in item.codes else min(item.codes))
    if asks not in item.codes:
        raise HTTPException(422, f"query_modality: this item has no {asks} code, only {' and '.join(item.codes)}")
    return Query(item.codes[asks]), asks


def _searched(service: Service, modality: str | None) -> str:
    """The modality whose codes are searched."""
    return service.store.choose_modality(modality)


def _code_asks(service: Service, code: str) -> Query:
    return Query(packed_code(service, code))


def packed_code(service: Service, code: str) -> PackedCodes:
    """A packed code from hexadecimal digits, or status 422 where it does not fit the store's."""
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


def _answer(service: Service, options: SearchOptions, query: Query, query_modality: str, began: float) -> SearchAnswer:
    store = service.store
    n_bits = store.n_bits or 8 * len(query.code)
    at_most("radius", options.radius, n_bits)
    modality: str = options.modality or "image"
    hits: list[Hit] = []
    if store.modalities:  # otherwise it is empty
        modality = _searched(service, options.modality)
        store_options = StoreOptions(
            options.k, options.radius, options.k, modality, options.where or None, options.rerank or None
        )
        try:
            hits = search_hits(store, query, store_options)
        except InputError:  # an item that was found may have been deleted before it was read
            hits = search_hits(store, query, store_options)
    return SearchAnswer(
        query_code=query.code.tobytes().hex(),
        query_modality=query_modality,
        modality=modality,
        n_bits=n_bits,
        results=[shown_hit(hit) for hit in hits],
        seconds=time.perf_counter() - began,
    )
