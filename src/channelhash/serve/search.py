"""``/search``: the items that answer a question."""

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, File, HTTPException, Response
from PIL import Image

from channelhash.codes import PackedCodes, check_packed
from channelhash.explanation.occlusion import Outputs
from channelhash.models.description import QueryEncoder
from channelhash.search.answer import DEPTH
from channelhash.search.hits import Hits, sort_by_date
from channelhash.search.items import Item
from channelhash.search.plan import Search, has_unknown_words
from channelhash.search.question import WORDS, Question, SearchOptions, UnknownItemError
from channelhash.serve import schemas
from channelhash.serve.routing import PROBLEMS, Route
from channelhash.serve.service import CurrentService, Service, Words

router = APIRouter(responses=PROBLEMS, route_class=Route)
_Asked = schemas.SearchRequest | schemas.ImageSearch
#: Kind of a part of a search -> the key of the request that holds it, of what stands before words.
_BEFORE_WORDS: dict[schemas.Kind, str] = {"item": "id", "code": "code"}
#: The same of what stands behind words, dates and places.
_BEHIND_WORDS: dict[schemas.Kind, str] = {
    "without": "minus",
    "without_item": "minus_ids",
    "label": "label",
    "folder": "folder",
    "month": "month",
    "where": "where",
}


@router.post("/search", tags=["search"], response_model=schemas.SearchResponse)
async def search(request: schemas.SearchRequest, service: CurrentService) -> Response:
    """Return the items that answer words, an item of the store or a code, or words and one of the
    others together.
    """
    start = time.perf_counter()
    if _is_plain(service, request):
        call = partial(_plan_plain_words, service, request, start)
        response = await service.quick_searches(call)
        if response is not None:
            return response
    if request.text or request.minus:
        return await _encode_and_answer(service, request, start)

    def work() -> Response:
        return _respond(service, request, _plan(service, request), start)

    return await service.search(work, _is_quick(service, request))


@router.post("/search/image", tags=["search"], response_model=schemas.SearchResponse)
async def search_by_image(
    service: CurrentService, request: Annotated[schemas.ImageSearch, File()]
) -> Response:
    """Return the items nearest to an uploaded picture, and to words if there are any. The picture
    is not kept.
    """
    start = time.perf_counter()
    async with service.open_image(request.image) as (opened, _):
        return await _encode_and_answer(service, request, start, opened)


def unpack_hex(service: Service, code: str) -> PackedCodes:
    """Read a packed code from hexadecimal digits, or refuse with status 422 if it does not fit the
    store's.
    """
    n_bits = service.store.n_bits
    if n_bits is None:
        raise HTTPException(422, "code: the store is empty")
    packed = np.frombuffer(bytes.fromhex(code), np.uint8)
    try:
        check_packed(packed[None], n_bits)
    except ValueError:
        line = (
            f"code: {len(code)} hexadecimal digits; {n_bits} bits are {2 * -(-n_bits // 8)}, the "
            "rest of the last 0"
        )
        raise HTTPException(422, line) from None
    return packed


def _plan(service: Service, request: _Asked, image: Image.Image | None = None) -> Search:
    """Plan a search, or refuse with status 404 if there is no such item."""
    question = Question(request.text or None, image, minus=request.minus)
    if isinstance(request, schemas.SearchRequest):
        question = replace(
            question,
            like=request.id,
            like_modality=request.query_modality,
            code=unpack_hex(service, request.code) if request.code else None,
            minus_like=request.minus_ids,
        )
    try:
        return Search.of(service.store, question, _options(service, request))
    except UnknownItemError as error:
        raise HTTPException(404, f"there is no item {error.item_id[:100]!r}") from None


def _options(service: Service, request: _Asked) -> SearchOptions:
    """Return what a request asks of the store."""
    names = {"k", "radius", "modality", "collapse", "by", "offset", "fitting"}
    left_out = None
    if isinstance(request, schemas.SearchRequest) and request.exclude_self:
        left_out = request.id
    return SearchOptions(
        **request.model_dump(include=names),
        limit=request.k,
        where=request.filter_of(service.store),
        rerank=request.rerank or None,
        leave_out=left_out,
    )


async def _encode_and_answer(
    service: Service, request: _Asked, start: float, image: Image.Image | None = None
) -> Response:
    """Follow the plan of a search, whose parts are encoded in batches shared with other requests."""
    in_thread = partial(run_sync, limiter=service.searching)
    plan = await in_thread(_plan, service, request, image)
    outputs = await _encode(service, plan)
    model = None if plan.options.by == WORDS else (await service.get_encoding()).model
    correction = None
    if plan.words and has_unknown_words(model, plan.question.text or ""):
        corrected = await in_thread(plan.correct, model)
        if corrected is not None:
            correction = (corrected, await _encode(service, corrected))
    call = partial(_respond, service, request, plan, start, outputs, model, correction)
    is_quick = correction is None and not plan.question.phrases and _is_quick(service, request)
    return await service.search(call, is_quick)


async def _encode(service: Service, plan: Search) -> dict[str, list[Outputs]]:
    """Encode what a search needs; not texts that are looked for by their words alone."""
    outputs: dict[str, list[Outputs]] = {}
    for modality, items in plan.to_encode.items():
        if modality == "text" and (await service.get_encoding()).words_alone:
            continue
        rows = (service.encode(modality, item) for item in items)
        outputs[modality] = await asyncio.gather(*rows)
    return outputs


