"""How far an indexing run is, told in the store's folder to whoever serves the store meanwhile."""

import json
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
def told(store: Path, progress: StageProgress) -> Iterator[StageProgress]:
    """Yield a progress callback that also tells `read_run`, unless another run does so or nothing can be written."""
    folder = StoreFolder(store)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder.run_lock, wait=False))
        except OSError:  # also where the file system has no locks
            yield progress
            return
        stack.callback(folder.run.unlink, missing_ok=True)
        yield lambda stage: _told(folder, stage, progress(stage))


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
