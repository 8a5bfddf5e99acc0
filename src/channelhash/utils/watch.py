"""A folder that is watched: a job runs whenever something has changed in it.

The job runs in a process of its own, at a low priority: it does not hold up a server's answers, and
its memory is freed when it ends. It may be ended at any time, so it has to be a job that continues
where it was.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from ctypes import Structure, c_char, c_long
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any

from channelhash.utils.machine import hold_interrupts, process_pool
from channelhash.utils.optional_imports import library
from channelhash.utils.progress import Progress, StageProgress
from channelhash.utils.typed_settings import naming_own_code

#: How `watchfiles` watches, in milliseconds: between two looks at what the system has noticed;
#: without a change until it answers; and between two looks at all files, where the system notices
#: nothing, or not in so many folders.
_PACE = {"step": 500, "rust_timeout": 2000, "poll_delay_ms": 30_000}
#: A folder that is never quiet is indexed after this many seconds.
_LONGEST = 60.0
#: A quiet folder is indexed after this many seconds: network drives do not report the changes of
#: others.
_REGULAR = 600.0
#: Seconds between two runs, or as many as the last one took if they are fewer: something may always
#: change.
_REST = 10.0
#: Seconds until a folder that could not be watched is tried again.
_AGAIN = 30.0
#: Priority of a run: a tenth of what a server's answers get of a busy core. At the lowest, other
#: programs would keep the first pictures away for minutes.
_NICE = 10
#: Seconds between two lines on a run that is under way.
_SECONDS = 15.0
#: Bytes of the name of a stage in a report.
_NAME = 16
#: Bytes of a problem in a report.
_LINE = 1000

#: Brings a store up to date; returns a line for each picture that was left out, and what has
#: changed, if anything.
_Job = Callable[[StageProgress], tuple[Sequence[str], str]]

# The report of a process that runs a job.
_report: "Report"


class Report(Structure):
    """What all processes of a server see of the indexing of its folder, in memory that they share
    without a lock: a process that is ended might hold it for ever.

    Attributes:
        stage: what the run does that is under way, or did when it was ended; empty if there is
            none.
        done, total: how far it is.
        problem: why the last run failed; empty if it did not.

    >>> Report.new().stage
    b''
    """

    stage: bytes
    done: int
    total: int
    problem: bytes
    _fields_ = [
        ("stage", c_char * _NAME),
        ("done", c_long),
        ("total", c_long),
        ("problem", c_char * _LINE),
    ]

    @classmethod
    def new(cls) -> "Report":
        """Return an empty one in shared memory."""
        return RawValue(cls)

    @property
    def so_far(self) -> str:
        """How far the run is; empty if there is none, or nothing is counted yet.

        >>> report = Report.new()
        >>> report.progress("indexing")(256, 1802)
        >>> report.so_far
        'indexing 256 of 1,802'
        """
        counts = f"{self.stage.decode()} {self.done:,} of {self.total:,}"
        return counts if self.stage and self.total else ""

    def progress(self, stage: str) -> Progress:
        """Begin a stage, and return its callback."""

        def show(done: int, total: int) -> None:
            self.stage = stage.encode()[: _NAME - 1]
            self.done = done
            self.total = total

        show(0, 0)
        return show


class _Schedule:
    """When a folder is indexed: at first, and after changes once it is quiet.

    Args:
        now: seconds of a clock that only goes forward, as everywhere here.
    """

    def __init__(self, now: float) -> None:
        #: When the change came that is to be indexed; None if there is none.
        self._waiting_since: float | None = now
        self._last_end = 0.0
        self._rest = 0.0

    def is_due(self, now: float, changed: bool) -> bool:
        """Return whether to index now, and remember whether something has just changed."""
        if self._waiting_since is None and (changed or now - self._last_end > _REGULAR):
            self._waiting_since = now
        if self._waiting_since is None or now - self._last_end < self._rest:
            return False
        return not changed or now - self._waiting_since > _LONGEST

    def end_run(self, begin: float, end: float) -> None:
        """Note that the folder was indexed."""
        self._waiting_since = None
        self._last_end = end
        self._rest = min(end - begin, _REST)


class Watch(threading.Thread):
    """Runs a job at first and whenever something has changed in a folder, until the block ends.

    Args:
        folder: the photographs.
        store: what changes in here does not count.
        job: must be one that can be pickled.
        report: shows how far the job is, and what is wrong.
        say: takes a line for people.
        log: lines on what was left out that were said before.

    Example::

        with Watch(Path("photos"), Path("photos/.channelhash"), job, Report.new(), print):
            run_server(app, listening, ready)
    """

    def __init__(
        self,
        folder: Path,
        store: Path,
        job: _Job,
        report: Report,
        say: Callable[[str], None],
        log: Sequence[str] = (),
    ) -> None:
        super().__init__(name="watch")
        self._folder = folder
        self._store = store.resolve()
        self._job = job
        self._report = report
        self._say = say
        self._log = set(log)
        self._ended = threading.Event()

    def __enter__(self) -> None:
        self._watch = library("watchfiles", "serve").watch
        if self._folder.is_dir():
            self._report.progress("looking")  # a run is due
        self.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Watch the folder; again and again where it is not there, as on a drive that is
        unplugged.
        """
        polls = seen = False
        while not self._ended.is_set():
            seen = seen or self._folder.is_dir()
            try:
                self._follow(self._folder.resolve(), polls)
            except OSError as error:
                if seen:  # a store may be served where its photographs never were
                    self._set_problem(
                        f"{self._folder}: cannot be watched ({error.strerror or error})"
                    )
                polls = self._folder.is_dir()  # more folders than the system watches
                self._ended.wait(_AGAIN)

    def _follow(self, folder: Path, polls: bool) -> None:
        """Index a folder when it is quiet after a change, as long as it is the same one."""
        before = folder.stat()
        schedule = _Schedule(time.monotonic())
        for changes in self._watch(
            folder,
            stop_event=self._ended,
            force_polling=polls or None,
            watch_filter=None,
            yield_on_timeout=True,
            ignore_permission_denied=True,
            **_PACE,
        ):
            now = time.monotonic()
            changed = any(self._counts(change.name, Path(path), folder) for change, path in changes)
            if not os.path.samestat(folder.stat(), before):
                return
            if schedule.is_due(now, changed):
                self._index()
                schedule.end_run(now, time.monotonic())

    def _counts(self, change: str, path: Path, folder: Path) -> bool:
        """Return whether a change may be one of photographs: not in the store, nor in what is
        hidden.

        Where all files are polled, a folder is also reported as modified when a file is added in
        it, which is reported by itself.
        """
        hidden = any(name.startswith(".") for name in path.parts[len(folder.parts) :])
        return not (
            hidden or path.is_relative_to(self._store) or (change == "modified" and path.is_dir())
        )

    def _index(self) -> None:
        """Run the job; say what it has left out for the first time, and what has changed."""
        try:
            with process_pool(1, _begin, (self._report,)) as pool:
                with hold_interrupts():
                    running = pool.submit(_work, self._job)
                self._wait(running)
                left_out, summary = running.result()
                for line in [
                    *(f"left out: {line}" for line in left_out if line not in self._log),
                    summary,
                ]:
                    if line:
                        self._say(line)
                self._log = set(left_out)
                self._report.problem = self._report.stage = b""
        except InterruptedError:
            pass  # the report says in what
        except Exception as error:  # whatever is wrong, the next change may have mended it
            self._set_problem(str(error) or type(error).__name__)

    def _wait(self, running: Future[Any]) -> None:
        """Wait for a run, and say now and then how far it is. Raise `InterruptedError` once the
        block ends.
        """
        due = time.monotonic() + _SECONDS
        while not wait([running], 0.2).done:
            if self._ended.is_set():
                raise InterruptedError
            if time.monotonic() > due and self._report.so_far:
                self._say(self._report.so_far)
                due = time.monotonic() + _SECONDS

    def _set_problem(self, line: str) -> None:
        """Report a problem, and say it once."""
        self._report.stage = b""
        content = " ".join(line.split()).encode(errors="replace")[: _LINE - 1]
        if content != self._report.problem:
            self._say(content.decode(errors="replace"))
        self._report.problem = content


def _begin(report: Report) -> None:
    """Begin the process of a job."""
    global _report
    _report = report
    if hasattr(os, "nice"):  # not on Windows
        os.nice(_NICE)


def _work(job: _Job) -> tuple[Sequence[str], str]:
    with naming_own_code():
        return job(_report.progress)
