"""Refusals: whatever goes wrong, the answer is ``{"error": "one line"}`` with a status that says whose fault it is."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from channelhash.errors import InputError, JobError
from channelhash.serve.schemas import Problem

#: What any route may answer instead, for the API's description.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "The request cannot be read.",
        404: "There is no such item.",
        413: "The request or the picture is too large.",
        422: "Something in the request cannot be used; the line names it.",
        500: "The model or the store failed.",
        503: "Too many requests at one time.",
    }.items()
}
#: And what routes that write may answer.
WRITE_PROBLEMS = PROBLEMS | {
    401: {"model": Problem, "description": "The token is missing or wrong."},
    403: {"model": Problem, "description": "This server can only be read."},
}

_log = logging.getLogger("channelhash.serve")


def handle_problems(app: FastAPI) -> None:
    """Turn every exception that reaches the application into a refusal."""
    app.add_exception_handler(StarletteHTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(InputError, _unusable)
    app.add_exception_handler(JobError, _failed)
    app.add_exception_handler(Exception, _broken)


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    line = str(error.detail)
    if error.status_code == 404 and line == "Not Found":
        line = "no such address; see /docs for those that there are"
    elif error.status_code == 405:
        line = f"{request.method} is not possible here; see /docs"
    return _problem(error.status_code, line, error.headers)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _problem(422, f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}")
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    reason = first["msg"].removeprefix("Value error, ")
    return _problem(422, f"{where}: {reason}" if where else f"the body: {reason}")


async def _unusable(_: Request, error: Exception) -> JSONResponse:
    return _problem(422, str(error))


async def _failed(_: Request, error: Exception) -> JSONResponse:
    _log.error("%s", error)
    return _problem(500, str(error))


async def _broken(_: Request, error: Exception) -> JSONResponse:
    return _problem(500, "an error inside of the server; its log tells more")


def _problem(status: int, line: str, headers: Any = None) -> JSONResponse:
    # What came in may not be encodable, or be a whole document.
    one_line = " ".join(line.encode("utf-8", "replace").decode().split())
    return JSONResponse({"error": one_line[:500]}, status, headers)
