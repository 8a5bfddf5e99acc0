"""Encoding for many requests at once: what comes while the model is busy goes through it together."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = NDArray[np.float32]
Encode = Callable[[Sequence[Any]], Outputs]


class Batcher:
    """Collects items of one modality and encodes them in batches, one batch at a time.

    Nobody waits for company: a lone item is encoded at once, and those that arrive meanwhile are the next batch. All
    calls come from one event loop.

    Args:
        encode: ``n`` items to real-valued outputs ``(n, k)``.
        thread: where it runs.
        largest: items in a batch, at most.
        observe: called with the size of every batch.
    """

    def __init__(self, encode: Encode, thread: Executor, largest: int, observe: Callable[[int], None]) -> None:
        self._encode = encode
        self._thread = thread
        self._largest = largest
        self._observe = observe
        self._waiting: list[tuple[Any, asyncio.Future[Outputs]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Any) -> Outputs:
        """The outputs ``(k,)`` of one item; raises what ``encode`` raises for it."""
        future: asyncio.Future[Outputs] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._largest], self._waiting[self._largest :]
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
            else:  # one of them is at fault: the others get their answers
                for one in batch:
                    await self._answer([one])
            return
        for (_, future), row in zip(batch, outputs, strict=True):
            _settle(future, row)


def _settle(future: "asyncio.Future[Outputs]", result: Outputs | Exception) -> None:
    """Hand a result over, unless whoever waited for it has gone."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
