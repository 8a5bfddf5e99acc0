"""JSON bodies: their shape is bounded by one pass over the text before anything is made of it."""

import json
import re
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import HTTPException
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)

# A whole string, also one without an end, or a sign. Possessive: no text is read twice.
_MARKS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},:]', re.DOTALL)


@dataclass(frozen=True)
class Shape:
    """Upper bounds of a JSON text, inclusive.

    Attributes:
        depth: lists and objects within one another.
        entries: entries of one list or object.
        marks: strings, brackets, commas and colons altogether.
    """

    depth: int
    entries: int
    marks: int


def check_shape(text: str, shape: Shape, what: str = "the body") -> None:
    """Refuse a text beyond a shape with status 422; reading ends where the bound is passed.

    Whether the text is JSON is not checked.

    >>> check_shape('{"text": "a [dog]"}', Shape(depth=1, entries=1, marks=10))
    >>> check_shape("[[1]]", Shape(depth=1, entries=1, marks=10))
    Traceback (most recent call last):
    fastapi.exceptions.HTTPException: 422: the body: more than 1 lists and objects within one another
    """
    entries = [0]  # of each open list and object
    for count, mark in enumerate(_MARKS.finditer(text), 1):
        sign = text[mark.start()]
        if count > shape.marks:
            raise HTTPException(422, f"{what}: more than {shape.marks} strings, brackets, commas and colons")
        if sign in "[{":
            entries.append(1)
            if len(entries) - 1 > shape.depth:
                raise HTTPException(422, f"{what}: more than {shape.depth} lists and objects within one another")
        elif sign in "]}":
            del entries[max(1, len(entries) - 1) :]
        elif sign == ",":
            entries[-1] += 1
            if entries[-1] > shape.entries:
                raise HTTPException(422, f"{what}: a list or object of more than {shape.entries} entries")


def parse_json(body: bytes, model: type[Model], shape: Shape) -> Model:
    """Read a body of a bounded shape as a request.

    Raises:
        HTTPException: 400, the body is not UTF-8; 422, it is beyond the shape, no JSON, or no such request: the first
            error is named.

    >>> class Question(BaseModel):
    ...     k: int
    >>> parse_json(b'{"k": 5}', Question, Shape(1, 1, 10))
    Question(k=5)
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"the body is not UTF-8: byte {error.start}") from None
    check_shape(text, shape)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise HTTPException(422, f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except ValueError:  # Python reads no integer of more than some thousand digits
        raise HTTPException(422, "the body: a number with too many digits") from None
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise HTTPException(422, first_problem(error.errors(include_url=False, include_input=False)[0])) from None


def first_problem(error: Any) -> str:
    """Return an error of validation as a line that names the place.

    >>> first_problem({"loc": ("body", "k"), "msg": "Value error, too many"})
    'k: too many'
    """
    where = ".".join(str(part) for part in error["loc"] if part not in ("body", "query", "path"))
    return f"{where or 'the body'}: {error['msg'].removeprefix('Value error, ')}"
