"""``/search`` and ``/explain``: the items nearest to a query, and why two match."""

import asyncio
import io
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
from anyio.to_thread import run_sync
from fastapi import APIRouter, File, HTTPException, Response

from channelhash.codes import PackedCodes, check_packed
from channelhash.explanation.api import Side, explain_pair
from channelhash.explanation.occlusion import Encode, MapSettings, Outputs
from channelhash.search import query as queries
from channelhash.search.answer import DEPTH
from channelhash.search.checks import choose_modality
from channelhash.search.hits import Hits, answer, list_hits, sort_by_date
from channelhash.search.query import Narrowed, leave_plain, narrow
from channelhash.search.question import Query, SearchOptions
from channelhash.search.store import Item
from channelhash.serve import schemas
from channelhash.serve.images import open_upload
from channelhash.serve.routing import PROBLEMS, Route
from channelhash.serve.service import CurrentService, Service, Words
from channelhash.utils.image_files import RAW_ENDINGS, STORED_FORMATS, open_image

router = APIRouter(responses=PROBLEMS, route_class=Route)
# A corrected question, in words and as a query.
_Other = tuple[str, Query]


class _Question(NamedTuple):
    """A request, its words without dates and places, the parts that these are, and when it came."""

    options: schemas.SearchOptions
    narrowed: Narrowed
    words: list[queries.Part]
    start: float


async def _read(
    service: Service, options: schemas.SearchRequest | schemas.ImageSearch
) -> _Question:
    start = time.perf_counter()
    text = options.text or ""
    store = service.store
    narrowed = Narrowed("", None, [])
    if text.strip() or not _is_quick(options):
        narrowed = await run_sync(
            lambda: narrow(store, text, options.filter_of(store)), limiter=service.searching
        )
    words = queries.parse_question(narrowed.text) if narrowed.text else []
    return _Question(options, narrowed, words, start)


@router.post("/search", tags=["search"], response_model=schemas.SearchResponse)
async def search(request: schemas.SearchRequest, service: CurrentService) -> Response:
    """Return the items that answer words, an item of the store or a code, or words and one of the
    others together.
    """
    if _is_plain(service, request):
        response = await service.quick_searches(
            partial(_plain_words, service, request, time.perf_counter())
        )
        if response is not None:
            return response
    question = await _read(service, request)
    if question.words or request.minus or request.minus_ids:
        parts = await run_sync(_parts, service, request, question.words, limiter=service.searching)
        return await _search_parts(service, question, parts)
    if request.rerank:
        raise HTTPException(
            422, "rerank: needs the query's real-valued outputs; ask with words or a picture"
        )

    def work() -> Response:
        query = _stored_query(service, request)
        return _search(service, question, query, query.modality)

    return await service.search(work, _is_quick(request) and not question.narrowed.phrases)


@router.post("/search/image", tags=["search"], response_model=schemas.SearchResponse)
async def search_by_image(
    service: CurrentService, request: Annotated[schemas.ImageSearch, File()]
) -> Response:
    """Return the items nearest to an uploaded picture, and to words if there are any. The picture
    is not kept.
    """
    question = await _read(service, request)
    async with service.open_image(request.image) as (opened, _):
        return await _search_parts(service, question, [queries.Part(opened), *question.words])


def _unpack_hex(service: Service, code: str) -> PackedCodes:
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


def _stored_query(service: Service, request: schemas.SearchRequest) -> Query:
    """Return a stored item, a code, or nothing, as a query."""
    if request.id is None:
        return Query(_unpack_hex(service, request.code) if request.code else np.zeros(0, np.uint8))
    item = service.get_item(request.id)
    searched = service.store.choose_modality(request.modality)
    modality = request.query_modality or (searched if searched in item.codes else min(item.codes))
    if modality not in item.codes:
        raise HTTPException(
            422,
            f"query_modality: this item has no {modality} code, only {' and '.join(item.codes)}",
        )
    return Query.of_item(item, modality)


def _parts(
    service: Service, request: schemas.SearchRequest, words: list[queries.Part]
) -> list[queries.Part]:
    """Return the parts of a query; stored items and codes as outputs."""
    n_bits = service.store.n_bits or 0
    parts = list(words)
    if request.id is not None or request.code is not None:
        parts.append(queries.Part(_stored_query(service, request).as_outputs(n_bits)))
    for item_id in request.minus_ids:
        item = service.get_item(item_id)
        parts.append(queries.Part(Query.of_item(item, min(item.codes)).as_outputs(n_bits), -1.0))
    return parts


