"""Rank the items of a store by their codes, and by all that is known beside these.

* A question of which the model's outputs are known, to a store with projections: in two stages, by score.
* To a store without: by distance, and equal distances by how sure the model was of the bits that differ
  (`Store.search_surest`).
* A question of which only bits are known: by distance.

What is equal by all that is in the order of ids.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes
from channelhash.search.projections import FIRST, cosines
from channelhash.search.store import Store


class RankedCodes(NamedTuple):
    """Items, best first.

    Attributes:
        ids: the items' ids.
        distances: number of bits in which each item's code differs from the question's.
        keys: what they are ordered by, ascending; items of equal keys are equally good.

    >>> RankedCodes(["a"], [3], [3.0]).ids
    ['a']
    """

    ids: list[str]
    distances: list[int]
    keys: list[float]


def rank_codes(
    store: Store,
    code: PackedCodes,
    outputs: NDArray[Any] | None,
    count: int | None,
    radius: int | None = None,
    modality: str | None = None,
    where: str | None = None,
) -> RankedCodes:
    """Return the best ``count`` items, or of those within ``radius`` bits the best ``count`` or all.

    Args:
        store: searched.
        code: ``(ceil(n_bits / 8),)`` of the question.
        outputs: ``(n_bits,)``, whose signs the code is; None where they are not known.
        count: None only with a radius.
        radius, modality, where: see `Store.search_radius`.

    >>> import channelhash as ch
    >>> from channelhash.search.local.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a", "b"], {"image": np.array([[64], [128]], np.uint8)}, None, n_bits=2))
    >>> code, outputs = np.array([192], np.uint8), np.array([0.9, 0.1])
    >>> rank_codes(store, code, None, count=2).ids, rank_codes(store, code, outputs, count=2).ids
    (['a', 'b'], ['b', 'a'])
    """
    if store.projected and outputs is not None and radius is None and count is not None:
        scored = store.search_projections(outputs[None], count, modality, where)
        return RankedCodes(scored.ids[0], scored.distances[0].tolist(), (-scored.scores[0]).tolist())
    if outputs is not None and not store.projected:
        found = store.search_surest(outputs[None], count, modality, where, radius)
        return RankedCodes(found.ids[0], found.distances[0].tolist(), found.keys[0].tolist())
    looked_at = count if outputs is None or count is None else max(count, FIRST)
    if radius is None:
        answers = store.search(code[None], looked_at or FIRST, modality, where)
    else:
        answers = store.search_radius(code[None], radius, modality, where, looked_at)
    ids, distances = answers.ids[0], answers.distances[0]
    if outputs is None or not ids:
        return RankedCodes(ids[:count], distances[:count].tolist(), distances[:count].tolist())
    searched = store.choose_modality(modality)
    keys = -cosines(outputs, np.stack([item.projections[searched] for item in store.get(ids)]))
    order = np.argsort(keys, kind="stable")[:count]
    return RankedCodes([ids[place] for place in order], distances[order].tolist(), keys[order].tolist())
