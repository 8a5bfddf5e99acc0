"""From what a person names (words, pictures, ids) to an explanation; `channelhash.explanation`."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from channelhash.codes import PackedCodes, binarize, unpack
from channelhash.errors import InputError
from channelhash.explanation.agreeing_bits import Outputs
from channelhash.explanation.bit_labels_cache import meanings_of
from channelhash.explanation.explanation import DEFAULT_MAPS, Explanation, MapSettings, Side, explain_pair
from channelhash.explanation.occlusion import Encode
from channelhash.models import HashModel
from channelhash.search.query import load_encoder, open_filled_store
from channelhash.search.store import Item, Store
from channelhash.utils.image_grid import bits as bits_word


def explain(
    address: str | Path,
    images: Sequence[Path | str | Image.Image] = (),
    texts: Sequence[str] = (),
    likes: Sequence[str] = (),
    by: Sequence[str] = (),
    model: Path | None = None,
    settings: MapSettings | None = DEFAULT_MAPS,
) -> Explanation:
    """Why two items have codes as near as they are.

    Args:
        address: a run's folder, a store or a file of codes, as for a search.
        images: picture files or opened pictures.
        texts: words.
        likes: ids of items of the store. Images, texts and likes are two together; they are the pair, in this order.
        by: of each like, ``"image"`` or ``"text"``: which of its codes; the one that a search would search if left out.
        model: run or saved model that made the codes, where the store knows none.
        settings: how parts are hidden for the maps; None makes no maps.

    Returns:
        Bits, their meanings, and maps where the raw items are known and the model can encode them.

    Raises:
        InputError: there are not two items, one cannot be read or encoded, an id is unknown, or there is no such store.
    """
    n_items = len(images) + len(texts) + len(likes)
    if n_items != 2:
        raise InputError(f"explain: give two of --image, --text and --like, not {n_items or 'none'}")
    if by and len(by) != len(likes):
        raise InputError(f"--by: says which code of a --like is meant; give one for each of {len(likes)}, or none")
    for text in texts:
        if not text.strip():
            raise InputError("--text: is empty; give some words")
    store = open_filled_store(address)
    try:
        encoder = load_encoder(store, model) if images or texts else _encoder_if_any(store, model)
        encoders = {} if encoder is None else encoders_of(encoder)
        given: list[tuple[str, Any]] = [("image", Path(image) if isinstance(image, str) else image) for image in images]
        given += [("text", text) for text in texts]
        sides = [new_side(modality, item, _encoder(encoders, modality)) for modality, item in given]
        chosen: Sequence[str | None] = by or [None] * len(likes)
        for item_id, modality in zip(likes, chosen, strict=True):
            modality = modality or store.choose_modality()
            sides.append(stored_side(_item(store, item_id, modality), modality, store.n_bits or 0, encoders))
        return explain_pair(sides[0], sides[1], meanings_of(store), encoders, settings)
    finally:
        store.close()


def new_side(modality: str, item: str | Path | Image.Image, encode: Encode, name: str = "") -> Side:
    """Words or a picture that the model encodes.

    Raises:
        InputError: it cannot be read or encoded.
    """
    shown = name or (item if isinstance(item, str) else item.name if isinstance(item, Path) else "the picture")
    return Side(modality, shown, encode([item])[0], item)


def stored_side(item: Item, modality: str, n_bits: int, encoders: dict[str, Encode]) -> Side:
    """An item of a store, by its code of one modality: encoded anew where its words or picture are known, which gives
    real-valued outputs and maps; else by its bits.

    Args:
        item: of the store, with a code of ``modality``.
        modality: whose code is explained.
        n_bits: code length k.
        encoders: what the model encodes.
    """
    raw = item.metadata.get(modality)
    name = str(item.metadata.get("text") or item.id) if modality == "text" else item.id
    if not raw:
        return coded_side(item.codes[modality], modality, name, n_bits, f"its {_RAW[modality]} not known here")
    if modality not in encoders:
        return coded_side(item.codes[modality], modality, name, n_bits, "there is no model to encode it with")
    try:
        side = new_side(modality, Path(str(raw)) if modality == "image" else str(raw), encoders[modality], name)
    except InputError as error:
        return coded_side(item.codes[modality], modality, name, n_bits, str(error))
    return unlike_stored(side, item.codes[modality], n_bits)


def unlike_stored(side: Side, code: PackedCodes, n_bits: int) -> Side:
    """The side, with a remark if the code that its item has now is not the stored one."""
    differing = int((unpack(code[None], n_bits)[0] != binarize(side.outputs[None])[0]).sum())
    if not differing:
        return side
    why = f"encoded anew, it differs in {bits_word(differing)} from its stored code; explained as it is now"
    return replace(side, problem=why)


def coded_side(code: PackedCodes, modality: str, name: str, n_bits: int, problem: str) -> Side:
    """An item of which only the bits are known, as ±1."""
    return Side(modality, name, unpack(code[None], n_bits)[0].astype(np.float32) * 2 - 1, None, problem)


def encoders_of(model: HashModel) -> dict[str, Encode]:
    """Modality -> what turns its raw items into outputs ``(n, k)``."""
    return {modality: partial(_outputs, model, modality) for modality in model.modalities}


_RAW = {"image": "picture is", "text": "words are"}


def _outputs(model: HashModel, modality: str, items: Any) -> Outputs:
    return model.outputs(modality, items).numpy()


def _encoder_if_any(store: Store, model: Path | None) -> HashModel | None:
    return load_encoder(store, model) if model or store.model_folder else None


def _encoder(encoders: dict[str, Encode], modality: str) -> Encode:
    if modality not in encoders:
        raise InputError(f"--{modality}: this model encodes {' and '.join(encoders)}")
    return encoders[modality]


def _item(store: Store, item_id: str, modality: str) -> Item:
    if item_id not in store:
        raise InputError(f"--like {item_id}: {store.address} has no item with this id")
    item = store.get([item_id])[0]
    if modality not in item.codes:
        there = " and ".join(sorted(item.codes))
        raise InputError(f"--like {item_id}: has no {modality} code; explain by what it has, --by {there}")
    return item