async def _search_parts(
    service: Service, question: _Question, parts: list[queries.Part]
) -> Response:
    """Encode the parts, and unwanted words, in batches shared with other requests, and search with
    their sum.
    """
    options, narrowed, words, _ = question
    parts = queries.check_parts(
        [*parts, *(queries.Part(unwanted, -1.0) for unwanted in options.minus)]
    )

    async def outputs_of(part: queries.Part) -> Outputs | None:
        modality = part.modality
        if modality is None:
            return part.content  # type: ignore[no-any-return]
        if options.by == "words" or (
            modality == "text" and (await service.get_encoding()).words_alone
        ):
            return None
        return await service.encode(modality, part.content)

    async def query_of(addends: list[queries.Part]) -> Query:
        return queries.make_query(addends, await asyncio.gather(*map(outputs_of, addends)))

    query = await query_of(parts)
    text = narrowed.text
    other = None
    modality = (parts[0].modality or "") if query.words_coded else query.modality
    model = None if options.by == "words" else (await service.get_encoding()).model
    if words and queries.has_unknown_words(model, text):
        corrected = await run_sync(queries.correct, service.store, text, limiter=service.searching)
        if corrected != text:
            others = (part for part in parts if not any(part is word for word in words))
            other = (
                narrowed.suggest(corrected),
                await query_of([*queries.parse_question(corrected), *others]),
            )
    call = partial(_search, service, question, query, modality, queries.unread(model, text), other)
    return await service.search(call, other is None and not narrowed.phrases and _is_quick(options))


def _is_plain(service: Service, request: schemas.SearchRequest) -> bool:
    """Return whether a search is for words alone, by their codes, and takes milliseconds unless
    they name a date.
    """
    others = (request.id, request.code, request.minus, request.minus_ids)
    if not request.text or any(others) or request.by == "words" or not _is_quick(request):
        return False
    return (
        service.encoding.done()
        and not service.encoding.exception()
        and service.encoding.result().quick
    )


def _plain_words(service: Service, request: schemas.SearchRequest, start: float) -> Words | None:
    """Return the words of a question to encode; None where it takes more: dates, places or unknown
    words.
    """
    narrowed = leave_plain(service.store, request.text or "")
    model = service.encoding.result().model
    if narrowed is None or queries.has_unknown_words(model, narrowed.text):
        return None
    words = queries.parse_question(narrowed.text)
    note = queries.unread(model, narrowed.text)
    question = _Question(request, narrowed, words, start)

    def answer_with(outputs: list[Outputs]) -> Response:
        return _search(service, question, queries.make_query(words, outputs), "text", note)

    return Words([part.content for part in words], answer_with)


def _is_quick(options: schemas.SearchOptions) -> bool:
    """Return whether a search takes milliseconds: a few answers, of which nothing more is asked."""
    special = (
        options.where,
        options.label,
        options.folder,
        options.month,
        options.radius,
        options.collapse,
    )
    return (
        not options.rerank
        and options.offset + options.k <= DEPTH
        and all(value in (None, []) for value in special)
    )


def _search(
    service: Service,
    question: _Question,
    query: Query,
    query_modality: str,
    note: str = "",
    other: _Other | None = None,
) -> Response:
    """Search, and serialise the response in this thread: a long one would block the event loop."""
    options = question.options
    store = service.store
    n_bits = store.n_bits or 8 * len(query.code)
    for key in ("radius", "collapse"):
        if (value := getattr(options, key)) is not None and value > n_bits:
            raise HTTPException(422, f"{key}: is more than {n_bits}, the bits of a code")
    modality: str = options.modality or "image"
    hits = Hits()
    if store.modalities:  # otherwise it is empty
        modality = store.choose_modality(options.modality)
        hits = _answer(service, question, query, other)
    response = schemas.SearchResponse(
        query_code=query.code.tobytes().hex(),
        query_modality=query_modality,
        modality=modality,
        n_bits=n_bits,
        results=[schemas.Result.of(hit) for hit in hits],
        close=hits.close,
        offset=options.offset,
        understood=_understood(question),
        duplicates=hits.alike,
        note=hits.note or note,
        unlikely=hits.unlikely,
        did_you_mean=hits.suggestion,
        seconds=time.perf_counter() - question.start,
    )
    return Response(response.model_dump_json(), media_type="application/json")


