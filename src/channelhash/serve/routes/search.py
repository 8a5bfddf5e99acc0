"""``POST /search``, ``POST /search/image`` and ``GET /duplicates``: the nearest items of a query, and of each other."""

import asyncio
import time
from functools import partial
from typing import Annotated, Literal

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Form, HTTPException, Query, Response

from channelhash.codes import PackedCodes, check_packed
from channelhash.errors import InputError
from channelhash.search.duplicates import find_duplicates
from channelhash.search.fused import DEPTH, Page, answer_page
from channelhash.search.hits import Hits
from channelhash.search.hits import Query as SearchQuery
from channelhash.search.hits import SearchOptions as StoreOptions
from channelhash.search.query import (
    Part,
    check_parts,
    item_query,
    make_query,
    parse_question,
    part_modality,
    query_outputs,
)
from channelhash.serve.encoding import Outputs
from channelhash.serve.images import UploadedImage
from channelhash.serve.limits import check_length, check_narrowing, check_number
from channelhash.serve.middleware import PROBLEMS
from channelhash.serve.responses import format_code, make_result, understood
from channelhash.serve.routing import Route
from channelhash.serve.schemas import (
    MONTH,
    DuplicatesResponse,
    Modality,
    SearchOptions,
    SearchRequest,
    SearchResponse,
    Text,
    Understood,
)
from channelhash.serve.service import CurrentService, Service

router = APIRouter(tags=["search"], responses=PROBLEMS, route_class=Route)
# Ids that the response has of one group of duplicates.
_IDS = 100


@router.post("/search", response_model=SearchResponse)
async def search(request: SearchRequest, service: CurrentService) -> Response:
    """Return the items that answer words, an item of the store, a code, or several of them together."""
    start = time.perf_counter()
    queries = [name for name in ("text", "id", "code") if getattr(request, name) is not None]
    if not queries:
        raise HTTPException(422, "give text, id or code: what to search for")
    if request.query_modality is not None and request.id is None:
        raise HTTPException(422, "query_modality: says which code of an item asks; give it with id")
    if request.exclude_self and request.id is None:
        raise HTTPException(422, "exclude_self: leaves out the item that asks; give it with id")
    _check_options(request, service)
    for name in ("text", "id"):
        check_length(name, getattr(request, name), service.limits.characters)
    check_length("minus_ids", "".join(request.minus_ids), service.limits.characters)
    if request.text is not None or len(queries) > 1 or request.minus or request.minus_ids:
        if request.text is not None and not request.text.strip():
            raise HTTPException(422, "text: is empty; give some words")
        words = [] if request.text is None else parse_question(request.text)
        if request.id is None and not request.minus_ids:
            parts = _parts(service, request, words)  # no item to read
        else:
            parts = await run_sync(_parts, service, request, words, limiter=service.searching)
        return await _search_parts(service, request, parts, understood(request, words), start)
    if request.rerank:
        raise HTTPException(422, "rerank: needs the query's real-valued outputs; ask with words or a picture")
    query_stored = _query_like if request.id is not None else _query_code

    def work() -> Response:
        return _search(service, request, *query_stored(service, request), understood(request, []), start)

    return await service.search(work, _is_quick(request))


def _read_form(
    modality: Annotated[Modality | None, Form()] = None,
    k: Annotated[int, Form(ge=1)] = 10,
    radius: Annotated[int | None, Form(ge=0)] = None,
    where: Annotated[str | None, Form()] = None,
    rerank: Annotated[int, Form(ge=0)] = 0,
    collapse: Annotated[int | None, Form(ge=0)] = None,
    by: Annotated[Literal["all", "image", "text", "words"] | None, Form()] = None,
    minus: Annotated[str, Form(description="Words that are not wanted.")] = "",
    offset: Annotated[int, Form(ge=0)] = 0,
    label: Annotated[list[Text] | None, Form(max_length=31)] = None,
    folder: Annotated[Text | None, Form()] = None,
    month: Annotated[str | None, Form(pattern=MONTH)] = None,
) -> SearchOptions:
    unwanted = [minus] if minus else []
    return SearchOptions(
        label=label or [],
        folder=folder,
        month=month,
        modality=modality,
        k=k,
        radius=radius,
        where=where,
        rerank=rerank,
        collapse=collapse,
        by=by,
        minus=unwanted,
        offset=offset,
    )


@router.post("/search/image", response_model=SearchResponse)
async def search_by_image(
    service: CurrentService,
    image: UploadedImage,
    options: Annotated[SearchOptions, Depends(_read_form)],
    text: Annotated[str | None, Form(description="Words that are wanted, too.")] = None,
) -> Response:
    """Return the items nearest to an uploaded picture, and to words if there are any. The picture is not kept."""
    start = time.perf_counter()
    _check_options(options, service)
    check_length("text", text, service.limits.characters)
    words = parse_question(text) if text and text.strip() else []
    async with service.open_image(image) as (opened, _):
        parts = [Part(opened), *words, *(Part(what, -1.0) for what in options.minus)]
        asked = understood(options, words, image=True)
        return await _search_parts(service, options, check_parts(parts), asked, start)


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
    check_number("offset and k together", options.offset + options.k, limits.k)
    check_number("rerank", options.rerank, limits.rerank)
    check_narrowing(options, limits.characters)
    check_length("minus", "".join(options.minus), limits.characters)
    if not all(what.strip() for what in options.minus):
        raise HTTPException(422, "minus: is empty; give some words")


