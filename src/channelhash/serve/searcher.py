"""Answer searches: plan each, encode what it asks with, search, and describe what was found.

Most searches take a millisecond, no more than a few changes of threads. So quick searches that
arrive while others run are answered together: one thread plans them, encodes the words of all in
one batch, and answers each. Other searches are planned and answered by threads of their own and
share the model's batches with all requests.
"""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import HTTPException, Response
from PIL import Image

from channelhash.codes import PackedCodes, check_packed
from channelhash.duplicates import regroup
from channelhash.models.description import QueryEncoder
from channelhash.search.answer import DEPTH
from channelhash.search.hits import Hits, sort_by_date
from channelhash.search.items import Item
from channelhash.search.plan import Outputs, Search, has_unknown_words
from channelhash.search.query import find_vectors
from channelhash.search.question import WORDS, Query, Question, SearchOptions
from channelhash.search.store import Store
from channelhash.serve import schemas
from channelhash.serve.caches import Browser
from channelhash.serve.encoding import NO_ENCODING, Batcher, Encoding, wait_for

#: Quick searches that one thread answers together before those that arrived meanwhile.
_TOGETHER = 16
#: Keys of a request that `SearchOptions` has, too.
_SHARED_KEYS = {"k", "radius", "modality", "collapse", "by", "offset", "fitting"}
#: Kind of a part of a search -> the key of the request that holds it, of what is told before words.
_BEFORE_WORDS: dict[schemas.PartKind, str] = {"item": "id", "code": "code"}
#: The same of what is told after words, dates and places.
_AFTER_WORDS: dict[schemas.PartKind, str] = {
    "without": "minus",
    "without_item": "minus_ids",
    "label": "label",
    "folder": "folder",
    "month": "month",
    "where": "where",
}
#: The body of any search.
SearchBody = schemas.SearchRequest | schemas.ImageSearch


