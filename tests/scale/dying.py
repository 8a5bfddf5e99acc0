"""Workers that die by themselves, once, at a chosen place: what a lost machine or the kernel's memory killer does."""

import os
import signal
from pathlib import Path

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


class AlwaysDying:
    """A task that no worker survives."""

    def __call__(self, task: int) -> None:
        die()
