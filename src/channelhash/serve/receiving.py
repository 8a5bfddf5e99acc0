"""Receive a body: within a number of bytes, and in time."""

import asyncio
from collections.abc import Awaitable, Callable

from fastapi import HTTPException, Request

#: Bytes of a long body that have to come within each further stretch of time: 25 kB/s with the limits' 10 seconds.
PACE = 250_000


async def receive_body(request: Request, limit: int, seconds: float, reserve: Callable[[], Awaitable[None]]) -> bytes:
    """Return the body of a request.

    Args:
        request: the request.
        limit: largest number of bytes.
        seconds: time for the body, and again for each further `PACE` bytes.
        reserve: called once before more than about `PACE` bytes are kept.

    Raises:
        HTTPException: 408, the body came too slowly; 413, it is larger than the limit.
    """
    line = f"the request is larger than {limit / 1e6:g} MB, this server's limit"
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise HTTPException(413, line)
    pieces: list[bytes] = []
    size, goal, more = 0, PACE, True
    while more:
        try:
            async with asyncio.timeout(seconds):
                while more and size < goal:
                    message = await request.receive()
                    if message["type"] == "http.disconnect":
                        raise HTTPException(400, "the connection ended before the body did")
                    pieces.append(message.get("body", b""))
                    size, more = size + len(pieces[-1]), message.get("more_body", False)
                    if size > limit:
                        raise HTTPException(413, line)
        except TimeoutError:
            late = f"the body comes too slowly: {size} bytes so far; at least {PACE} are needed in {seconds:g} seconds"
            raise HTTPException(408, late, {"Connection": "close"}) from None
        if more and goal == PACE:
            await reserve()
        goal = size + PACE
    return b"".join(pieces)
