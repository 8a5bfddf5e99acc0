"""The last border of the command line: nothing that a person sees is a traceback."""

import pytest

from channelhash.cli import main
from small_runs import assert_refused


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (KeyError("rows"), "KeyError: 'rows'; this is a bug, please report it; --debug shows where"),
        (RecursionError("maximum depth"), "RecursionError: maximum depth; this is a bug"),
        (MemoryError("Unable to allocate 7 TiB"), "out of memory (Unable to allocate 7 TiB); take a smaller input"),
    ],
)
def test_the_unforeseen_ends_in_one_line(error, says, monkeypatch, capsys):
    def app():
        raise error

    monkeypatch.setattr(main, "app", app)
    assert_refused(capsys, "search", says=says, status=1)