class Searcher:
    """Answer the searches of one store.

    Args:
        store: the store.
        browser: its items by date.
        encoding: how words and images become codes, perhaps still on its way.
        quick: the thread of quick searches.
        others: limits the threads of other searches.
    """

    def __init__(
        self,
        store: Store,
        browser: Browser,
        encoding: Future[Encoding],
        quick: Executor,
        others: CapacityLimiter,
    ) -> None:
        self._store = store
        self._browser = browser
        self._encoding = encoding
        self._quick_searches = Batcher(self._answer_together, quick, _TOGETHER)
        self._in_thread = partial(run_sync, limiter=others)
        # As of the last search: the event loop does not wait for the store.
        self._has_images = True

    async def answer(
        self, request: SearchBody, start: float, image: Image.Image | None = None
    ) -> Response:
        """Return the response to a request that arrived at ``start``, perhaps with an image."""
        if isinstance(request, schemas.SearchRequest) and self._is_quick(request):
            response = await self._quick_searches((request, start))
            if response is not None:
                return response
        plan = await self._in_thread(self._plan, request, image)
        encoding = await wait_for(self._encoding) if plan.to_encode else NO_ENCODING
        outputs = await _encode(plan, encoding)
        corrected = list[tuple[Search, Outputs]]()
        if has_unknown_words(encoding.model, plan.question.text or ""):
            for other in await self._in_thread(plan.corrections, encoding.model):
                corrected.append((other, await _encode(other, encoding)))
        return await self._in_thread(
            self._respond, request, start, plan, outputs, encoding.model, corrected
        )

    async def answer_vectors(
        self, request: schemas.VectorsRequest, start: float
    ) -> schemas.VectorsResponse:
        """Return the nearest items of each vector of a request that arrived at ``start``."""
        encoding = await wait_for(self._encoding)
        answers = await self._in_thread(self._nearest, request, encoding)
        return schemas.VectorsResponse(answers=answers, seconds=time.perf_counter() - start)

    def _nearest(
        self, request: schemas.VectorsRequest, encoding: Encoding
    ) -> list[schemas.Nearest]:
        widths = sorted(set(map(len, request.vectors)))
        if len(widths) > 1:
            raise HTTPException(422, f"vectors: are of {widths[0]} and of {widths[1]} numbers")
        rows = np.array(request.vectors)
        found = find_vectors(
            self._store,
            encoding.model,
            rows,
            request.k,
            request.modality,
            request.filter_of(self._store),
        )
        is_scored = self._store.projected
        return [
            schemas.Nearest(
                ids=ids,
                distances=distances.tolist(),
                similarities=keys.tolist() if is_scored else None,
            )
            for ids, distances, keys in zip(*found, strict=True)
        ]

    def _is_quick(self, request: schemas.SearchRequest) -> bool:
        """Return whether a search takes milliseconds, unless its words name a date or are unknown:
        a few answers are asked for and nothing more, words are encoded at once, and no image is
        read.
        """
        if request.is_narrowed or request.radius is not None:
            return False
        if request.offset + request.k > DEPTH or request.by == WORDS:
            return False
        if (request.text or request.minus) and not self._encodes_quickly():
            return False
        if request.vector is not None and not self._is_loaded():
            return False
        return not self._compares_images(request)

    def _encodes_quickly(self) -> bool:
        return self._is_loaded() and self._encoding.result().quick

    def _is_loaded(self) -> bool:
        return self._encoding.done() and not self._encoding.exception()

    def _compares_images(self, request: schemas.SearchRequest) -> bool:
        """Return whether images may be read, to fold near-duplicates."""
        if request.collapse is None:
            return self._has_images and "text" not in (request.modality, request.by)
        return request.collapse is not False

    def _answer_together(
        self, requests: Sequence[tuple[schemas.SearchRequest, float]]
    ) -> list[Response | None]:
        """Answer quick searches in this thread; None where one turns out to take longer."""
        plans = [self._plan_quickly(request) for request, _ in requests]
        texts = list(chain.from_iterable(map(_texts_of, plans)))
        encodes = any(plan is not None and plan.to_encode for plan in plans)
        encoding = self._encoding.result() if encodes else NO_ENCODING
        rows = iter(encoding.batchers["text"].work(texts) if texts else ())
        responses: list[Response | None] = []
        for (request, start), plan in zip(requests, plans, strict=True):
            if plan is None:
                responses.append(None)
            else:
                outputs = encoding.encode_vectors(plan.to_encode)
                outputs["text"] = list(islice(rows, len(_texts_of(plan))))
                responses.append(self._respond(request, start, plan, outputs, encoding.model))
        return responses

    def _plan_quickly(self, request: schemas.SearchRequest) -> Search | None:
        """Plan a search; None where its words name a date or a place, or are not all known."""
        if not request.text:
            return self._plan(request)
        plan = Search.of_plain(self._store, self._question(request), self._options(request))
        if plan is None or has_unknown_words(self._encoding.result().model, request.text):
            return None
        return plan

    def _plan(self, request: SearchBody, image: Image.Image | None = None) -> Search:
        return Search.of(self._store, self._question(request, image), self._options(request))

    def _question(self, request: SearchBody, image: Image.Image | None = None) -> Question:
        question = Question(request.text or None, image, minus=request.minus)
        if isinstance(request, schemas.ImageSearch):
            return question
        return replace(
            question,
            like=request.id,
            like_modality=request.query_modality,
            code=unpack_hex(self._store, request.code) if request.code else None,
            vector=None if request.vector is None else np.array(request.vector),
            minus_like=request.minus_ids,
        )

    def _options(self, request: SearchBody) -> SearchOptions:
        left_out = None
        if isinstance(request, schemas.SearchRequest) and request.exclude_self:
            left_out = request.id
        return SearchOptions(
            **request.model_dump(include=_SHARED_KEYS),
            limit=request.k,
            where=request.filter_of(self._store),
            leave_out=left_out,
            regroup=regroup,
        )

    def _respond(
        self,
        request: SearchBody,
        start: float,
        plan: Search,
        outputs: Outputs,
        model: QueryEncoder | None,
        corrected: Sequence[tuple[Search, Outputs]] = (),
    ) -> Response:
        """Search, and write the response in this thread: a long one would hold the event loop up.

        Args:
            request: the request.
            start: when it arrived.
            plan: of its search.
            outputs: of what the plan encodes.
            model: that has encoded it.
            corrected: plans of what may be meant, one of which is suggested if that is sure, and
                their outputs.
        """
        hits = self._find(request, plan, outputs, model)
        self._has_images = self._store.has_images
        plan.suggest_to(hits, corrected)
        modality: str = request.modality or "image"
        if self._store.has_codes:
            modality = self._store.choose_modality(request.modality)
        response = schemas.SearchResponse(
            query_code=hits.query.code.tobytes().hex(),
            query_modality=_query_modality(request, plan, hits.query),
            modality=modality,
            n_bits=self._store.n_bits or 8 * len(hits.query.code),
            results=[schemas.Result.of(hit) for hit in hits],
            close=hits.close,
            offset=request.offset,
            understood=_understood(request, plan),
            duplicates=hits.alike,
            note=hits.note,
            unlikely=hits.unlikely,
            found=hits.found,
            likely=hits.likely,
            did_you_mean=hits.suggestion,
            seconds=time.perf_counter() - start,
        )
        return Response(response.model_dump_json(), media_type="application/json")

    def _find(
        self, request: SearchBody, plan: Search, outputs: Outputs, model: QueryEncoder | None
    ) -> Hits:
        """Return the page of answers that a request asks for, by date if it asks for that."""
        n_bits = self._store.n_bits
        for key in ("radius", "collapse"):
            value = getattr(request, key) or 0
            if n_bits and value > n_bits:
                raise HTTPException(422, f"{key}: is more than {n_bits}, the bits of a code")

        def browse(where: str | None, page: slice) -> list[Item]:
            return self._browser.read(where, request.order or "newest", 0, page)[1]

        if request.order is None or not plan.parts:
            return plan.answer(outputs, model, browse)
        most = schemas.MOST["k"]  # the best that a request may ask for are put in order
        options = replace(plan.options, k=most, limit=most, offset=0)
        hits = replace(plan, options=options).answer(outputs, model)
        by_date = sort_by_date(hits, newest_first=request.order == "newest")
        hits[:] = by_date[request.offset : request.offset + request.k]
        return hits


