"""``GET /items`` and ``GET /facets``: look through the items of a store without a question."""

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query

from channelhash.errors import InputError
from channelhash.serve.error_handlers import PROBLEMS
from channelhash.serve.limits import check_narrowing
from channelhash.serve.responses import make_browsed_item
from channelhash.serve.routing import Route
from channelhash.serve.schemas import BrowsedItems, BrowseOptions, Facet, Facets
from channelhash.serve.service import CurrentService

router = APIRouter(tags=["items"], responses=PROBLEMS, route_class=Route)


@router.get("/items")
async def browse(options: Annotated[BrowseOptions, Query()], service: CurrentService) -> BrowsedItems:
    """Return some of the items in an order; over all offsets each comes once, as long as nothing is written."""
    check_narrowing(options, service.limits.characters)

    def work() -> BrowsedItems:
        where = service.browser.narrow(options.where, options.label, options.folder, options.month)
        part = slice(options.offset, options.offset + min(options.limit, service.limits.k))
        total, ids = service.browser.select(where, options.order, options.seed, part)
        items = [make_browsed_item(item) for item in service.store.get(ids)]
        return BrowsedItems(total=total, offset=options.offset, items=items)

    def work_again() -> BrowsedItems:
        try:
            return work()
        except InputError:  # an item may have been deleted since the items were counted
            service.browser.forget()
            return work()

    return await run_sync(work_again, limiter=service.searching)


@router.get("/facets")
async def facets(service: CurrentService) -> Facets:
    """Return the labels, folders and months of all items, with the number of items of each."""

    def work() -> Facets:
        catalogue, counts = service.browser.catalogue(), service.store.label_counts()
        kinds = (counts, catalogue.folders, catalogue.months)
        labels, folders, months = ([Facet(name=name, count=count) for name, count in kind.items()] for kind in kinds)
        return Facets(labels=labels, folders=folders, months=months)

    return await run_sync(work, limiter=service.searching)