def _answer(service: Service, question: _Question, query: Query, other: _Other | None) -> Hits:
    """Return the page of answers that a request asks for; a corrected question, and that as a
    query, are suggested if it is better answered.
    """
    options, store = question.options, service.store
    asked = _store_options(question)
    if not len(query.code) and not query.words:  # only dates and places
        part = slice(asked.offset, asked.offset + asked.k)
        _, items = service.browser.read(asked.where, options.order or "newest", 0, part)
        return list_hits(store, items, asked)
    if options.order is not None:  # of the best that a request may ask for
        most = schemas.MOST["k"]
        hits = answer(store, query, replace(asked, k=most, limit=most, offset=0))
        by_date = sort_by_date(hits, newest_first=options.order == "newest")
        hits[:] = by_date[options.offset : options.offset + options.k]
    else:
        hits = answer(store, query, asked)
    if other and queries.finds_better(store, other[1], asked, hits):
        hits.suggestion = other[0]
    return hits


def _store_options(question: _Question) -> SearchOptions:
    """Return what a request asks of the store."""
    options = question.options
    names = {"k", "radius", "modality", "collapse", "by", "offset", "fitting"}
    left_out = None
    if isinstance(options, schemas.SearchRequest) and options.exclude_self:
        left_out = options.id
    return SearchOptions(
        **options.model_dump(include=names),
        limit=options.k,
        where=question.narrowed.where,
        rerank=options.rerank or None,
        leave_out=left_out,
    )


def _understood(question: _Question) -> list[schemas.Understood]:
    """Return the parts of a search: what is wanted, what is not, and what the answers are narrowed
    to.
    """
    options = question.options
    parts = (
        [schemas.Understood(kind="image", value="")]
        if isinstance(options, schemas.ImageSearch)
        else []
    )
    parts += [
        schemas.Understood(kind=kind, value=value)
        for kind, key in _QUERIES.items()
        if (value := getattr(options, key, ""))
    ]
    for part in question.words:
        kind = "without" if part.weight < 0 else "words"
        parts.append(schemas.Understood(kind=kind, value=part.content, weight=abs(part.weight)))
    for phrase in question.narrowed.phrases:
        parts.append(schemas.Understood(kind=phrase.kind, value=phrase.words, means=phrase.means))
    for kind, key in _CONDITIONS.items():
        value = getattr(options, key, None) or []
        parts += [
            schemas.Understood(kind=kind, value=one)
            for one in ([value] if isinstance(value, str) else value)
        ]
    return parts


# Kind of a part of a search -> the key of the request that holds it; before and after its words.
_QUERIES: dict[schemas.Kind, str] = {"item": "id", "code": "code"}
_CONDITIONS: dict[schemas.Kind, str] = {
    "without": "minus",
    "without_item": "minus_ids",
    "label": "label",
}
_CONDITIONS |= {"folder": "folder", "month": "month", "where": "where"}


@router.post("/explain", tags=["explain"], response_model=schemas.ExplainResponse)
async def explain(request: schemas.ExplainRequest, service: CurrentService) -> Response:
    """Explain why two of words, stored items and codes match: bits, their labels, and what parts
    and words matter.
    """
    return await _explain(service, request.first, request.second, request)


@router.post("/explain/image", tags=["explain"], response_model=schemas.ExplainResponse)
async def explain_image(
    service: CurrentService, request: Annotated[schemas.ImageExplanation, File()]
) -> Response:
    """Explain why an uploaded picture matches a stored item. The picture is not kept."""
    async with service.open_image(request.image) as (_, content):
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
            pair, service.bit_labels(), _encoders(service), settings if options.maps else None
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
    store = service.store
    n_bits = store.n_bits or 0
    if request.code is not None:
        code = _unpack_hex(service, request.code)
        default = "text" if store.modalities and "image" not in store.modalities else "image"
        return Side.unpack(
            code, request.modality or default, "a code", n_bits, "only its bits are known"
        )
    item = service.get_item(request.id or "")
    modality = request.modality or choose_modality(None, sorted(item.codes), "this item")
    if modality not in item.codes:
        raise HTTPException(
            422, f"modality: this item has no {modality} code, only {' and '.join(item.codes)}"
        )
    if problem := service.encoding.result().problems.get(modality):
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
