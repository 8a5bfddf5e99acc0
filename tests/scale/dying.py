"""Workers that die by themselves, once, at a chosen place: what a lost machine or the kernel's memory killer does."""

import os
import signal
from pathlib import Path
from typing import Any

from channelhash import files
from channelhash.scale.encode import ShardEncoder, Written
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


class DyingEncoder(ShardEncoder):
    """Dies at the last moment: the codes of the shard are written, but do not have their name yet."""

    def __call__(self, number: int) -> Written:
        if number == SHARD and is_first(self._out / "job" / "killed"):

            def replace(source: Any, target: Path) -> None:
                if target.suffix == ".parquet":
                    die()
                os.rename(source, target)

            files.os.replace = replace  # type: ignore[assignment]  # of this process, which ends with it
        return super().__call__(number)


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


def encode_and_die(model: str, data: str, out: str, engine: str, items: str) -> None:
    """An encoding whose driver dies once so many items are done."""
    from channelhash.scale.encode import encode_bulk

    def progress(done: int, total: int) -> None:
        if done >= int(items):
            die()

    encode_bulk(Path(model), data, Path(out), engine, shard_items=8, progress=progress)
