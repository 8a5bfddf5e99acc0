"""A Ray cluster on this machine: its nodes are processes with ports and object stores of their own."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from channelhash.scale.job import keeping_sigterm
from channelhash.utils.optional_imports import library

# The smallest store that Ray takes is 75 MB.
_STORE_BYTES = 80 << 20
# Ray reads it once in a process, so all clusters of this one share it.
_TOKEN = secrets.token_hex(32)


def _started(start: Callable[[], Any]) -> Any:
    """Start a part of a cluster, a second time where a busy machine took longer than the 30 s that Ray waits.

    What a try that failed had started is killed, for nobody knows of it.
    """
    this: Any = library("psutil", "ray").Process()  # of Ray, which brings it
    before = this.children(recursive=True)
    with keeping_sigterm():
        try:
            return start()
        except Exception as error:  # Ray raises nothing more special
            for process in this.children(recursive=True):
                if process not in before:
                    process.kill()
            if "timed out during startup" not in str(error):
                raise
            return start()


class RayNodes:
    """A head without workers, and nodes of one worker each, of which there are none at first."""

    def __init__(self) -> None:
        cluster_utils: Any = library("ray.cluster_utils", "ray")
        head = {"num_cpus": 0, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
        self._cluster = _started(lambda: cluster_utils.Cluster(initialize_head=True, head_node_args=head))

    @property
    def address(self) -> str:
        """What ``RAY_ADDRESS`` has to be."""
        return str(self._cluster.address)

    def add(self) -> None:
        """Add a node."""
        _started(lambda: self._cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES))

    def kill(self) -> None:
        """End all processes of a node with SIGKILL."""
        node = min(self._cluster.worker_nodes, key=lambda node: node.unique_id)
        self._cluster.remove_node(node, allow_graceful=False)

    def stop(self) -> None:
        """End all processes."""
        self._cluster.shutdown()


@contextmanager
def ray_nodes(count: int) -> Iterator[RayNodes]:
    """Run a cluster, which ``RAY_ADDRESS`` names inside the block; only processes with its token may use it.

    Its files are in a folder of its own, which is removed: in Ray's usual folder it would become the cluster that other
    programs on this machine join where they name none.
    """
    before = dict(os.environ)
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": folder}
        if "RAY_AUTH_MODE" not in before:
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}
        try:
            nodes = RayNodes()
            try:
                for _ in range(count):
                    nodes.add()
                os.environ["RAY_ADDRESS"] = nodes.address
                yield nodes
            finally:
                nodes.stop()
        finally:
            for name in os.environ.keys() - before.keys():
                del os.environ[name]
            os.environ.update(before)
