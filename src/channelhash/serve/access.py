"""Who may read and write, and from where."""

import hmac
import ipaddress
import os
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fastapi import HTTPException, Request

#: Headers of which a proxy on this machine adds one; its clients are elsewhere.
_FORWARDED = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
#: The system's user, who may do anything.
_SYSTEM = 0


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

    def is_own_page(self, request: Request) -> bool:
        """Return whether a request comes from the page of this server, on its own machine.

        A request that another site or a proxy makes a browser send has another ``Origin`` than the
        server's address.
        """
        page = f"http://{request.headers.get('host')}"
        return self.is_local(request) and request.headers.get("origin") == page

    def is_local(self, request: Request) -> bool:
        """Return whether a request comes from this machine and from whoever runs the server, to a
        server that no other machine reaches.
        """
        if self.hosts is None or not all(map(is_loopback, self.hosts)):
            return False
        if any(name in request.headers for name in _FORWARDED):
            return False
        client = request.client
        return client is not None and is_loopback(client.host) and _is_own(client.host, client.port)


def _is_own(host: str, port: int) -> bool:
    """Return whether a connection from this machine is of the user who runs the server, or of the
    system's. Others may be on this machine, too, or proxies that pass on what strangers send.

    Only Linux says whose a connection is.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    words = np.frombuffer(socket.inet_pton(family, host), np.uint32).tolist()
    place = "".join(f"{word:08X}" for word in words) + f":{port:04X}"
    table = Path("/proc/net/tcp6" if family == socket.AF_INET6 else "/proc/net/tcp")
    if not table.exists():
        return True
    rows = [line.split() for line in table.read_text(encoding="ascii").splitlines()]
    users = {int(row[7]) for row in rows if row[1] == place}
    return bool(users) and users <= {os.getuid(), _SYSTEM}


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
