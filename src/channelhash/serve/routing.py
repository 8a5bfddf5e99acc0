"""Routes that check who asks, receive the body within limits, and read it; a large one in a worker thread.

A request takes one of the server's places only when its body is there, and gives it back before its answer is sent: a
client that sends or reads slowly keeps none.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import anyio.to_thread
from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import FormData

from channelhash.serve.json_bodies import parse_json
from channelhash.serve.receiving import receive_body
from channelhash.serve.service import Service

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
# A form has a picture and a few fields; more are refused while they are read.
_MAX_FILES, _MAX_FIELDS = 2, 32
_SLICE = 65536
# A body of so many bytes is read sooner than a thread could begin to.
_AT_ONCE = 2000


class Route(APIRoute):
    """A route that reads the store."""

    writes: ClassVar[bool] = False
    takes_place: ClassVar[bool] = True

    def get_route_handler(self) -> Handler:
        """Return the handler of FastAPI behind the checks."""
        handle = super().get_route_handler()

        async def checked(request: Request) -> Response:
            service: Service = request.app.state.service
            service.check_access(request.headers.get("authorization", ""), self.writes)
            async with AsyncExitStack() as stack:
                received = await self._receive(request, service, stack) if self.body_field else request
                if self.takes_place:
                    stack.enter_context(service.places.take())
                return await handle(received)

        return checked

    async def _receive(self, request: Request, service: Service, stack: AsyncExitStack) -> "_Received":
        """Return the request with its body, which is of the type that the route takes."""
        assert self.body_field is not None
        takes = getattr(self.body_field.field_info, "media_type", "application/json")
        sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if sent != takes:
            raise HTTPException(415, f"the body is {sent or 'of no type'}; send it with Content-Type: {takes}")
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise HTTPException(415, "the body is compressed; send it without Content-Encoding")
        limits = service.limits
        limit = limits.upload_bytes
        if takes == "application/json" and not self.writes:
            limit = min(limit, limits.question_bytes)

        async def reserve() -> None:
            try:
                async with asyncio.timeout(limits.receiving_seconds):
                    await stack.enter_async_context(service.uploading)
            except TimeoutError:
                line = "too many large uploads at one time; try again in a few seconds"
                raise HTTPException(503, line, {"Retry-After": "10"}) from None

        body = await receive_body(request, limit, limits.receiving_seconds, reserve)
        return _Received(request, body, service, self)


class WriteRoute(Route):
    """A route that needs the token for writing."""

    writes = True


class MonitoringRoute(Route):
    """A route that is answered however busy the server is."""

    takes_place = False


class _Received(Request):
    """A request whose body is there. Unless it is small, it is read in a worker thread: not many at one time."""

    def __init__(self, request: Request, body: bytes, service: Service, route: Route) -> None:
        super().__init__(request.scope, request.receive)
        self._content = body
        self._service = service
        self._route = route

    async def body(self) -> bytes:
        """Return the body."""
        return self._content

    async def stream(self) -> AsyncIterator[bytes]:  # type: ignore[override]
        """Yield the body in slices, so that a reader of forms does not hold the interpreter for long."""
        for start in range(0, len(self._content), _SLICE):
            yield self._content[start : start + _SLICE]
        yield b""

    async def json(self) -> BaseModel:
        """Return the body as the route's request, checked: FastAPI takes it as it is."""
        field = self._route.body_field
        assert field is not None
        model = field.field_info.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        shape = self._service.limits.write if self._route.writes else self._service.limits.question
        if len(self._content) <= _AT_ONCE:
            return parse_json(self._content, model, shape)
        limiter = self._service.reading
        return await anyio.to_thread.run_sync(parse_json, self._content, model, shape, limiter=limiter)

    async def form(self, **_: Any) -> FormData:  # type: ignore[override]
        """Return the body as a form."""

        async def read() -> FormData:
            return await super(_Received, self).form(max_files=_MAX_FILES, max_fields=_MAX_FIELDS)

        return await anyio.to_thread.run_sync(lambda: asyncio.run(read()), limiter=self._service.reading_forms)
