"""Progress of long jobs where there is no terminal: logs of batch systems, `nohup`, notebooks."""

import io
import re
from functools import partial

import pytest
from rich.console import Console
from rich.progress import Progress

from channelhash.cli import shared
from channelhash.utils.progress import note
from utils.test_watch import until


def test_a_line_says_how_far_a_stage_is_its_rate_and_the_time_left():
    """Time since the last report counts as work on what comes next."""
    now = 100.0
    bars = Progress(disable=True, get_time=lambda: now)
    stage = shared._Stage(bars, "train")
    lines = [shared._line(bars.tasks[0], "0:00:00 so far")]
    for done, seconds in ((0, 10), (3, 31), (6, 65), (9, 80)):
        now = 100.0 + seconds
        note(stage, f"loss {done / 8}")
        stage(done, 9)
        now += 4
        lines.append(shared._line(bars.tasks[0], "0:01:24 so far"))
    assert lines == [
        "train, 0:00:00 so far",
        "train 0 of 9, loss 0.0",
        "train 3 of 9, loss 0.375, 10.3 s each, 0:00:58 left",
        "train 6 of 9, loss 0.75, 10.8 s each, 0:00:28 left",
        "after train, 0:01:24 so far",
    ]


@pytest.mark.parametrize("width", [80, 140])
def test_a_bar_shows_loss_speed_and_time_left_in_one_line(width, monkeypatch):
    terminal = Console(force_terminal=True, width=width, record=True, file=io.StringIO())
    monkeypatch.setattr(shared, "_messages", terminal)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    with shared.progress_bars() as progress:
        advance = progress("measure steps and more")
        note(advance, "loss 0.1234")
        advance(100, 200)
        advance(150, 200)
    line = "measure" + terminal.export_text().rpartition("measure")[2].rstrip()
    assert re.fullmatch(
        r"measure steps and more \S+ 150/200 [\d.,]+/s loss 0.1234 [\d-]:[\d-]{2}:[\d-]{2}", line
    )
    assert len(line) <= width


def test_lines_come_although_nothing_reports_and_in_a_notebooks_terminal_too(monkeypatch, capsys):
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    monkeypatch.setattr(shared, "_SECONDS", 0.02)
    monkeypatch.setattr(
        shared, "_messages", Console(force_terminal=True, stderr=True, highlight=False)
    )
    printed = []

    def is_printed(line):
        printed.append(capsys.readouterr().err)
        return re.search(f"^{line}$", "".join(printed), re.M)

    with shared.progress_bars() as progress:
        until(partial(is_printed, r"0:00:\d\d so far"))
        train = progress("train")
        train(2, 4)
        until(partial(is_printed, r"train 2 of 4, [\d.,]+/s, 0:00:00 left"))
        progress("write")
        until(partial(is_printed, r"write, 0:00:\d\d so far"))
        train(4, 4)  # the stage that reported last
        until(partial(is_printed, r"after train, 0:00:\d\d so far"))
