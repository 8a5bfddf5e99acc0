"""The indexing run that writes to a store: others wait for it, and whoever serves the store sees how far it is."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from channelhash.errors import JobError
from channelhash.search.items import IndexingRun
from channelhash.search.local.folder import StoreFolder
from channelhash.utils.files import locked, write_text
from channelhash.utils.progress import Progress, StageProgress

# Seconds between two writes of the file.
_PAUSE = 1.0


@contextmanager
def hold_run(store: Path, progress: StageProgress) -> Iterator[StageProgress]:
    """Wait until no other run writes to a store, and yield a progress callback that also tells `read_run`.

    Where nothing can be written, or the file system has no locks, nobody waits.

    Args:
        store: the store's folder, which is made, and removed again if the block leaves nothing in it.
        progress: stage -> its callback; one stage is to wait.
    """
    folder = StoreFolder(store)
    with ExitStack() as stack:
        try:
            try:
                stack.enter_context(locked(folder.run_lock, wait=False))
            except BlockingIOError:
                progress(f"waiting for another command that indexes {folder.path}")(0, 0)
                stack.enter_context(locked(folder.run_lock))
        except OSError:
            yield progress
            return
        stack.callback(_tidy, folder)
        yield lambda stage: _told(folder, stage, progress(stage))


def _tidy(folder: StoreFolder) -> None:
    """Remove what says how far the run is; where there is no store, also the lock and its folder."""
    folder.run.unlink(missing_ok=True)
    with suppress(OSError):
        if os.listdir(folder.path) == [folder.run_lock.name]:
            folder.run_lock.unlink()  # still locked, so nobody has begun meanwhile
            folder.path.rmdir()


def read_run(store: Path) -> IndexingRun | None:
    """Return the indexing run that writes to the store in a folder; None if there is none, or it was killed."""
    folder = StoreFolder(store)
    try:
        if not folder.run.exists():
            return None
        with locked(folder.run_lock, wait=False):
            return None
    except BlockingIOError:
        with suppress(OSError, ValueError, TypeError):
            return IndexingRun(**json.loads(folder.run.read_text(encoding="utf-8")))
    except OSError:
        pass
    return None


def _told(folder: StoreFolder, stage: str, progress: Progress) -> Progress:
    last = 0.0

    def advance(done: int, total: int) -> None:
        nonlocal last
        progress(done, total)
        if time.monotonic() - last > _PAUSE:
            last = time.monotonic()
            with suppress(OSError, JobError):
                write_text(folder.run, json.dumps(IndexingRun(stage, done, total)._asdict()))

    return advance