def _texts_of(plan: Search | None) -> list[Any]:
    """Return the texts that a plan encodes; none without a plan."""
    return [] if plan is None else plan.to_encode.get("text", [])


async def _encode(plan: Search, encoding: Encoding) -> Outputs:
    """Encode what a search needs; not texts that are looked for by their words alone."""
    outputs: dict[str, list[Any]] = {}
    for modality, items in plan.to_encode.items():
        if modality == "text" and encoding.words_alone:
            continue
        outputs[modality] = await asyncio.gather(*(encoding.encode(modality, x) for x in items))
    return outputs


def unpack_hex(store: Store, code: str) -> PackedCodes:
    """Read a packed code from hexadecimal digits, or refuse with status 422 if it does not fit the
    store's.
    """
    n_bits = store.n_bits
    if n_bits is None:
        raise HTTPException(422, "code: the store is empty")
    packed = np.frombuffer(bytes.fromhex(code), np.uint8)
    try:
        check_packed(packed[None], n_bits)
    except ValueError:
        line = (
            f"code: {len(code)} hexadecimal digits; {n_bits} bits are {2 * -(-n_bits // 8)}, the "
            "rest of the last 0"
        )
        raise HTTPException(422, line) from None
    return packed


def _query_modality(request: SearchBody, plan: Search, query: Query) -> str:
    """Return the modality of what asks; empty where it is a bare code."""
    if isinstance(request, schemas.ImageSearch):
        return "image"
    return "text" if plan.words and query.words_coded else query.modality


def _understood(request: SearchBody, plan: Search) -> list[schemas.Understood]:
    """Return the parts of a search: what is wanted, what is not, and what the answers are narrowed
    to.
    """
    parts: list[schemas.Understood] = []
    if isinstance(request, schemas.ImageSearch):
        parts.append(schemas.Understood(kind="image", value=""))
    elif request.vector is not None:
        parts.append(schemas.Understood(kind="vector", value=f"{len(request.vector)} numbers"))
    parts += _understood_keys(request, _BEFORE_WORDS)
    for part in plan.words:
        kind: schemas.PartKind = "without" if part.weight < 0 else "words"
        weight = abs(part.weight)
        parts.append(schemas.Understood(kind=kind, value=str(part.content), weight=weight))
    for phrase in plan.question.phrases:
        parts.append(schemas.Understood(kind=phrase.kind, value=phrase.words, means=phrase.means))
    return parts + _understood_keys(request, _AFTER_WORDS)


def _understood_keys(
    request: SearchBody, keys: dict[schemas.PartKind, str]
) -> list[schemas.Understood]:
    """Return the parts that keys of a request hold, one for each entry of a list."""
    parts = []
    for kind, key in keys.items():
        value = getattr(request, key, None) or []
        values = [value] if isinstance(value, str) else value
        parts += [schemas.Understood(kind=kind, value=entry) for entry in values]
    return parts
