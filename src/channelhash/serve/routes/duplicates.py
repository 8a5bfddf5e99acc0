"""``GET /duplicates``: groups of near-duplicates."""

import time
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query

from channelhash.search.duplicates import RADIUS, find_duplicates
from channelhash.serve.error_handlers import PROBLEMS
from channelhash.serve.limits import check_length, check_number
from channelhash.serve.routing import Route
from channelhash.serve.schemas import DuplicatesResponse, Modality, Text
from channelhash.serve.service import CurrentService

router = APIRouter(tags=["search"], responses=PROBLEMS, route_class=Route)

# Ids that the response has of one group.
_IDS = 100
# Bits of a code for one of the radius: with fewer, of many codes too many pairs would have to be compared.
_BITS = 16


@router.get("/duplicates")
async def duplicates(
    service: CurrentService,
    radius: Annotated[int, Query(ge=0, description="Bits within which two items are near-duplicates.")] = RADIUS,
    modality: Annotated[Modality | None, Query(description="Whose codes count; images if there are any.")] = None,
    where: Annotated[Text | None, Query(description="Filter: label = 'dog' AND year > 2015.")] = None,
    k: Annotated[int, Query(ge=1, description="Number of groups, at most.")] = 100,
) -> DuplicatesResponse:
    """Return groups of items whose codes are connected by steps of at most ``radius`` bits."""
    start = time.perf_counter()
    check_number("k", k, service.limits.k)
    check_length("where", where, service.limits.characters)

    def work() -> DuplicatesResponse:
        store = service.store
        check_number("radius", radius, max(RADIUS, (store.n_bits or 0) // _BITS))
        groups = find_duplicates(store, radius, modality, where or None)
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
