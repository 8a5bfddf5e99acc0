"""Limits of one request: beyond them the server refuses clearly rather than become slow or fail."""

from dataclasses import dataclass

from fastapi import HTTPException

from channelhash.serve.schemas import Narrowing


@dataclass(frozen=True)
class Limits:
    """Upper bounds, inclusive.

    Attributes:
        upload_bytes: size of a body with a picture, or of a write.
        question_bytes: size of any other body.
        upload_seconds: time for a body with a picture, or of a write, to arrive.
        question_seconds: time for any other body to arrive.
        pixels: width times height of an image, read from its header before anything is decoded.
        side: longer side of an image, read likewise.
        characters: length of a text, an id and a filter.
        k: results of one search.
        rerank: nearest codes that one search may rank again by real-valued outputs.
        items: items in one write call.
        concurrency: requests processed at one time; a request counts as soon as its body is there.
        patches: patches of an image that one explanation may hide in turn.
        words: words of a text that one explanation leaves out in turn.

    >>> Limits(k=100).items
    1000
    """

    upload_bytes: int = 16_000_000
    question_bytes: int = 64_000
    upload_seconds: int = 60
    question_seconds: int = 10
    pixels: int = 40_000_000
    side: int = 20_000
    characters: int = 2000
    k: int = 1000
    rerank: int = 10_000
    items: int = 1000
    concurrency: int = 64
    patches: int = 400
    words: int = 100


def check_number(name: str, value: int | None, limit: int) -> None:
    """Refuse a number above a limit with status 422.

    >>> check_number("k", 2000, limit=1000)
    Traceback (most recent call last):
    fastapi.exceptions.HTTPException: 422: k: 2000 is more than 1000, this server's limit
    """
    if value is not None and value > limit:
        # Python refuses to print numbers of several thousand digits.
        number = str(value) if value < 10**18 else "a number of more than 18 digits"
        raise HTTPException(422, f"{name}: {number} is more than {limit}, this server's limit")


def check_length(name: str, text: str | None, limit: int) -> None:
    """Refuse a text with more characters than the limit with status 422.

    >>> check_length("text", "a dog", limit=2000)
    """
    if text is not None and len(text) > limit:
        raise HTTPException(422, f"{name}: has {len(text)} characters; this server takes at most {limit}")


def check_narrowing(options: Narrowing, limit: int) -> None:
    """Refuse a filter, labels or a folder of more characters than the limit with status 422."""
    check_length("where", options.where, limit)
    check_length("label", "".join(options.label), limit)
    check_length("folder", options.folder, limit)