def _query_like(service: Service, request: SearchRequest) -> tuple[SearchQuery, str]:
    """Return a stored item as a query, and the modality of its code that asks."""
    item = service.get_item(request.id or "")
    searched = service.store.choose_modality(request.modality)
    modality = request.query_modality or (searched if searched in item.codes else min(item.codes))
    if modality not in item.codes:
        raise HTTPException(422, f"query_modality: this item has no {modality} code, only {' and '.join(item.codes)}")
    return item_query(item, modality), modality


def _query_code(service: Service, request: SearchRequest) -> tuple[SearchQuery, str]:
    return SearchQuery(unpack_hex(service, request.code or "")), ""


def _parts(service: Service, request: SearchRequest, words: list[Part]) -> list[Part]:
    """Return the parts of a query; stored items and codes as outputs."""
    store, parts = service.store, list(words)
    if request.id is not None:
        parts.append(Part(query_outputs(store, _query_like(service, request)[0])))
    if request.code is not None:
        parts.append(Part(query_outputs(store, _query_code(service, request)[0])))
    for item_id in request.minus_ids:
        item = service.get_item(item_id)
        parts.append(Part(query_outputs(store, item_query(item, min(item.codes))), -1.0))
    return check_parts([*parts, *(Part(what, -1.0) for what in request.minus)])


async def _search_parts(
    service: Service, options: SearchOptions, parts: list[Part], asked: list[Understood], start: float
) -> Response:
    """Encode the parts in batches shared with other requests, and search with their sum."""

    async def outputs_of(part: Part) -> Outputs | None:
        modality = part_modality(part)
        if modality is None:
            return part.content  # type: ignore[no-any-return]
        if options.by == "words" or (modality == "text" and (await service.encoded()).words_alone):
            return None
        return await service.encode(modality, part.content)

    query = make_query(parts, await asyncio.gather(*map(outputs_of, parts)))
    modality = (part_modality(parts[0]) or "") if query.words_coded else query.modality
    call = partial(_search, service, options, query, modality, asked, start)
    return await service.search(call, _is_quick(options))


def _is_quick(options: SearchOptions) -> bool:
    """Return whether a search takes milliseconds: a few answers, of which nothing more is asked."""
    special = (options.where, options.label, options.folder, options.month, options.radius, options.collapse)
    return not options.rerank and options.offset + options.k <= DEPTH and all(value in (None, []) for value in special)


def _search(
    service: Service,
    options: SearchOptions,
    query: SearchQuery,
    query_modality: str,
    asked: list[Understood],
    start: float,
) -> Response:
    """Search, and write the answer: in this thread, for it may be long."""
    store = service.store
    n_bits = store.n_bits or 8 * len(query.code)
    check_number("radius", options.radius, n_bits)
    check_number("collapse", options.collapse, n_bits)
    modality: str = options.modality or "image"
    page = Page(Hits(), None)
    if store.modalities:  # otherwise it is empty
        modality = store.choose_modality(options.modality)
        try:
            page = _answer(service, options, query)
        except InputError:  # a hit may have been deleted before it was read
            page = _answer(service, options, query)
    response = SearchResponse(
        query_code=format_code(query.code),
        query_modality=query_modality,
        modality=modality,
        n_bits=n_bits,
        results=[make_result(hit) for hit in page.hits],
        close=page.hits.close,
        offset=options.offset,
        understood=asked,
        duplicates=page.alike,
        note=page.hits.note,
        seconds=time.perf_counter() - start,
    )
    return Response(response.model_dump_json(), media_type="application/json")


def _answer(service: Service, options: SearchOptions, query: SearchQuery) -> Page:
    """Return the page of answers that a request asks for."""
    store_options = StoreOptions(
        k=options.k,
        radius=options.radius,
        modality=options.modality,
        where=service.browser.narrow(options.where, options.label, options.folder, options.month),
        rerank=options.rerank or None,
        collapse=options.collapse,
        by=options.by,
    )
    left_out = options.id if isinstance(options, SearchRequest) and options.exclude_self else None
    return answer_page(service.store, query, store_options, options.offset, service.limits.k, left_out)


@router.get("/duplicates")
async def duplicates(
    service: CurrentService,
    radius: Annotated[int | None, Query(ge=0, description="Bits that codes are apart at most.")] = None,
    modality: Annotated[Modality | None, Query(description="Whose codes count; images if there are any.")] = None,
    where: Annotated[Text | None, Query(description="Filter: label = 'dog' AND year > 2015.")] = None,
    pictures: Annotated[bool, Query(description="Compare pictures, too; without, near codes are enough.")] = True,
    k: Annotated[int, Query(ge=1, description="Number of groups, at most.")] = 100,
) -> DuplicatesResponse:
    """Return groups of items whose pictures are all alike; where there are none to compare, codes are near."""
    start = time.perf_counter()
    check_number("k", k, service.limits.k)
    check_length("where", where, service.limits.characters)

    def work() -> DuplicatesResponse:
        store = service.store
        try:
            groups = find_duplicates(store, radius, modality, where or None, pictures)
        except InputError:  # an item may have been deleted before it was read
            groups = find_duplicates(store, radius, modality, where or None, pictures)
        return DuplicatesResponse(
            groups=[group.ids[:_IDS] for group in groups[:k]],
            distances=[group.distances[:_IDS] for group in groups[:k]],
            sizes=[len(group.ids) for group in groups[:k]],
            found=len(groups),
            modality=modality or (store.choose_modality() if store.modalities else "image"),
            radius=radius,
            seconds=time.perf_counter() - start,
        )

    return await run_sync(work, limiter=service.grouping)
