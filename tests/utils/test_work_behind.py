"""Work in a thread of its own: in order, bounded, and its errors are raised."""

import threading
from contextlib import closing

import pytest

from channelhash.utils.work_behind import work_behind


def test_items_are_made_while_the_former_ones_are_worked_on():
    made, may_work, done = [], threading.Event(), []

    def items():
        for number in range(6):
            made.append(number)
            if number == 2:  # two are made while the thread waits
                may_work.set()
            yield number

    def work(number):
        assert may_work.wait(10)
        done.append(number)

    for number in work_behind(items(), work):
        assert number in done
        assert max(made) <= number + 2
    assert done == list(range(6))


def test_an_error_of_the_work_is_raised_and_ends_it():
    done = []

    def work(number):
        if number == 2:
            raise OSError("no room")
        done.append(number)

    with pytest.raises(OSError, match="no room"):
        list(work_behind(range(9), work))
    assert done[:2] == [0, 1]
    assert len(done) <= 4


def test_what_is_worked_on_is_finished_when_the_iterator_is_closed():
    done = []
    with closing(work_behind(range(9), done.append)) as numbers:
        assert next(numbers) == 0
    n_done = len(done)
    assert done == list(range(n_done))
    assert n_done < 9
