"""Encoders that die by themselves, once; apart from `dying`, because they take seconds to import."""

import os
from pathlib import Path
from typing import Any

from channelhash.scale.encode import ShardEncoder, encode_bulk
from channelhash.scale.job import Workers
from channelhash.utils import files
from scale.dying import SHARD, die, is_first


class DyingEncoder(ShardEncoder):
    """Dies at the last moment: the codes of the shard are written, but do not have their name yet."""

    def __call__(self, number: int) -> int:
        if number == SHARD and is_first(self._out / "job" / "killed"):

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
