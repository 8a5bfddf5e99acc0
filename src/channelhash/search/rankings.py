"""Which rankings answer a query, and the ranking by codes.

Codes are ranked by all that is known of the query:

* With outputs of the model, in a store with projections: by score, in two stages.
* With outputs, in other stores: by their asymmetric distance to the codes; within a radius by
  distance, equal distances by asymmetric distance (`Store.search_outputs`).
* A query known only by its bits: by distance.

Remaining ties are broken by id.
"""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from channelhash.data.records import VECTOR
from channelhash.errors import InputError, argument
from channelhash.search.question import WORDS, Query, SearchOptions
from channelhash.search.rank import FIRST, Ranking
from channelhash.search.store import Store

#: Why a text cannot be compared with codes of images alone, and what to do.
_ALONE = (
    "these codes are of images alone, which a text cannot be compared with; make the store with "
    "at least 100 captions (`channelhash index create STORE PHOTOS --captions FILE`) or with an "
    "encoder of texts, too (`--encoder openclip:NAME/WEIGHTS`), or ask with a picture or an item "
    "of the store"
)
#: The same of codes of vectors.
_VECTORS_ALONE = (
    "these codes are of vectors, and nothing here turns a text into one; ask with a vector or an "
    "item of the store, or make the store with what embeds texts (`--encoder text=KIND:WHAT`)"
)
#: Value of ``by`` for all that the store has.
_ALL = "all"


def why_no_text(store: Store) -> str:
    """Return why a text cannot be compared with the codes of a store whose encoder has no text
    side, and what to do.
    """
    return _VECTORS_ALONE if VECTOR in store.modalities else _ALONE


def choose_rankings(store: Store, query: Query, options: SearchOptions) -> Sequence[str]:
    """Return the rankings that answer a query: modalities of codes, and `WORDS`.

    Raises:
        InputError: the query lacks what the options name, or the options contradict each other.

    >>> import channelhash as ch, numpy as np
    >>> from channelhash.search.sqlite.store import open_codes
    >>> store = open_codes(ch.CodeSet(["a"], {"image": np.array([[0]], np.uint8)}, None, n_bits=8))
    >>> choose_rankings(store, Query(np.array([7], np.uint8), words="dog"), SearchOptions())
    ['image', 'words']
    """
    if options.modality is not None and options.by not in (None, options.modality):
        raise InputError(
            f"{argument('by')} {options.by}: says what is searched, and so does "
            f"{argument('modality')}; leave that out"
        )
    rankings = _rankings_asked_for(store, query, options)
    if not query.words_coded and WORDS not in rankings:
        raise InputError(why_no_text(store))
    if rankings == [WORDS]:
        _check_words_alone(query, options)
    return rankings


def _rankings_asked_for(store: Store, query: Query, options: SearchOptions) -> Sequence[str]:
    if options.by == WORDS:
        return [WORDS]
    if options.by not in (None, _ALL):
        return [store.choose_modality(options.by)]
    if options.by is None and _by_codes_alone(query, options):
        return [store.choose_modality(options.modality)]
    rankings = [*store.modalities] if len(query.code) else []
    if store.has_words and query.words:
        rankings.append(WORDS)
    return rankings


def _by_codes_alone(query: Query, options: SearchOptions) -> bool:
    """Return whether the codes of one modality are searched alone, if ``by`` is not given."""
    return not query.words or options.modality is not None or options.radius is not None


def _check_words_alone(query: Query, options: SearchOptions) -> None:
    if not query.words:
        raise InputError(
            f"{argument('by')} words: the question has no words; add some, or search by image or "
            "text"
        )
    if options.radius is not None:
        raise InputError(
            f"{argument('by')} words: words have no distance; leave {argument('radius')} out"
        )


def _has_vector(store: Store, outputs: NDArray[Any]) -> bool:
    """Return whether outputs of a query can be compared with a store's projections."""
    stage = store.stage
    return stage is not None and len(outputs) == stage.n_outputs


def rank_codes(store: Store, query: Query, count: int | None, options: SearchOptions) -> Ranking:
    """Rank the best ``count`` items by codes; all within a radius if it is None.

    >>> import channelhash as ch, numpy as np
    >>> from channelhash.search.sqlite.store import open_codes
    >>> codes = ch.CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, None, n_bits=8)
    >>> rank_codes(open_codes(codes), Query(np.array([7], np.uint8)), 2, SearchOptions()).distances
    [0, 3]
    """
    outputs = query.outputs
    radius = options.radius
    modality = options.modality
    where = options.where
    if outputs is not None and radius is None and count is not None and _has_vector(store, outputs):
        scored = store.search_projections(
            outputs[None], count, modality, where, asked=query.modality
        )
        scores = scored.keys[0]
        return Ranking(
            scored.ids[0], (-scores).tolist(), scored.distances[0].tolist(), scores.tolist()
        )
    if outputs is not None:
        signed = outputs[None, : store.n_bits]
        found = store.search_outputs(signed, count, modality, where, radius)
        return Ranking(found.ids[0], found.keys[0].tolist(), found.distances[0].tolist())
    if radius is not None:
        answers = store.search_radius(query.code[None], radius, modality, where, count)
    else:
        answers = store.search(query.code[None], count or FIRST, modality, where)
    distances = answers.distances[0].tolist()
    return Ranking(answers.ids[0], distances, distances)
