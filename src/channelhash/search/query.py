"""Search a store with words, an image or one of its items.

`encode_queries` and `query_like` make queries, `search_hits` finds the items nearest to one. `search_store`
does both for a single query; code that answers many loads the model once with `load_encoder`.
"""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from channelhash.codes import binarize, pack
from channelhash.errors import InputError
from channelhash.models import HashModel, load_model
from channelhash.search import open_store
from channelhash.search.hits import Hit, Hits, Query, SearchOptions, draw_hits, find_image, search_hits
from channelhash.search.store import Store

__all__ = [
    "Hit",
    "Hits",
    "Query",
    "SearchOptions",
    "draw_hits",
    "encode_queries",
    "find_image",
    "load_encoder",
    "open_filled_store",
    "query_like",
    "search_hits",
    "search_store",
]


def load_encoder(store: Store, model: Path | HashModel | None = None, trust_code: bool = False) -> HashModel:
    """Load the model that encodes queries to a store.

    Args:
        store: the store to search.
        model: a run or saved model, or one that is loaded; the store's own if None.
        trust_code: consent to run code of this machine that the model's folder names (``python:module:NAME``).

    Raises:
        InputError: the store has no model and none is given, it cannot be loaded, it names code and ``trust_code`` is
            false, or another model made the codes.
    """
    if isinstance(model, HashModel):
        return model
    folder = model or store.model_folder
    if folder is None:
        raise InputError(
            f"{store.address}: to encode a question, add --model with the run that made these codes; the store holds "
            "no model"
        )
    encoder = load_model(folder, trust_code)
    if store.model and not encoder.comparable(store.model):
        raise InputError(f"{store.address}: these codes were made by another model than {folder}; encode them again")
    return encoder


def encode_queries(encoder: HashModel, modality: str, items: Sequence[str | Path | Image.Image]) -> list[Query]:
    """Encode texts or images as queries, in one batch.

    Args:
        encoder: the store's model, see `load_encoder`.
        modality: ``"text"`` or ``"image"``: what ``items`` are.
        items: strings; or image files and opened images.

    Raises:
        InputError: an image cannot be read, or the model does not encode this modality.
    """
    rows = encoder.outputs(modality, items).numpy()  # type: ignore[arg-type]  # opened images too
    return [Query(code, row, modality) for code, row in zip(pack(binarize(rows)), rows, strict=True)]


def query_like(store: Store, item_id: str, modality: str | None = None, by: str | None = None) -> Query:
    """Return an item of the store as a query, of which only the bits are known.

    Args:
        store: the store that has the item.
        item_id: its id.
        modality: modality to be searched, as in `search_hits`.
        by: modality of the item's code to search with; if None, the one that is searched.

    Raises:
        InputError: the id is unknown, or the item has no such code.

    >>> import channelhash as ch, numpy as np
    >>> from channelhash.search.local.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> query_like(store, "b").code.tolist()
    [7]
    """
    if item_id not in store:
        raise InputError(f"--like {item_id}: {store.address} has no item with this id")
    codes = store.get([item_id])[0].codes
    query_modality = by or store.choose_modality(modality)
    if query_modality not in codes:
        available = " and ".join(sorted(codes))
        raise InputError(f"--like {item_id}: has no {query_modality} code; ask by what it has, --by {available}")
    return Query(codes[query_modality], modality=query_modality)


def search_store(
    store: Store,
    options: SearchOptions | None = None,
    *,
    text: str | None = None,
    image: Path | Image.Image | None = None,
    like: str | None = None,
    by: str | None = None,
    model: Path | HashModel | None = None,
) -> Hits:
    """Search a store with a single query: words, an image or an item's id.

    Args:
        store: the store to search.
        options: which items to return.
        text: words to search with.
        image: image to search with.
        like: id of an item to search with.
        by: with ``like``, modality of the item's code to search with, see `query_like`.
        model: see `load_encoder`.

    Raises:
        InputError: not exactly one query; or as `load_encoder`, `encode_queries`, `query_like` and `search_hits`.
    """
    options = options or SearchOptions()
    if sum(value is not None for value in (text, image, like)) != 1:
        raise InputError("search: give exactly one of --text, --image and --like")
    if by is not None and like is None:
        raise InputError("--by: says which code of --like asks; leave it out")
    if text is not None and not text.strip():
        raise InputError("--text: is empty; give some words")
    store.choose_modality(options.modality)  # before a model is loaded in vain
    if like is not None:
        query = query_like(store, like, options.modality, by)
    else:
        modality, item = ("text", text) if image is None else ("image", image)
        query = encode_queries(load_encoder(store, model), modality, [item or ""])[0]
    return search_hits(store, query, options)


def open_filled_store(address: str | Path) -> Store:
    """Open a store that has items.

    Raises:
        InputError: there is none at that address, or it is empty; or as `channelhash.open_store`.
    """
    store = open_store(address)
    if not len(store):
        if store.model_folder is not None or store.n_bits is not None:
            raise InputError(f"{address}: this store has no items yet; add some with `channelhash index add`")
        raise InputError(
            f"{address}: neither a run's folder nor a Parquet file of codes nor a store; make a store with "
            "`channelhash index create`"
        )
    return store
