"""Progress of long jobs where there is no terminal: logs of batch systems, `nohup`, notebooks."""

import io
import re

import pytest
from rich.console import Console

from channelhash.cli import output
from channelhash.utils.progress import note


def test_a_line_says_how_far_a_stage_is_its_rate_and_the_time_left(monkeypatch, capsys):
    now = iter([100.0, 110.0, 131.0, 140.0, 165.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(now))
    with output.progress_bars() as progress:
        advance = progress("train")
        for done in (1, 3, 4, 6):
            if done > 3:
                note(advance, f"loss {done / 8}")
            advance(done, 9)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.findall(r"^.+$", printed.err, re.M) == [
        "train: 3 of 9, 10.3 s each, 0:01:02 left",
        "train: 6 of 9, loss 0.75, 10.8 s each, 0:00:32 left",
    ]


@pytest.mark.parametrize("width", [80, 140])
def test_a_bar_shows_loss_speed_and_time_left_in_one_line(width, monkeypatch):
    terminal = Console(force_terminal=True, width=width, record=True, file=io.StringIO())
    monkeypatch.setattr(output, "_messages", terminal)
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    with output.progress_bars() as progress:
        advance = progress("measure steps and more")
        note(advance, "loss 0.1234")
        advance(100, 200)
        advance(150, 200)
    line = "measure" + terminal.export_text().rpartition("measure")[2].rstrip()
    assert re.fullmatch(r"measure steps and more \S+ 150/200 [\d.,]+/s loss 0.1234 [\d-]:[\d-]{2}:[\d-]{2}", line)
    assert len(line) <= width


def test_a_shell_in_a_notebook_has_lines_although_it_is_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    monkeypatch.setattr(output, "_SECONDS", 0)
    monkeypatch.setattr(output, "_messages", Console(force_terminal=True, stderr=True, highlight=False))
    with output.progress_bars() as progress:
        progress("train")(2, 4)
    assert re.fullmatch(r"train: 2 of 4, [\d.,]+/s, 0:00:00 left\n", capsys.readouterr().err)
