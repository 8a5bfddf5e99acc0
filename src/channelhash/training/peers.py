"""Watch the other processes of a training, and end this one when another is lost.

A collective cannot tell a process that still computes from one whose machine is gone: it waits. So each pair of
processes keeps a TCP connection on which nothing is sent. The kernel closes it when a process ends and probes it
meanwhile. The kernel also answers for a process that computes for hours, so a long validation is no loss.
"""

import json
import os
import secrets
import selectors
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from channelhash.errors import InputError, JobError

if TYPE_CHECKING:  # some builds of torch have no such module
    from torch.distributed.distributed_c10d import Store

#: Seconds until the kernel probes a silent connection, seconds between probes, and probes without an answer that close
#: it: a machine is lost after 40 s. With 2 % of the packets lost, seven lost answers in a row have odds of 2e-10.
#: macOS calls the first one TCP_KEEPALIVE.
_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPALIVE": 5, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 7}
#: Seconds that a process has to end by itself, with its own message, after another is lost.
_GRACE = 5.0
#: Seconds to connect to a process that has published its address.
_CONNECT = 60.0
_DONE = "."
_GO_ON = "the run keeps all up to its last checkpoint; start every process again with --resume"


class _Address(NamedTuple):
    """Where a process listens, the secret that callers show, and the name of its machine."""

    host: str
    port: int
    secret: str
    machine: str


@contextmanager
def watching_peers(store: "Store", rank: int, size: int) -> Iterator[None]:
    """Connect the processes of a training, and end this process when another is lost while the block runs.

    A `RuntimeError` of the block (a collective that failed) becomes a `JobError` that names the lost process. A block
    that does not end within 5 s of the loss cannot: one line goes to stderr, and the process ends with status 1.

    Args:
        store: shared by the processes.
        rank: number of this process.
        size: number of the processes.

    Raises:
        JobError: a process is lost, does not start or cannot be reached.

    Example::

        with watching_peers(store, rank=0, size=2):
            dist.all_reduce(values)
    """
    peers = _Peers(_connect(store, rank, size))
    farewell = _DONE
    try:
        yield
    except BaseException as error:
        message = " ".join(str(error).split()) or type(error).__name__
        farewell = f"rank {rank} on {socket.gethostname()} ended: {message}"
        if not isinstance(error, InputError):  # which comes again until the input is corrected
            farewell += f"; {_GO_ON}"
        if isinstance(error, RuntimeError) and peers.lost.wait(_GRACE):
            raise JobError(peers.reason) from error
        raise
    finally:
        peers.leave(farewell)


class _Peers:
    """The connections of a process, and the thread that reads them: ``lost`` is set once ``reason`` says who ended."""

    def __init__(self, names: dict[socket.socket, str]) -> None:
        self._names, self.reason = names, ""
        self.lost, self._left = threading.Event(), threading.Event()
        threading.Thread(target=self._watch, name="peers", daemon=True).start()

    def leave(self, farewell: str) -> None:
        """Tell the others how this process ends, and end the thread."""
        self._left.set()
        self._send(farewell)
        for connection in self._names:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _watch(self) -> None:
        self.reason = self._first_loss()
        if self.reason and not self._left.is_set():
            self._send(self.reason)
            self.lost.set()  # after which this process may end, and say no more
            if not self._left.wait(_GRACE):
                cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar hides the cursor
                os.write(2, f"{cursor}error: {self.reason}\n".encode(errors="backslashreplace"))
                os._exit(1)
        self._left.wait()
        for connection in self._names:
            connection.close()

    def _first_loss(self) -> str:
        """Return how the first process ended that did not end well, empty when all did."""
        with selectors.DefaultSelector() as selector:
            for connection, name in self._names.items():
                selector.register(connection, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select():
                    said = _said(key.fileobj, key.data)  # type: ignore[arg-type]
                    if said != _DONE:
                        return said
                    selector.unregister(key.fileobj)
        return ""

    def _send(self, message: str) -> None:
        for connection in self._names:
            with suppress(OSError):
                connection.send(f"{message}\n".encode()[:4096])


def _said(connection: socket.socket, name: str) -> str:
    """Return what another process said first before it ended, or how its connection ended."""
    try:
        said = connection.recv(4096).decode(errors="replace").partition("\n")[0]
    except ConnectionResetError:
        said = ""
    except OSError as error:
        return f"{name} no longer answers ({error.strerror}): its machine or the network is down; {_GO_ON}"
    return said or f"{name} ended without a message: it was killed or crashed; {_GO_ON}"


def _connect(store: "Store", rank: int, size: int) -> dict[socket.socket, str]:
    """Return a connection to each other process, with that process's name."""
    dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual else socket.AF_INET
    with socket.create_server(("", 0), family=family, backlog=size, dualstack_ipv6=dual) as listener:
        own = _Address(_own_host(), listener.getsockname()[1], secrets.token_hex(16), socket.gethostname())
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store.set(f"peer {attempt} {rank}", json.dumps(own))
        addresses = [_published(store, f"peer {attempt} {other}", other) for other in range(size)]
        connections = {other: _call(addresses[other], rank, other) for other in range(rank)}
        listener.settimeout(2 * _CONNECT)  # all have published their addresses, and need only call
        while len(connections) < size - 1:
            connection = _accept(listener, rank)
            caller = _caller(connection, own.secret)
            if caller is None:  # a port scanner, say
                connection.close()
            else:
                connections[caller] = connection
    for connection in connections.values():
        _keep_alive(connection)
    return {connection: f"rank {other} on {addresses[other].machine}" for other, connection in connections.items()}


def _published(store: "Store", key: str, other: int) -> _Address:
    try:
        return _Address(*json.loads(store.get(key)))
    except RuntimeError as error:  # the types of errors of a store are not public
        raise JobError(f"rank {other} has not started in time; its own messages say why") from error


def _own_host() -> str:
    """Return where other machines reach this one: MASTER_ADDR if that is here, else the address that faces it."""
    master = os.environ["MASTER_ADDR"]
    found = socket.getaddrinfo(master, int(os.environ["MASTER_PORT"]), type=socket.SOCK_DGRAM)
    family, kind, _, _, place = found[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)  # chooses the way and sends nothing
        host = str(probe.getsockname()[0])
    return master if host == place[0] or ip_address(host).is_loopback else host


def _call(address: _Address, rank: int, other: int) -> socket.socket:
    try:
        connection = socket.create_connection((address.host, address.port), timeout=_CONNECT)
        connection.sendall(f"{address.secret}{rank:8d}".encode())
    except OSError as error:
        raise JobError(
            f"rank {rank} on {socket.gethostname()} cannot reach rank {other} on {address.machine} at "
            f"{address.host}, port {address.port} ({error}); let every process connect to every other by TCP"
        ) from error
    return connection


def _accept(listener: socket.socket, rank: int) -> socket.socket:
    try:
        return listener.accept()[0]
    except TimeoutError as error:
        raise JobError(
            f"rank {rank} on {socket.gethostname()}: a later rank ended before it connected; its own messages say why"
        ) from error


def _caller(connection: socket.socket, secret: str) -> int | None:
    """Return the rank of a process that shows the secret; None for any other caller."""
    connection.settimeout(_CONNECT)
    try:
        said = connection.recv(len(secret) + 8).decode(errors="replace")  # so short that it comes in one packet
    except OSError:
        return None
    return int(said[len(secret) :]) if secrets.compare_digest(said[: len(secret)].encode(), secret.encode()) else None


def _keep_alive(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
