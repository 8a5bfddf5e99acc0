"""Batched encoding: items that arrive while the model is busy are its next batch."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = NDArray[np.float32]
Encode = Callable[[Sequence[Any]], Outputs]


class Batcher:
    """Collect items of one modality and encode them in batches, one batch at a time.

    No item waits for others: a single item is encoded at once, and those that arrive meanwhile are the next batch. All
    calls come from one event loop.

    Args:
        encode: maps ``n`` items to real-valued outputs ``(n, k)``.
        thread: executor that runs ``encode``.
        max_items: largest size of a batch.
        observe: called with the size of every batch.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def encode_both():
    ...     with ThreadPoolExecutor(1) as thread:
    ...         batcher = Batcher(lambda words: np.array([[len(word)] for word in words]), thread, 64, print)
    ...         return await asyncio.gather(batcher("a"), batcher("dog"))
    >>> [outputs.tolist() for outputs in asyncio.run(encode_both())]
    2
    [[1], [3]]
    """

    def __init__(self, encode: Encode, thread: Executor, max_items: int, observe: Callable[[int], None]) -> None:
        self._encode = encode
        self._thread = thread
        self._max_items = max_items
        self._observe = observe
        self._waiting: list[tuple[Any, asyncio.Future[Outputs]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Any) -> Outputs:
        """Return the outputs ``(k,)`` of one item; raise what ``encode`` raises for it."""
        future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._max_items], self._waiting[self._max_items :]
            await self._answer([(item, future) for item, future in batch if not future.cancelled()])
        self._task = None

    async def _answer(self, batch: list[tuple[Any, asyncio.Future[Outputs]]]) -> None:
        if not batch:
            return
        self._observe(len(batch))
        loop = asyncio.get_running_loop()
        try:
            outputs = await loop.run_in_executor(self._thread, self._encode, [item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                _settle(batch[0][1], error)
            else:  # one item is at fault: the others get their outputs
                for entry in batch:
                    await self._answer([entry])
            return
        for (_, future), row in zip(batch, outputs, strict=True):
            _settle(future, row)


def _settle(future: "asyncio.Future[Outputs]", result: Outputs | Exception) -> None:
    """Deliver a result, unless the request was cancelled."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
