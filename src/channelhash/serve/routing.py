"""Routes that check who asks and receive the body, within limits, before anything is made of it.

A request takes one of the server's places only once its body is there, and gives it back before its
answer is sent. So a client that sends or reads slowly holds none.
"""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, ClassVar

from anyio.to_thread import run_sync
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import FormData, Headers
from starlette.requests import ClientDisconnect

from channelhash.serve.schemas import Problem
from channelhash.serve.service import Service, services

#: Files of a form, at most: it has one image; more are refused while they are read.
_MAX_FILES = 2
#: Fields of a form, at most, likewise.
_MAX_FIELDS = 32
#: Bytes of a form that are read before it is another thread's turn.
_SLICE = 65536
#: Keys of an object in JSON, at most: each unknown one would be an error of its own.
_MAX_KEYS = 1000
#: Seconds for which a large body waits for others.
_UPLOAD_WAIT = 10


def _problems(descriptions: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {
        status: {"model": Problem, "description": line} for status, line in descriptions.items()
    }


#: Error responses of every route, for the API's description.
PROBLEMS = _problems(
    {
        400: "The request cannot be read.",
        404: "There is no such item.",
        408: "The body came too slowly.",
        413: "The request or the picture is too large.",
        415: "The body is of another type than this address takes.",
        422: "Something in the request cannot be used; the line names it.",
        500: "The model or the store failed.",
        503: "Too many requests at one time.",
    }
)
#: Error response of every route that needs a token.
TOKEN_PROBLEM = _problems({401: "The token is missing or wrong."})
#: Error responses of the routes that write.
WRITE_PROBLEMS = PROBLEMS | TOKEN_PROBLEM | _problems({403: "This server can only be read."})


class Route(APIRoute):
    """A route that reads the store."""

    writes: ClassVar[bool] = False
    #: Whether it writes what people decide about copies.
    decides: ClassVar[bool] = False
    #: Whether its body may be as large as an upload.
    takes_much: ClassVar[bool] = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of FastAPI behind the checks."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            service = services(request.app)[0]  # of several, any: all share what is used here
            service.check_access(request, self.writes, self.decides)
            async with AsyncExitStack() as stack:
                if self.body_field:
                    request = await self._receive(request, service, stack)
                if service.places.locked():
                    line = "too many requests at one time; try again in a second"
                    raise HTTPException(503, line, {"Retry-After": "1"})
                await stack.enter_async_context(service.places)
                return await handle(request)

        return checked

    async def _receive(
        self, request: Request, service: Service, stack: AsyncExitStack
    ) -> "_Received":
        """Return the request with its body, which is of the type that the route takes."""
        takes = getattr(
            self.body_field and self.body_field.field_info, "media_type", "application/json"
        )
        _check_type(request.headers, takes)
        limits = service.limits
        is_question = takes == "application/json" and not self.takes_much
        limit = limits.question_bytes if is_question else limits.upload_bytes
        seconds = limits.question_seconds if is_question else limits.upload_seconds
        try:
            async with asyncio.timeout(seconds):
                return _Received(request, await _receive_body(request, limit, service, stack))
        except TimeoutError:
            line = f"the body did not arrive within {seconds:g} seconds"
            raise HTTPException(408, line, {"Connection": "close"}) from None
        except ClientDisconnect:
            raise HTTPException(400, "the connection ended before the body did") from None


class WriteRoute(Route):
    """A route that needs the token for writing.

    >>> WriteRoute.writes
    True
    """

    writes = True
    takes_much = True


class DecisionRoute(WriteRoute):
    """A route that needs the token for writing or, without one, the page on the server's machine.

    >>> DecisionRoute.writes, DecisionRoute.decides
    (True, True)
    """

    decides = True


class LargeRoute(Route):
    """A route that reads the store, and takes many questions at once.

    >>> LargeRoute.writes, LargeRoute.takes_much
    (False, True)
    """

    takes_much = True


def _check_type(headers: Headers, takes: str) -> None:
    """Refuse a body of another type than the route takes, and a compressed one."""
    sent = headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != takes:
        raise HTTPException(
            415, f"the body is {sent or 'of no type'}; send it with Content-Type: {takes}"
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "the body is compressed; send it without Content-Encoding")


async def _receive_body(
    request: Request, limit: int, service: Service, stack: AsyncExitStack
) -> bytes:
    """Return a body of at most ``limit`` bytes. One larger than a question waits for one of the few
    places for such bodies.
    """
    too_large = HTTPException(
        413, f"the request is larger than {limit / 1e6:g} MB, this server's limit"
    )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > limit:
        raise too_large
    body = bytearray()
    waits = True
    async for piece in request.stream():
        body += piece
        if len(body) > limit:
            raise too_large
        if waits and len(body) > service.limits.question_bytes:
            waits = False
            try:
                async with asyncio.timeout(_UPLOAD_WAIT):
                    await stack.enter_async_context(service.uploads.bodies)
            except TimeoutError:
                line = "too many large uploads at one time; try again in a few seconds"
                raise HTTPException(503, line, {"Retry-After": "10"}) from None
    return bytes(body)


def content_tag(content: bytes) -> str:
    """Return the header ``ETag`` of a response's content.

    >>> content_tag(b"body {}")
    '"62368a1a29259b30"'
    """
    return f'"{hashlib.sha256(content).hexdigest()[:16]}"'


def _check_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > _MAX_KEYS:
        raise HTTPException(422, f"the body: an object of more than {_MAX_KEYS} keys")
    return dict(pairs)


class _Received(Request):
    """A request whose body is there. Forms are read in worker threads, a few at one time."""

    def __init__(self, request: Request, body: bytes) -> None:
        super().__init__(request.scope, request.receive)
        self._body = body

    async def stream(self) -> AsyncIterator[bytes]:  # type: ignore[override]
        """Yield the body in slices, so that a reader of forms does not hold the interpreter for
        long.
        """
        for start in range(0, len(self._body), _SLICE):
            yield self._body[start : start + _SLICE]
        yield b""

    async def json(self) -> Any:
        """Return the body, whose objects have few keys, see `_MAX_KEYS`."""
        try:
            return json.loads(self._body, object_pairs_hook=_check_keys)
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise
        except ValueError:  # Python reads no number of more than 4,300 digits
            raise HTTPException(422, "the body holds a number of too many digits") from None

    async def form(self, **_: Any) -> FormData:  # type: ignore[override]
        """Return the body as a form."""

        async def read() -> FormData:
            return await super(_Received, self).form(max_files=_MAX_FILES, max_fields=_MAX_FIELDS)

        return await run_sync(
            lambda: asyncio.run(read()), limiter=self.app.state.service.uploads.forms
        )
