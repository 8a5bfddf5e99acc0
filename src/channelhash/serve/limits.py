"""What one request may ask for. Beyond it stands a clear refusal, not a slow or a dead server."""

from dataclasses import dataclass

from fastapi import HTTPException


@dataclass(frozen=True)
class Limits:
    """Upper bounds, inclusive.

    Attributes:
        upload_bytes: size of a request's body.
        pixels: width times height of a picture, read from its header before anything is decoded.
        characters: length of a text and of a filter.
        k: answers to one search.
        rerank: nearest codes that one search may rank again by real-valued outputs.
        items: items in one write call.
        concurrency: requests at work at one time.
        patches: patches of a picture that one explanation may hide in turn.
        words: words of a text that one explanation leaves out in turn.
    """

    upload_bytes: int = 16_000_000
    pixels: int = 40_000_000
    characters: int = 2000
    k: int = 1000
    rerank: int = 10_000
    items: int = 1000
    concurrency: int = 64
    patches: int = 400
    words: int = 100


def at_most(name: str, value: int | None, limit: int) -> None:
    """Refuse a number above a limit with status 422."""
    if value is not None and value > limit:
        raise HTTPException(422, f"{name}: {_short(value)} is more than {limit}, this server's limit")


def not_longer(name: str, text: str | None, limit: int) -> None:
    """Refuse a text above a number of characters with status 422."""
    if text is not None and len(text) > limit:
        raise HTTPException(422, f"{name}: has {len(text)} characters; this server takes at most {limit}")


def _short(value: int) -> str:
    """A number that fits on a line; Python refuses to print those of several thousand digits."""
    return str(value) if value < 10**18 else "a number of more than 18 digits"
