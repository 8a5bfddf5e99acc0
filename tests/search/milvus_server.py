"""One Milvus server for the tests of one file: starting one takes some seconds, and two do not run side by side."""

import atexit
import functools
import hashlib
import tempfile
from contextlib import ExitStack

_ends = ExitStack()
atexit.register(_ends.close)


@functools.cache
def server() -> str:
    """The address of the server, which ends with `stop_server`, or with the process."""
    from milvus import MilvusServer, MilvusServerConfig

    folder = tempfile.TemporaryDirectory(prefix="milvus", ignore_cleanup_errors=True)
    config = MilvusServerConfig()
    # Requests that are to see what was written before wait for the next tick, 200 ms by default.
    config.extra_configs = {"proxy.timeTickInterval": 10}
    running = MilvusServer(config)
    running.set_base_dir(folder.name)
    running.start()

    def end() -> None:
        running.stop()
        folder.cleanup()

    _ends.callback(end)
    return f"http://127.0.0.1:{running.listen_port}"


def stop_server() -> None:
    """End the server, which keeps half a core busy even while nobody asks."""
    _ends.close()
    server.cache_clear()


def milvus_address(name: object) -> str:
    """The address of a collection of its own for ``name``."""
    return f"milvus+{server()}/c{hashlib.sha256(str(name).encode()).hexdigest()[:20]}"
