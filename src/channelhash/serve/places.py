"""Places and room that requests share; all calls come from the event loop."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from fastapi import HTTPException


class Places:
    """Places for requests at one time: beyond them a request is refused, which is faster than an endless queue.

    >>> with Places(1).take():
    ...     pass
    """

    def __init__(self, number: int) -> None:
        self._free = number

    @contextmanager
    def take(self) -> Iterator[None]:
        """Keep a place for the block, or refuse with status 503."""
        if not self._free:
            raise HTTPException(503, "too many requests at one time; try again in a second", {"Retry-After": "1"})
        self._free -= 1
        try:
            yield
        finally:
            self._free += 1


class Room:
    """Room for something that requests have of different size: who finds too little waits.

    Args:
        size: all of it.
    """

    def __init__(self, size: int) -> None:
        self._size = self._free = size
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def take(self, size: int) -> AsyncIterator[None]:
        """Keep some room for the block; what is larger than the whole takes it all."""
        size = min(size, self._size)
        async with self._changed:
            await self._changed.wait_for(lambda: self._free >= size)
            self._free -= size
        try:
            yield
        finally:
            async with self._changed:
                self._free += size
                self._changed.notify_all()
