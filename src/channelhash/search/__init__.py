"""Search in codes: stores, exact nearest codes, answers for people."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from channelhash.codes import CodeSet
from channelhash.codes.stage import Stage
from channelhash.data.folder import no_such
from channelhash.errors import InputError
from channelhash.search.address import STORES as STORES, Address as Address
from channelhash.search.checks import check_count
from channelhash.search.index import CodeIndex
from channelhash.search.items import Facts, NoStoreError
from channelhash.search.store import Answers, Item, Store
from channelhash.utils.public_names import load_name

if TYPE_CHECKING:
    from channelhash.search import filters as filters
    from channelhash.search.hits import Hit as Hit, Hits as Hits, search_hits as search_hits
    from channelhash.search.plan import combine as combine
    from channelhash.search.query import (
        encode_queries as encode_queries,
        load_encoder as load_encoder,
        search_store as search_store,
        search_vectors as search_vectors,
    )
    from channelhash.search.question import (
        Query as Query,
        SearchOptions as SearchOptions,
        parse_question as parse_question,
        query_like as query_like,
    )
    from channelhash.search.rank import Ranking as Ranking, fuse as fuse

#: Public name that is loaded on first use -> the module that it is, or that defines it.
_MODULES = {
    "Hit": "channelhash.search.hits",
    "Hits": "channelhash.search.hits",
    "Query": "channelhash.search.question",
    "Ranking": "channelhash.search.rank",
    "SearchOptions": "channelhash.search.question",
    "combine": "channelhash.search.plan",
    "encode_queries": "channelhash.search.query",
    "filters": "channelhash.search.filters",
    "fuse": "channelhash.search.rank",
    "load_encoder": "channelhash.search.query",
    "parse_question": "channelhash.search.question",
    "query_like": "channelhash.search.question",
    "search_hits": "channelhash.search.hits",
    "search_store": "channelhash.search.query",
    "search_vectors": "channelhash.search.query",
}

__all__ = ["Answers", "CodeIndex", "Item", "Store", "open_store", *_MODULES]


def __getattr__(name: str) -> Any:
    return load_name(__name__, _MODULES, name)


def __dir__() -> list[str]:
    return sorted(__all__)


def open_store(
    address: str | Path | Address,
    n_bits: int | None = None,
    model: str = "",
    stage: Stage | None = None,
    mapped: bool = False,
) -> Store:
    """Open a store of codes to add to and to search in.

    Args:
        address: a store's folder; a folder of photographs that `channelhash.index` has indexed; a
            run's folder (its retrieval set) or a Parquet file of codes, which are read-only; or an
            address that begins with one of `STORES`.
        n_bits: code length. If it is given, the first `Store.add` creates a missing store.
        model: fingerprint of the model that makes the codes.
        stage: how projections are kept beside the codes of a new store (see
            `Store.search_projections`), which needs a folder or PostgreSQL; an existing store must
            keep them in this way. None keeps none in a new store.
        mapped: map the files of codes of a store in a folder into memory once they are checked, so
            that several processes share them. Nobody else may write to these files. Other stores
            ignore it.

    Raises:
        InputError: the address holds a password; there is something else at it, or nothing and no
            ``n_bits`` is given; or the store has another code length or model, or no projections.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open_store(f"{folder}/photos.store", n_bits=64) as store:
    ...         len(store), store.n_bits
    (0, 64)
    """
    # These take seconds to import.
    from channelhash.search.sqlite.store import open_codes, open_folder

    place = Address.parse(address).store
    if n_bits is not None:
        check_count(n_bits, "n_bits", 1)
    new = Facts.of(n_bits or 0, model, stage)
    if new.projected and not place.keeps_projections:
        raise InputError(
            f"{place}: keeps no projections; make a store in a folder, or search codes alone"
        )
    if place.path is None:
        return _check_made(_with_stage(STORES[place.scheme](place.text, new), stage))
    codes = place.codes_file
    if codes is not None:
        if new.projected:
            raise InputError(f"{place}: holds codes without projections; make a store in a folder")
        model_folder = place.path if place.kind == "run" else None
        return open_codes(CodeSet.load(codes), place.text, model_folder, n_bits, model)
    store = _with_stage(open_folder(place.path, new, mapped), stage)
    return store if place.kind == "store" else _check_made(store)


def open_filled_store(address: str | Path | Address) -> Store:
    """Open a store that has items."""
    path = Address.parse(address).path
    if path is not None and not path.exists():
        raise no_such(address)
    store = open_store(address)
    if not len(store):
        raise InputError(
            f"{address}: this store has no items yet; add some with `channelhash index add`"
        )
    return store


def _with_stage(store: Store, stage: Stage | None) -> Store:
    """Give a store the stage that it gets if it is new."""
    store.new_stage = stage
    return store


def _check_made(store: Store) -> Store:
    """Return the store if it exists or can be created."""
    if store.n_bits is not None:
        return store
    store.close()
    remedy = "make a store with `channelhash index create`"
    if Path(store.address).is_dir():
        raise NoStoreError(f"{store.address}: has no pictures; put some into it, or {remedy}")
    raise NoStoreError(
        f"no store at {store.address}: neither a run's folder nor a Parquet file of codes nor a "
        f"store; {remedy}; in Python, give n_bits"
    )
