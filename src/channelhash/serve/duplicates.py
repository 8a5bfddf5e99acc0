"""``/duplicates``: items alike, and what becomes of them."""

import time
from functools import partial
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, HTTPException, Query

from channelhash.search.duplicates import find_duplicates
from channelhash.search.sqlite import decisions
from channelhash.serve import schemas
from channelhash.serve.middleware import PROBLEMS, WRITE_PROBLEMS
from channelhash.serve.routing import Route, WriteRoute
from channelhash.serve.service import CurrentService

readers = APIRouter(prefix="/duplicates", tags=["duplicates"], responses=PROBLEMS, route_class=Route)
writers = APIRouter(prefix="/duplicates", tags=["duplicates"], responses=WRITE_PROBLEMS, route_class=WriteRoute)
# Items that the response has of one group.
_ITEMS = 100


@readers.get("")
async def _find(
    service: CurrentService,
    radius: Annotated[int | None, Query(ge=0, description="Bits that codes are apart at most.")] = None,
    modality: Annotated[schemas.Modality | None, Query(description="Whose codes count; images if any.")] = None,
    where: Annotated[schemas.Text | None, Query(description="Filter: label = 'dog' AND year > 2015.")] = None,
    pictures: Annotated[bool, Query(description="Compare pictures, too; without, near codes are enough.")] = True,
    k: Annotated[schemas.Count, Query(description="Number of groups, at most.")] = 100,
) -> schemas.DuplicatesResponse:
    """Return groups of items whose pictures are all alike; where there are none to compare, codes are near."""
    start = time.perf_counter()

    def work() -> schemas.DuplicatesResponse:
        store = service.store
        groups = service.retry(partial(find_duplicates, store, radius, modality, where or None, pictures))
        first = groups[:k]
        return schemas.DuplicatesResponse(
            groups=[group.ids[:_ITEMS] for group in first],
            distances=[group.distances[:_ITEMS] for group in first],
            photos=[[schemas.CopyFacts.of(photo) for photo in group.photos[:_ITEMS]] for group in first],
            keepers=[group.keeper for group in first],
            reasons=[group.reason for group in first],
            sizes=[len(group.ids) for group in first],
            found=len(groups),
            modality=modality or (store.choose_modality() if store.modalities else "image"),
            radius=radius,
            seconds=time.perf_counter() - start,
        )

    return await run_sync(work, limiter=service.grouping)


@writers.post("/decisions", status_code=201)
async def _decide(new: schemas.NewDecision, service: CurrentService) -> schemas.WriteResponse:
    """Keep that items are different, or that all stay: such a group is not returned again unless another joins."""
    await run_sync(decisions.decide, service.store, new.kind, new.ids, limiter=service.grouping)
    return schemas.WriteResponse(items=len(new.ids))


@writers.post("/move")
async def _move(new: schemas.NewMove, service: CurrentService) -> schemas.Decided:
    """Move the files of copies to a folder beside that of all pictures, and take them out of the store."""

    def work() -> schemas.Decided:
        # A request cannot choose any part of the folder.
        home = decisions.folder_of(service.get_item(new.keeper))
        if not home.name:
            raise HTTPException(422, "keeper: is of no folder of pictures; `channelhash duplicates --move` takes any")
        folder = home.with_name(f"{home.name} duplicates")
        moved = decisions.move_rest(service.store, {new.keeper: new.ids}, folder, new.dry_run)
        return schemas.Decided(kind="move", ids=list(moved.paths), problems=moved.problems, folder=folder.name)

    return await run_sync(work, limiter=service.grouping)


@writers.post("/undo")
async def _undo(service: CurrentService) -> schemas.Decided:
    """Take the last decision or move back."""
    undone = await run_sync(decisions.undo, service.store, limiter=service.grouping)
    if undone is None:
        raise HTTPException(404, "there is no decision to take back")
    return schemas.Decided(kind=undone.kind, ids=list(undone.paths), problems=undone.problems)
