"""Do work on each item in a thread while the next items are made."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def work_behind(items: Iterable[T], work: Callable[[T], object], ahead: int = 2) -> Generator[T, None, None]:
    """Yield items in order, each when ``work`` on it is done; one thread works while this one makes the next items.

    An error of ``work`` is raised here, and no further item is worked on. When the iterator is closed, the item that is
    worked on is finished and those that wait are dropped.

    Args:
        items: drawn in this thread, at most ``ahead`` more than are yielded.
        work: called with each item, one after the other.
        ahead: number of items that may wait.

    >>> squares = []
    >>> list(work_behind([1, 2, 3], lambda number: squares.append(number**2))), squares
    ([1, 2, 3], [1, 4, 9])
    """
    thread = ThreadPoolExecutor(1)
    pending: deque[tuple[T, Future[object]]] = deque()
    try:
        for item in items:
            pending.append((item, thread.submit(work, item)))
            while pending and (len(pending) > ahead or pending[0][1].done()):
                yield _finished(pending)
        while pending:
            yield _finished(pending)
    finally:
        thread.shutdown(cancel_futures=True)


def _finished(pending: "deque[tuple[T, Future[object]]]") -> T:
    item, future = pending.popleft()
    future.result()
    return item
