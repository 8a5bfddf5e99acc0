"""A question in words, a picture or an item, answered from a store of codes.

A question becomes a code (`encode_questions`, `question_like`), and a code finds items (`answer`). `ask` does both for
a single question; what answers many loads the model once with `load_encoder`.
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
from channelhash.search.rerank import rerank as reranked
from channelhash.search.store import Answers, Item, Store, Value
from channelhash.search.validation import searched_modality
from channelhash.utils.image_grid import Cell, bits, write_contact_sheet


@dataclass(frozen=True)
class Question:
    """What is searched with.

    Attributes:
        code: ``(ceil(k / 8),)`` packed code.
        outputs: ``(k,)`` real-valued outputs of the model, whose signs are the code; None where only bits are known.
    """

    code: PackedCodes
    outputs: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Wanted:
    """Which answers a question is to have.

    Attributes:
        k: number of answers.
        radius: instead of ``k``, all items within so many bits, inclusive.
        limit: at most so many of those within ``radius``.
        modality: whose codes are searched; images if there are any, else the only other one.
        where: only items that pass this filter, see `channelhash.search.filters`.
        rerank: order the first so many answers by asymmetric distance, see `channelhash.search.rerank`; with ``k`` the
            answers are the best ``k`` of them.

    Raises:
        InputError: a number is out of range.
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
    """One answer.

    Attributes:
        id: the item.
        distance: number of bits in which its code differs from the query's.
        text: its text, empty if unknown.
        labels: its label names, empty if unknown.
        image: its picture's path, empty if unknown.
        metadata: what else is known of it.
        code: ``(ceil(k / 8),)`` the packed code that was found.
        modalities: what it has codes of.
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
        """The answer as JSON-able values: everything but the codes."""
        names = ("id", "distance", "text", "labels", "image", "metadata")
        return {name: getattr(self, name) for name in names}


def load_encoder(store: Store, model: Path | None = None) -> HashModel:
    """The model that encodes questions to a store.

    Args:
        store: what is going to be searched.
        model: a run or saved model; the store's own if None.

    Raises:
        InputError: the store knows none and none is given, it cannot be loaded, or the codes are another model's.
    """
    folder = model or store.model_folder
    if folder is None:
        raise InputError(
            f"{store.address}: to encode a question, add --model with the run that made these codes; the store holds "
            "no model"
        )
    encoder = load_model(folder)
    if store.model and not encoder.comparable(store.model):
        raise InputError(f"{store.address}: these codes were made by another model than {folder}; encode them again")
    return encoder


def encode_questions(encoder: HashModel, modality: str, items: Sequence[str | Path | Image.Image]) -> list[Question]:
    """Texts or pictures as questions, encoded together.

    Args:
        encoder: the store's model, see `load_encoder`.
        modality: ``"text"`` or ``"image"``: what ``items`` are.
        items: strings; or picture files and opened pictures.

    Raises:
        InputError: a picture cannot be read, or the model does not encode this modality.
    """
    rows = encoder.outputs(modality, items).numpy()  # type: ignore[arg-type]  # opened pictures too
    return [Question(code, row) for code, row in zip(pack(binarize(rows)), rows, strict=True)]


def question_like(store: Store, item_id: str, modality: str | None = None, by: str | None = None) -> Question:
    """An item of the store as a question; only its bits are known.

    Args:
        store: has the item.
        item_id: its id.
        modality: whose codes are going to be searched, as in `answer`.
        by: which of the item's codes asks; if None, that of the modality that is searched.

    Raises:
        InputError: the id is unknown, or the item has no such code.
    """
    if item_id not in store:
        raise InputError(f"--like {item_id}: {store.address} has no item with this id")
    codes = store.get([item_id])[0].codes
    wanted = by or searched_modality(modality, store.modalities, store.address)
    if wanted not in codes:
        there = " and ".join(sorted(codes))
        raise InputError(f"--like {item_id}: has no {wanted} code; ask by what it has, --by {there}")
    return Question(codes[wanted])


def answer(store: Store, question: Question, wanted: Wanted | None = None) -> list[Hit]:
    """The items of a store that is not empty nearest to a question, nearest first, equal distances by id.

    Raises:
        InputError: the store has no such codes, the filter is wrong, or answers are to be re-ranked to a question of
            which only bits are known.
    """
    wanted = wanted or Wanted()
    modality, rerank = searched_modality(wanted.modality, store.modalities, store.address), wanted.rerank or 0
    if rerank and question.outputs is None:
        raise InputError("--rerank: of a stored item only its bits are known; ask with --text or --image")
    code = question.code[None]
    if wanted.radius is None:
        kept: int | None = wanted.k
        found = store.search(code, max(wanted.k, rerank), modality, wanted.where)
    else:
        kept = wanted.limit
        found = store.search_radius(code, wanted.radius, modality, wanted.where, kept and max(kept, rerank))
    return _hits(store, found, modality, question, rerank)[:kept]


def ask(
    store: Store,
    wanted: Wanted | None = None,
    *,
    text: str | None = None,
    image: Path | Image.Image | None = None,
    like: str | None = None,
    by: str | None = None,
    model: Path | None = None,
) -> list[Hit]:
    """A single question, from words, a picture or an id to its answers.

    Args:
        store: what is searched.
        wanted: which answers.
        text: words to search with.
        image: picture to search with.
        like: id of an item to search with.
        by: with ``like``, which of its codes asks, see `question_like`.
        model: see `load_encoder`.

    Raises:
        InputError: not exactly one question; or as `load_encoder`, `encode_questions`, `question_like` and `answer`.
    """
    wanted = wanted or Wanted()
    if sum(question is not None for question in (text, image, like)) != 1:
        raise InputError("search: give exactly one of --text, --image and --like")
    if by is not None and like is None:
        raise InputError("--by: says which code of --like asks; leave it out")
    if text is not None and not text.strip():
        raise InputError("--text: is empty; give some words")
    searched_modality(wanted.modality, store.modalities, store.address)  # before a model is loaded in vain
    if like is not None:
        question = question_like(store, like, wanted.modality, by)
    else:
        modality, item = ("text", text) if image is None else ("image", image)
        question = encode_questions(load_encoder(store, model), modality, [item or ""])[0]
    return answer(store, question, wanted)


def open_to_search(address: str | Path) -> Store:
    """The store at an address that has items.

    Raises:
        InputError: there is none, or it is empty; or as `channelhash.open_store`.
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


