"""Search a store with words, an image or one of its items.

`encode_queries` and `query_like` make queries, `search_hits` finds the items nearest to one. `search_store`
does both for a single query; code that answers many loads the model once with `load_encoder`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from channelhash.codes import PackedCodes, binarize, pack
from channelhash.errors import InputError
from channelhash.models import HashModel, load_model
from channelhash.search import open_store
from channelhash.search.rerank import rerank
from channelhash.search.store import Item, Store
from channelhash.search.validation import Value
from channelhash.utils.image_grid import Cell, bits, write_contact_sheet


@dataclass(frozen=True)
class Query:
    """A query to a store.

    Attributes:
        code: ``(ceil(k / 8),)`` packed code.
        outputs: ``(k,)`` real-valued outputs of the model, whose signs are the code; None where only bits are known.

    >>> Query(np.array([7], np.uint8)).outputs is None
    True
    """

    code: PackedCodes
    outputs: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class SearchOptions:
    """Which items a search returns.

    Attributes:
        k: number of items.
        radius: instead of ``k``, all items within so many bits, inclusive.
        limit: at most so many of those within ``radius``.
        modality: modality to search; images if the store has any, else its only modality.
        where: filter that items must pass, see `channelhash.search.filters`.
        rerank: number of nearest items to reorder by asymmetric distance, see `channelhash.search.rerank`;
            with ``k``, a search returns the best ``k`` of them.

    Raises:
        InputError: a number is out of range.

    >>> SearchOptions(k=5, where="label = 'dog'").radius is None
    True
    """

    k: int = 10
    radius: int | None = None
    limit: int | None = None
    modality: str | None = None
    where: str | None = None
    rerank: int | None = None

    def __post_init__(self) -> None:
        if self.k < 1:
            raise InputError(f"-k {self.k}: ask for at least 1 answer")
        if self.radius is not None and self.radius < 0:
            raise InputError(f"--radius {self.radius}: a distance is at least 0 bits")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"--limit {self.limit}: ask for at least 1 answer")
        if self.rerank is not None and self.rerank < 1:
            raise InputError(f"--rerank {self.rerank}: at least 1 answer can be re-ranked")


@dataclass(frozen=True)
class Hit:
    """One item that a search found.

    Attributes:
        id: the item's id.
        distance: number of bits in which its code differs from the query's.
        text: its text, empty if unknown.
        labels: its label names, empty if unknown.
        image: path of its image, empty if unknown.
        metadata: its other metadata.
        code: ``(ceil(k / 8),)`` the packed code that was found.
        modalities: the modalities that it has codes of.

    >>> Hit("a", 2, "a dog", ["dog"], "").as_dict()["distance"]
    2
    """

    id: str
    distance: int
    text: str
    labels: list[str]
    image: str
    metadata: dict[str, Value] = field(default_factory=dict)
    code: PackedCodes = field(default_factory=lambda: np.zeros(0, np.uint8), compare=False)
    modalities: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the codes as JSON-able values."""
        names = ("id", "distance", "text", "labels", "image", "metadata")
        return {name: getattr(self, name) for name in names}


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
    return [Query(code, row) for code, row in zip(pack(binarize(rows)), rows, strict=True)]


def query_like(store: Store, item_id: str, modality: str | None = None, by: str | None = None) -> Query:
    """Return an item of the store as a query, of which only the bits are known.

    Args:
        store: the store that has the item.
        item_id: its id.
        modality: modality to be searched, as in `search_hits`.
        by: modality of the item's code to search with; if None, the one that is searched.

    Raises:
        InputError: the id is unknown, or the item has no such code.

    >>> import channelhash as ch
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
    return Query(codes[query_modality])


def search_hits(store: Store, query: Query, options: SearchOptions | None = None) -> list[Hit]:
    """Find the items nearest to a query, nearest first, equal distances by id, in a store that is not empty.

    Raises:
        InputError: the store has no such codes, the filter is wrong, or re-ranking needs the real-valued outputs of a
            query of which only bits are known.

    >>> import channelhash as ch
    >>> from channelhash.search.local.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> [(hit.id, hit.distance) for hit in search_hits(store, query_like(store, "b"))]
    [('b', 0), ('a', 3)]
    """
    options = options or SearchOptions()
    modality, n_reranked = store.choose_modality(options.modality), options.rerank or 0
    if n_reranked and query.outputs is None:
        raise InputError("--rerank: of a stored item only its bits are known; ask with --text or --image")
    code = query.code[None]
    if options.radius is None:
        count: int | None = options.k
        answers = store.search(code, max(options.k, n_reranked), modality, options.where)
    else:
        count = options.limit
        answers = store.search_radius(code, options.radius, modality, options.where, count and max(count, n_reranked))
    items, distances = store.get(answers.ids[0]), answers.distances[0].tolist()
    hits = [_hit(item, distance, modality) for item, distance in zip(items, distances, strict=True)]
    if n_reranked and hits and query.outputs is not None:
        order = rerank(query.outputs, np.stack([hit.code for hit in hits]), n_reranked)
        hits = [hits[place] for place in order.tolist()]
    return hits[:count]


def search_store(
    store: Store,
    options: SearchOptions | None = None,
    *,
    text: str | None = None,
    image: Path | Image.Image | None = None,
    like: str | None = None,
    by: str | None = None,
    model: Path | HashModel | None = None,
) -> list[Hit]:
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


def find_image(store: Store, item_id: str) -> Path | None:
    """Return the path of an item's image, if it has one.

    >>> import channelhash as ch
    >>> from channelhash.search.local.store import open_codes
    >>> codes = {"image": np.array([[0], [7]], np.uint8)}
    >>> store = open_codes(ch.CodeSet(["a", "b"], codes, None, n_bits=8, images=("a.jpg", "")))
    >>> str(find_image(store, "a")), find_image(store, "b")
    ('a.jpg', None)
    """
    image = store.get([item_id])[0].metadata.get("image")
    return Path(str(image)) if image else None


def draw_hits(hits: Sequence[Hit], query: str | Path, path: Path) -> None:
    """Draw a query, words or an image file, and its hits as one row of a PNG."""
    first = Cell(query, "query") if isinstance(query, Path) else Cell(None, query)
    cells = [
        Cell(Path(hit.image) if hit.image else None, f"{bits(hit.distance)}: {hit.text or hit.id}") for hit in hits
    ]
    write_contact_sheet([[first, *cells]], path)


def _hit(item: Item, distance: int, modality: str) -> Hit:
    metadata = dict(item.metadata)
    text, image, labels = (metadata.pop(key, None) for key in ("text", "image", "labels"))
    return Hit(
        item.id,
        distance,
        str(text or ""),
        list(labels) if isinstance(labels, list) else [],
        str(image or ""),
        metadata,
        item.codes[modality],
        tuple(sorted(item.codes)),
    )
