"""One milvus-lite for a whole run of the tests: starting one takes a second."""

import atexit
import functools
import hashlib
import tempfile
from pathlib import Path


@functools.cache
def lite_file() -> Path:
    """The file; its server ends with the process."""
    folder = tempfile.TemporaryDirectory(prefix="milvus")
    file = Path(folder.name) / "lite.db"

    def end() -> None:
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(str(file))
        folder.cleanup()

    atexit.register(end)
    return file


def lite_address(name: object) -> str:
    """The address of a collection of its own for ``name``."""
    return f"milvus+{lite_file()}/c{hashlib.sha256(str(name).encode()).hexdigest()[:20]}"
