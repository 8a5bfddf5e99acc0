"""Error responses: ``{"error": "one line"}`` with the status that fits."""

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from channelhash.errors import InputError, JobError
from channelhash.serve.schemas import Problem

#: Error responses of every route, for the API's description.
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
#: Error responses of the routes that write.
WRITE_PROBLEMS = PROBLEMS | {
    401: {"model": Problem, "description": "The token is missing or wrong."},
    403: {"model": Problem, "description": "This server can only be read."},
}

_log = logging.getLogger("channelhash.serve")


def handle_errors(app: FastAPI) -> None:
    """Turn every exception that reaches the application into an error response."""
    app.add_exception_handler(StarletteHTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(InputError, _on_input_error)
    app.add_exception_handler(JobError, _on_job_error)
    app.add_exception_handler(Exception, _on_exception)


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarletteHTTPException)
    line = str(error.detail)
    if error.status_code == 404 and line == "Not Found":
        line = "no such address; /docs lists them all"
    elif error.status_code == 405:
        line = f"{request.method} is not possible here; see /docs"
    return _problem(error.status_code, line, error.headers)


async def _on_invalid_request(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _problem(422, f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}")
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    reason = first["msg"].removeprefix("Value error, ")
    return _problem(422, f"{where}: {reason}" if where else f"the body: {reason}")


async def _on_input_error(_: Request, error: Exception) -> JSONResponse:
    return _problem(422, str(error))


async def _on_job_error(_: Request, error: Exception) -> JSONResponse:
    _log.error("%s", error)
    return _problem(500, str(error))


async def _on_exception(_: Request, error: Exception) -> JSONResponse:
    return _problem(500, "an error inside the server; its log has the details")


def _problem(status: int, line: str, headers: Any = None) -> JSONResponse:
    # The request may quote text that cannot be encoded, or a whole document.
    one_line = " ".join(line.encode("utf-8", "replace").decode().split())
    return JSONResponse({"error": one_line[:500]}, status, headers)
