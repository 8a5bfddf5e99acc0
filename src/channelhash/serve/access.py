"""Who may read and write, and from where."""

import hmac
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass

from fastapi import HTTPException, Request

#: Headers of which a proxy on this machine adds one; its clients are elsewhere.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is this machine's own.

    >>> is_loopback("127.0.0.2"), is_loopback("localhost")
    (True, True)
    >>> is_loopback("192.0.2.1"), is_loopback("photos.local")
    (False, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@dataclass(frozen=True)
class Access:
    """Who may read and write, and from where.

    Attributes:
        token: token of requests that write, and may read too; None forbids writing.
        read_token: token of requests that read; None allows everybody to read.
        hosts: host names that requests may name; None for any.

    >>> Access().check("", writes=False)
    """

    token: str | None = None
    read_token: str | None = None
    hosts: Collection[str] | None = None

    def check(self, authorization: str, writes: bool) -> None:
        """Refuse a request: 403 if nobody may write here, 401 if the token sent is missing or
        wrong.

        The comparison takes as long for a nearly correct token as for any other.
        """
        if writes and self.token is None:
            raise HTTPException(
                403,
                "this server can only be read; start it with `channelhash serve --token-file FILE` "
                "to allow writing",
            )
        if not writes and self.read_token is None:
            return
        sent = _read_bearer(authorization)
        if sent is None:
            action = "writing" if writes else "reading"
            raise _unauthorized(f"{action} needs the header Authorization: Bearer TOKEN")
        tokens = [self.token] if writes else [self.token, self.read_token]
        # All are compared, so that the time says nothing about the tokens.
        matches = [_is_same(token, sent) for token in tokens]
        if not any(matches):
            raise _unauthorized("the token is wrong")

    def is_local(self, request: Request) -> bool:
        """Return whether a request comes from this machine, to a server that no other one
        reaches.
        """
        if self.hosts is None or not all(map(is_loopback, self.hosts)):
            return False
        if any(name in request.headers for name in _FORWARDED):
            return False
        return request.client is not None and is_loopback(request.client.host)


def _read_bearer(authorization: str) -> bytes | None:
    """Return the token in a header Authorization; None if it holds none."""
    scheme, _, sent = authorization.partition(" ")
    if scheme.lower() != "bearer" or not sent:
        return None
    return sent.strip().encode("latin-1", "replace")


def _unauthorized(line: str) -> HTTPException:
    return HTTPException(401, line, {"WWW-Authenticate": "Bearer"})


def _is_same(token: str | None, sent: bytes) -> bool:
    return token is not None and hmac.compare_digest(token.encode(), sent)
