"""Who may write: those who send the token of ``--token-file``."""

import hmac
from pathlib import Path

from fastapi import HTTPException

from channelhash.errors import InputError

_SHORTEST = 16


def read_token(path: Path) -> str:
    """The token in a file: its only line.

    Raises:
        InputError: the file is missing, holds more than one line, or a token that is soon guessed.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise InputError(f"--token-file {path}: no such file; write one with: openssl rand -hex 32 > {path}") from None
    except UnicodeDecodeError:
        raise InputError(f"--token-file {path}: a token is one line of ASCII characters") from None
    if len(token.split()) > 1:
        raise InputError(f"--token-file {path}: a token is one line without spaces")
    if len(token) < _SHORTEST:
        raise InputError(f"--token-file {path}: the token has {len(token)} characters; at least {_SHORTEST} are needed")
    return token


def check_token(token: str | None, given: str | None) -> None:
    """Refuse a write call: 403 where the server has no token, 401 where the one given is missing or wrong.

    The comparison takes as long for a nearly right token as for any other.
    """
    if token is None:
        raise HTTPException(403, "this server can only be read; start it with --token-file FILE to allow writing")
    if given is None:
        raise HTTPException(401, "writing needs the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
    if not hmac.compare_digest(token.encode("latin-1"), given.encode("latin-1", "replace")):
        raise HTTPException(401, "the token is wrong", {"WWW-Authenticate": "Bearer"})
