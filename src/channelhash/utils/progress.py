"""Callbacks by which long jobs report progress."""

from collections.abc import Callable

#: Called with (done, total).
Progress = Callable[[int, int], None]
#: Called with the name of a stage; returns the progress callback of that stage.
StageProgress = Callable[[str], Progress]


def note(progress: Progress, text: str) -> None:
    """Let a callback show a few words beside what is done; callbacks that are plain functions show
    none.

    >>> note(no_progress, "loss 0.5")
    """
    show = getattr(progress, "note", None)
    if show:
        show(text)


def no_progress(done: int, total: int) -> None:
    """Report nothing.

    >>> no_progress(1, 10)
    """


def no_stage_progress(stage: str) -> Progress:
    """Return a callback that reports nothing of a stage.

    >>> no_stage_progress("train")(1, 10)
    """
    return no_progress
