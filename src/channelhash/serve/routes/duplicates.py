"""``GET /duplicates``: groups of near-duplicates."""

import time
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query

from channelhash.errors import InputError
from channelhash.search.duplicates import find_duplicates
from channelhash.serve.error_handlers import PROBLEMS
from channelhash.serve.limits import check_length, check_number
from channelhash.serve.routing import Route
from channelhash.serve.schemas import DuplicatesResponse, Modality, Text
from channelhash.serve.service import CurrentService

router = APIRouter(tags=["search"], responses=PROBLEMS, route_class=Route)

# Ids that the response has of one group.
_IDS = 100


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
