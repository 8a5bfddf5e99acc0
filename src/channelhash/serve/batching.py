"""Work in batches: what arrives while a thread is busy is its next batch."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Real-valued outputs of a model.
Outputs = NDArray[np.float32]
Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Collect items and work on them in batches, one batch at a time.

    No item waits for others: a single item is taken at once, and those that arrive meanwhile are the next batch. All
    calls come from one event loop.

    Args:
        work: maps ``n`` items to ``n`` results, such as outputs ``(n, k)`` of a model.
        thread: executor that runs ``work``.
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

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result] | NDArray[Any]],
        thread: Executor,
        max_items: int,
        observe: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._work = work
        self._thread = thread
        self._max_items = max_items
        self._observe = observe
        self._waiting: list[tuple[Item, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, item: Item) -> Result:
        """Return the result of one item; raise what ``work`` raises for it."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._task is None:
            self._task = asyncio.create_task(self._empty())
        return await future

    async def _empty(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[: self._max_items], self._waiting[self._max_items :]
            await self._answer([(item, future) for item, future in batch if not future.cancelled()])
        self._task = None

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        self._observe(len(batch))
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, self._work, [item for item, _ in batch])
        except Exception as error:
            if len(batch) == 1:
                _settle(batch[0][1], error)
            else:  # one item is at fault: the others get their results
                for entry in batch:
                    await self._answer([entry])
            return
        for (_, future), row in zip(batch, results, strict=True):
            _settle(future, row)


def _settle(future: "asyncio.Future[Result]", result: Result | Exception) -> None:
    """Deliver a result, unless the request was cancelled."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
