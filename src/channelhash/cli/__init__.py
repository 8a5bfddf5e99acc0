"""The command line: parse, call one function, print.

This file also ends a command that Ctrl-C or SIGTERM stops: it says what was kept and how to go on,
and exits with 130 or 143.
"""

import atexit
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

#: Seconds that a command has to close its files and end its workers. Every file is whole even if
#: these do not suffice.
_GRACE = 10.0


class _Stopped(BaseException):
    """SIGINT or SIGTERM arrived. Only `obey_signals` catches it."""


def same_command() -> list[str]:
    """Return the words of the command that runs."""
    return ["channelhash", *sys.argv[1:]]


class _Ending:
    """How the command ends when a signal comes; ``signal`` is the one that came first, 0 for none.

    Not a dataclass: importing that module would take longer than all else before the handlers.
    """

    def __init__(self) -> None:
        self.unwinds = False
        self.message = "nothing half is left"
        self.go_on = same_command
        self.signal = 0
        self.spoke = False

    def leave(self, end: Callable[[int], NoReturn] = os._exit) -> NoReturn:
        """End the process wherever it is, or by ``end``, with one line, said once.

        It goes past `sys.stderr`, whose lock the interrupted code may hold.
        """
        # of a distributed training the first process speaks
        if not self.spoke and int(os.environ.get("RANK", 0)) <= 0:
            self.spoke = True
            name = "Ctrl-C" if self.signal == signal.SIGINT else "SIGTERM"
            words = self.go_on()
            rest = f"; continue with: {shlex.join(words)}" if words else ""
            cursor = "\x1b[?25h" if os.isatty(2) else ""  # a progress bar hides the cursor
            line = f"{cursor}stopped by {name}: {self.message}{rest}\n"
            os.write(2, line.encode(errors="backslashreplace"))
        end(128 + self.signal)


_ending = _Ending()


def when_stopped(message: str, go_on: Callable[[], list[str]] = same_command) -> None:
    """Declare what a signal leaves from now on; a command calls this before it writes.

    Args:
        message: what is kept, without a full stop.
        go_on: returns the words of the command that goes on, asked when the signal has come; none
            if all is done.
    """
    _ending.unwinds = True
    _ending.message = message
    _ending.go_on = go_on


def next_command() -> list[str]:
    """Return the words of the command that continues after this one has ended."""
    return _ending.go_on() or same_command()


@contextmanager
def obey_signals() -> Iterator[None]:
    """End the process at SIGINT or SIGTERM from now on, once the block is unwound.

    While a command only imports and reads, the process ends at once. Later `_Stopped` unwinds the
    block: files are closed, and temporary files are removed. A second signal ends the
    process wherever it is, and so do `_GRACE` seconds if Python or a library swallows `_Stopped`.
    """
    listen()
    try:
        yield
    finally:
        if _ending.signal:
            _ending.leave(sys.exit)
        _ending.unwinds = False


def listen() -> None:
    """Install the handlers, in the main thread only, as Python demands."""
    if threading.current_thread() is not threading.main_thread():
        return
    global _ending
    _ending = _Ending()
    owner = os.getpid()

    def handle(number: int, _: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked worker: its parent ends it and speaks
            os._exit(128 + number)
        again = _ending.signal
        _ending.signal = _ending.signal or number
        if again or not _ending.unwinds:
            _ending.leave()
        watchdog = threading.Timer(_GRACE, _ending.leave)
        watchdog.daemon = True
        watchdog.start()
        raise _Stopped

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handle)
        # Python takes its handlers away while it ends; a signal would then change the exit status.
        atexit.register(signal.signal, number, signal.SIG_IGN)
