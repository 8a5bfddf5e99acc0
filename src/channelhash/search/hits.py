"""Find the items of a store that are nearest to a query, and what is known of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.errors import InputError
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


def search_hits(store: Store, query: Query, options: SearchOptions | None = None) -> list[Hit]:
    """Find the items nearest to a query, nearest first, equal distances by id, in a store that is not empty.

    Raises:
        InputError: the store has no such codes, the filter is wrong, or re-ranking needs the real-valued outputs of a
            query of which only bits are known.

    >>> import channelhash as ch
    >>> from channelhash.search.local.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8))
    >>> [(hit.id, hit.distance) for hit in search_hits(store, Query(np.array([7], np.uint8)))]
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
