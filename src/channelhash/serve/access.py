"""Access: the tokens that requests send, and the audit log of the writes."""

import hashlib
import hmac
import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from fastapi.security import HTTPBearer

from channelhash.errors import InputError

_TOKEN = re.compile(r"[!-~]{16,}")
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
        token = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        raise InputError(f"{option} {path}: no such file; write one with: openssl rand -hex 32 > {path}") from None
    if not _TOKEN.fullmatch(token):
        raise InputError(f"{option} {path}: a token is one line of at least 16 ASCII characters without spaces")
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
        content = sent.strip().encode("latin-1", "replace")
        if not sum(hmac.compare_digest(token.encode(), content) for token in allowed):  # all are compared
            raise HTTPException(401, "the token is wrong", headers)

    @property
    def writer(self) -> str:
        """Return a name of the token for writing that does not reveal it.

        >>> Tokens("a-token-of-some-length").writer
        'sha256:4f0d205b'
        """
        return f"sha256:{hashlib.sha256((self.write or '').encode()).hexdigest()[:8]}"


class AuditLog:
    """Append a line of JSON for each event to a file, and wait until the disk has it.

    The file is opened for every line, so that it may be renamed at any time (logrotate); each line is one append.

    Args:
        path: the file.

    Raises:
        InputError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._append(b"")
        except OSError as error:
            raise InputError(f"--audit-log {path}: cannot be written ({error.strerror})") from None

    @contextmanager
    def noted(self, **facts: Any) -> Iterator[None]:
        """Note a write: a line with ``facts`` before the block, and one with the status after it.

        Raises:
            HTTPException: 503, the first line cannot be written: the block does not run; 500, the last line cannot be
                written: what the block has written stays.
        """
        write = uuid.uuid4().hex[:12]
        try:
            self._note(write, "begins", facts)
        except OSError as error:
            line = f"the audit log cannot be written ({error.strerror}): nothing was changed; try again later"
            raise HTTPException(503, line, {"Retry-After": "60"}) from None
        result = "done"
        try:
            yield
        except Exception as error:
            result = f"refused: {error}" if isinstance(error, InputError) else f"failed: {type(error).__name__}"
            raise
        finally:
            try:
                self._note(write, "ends", {"result": result[:300]})
            except OSError as error:
                line = f"the audit log cannot be written ({error.strerror}) after the write, which is {result[:100]}"
                raise HTTPException(500, line) from None

    def _note(self, write: str, event: str, facts: dict[str, Any]) -> None:
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._append(json.dumps({"time": time, "write": write, "event": event, **facts}).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if os.write(descriptor, line) != len(line):
                raise OSError(None, "no space left on its disk")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
