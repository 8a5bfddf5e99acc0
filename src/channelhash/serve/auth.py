"""Write access: requests that send the token of ``--token-file``."""

import hmac
from pathlib import Path

from fastapi import HTTPException

from channelhash.errors import InputError

_MIN_CHARACTERS = 16


def read_token(path: Path) -> str:
    """Read the token in a file, its only line.

    Raises:
        InputError: the file is missing, has more than one line, or holds a token that is too short.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "token").write_text("a-token-of-some-length")
    ...     read_token(Path(folder, "token"))
    'a-token-of-some-length'
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise InputError(f"--token-file {path}: no such file; write one with: openssl rand -hex 32 > {path}") from None
    except UnicodeDecodeError:
        raise InputError(f"--token-file {path}: a token is one line of ASCII characters") from None
    if len(token.split()) > 1:
        raise InputError(f"--token-file {path}: a token is one line without spaces")
    if len(token) < _MIN_CHARACTERS:
        raise InputError(
            f"--token-file {path}: the token has {len(token)} characters; at least {_MIN_CHARACTERS} are needed"
        )
    return token


def check_token(token: str | None, sent: str | None) -> None:
    """Refuse a write call: 403 if the server has no token, 401 if the token sent is missing or wrong.

    The comparison takes as long for a nearly correct token as for any other.

    >>> check_token("a-token-of-some-length", "a-token-of-some-length")
    """
    if token is None:
        raise HTTPException(403, "this server can only be read; start it with --token-file FILE to allow writing")
    if sent is None:
        raise HTTPException(401, "writing needs the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
    if not hmac.compare_digest(token.encode("latin-1"), sent.encode("latin-1", "replace")):
        raise HTTPException(401, "the token is wrong", {"WWW-Authenticate": "Bearer"})
