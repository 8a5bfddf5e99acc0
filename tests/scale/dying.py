"""Workers that die by themselves, once, at a chosen place: what a lost machine or the kernel's memory killer does."""

import os
import signal
from pathlib import Path

from channelhash.scale.evaluate import Counted, ShardCounter

SHARD = 3


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def is_first(marker: Path) -> bool:
    """Whether nobody was here before; for processes of one machine."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class DyingCounter(ShardCounter):
    """Dies when it has counted a shard and before anyone has heard of it."""

    def __call__(self, paths: list[Path]) -> Counted:
        counted = super().__call__(paths)
        if f"{SHARD}." in paths[0].name and is_first(paths[0].with_suffix(".killed")):
            die()
        return counted


class AlwaysDying:
    """A task that no worker survives."""

    def __call__(self, task: int) -> None:
        die()
