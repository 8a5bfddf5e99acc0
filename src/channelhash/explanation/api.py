"""From what a person names (words, images, ids) to the explanation of a pair; `channelhash.explain`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from channelhash.errors import InputError
from channelhash.explanation.agreeing_bits import Outputs, compare_bits
from channelhash.explanation.bit_labels import BitLabels, label_evidence
from channelhash.explanation.bit_labels_cache import load_bit_labels
from channelhash.explanation.explanation import DEFAULT_MAPS, Explanation, MapSettings
from channelhash.explanation.occlusion import (
    Encode,
    ImageMap,
    WordInfluence,
    make_grid,
    map_image,
    map_words,
    reduce_image,
)
from channelhash.explanation.sides import Side, encode_side, load_side, make_encoders
from channelhash.search.query import load_encoder, open_filled_store
from channelhash.search.store import Item, Store
from channelhash.utils.image_files import open_image


def explain(
    address: str | Path,
    images: Sequence[Path | str | Image.Image] = (),
    texts: Sequence[str] = (),
    likes: Sequence[str] = (),
    by: Sequence[str] = (),
    model: Path | None = None,
    settings: MapSettings | None = DEFAULT_MAPS,
    trust_code: bool = False,
) -> Explanation:
    """Explain why two items have codes as near as they are.

    Args:
        address: a run's folder, a store or a file of codes, as for a search.
        images: image files or opened images.
        texts: words.
        likes: ids of items of the store. Images, texts and likes are two together: the pair, in this order.
        by: for each like, the modality of its code, ``"image"`` or ``"text"``; by default that of a search.
        model: run or saved model that made the codes, if the store knows none.
        settings: how parts are hidden for the maps; None makes no maps.
        trust_code: consent to run code of this machine that the model's folder names (``python:module:NAME``).

    Returns:
        Bits, their labels, and maps where the raw items are known and the model can encode them.

    Raises:
        InputError: there are not two items, one cannot be read or encoded, an id is unknown, or there is no such store.
    """
    n_items = len(images) + len(texts) + len(likes)
    if n_items != 2:
        raise InputError(f"explain: give two of --image, --text and --like, not {n_items or 'none'}")
    if by and len(by) != len(likes):
        raise InputError(f"--by: says which code of a --like is meant; give one for each of {len(likes)}, or none")
    if not all(text.strip() for text in texts):
        raise InputError("--text: is empty; give some words")
    store = open_filled_store(address)
    try:
        needs_model = images or texts or model or store.model_folder
        encoders = make_encoders(load_encoder(store, model, trust_code)) if needs_model else {}
        items: list[tuple[str, Any]] = [("image", Path(image) if isinstance(image, str) else image) for image in images]
        items += [("text", text) for text in texts]
        sides = [encode_side(modality, item, _encoder(encoders, modality)) for modality, item in items]
        for item_id, modality in zip(likes, by or [""] * len(likes), strict=True):
            modality = modality or store.choose_modality()
            sides.append(load_side(_item(store, item_id, modality), modality, store.n_bits or 0, encoders))
        return explain_pair((sides[0], sides[1]), load_bit_labels(store), encoders, settings)
    finally:
        store.close()


def explain_pair(
    pair: tuple[Side, Side],
    bit_labels: BitLabels | None,
    encoders: Mapping[str, Encode],
    settings: MapSettings | None = DEFAULT_MAPS,
) -> Explanation:
    """Explain a pair of items.

    An encoder encodes one item for each position of the patch on an image (some 60 by default), and for each word.

    Args:
        pair: the two items.
        bit_labels: labels that go with bits; None gives bits without labels.
        encoders: modality -> encoder of its items, for the maps.
        settings: how parts are hidden; None makes no maps.

    >>> side = Side("text", "a dog", np.array([1.0, 1.0], np.float32), item="a dog")
    >>> partner = Side("text", "a cat", np.array([1.0, -1.0], np.float32), item="a cat")
    >>> explain_pair((side, partner), None, {}, settings=None).distance
    1
    """
    first, second = pair
    bits = compare_bits(first.outputs, second.outputs, (first.real, second.real))
    clear = np.zeros((len(bits), 0))
    if bit_labels is not None and all(side.modality in bit_labels.correlations for side in pair):
        clear = bit_labels.clear([side.modality for side in pair])
    maps = [
        _map_side(side, encoders, partner.outputs, settings) for side, partner in ((first, second), (second, first))
    ]
    return Explanation(
        pair,
        bits,
        bit_labels.label_names if bit_labels is not None and clear.shape[1] else (),
        clear,
        label_evidence(bits, clear),
        (maps[0][0], maps[1][0]),
        (maps[0][1], maps[1][1]),
        tuple(remark for _, _, remarks in maps for remark in remarks),
    )


def _map_side(
    side: Side, encoders: Mapping[str, Encode], partner: Outputs, settings: MapSettings | None
) -> tuple[ImageMap | None, list[WordInfluence] | None, list[str]]:
    """Return the map of a side's image or the influence of its words, and remarks."""
    remarks = [f"{side.name}: {side.problem}"] if side.item is not None and side.problem else []
    if settings is None:
        return None, None, remarks
    if side.item is None:
        return None, None, [f"no map of {side.name}: {side.problem}"]
    if side.modality == "text":
        text = str(side.item)
        if len(text.split()) > settings.max_words:
            remarks.append(f"{side.name[:40]} …: only its first {settings.max_words} words were left out in turn")
        return None, map_words(text, encoders["text"], partner, settings.max_words), remarks
    if isinstance(side.item, Image.Image):
        image = reduce_image(side.item)
    else:
        with open_image(side.item) as opened:
            image = reduce_image(opened)
    grid = make_grid(image.size, settings.cells, settings.patch)
    n_positions = len(grid.positions())
    if n_positions > settings.max_positions:
        problem = f"{n_positions} patches would have to be looked at, more than {settings.max_positions}"
        return None, None, [*remarks, f"no map of {side.name}: {problem}"]
    return map_image(image, grid, encoders["image"], partner, settings.fill), None, remarks


def _encoder(encoders: Mapping[str, Encode], modality: str) -> Encode:
    if modality not in encoders:
        raise InputError(f"--{modality}: this model encodes {' and '.join(encoders)}")
    return encoders[modality]


def _item(store: Store, item_id: str, modality: str) -> Item:
    if item_id not in store:
        raise InputError(f"--like {item_id}: {store.address} has no item with this id")
    item = store.get([item_id])[0]
    if modality not in item.codes:
        available = " and ".join(sorted(item.codes))
        raise InputError(f"--like {item_id}: has no {modality} code; explain by what it has, --by {available}")
    return item
