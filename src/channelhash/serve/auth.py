"""Access: requests that send the token of ``--token-file`` or ``--read-token-file``."""

import hashlib
import hmac
from dataclasses import dataclass
from pathlib import Path

from fastapi import HTTPException
from fastapi.security import HTTPBearer

from channelhash.errors import InputError

_MIN_CHARACTERS = 16
#: The description of a token, for the API's description; `Tokens` checks it.
BEARER = HTTPBearer(auto_error=False, description="The token in the file of --token-file or --read-token-file.")


def read_token(path: Path, option: str = "--token-file") -> str:
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
        raise InputError(f"{option} {path}: no such file; write one with: openssl rand -hex 32 > {path}") from None
    except UnicodeDecodeError:
        raise InputError(f"{option} {path}: a token is one line of ASCII characters") from None
    if len(token.split()) > 1:
        raise InputError(f"{option} {path}: a token is one line without spaces")
    if len(token) < _MIN_CHARACTERS:
        raise InputError(
            f"{option} {path}: the token has {len(token)} characters; at least {_MIN_CHARACTERS} are needed"
        )
    return token


@dataclass(frozen=True)
class Tokens:
    """The tokens of a server.

    Attributes:
        write: token of requests that write, and may read too; None forbids writing.
        read: token of requests that read; None allows everybody to read.

    >>> Tokens("a-token-of-some-length").check("Bearer a-token-of-some-length", writes=True)
    >>> Tokens("a-token-of-some-length").check("", writes=False)
    """

    write: str | None = None
    read: str | None = None

    def check(self, authorization: str, writes: bool) -> None:
        """Refuse a request: 403 if the server has no token for writing, 401 if the token sent is missing or wrong.

        The comparison takes as long for a nearly correct token as for any other.

        Args:
            authorization: the header of this name, empty if there is none.
            writes: whether the request writes.
        """
        if writes and self.write is None:
            raise HTTPException(403, "this server can only be read; start it with --token-file FILE to allow writing")
        if not writes and self.read is None:
            return
        headers = {"WWW-Authenticate": "Bearer"}
        scheme, _, sent = authorization.partition(" ")
        if scheme.lower() != "bearer" or not sent:
            what = "writing" if writes else "reading"
            raise HTTPException(401, f"{what} needs the header Authorization: Bearer TOKEN", headers)
        allowed = [token for token in (self.write, None if writes else self.read) if token is not None]
        if not sum(_equal(token, sent) for token in allowed):  # all are compared
            raise HTTPException(401, "the token is wrong", headers)

    @property
    def writer(self) -> str:
        """Return a name of the token for writing that does not reveal it.

        >>> Tokens("a-token-of-some-length").writer
        'sha256:4f0d205b'
        """
        return f"sha256:{hashlib.sha256((self.write or '').encode()).hexdigest()[:8]}"


def _equal(token: str, sent: str) -> bool:
    return hmac.compare_digest(token.encode("latin-1"), sent.strip().encode("latin-1", "replace"))
