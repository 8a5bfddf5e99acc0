"""``POST /search`` and ``POST /search/image``: a question comes in, the nearest items go out."""

import time
from typing import Annotated

import numpy as np
from fastapi import APIRouter, File, Form, HTTPException, UploadFile
from starlette.concurrency import run_in_threadpool

from channelhash.codes import PackedCodes, binarize, check_packed, pack
from channelhash.errors import InputError
from channelhash.search.rerank import rerank
from channelhash.search.store import Item
from channelhash.serve.answering import result
from channelhash.serve.batching import Outputs
from channelhash.serve.limits import at_most, not_longer
from channelhash.serve.problems import PROBLEMS
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
        code, query_modality = await run_in_threadpool(_code_of, service, request)
    else:
        code, query_modality = _given_code(service, request.code or ""), ""
    return await run_in_threadpool(_answer, service, request, code, None, query_modality, began)


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
    limits = service.limits
    at_most("k", options.k, limits.k)
    at_most("rerank", options.rerank, limits.rerank)
    not_longer("where", options.where, limits.characters)
    if service.store.n_bits is not None:
        at_most("radius", options.radius, service.store.n_bits)


async def _answer_outputs(
    service: Service, options: SearchOptions, outputs: Outputs, query_modality: str, began: float
) -> SearchAnswer:
    code = pack(binarize(outputs[None]))[0]
    return await run_in_threadpool(_answer, service, options, code, outputs, query_modality, began)


def _code_of(service: Service, request: SearchRequest) -> tuple[PackedCodes, str]:
    """The code of an item that asks, and what it is a code of."""
    item = service.item(request.id or "")
    searched = _searched(service, request)
    asks = request.query_modality or (searched if searched in item.codes else min(item.codes))
    if asks not in item.codes:
        raise HTTPException(422, f"query_modality: this item has no {asks} code, only {' and '.join(item.codes)}")
    return item.codes[asks], asks


def _given_code(service: Service, code: str) -> PackedCodes:
    n_bits = service.store.n_bits
    if n_bits is None:
        raise HTTPException(422, "code: the store is empty")
    width = -(-n_bits // 8)
    if len(code) != 2 * width:
        raise HTTPException(422, f"code: {n_bits} bits are {2 * width} hexadecimal digits here, not {len(code)}")
    packed = np.frombuffer(bytes.fromhex(code), np.uint8)
    try:
        check_packed(packed[None], n_bits)
    except ValueError as error:
        raise HTTPException(422, f"code: {error}") from None
    return packed


def _searched(service: Service, options: SearchOptions) -> str:
    """The modality that is searched."""
    there = service.store.modalities
    return options.modality or ("image" if "image" in there or not there else there[0])


def _answer(
    service: Service,
    options: SearchOptions,
    code: PackedCodes,
    outputs: Outputs | None,
    query_modality: str,
    began: float,
) -> SearchAnswer:
    modality = _searched(service, options)
    items, distances = _found(service, options, code, modality)
    if options.rerank and outputs is not None and items:
        order = rerank(outputs, np.stack([item.codes[modality] for item in items]), options.rerank)
        items, distances = [items[i] for i in order], [distances[i] for i in order]
    pairs = list(zip(items, distances, strict=True))[: options.k]
    return SearchAnswer(
        query_code=code.tobytes().hex(),
        query_modality=query_modality,
        modality=modality,
        n_bits=service.store.n_bits or 8 * len(code),
        results=[result(item, distance, modality) for item, distance in pairs],
        seconds=time.perf_counter() - began,
    )


def _found(service: Service, options: SearchOptions, code: PackedCodes, modality: str) -> tuple[list[Item], list[int]]:
    """The nearest items, as many as are asked for or ranked again, and their distances."""
    store, first = service.store, max(options.k, options.rerank)
    for attempt in (1, 2, 3):
        if options.radius is None:
            found = store.search(code[None], first, modality, options.where)
        else:
            found = store.search_radius(code[None], options.radius, modality, options.where, first)
        try:
            return store.get(found.ids[0]), found.distances[0].tolist()
        except InputError:  # one of them was deleted since
            if attempt == 3:
                raise
    raise AssertionError
