"""Fills stores in processes that die of SIGKILL at points spread over all calls, long and short
ones.

``python -m tests.search.adding_until_killed FOLDER COUNT``: a process fills ``FOLDER/0`` and counts
its points: function calls, and steps inside SQLite. Then ``COUNT`` processes fill ``FOLDER/1`` …
and each dies at another point: every call of the store in turn, and within it at points spread
evenly. A line in ``FOLDER/N.acknowledged`` stands for every call that returned.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from channelhash import codes, open_store
from channelhash.search.sqlite import database as items_database, snapshots as layers

#: Batches, items in each, and bits of their codes, as in `contract`.
BATCHES, SIZE, N_BITS = 6, 7, 12


def batch(number: int) -> tuple[list[str], np.ndarray, list[dict[str, object]]]:
    """Ids, bits and metadata of a batch; no two items have the same code."""
    rows = np.arange(number * SIZE, (number + 1) * SIZE)
    metadata = [{"batch": number, "labels": [f"b{number}"]} for _ in rows]
    return [f"item {row}" for row in rows], (rows[:, None] >> np.arange(N_BITS)) & 1 > 0, metadata


def fill(folder: Path, acknowledge: Callable[[str], None]) -> None:
    """Add all batches, with snapshots in between, replace the first and delete the second."""
    store = open_store(folder, n_bits=N_BITS)
    for number in range(BATCHES):
        ids, bits, metadata = batch(number)
        store.add(ids, {"image": codes.pack(bits), "text": codes.pack(bits)}, metadata=metadata)
        acknowledge(f"add {number}")
        if number == 2:
            store.close()  # makes a snapshot
            store = open_store(folder, n_bits=N_BITS)
    store.upsert(batch(0)[0], codes.pack(~batch(0)[1]))
    acknowledge("upsert 0")
    store.delete(batch(1)[0])
    acknowledge("delete 1")
    store.close()


def die_at(point: int) -> list[int]:
    """Count function calls, and steps inside SQLite, up to ``point``; the count so far is in the
    list.
    """
    done = [0]

    def step(*_: object) -> int:
        done[0] += 1
        if done[0] == point:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    connect = items_database.sqlite3.connect

    def connect_counting(*args, **kwargs):  # type: ignore[no-untyped-def]
        connection = connect(*args, **kwargs)
        connection.set_progress_handler(step, 50)
        return connection

    items_database.sqlite3.connect = connect_counting  # type: ignore[assignment]
    sys.setprofile(step)
    return done


def run(folder: Path, number: int, point: int) -> list[int]:
    """Fill a store in another process until it dies at a point; return where each call ended if it
    does not.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        acknowledged = os.open(folder / f"{number}.acknowledged", os.O_WRONLY | os.O_CREAT)
        done, ends = die_at(point), list[int]()

        def acknowledge(line: str) -> None:
            os.write(acknowledged, f"{line}\n".encode())
            ends.append(done[0])

        fill(folder / str(number), acknowledge)
        sys.setprofile(None)
        os.write(writing, " ".join(map(str, [*ends, done[0]])).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    return [int(end) for end in os.read(reading, 1000).split()]


def main(folder: Path, count: int) -> None:
    layers._LEAST_IN_SNAPSHOT, layers._LEAST_IN_MEMORY = 10, 3
    ends = run(folder, 0, point=-1)
    rounds = -(-count // len(ends))
    for number in range(count):
        call, nth = number % len(ends), number // len(ends) + 1
        start = ends[call - 1] if call else 0
        run(folder, number + 1, start + (ends[call] - start) * nth // (rounds + 1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
