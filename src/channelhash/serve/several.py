"""Several stores on one server: ``/stores`` lists them, ``/search`` asks all."""

import asyncio
import heapq
import json
import time
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any
from urllib.parse import quote

from anyio.to_thread import run_sync
from fastapi import APIRouter, HTTPException, Response

from channelhash.errors import InputError, JobError
from channelhash.search.match import doubt
from channelhash.search.store import Store
from channelhash.serve import schemas
from channelhash.serve.middleware import refusal
from channelhash.serve.routing import PROBLEMS, Route
from channelhash.serve.service import CurrentServices, Service

router = APIRouter(responses=PROBLEMS, route_class=Route)


@router.get("/stores", tags=["server"])
def stores(services: CurrentServices) -> list[schemas.StoreEntry]:
    """Return the stores of this server; the API of each is described at ``stores/NAME/docs``."""
    return [schemas.StoreEntry(name=each.name, **each.store.info()) for each in services]


@router.post("/search", tags=["search"], response_model=schemas.MergedResponse)
async def search(request: schemas.SearchRequest, services: CurrentServices) -> Response:
    """Return the items of all stores that answer words, a code or a vector."""
    start = time.perf_counter()
    if any((request.id is not None, request.minus_ids, request.order)):
        raise HTTPException(422, "id, minus_ids, order: only at stores/NAME/search")
    # the first results of all may all be of one store
    asked = request.model_copy(update={"offset": 0, "k": request.offset + request.k})
    questions = [service.searcher.answer(asked, start) for service in services]
    replies = await asyncio.gather(*questions, return_exceptions=True)
    answered: dict[Service, Response] = {}
    problems: dict[str, str] = {}
    for service, reply in zip(services, replies, strict=True):
        if isinstance(reply, Response):
            answered[service] = reply
        elif isinstance(reply, InputError | JobError | HTTPException):
            problems[service.name] = refusal(reply)[1]
        else:
            raise reply
    if not answered and isinstance(replies[0], Exception):
        raise replies[0]
    return await run_sync(_merge, request, start, answered, problems)


def _merge(
    request: schemas.SearchRequest,
    start: float,
    answered: Mapping[Service, Response],
    problems: Mapping[str, str],
) -> Response:
    """Return one answer of those of several stores."""
    answers = {each.name: json.loads(bytes(reply.body)) for each, reply in answered.items()}
    results = [_results(name, answer) for name, answer in answers.items()]
    merged_by = "rank"
    if _have_one_encoder([service.store for service in answered]):
        merged_by = _common_order(request, results)

    def key(ranked: tuple[int, dict[str, Any]]) -> tuple[float, ...]:
        rank, found = ranked
        if merged_by == "distance":
            return doubt(found["fit"]), -(found["similarity"] or 0), found["distance"]
        return doubt(found["fit"]), -found["fit"] if merged_by == "fit" else rank

    # those of each store keep their order
    merged = heapq.merge(*map(enumerate, results), key=key)
    page = islice(merged, request.offset, request.offset + request.k)
    response = {
        "results": [found for _, found in page],
        "merged_by": merged_by,
        "answers": answers,
        "problems": problems,
        "seconds": time.perf_counter() - start,
    }
    return Response(json.dumps(response), media_type="application/json")


def _results(name: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the results out of a store's answer, and name the store in each."""
    results: list[dict[str, Any]] = answer.pop("results")
    for found in results:
        found["store"] = name
        found["image"] = found["image"] and f"stores/{quote(name)}/{found['image']}"
    return results


def _have_one_encoder(stores: Sequence[Store]) -> bool:
    """Return whether numbers of several stores mean the same: their codes are of one encoder, with
    as much beside each.
    """
    kinds = {(store.model, store.n_bits, store.projected) for store in stores}
    return len(kinds) == 1 and stores[0].model != ""


def _common_order(
    request: schemas.SearchRequest, results: Sequence[Sequence[Mapping[str, Any]]]
) -> str:
    """Return what orders the results of several stores of one encoder. Where words answer, too,
    distances do not, but probabilities do.
    """
    if request.text is None or request.by not in (None, "all", "words"):
        return "distance"
    has_fits = all(found["fit"] is not None for found in chain.from_iterable(results))
    return "fit" if has_fits else "rank"
