"""Error responses: ``{"error": "one line"}`` with the status that fits."""

import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from channelhash.errors import InputError, JobError
from channelhash.serve.json_bodies import first_problem
from channelhash.serve.schemas import Problem

#: Error responses of every route, for the API's description.
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        400: "The request cannot be read.",
        404: "There is no such item.",
        408: "The body came too slowly.",
        413: "The request or the picture is too large.",
        415: "The body is of another type than this address takes.",
        422: "Something in the request cannot be used; the line names it.",
        500: "The model or the store failed.",
        503: "Too many requests at one time.",
    }.items()
}
#: Error response of every route that needs a token.
TOKEN_PROBLEM: dict[int | str, dict[str, Any]] = {
    401: {"model": Problem, "description": "The token is missing or wrong."}
}
#: Error responses of the routes that write.
WRITE_PROBLEMS = (
    PROBLEMS
    | TOKEN_PROBLEM
    | {
        403: {"model": Problem, "description": "This server can only be read."},
    }
)

_log = logging.getLogger("channelhash.serve")


def handle_errors(app: FastAPI, allowed_methods: Callable[[str], set[str]]) -> None:
    """Turn every exception that reaches the application into an error response.

    Args:
        app: the application.
        allowed_methods: path -> the methods that it answers to.
    """

    async def on_http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, StarletteHTTPException)
        line, headers = str(error.detail), dict(error.headers or {})
        if error.status_code == 404 and line == "Not Found":
            line = "no such address; /docs lists them all"
        elif error.status_code == 405:  # several routes may share the path
            headers["Allow"] = ", ".join(sorted(allowed_methods(request.url.path))) or headers.get("Allow", "")
            line = f"{request.method} is not possible here, only {headers['Allow']}; see /docs"
        return _problem(error.status_code, line, headers)

    app.add_exception_handler(StarletteHTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid_request)
    app.add_exception_handler(InputError, _on_input_error)
    app.add_exception_handler(JobError, _on_job_error)
    app.add_exception_handler(Exception, _on_exception)


async def _on_invalid_request(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return _problem(422, first_problem(error.errors()[0]))


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
