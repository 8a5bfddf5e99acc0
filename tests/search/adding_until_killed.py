"""Fills stores in processes that die of SIGKILL at points spread over the whole work.

``python -m tests.search.adding_until_killed FOLDER COUNT``: a process fills ``FOLDER/0`` and counts its points:
function calls, and steps inside SQLite. Then ``COUNT`` processes fill ``FOLDER/1`` … and each dies at another point. A
line in ``FOLDER/N.acknowledged`` stands for every call that returned.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from channelhash import codes, open_store
from channelhash.search.local import database as items_database

#: Batches and items in each.
from channelhash.search.local import snapshots as layers

#: Batches and items in each.
BATCHES, SIZE = 6, 7


def batch(number: int) -> tuple[list[str], np.ndarray, list[dict[str, object]]]:
    """Ids, codes and metadata of a batch; no two items have the same code."""
    rows = np.arange(number * SIZE, (number + 1) * SIZE)
    bits = (rows[:, None] >> np.arange(16)) & 1
    return (
        [f"item {row}" for row in rows],
        codes.pack(bits),
        [{"batch": number, "labels": [f"b{number}"]} for _ in rows],
    )


def fill(folder: Path, acknowledged: int) -> None:
    """Add all batches, with snapshots in between, replace the first and delete the second."""
    store = open_store(folder)
    for number in range(BATCHES):
        ids, packed, metadata = batch(number)
        store.add(ids, {"image": packed, "text": packed}, metadata=metadata)
        os.write(acknowledged, f"add {number}\n".encode())
        if number == 2:
            store.close()  # makes a snapshot
            store = open_store(folder)
    store.upsert(batch(0)[0], ~batch(0)[1])
    os.write(acknowledged, b"upsert 0\n")
    store.delete(batch(1)[0])
    os.write(acknowledged, b"delete 1\n")
    store.close()


def die_at(point: int) -> list[int]:
    """Count function calls, and steps inside SQLite, up to ``point``; the count so far is in the list."""
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


def run(folder: Path, number: int, point: int) -> int:
    """Fill a store in another process until it dies at a point, if it does; returns the number of points then."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        acknowledged = os.open(folder / f"{number}.acknowledged", os.O_WRONLY | os.O_CREAT)
        done = die_at(point)
        fill(folder / str(number), acknowledged)
        sys.setprofile(None)
        os.write(writing, str(done[0]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    return int(os.read(reading, 100) or 0)


def main(folder: Path, count: int) -> None:
    layers._LEAST_IN_SNAPSHOT, layers._LEAST_IN_MEMORY = 10, 3
    points = run(folder, 0, point=-1)
    for number in range(1, count + 1):
        run(folder, number, points * number // (count + 1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
