"""A network of machines that delays and loses packets, made of Linux namespaces; the kernel's own netem is not needed.

Each machine is a network namespace with one TUN device. A thread reads the packets of all devices and delivers each one
after the delay to the device of its destination, or to none.
"""

import heapq
import os
import random
import selectors
import shutil
import struct
import subprocess
import sys
import threading
import time

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class LossyNetwork:
    """Machines 1 … n at the addresses 10.77.0.1 … n, connected by ``device``.

    Args:
        machines: n.
        delay: seconds from one machine to another.
        loss: share of the packets that is lost.

    Raises:
        PermissionError: not root, or the kernel has no namespaces or TUN devices; the message says which.
    """

    def __init__(self, machines: int, delay: float, loss: float) -> None:
        tools = shutil.which("ip") and os.path.exists("/dev/net/tun")
        if sys.platform != "linux" or os.geteuid() != 0 or not tools:
            raise PermissionError("network namespaces need Linux, root, the command ip (iproute2) and /dev/net/tun")
        self._delay, self._loss, self._random = delay, loss, random.Random(0)
        self.device = f"lossy{os.getpid()}"
        self.passed = self.lost = 0
        self._cut: set[bytes] = set()
        self._ends: dict[bytes, int] = {}
        self._names: list[str] = []
        try:
            for number in range(1, machines + 1):
                self._add(f"channelhash-{os.getpid()}-{number}", self.address(number))
        except (OSError, subprocess.CalledProcessError) as error:
            self._remove()
            raise PermissionError(f"no network namespaces: {getattr(error, 'stderr', '') or error}") from error
        self._wake, self._stop = os.pipe()
        self._thread = threading.Thread(target=self._forward, daemon=True)
        self._thread.start()

    @staticmethod
    def address(number: int) -> str:
        return f"10.77.0.{number}"

    def on(self, number: int) -> list[str]:
        """The words before a command that let it run on a machine."""
        return ["ip", "netns", "exec", self._names[number - 1]]

    def cut(self, number: int) -> None:
        """Lose everything that a machine sends and is sent from now on; nobody is told."""
        self._cut.add(bytes([10, 77, 0, number]))

    def mend(self) -> None:
        """Connect all machines again."""
        self._cut.clear()

    def close(self) -> None:
        os.write(self._stop, b".")
        self._thread.join()
        self._remove()
        os.close(self._wake)
        os.close(self._stop)

    def _add(self, name: str, address: str) -> None:
        import fcntl  # other systems have none

        _ip("netns", "add", name)
        self._names.append(name)
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        self._ends[bytes(int(part) for part in address.split("."))] = end
        fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22x", self.device.encode(), _IFF_TUN | _IFF_NO_PI))
        _ip("link", "set", self.device, "netns", name)
        _ip("-n", name, "address", "add", f"{address}/24", "dev", self.device)
        for device in ("lo", self.device):
            _ip("-n", name, "link", "set", device, "up")

    def _remove(self) -> None:
        for end in self._ends.values():
            os.close(end)
        for name in self._names:
            _ip("netns", "delete", name)

    def _forward(self) -> None:
        waiting: list[tuple[float, int, bytes]] = []
        with selectors.DefaultSelector() as selector:
            for end in (self._wake, *self._ends.values()):
                selector.register(end, selectors.EVENT_READ)
            while True:
                pause = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
                for key, _ in selector.select(pause):
                    if key.fd == self._wake:
                        return
                    packet, arrives = os.read(key.fd, 2048), time.monotonic() + self._delay
                    source, destination = packet[12:16], packet[16:20]  # of IPv4; there are no IPv6 routes
                    known = destination in self._ends and not self._cut & {source, destination}
                    if known and self._random.random() >= self._loss:
                        self.passed += 1
                        heapq.heappush(waiting, (arrives, self.passed, packet))
                    else:
                        self.lost += 1
                while waiting and waiting[0][0] <= time.monotonic():
                    packet = heapq.heappop(waiting)[2]
                    os.write(self._ends[packet[16:20]], packet)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