def _is_plain(service: Service, request: schemas.SearchRequest) -> bool:
    """Return whether a search is for words alone, by their codes, and takes milliseconds unless
    they name a date.
    """
    others = (request.id, request.code, request.minus, request.minus_ids)
    if not request.text or any(others) or request.by == WORDS:
        return False
    encoding = service.encoding
    is_loaded = encoding.done() and not encoding.exception()
    return is_loaded and encoding.result().quick and _is_quick(service, request)


def _plan_plain_words(
    service: Service, request: schemas.SearchRequest, start: float
) -> Words | None:
    """Return the words of a question to encode; None where it takes more: dates, places or unknown
    words.
    """
    question = Question(request.text)
    plan = Search.of_plain(service.store, question, _options(service, request))
    model = service.encoding.result().model
    if plan is None or has_unknown_words(model, plan.question.text or ""):
        return None

    def answer_with(rows: list[Outputs]) -> Response:
        return _respond(service, request, plan, start, {"text": rows}, model)

    return Words([str(part.content) for part in plan.words], answer_with)


def _is_quick(service: Service, request: schemas.SearchOptions) -> bool:
    """Return whether a search takes milliseconds: a few answers, of which nothing more is asked,
    and no image is read to fold near-duplicates.
    """
    special = (request.where, request.folder, request.month, request.radius)
    if any(value is not None for value in special) or request.label or request.rerank:
        return False
    if request.offset + request.k > DEPTH:
        return False
    if request.collapse is None:
        return not service.has_images or "text" in (request.modality, request.by)
    return request.collapse is False


def _respond(
    service: Service,
    request: _Asked,
    plan: Search,
    start: float,
    outputs: dict[str, list[Outputs]] | None = None,
    model: QueryEncoder | None = None,
    correction: tuple[Search, dict[str, list[Outputs]]] | None = None,
) -> Response:
    """Search, and serialise the response in this thread: a long one would block the event loop."""
    store = service.store
    hits = _answer(service, request, plan, outputs or {}, model)
    if hits:
        service.has_images = any(hit.image for hit in hits)
    if correction is not None:
        corrected, encoded = correction
        corrected.suggest_to(hits, encoded)
    query = hits.query
    query_modality = query.modality
    if isinstance(request, schemas.ImageSearch):
        query_modality = "image"
    elif plan.words and query.words_coded:
        query_modality = "text"
    modality: str = request.modality or "image"
    if store.has_codes:
        modality = store.choose_modality(request.modality)
    response = schemas.SearchResponse(
        query_code=query.code.tobytes().hex(),
        query_modality=query_modality,
        modality=modality,
        n_bits=store.n_bits or 8 * len(query.code),
        results=[schemas.Result.of(hit) for hit in hits],
        close=hits.close,
        offset=request.offset,
        understood=_understood(request, plan),
        duplicates=hits.alike,
        note=hits.note,
        unlikely=hits.unlikely,
        did_you_mean=hits.suggestion,
        seconds=time.perf_counter() - start,
    )
    return Response(response.model_dump_json(), media_type="application/json")


def _answer(
    service: Service,
    request: _Asked,
    plan: Search,
    outputs: dict[str, list[Outputs]],
    model: QueryEncoder | None,
) -> Hits:
    """Return the page of answers that a request asks for, by date if it asks for that."""
    n_bits = service.store.n_bits
    for key in ("radius", "collapse"):
        value = getattr(request, key) or 0
        if n_bits and value > n_bits:
            raise HTTPException(422, f"{key}: is more than {n_bits}, the bits of a code")

    def browse(where: str | None, page: slice) -> list[Item]:
        return service.browser.read(where, request.order or "newest", 0, page)[1]

    if request.order is None or not plan.parts:
        return plan.answer(outputs, model, browse)
    most = schemas.MOST["k"]  # the best that a request may ask for are put in order
    options = replace(plan.options, k=most, limit=most, offset=0)
    hits = replace(plan, options=options).answer(outputs, model)
    by_date = sort_by_date(hits, newest_first=request.order == "newest")
    hits[:] = by_date[request.offset : request.offset + request.k]
    return hits


def _understood(request: _Asked, plan: Search) -> list[schemas.Understood]:
    """Return the parts of a search: what is wanted, what is not, and what the answers are narrowed
    to.
    """
    parts: list[schemas.Understood] = []
    if isinstance(request, schemas.ImageSearch):
        parts.append(schemas.Understood(kind="image", value=""))
    parts += _understood_keys(request, _BEFORE_WORDS)
    for part in plan.words:
        kind: schemas.Kind = "without" if part.weight < 0 else "words"
        weight = abs(part.weight)
        parts.append(schemas.Understood(kind=kind, value=str(part.content), weight=weight))
    for phrase in plan.question.phrases:
        parts.append(schemas.Understood(kind=phrase.kind, value=phrase.words, means=phrase.means))
    return parts + _understood_keys(request, _BEHIND_WORDS)


def _understood_keys(request: _Asked, keys: dict[schemas.Kind, str]) -> list[schemas.Understood]:
    """Return the parts that keys of a request hold; a list is a part an entry."""
    parts = []
    for kind, key in keys.items():
        value = getattr(request, key, None) or []
        values = [value] if isinstance(value, str) else value
        parts += [schemas.Understood(kind=kind, value=one) for one in values]
    return parts
