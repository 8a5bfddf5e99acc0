"""Progress of long jobs where there is no terminal: logs of batch systems, `nohup`, notebooks."""

import re

from channelhash.cli import output


def test_a_line_says_how_far_a_stage_is_its_rate_and_the_time_left(monkeypatch, capsys):
    now = iter([100.0, 110.0, 131.0, 140.0, 165.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(now))
    with output.progress_bars() as progress:
        advance = progress("train")
        for done in (1, 3, 4, 6):
            advance(done, 9)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.findall(r"^.+$", printed.err, re.M) == [
        "train: 3 of 9, 10.3 s each, 0:01:02 left",
        "train: 6 of 9, 10.8 s each, 0:00:32 left",
    ]