def picture_of(store: Store, item_id: str) -> Path | None:
    """The picture of an item of the store, if it has one."""
    image = store.get([item_id])[0].metadata.get("image")
    return Path(str(image)) if image else None


def draw_answers(hits: Sequence[Hit], question: str | Path, path: Path) -> None:
    """The question and its answers as a PNG, one row."""
    asked = Cell(question, "query") if isinstance(question, Path) else Cell(None, question)
    cells = [
        Cell(Path(hit.image) if hit.image else None, f"{bits(hit.distance)}: {hit.text or hit.id}") for hit in hits
    ]
    write_contact_sheet([[asked, *cells]], path)


def _hits(store: Store, found: Answers, modality: str, question: Question, rerank: int) -> list[Hit]:
    items = store.get(found.ids[0])
    hits = [_hit(item, distance, modality) for item, distance in zip(items, found.distances[0].tolist(), strict=True)]
    if not rerank or not hits or question.outputs is None:
        return hits
    order = reranked(question.outputs, np.stack([hit.code for hit in hits]), rerank)
    return [hits[place] for place in order.tolist()]


def _hit(item: Item, distance: int, modality: str) -> Hit:
    known = dict(item.metadata)
    text, image, labels = known.pop("text", None), known.pop("image", None), known.pop("labels", None)
    return Hit(
        item.id,
        distance,
        str(text or ""),
        list(labels) if isinstance(labels, list) else [],
        str(image or ""),
        known,
        item.codes[modality],
        tuple(sorted(item.codes)),
    )
