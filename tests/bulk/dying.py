"""Workers that die by themselves, once, at a chosen place, as on a lost machine or by the kernel's
memory killer.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from channelhash.bulk import _ShardEncoder, encode_bulk
from channelhash.bulk.workers import Workers
from channelhash.utils import files

SHARD = 3


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def make_dying() -> Callable[[int], None]:
    """A task that no worker survives."""
    return lambda task: die()


class DyingEncoder(_ShardEncoder):
    """Dies at the last moment: the codes of the shard are written, but do not have their name
    yet.
    """

    def __call__(self, number: int) -> int:
        marker = self._out / "job" / "killed"
        if number == SHARD and not marker.exists():
            marker.touch()

            def replace(source: Any, target: Path) -> None:
                if target.suffix == ".parquet":
                    die()
                os.rename(source, target)

            files.os.replace = replace  # type: ignore[assignment]  # of this process, which ends with it
        return super().__call__(number)


def encode_and_die(model: str, data: str, out: str, engine: str, items: str) -> None:
    """An encoding whose driver dies once so many items are done."""

    def progress(done: int, total: int) -> None:
        if done >= int(items):
            die()

    encode_bulk(Path(model), data, Path(out), Workers(engine), shard_items=8, progress=progress)
