"""Callbacks by which long jobs report progress."""

from collections.abc import Callable

#: Called with (done, total).
Progress = Callable[[int, int], None]
#: Called with the name of a stage; returns the progress callback of that stage.
StageProgress = Callable[[str], Progress]


def no_progress(done: int, total: int) -> None:
    """Report nothing.

    >>> no_progress(1, 10)
    """


def no_stage_progress(stage: str) -> Progress:
    """Return a callback that reports nothing of a stage.

    >>> no_stage_progress("train")(1, 10)
    """
    return no_progress
