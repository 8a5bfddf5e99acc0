"""``/search``: the items that answer a question."""

import time
from typing import Annotated

from fastapi import APIRouter, File, Response

from channelhash.serve import schemas
from channelhash.serve.routing import PROBLEMS, LargeRoute, Route
from channelhash.serve.service import CurrentService

router = APIRouter(responses=PROBLEMS, route_class=Route)
_large = APIRouter(responses=PROBLEMS, route_class=LargeRoute)


@router.post("/search", tags=["search"], response_model=schemas.SearchResponse)
async def search(request: schemas.SearchRequest, service: CurrentService) -> Response:
    """Return the items that answer words, a stored item, a code or a vector; or words and one of
    the others together.
    """
    return await service.searcher.answer(request, time.perf_counter())


@_large.post("/search/vectors", tags=["search"])
async def search_by_vectors(
    request: schemas.VectorsRequest, service: CurrentService
) -> schemas.VectorsResponse:
    """Return the ids of the items nearest to each of many vectors."""
    return await service.searcher.answer_vectors(request, time.perf_counter())


@router.post("/search/image", tags=["search"], response_model=schemas.SearchResponse)
async def search_by_image(
    service: CurrentService, request: Annotated[schemas.ImageSearch, File()]
) -> Response:
    """Return the items nearest to an uploaded image, and to words if there are any. The image is
    not kept.
    """
    start = time.perf_counter()
    async with service.uploads.open(request.image) as (opened, _):
        return await service.searcher.answer(request, start, opened)


router.include_router(_large)
